"""Plain data as bytes that keep every type: msgpack, with a code of our own for each kind it does not know.

Values nest: what a tuple holds is packed by itself and put into the tuple's extension. Each depth of that is one
`_Level`, and there are 100, on both sides, since ormsgpack recurses on the machine's stack. What ormsgpack would change
without a word (bytearray to bytes) or refuse (keys that are no str) is put into a `_Held` first. Few values have any of
that, so it is looked for when the first try has met some, and the second try looks at every depth before it packs it:
one that packed first would pack all below it twice, and what lies deeper twice as often at each depth. No name that was
stored is ever called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ormsgpack

from flowfn.errors import TagTakenError, UnstorableError
from flowfn.serde import aside
from flowfn.serde.classes import (
    find,
    found,
    is_of_program,
    name_of,
    note_naming,
    put_back,
    raise_unreadable,
    shown,
    took_note,
)
from flowfn.serde.exceptions import is_kept, kept, rebuild, records
from flowfn.serde.kinds import (
    ARRAY,
    ATOMS,
    EXCEPTION,
    KINDS,
    LARGE_ARRAY,
    MEMORYVIEW,
    PAIRS,
    REGISTERED,
    SURROGATES,
    Kind,
    NotPlain,
    from_pairs,
    pairs,
    view_from_parts,
    view_parts,
)
from flowfn.serde.nesting import floors, is_too_deep, is_too_deep_here
from flowfn.serde.objects import (
    FAMILIES,
    Family,
    array_from_bytes,
    array_from_parts,
    array_parts,
    array_to_bytes,
    is_array,
)
from flowfn.serde.paths import culprit
from flowfn.serde.pause import without_collecting
from flowfn.serde.preview import kind_name

__all__ = ["ATOMS", "NotPlain", "copied", "decode", "encode", "register"]

DEEPEST = 100
_COUNTED = 2  # The depth below which nesting is counted, see nesting.py.
_TOO_DEEP = "values are nested too deep"
_RECURSION = "Recursion limit"  # What ormsgpack says when it stops at its own.
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_packb, _unpackb, _Ext = ormsgpack.packb, ormsgpack.unpackb, ormsgpack.Ext
_BUFFERS = frozenset({bytearray, memoryview})
_NATIVE = frozenset({list, dict, str})
_LARGE = 1 << 16


class _Held:
    """A value that has to be stored as a kind although ormsgpack would take it, or refuse it, by itself."""

    __slots__ = ("kind", "plain")

    def __init__(self, kind: Kind, value: Any) -> None:
        self.kind, self.plain = kind, kind.to_plain(value)


class _NeedsHolding(NotPlain):
    """A value has to be packed with care."""


class _Failure(threading.local):
    """What a hook raised: ormsgpack replaces it, whatever it was, by an error of its own."""

    error: BaseException | None = None

    def taken(self) -> BaseException | None:
        error, self.error = self.error, None
        return error


_failure = _Failure()


class _Level:
    """One depth of nested values."""

    __slots__ = ("deeper", "depth", "drops", "pack_hook", "unpack_hook")

    def __init__(self, depth: int, deeper: _Level | None, drops: bool) -> None:
        self.depth, self.deeper, self.drops = depth, deeper, drops
        self.pack_hook, self.unpack_hook = self._pack_hook, self._unpack_hook

    def pack(self, value: Any) -> bytes:
        """The value's bytes.

        Raises:
            NotPlain: it is not data to the last leaf.
        """
        try:
            data = _packb(value, self.pack_hook, _OPTIONS)
        except TypeError as error:
            raise _reason(value, error, _NeedsHolding) from None
        if _might_hold_bytes(data) and _has_buffer(value):
            raise _NeedsHolding(value)
        return data

    def _pack_hook(self, value: Any) -> ormsgpack.Ext:
        try:
            if self.deeper is None:
                raise NotPlain(value, _TOO_DEEP)
            kind = _writers.get(type(value)) or _writer(value)
            if kind is _HELD:
                kind, plain = value.kind, value.plain
            else:
                if kind is _ARRAY and value.nbytes > _LARGE:
                    kind = _LARGE_ARRAY
                plain = kind.to_plain(value)
            if kind.is_raw:
                return _Ext(kind.code, plain)
            if self.drops and kind.code == EXCEPTION:
                plain = kept(plain, refusal)
            data = self.deeper.pack(plain)
            if self.depth == _COUNTED and is_too_deep(data):
                raise NotPlain(value, _TOO_DEEP)
            return _Ext(kind.code, data)
        except BaseException as error:
            _failure.error = error
            raise

    def unpack(self, data: bytes | memoryview) -> Any:
        """The value that `pack` gave these bytes for."""
        try:
            return _unpackb(data, ext_hook=self.unpack_hook)
        except ValueError:
            failed = _failure.taken()
            if failed is not None:
                raise failed from None
            raise

    def _unpack_hook(self, code: int, data: bytes) -> Any:
        try:
            if self.deeper is None:
                raise ValueError(_TOO_DEEP)
            kind = _readers[code]
            if kind.is_raw:
                return kind.from_plain(data)
            if self.depth == _COUNTED and is_too_deep(data):
                raise ValueError(_TOO_DEEP)
            plain = self.deeper.unpack(data)
            if type(plain) is not kind.takes:
                raise ValueError(f"a `{kind_name(plain)}` in the place of a `{kind.takes.__name__}`")
            return kind.from_plain(plain)
        except BaseException as error:
            _failure.error = error
            raise


class _CarefulLevel(_Level):
    """One depth of values in which something has to be held: found before anything inside is packed."""

    __slots__ = ()

    def pack(self, value: Any) -> bytes:
        if _needs_holding(value):
            value = _held(value)
        try:
            return _packb(value, self.pack_hook, _OPTIONS)
        except TypeError as error:
            raise _reason(value, error, NotPlain) from None


class _Root:
    """All depths: `pack` and `unpack` of whole values."""

    def __init__(self, drops: bool) -> None:
        self._level, self._careful = _levels(_Level, drops), _levels(_CarefulLevel, drops)

    def pack(self, value: Any, head: bytes = b"") -> bytes:
        """The value's bytes, after `head`.

        Raises:
            NotPlain: it is not data to the last leaf.
        """
        return aside.written(self._pack, value, head)

    def _pack(self, value: Any) -> bytes:
        try:
            data = self._level.pack(value)
        except _NeedsHolding:
            aside.forget()
            data = self._careful.pack(value)
        if is_too_deep_here(data):
            raise NotPlain(value, _TOO_DEEP)
        return data

    def unpack(self, data: bytes | memoryview) -> Any:
        """The value that `pack` gave these bytes for."""
        if len(data) < _LARGE:
            return self._unpack(data)
        if data[0] == aside.MARK:
            return without_collecting(aside.read, self._unpack, data)
        return without_collecting(self._unpack, data)

    def _unpack(self, data: bytes | memoryview) -> Any:
        if is_too_deep_here(data):
            raise ValueError(_TOO_DEEP)
        return self._level.unpack(data)


def _levels(kind: type[_Level], drops: bool) -> _Level:
    level = None
    for depth in range(DEEPEST, -1, -1):
        level = kind(depth, level, drops)
    assert level is not None
    return level


def _reason(value: Any, error: TypeError, refused: type[NotPlain]) -> BaseException:
    """What to raise when a value was not packed: what a hook raised, or `refused`, when ormsgpack itself would not."""
    failed = _failure.taken()
    if failed is not None:
        return failed
    return NotPlain(value, _TOO_DEEP) if _RECURSION in str(error) else refused(value, str(error))


ROOT = _Root(drops=False)
DROPPING = _Root(drops=True)
"""The same, but what cannot be stored of an exception is left out and noted."""


def _might_hold_bytes(data: bytes) -> bool:
    return 0xC4 in data or 0xC5 in data or 0xC6 in data


def _has_buffer(value: Any) -> bool:
    return any(not kinds.isdisjoint(_BUFFERS) for kinds in floors(value))


def _needs_holding(value: Any) -> bool:
    try:
        data = _packb(value, _nothing, _OPTIONS)
    except TypeError as error:
        return _RECURSION not in str(error)
    return _might_hold_bytes(data) and _has_buffer(value)


def _nothing(value: Any) -> None:
    return None


def _held(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_held(item) for item in value]
    if kind is dict:
        if all(type(key) is str and not _has_surrogates(key) for key in value):
            return {key: _held(item) for key, item in value.items()}
        return _Held(_PAIRS, value)
    if kind is str and _has_surrogates(value):
        return _Held(_SURROGATES, value)
    if kind is bytearray:
        return _Held(KINDS[bytearray], value)
    if kind is memoryview:
        return _Held(_MEMORYVIEW, value)
    return value


def _has_surrogates(text: str) -> bool:
    try:
        return not text.isascii() and not text.encode()
    except UnicodeEncodeError:
        return True


# ---------------------------------------------------------------- which kind a value is of


_writers: dict[type, Kind] = dict(KINDS)
_makers: dict[type, tuple[int, Callable[[Any], Any]]] = {}
_tags: dict[str, tuple[type, Callable[[Any], Any]]] = {}


def _writer(value: Any) -> Kind:
    """The kind of an object whose class is met for the first time."""
    cls = type(value)
    if is_kept(cls):
        kind = _EXCEPTION
    elif is_array(cls):
        kind = _ARRAY
    else:
        family = next((family for family in FAMILIES if family.claims(cls)), None)
        if family is None:
            raise NotPlain(value)
        kind = _kind(cls, family)
    if find(name_of(cls)) is cls:  # Else it cannot be stored, and may be one of very many made in a function.
        _writers[cls] = kind
    return kind


def is_of_a_kind(value: object) -> bool:
    """Whether the value is plain data if all of its parts are."""
    cls = type(value)
    if cls in _NATIVE or cls in KINDS:
        return True
    try:
        kind = _writers.get(cls) or _writer(value)
    except NotPlain:
        return False
    return kind.code == REGISTERED or find(name_of(cls)) is cls


def _kind(cls: type, family: Family) -> Kind:
    name, take = name_of(cls), family.taker(cls)
    is_to_be_noted = is_of_program(name)

    def to_plain(value: Any) -> list[Any]:
        if find(name) is not cls:
            raise NotPlain(value, _not_found(cls))
        if is_to_be_noted:
            note_naming()
        return [name, take(value)]

    return Kind(family.code, to_plain, _reader(family))


def _reader(family: Family) -> Callable[[list[Any]], Any]:
    def from_plain(plain: list[Any]) -> Any:
        name, state = plain
        cls = found(name)
        code, make = _makers.get(cls, _UNKNOWN)
        if code != family.code:
            if not family.claims(cls):
                raise ValueError(f"the class `{shown(name)}` is not of the kind it was")
            make = family.maker(cls)
            _makers[cls] = family.code, make
        return make(state)

    return from_plain


_UNKNOWN: tuple[int, Callable[[Any], Any]] = (0, lambda state: state)


def _not_found(cls: type) -> str:
    return f"its class is not found under its name, `{shown(name_of(cls))}`"


def _storable_name(cls: type) -> str:
    name = name_of(cls)
    if find(name) is not cls or not is_kept(cls):
        raise NotPlain(cls, _not_found(cls))
    if is_of_program(name):
        note_naming()
    return name


def _registered(plain: list[Any]) -> Any:
    tag, state = plain
    if tag not in _tags:
        raise ValueError(f"no type is registered under the tag `{tag}`")
    return _tags[tag][1](state)


_PAIRS = Kind(PAIRS, pairs, lambda plain: dict(from_pairs(plain)))
_SURROGATES = Kind(
    SURROGATES, lambda v: v.encode("utf-8", "surrogatepass"), lambda plain: plain.decode("utf-8", "surrogatepass"), True
)
_MEMORYVIEW = Kind(MEMORYVIEW, view_parts, view_from_parts)
_ARRAY = Kind(ARRAY, array_to_bytes, array_from_bytes, True)
_LARGE_ARRAY = Kind(
    LARGE_ARRAY,
    lambda value: aside.put_aside(*array_parts(value)),
    lambda plain: array_from_parts(*aside.take_up(plain)),
    True,
)
_EXCEPTION = Kind(
    EXCEPTION,
    lambda error: records(error, _storable_name),
    lambda plain: rebuild(plain, found),
)
_REGISTERED = Kind(REGISTERED, lambda value: value, _registered)

_HELD = Kind(0, lambda value: value, lambda plain: plain)
_writers[_Held] = _HELD

_OTHERS = (_PAIRS, _SURROGATES, _MEMORYVIEW, _ARRAY, _LARGE_ARRAY, _EXCEPTION, _REGISTERED)
_readers: dict[int, Kind] = {kind.code: kind for kind in (*KINDS.values(), *_OTHERS)} | {
    family.code: Kind(family.code, lambda value: value, _reader(family)) for family in FAMILIES
}


# ---------------------------------------------------------------- the face


def register(cls: type, tag: str, to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]) -> None:
    """Let objects of exactly this class count as plain data.

    Args:
        tag: what is stored for the class; it must never mean another one.
        to_plain: from an object to plain data.
        from_plain: the way back, called with what `to_plain` gave, perhaps in another process.
    Raises:
        TagTakenError: another class is registered under the tag.
    """
    taken = _tags.get(tag)
    if taken is not None and name_of(taken[0]) != name_of(cls):
        raise TagTakenError(tag, shown(name_of(taken[0])))
    _tags[tag] = (cls, from_plain)
    _writers[cls] = _REGISTERED._replace(to_plain=lambda value: [tag, to_plain(value)])


def refusal(value: object) -> str | None:
    """Why the value is not plain data; None if it is."""
    noted = took_note()
    try:
        ROOT.pack(value)
    except NotPlain as error:
        return error.why
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        put_back(noted)  # Of a pack that is under way, perhaps, and may do without this value.
    return None


def encode(value: object) -> bytes:
    """The value's bytes.

    Raises:
        UnstorableError: it is not plain data to the last leaf; names the path to the leaf.
    """
    try:
        return ROOT.pack(value)
    except Exception as error:
        path, leaf = culprit(value, "The value", refusal, is_of_a_kind)
        raise UnstorableError(path, kind_name(leaf), refusal(leaf) or "") from error


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` gave these bytes for.

    Raises:
        MissingClassError: no imported module defines a class that it needs.
        UnreadableError: these bytes were never given by `encode`, or a class has changed too much.
    """
    try:
        return ROOT.unpack(data)
    except Exception as error:
        raise_unreadable(error, "A stored value")


def copied(value: Any) -> Any:
    """A deep copy of plain data; the value itself when its type is in `ATOMS`.

    Raises:
        UnstorableError: it is not plain data to the last leaf.
    """
    if type(value) in ATOMS:
        return value
    try:
        return ROOT.unpack(ROOT.pack(value))
    except NotPlain as error:
        path = "The value" if error.leaf is value else "Something in the value"
        raise UnstorableError(path, kind_name(error.leaf), error.why) from None
    except Exception as error:
        raise UnstorableError("The value", kind_name(value), f"{type(error).__name__}: {error}") from error
