"""When two calls are the same: names, digests, occurrence."""

import dataclasses
import functools
import subprocess
import sys
import textwrap
import threading
from typing import NamedTuple

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import AmbiguousCallError
from flowfn.identity import Walk

CONFIG = {"thread_id": "t"}


class Stop(Exception):
    pass


def replayed(before, after):
    """What a script gives, and what its edited form gives when it goes on: (recorded, now)."""
    first, saver = [], InMemorySaver()

    def begin(x):
        first.append(before())
        raise Stop

    def go_on(x):
        return after()

    with pytest.raises(Stop):
        entrypoint(checkpointer=saver, name="flow")(begin).invoke(1, CONFIG)
    return first[0], entrypoint(checkpointer=saver, name="flow")(go_on).invoke(None, CONFIG)


RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


# ---------------------------------------------------------------- values


class Keyed:
    def __init__(self, id):
        self.id, self.lock = id, threading.Lock()

    def __flow_key__(self):
        return self.id


class Plain:
    def __init__(self, a, b=None):
        self.a, self.b = a, b


EQUAL = {
    "sets": (lambda: {"a", "b", ("c",)}, lambda: {("c",), "b", "a"}),
    "dicts": (lambda: {"a": 1, 2: "b"}, lambda: {2: "b", "a": 1}),
    "sets in objects": (lambda: Plain({1, 2, 3}), lambda: Plain({3, 2, 1})),
    "objects": (lambda: Plain(1, [2]), lambda: Plain(1, [2])),
    "keyed": (lambda: Keyed(1), lambda: Keyed(1)),
    "nested keyed": (lambda: [Plain(Keyed(1))], lambda: [Plain(Keyed(1))]),
    "functions": (lambda: len, lambda: len),
    "bound methods": (lambda: Plain(1).__init__, lambda: Plain(1).__init__),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_give_equal_bytes(name):
    one, same = EQUAL[name]
    assert Walk().packed(one()) == Walk().packed(same())


DIFFERENT = {
    "keyed": (Keyed(1), Keyed(2)),
    "object state": (Plain(1), Plain(2)),
    "list and tuple": ([1], (1,)),
    "list of pairs and dict": ([("a", 1)], {"a": 1}),
    "nesting": ([[1], 2], [[1, 2]]),
    "text and bytes": ("a", b"a"),
    "one and true": (1, True),
    "functions": (len, max),
    "classes": (Plain, Keyed),
    "partials": (functools.partial(max, 1), functools.partial(max, 2)),
    "big ints": (2**70, 2**70 + 1),
    "a tagged list and what it stands for": (["int", b"1"], 2**70),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_values_give_other_bytes(name):
    one, other = DIFFERENT[name]
    assert Walk().packed(one) != Walk().packed(other)


def test_what_cannot_be_walked_is_left_out_and_named():
    lock, walk = threading.Lock(), Walk()
    walk.packed({"a": [1, lock], "b": 2})
    assert walk.left_out == [lock]


def test_values_that_hold_themselves_can_be_walked():
    value = [1]
    value.append(value)
    other = [2]
    other.append(other)
    assert Walk().packed(value) == Walk().packed(value)
    assert Walk().packed(value) != Walk().packed(other)


def test_equal_values_give_equal_bytes_in_every_process():
    # given
    script = textwrap.dedent("""
        from flowfn.identity import Walk
        print(Walk().packed([{"a", "b", "c", ("d", 1)}, {"x": frozenset("xyz"), 1: None}, 2**80, 1.5]).hex())
    """)

    # when
    seen = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, text=True,
            capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip

    # then
    assert len(seen) == 1


def test_an_interrupt_during_a_walk_is_not_swallowed():
    # given
    presses = [KeyboardInterrupt()]

    class Key:
        def __flow_key__(self):
            if presses:
                raise presses.pop()
            return 1

    # when, then
    with pytest.raises(KeyboardInterrupt):
        Walk().packed([Key()])


# ---------------------------------------------------------------- methods


@dataclasses.dataclass(frozen=True)
class Account:
    id: str

    @task
    def balance(self, x):
        RAN.append((self.id, x))
        return f"{self.id} {x}"


class Named(NamedTuple):
    id: str

    @task
    def balance(self, x):
        return f"{self.id} {x}"


class Client:
    def __init__(self, id):
        self.id = id

    @task
    def balance(self, x):
        return f"{self.id} {x}"

    @task
    @staticmethod
    def fixed(x):
        return f"static {x}"

    @task
    @classmethod
    def of(cls, x):
        return f"{cls.__name__} {x}"


class Special(Client):
    pass


@pytest.mark.parametrize("kind", [Account, Named])
def test_methods_of_immutable_objects_are_told_apart(kind):
    recorded, now = replayed(
        lambda: [kind(i).balance(1).result() for i in "ab"], lambda: [kind(i).balance(1).result() for i in "ba"]
    )
    assert recorded == ["a 1", "b 1"]
    assert now == ["b 1", "a 1"]


def test_equal_calls_on_two_objects_without_identity_are_refused():
    with pytest.raises(AmbiguousCallError):
        replayed(lambda: [Client(i).balance(1).result() for i in "ab"], list)


def test_a_methods_own_object_is_no_part_of_its_calls():
    recorded, now = replayed(lambda: Client("a").balance(1).result(), lambda: Client("another").balance(1).result())
    assert recorded == now == "a 1"


def test_class_and_static_methods_are_tasks():
    recorded, now = replayed(
        lambda: [
            Client.of(1).result(),
            Special.of(1).result(),
            Client.fixed(1).result(),
            Special("x").fixed(2).result(),
        ],
        lambda: [Special.of(1).result(), Client.of(1).result(), Client("x").fixed(1).result()],
    )
    assert recorded == ["Client 1", "Special 1", "static 1", "static 2"]
    assert now == ["Special 1", "Client 1", "static 1"]


# ---------------------------------------------------------------- futures as arguments


@task
def make(x):
    RAN.append(("make", x))
    return x


@task
def take(value):
    RAN.append(("take", repr(value)))
    return value


@task
def broken(x):
    RAN.append(("broken", x))
    raise ValueError(x)


WRAPS = {
    "alone": (lambda f: f, 5),
    "in a list": (lambda f: [1, f], [1, 5]),
    "in a tuple": (lambda f: (f, 2), (5, 2)),
    "as a value of a dict": (lambda f: {"a": f}, {"a": 5}),
    "deep": (lambda f: {"a": [(f, [f])]}, {"a": [(5, [5])]}),
    "later": (lambda f: f.later, 5),
}


@pytest.mark.parametrize("name", WRAPS)
def test_a_future_as_an_argument_gives_its_value(name):
    wrap, expected = WRAPS[name]
    recorded, now = replayed(lambda: take(wrap(make(5))).result(), lambda: take(wrap(make(5))).result())
    assert recorded == now == expected
    assert len(RAN) == 2


@pytest.mark.parametrize("name", WRAPS)
def test_a_failure_of_a_future_given_as_an_argument_is_the_callers(name):
    wrap, _ = WRAPS[name]

    def body():
        with pytest.raises(ValueError) as caught:
            take(wrap(broken(5))).result()
        return caught.value.args, make(1).result()

    assert replayed(body, body) == (((5,), 1), ((5,), 1))
    assert RAN == [("broken", 5), ("make", 1)]


def test_the_flow_does_not_wait_for_a_future_it_gives_on():
    gate = threading.Event()

    @task(inline=False)
    def waits(x):
        gate.wait(5)
        return x

    def body():
        future = take(waits(1))
        gate.set()
        return future.result()

    assert replayed(body, body) == (1, 1)


def test_a_call_is_known_by_the_future_and_not_by_its_value():
    recorded, now = replayed(lambda: take(make(5)).result(), lambda: [take(5).result(), take(make(5)).result()])
    assert recorded == 5
    assert now == [5, 5]
    assert RAN == [("make", 5), ("take", "5"), ("take", "5")]


def test_futures_in_what_a_flow_returns_stand_for_their_values():
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return {"a": make(1), "b": [make(2), (make(3),)]}

    assert flow.invoke(1, CONFIG) == {"a": 1, "b": [2, (3,)]}


def test_arrays_are_told_apart_by_their_numbers_kind_and_shape():
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(12.0)
    packed = Walk().packed(numbers)
    assert len(packed) < 100
    assert Walk().packed(numbers.copy()) == packed
    assert Walk().packed(numbers[::2]) == Walk().packed(numbers[::2].copy())
    others = [numbers.astype("f4"), numbers.reshape(3, 4), numbers[:-1], numbers + 1]
    assert len({packed, *map(Walk().packed, others)}) == 5
