"""When two calls are the same: names, digests, occurrence.

`call key = hash(path of the caller, name of the task, arguments, occurrence)`. The position in the program is no part
of it, so a recorded result finds its call after edits, and finds only its call. Arguments become bytes by one canonical
walk: equal values give equal bytes in every process, whatever the order of a set or dict; what cannot be walked (a
lock, a connection) is left out and handed to the caller, who refuses calls that differ in nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import types
from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ormsgpack

from flowfn.futures import MapFuture, TaskFuture
from flowfn.serde.objects import array_parts, is_array

OPTIONS = (
    ormsgpack.OPT_SORT_KEYS
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
SIMPLE = frozenset({type(None), bool, int, float, str, bytes})
AS_LISTS = 0
"""Tuples as lists."""

DEEPEST = 80
"""Levels of nested objects after which a walk leaves out what comes below."""

packb = ormsgpack.packb
_PADDED = "gGV"
"""Kinds of numbers with bytes between them that say nothing: long doubles and structures."""


def digest(*parts: bytes, size: int = 16, secret: bytes = b"") -> bytes:
    """A hash of the parts; no two lists of parts share one.

    Args:
        secret: without which nobody can tell by trying what was hashed.
    """
    return blake2b(packb(parts, None, AS_LISTS), digest_size=size, key=secret).digest()


# ---------------------------------------------------------------- names


@functools.lru_cache(maxsize=64)
def _module_of_file(file: str) -> str:
    path = Path(file).resolve()
    name = path.stem
    while (path.parent / "__init__.py").exists():
        path = path.parent
        name = f"{path.name}.{name}"
    return name


def module_name(module: str | None) -> str:
    """The module's name; `__main__` counts as the module that its file would be when imported."""
    if module != "__main__":
        return module or "?"
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name.removesuffix(".__main__")  # type: ignore[no-any-return]
    file = getattr(main, "__file__", None)
    return _module_of_file(file) if file else "__main__"


def name_of(thing: Any) -> str:
    """Module-qualified name of a function, class or callable object."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if not hasattr(thing, "__qualname__"):
        thing = type(thing)
    return f"{module_name(getattr(thing, '__module__', None))}:{thing.__qualname__}"


def code_digest(code: types.CodeType) -> bytes:
    """A digest of what a code object does, line numbers and file names left out."""
    constants = [_constant(c) for c in code.co_consts]
    return digest(code.co_code, " ".join(code.co_names).encode(), *constants)


def _constant(value: Any) -> bytes:
    """A constant of a code object, equal in every process."""
    if isinstance(value, types.CodeType):
        return code_digest(value)
    if isinstance(value, frozenset):
        return b"{" + b",".join(sorted(map(_constant, value)))
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_constant, value))
    return repr(value).encode()


def captured(fn: Any) -> bytes:
    """What tells apart functions of one name: values a closure, partial, or callable object holds; a lambda's code.

    Only what is there now and can be encoded; the rest is no part of the name.
    """
    if any(known is fn for known in _naming.functions):
        return b""  # a closure that holds itself
    _naming.functions.append(fn)
    try:
        return _captured(fn)
    finally:
        _naming.functions.pop()


class _Naming(threading.local):
    """The functions whose captured values are being walked."""

    def __init__(self) -> None:
        self.functions: list[Any] = []


_naming = _Naming()


def _captured(fn: Any) -> bytes:
    parts: list[bytes] = []
    while isinstance(fn, functools.partial):
        parts += [_encodable(fn.args), _encodable(fn.keywords)]
        fn = fn.func
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if isinstance(fn, types.FunctionType):
        if fn.__name__ == "<lambda>":
            parts.append(code_digest(fn.__code__))
        for cell in fn.__closure__ or ():
            try:
                parts.append(_encodable(cell.cell_contents))
            except ValueError:  # a cell that is filled later
                parts.append(b"")
    elif not isinstance(fn, type) and not hasattr(fn, "__qualname__"):
        parts.append(_encodable(fn))
    return digest(*parts) if any(parts) else b""


def _encodable(value: Any) -> bytes:
    walk = Walk()
    data = walk.packed(value)
    return b"" if walk.left_out else data


# ---------------------------------------------------------------- values


def packed_arguments(values: Sequence[Any]) -> tuple[list[bytes], Sequence[Any], Sequence[TaskFuture[Any]]]:
    """The arguments of a call as bytes, what had to be left out, and the futures among them."""
    parts = []
    for value in values:
        if type(value) not in SIMPLE:
            break
        try:
            parts.append(packb(value))
        except (TypeError, ValueError):  # a large int, a lone surrogate
            break
    else:
        return parts, (), ()
    walk = Walk()
    return [walk.packed(value) for value in values], walk.left_out, walk.futures


class Walk:
    """One canonical walk over the arguments of a call.

    Attributes:
        left_out: the leaves that could not be walked, in the order met.
        futures: the futures met; each stands for its call.
    """

    __slots__ = ("_active", "_interrupt", "futures", "left_out")

    def __init__(self) -> None:
        self._interrupt: BaseException | None = None
        self.left_out: list[Any] = []
        self.futures: list[TaskFuture[Any]] = []
        self._active: list[int] = []

    def packed(self, value: Any) -> bytes:
        """The value as bytes, equal for equal values in every process."""
        if type(value) in SIMPLE:
            try:
                return packb(value)
            except (TypeError, ValueError):
                return self._step(value)
        met = len(self.left_out), len(self.futures)
        try:
            return packb(value, self._hook, OPTIONS)
        except (TypeError, ValueError, RecursionError):
            if self._interrupt is not None:
                raise self._interrupt from None
            # A key that is no text, a lone surrogate, or too deep: the packer gives up, the walk goes on by itself.
            del self.left_out[met[0] :], self.futures[met[1] :]
            return self._other(value)

    def _tagged(self, tag: str, *parts: bytes) -> bytes:
        return packb([tag, *parts])

    def _hook(self, value: Any) -> Any:
        try:
            return ormsgpack.Ext(1, self._other(value))
        except BaseException as error:
            # The packer replaces whatever a hook raises by an error of its own.
            if not isinstance(error, Exception):
                self._interrupt = error
            raise

    def _all(self, values: Any) -> list[bytes]:
        return [self.packed(v) for v in values]

    def _other(self, value: Any) -> bytes:
        """One step of the walk for what the packer does not take by itself."""
        me = id(value)
        if me in self._active:
            return self._tagged("cycle", b"%d" % (len(self._active) - self._active.index(me)))
        if len(self._active) >= DEEPEST:
            return self._leave_out(value)
        self._active.append(me)
        try:
            return self._step(value)
        except RecursionError:
            return self._leave_out(value)
        finally:
            self._active.pop()

    def _leave_out(self, value: Any) -> bytes:
        self.left_out.append(value)
        return self._tagged("left out", name_of(type(value)).encode())

    def _step(self, value: Any) -> bytes:
        kind = type(value)
        if kind is tuple or kind is list:
            return self._tagged(kind.__name__, *self._all(value))
        if kind is dict:
            pairs = sorted((self.packed(k), self.packed(v)) for k, v in value.items())
            return self._tagged("dict", *[part for pair in pairs for part in pair])
        if kind is set or kind is frozenset:
            return self._tagged(kind.__name__, *sorted(self._all(value)))
        if kind is int:
            return self._tagged("int", b"%d" % value)
        if kind is str:
            return self._tagged("str", value.encode("utf-8", "surrogatepass"))
        if isinstance(value, TaskFuture):
            self.futures.append(value)
            return self._tagged("future", value._call.key)
        if kind is MapFuture:
            return self._tagged("futures", *self._all(value.later))
        return self._object(value, kind)

    def _object(self, value: Any, kind: type) -> bytes:
        named = name_of(kind).encode()
        key = getattr(kind, "__flow_key__", None)
        if key is not None:
            return self._tagged("keyed", named, self.packed(key(value)))
        if isinstance(value, types.MethodType):
            return self._tagged("method", named, self.packed(value.__self__), value.__name__.encode())
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            return self._tagged("named", _named(value))
        if isinstance(value, Enum):
            return self._tagged("enum", named, value.name.encode() if value.name else self.packed(value.value))
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and callable(value):
            return self._tagged("named", _named(wrapped))
        if is_array(kind) and value.dtype.itemsize and not (value.dtype.char in _PADDED or value.dtype.hasobject):
            head, numbers = array_parts(value)
            return self._tagged("array", head, blake2b(numbers, digest_size=32).digest())
        try:
            state = value.__reduce_ex__(4)
        except Exception:  # whatever a class raises to say that it has no state to give
            return self._leave_out(value)
        if isinstance(state, str):
            return self._tagged("named", named, state.encode())
        made, args, *rest = state
        rest = [list(part) if i in (1, 2) and part is not None else part for i, part in enumerate(rest[:3])]
        if isinstance(value, frozenset | set) and args:
            args = (set(args[0]), *args[1:])
        if isinstance(value, dict) and len(rest) > 2 and rest[2] is not None:
            rest[2] = sorted(tuple(self._all(pair)) for pair in rest[2])
        return self._tagged("object", named, self.packed(made), *self._all(args), *self._all(rest))


def _named(thing: Any) -> bytes:
    if isinstance(thing, types.ModuleType):
        return module_name(thing.__name__).encode()
    name = name_of(thing).encode()
    return name if isinstance(thing, type) else name + captured(thing)


def question_base(path: bytes, value: Any, key: str | None, allowed: str | None, secret: bytes = b"") -> bytes:
    """What names a question: where it is asked, what it shows or the name it is tied to, and which answers it allows.

    Args:
        path: what the keys of the asking code's calls start with.
        allowed: JSON schema of an answer as text, or None.
        secret: see `digest`.
    """
    shown = Walk().packed(value) if key is None else key.encode()
    kind = b"payload" if key is None else b"key"
    schema = [] if allowed is None else [allowed.encode()]
    return digest(path, b"question", kind, shown, *schema, secret=secret)


def is_frozen(value: Any) -> bool:
    """Whether an object's class says that it never changes: a frozen dataclass, a named tuple, an enum member."""
    params = getattr(type(value), "__dataclass_params__", None)
    if dataclasses.is_dataclass(value) and params is not None:
        return bool(params.frozen)
    return isinstance(value, tuple | Enum) or type(value) in SIMPLE or hasattr(type(value), "__flow_key__")


def owner_part(owner: Any) -> tuple[bytes, list[Any]]:
    """The part of a method's object in its calls' identity: (bytes, what was left out)."""
    if isinstance(owner, type):
        return _named(owner), []
    if is_frozen(owner):
        walk = Walk()
        data = walk.packed(owner)
        if not walk.left_out:
            return data, []
    return b"", [owner]
