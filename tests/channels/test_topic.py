from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfn.channels import Topic


def test_lists_count_as_their_items_and_tuples_as_one() -> None:
    channel: Topic[Any] = Topic(int)
    channel.update([1, [2, 3], (4, 5), []])
    assert channel.get() == [1, 2, 3, (4, 5)]


def test_each_step_starts_with_no_items() -> None:
    channel: Topic[int] = Topic(int)
    channel.update([1])
    channel.update([2])
    assert channel.get() == [2]


def test_a_step_without_writes_empties_it_once() -> None:
    channel: Topic[int] = Topic(int)
    channel.update([1])
    assert channel.update([])
    assert not channel.is_available()
    assert not channel.update([])


def test_accumulated_items_stay() -> None:
    channel: Topic[int] = Topic(int, accumulate=True)
    channel.update([1])
    assert not channel.update([])
    channel.update([2])
    assert channel.get() == [1, 2]


def test_a_list_that_was_read_stays_as_it_was() -> None:
    channel: Topic[int] = Topic(int, accumulate=True)
    channel.update([1])
    read = channel.get()
    channel.update([2])
    assert read == [1]


def test_its_types_say_that_it_takes_items_and_lists() -> None:
    channel: Topic[int] = Topic(int)
    assert channel.ValueType == Sequence[int]
    assert channel.UpdateType == int | list[int]
