"""What is lent is a deep copy, as far as it is data."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from flowfn.channels.lending import lent


@dataclass
class Order:
    items: list[int]


class Pair(NamedTuple):
    left: list[int]
    right: Any


class Session:
    """No data."""


DATA: list[Any] = [
    [1, [2, [3]]],
    {"a": {"b": [1]}, (1, 2): [3]},
    ([1], ([2],)),
    {1, 2},
    frozenset({1}),
    bytearray(b"x"),
    deque([[1], [2]], maxlen=5),
    OrderedDict(b=[1], a=[2]),
    defaultdict(list, a=[1]),
    Counter("aab"),
    Order([1]),
    [Order([1]), Pair([1], "x")],
    {"error": ValueError("no")},
    range(3),
    None,
]


def containers(value: Any) -> list[int]:
    """Ids of everything in a value that somebody could change."""
    found = []
    if isinstance(value, (list, dict, set, bytearray, deque, Order)):
        found.append(id(value))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, deque)) else ()
    for part in parts:
        found += containers(part)
    return found + (containers(value.items) if isinstance(value, Order) else [])


@pytest.mark.parametrize("value", DATA, ids=lambda value: type(value).__name__)
def test_what_is_lent_is_equal_and_shares_no_container(value: Any) -> None:
    copy = lent(value)
    assert repr(copy) == repr(value)
    assert type(copy) is type(value)
    assert not set(containers(copy)) & set(containers(value))


def test_a_deque_and_a_defaultdict_stay_what_they_are() -> None:
    assert lent(DATA[6]).maxlen == 5
    assert lent(DATA[8])["new"] == []


@pytest.mark.parametrize("value", DATA, ids=lambda value: type(value).__name__)
def test_containers_are_copied_around_what_is_no_data(value: Any) -> None:
    session, lock = Session(), threading.Lock()
    copy = lent([value, session, {"lock": lock, "more": value}])
    assert copy[1] is session
    assert copy[2]["lock"] is lock
    assert repr(copy[0]) == repr(copy[2]["more"]) == repr(value)
    assert not set(containers([copy[0], copy[2]["more"]])) & set(containers(value))


def test_what_contains_itself_is_shared() -> None:
    value: list[Any] = []
    value.append(value)
    assert lent(value) is value
