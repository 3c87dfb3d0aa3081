"""Channels that grow: in place, seen by nobody else, and stored as what was added."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import pytest

from flowfn.channels import BinaryOperatorAggregate, DeltaChannel, LastValue, Topic
from flowfn.channels.growing import Chain, GrowingList, Piece, Tally
from flowfn.types import MISSING, Overwrite

ADDS = pytest.mark.parametrize("adds", [operator.add, operator.iadd])


def list_channel(adds: Any = operator.add) -> BinaryOperatorAggregate[Any]:
    return BinaryOperatorAggregate(list, adds)


@ADDS
def test_what_a_node_has_returned_is_not_the_channels(adds: Any) -> None:
    for channel in (list_channel(adds), BinaryOperatorAggregate(list | None, adds)):
        for make in (lambda items: items, Overwrite):
            given: list[Any] = [1]
            channel.update([make(given)])
            channel.update([[2]])
            assert given == [1]
            given.append("later")
            assert "later" not in channel.get()


@ADDS
def test_copies_are_as_of_their_moment_and_go_their_own_ways(adds: Any) -> None:
    channel = list_channel(adds)
    channel.update([[1, 2]])
    early = channel.copy()
    channel.update([[3]])
    late = channel.copy()
    early.update([["e"]])
    assert early.get() == early.lent() == early.checkpoint() == [1, 2, "e"]
    late_too = late.copy()
    late.update([["l"]])
    with_tail = late.copy()
    late.update([["l2"]])
    with_tail.update([["t"]])
    channel.update([[4]])
    assert channel.get() == [1, 2, 3, 4]
    assert early.get() == [1, 2, "e"]
    assert late.get() == late.lent() == late.checkpoint() == [1, 2, 3, "l", "l2"]
    assert with_tail.get() == with_tail.copy().lent() == with_tail.to_store(False).value == [1, 2, 3, "l", "t"]
    assert late_too.get() == late_too.lent() == late_too.checkpoint() == [1, 2, 3]


def test_adding_does_not_copy_what_is_there() -> None:
    channel = list_channel()
    channel.update([[1]])
    held = channel.get()
    for number in range(100):
        channel.update([[number]])
    assert channel.get() is held


@ADDS
def test_a_write_that_is_no_list_is_joined_as_the_operator_has_it(adds: Any) -> None:
    channel = list_channel(adds)
    channel.update([[1]])
    twin, before = channel.copy(), channel.get()
    if adds is operator.add:
        with pytest.raises(TypeError, match="tuple"):
            channel.update([(2, 3)])
        assert channel.get() == [1]
    else:
        channel.update([(2, 3), [4]])
        assert channel.get() == [1, 2, 3, 4]
    assert twin.get() == [1]
    assert before[:1] == [1]


def test_a_list_of_lists_and_dicts_is_lent_deep() -> None:
    channel = list_channel()
    channel.update([[1]])
    assert channel.lent() == [1]  # all of it is known to be plain by now
    channel.update([[{"a": []}]])
    channel.lent()[1]["a"].append("spoilt")
    again = channel.restored([[1]])
    again.lent()[0].append("spoilt")
    assert (channel.get(), again.get()) == ([1, {"a": []}], [[1]])


# ---------------------------------------------------------------- what is stored


def pieces(channel: Any, steps: Sequence[Sequence[Any]]) -> list[Piece]:
    stored = []
    for writes in steps:
        channel.update(writes)
        stored.append(channel.to_store(bool(stored)))
    return stored


def kinds(stored: Sequence[Piece]) -> str:
    return "".join(piece.kind[0] for piece in stored)


@pytest.mark.parametrize("channel", [list_channel(), list_channel(operator.iadd), Topic(int, accumulate=True)])
def test_the_whole_is_stored_once_as_much_was_added_as_it_held(channel: Any) -> None:
    stored = pieces(channel, [[[number]] for number in range(20)])
    assert kinds(stored) == "wwiw" + "iiiw" + "iiiiiiiw" + "iiii"
    assert stored[6] == Piece([6], "items")
    assert stored[15].value == list(range(16))


def test_a_large_step_is_stored_whole_and_a_small_one_as_it_is() -> None:
    channel = list_channel()
    stored = pieces(channel, [[[*range(10)]], [[10], [11, 12]], [[13, 14, 15, 16, 17, 18]], [[19, 20]]])
    assert kinds(stored) == "wiiw"
    assert [len(piece.value) for piece in stored] == [10, 3, 6, 21]


def test_pieces_without_items_count_too() -> None:
    stored = pieces(list_channel(), [[[1, 2, 3, 4]]] + [[[]]] * 9)
    assert kinds(stored) == "wiiiwiiiwi"


@pytest.mark.parametrize("writes", [[Overwrite([7])], [[5], Overwrite([7]), [6]], [(8,)]])
def test_what_was_not_just_added_is_stored_whole(writes: list[Any]) -> None:
    channel = list_channel(operator.iadd)
    pieces(channel, [[[*range(9)]]])
    channel.update([[9]])
    channel.update(writes)
    assert channel.to_store(True) == Piece(channel.checkpoint())
    channel.update([[1]])
    assert channel.to_store(True).kind == ("items" if len(channel.get()) > 2 else "whole")


def test_nothing_is_added_to_what_is_not_stored() -> None:
    channel = list_channel()
    channel.update([[*range(9)]])
    channel.update([[9]])
    assert channel.to_store(True) == Piece([*range(10)])
    channel.update([[10]])
    assert channel.to_store(False) == Piece([*range(11)])


@pytest.mark.parametrize(
    "channel",
    [
        BinaryOperatorAggregate(int, operator.add),
        BinaryOperatorAggregate(str, operator.add),
        LastValue(list),
        Topic(int),
    ],
)
def test_other_channels_are_stored_whole(channel: Any) -> None:
    for number in range(9):
        channel.update([number if not isinstance(channel.checkpoint(), str) else "x"])
        assert channel.to_store(True) == Piece(channel.checkpoint())


def test_several_steps_may_be_stored_as_one_piece() -> None:
    channel = list_channel()
    pieces(channel, [[[*range(9)]]])
    for number in (9, 10):
        channel.update([[number]])
    assert channel.to_store(True) == Piece([9, 10], "items")


def test_a_copy_counts_by_itself() -> None:
    channel = list_channel()
    pieces(channel, [[[*range(4)]], [[4]]])
    twin = channel.copy()
    assert kinds(pieces(channel, [[[5]]])) == "w"  # as its first piece, nothing is there to add to
    twin.update([[5]])
    assert twin.to_store(True) == Piece([5], "items")


# ---------------------------------------------------------------- what comes back

CHAIN = Chain([1, 2, 3, 4], "items", [[5], [], [6]])


@pytest.mark.parametrize("channel", [list_channel(), Topic(int, accumulate=True)])
def test_a_chain_brings_its_counts_back(channel: Any) -> None:
    again = channel.restored(CHAIN)
    assert again.get() == [1, 2, 3, 4, 5, 6]
    assert kinds([again.to_store(True)]) == "w"  # one more makes four, which the whole had
    shorter = channel.restored(CHAIN._replace(added=[[5]]))
    shorter.update([[6]])
    assert shorter.to_store(True) == Piece([6], "items")


def test_channels_go_on_from_what_a_channel_of_another_rule_has_stored() -> None:
    steps = Chain([1], "steps", [[[[2], [3]]], [[[4]]]])
    assert LastValue(list).restored(CHAIN).get() == [1, 2, 3, 4, 5, 6]
    assert list_channel().restored(steps).get() == [1, 2, 3, 4]
    assert DeltaChannel(lambda held, writes: held + writes[0]).restored(CHAIN).get() == [1, 2, 3, 4, 5, 6]
    assert BinaryOperatorAggregate(list, operator.concat).restored(CHAIN).get() == [1, 2, 3, 4, 5, 6]
    assert list_channel().restored((1, 2)).get() == (1, 2)
    assert list_channel().restored(MISSING).get() == []


def test_a_tally_counts_nothing_before_there_is_a_whole() -> None:
    tally = Tally()
    assert not tally.add(1)
    tally.begin(3)
    assert [tally.add(1) for _ in range(4)] == [True, True, False, False]


def test_a_growing_list_has_a_length() -> None:
    assert (len(GrowingList([], True)), len(GrowingList([1, 2], True))) == (0, 2)
