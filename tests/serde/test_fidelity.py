"""Which values come back as they were, type and all, and in which tier they are kept."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import math
import pathlib
import pickle
import re
import threading
import types
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import attrs
import numpy as np
import pandas as pd
import pydantic
import pytest

from flowfn.errors import UnstorableError
from flowfn.serde import Serializer, copied, decode, encode
from flowfn.types import MISSING, Command, Interrupt, Send

T = TypeVar("T")
SERDE = Serializer()


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


@dataclasses.dataclass
class Point:
    x: int
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


class Pair(NamedTuple):
    left: Any
    right: Any = 2


OldPair = collections.namedtuple("OldPair", "left right")


@attrs.frozen
class Coin:
    value: int


@attrs.define
class Purse:
    coins: list[Coin]


@attrs.define(slots=False)
class OpenPurse:
    coins: list[Coin]


@attrs.frozen(cache_hash=True)
class Hashed:
    name: str


class Model(pydantic.BaseModel):
    x: int
    when: datetime.datetime | None = None
    _secret: int = pydantic.PrivateAttr(default=0)


class ExtraModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: int


class Root(pydantic.RootModel[list[int]]):
    pass


class Movie(TypedDict):
    name: str


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]

    def method(self) -> Any:
        return self.x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class MyList(list[Any]):
    pass


class MyDict(dict[str, Any]):
    pass


class MyStr(str):
    pass


class MyInt(int):
    pass


def function() -> int:
    return 1


def local_value() -> Any:
    @dataclasses.dataclass
    class Local:
        x: int

    return Local(1)


def filled_derived() -> Derived:
    value = Derived(2)
    assert value.triple == 6
    return value


def secretive_model() -> Model:
    model = Model(x=1, when=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC))
    model._secret = 42
    return model


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UTC = datetime.UTC
OFFSET = datetime.timezone(datetime.timedelta(hours=5, minutes=30), "IST")

TYPED: dict[str, Any] = {
    "true": True,
    "false": False,
    "int": 5,
    "negative int": -(2**63),
    "int 2**63": 2**63,
    "int 2**64": 2**64,
    "int 2**200": 2**200,
    "int -2**100": -(2**100),
    "int -2**63-1": -(2**63) - 1,
    "float": 1.5,
    "float inf": math.inf,
    "float -0.0": -0.0,
    "int-valued float": 1.0,
    "complex": 1.5 - 2j,
    "str": "grüße",
    "empty str": "",
    "surrogate str": "a\ud800b",
    "surrogate in list": ["a\ud800b", "c"],
    "surrogate as key": {"a\ud800b": 1},
    "bytes in list": [b"a", b""],
    "bytearray": bytearray(b"ab"),
    "bytearray in dict": {"a": [bytearray(b"ab"), b"ab"]},
    "bytearray in tuple": ((bytearray(b"ab"),),),
    "bytearray in dataclass": Point(1, bytearray(b"ab")),
    "large bytearray": [bytearray(300), bytearray(70_000)],
    "memoryview": memoryview(b"ab"),
    "memoryview of ints": [memoryview(array.array("i", [1, 2, 3]))],
    "list": [1, [2, []]],
    "tuple": (1, 2),
    "empty tuple": (),
    "nested tuple in dict": {"a": [(1, (2,))]},
    "set": {1, 2},
    "empty set": set(),
    "set of tuples": {(1, 2), (3,)},
    "frozenset": frozenset({1, 2}),
    "frozenset in set": {frozenset({1}), frozenset()},
    "dict": {"a": 1, "b": {"c": None}},
    "dict int keys": {1: "a", -1: "b"},
    "dict tuple keys": {(1, "a"): 1},
    "dict float, True and '1' keys": {1.5: "a", True: "b", "1": "c"},
    "dict None key": {None: 1},
    "dict bytes key": {b"a": 1},
    "dict date key": {datetime.date(2026, 1, 2): 1},
    "dict enum key": {Color.BLUE: 1, Word.YES: 2},
    "dict int keys deep": {"a": [{1: {2: 3}}]},
    "decimal": decimal.Decimal("1.10"),
    "decimal -0E+5": decimal.Decimal("-0E+5"),
    "decimal inf": decimal.Decimal("-Infinity"),
    "fraction": fractions.Fraction(1, 3),
    "range": range(1, 10, 3),
    "slice": slice(1, None, 2),
    "ellipsis": ...,
    "not implemented": NotImplemented,
    "datetime naive": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "datetime utc": datetime.datetime(2026, 1, 2, tzinfo=UTC),
    "datetime offset": datetime.datetime(2026, 1, 2, tzinfo=OFFSET),
    "datetime zone": datetime.datetime(2026, 7, 2, tzinfo=BERLIN),
    "datetime zone fold": datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "datetime naive fold": datetime.datetime(2026, 1, 2, fold=1),
    "datetime min": datetime.datetime.min,
    "datetime max": datetime.datetime.max,
    "date": datetime.date(2026, 1, 2),
    "time": datetime.time(1, 2, 3, 4),
    "time zone fold": datetime.time(1, 2, tzinfo=BERLIN, fold=1),
    "timedelta": datetime.timedelta(-1, 2, 3),
    "timezone": OFFSET,
    "timezone utc": UTC,
    "zone info": BERLIN,
    "uuid": uuid.UUID(int=2**127 + 5),
    "path": pathlib.Path("/tmp/x"),
    "pure posix path": pathlib.PurePosixPath("a/b"),
    "pure windows path": pathlib.PureWindowsPath("c:\\a"),
    "ipv4": ipaddress.ip_address("127.0.0.1"),
    "ipv6": ipaddress.ip_address("fe80::1%eth0"),
    "ipv4 network": ipaddress.ip_network("10.0.0.0/8"),
    "ipv6 network": ipaddress.ip_network("fe80::/10"),
    "ipv4 interface": ipaddress.ip_interface("10.0.0.1/8"),
    "ipv6 interface": ipaddress.ip_interface("fe80::1/10"),
    "pattern": re.compile("a+", re.I | re.M),
    "bytes pattern": re.compile(b"a+"),
    "enum": Color.RED,
    "enum alias": Color.AZURE,
    "int enum": Level.LOW,
    "str enum": Word.YES,
    "flag": Right.READ,
    "flags": Right.READ | Right.WRITE,
    "no flag": Right(0),
    "int flags": Bits.ONE | Bits.TWO,
    "foreign enum": re.I,
    "dataclass": Point(1, {"a": (1,)}),
    "frozen slots dataclass": Frozen(1, (2,)),
    "inherited slots dataclass": Child(1, 2),
    "generic dataclass": Box(Box("a")),
    "dataclass init=False field": Derived(2),
    "dataclass with cached property": filled_derived(),
    "dataclasses in a set": {Frozen(1), Frozen(2)},
    "named tuple": Pair(1, Pair("a")),
    "old named tuple": OldPair(1, 2),
    "attrs frozen": Coin(1),
    "attrs slots": Purse([Coin(1)]),
    "attrs without slots": OpenPurse([Coin(1)]),
    "pydantic": Model(x=1),
    "pydantic private": secretive_model(),
    "pydantic extra": ExtraModel(x=1, y=(1, 2)),  # type: ignore[call-arg]
    "pydantic root": Root([1, 2]),
    "typed dict": Movie(name="a"),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "defaultdict without factory": collections.defaultdict(None, {1: 2}),
    "counter": collections.Counter("abca"),
    "deque": collections.deque([1, 2]),
    "deque maxlen": collections.deque([1, (2,)], maxlen=3),
    "ordered dict": collections.OrderedDict([("b", 1), ("a", 2)]),
    "interrupt": Interrupt("a", "q_1"),
    "command": Command(goto=[Send("a", {1})]),
    "array": array.array("d", [1.5, 2.5]),
    "np array": np.arange(6, dtype="i4").reshape(2, 3),
    "np F order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "np strided": np.arange(10)[::2],
    "np empty": np.zeros((0, 3)),
    "np 0-d": np.array(1.5),
    "np big-endian": np.arange(3, dtype=">i4"),
    "np str array": np.array(["a", "bcd"]),
    "np empty str array": np.array(["", ""]),
    "np bytes array": np.array([b"a", b"bcd"]),
    "np bool array": np.array([True, False]),
    "np complex array": np.array([1j]),
    "np datetime array": np.array(["2026-01-02", "NaT"], dtype="M8[ns]"),
    "np float64": np.float64(1.5),
    "np float32": np.float32(1.5),
    "np int32": np.int32(3),
    "np bool": np.bool_(True),
    "np complex": np.complex128(1j),
    "np str": np.str_("a"),
    "np datetime64": np.datetime64("2026-01-02T03:04", "m"),
    "np timedelta64": np.timedelta64(5, "s"),
}

PICKLED: dict[str, Any] = {
    "chain map": collections.ChainMap({"a": 1}, {"b": 2}),
    "list subclass": MyList([1]),
    "dict subclass": MyDict(a=1),
    "str subclass": MyStr("a"),
    "int subclass": MyInt(1),
    "dict with subclassed keys": {MyStr("a"): 1},
    "object": Plain((1,)),
    "slotted object": Slotted((1,)),
    "dataclass that pickles itself": Unpickly(1),
    "attrs that caches its hash": Hashed("a"),
    "defaultdict with own factory": collections.defaultdict(Plain, {"a": 1}),
    "np object array": np.array([1, "a", None], dtype=object),
    "np structured array": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "data frame": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    "series": pd.Series([1, 2], name="a"),
    "timestamp": pd.Timestamp("2026-01-02", tz="UTC"),
    "function": function,
    "builtin function": len,
    "type": int,
    "class": Point,
    "generic alias": list[int],
    "partial": functools.partial(int, base=2),
    "namespace": types.SimpleNamespace(a=1),
}


def same(a: Any, b: Any) -> bool:
    """Equal, of one type at every level, and equal in what `==` overlooks."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        order = a.flags.f_contiguous == b.flags.f_contiguous or not (a.flags.c_contiguous or a.flags.f_contiguous)
        return (
            a.dtype == b.dtype and a.shape == b.shape and order and pickle.dumps(a.tolist()) == pickle.dumps(b.tolist())
        )
    if isinstance(a, (pd.DataFrame, pd.Series)):
        return a.equals(b)
    if isinstance(a, (dict, collections.ChainMap)):
        return same(list(a.items()), list(b.items())) and getattr(a, "default_factory", 0) is getattr(
            b, "default_factory", 0
        )
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b)) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0)
    if isinstance(a, (datetime.datetime, datetime.time)):
        return str(a) == str(b) and a.fold == b.fold and repr(a.tzinfo) == repr(b.tzinfo)
    if isinstance(a, functools.partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if isinstance(a, (float, decimal.Decimal)):
        return str(a) == str(b)
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        names = [field.name for field in dataclasses.fields(a)]
        return same([getattr(a, name) for name in names], [getattr(b, name) for name in names])
    return bool(a == b)


@pytest.mark.parametrize("value", TYPED.values(), ids=TYPED)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert same(value, decode(encode(value)))


@pytest.mark.parametrize("value", TYPED.values(), ids=TYPED)
def test_plain_data_needs_no_pickle(value: Any) -> None:
    strict = Serializer(allow_pickle=False)

    blob = strict.dumps(value)

    assert same(value, strict.loads(blob))


@pytest.mark.parametrize("value", TYPED.values(), ids=TYPED)
def test_plain_data_comes_back_as_it_was_inside_other_data(value: Any) -> None:
    around = {"a": [(value, "b"), value]}

    assert same(around, SERDE.loads(SERDE.dumps(around)))


@pytest.mark.parametrize("value", PICKLED.values(), ids=PICKLED)
def test_other_values_come_back_as_they_were(value: Any) -> None:
    assert same(value, SERDE.loads(SERDE.dumps(value)))


@pytest.mark.parametrize("value", PICKLED.values(), ids=PICKLED)
def test_other_values_are_kept_in_the_pickle_tier(value: Any) -> None:
    assert SERDE.dumps(value)[1:2] == b"P"


@pytest.mark.parametrize("value", PICKLED.values(), ids=PICKLED)
def test_other_values_are_no_plain_data(value: Any) -> None:
    with pytest.raises(UnstorableError):
        encode(value)


@pytest.mark.parametrize("value", PICKLED.values(), ids=PICKLED)
def test_other_values_are_refused_where_pickles_are_not_allowed(value: Any) -> None:
    with pytest.raises(UnstorableError, match=r"allow_pickle=False|cannot be stored"):
        Serializer(allow_pickle=False).dumps(value)


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "generator": lambda: (i for i in ()),
    "lock": threading.Lock,
    "thread": threading.current_thread,
    "file": lambda: open(__file__),  # noqa: SIM115
    "nested too deep": lambda: functools.reduce(lambda inside, _: [inside], range(5000), None),
    "frame": lambda: __import__("sys")._getframe(),
}


@pytest.mark.parametrize("make", UNSTORABLE.values(), ids=UNSTORABLE)
def test_what_cannot_be_stored_is_refused_at_save(make: Callable[[], Any]) -> None:
    value = make()

    with pytest.raises(UnstorableError):
        SERDE.dumps(value)

    if hasattr(value, "close"):
        value.close()


def test_none_takes_two_bytes() -> None:
    assert len(SERDE.dumps(None)) == 2
    assert SERDE.loads(SERDE.dumps(None)) is None


def test_bytes_are_stored_as_they_are() -> None:
    assert SERDE.dumps(b"ab").endswith(b"B" + b"ab")
    assert SERDE.loads(SERDE.dumps(b"ab")) == b"ab"


def test_nan_comes_back() -> None:
    assert math.isnan(decode(encode(math.nan)))


def test_a_signalling_nan_comes_back() -> None:
    assert decode(encode(decimal.Decimal("sNaN123"))).to_eng_string() == "sNaN123"


def test_a_lambda_is_stored_with_its_code() -> None:
    blob = SERDE.dumps(lambda x: x + 1)

    assert blob[1:2] == b"C"
    assert SERDE.loads(blob)(1) == 2


def test_an_object_of_a_class_made_in_a_function_is_of_the_same_class_in_the_same_process() -> None:
    value = local_value()

    back = SERDE.loads(SERDE.dumps(value))

    assert back == value
    assert type(back) is type(value)


def test_a_bound_method_comes_back_with_its_object() -> None:
    assert SERDE.loads(SERDE.dumps(Plain(3).method))() == 3


def test_a_circle_comes_back_as_a_circle() -> None:
    circle: list[Any] = [1]
    circle.append(circle)

    back = SERDE.loads(SERDE.dumps(circle))

    assert back[1] is back


def test_a_circle_through_a_dataclass_comes_back_as_a_circle() -> None:
    point = Point(1)
    point.y = (point,)

    back = SERDE.loads(SERDE.dumps(point))

    assert back.y[0] is back


def test_the_mark_of_a_missing_value_is_the_mark_itself() -> None:
    assert decode(encode(Command())).resume is MISSING


def test_enum_members_are_the_members_themselves() -> None:
    assert decode(encode(Color.RED)) is Color.RED


def test_an_array_comes_back_writable() -> None:
    back = decode(encode(np.zeros(3)))

    back[0] = 1

    assert back[0] == 1


def test_post_init_does_not_run_again() -> None:
    value = Derived(2)
    value.double = 7

    assert decode(encode(value)).double == 7


def test_a_field_that_the_class_has_got_since_takes_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Point(1, 2))

    @dataclasses.dataclass
    class Newer:
        x: int
        y: Any
        z: list[int] = dataclasses.field(default_factory=lambda: [1])

    monkeypatch.setitem(globals(), "Point", Newer)

    assert decode(data) == Newer(1, 2, [1])


def test_an_array_in_a_process_without_numpy_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(np.zeros(3))
    monkeypatch.delitem(__import__("sys").modules, "numpy")

    from flowfn.errors import MissingClassError

    with pytest.raises(MissingClassError, match=r"numpy\.ndarray"):
        decode(data)


def test_a_copy_shares_nothing_that_changes_with_the_original() -> None:
    value = {"a": [Point(1, {2})], "b": bytearray(b"x")}

    copy = copied(value)
    copy["a"][0].y.add(3)
    copy["b"].extend(b"y")

    assert value == {"a": [Point(1, {2})], "b": bytearray(b"x")}


@pytest.mark.parametrize("value", [1, "a", decimal.Decimal(1), uuid.UUID(int=1), datetime.date(2026, 1, 1), None])
def test_the_copy_of_an_atom_is_the_atom(value: Any) -> None:
    assert copied(value) is value


@pytest.mark.parametrize("value", [Plain(1), [threading.Lock()], MyInt(1), {"a": (len,)}])
def test_what_is_no_plain_data_is_not_copied(value: Any) -> None:
    with pytest.raises(UnstorableError):
        copied(value)
