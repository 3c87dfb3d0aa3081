"""Every kind of value, one row each: what becomes of it when it is stored and read back.

`test_fidelity.py` holds the rows to what they say. `python -m tests.serde.every_kind` writes them down for people, as
docs/reference/values.md. A row makes its value anew each time, so that another process can make an equal one and
compare.
"""

from __future__ import annotations

import abc
import array
import asyncio
import collections
import contextvars
import dataclasses
import datetime
import decimal
import email.message
import enum
import fractions
import functools
import hashlib
import http
import io
import ipaddress
import itertools
import json
import logging
import math
import mmap
import operator
import os
import pathlib
import pickle
import queue
import random
import re
import socket
import sqlite3
import string
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import typing
import urllib.parse
import uuid
import weakref
import zoneinfo
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import attrs
import numpy as np
import pandas as pd
import pydantic

import flowfn
from flowfn.serde import Serializer
from flowfn.types import MISSING, Command, Interrupt, Overwrite, Send, Verdict

T = TypeVar("T")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "values.md"


# ---------------------------------------------------------------- rows


Fits = Callable[[Any, Any], bool]


class Row(NamedTuple):
    """What is promised of one kind of value.

    Attributes:
        group: the heading it stands under.
        name: what it is, in a person's words.
        make: gives one.
        tier: how it is stored: `M` as plain data, and so `N` for None and `B` for bytes, `P` as a pickle, `C` as one
            with code; empty when it is refused.
        fits: whether what came back is what was promised for the value.
        changes: whether that is something else than the value.
        note: what changes, why it is refused, or what there is to add.
        path: what the refusal calls the part that is to blame.
        strict_fits: the same as `fits` where pickles are not allowed; None when it is refused there.
        strict_path: what that refusal names.
        travels: whether another process makes the same value, so that the two can be compared.
    """

    group: str
    name: str
    make: Callable[[], Any]
    tier: str
    fits: Fits
    changes: bool
    note: str
    path: str
    strict_fits: Fits | None
    strict_path: str
    travels: bool

    def by_default(self) -> str:
        """What becomes of it, in words."""
        if not self.tier:
            return "refused"
        return "changed" if self.changes else {"P": "kept, pickled", "C": "kept, with code"}.get(self.tier, "kept")

    def without_pickles(self) -> str:
        """The same, with `allow_pickle=False`."""
        if self.strict_fits is None:
            return "refused"
        return "changed" if self.changes or self.tier in "PC" else "kept"


ROWS: list[Row] = []
_group = [""]


def group(name: str) -> None:
    """The rows that follow stand under that heading."""
    _group[0] = name


def kept(name: str, make: Callable[[], Any], note: str = "", *, tier: str = "M", fits: Fits | None = None) -> None:
    """Comes back as it was, and is plain data."""
    fits = fits or same
    ROWS.append(Row(_group[0], name, make, tier, fits, False, note, "", fits, "", True))


def pickled(
    name: str,
    make: Callable[[], Any],
    note: str = "",
    *,
    fits: Fits | None = None,
    tier: str = "P",
    strict_fits: Fits | None = None,
    strict_path: str = "The value",
    travels: bool = True,
) -> None:
    """Comes back as it was, by pickle."""
    ROWS.append(Row(_group[0], name, make, tier, fits or same, False, note, "", strict_fits, strict_path, travels))


def coded(name: str, make: Callable[[], Any], note: str = "", **more: Any) -> None:
    """Comes back as it was, by a pickle that holds its code."""
    pickled(name, make, note, tier="C", **more)


def changed(
    name: str, make: Callable[[], Any], fits: Fits, note: str, *, tier: str = "M", strict: bool = False
) -> None:
    """Comes back as something else, which the note names."""
    fits_strictly = fits if tier == "M" or strict else None
    ROWS.append(Row(_group[0], name, make, tier, fits, True, note, "", fits_strictly, "The value", True))


def refused(name: str, make: Callable[[], Any], note: str = "", path: str = "The value") -> None:
    """Is refused when it is to be stored."""
    ROWS.append(Row(_group[0], name, make, "", _nothing_fits, False, note, path, None, path, False))


def _nothing_fits(value: Any, back: Any) -> bool:
    raise AssertionError("nothing comes back of what is refused")


# ---------------------------------------------------------------- what counts as the same


def same(a: Any, b: Any) -> bool:
    """Equal, of one type at every depth, and equal in what `==` overlooks; circles go round alike."""
    return _same(a, b, set())


def _same(a: Any, b: Any, seen: set[tuple[int, int]]) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if (id(a), id(b)) in seen:
        return True
    if isinstance(a, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)):
        return False
    compare = functools.partial(_same, seen=seen | {(id(a), id(b))})
    mine, other = _attributes(a), _attributes(b)
    if (mine or other) and not compare(mine, other):
        return False
    for kind, compare_parts in COMPARED.items():
        if isinstance(a, kind):
            return compare_parts(a, b, compare)
    return bool(mine) or type(a).__eq__ is object.__eq__ or bool(a == b)


def _attributes(value: Any) -> dict[str, Any]:
    """What an object of the program holds."""
    cls = type(value)
    if cls.__module__.partition(".")[0] in FOREIGN:
        return {}
    found = {name: part for name, part in getattr(value, "__dict__", {}).items() if name != "__flowfn_traceback__"}
    for base in cls.__mro__:
        declared = vars(base).get("__slots__", ())
        for name in (declared,) if isinstance(declared, str) else declared:
            name = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


FOREIGN = {"numpy", "pandas", "ipaddress", "pathlib", "uuid", "fractions", "functools", "random", "types"}
"""Packages whose objects keep what is none of their value: caches, and what they were made of."""
Compare = Callable[[Any, Any], bool]


def _all_same(a: Any, b: Any, compare: Compare) -> bool:
    return len(a) == len(b) and all(map(compare, a, b))


def _same_dict(a: Any, b: Any, compare: Compare) -> bool:
    return _all_same(list(a.items()), list(b.items()), compare) and compare(
        getattr(a, "default_factory", None), getattr(b, "default_factory", None)
    )


def _same_set(a: Any, b: Any, compare: Compare) -> bool:
    return len(a) == len(b) and all(any(compare(one, other) for other in b) for one in a)


def _same_array(a: Any, b: Any, compare: Compare) -> bool:
    if isinstance(a, np.ma.MaskedArray) and not (
        compare(np.ma.getmaskarray(a), np.ma.getmaskarray(b)) and compare(a.fill_value, b.fill_value)
    ):
        return False
    contiguous = a.flags.c_contiguous or a.flags.f_contiguous
    order = not contiguous or a.flags.f_contiguous == b.flags.f_contiguous
    if not (a.dtype == b.dtype and a.shape == b.shape and order and b.flags.writeable):
        return False
    data, other = np.asarray(a), np.asarray(b)
    if a.dtype == np.longdouble:  # Some of its bytes are no part of the number.
        return bool((data == other).all())
    return compare(data.tolist(), other.tolist()) if a.dtype.hasobject else data.tobytes() == other.tobytes()


def _same_table(a: Any, b: Any, compare: Compare) -> bool:
    def parts(table: Any) -> list[Any]:
        across = [table.name, table.dtype] if table.ndim == 1 else [table.columns, list(table.dtypes)]
        return [table.index, table.attrs, *across]

    return bool(a.equals(b)) and compare(parts(a), parts(b))


def _same_index(a: Any, b: Any, compare: Compare) -> bool:
    return bool(a.identical(b)) and a.dtype == b.dtype and getattr(a, "freq", None) == getattr(b, "freq", None)


def _same_error(a: Any, b: Any, compare: Compare) -> bool:
    def parts(error: BaseException) -> list[Any]:
        members = ("errno", "strerror", "filename", "filename2", "name", "path", "msg", "value", "code", "encoding")
        members += ("object", "start", "end", "reason", "lineno", "offset", "text", "end_lineno", "end_offset")
        return [
            error.args,
            str(error),
            [getattr(error, member, None) for member in members],
            [error.__cause__, error.__context__, error.__suppress_context__],
            getattr(error, "exceptions", None),
        ]

    return compare(parts(a), parts(b))


def _same_moment(a: Any, b: Any, compare: Compare) -> bool:
    return str(a) == str(b) and a.fold == b.fold and compare(a.tzinfo, b.tzinfo)


def _bits(a: float, b: float, compare: Compare) -> bool:
    return struct.pack("d", a) == struct.pack("d", b)


COMPARED: dict[Any, Callable[[Any, Any, Compare], bool]] = {
    np.ndarray: _same_array,
    np.generic: lambda a, b, compare: a.dtype == b.dtype and a.tobytes() == b.tobytes(),
    (pd.DataFrame, pd.Series): _same_table,
    pd.Index: _same_index,
    (dict, collections.ChainMap, collections.UserDict, types.MappingProxyType): _same_dict,
    (list, tuple, collections.UserList): _all_same,
    collections.deque: lambda a, b, compare: _all_same(a, b, compare) and a.maxlen == b.maxlen,
    (set, frozenset): _same_set,
    (datetime.datetime, datetime.time): _same_moment,
    zoneinfo.ZoneInfo: lambda a, b, compare: a.key == b.key,
    float: _bits,
    complex: lambda a, b, compare: _bits(a.real, b.real, compare) and _bits(a.imag, b.imag, compare),
    decimal.Decimal: lambda a, b, compare: a.as_tuple() == b.as_tuple(),
    uuid.UUID: lambda a, b, compare: a == b and a.is_safe is b.is_safe,
    BaseException: _same_error,
    functools.partial: lambda a, b, compare: compare((a.func, a.args, a.keywords), (b.func, b.args, b.keywords)),
    types.MethodType: lambda a, b, compare: a.__func__ is b.__func__ and compare(a.__self__, b.__self__),
    memoryview: lambda a, b, compare: (
        a == b and (a.format, a.shape, a.readonly) == (b.format, b.shape, b.readonly) and b.c_contiguous
    ),
    io.BytesIO: lambda a, b, compare: (a.getvalue(), a.tell()) == (b.getvalue(), b.tell()),
    random.Random: lambda a, b, compare: a.getstate() == b.getstate(),
    np.random.Generator: lambda a, b, compare: a.bit_generator.state == b.bit_generator.state,
}


# ---------------------------------------------------------------- the program's own classes


class Color(enum.Enum):
    RED = (1, [2])
    BLUE = "blue"
    AZURE = "blue"  # noqa: PIE796 (an alias)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Planet(enum.Enum):
    EARTH = (5.97, 6.37)

    def __init__(self, mass: float, radius: float) -> None:
        self.mass, self.radius = mass, radius


Suit = enum.Enum("Suit", "HEARTS SPADES")


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Base:
    x: int


@dataclasses.dataclass(slots=True)
class Child(Base):
    z: int = 0
    __private: int = 5


@dataclasses.dataclass(slots=True, weakref_slot=True)
class Referred:
    x: int


@dataclasses.dataclass(kw_only=True, order=True)
class Named:
    name: str
    tags: list[str] = dataclasses.field(default_factory=list)
    count: typing.ClassVar[int] = 0


@dataclasses.dataclass
class Scaled:
    x: int
    factor: dataclasses.InitVar[int] = 2

    def __post_init__(self, factor: int) -> None:
        self.x *= factor


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


@dataclasses.dataclass
class Derived:
    x: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.x

    @functools.cached_property
    def triple(self) -> int:
        return 3 * self.x


@dataclasses.dataclass
class Unpickly:
    x: int

    def __reduce__(self) -> Any:
        return (Unpickly, (self.x,))


@dataclasses.dataclass
class ListOfRows(list[Any]):
    title: str = ""


Made = dataclasses.make_dataclass("Made", ["x"], namespace={"__module__": __name__})
Made.__module__ = __name__


class Pair(NamedTuple):
    left: Any
    right: Any = 2


class LoudPair(Pair):
    def loud(self) -> str:
        return str(self.left).upper()


class Entry(NamedTuple, Generic[T]):
    key: str
    item: T


OldPair = collections.namedtuple("OldPair", "left right")


@attrs.frozen
class Coin:
    value: int


@attrs.define
class Purse:
    coins: list[Coin]
    _owner: str = "me"


@attrs.define(slots=False)
class OpenPurse:
    coins: list[Coin]


@attrs.define
class Checked:
    value: int = attrs.field(converter=lambda value: value + 1, validator=attrs.validators.gt(0))


@attrs.frozen(cache_hash=True)
class Hashed:
    name: str


@attrs.define(auto_exc=True)
class CoinError(Exception):
    coin: Coin


class Model(pydantic.BaseModel):
    x: int
    when: datetime.datetime | None = None
    _secret: int = pydantic.PrivateAttr(default=0)


class Folder(pydantic.BaseModel):
    name: str
    inside: list[Folder | Model] = []


class ExtraModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: int


class FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    x: int


class Validated(pydantic.BaseModel):
    x: int = pydantic.Field(alias="ex", gt=0)

    @pydantic.field_validator("x")
    @classmethod
    def _one_more(cls, value: int) -> int:
        return value + 1


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


IntPage = Page[int]


class Root(pydantic.RootModel[list[int]]):
    pass


class Account(pydantic.BaseModel):
    password: pydantic.SecretStr
    site: pydantic.HttpUrl


@pydantic.dataclasses.dataclass
class Typed:
    x: int


class Movie(TypedDict):
    name: str


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x

    def method(self) -> Any:
        return self.x

    class Inner:
        pass


class Slotted:
    __slots__ = ("__weakref__", "x")

    def __init__(self, x: Any) -> None:
        self.x = x


class Stateful:
    def __init__(self, x: Any) -> None:
        self.x, self.lock = x, threading.Lock()

    def __getstate__(self) -> Any:
        return {"x": self.x}

    def __setstate__(self, state: Any) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stateful) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class Lonely:
    """Has one instance, and pickles as its name."""

    def __reduce__(self) -> str:
        return "LONELY"


LONELY = Lonely()


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    def __init__(self, side: float) -> None:
        self.side = side

    def area(self) -> float:
        return self.side**2


class MyList(list[Any]):
    pass


class MyDict(dict[str, Any]):
    pass


class MyTuple(tuple[Any, ...]):
    pass


class MySet(set[Any]):
    pass


class MyStr(str):
    pass


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyBytes(bytes):
    pass


class MyMoment(datetime.datetime):
    pass


class MyZone(datetime.tzinfo):
    def utcoffset(self, when: Any) -> datetime.timedelta:
        return datetime.timedelta(hours=1)

    def dst(self, when: Any) -> None:
        return None


class MyArray(np.ndarray[Any, Any]):
    pass


class CodeError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class TwoError(Exception):
    def __init__(self, first: int, *, second: int) -> None:
        super().__init__(first)
        self.second = second


class SlotError(Exception):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place


class FileError(OSError):
    def __init__(self, name: str, detail: Any) -> None:
        super().__init__(2, "gone", name)
        self.detail = detail


class Batch(ExceptionGroup[Exception]):
    def derive(self, excs: Any) -> Batch:
        return Batch(self.message, excs)


class LockError(Exception):
    def __init__(self) -> None:
        super().__init__("busy")
        self.lock = threading.Lock()


def function(x: int = 1) -> int:
    return x + 1


async def coroutine_function() -> int:
    return 1


async def async_generator_function() -> AsyncIterator[int]:
    yield 1


def generator_function() -> Iterator[int]:
    yield 1


@functools.lru_cache
def cached(x: int) -> int:
    return x


@flowfn.task
def some_task(x: int) -> int:
    return x


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args) * 2

    return wrapper


@decorated
def doubled(x: int) -> int:
    return x


# ---------------------------------------------------------------- values that take more than an expression

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UTC = datetime.UTC
OFFSET = datetime.timezone(datetime.timedelta(hours=5, minutes=30), "IST")
ZONE_FILE = b"TZif" + bytes(35) + b"\1" + bytes(3) + b"\4" + bytes(6) + b"UTC\0"
ROW = np.dtype([("a", "i4"), ("b", "f8")])


def nested(around: Callable[[Any], Any], depth: int) -> Any:
    return functools.reduce(lambda inside, _: around(inside), range(depth), 1)


def nan_with_payload() -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_1234))[0]
    return number


def advanced(generator: random.Random) -> random.Random:
    generator.random()
    return generator


def two_places() -> list[Any]:
    shared: list[int] = []
    return [shared, shared]


def circle() -> Any:
    value: list[Any] = [1]
    value.append(value)
    return value


def circle_of_objects() -> Any:
    value = Point(1)
    value.y = (value,)
    return value


def an_email() -> email.message.EmailMessage:
    message = email.message.EmailMessage()
    message["Subject"] = "Grüße"
    message.set_content("hello")
    return message


def with_attributes(value: Any, **attributes: Any) -> Any:
    value.__dict__.update(attributes)
    return value


def filled_derived() -> Derived:
    value = Derived(2)
    assert value.triple == 6
    return value


def secretive_model() -> Model:
    model = Model(x=1, when=datetime.datetime(2026, 1, 2, tzinfo=UTC))
    model._secret = 42
    return model


def read_only(value: Any) -> Any:
    value.flags.writeable = False
    return value


def mapped_array() -> Any:
    with tempfile.NamedTemporaryFile() as file:
        value = np.memmap(file.name, "u1", "w+", shape=(3,))
        value[:] = 7
        return value


def table() -> Any:
    days = pd.date_range("2026", periods=2, tz="UTC")
    return pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"]), "d": days})


def raised(run: Callable[[], Any]) -> BaseException:
    try:
        run()
    except BaseException as error:
        return error
    raise AssertionError("it should have raised")


def untraced(run: Callable[[], Any]) -> BaseException:
    return raised(run).with_traceback(None)


def linked(error: BaseException, **links: Any) -> BaseException:
    for name, link in links.items():
        setattr(error, name, link)
    return error


def noted(error: BaseException) -> BaseException:
    error.add_note("while reading")
    return error


def error_circle() -> BaseException:
    one, two = ValueError(1), ValueError(2)
    one.__context__, two.__context__ = two, one
    return one


def error_chain(length: int) -> BaseException:
    error = ValueError(0)
    for number in range(1, length):
        error = linked(ValueError(number), __context__=error)  # type: ignore[assignment]
    return error


def length_of(error: BaseException | None) -> int:
    length = 0
    while error is not None:
        error, length = error.__context__, length + 1
    return length


def closure(step: int) -> Callable[[int], int]:
    def add(x: int) -> int:
        return x + step

    return add


def recursive() -> Callable[[int], int]:
    def factorial(x: int) -> int:
        return 1 if x < 2 else x * factorial(x - 1)

    return factorial


def local_dataclass() -> Any:
    @dataclasses.dataclass
    class Local:
        x: int

    return Local(1)


def local_class() -> type:
    class Local:
        x = 1

    return Local


def local_enum() -> Any:
    class Local(enum.Enum):
        A = 1

    return Local.A


def local_error() -> BaseException:
    class LocalError(Exception):
        pass

    return LocalError("a")


def resolved(future: Future[int]) -> Future[int]:
    future.set_result(1)
    return future


# ---------------------------------------------------------------- what more than equality is asked of


def calls_alike(*arguments: Any) -> Fits:
    return lambda value, back: type(back) is type(value) and back(*arguments) == value(*arguments)


def exhausts_alike(value: Any, back: Any) -> bool:
    return type(back) is type(value) and list(back) == list(value)


def told_alike(value: Any, back: Any) -> bool:
    return type(back) is type(value) and repr(back) == repr(value)


def left_out(value: Any, back: Any) -> bool:
    return type(back) is type(value) and not hasattr(back, "more") and "attribute `more`" in back.__notes__[0]


# ---------------------------------------------------------------- the rows

group("Numbers and nothing")
kept("None", lambda: None, tier="N")
kept("bool", lambda: True)
kept("int", lambda: 5)
kept("int, the least of 64 bits and one less", lambda: [-(2**63), -(2**63) - 1])
kept("int of 64 bits and more", lambda: [2**63, 2**64 - 1, 2**64, -(2**100)])
kept("int of ten thousand digits", lambda: 10**10_000 + 1)
kept("float", lambda: 1.5)
kept("float that is a whole number", lambda: 1.0)
kept("float -0.0", lambda: -0.0)
kept("float inf", lambda: -math.inf)
kept("float nan", lambda: math.nan)
kept("float nan with a sign and a payload", nan_with_payload)
kept("float, the smallest", lambda: 5e-324)
kept("complex", lambda: 1.5 - 2j)
kept("complex of -0.0 and nan", lambda: complex(-0.0, math.nan))
kept("Decimal", lambda: decimal.Decimal("1.10"))
kept("Decimal -0E+5", lambda: decimal.Decimal("-0E+5"))
kept("Decimal -Infinity", lambda: decimal.Decimal("-Infinity"))
kept("Decimal sNaN123", lambda: decimal.Decimal("sNaN123"))
kept("Fraction", lambda: fractions.Fraction(1, 3))
kept("range", lambda: range(1, 10, 3))
kept("range beyond 64 bits", lambda: range(2**70, 2**80, 3))
kept("slice", lambda: slice(1, None, (2, "a")))
kept("Ellipsis", lambda: ...)
kept("NotImplemented", lambda: NotImplemented)
pickled("Decimal context", lambda: decimal.Context(prec=5), fits=told_alike)
pickled("random.Random", lambda: advanced(random.Random(3)), "it goes on where it was")

group("Text and bytes")
kept("str", lambda: "grüße 😀 \0")
kept("str, empty", lambda: "")
kept("str with lone surrogates", lambda: "a\ud800b")
kept("str with lone surrogates as a key", lambda: {"a\ud800b": ["\udfff", "c"]})
kept("bytes", lambda: b"\x00ab", tier="B")
kept("bytes in a list", lambda: [b"a", b""])
kept("bytearray", lambda: bytearray(b"ab"))
kept("bytearray inside other data", lambda: {"a": [bytearray(b"ab"), b"ab", (bytearray(70_000),)]})
kept("memoryview", lambda: memoryview(b"ab"), "of bytes of its own")
kept("memoryview that can be written", lambda: [memoryview(bytearray(b"ab"))], "of bytes of its own")
kept("memoryview of numbers in rows", lambda: memoryview(bytes(range(24))).cast("i", (2, 3)), "of bytes of its own")
changed(
    "memoryview with gaps",
    lambda: memoryview(b"abcdef")[::2],
    lambda value, back: type(back) is memoryview and back == value and back.c_contiguous,
    "the same items, side by side",
)
kept("array.array", lambda: array.array("d", [1.5, 2.5]))
kept("array.array of characters", lambda: array.array("u", "aß"))
pickled("io.BytesIO", lambda: io.BytesIO(b"abc"), "with its place")
pickled("string.Template", lambda: string.Template("$a"))
pickled("subclasses of str and bytes", lambda: [MyStr("a"), MyBytes(b"a")])

group("Containers")
kept("list", lambda: [1, [2, []]])
kept("tuple", lambda: (1, (2, ())))
kept("tuples in lists in dicts", lambda: {"a": [(1, (2,))]})
kept("set", lambda: {1, (2, 3)})
kept("frozenset in a set", lambda: {frozenset({1}), frozenset()})
kept("dict", lambda: {"b": 1, "a": {"c": None}}, "with the order of its keys")
kept("dict with int keys", lambda: {1: "a", -1: {2: 3}})
kept("dict with tuple keys", lambda: {(1, "a"): 1})
kept("dict with the keys 1.5, True, '1' and None", lambda: {1.5: "a", True: "b", "1": "c", None: "d"})
kept("dict with bytes, dates and enum members as keys", lambda: {b"a": 1, datetime.date(2026, 1, 2): 2, Color.BLUE: 3})
kept("OrderedDict", lambda: collections.OrderedDict([("b", 1), ("a", 2)]))
kept("Counter", lambda: collections.Counter("abca"))
kept("Counter below zero", lambda: collections.Counter(a=-2, b=0))
kept("defaultdict of lists", lambda: collections.defaultdict(list, {"a": [1]}))
kept("defaultdict without a factory", lambda: collections.defaultdict(None, {1: 2}))
pickled("defaultdict of a class of the program", lambda: collections.defaultdict(Plain, {"a": 1}))
coded(
    "defaultdict with a lambda",
    lambda: collections.defaultdict(lambda: 5, {"a": 1}),
    fits=lambda value, back: type(back) is type(value) and dict(back) == dict(value) and back["new"] == 5,
)
kept("deque", lambda: collections.deque([1, (2,)]))
kept("deque with a greatest length", lambda: collections.deque([1, 2], maxlen=3))
kept("TypedDict", lambda: Movie(name="a"))
pickled("ChainMap", lambda: collections.ChainMap({"a": 1}, {"b": 2}))
pickled("UserDict and UserList", lambda: [collections.UserDict(a=1), collections.UserList([1])])
pickled("SimpleNamespace", lambda: types.SimpleNamespace(a=(1,)))
coded("MappingProxyType", lambda: types.MappingProxyType({"a": 1}))
coded("keys of a dict", lambda: {"a": 1}.keys(), fits=exhausts_alike)
pickled("subclasses of list, dict, tuple and set", lambda: [MyList([1]), MyDict(a=1), MyTuple((1,)), MySet({1})])
pickled("subclasses of int and float", lambda: [MyInt(1), MyFloat(1.5)])
pickled("dict with keys of a str subclass", lambda: {MyStr("a"): 1})
pickled("iterator over a list", lambda: iter([1, 2]), "with its place", fits=exhausts_alike)
changed(
    "one list in two places",
    two_places,
    lambda value, back: same(value, back) and back[0] is not back[1],
    "two equal lists, where all of the value is plain data",
)
pickled(
    "one list in two places, beside what is pickled",
    lambda: [*two_places(), Plain(1)],
    fits=lambda value, back: same(value, back) and back[0] is back[1],
)
pickled("list that holds itself", circle, "as a circle", fits=lambda value, back: back[0] == 1 and back[1] is back)
kept("tuples, 99 deep", lambda: nested(lambda inside: (inside,), 99))
kept("lists, 255 deep", lambda: nested(lambda inside: [inside], 255), fits=operator.eq)
pickled("lists, 300 deep", lambda: nested(lambda inside: [inside], 300), fits=operator.eq)
refused("lists, 5 000 deep", lambda: nested(lambda inside: [inside], 5_000), "nested too deep")

group("Dates and times")
kept("datetime", lambda: datetime.datetime(2026, 1, 2, 3, 4, 5, 6))
kept("datetime in UTC", lambda: datetime.datetime(2026, 1, 2, tzinfo=UTC))
kept("datetime with an offset that has a name", lambda: datetime.datetime(2026, 1, 2, tzinfo=OFFSET))
kept("datetime in a zone", lambda: datetime.datetime(2026, 7, 2, tzinfo=BERLIN))
kept("datetime in the second of two equal hours", lambda: datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1))
kept("datetime without a zone, with a fold", lambda: datetime.datetime(2026, 1, 2, fold=1))
kept("datetime, the first and the last", lambda: [datetime.datetime.min, datetime.datetime.max])
kept("date", lambda: datetime.date(2026, 1, 2))
kept("time", lambda: datetime.time(1, 2, 3, 4))
kept("time in a zone, with a fold", lambda: datetime.time(1, 2, tzinfo=BERLIN, fold=1))
kept("timedelta", lambda: datetime.timedelta(-1, 2, 3))
kept("timezone", lambda: [UTC, OFFSET])
kept("ZoneInfo", lambda: BERLIN)
pickled("zone of the program's own", lambda: [MyZone(), datetime.datetime(2026, 1, 2, tzinfo=MyZone())])
pickled("subclass of datetime", lambda: MyMoment(2026, 1, 2))
pickled("time.struct_time", lambda: time.gmtime(0))
refused("ZoneInfo made from a file", lambda: zoneinfo.ZoneInfo.from_file(io.BytesIO(ZONE_FILE)), "it has no key")

group("Ids, paths, addresses and patterns")
kept("UUID", lambda: uuid.UUID(int=2**127 + 5))
kept("UUID that is known to be unique", lambda: uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe))
kept("Path", lambda: pathlib.Path("/tmp/x"))
kept("PurePosixPath", lambda: pathlib.PurePosixPath("a/b"))
kept("PureWindowsPath", lambda: pathlib.PureWindowsPath("c:\\a"))
kept("IPv4 address", lambda: ipaddress.ip_address("127.0.0.1"))
kept("IPv6 address with a scope", lambda: ipaddress.ip_address("fe80::1%eth0"))
kept("IP networks", lambda: [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fe80::/10")])
kept("IP interfaces", lambda: [ipaddress.ip_interface("10.0.0.1/8"), ipaddress.ip_interface("fe80::1/10")])
kept("compiled regular expression", lambda: re.compile("a+(?P<b>c)", re.I | re.M))
kept("compiled regular expression of bytes", lambda: re.compile(b"a+"))
refused("match of a regular expression", lambda: re.match("a", "a"), "only its text and span can be stored")
pickled("parsed URL", lambda: urllib.parse.urlsplit("https://a.b/c?d"))
pickled("e-mail message", an_email, fits=lambda value, back: back.as_bytes() == value.as_bytes())
pickled("os.stat_result", lambda: os.stat_result(range(10)))

HERE = "of the very same class in this process, of an equal one in another"

group("Enums")
kept("Enum", lambda: Color.RED)
kept("alias of a member", lambda: Color.AZURE, "as the member itself")
kept("Enum with attributes of its own", lambda: Planet.EARTH)
kept("Enum made by a call", lambda: Suit["SPADES"])
kept("IntEnum and StrEnum", lambda: [Level.LOW, Word.YES])
kept("Flag, one, several and none", lambda: [Right.READ, Right.READ | Right.WRITE, Right(0)])
kept("IntFlag with bits that have no name", lambda: [Bits.ONE | Bits.TWO, Bits(9)])
kept("enums of the standard library", lambda: [http.HTTPStatus.NOT_FOUND, re.I | re.M])
coded("member of an enum made in a function", local_enum, HERE, travels=False)

group("Dataclasses and named tuples")
kept("dataclass", lambda: Point(1, {"a": (1,)}))
kept("dataclass in a dataclass", lambda: Point(Point(1), [Point(2)]))
kept("dataclass, frozen, with slots", lambda: Frozen(1, (2,)))
kept("dataclass, frozen, in a set and as a key", lambda: [{Frozen(1), Frozen(2)}, {Frozen(1): 1}])
kept("dataclass with inherited and private slots", lambda: Child(1, 2))
kept("dataclass with slots and a slot for weak references", lambda: Referred(1))
kept("dataclass with keywords only and a ClassVar", lambda: Named(name="a", tags=["b"]))
kept("dataclass with an InitVar", lambda: Scaled(1, 3), "`__post_init__` does not run again")
kept("dataclass with a field that `__init__` does not take", lambda: Derived(2))
kept("dataclass with a cached property", filled_derived, "with what was cached")
kept("dataclass with an attribute that is no field", lambda: with_attributes(Point(1), more=2))
kept("dataclass, generic", lambda: Box(Box("a")))
kept("dataclass by pydantic", lambda: Typed(x=1), "without being validated again")
kept("dataclass made by `make_dataclass`", lambda: Made(1))
pickled("dataclass that says how it is pickled", lambda: Unpickly(1))
pickled("dataclass that is also a list", lambda: ListOfRows("a"))
pickled("dataclass that holds itself", circle_of_objects, "as a circle", fits=lambda value, back: back.y[0] is back)
pickled("dataclass that holds an object", lambda: Point(Plain(1)), strict_path="The value.x")
coded("dataclass made in a function", local_dataclass, HERE, travels=False)
refused("dataclass that holds a lock", lambda: Point(1, [threading.Lock()]), path="The value.y[0]")
kept("NamedTuple", lambda: Pair(1, Pair("a")))
kept("NamedTuple, generic", lambda: Entry("a", (1,)))
kept("collections.namedtuple", lambda: OldPair(1, 2))
pickled("subclass of a NamedTuple", lambda: LoudPair(1))

group("attrs and pydantic")
kept("attrs, frozen", lambda: Coin(1))
kept("attrs with slots and a private attribute", lambda: Purse([Coin(1)], "you"))
kept("attrs without slots", lambda: OpenPurse([Coin(1)]))
kept("attrs with a converter and a validator", lambda: Checked(1), "neither runs again")
kept("attrs exception", lambda: CoinError(Coin(1)))
pickled("attrs that keeps its hash", lambda: Hashed("a"), "the hash is counted anew")
kept("pydantic model", lambda: Model(x=1), "with which fields were set")
kept("pydantic model with private attributes", secretive_model)
kept("pydantic models in models", lambda: Folder(name="a", inside=[Folder(name="b"), Model(x=1)]))
kept("pydantic model with extra fields", lambda: ExtraModel(x=1, y=(1, 2)))  # type: ignore[call-arg]
kept("pydantic model, frozen", lambda: FrozenModel(x=1))
kept("pydantic model with an alias and a validator", lambda: Validated(ex=1), "not validated again")
kept("pydantic model made without validation", lambda: Model.model_construct(x="no int"))
kept("pydantic root model", lambda: Root([1, 2]))
kept("pydantic model, generic", lambda: [Page(items=[1]), IntPage(items=[1])])
pickled("pydantic model with a secret and a URL", lambda: Account(password="a", site="https://a.b"))  # type: ignore[arg-type]

group("Objects of other classes")
pickled("object", lambda: Plain((1,)))
pickled("object with slots", lambda: Slotted((1,)))
pickled("object of a class in a class", lambda: Plain.Inner(), fits=lambda value, back: type(back) is type(value))
pickled("object that says what its state is", lambda: Stateful(1), fits=lambda value, back: back == value)
pickled("object that is the only one of its class", lambda: LONELY)
pickled("object of an abstract class's child", lambda: Square(1.5))
coded(
    "object of a class made in a function",
    lambda: local_class()(),
    HERE,
    fits=lambda value, back: type(back) is type(value),
    travels=False,
)
changed(
    "object()",
    lambda: object(),
    lambda value, back: type(back) is object,
    "another one, which `is` tells from it",
    tier="P",
)
refused("object that holds a lock", lambda: {"conn": Plain(threading.Lock())}, path="The value['conn']")
kept(
    "Interrupt, Command, Send, Overwrite, Verdict",
    lambda: [Interrupt("a", "q_1"), Command(goto=[Send("a", {1})]), Overwrite([1]), Verdict(True)],
)
kept("flowfn.types.MISSING", lambda: [MISSING, Command()], "it stays the one mark")

group("numpy")
kept("array", lambda: np.arange(6, dtype="i4").reshape(2, 3))
kept("array in Fortran's order", lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)))
kept("array that is a view with gaps", lambda: np.arange(10)[::2], "with numbers of its own, side by side")
kept("array, large", lambda: np.arange(100_000, dtype="f4"))
kept("array, empty", lambda: np.zeros((0, 3)))
kept("array of no dimensions", lambda: np.array(1.5))
kept("array, big-endian", lambda: np.arange(3, dtype=">i4"))
kept("array of half and long floats", lambda: [np.array([1.5], "f2"), np.array([1.5], np.longdouble)])
kept("array of bools and complex numbers", lambda: [np.array([True, False]), np.array([1j])])
kept("array of texts and bytes", lambda: [np.array(["a", "bcd"]), np.array(["", ""]), np.array([b"a", b"bcd"])])
kept("array of moments and spans", lambda: [np.array(["2026-01-02", "NaT"], "M8[ns]"), np.array([1, 2], "m8[25s]")])
changed(
    "array that is read-only",
    lambda: read_only(np.zeros(2)),
    lambda value, back: same(np.array(value), back) and back.flags.writeable,
    "one that can be written: it has numbers of its own",
)
pickled("array of objects", lambda: np.array([1, "a", None, (1,)], dtype=object))
pickled("structured array", lambda: np.array([(1, 2.0)], ROW))
pickled("record array", lambda: np.rec.array([(1, 2.0)], ROW))
pickled("masked array", lambda: np.ma.masked_array([1, 2, 3], mask=[0, 1, 0], fill_value=9))
pickled("subclass of an array", lambda: np.arange(3).view(MyArray))
changed(
    "array mapped from a file",
    mapped_array,
    lambda value, back: same(np.array(value), np.array(back)) and back.filename is None,
    "its numbers, without the file",
    tier="P",
)
kept("scalars: float64, float32, int32, bool", lambda: [np.float64(1.5), np.float32(1.5), np.int32(3), np.bool_(True)])
kept("scalars: complex, text, bytes", lambda: [np.complex128(1j), np.str_("a"), np.str_(""), np.bytes_(b"a")])
kept("scalars: moment and span", lambda: [np.datetime64("2026-01-02T03:04", "m"), np.timedelta64(5, "s")])
pickled("scalar of a structured array", lambda: np.array([(1, 2.0)], ROW)[0])
pickled("dtype", lambda: np.dtype("i4"))
pickled("random generator", lambda: np.random.default_rng(3), "it goes on where it was")

group("pandas")
pickled("DataFrame", table)
pickled("DataFrame with several levels of index", lambda: table().set_index(["a", "b"]))
pickled("Series", lambda: pd.Series([1, 2], name="a"))
pickled(
    "Series of nullable numbers and of texts", lambda: [pd.Series([1, None], dtype="Int64"), pd.Series(["a", None])]
)
pickled("Categorical", lambda: pd.Series(["a", "b"], dtype="category"))
pickled("index of moments in a zone", lambda: pd.date_range("2026-01-01", periods=3, tz="Europe/Berlin"))
pickled("Timestamp in a zone", lambda: pd.Timestamp("2026-01-02 03:04:05.000000006", tz="Europe/Berlin"))
pickled("Timedelta, Period, Interval", lambda: [pd.Timedelta("1ns"), pd.Period("2026-01"), pd.Interval(0, 1)])
pickled("NaT and NA", lambda: [pd.NaT, pd.NA])

group("Exceptions")
kept("exception", lambda: ValueError("a", 1, (2,)))
kept("exception with an `__init__` of its own", lambda: CodeError(3), "which does not run again")
kept("exception that demands a keyword", lambda: TwoError(1, second=2))
kept("exception with slots", lambda: SlotError("here"))
kept("exception with notes", lambda: noted(ValueError("a")))
kept("exception with attributes", lambda: with_attributes(ValueError("a"), more=(1, 2)))
kept("exception with a cause", lambda: linked(ValueError("outer"), __cause__=KeyError("inner")))
kept(
    "exception raised from None",
    lambda: linked(ValueError("outer"), __context__=KeyError("inner"), __suppress_context__=True),
)
kept("exceptions that lead to each other", error_circle, fits=lambda a, b: b.__context__.__context__ is b)
kept("chain of a thousand exceptions", lambda: error_chain(1_000), fits=lambda value, back: length_of(back) == 1_000)
kept("ExceptionGroup, nested", lambda: ExceptionGroup("g", [CodeError(1), ExceptionGroup("h", [KeyError("a")])]))
kept("exception group of a class of its own", lambda: Batch("several", [ValueError(1)]))
kept("BaseExceptionGroup", lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]))
kept("KeyError, StopIteration, SystemExit", lambda: [KeyError("a"), StopIteration(5), SystemExit(3)])
kept("KeyboardInterrupt, CancelledError", lambda: [KeyboardInterrupt(), asyncio.CancelledError("x")])
kept(
    "OSError with its files", lambda: [OSError(2, "gone", "a", None, "b"), PermissionError(13, "no", "a"), OSError("b")]
)
kept("subclass of OSError", lambda: FileError("a", {"b": 1}))
kept("UnicodeDecodeError", lambda: untraced(lambda: b"\xff".decode()))
kept("SyntaxError", lambda: untraced(lambda: compile("a b", "file.py", "exec")))
kept(
    "ImportError and NameError",
    lambda: [untraced(lambda: __import__("no_such_module")), untraced(lambda: no_such_name)],  # noqa: F821,
)
kept("CalledProcessError", lambda: subprocess.CalledProcessError(1, ["a"], b"out"))
kept("JSONDecodeError", lambda: untraced(lambda: json.loads("{")))
kept("flowfn's own errors", lambda: flowfn.errors.UnstorableError("The value", "x.Lock"))
changed(
    "exception that was raised",
    lambda: raised(lambda: 1 / 0),
    lambda value, back: same(value, back) and "1 / 0" in back.__flowfn_traceback__,
    "its traceback as text, in `__flowfn_traceback__`",
)
changed(
    "AttributeError",
    lambda: untraced(lambda: (5).nothing),  # type: ignore[attr-defined]
    lambda value, back: same(value, back) and back.obj is None,
    "without `obj`, the object that was asked, which can be anything",
)
changed(
    "exception that holds a lock",
    LockError,
    lambda value, back: type(back) is LockError and back.args == ("busy",) and "attribute `lock`" in back.__notes__[0],
    "without the lock; a note on it says so",
    tier="C",
    strict=True,
)
pickled(
    "exception that holds an object",
    lambda: with_attributes(ValueError("a"), more=Plain(1)),
    "where pickles are refused, without it; a note on it says so",
    strict_fits=left_out,
)
pickled(
    "exception that only its own code can make",
    lambda: untraced(lambda: Model(x="a")),
    fits=lambda a, b: b.errors() == a.errors(),
)
coded("exception of a class made in a function", local_error, HERE, travels=False)
refused("traceback", lambda: raised(lambda: 1 / 0).__traceback__, "an exception keeps its own as text")

group("Functions, classes and modules")
pickled("function of a module", lambda: function, "by name: the function itself")
pickled("function of a module, wrapped", lambda: [doubled, cached], "by name")
pickled("function of a module that awaits or yields", lambda: [coroutine_function, generator_function], "by name")
pickled("builtin function", lambda: len, "by name")
pickled("task", lambda: some_task, "by name")
pickled("class", lambda: [Point, int, Model], "by name")
coded("lambda", lambda: lambda x: x + 1, "for the same version of Python", fits=calls_alike(3))
coded("closure", lambda: closure(5), "with what it captured", fits=calls_alike(3))
coded("function that names itself", lambda: recursive(), fits=calls_alike(5))
coded("class made in a function", local_class, HERE, travels=False)
coded("module", lambda: json, "by name")
pickled("bound method", lambda: Plain(3).method, "with its object")
pickled("method of a builtin", lambda: [1].append, fits=lambda value, back: back.__self__ == [1])
pickled("functools.partial", lambda: functools.partial(int, base=2))
coded("functools.partial of a lambda", lambda: functools.partial(lambda x, y: x + y, 1), fits=calls_alike(2))
pickled(
    "operator.itemgetter and attrgetter",
    lambda: [operator.itemgetter("a", 1), operator.attrgetter("x.y")],
    fits=told_alike,
)
pickled("generic alias and union", lambda: [list[int], int | None, dict[str, list[int]]])
pickled("typing's hints", lambda: [typing.Callable[[int], str], typing.Any, T], fits=lambda value, back: back == value)
coded("code object", lambda: function.__code__)
coded(
    "property and static method",
    lambda: [property(function), staticmethod(function)],
    fits=lambda a, b: b[0].fget is function,
)

group("What lives in the process")
pickled("logger", lambda: logging.getLogger("a.b"), "by name: the logger itself")
refused("generator", lambda: generator_function(), "where it stands cannot be stored: return a list")
refused("coroutine", lambda: coroutine_function(), "await it first")
refused("async generator", lambda: async_generator_function(), "where it stands cannot be stored: return a list")
refused("concurrent.futures.Future", lambda: resolved(Future()), "store its result")
refused("lock", lambda: threading.Lock(), "make it where it is used")
refused(
    "condition, event, semaphore",
    lambda: [threading.Event(), threading.Semaphore()],
    "made of locks",
    path="The value[0]",
)
refused("thread", threading.current_thread, "it runs in this process")
refused("pool of workers", lambda: ThreadPoolExecutor(1), "it runs in this process")
refused("queue", lambda: queue.Queue(), "store its items")
refused("open file", lambda: open(__file__), "store its path")  # noqa: SIM115
refused("open file for bytes", lambda: open(__file__, "rb"), "store its path")  # noqa: SIM115
refused("socket", lambda: socket.socket(), "open it where it is used")
refused("database connection", lambda: sqlite3.connect(":memory:"), "open it where it is used")
refused("memory map", lambda: mmap.mmap(-1, 10), "store its bytes")
refused("weak reference", lambda: weakref.ref(LONELY), "store the object")
refused("context variable", lambda: contextvars.ContextVar("a"), "store its value")
refused("frame", lambda: sys._getframe(), "a place in running code")
refused("hash object", lambda: hashlib.sha256(b"a"), "store its digest")
refused("struct.Struct", lambda: struct.Struct("i"), "store its format")


# ---------------------------------------------------------------- the page

HEAD = """# What becomes of a value

What a task returns, what a flow asks and is answered, and what a thread keeps is stored, and read back. This page says
what comes back, for {count} kinds of value. The tests hold the code to the very table it is written from
(`python -m tests.serde.every_kind` writes it).

Of the {count}, **{kept} come back as they were**: equal, and of the same type down to the last leaf, in the process
that stored them and in any other. **{changed} change**, in a way that is told below. **{refused} are refused** when
they are to be stored: the task fails at once, and its error names the place inside the value, as in *The result of task
`load`['conn'].x is a `_thread.lock`, which cannot be stored*. Nothing changes silently.

A value goes the first of three ways that can take all of it:

| way | what it is | kinds |
|---|---|---|
| **plain data** | a compact encoding that keeps types; reading it runs no code | {plain} |
| **pickled** | Python's pickle: classes and functions go by their names | {pickled} |
| **with code** | cloudpickle: for what has no name, such as a lambda; read by the same version of Python | {coded} |

One leaf that has to be pickled makes a pickle of the whole value. Where a store may be in other hands, pickles are
signed. `Serializer(allow_pickle=False)` does without any: it takes {strictly} of these kinds, plain data and what an
exception can do without, and says of any other which part of it is no plain data.

Classes go by module and name. What comes back is of the class that the program uses, also when that is a class of the
script itself, run again; a class that is not there any more is missed by name. Nothing of a dataclass, an attrs class,
a pydantic model or an exception runs when one is read: no `__init__`, no validator. Fields that a dataclass or a
pydantic model has got since are filled from their defaults.
"""


def page() -> str:
    """The table for people."""
    outcomes = collections.Counter(row.by_default() for row in ROWS)
    numbers = {
        "count": len(ROWS),
        "kept": sum(number for word, number in outcomes.items() if word.startswith("kept")),
        "changed": outcomes["changed"],
        "refused": outcomes["refused"],
        "plain": sum(row.tier in ("N", "B", "M") for row in ROWS),
        "pickled": sum(row.tier == "P" for row in ROWS),
        "coded": sum(row.tier == "C" for row in ROWS),
        "strictly": sum(row.strict_fits is not None for row in ROWS),
    }
    parts = [HEAD.format(**numbers)]
    for name, rows in itertools.groupby(ROWS, key=lambda row: row.group):
        parts.append(f"\n## {name}\n\n| value | by default | without pickles | |\n|---|---|---|---|\n")
        for row in rows:
            parts.append(f"| {row.name} | {row.by_default()} | {row.without_pickles()} |{f' {row.note} '.rstrip()} |\n")
    return "".join(parts)


# ---------------------------------------------------------------- other processes


def save(path: str) -> None:
    """Write the blob of each row that another process can compare."""
    blobs = {row.name: Serializer().dumps(row.make()) for row in ROWS if row.tier and row.travels}
    pathlib.Path(path).write_bytes(pickle.dumps(blobs))


def differing(path: str) -> list[str]:
    """Names of the rows whose blobs, written by another process, come back as something else than was promised."""
    blobs = pickle.loads(pathlib.Path(path).read_bytes())
    return [
        row.name for row in ROWS if row.name in blobs and not row.fits(row.make(), Serializer().loads(blobs[row.name]))
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["save", path]:
            save(path)
        case ["compare", path]:
            print(differing(path))
        case _:
            PAGE.write_text(page(), "utf-8")
