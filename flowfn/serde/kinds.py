"""The kinds of value that msgpack does not know: for each a code, what it is stored as, and the way back.

One row, one kind. A type is recognised exactly, never as a subclass of one. A family is a kind of class, such as the
dataclasses; its rows are in `objects.py`. Codes are what is written: they never change their meaning.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import ipaddress
import itertools
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from flowfn.types import MISSING

PAIRS, BIG_INT, BYTEARRAY, MEMORYVIEW, SURROGATES, EXCEPTION, REGISTERED, ARRAY, LARGE_ARRAY = range(1, 10)

ATOMS: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, type(...), re.Pattern, decimal.Decimal}
    | {fractions.Fraction, uuid.UUID, datetime.datetime, datetime.date, datetime.time, datetime.timedelta}
    | {datetime.timezone, zoneinfo.ZoneInfo, type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath}
    | {ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network}
    | {ipaddress.IPv4Interface, ipaddress.IPv6Interface}
)
"""Types of values that nobody can change: they need no copy."""


class NotPlain(Exception):
    """A value is not data to the last leaf; says which leaf."""

    def __init__(self, leaf: object, why: str = "") -> None:
        self.leaf, self.why = leaf, why
        super().__init__(why)


class Kind(NamedTuple):
    """How values of one kind are stored.

    Attributes:
        to_plain: from the value to what is stored for it, of simpler kinds.
        from_plain: the way back; what it raises makes the stored value unreadable.
        is_raw: what is stored is bytes, put down as they are.
        takes: the only type that `from_plain` is given. Another one could hold very much in a few bytes: a network is a
            sequence too, and a number can be the size of a bytearray.
    """

    code: int
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]
    is_raw: bool = False
    takes: type = list


def pairs(value: dict[Any, Any]) -> list[Any]:
    """Keys and values by turns, in order."""
    return list(itertools.chain.from_iterable(value.items()))


def from_pairs(plain: list[Any]) -> Iterable[tuple[Any, Any]]:
    """The (key, value) pairs of what `pairs` gave."""
    if len(plain) % 2:
        raise ValueError("a key without a value")
    return zip(plain[::2], plain[1::2], strict=True)


def view_parts(value: memoryview) -> list[Any]:
    """A memoryview's bytes, format, shape, and whether they are read-only."""
    return [value.tobytes(), value.format, list(value.shape or ()), value.readonly]


def view_from_parts(plain: list[Any]) -> memoryview:
    """A memoryview of bytes of its own."""
    data, form, shape, readonly = plain
    if type(data) is not bytes or type(shape) is not list:
        raise ValueError("a view of something else than bytes")
    return memoryview(data if readonly else bytearray(data)).cast(form, shape)


_FACTORIES: dict[str, type] = {
    cls.__name__: cls for cls in (list, dict, set, tuple, frozenset, int, float, complex, str, bytes, bytearray, bool)
}


def _defaultdict(value: collections.defaultdict[Any, Any]) -> list[Any]:
    factory: Any = value.default_factory
    if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
        raise NotPlain(factory, "only a builtin type can be the default of a stored defaultdict")
    return [factory.__name__ if factory else None, *pairs(value)]


def _zone(zone: datetime.tzinfo) -> Any:
    """The zone; True for UTC, which most moments are in."""
    if zone is datetime.UTC:
        return True
    if type(zone) not in (datetime.timezone, zoneinfo.ZoneInfo):
        raise NotPlain(zone)
    return zone


def _moment(v: datetime.datetime) -> list[Any]:
    plain: list[Any] = [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold]
    if v.tzinfo is not None:
        plain.append(_zone(v.tzinfo))
    return plain


def _from_moment(plain: list[Any]) -> datetime.datetime:
    year, month, day, hour, minute, second, micro, fold, *zone = plain
    return datetime.datetime(year, month, day, hour, minute, second, micro, _from_zone(zone), fold=fold)


def _time(v: datetime.time) -> list[Any]:
    plain: list[Any] = [v.hour, v.minute, v.second, v.microsecond, v.fold]
    if v.tzinfo is not None:
        plain.append(_zone(v.tzinfo))
    return plain


def _from_time(plain: list[Any]) -> datetime.time:
    hour, minute, second, micro, fold, *zone = plain
    return datetime.time(hour, minute, second, micro, _from_zone(zone), fold=fold)


def _from_zone(zone: list[Any]) -> datetime.tzinfo | None:
    if not zone:
        return None
    return datetime.UTC if zone[0] is True else zone[0]


def _from_zone_key(key: str) -> zoneinfo.ZoneInfo:
    if not re.fullmatch(r"[\w+-]+(/[\w+-]+)*", key, re.ASCII):
        raise ValueError(f"{key!r} is no name of a zone")
    return zoneinfo.ZoneInfo(key)


def _zone_key(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise NotPlain(zone, "it has no key")
    return zone.key


def _pattern(plain: list[Any]) -> re.Pattern[Any]:
    source, flags = plain
    if flags & re.DEBUG:  # It would print.
        raise ValueError("a pattern with the debug flag")
    return re.compile(source, flags)


def _uuid(v: uuid.UUID) -> bytes:
    """Its bytes; then one more if whoever made it could tell whether it is unique."""
    return v.bytes if v.is_safe is uuid.SafeUUID.unknown else v.bytes + bytes([v.is_safe.value & 1])


def _from_uuid(plain: bytes) -> uuid.UUID:
    safe = {b"": uuid.SafeUUID.unknown, b"\0": uuid.SafeUUID.safe, b"\1": uuid.SafeUUID.unsafe}[plain[16:]]
    return uuid.UUID(bytes=plain[:16], is_safe=safe)


def _whole(plain: list[Any]) -> list[int]:
    """What something is made of that would take a text for a number too, such as "1e999999999"."""
    if any(type(one) is not int for one in plain):
        raise ValueError("it is made of whole numbers")
    return plain


def _fraction(v: fractions.Fraction) -> list[Any]:
    if type(v.numerator) is not int or type(v.denominator) is not int:
        raise NotPlain(v, "it is made of numbers that are no int")
    return [v.numerator, v.denominator]


def _array(plain: list[Any]) -> array.array[Any]:
    code, data = plain
    if type(data) is not bytes:
        raise ValueError("an array of something else than bytes")
    return array.array(code, data)


def _int(plain: bytes) -> int:
    return int.from_bytes(plain, "little", signed=True)


KINDS: dict[type, Kind] = {
    tuple: Kind(16, list, tuple),
    set: Kind(17, list, set),
    frozenset: Kind(18, list, frozenset),
    int: Kind(BIG_INT, lambda v: v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True), _int, True),
    bytearray: Kind(BYTEARRAY, bytes, bytearray, True),
    complex: Kind(19, lambda v: [v.real, v.imag], lambda plain: complex(*plain)),
    range: Kind(20, lambda v: [v.start, v.stop, v.step], lambda plain: range(*_whole(plain))),
    slice: Kind(21, lambda v: [v.start, v.stop, v.step], lambda plain: slice(*plain)),
    type(...): Kind(22, lambda v: None, lambda plain: ..., takes=type(None)),
    type(NotImplemented): Kind(23, lambda v: None, lambda plain: NotImplemented, takes=type(None)),
    decimal.Decimal: Kind(24, str, decimal.Decimal, takes=str),
    fractions.Fraction: Kind(25, _fraction, lambda plain: fractions.Fraction(*_whole(plain))),
    datetime.datetime: Kind(26, _moment, _from_moment),
    datetime.date: Kind(27, lambda v: [v.year, v.month, v.day], lambda plain: datetime.date(*plain)),
    datetime.time: Kind(28, _time, _from_time),
    datetime.timedelta: Kind(
        29, lambda v: [v.days, v.seconds, v.microseconds], lambda plain: datetime.timedelta(*plain)
    ),
    datetime.timezone: Kind(30, lambda v: list(v.__getinitargs__()), lambda plain: datetime.timezone(*plain)),
    zoneinfo.ZoneInfo: Kind(31, _zone_key, _from_zone_key, takes=str),
    uuid.UUID: Kind(32, _uuid, _from_uuid, True),
    type(pathlib.Path()): Kind(33, str, pathlib.Path, takes=str),
    pathlib.PurePosixPath: Kind(34, str, pathlib.PurePosixPath, takes=str),
    pathlib.PureWindowsPath: Kind(35, str, pathlib.PureWindowsPath, takes=str),
    ipaddress.IPv4Address: Kind(36, str, ipaddress.IPv4Address, takes=str),
    ipaddress.IPv6Address: Kind(37, str, ipaddress.IPv6Address, takes=str),
    ipaddress.IPv4Network: Kind(38, str, ipaddress.IPv4Network, takes=str),
    ipaddress.IPv6Network: Kind(39, str, ipaddress.IPv6Network, takes=str),
    ipaddress.IPv4Interface: Kind(40, str, ipaddress.IPv4Interface, takes=str),
    ipaddress.IPv6Interface: Kind(41, str, ipaddress.IPv6Interface, takes=str),
    re.Pattern: Kind(42, lambda v: [v.pattern, v.flags], _pattern),
    collections.OrderedDict: Kind(43, pairs, lambda plain: collections.OrderedDict(from_pairs(plain))),
    collections.Counter: Kind(44, pairs, lambda plain: collections.Counter(dict(from_pairs(plain)))),
    collections.defaultdict: Kind(
        45,
        _defaultdict,
        lambda plain: collections.defaultdict(plain[0] and _FACTORIES[plain[0]], from_pairs(plain[1:])),
    ),
    collections.deque: Kind(46, lambda v: [v.maxlen, *v], lambda plain: collections.deque(plain[1:], plain[0])),
    type(MISSING): Kind(48, lambda v: None, lambda plain: MISSING, takes=type(None)),
    array.array: Kind(47, lambda v: [v.typecode, v.tobytes()], _array),
}

RAW = frozenset({SURROGATES, ARRAY, LARGE_ARRAY} | {kind.code for kind in KINDS.values() if kind.is_raw})
"""Codes of the kinds that are stored as bytes, put down as they are."""
