from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from flowfn.channels import DeltaChannel
from flowfn.channels.growing import Chain, Piece
from flowfn.errors import InvalidUpdateError
from flowfn.types import MISSING, Overwrite


class Steps:
    """A reducer that notes what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], list[Any]]] = []

    def __call__(self, held: list[Any], writes: Sequence[Any]) -> list[Any]:
        self.calls.append((list(held), list(writes)))
        held += writes  # in place
        return held


def test_all_writes_of_a_step_are_joined_at_once() -> None:
    steps = Steps()
    channel = DeltaChannel(steps)
    assert not channel.update([])
    assert channel.update([1, 2])
    channel.update([3])
    assert channel.get() == [1, 2, 3]
    assert steps.calls == [([], [1, 2]), ([1, 2], [3])]


@pytest.mark.parametrize("spelling", [Overwrite([7]), {"__overwrite__": [7]}, {"type": "__overwrite__", "value": [7]}])
def test_an_overwrite_drops_every_other_write_of_its_step(spelling: Any) -> None:
    channel = DeltaChannel(Steps())
    channel.update([1])
    channel.update([2, spelling, 3])
    assert channel.get() == [7]
    channel.update([Overwrite(None), 4])
    assert channel.get() == []
    with pytest.raises(InvalidUpdateError, match="one Overwrite"):
        channel.update([Overwrite([1]), Overwrite([2])])


def test_what_was_given_is_not_changed_by_a_reducer_that_works_in_place() -> None:
    channel, given = DeltaChannel(Steps()), [1]
    channel.update([Overwrite(given)])
    stored, twin = channel.checkpoint(), channel.copy()
    channel.update([2])
    twin.update([3])
    again = channel.from_checkpoint(stored)
    again.update([4])
    assert (given, stored, channel.get(), twin.get(), again.get()) == ([1], [1], [1, 2], [1, 3], [1, 4])


@pytest.mark.parametrize(
    ("typ", "start"), [(None, []), (dict, {}), (Mapping[str, int], {}), (Sequence, []), (set, set())]
)
def test_it_starts_from_an_empty_value_of_its_type(typ: Any, start: Any) -> None:
    channel: DeltaChannel[Any] = DeltaChannel(lambda held, writes: held, typ)
    for empty in (MISSING, None):
        assert channel.from_checkpoint(empty).get() == channel.restored(empty).get() == start
    assert channel.ValueType is channel.UpdateType is type(start)
    channel.update([1])
    assert channel.get() == start


def test_without_an_empty_value_it_says_what_to_write_first() -> None:
    channel: DeltaChannel[Any] = DeltaChannel(Steps(), list | None)
    channel.key = "log"
    with pytest.raises(InvalidUpdateError, match=r"`log` has nothing to begin with.*Overwrite"):
        channel.update([1])
    channel.update([Overwrite([1])])
    channel.update([2])
    assert channel.get() == [1, 2]


@pytest.mark.parametrize("frequency", [0, -1])
def test_a_frequency_below_one_is_refused(frequency: int) -> None:
    with pytest.raises(ValueError, match="snapshot_frequency"):
        DeltaChannel(Steps(), snapshot_frequency=frequency)


def test_equal_means_the_same_reducer_and_frequency() -> None:
    reducer = Steps()
    assert DeltaChannel(reducer) == DeltaChannel(reducer, dict)
    assert DeltaChannel(reducer) != DeltaChannel(reducer, snapshot_frequency=5)
    assert DeltaChannel(reducer) != DeltaChannel(Steps())
    assert DeltaChannel(lambda held, writes: 1) == DeltaChannel(lambda held, writes: 2)


# ---------------------------------------------------------------- what is stored


def kinds(channel: Any, steps: int, first: bool = True) -> str:
    told = ""
    for number in range(steps):
        channel.update([number])
        told += channel.to_store(not first or bool(told)).kind[0]
    return told


def test_the_whole_is_stored_after_so_many_steps_at_the_earliest_and_once_they_hold_as_much() -> None:
    assert kinds(DeltaChannel(Steps(), snapshot_frequency=4), 22) == "w" + "sssw" + "ssss" + "w" + "s" * 9 + "w" + "ss"
    assert kinds(DeltaChannel(Steps(), snapshot_frequency=1), 8) == "wwswsssw"
    assert kinds(DeltaChannel(lambda held, writes: held, set, snapshot_frequency=3), 7) == "wsswssw"


def test_writes_are_stored_step_by_step_and_the_reducer_is_called_once_for_each() -> None:
    steps = Steps()
    channel = DeltaChannel(steps)
    channel.update([1])
    channel.to_store(False)
    channel.update([2, 3])
    channel.update([4])
    assert channel.to_store(True) == Piece([[2, 3], [4]], "steps")
    steps.calls.clear()
    again = channel.restored(Chain([1], "steps", [[[2, 3], [4]], [[5]]]))
    assert again.get() == [1, 2, 3, 4, 5]
    assert steps.calls == [([1], [2, 3]), ([1, 2, 3], [4]), ([1, 2, 3, 4], [5])]


def test_an_overwrite_is_stored_whole() -> None:
    channel = DeltaChannel(Steps())
    assert kinds(channel, 3) == "wss"
    channel.update([Overwrite([1])])
    channel.update([2])
    assert channel.to_store(True) == Piece([1, 2])
    channel.update([3])
    assert channel.to_store(True) == Piece([[3]], "steps")


def test_counts_come_back_with_what_was_stored() -> None:
    channel = DeltaChannel(Steps(), snapshot_frequency=4)
    again = channel.restored(Chain([0], "steps", [[[1]], [[2]]]))
    assert kinds(again, 2, first=False) == "sw"
    assert kinds(channel.restored([1, 2]), 4, first=False) == "sssw"


def test_nothing_is_remembered_for_a_store_that_there_is_not() -> None:
    channel = DeltaChannel(Steps())
    for number in range(5):
        channel.update([number])
    assert channel.steps is None
