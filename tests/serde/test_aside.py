"""The numbers of large arrays lie behind the value, wherever in it the arrays are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flowfn.errors import UnreadableError, UnstorableError
from flowfn.serde import Serializer, aside, copied, decode, encode, register
from tests.serde.every_kind import Frozen, Pair, Point, same

SERDE = Serializer()
SIZE = 10_000


def large(start: int = 0) -> Any:
    return np.arange(start, start + SIZE, dtype="f8")


class Wrapped:
    """Is stored as what another value was stored as."""

    def __init__(self, value: Any) -> None:
        self.value = value


register(Wrapped, "test-aside", lambda it: [large(7), encode(it.value)], lambda plain: Wrapped(decode(plain[1])))

VALUES: dict[str, Callable[[], Any]] = {
    "alone": large,
    "in a dict": lambda: {"a": large(1), "b": np.arange(3), "c": large(2)},
    "in a tuple": lambda: (large(1), [large(2)]),
    "in a dataclass": lambda: Point(large(1), Point(large(2), {Frozen(1)})),
    "in a named tuple": lambda: Pair(large(1), large(2)),
    "in an exception": lambda: ExceptionGroup("a", [ValueError(large(1)), KeyError(large(2))]),
    "very deep": lambda: (((((((large(1),), large(2)),),),), {"a": (large(3),)}),),
    "beside what has to be held": lambda: [large(1), {1: large(2)}, (large(3), bytearray(b"x")), "\ud800"],
    "of other orders": lambda: [large().reshape(100, 100).T, large()[::-1], large().astype(">i4"), large() > 5],
    "twice the same": lambda: [large(1)] * 2,
    "beside many objects": lambda: [Point(number) for number in range(5_000)] + [large(1)],
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_arrays_come_back_wherever_they_are(make: Callable[[], Any]) -> None:
    value = make()

    for back in (SERDE.loads(SERDE.dumps(value)), decode(encode(value)), copied(value)):
        assert same(value, back)
    assert not aside._written
    assert not aside._unread


def test_numbers_are_written_once_whatever_is_around_them() -> None:
    deep: Any = large()
    for _ in range(50):
        deep = (deep,)

    assert len(encode(deep)) < SIZE * 8 + 500


def test_arrays_come_back_with_numbers_of_their_own() -> None:
    value = {"a": large(), "b": large()}
    back = copied(value)

    back["a"][0] = 5

    assert (value["a"][0], back["b"][0]) == (0, 0)


def test_a_value_that_is_packed_for_another_keeps_its_arrays_to_itself() -> None:
    value = [large(1), Wrapped([large(2), Wrapped((large(3),))]), large(4)]

    back = decode(encode(value))

    assert same([large(1), large(4)], [back[0], back[2]])
    assert same(large(2), back[1].value[0])
    assert same((large(3),), back[1].value[1].value)


def test_nothing_stays_behind_of_a_value_that_is_refused() -> None:
    with pytest.raises(UnstorableError):
        encode([large(), threading.Lock()])

    assert not aside._written
    assert encode([1]) == b"\x91\x01"


def test_nothing_stays_unread_of_a_value_that_is_refused() -> None:
    data = encode([large(), 1])

    with pytest.raises(UnreadableError):
        decode(data.replace(b"\x92", b"\x93", 1))

    assert not aside._unread


def test_workers_do_not_take_each_others_arrays() -> None:
    wrong: list[int] = []

    def work(start: int) -> None:
        for number in range(start, start + 100):
            value = {"a": large(number), "b": (large(-number),)}
            if not same(value, copied(value)):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(start * 1_000,)) for start in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert wrong == []


DATA = encode([large(1), large(2)])
TREE = 9 + int.from_bytes(DATA[1:9], "little")

WRONG: dict[str, bytes] = {
    "too few numbers": DATA[:-1],
    "too many": DATA + b"\0",
    "none": DATA[:TREE],
    "no value": DATA[:9],
    "no size": DATA[:5] + bytes(70_000),
    "a size beyond the end": DATA[:1] + b"\xff" * 8 + DATA[9:],
    "a size of nothing": DATA[:1] + bytes(8) + DATA[9:],
    "an array that takes too much": DATA.replace(
        (SIZE * 8).to_bytes(8, "little"), (SIZE * 8 + 8).to_bytes(8, "little"), 1
    ),
    "an array that takes very much": DATA.replace((SIZE * 8).to_bytes(8, "little"), b"\xff" * 8, 1),
    "an array of another length": DATA.replace(b"\xcd\x27\x10", b"\xcd\x27\x11", 1),
    "arrays without the mark": DATA[9:],
    "a value in a value": b"\xc1" + (len(DATA)).to_bytes(8, "little") + DATA,
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused(data: bytes) -> None:
    assert same(decode(DATA), [large(1), large(2)])

    with pytest.raises(UnreadableError):
        decode(data)

    assert not aside._unread
