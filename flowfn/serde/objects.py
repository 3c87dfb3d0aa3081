"""Families of classes that the typed tier can store: how one is recognised, taken apart and put together.

An object is rebuilt without its `__init__`, `__post_init__` or any other method of it: memory from the builtin below,
and the attributes put back. So a class whose author says how it is pickled is left to pickle, and so is one with state
that only its C code sees. Foreign packages are recognised when they are loaded, and never imported.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import ormsgpack

from flowfn.serde.classes import find, found
from flowfn.serde.exceptions import slots_of
from flowfn.serde.kinds import NotPlain


class Family(NamedTuple):
    """A kind of class.

    Attributes:
        claims: whether the class is of this family, and all of its objects can be taken apart.
        taker: from a class to the function that gives what is stored of an object beside its class.
        maker: from a class to the function that makes an object of what was stored.
    """

    code: int
    claims: Callable[[Any], bool]
    taker: Callable[[Any], Callable[[Any], Any]]
    maker: Callable[[Any], Callable[[Any], Any]]


# ---------------------------------------------------------------- plain attributes: dataclasses and attrs

_UNSET = object()
_GENERATORS = ("dataclasses", "attr._make", "pydantic.main", "pydantic.root_model")


def _pickles_as_usual(cls: Any) -> bool:
    """Whether nobody wrote methods that say how an object of the class is to be pickled."""
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"):
        method = getattr(cls, name, None)
        written = getattr(method, "__globals__", {}).get("__name__")
        if method is not getattr(object, name, None) and written not in _GENERATORS:
            return False
    return True


def _is_attributes_only(cls: Any) -> bool:
    """Whether an object of the class is its attributes, and nothing that only C code sees."""
    heap_type = 1 << 9
    return (
        cls.__new__ is object.__new__
        and all(base.__flags__ & heap_type for base in cls.__mro__[:-1])
        and _pickles_as_usual(cls)
        and "_attrs_cached_hash" not in slots_of(cls)
    )


def _take_attributes(cls: Any) -> Callable[[Any], dict[str, Any]]:
    slots, has_dict = slots_of(cls), cls.__dictoffset__ != 0
    if not slots:
        return vars

    def take(value: Any) -> dict[str, Any]:
        state = dict(vars(value)) if has_dict else {}
        for name in slots:
            held = getattr(value, name, _UNSET)
            if held is not _UNSET:
                state[name] = held
        return state

    return take


def _make_attributes(cls: Any) -> Callable[[dict[str, Any]], Any]:
    slots, has_dict = slots_of(cls), cls.__dictoffset__ != 0
    new, put = object.__new__, object.__setattr__

    def make(state: dict[str, Any]) -> Any:
        value = new(cls)
        for name in slots:
            if name in state:
                put(value, name, state.pop(name))
        if has_dict:
            put(value, "__dict__", state)
        elif state:
            raise ValueError(f"the class has no attribute {', '.join(state)} any more")
        return value

    def make_without_slots(state: dict[str, Any]) -> Any:
        value = new(cls)
        put(value, "__dict__", state)
        return value

    return make_without_slots if has_dict and not slots else make


def _make_dataclass(cls: Any) -> Callable[[dict[str, Any]], Any]:
    """Fields that the class has got since are filled from their defaults."""
    make_attributes = _make_attributes(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    names = fields.keys()

    def make(state: dict[str, Any]) -> Any:
        if state.keys() != names:
            for name in names - state.keys():
                field = fields[name]
                if field.default is not dataclasses.MISSING:
                    state[name] = field.default
                elif field.default_factory is not dataclasses.MISSING:
                    state[name] = field.default_factory()
        return make_attributes(state)

    return make


# ---------------------------------------------------------------- enums and named tuples


def _member(value: Any) -> Any:
    """A member's name; for a combination of flags, which has no name of its own, its value."""
    name = value._name_
    if name is not None and type(value)._member_map_.get(name) is value:
        return name
    if isinstance(value, enum.Flag):
        return value._value_
    raise NotPlain(value, "it is no member of its enum")


_FLAG_MISSING = vars(enum.Flag)["_missing_"].__func__


def _enum(cls: Any, state: Any) -> Any:
    if isinstance(state, str) and state in cls._member_map_:
        return cls._member_map_[state]
    # A combination of flags is made by enum's own code; a `_missing_` of the class is not asked.
    if type(state) is int and issubclass(cls, enum.Flag) and cls._missing_.__func__ is _FLAG_MISSING:
        return cls(state)
    raise ValueError(f"the enum has no member {state!r} any more")


def _is_named_tuple(cls: Any) -> bool:
    fields = vars(cls).get("_fields")
    return (
        cls.__bases__[:1] == (tuple,)
        and isinstance(fields, tuple)
        and all(type(name) is str for name in fields)
        and cls.__dictoffset__ == 0
        and cls.__reduce_ex__ is object.__reduce_ex__
        and cls.__reduce__ is object.__reduce__
    )


def _named_tuple(cls: Any, state: dict[str, Any]) -> Any:
    fields = {**cls._field_defaults, **state}
    if fields.keys() != set(cls._fields):
        raise ValueError(f"it has the fields {', '.join(state)}, the class has {', '.join(cls._fields)}")
    return tuple.__new__(cls, [fields[name] for name in cls._fields])


# ---------------------------------------------------------------- foreign packages


def _is_model(cls: type) -> bool:
    base = find("pydantic.main:BaseModel")
    return base is not None and issubclass(cls, base) and cls is not base and _pickles_as_usual(cls)


def _model(cls: Any, state: dict[str, Any]) -> Any:
    """Fields that the class has got since are filled from their defaults."""
    parts = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    if not state.keys() <= set(parts) or type(state.get("__dict__")) is not dict:
        raise ValueError("these are no parts of a model")
    fields = state["__dict__"]
    for name, field in cls.__pydantic_fields__.items():
        if name not in fields and not field.is_required():
            fields[name] = field.get_default(call_default_factory=True, validated_data=fields)
    value = object.__new__(cls)
    for part, held in state.items():
        object.__setattr__(value, part, held)
    return value


_NUMBERS = frozenset("biufcSUmM")


def _text(data_type: Any, value: Any) -> str:
    """The dtype as text; only of those that are wholly told by it."""
    if data_type.kind not in _NUMBERS or data_type.metadata:
        raise NotPlain(value, f"its dtype is {data_type}")
    return str(data_type.str)


@lru_cache(256)
def _data_type(text: str) -> Any:
    if not re.fullmatch(r"[<>|][biufcSUmM]\d+(\[\d*[A-Za-z]+\])?", text):
        raise ValueError(f"an array of {text}")
    return found("numpy:dtype")(text)


def is_array(cls: type) -> bool:
    """Whether the class is numpy's array, and no subclass of it."""
    return cls.__module__ == "numpy" and cls is find("numpy:ndarray")


def array_parts(value: Any) -> tuple[bytes, Any]:
    """Description and numbers of an array, its order in memory kept where it is C's or Fortran's.

    The numbers are the memory of the array itself where that holds them in order.
    """
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    if not value.dtype.itemsize:
        raise NotPlain(value, f"its dtype is {value.dtype}, without any size")
    head = ormsgpack.packb([_text(value.dtype, value), order, *value.shape])
    numbers = value.T if order == "F" else value
    in_order = numbers.flags.c_contiguous and value.size
    numbers = numbers.reshape(-1).view("u1").data if in_order else value.tobytes(order)
    return len(head).to_bytes(2, "little") + head, numbers


def array_to_bytes(value: Any) -> bytes:
    """Both parts, one behind the other."""
    return b"".join(array_parts(value))


def array_from_bytes(data: bytes) -> Any:
    """The array, with numbers of its own."""
    start = 2 + int.from_bytes(data[:2], "little")
    return array_from_parts(data[:start], memoryview(data)[start:])


def array_from_parts(description: bytes, numbers: memoryview) -> Any:
    """The array, with numbers of its own."""
    text, order, *shape = ormsgpack.unpackb(description[2:])
    kind, data_type = cast(Any, found("numpy:ndarray")), _data_type(text)
    if not data_type.itemsize:  # Any number of them would take no bytes, and memory.
        raise ValueError(f"an array of {text}")
    array = kind(shape, data_type, numbers, order=order)
    if array.nbytes != len(numbers):
        raise ValueError("an array of another size")
    return array.copy("K")


def _is_scalar(cls: type) -> bool:
    base = find("numpy:generic")
    return base is not None and cls.__module__ == "numpy" and issubclass(cls, base)


def _make_scalar(cls: Any) -> Callable[[list[Any]], Any]:
    array: Any = found("numpy:ndarray")
    return lambda plain: array((), _data_type(plain[0]), plain[1])[()]


FAMILIES = (
    Family(64, lambda cls: issubclass(cls, enum.Enum), lambda cls: _member, lambda cls: partial(_enum, cls)),
    Family(
        65,
        lambda cls: dataclasses.is_dataclass(cls) and _is_attributes_only(cls),
        _take_attributes,
        _make_dataclass,
    ),
    Family(
        66,
        _is_named_tuple,
        lambda cls: lambda value: dict(zip(cls._fields, value, strict=True)),
        lambda cls: partial(_named_tuple, cls),
    ),
    Family(
        67,
        lambda cls: "__attrs_attrs__" in vars(cls) and _is_attributes_only(cls),
        _take_attributes,
        _make_attributes,
    ),
    Family(68, _is_model, lambda cls: cls.__getstate__, lambda cls: partial(_model, cls)),
    Family(69, _is_scalar, lambda cls: lambda v: [_text(v.dtype, v), v.tobytes()], _make_scalar),
)
