"""By value: what a flow sees while it runs is what a replay sees, whatever anybody changes in place."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import threading
import uuid
import zoneinfo
from typing import NamedTuple

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver

CONFIG = {"thread_id": "t"}
LONDON = zoneinfo.ZoneInfo("Europe/London")


class Stop(Exception):
    pass


class Colour(enum.Enum):
    RED = 1


class Flag(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: object = ()


@dataclasses.dataclass
class Order:
    id: int
    lines: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: tuple
    b: frozenset = frozenset()


class Names(list):
    """A list with an attribute."""

    def __init__(self, *args):
        super().__init__(*args)
        self.title = "names"


class Money(decimal.Decimal):
    pass


shared = [1]
VALUES = {
    "none": None,
    "tuple": (1, (2, [3])),
    "nested sets": {frozenset({1, 2}), frozenset()},
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"ab"),
    "big int": 2**200,
    "negative big int": -(2**64),
    "bool keys": {True: "yes", 2: "no"},
    "int keys": {1: "a", 2: "b"},
    "tuple keys": {(1, 2): "a"},
    "none key": {None: 1},
    "nan": math.nan,
    "negative zero": -0.0,
    "infinity": math.inf,
    "complex": 1 - 2j,
    "surrogate": "\ud800",
    "nul": "a\0b",
    "decimal": decimal.Decimal("1.10"),
    "decimal subclass": Money("3"),
    "fraction": fractions.Fraction(1, 3),
    "date": datetime.date(2020, 2, 29),
    "naive datetime": datetime.datetime(2020, 1, 1, 1, 2, 3, 4),
    "fold": datetime.datetime(2020, 10, 25, 1, 30, tzinfo=LONDON, fold=1),
    "timezone": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5, minutes=30))),
    "timedelta": datetime.timedelta(days=-1, microseconds=5),
    "time": datetime.time(1, 2, tzinfo=datetime.UTC),
    "uuid": uuid.UUID(int=5),
    "path": pathlib.PurePosixPath("/a/b"),
    "enum": Colour.RED,
    "flag": Flag.A | Flag.B,
    "named tuple": Point(1, [Point(2)]),
    "dataclass": Order(1, [Frozen((1,), frozenset({2}))]),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "counter": collections.Counter("aab"),
    "ordered dict": collections.OrderedDict([("b", 1), ("a", 2)]),
    "deque": collections.deque([1, 2], maxlen=3),
    "range": range(1, 10, 3),
    "slice": slice(1, None, 2),
    "list subclass": Names(["a"]),
    "exception": ValueError("a", 1),
    "class": Order,
    "function": math.sqrt,
    "ellipsis": ...,
    "dict in another order": {"b": 1, "a": 2},
    "shared": [shared, shared],
    "empty": [[], {}, (), set(), "", b""],
    "memory of a mapping": {"a": {"b": {"c": [1, (2,)]}}},
}


def seen(value):
    """All that a flow can see of a value, as text."""
    if isinstance(value, dict):
        return [
            type(value).__name__,
            [(seen(k), seen(v)) for k, v in value.items()],
            getattr(value, "default_factory", 0),
        ]
    if isinstance(value, (list, tuple, collections.deque)):
        return [type(value).__name__, [seen(v) for v in value], getattr(value, "maxlen", 0), getattr(value, "title", 0)]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted(repr(seen(v)) for v in value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, [seen(getattr(value, f.name)) for f in dataclasses.fields(value)]]
    if isinstance(value, datetime.datetime):
        return [value.isoformat(), value.fold, repr(value.tzinfo)]
    if isinstance(value, BaseException):
        return [type(value).__name__, seen(value.args), str(value)]
    return [type(value).__name__, repr(value)]


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


@pytest.mark.parametrize("name", VALUES)
def test_a_live_value_is_what_a_replay_sees(name, saver):
    # given
    @task
    def make(name):
        return VALUES[name]

    @task
    def look(value):
        return repr(seen(value))

    fails, views = [True], []

    @entrypoint(checkpointer=saver)
    def flow(name):
        value = make(name).result()
        views.append(seen(value))
        views.append(look(value).result())
        if fails:
            raise Stop
        return value

    with pytest.raises(Stop):
        flow.invoke(name, CONFIG)
    fails.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert views[:2] == views[2:]
    assert views[0] == seen(VALUES[name])
    assert views[1] == repr(views[0])
    assert seen(result) == views[0]
    assert seen(flow.get_state(CONFIG).values) == views[0]


def test_sharing_between_parts_of_a_value_is_the_same_live_and_at_a_replay(saver):
    # given
    @task
    def make(x):
        return [shared, shared]

    fails, views = [True], []

    @entrypoint(checkpointer=saver)
    def flow(x):
        one, two = make(x).result()
        views.append(one is two)
        if fails:
            raise Stop

    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when
    flow.invoke(None, CONFIG)

    # then
    assert views[0] == views[1]


@pytest.mark.parametrize(
    "make", [list, lambda: {"a": []}, lambda: Order(1), collections.deque], ids=["list", "dict", "dataclass", "deque"]
)
def test_what_a_task_does_to_its_argument_the_caller_never_sees(make, saver):
    # given
    @task
    def spoil(value):
        (value["a"] if isinstance(value, dict) else value.lines if isinstance(value, Order) else value).append("spoilt")
        return seen(value)

    @entrypoint(checkpointer=saver)
    def flow(x):
        mine = make()
        before = seen(mine)
        return spoil(mine).result() != before, seen(mine) == before

    # when, then
    assert flow.invoke(1, CONFIG) == (True, True)


@pytest.mark.parametrize("with_saver", [True, False])
def test_what_the_caller_does_after_the_call_the_task_never_sees(with_saver):
    # given
    gate = threading.Event()

    @task(inline=False)
    def read(items, more=()):
        gate.wait(5)
        return [*items, *more]

    @entrypoint(checkpointer=InMemorySaver() if with_saver else None)
    def flow(x):
        items, more = [1], [2]
        future = read(items, more=more)
        items.append("late")
        more.append("late")
        gate.set()
        return future.result()

    # when, then
    assert flow.invoke(1, CONFIG) == [1, 2]


def test_what_is_no_plain_data_passes_by_reference():
    # given
    class Session:
        def __init__(self):
            self.lock, self.used = threading.Lock(), []

    session = Session()

    @task
    def use(session, x):
        session.used.append(x)
        return x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return [use(session, i).result() for i in (1, 2)]

    # when, then
    assert flow.invoke(1, CONFIG) == [1, 2]
    assert session.used == [1, 2]


def test_a_flow_that_changes_a_result_does_not_change_what_is_stored(saver):
    # given
    @task
    def make(x):
        return [x]

    fails = [True]

    @entrypoint(checkpointer=saver)
    def flow(x):
        value = make(x).result()
        value.append("mine")
        if fails:
            raise Stop
        return value

    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == [1, "mine"]


def test_a_change_to_a_result_does_not_reach_a_task_that_takes_its_future(saver):
    # given
    @task
    def make(x):
        return [x]

    @task
    def read(value):
        return value

    @entrypoint(checkpointer=saver)
    def flow(x):
        future = make(x)
        future.result().append("mine")
        return read(future).result()

    # when, then
    assert flow.invoke(1, CONFIG) == [1]


def test_the_input_is_stored_before_the_function_can_change_it(saver):
    # given
    fails = [True]

    @entrypoint(checkpointer=saver)
    def flow(items):
        items.append("mine")
        if fails:
            raise Stop
        return items

    with pytest.raises(Stop):
        flow.invoke([1], CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == [1, "mine"]


def test_what_a_flow_does_to_its_input_its_caller_never_sees(saver):
    # given
    @entrypoint(checkpointer=saver)
    def flow(items):
        items.append("mine")
        return items

    mine = [1]

    # when
    flow.invoke(mine, CONFIG)

    # then
    assert mine == [1]


def test_previous_is_what_was_stored_and_not_what_was_changed_later(saver):
    # given
    kept = []

    @entrypoint(checkpointer=saver)
    def flow(x, previous):
        kept.append(previous)
        result = [x]
        kept.append(result)
        return result

    flow.invoke(1, CONFIG)
    kept[1].append("late")

    # when
    flow.invoke(2, CONFIG)

    # then
    assert kept[2] == [1]


def test_a_value_that_cannot_be_stored_fails_its_task_by_name():
    # given
    from flowfn.errors import UnstorableResultError

    @task
    def opens(x):
        return {"deep": [threading.Lock()]}

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return opens(x).result()

    # when
    with pytest.raises(UnstorableResultError) as caught:
        flow.invoke(1, CONFIG)

    # then
    assert "`opens`" in str(caught.value)
    assert "deep" in str(caught.value)
