from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest

from flowfn.channels import (
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    Topic,
)
from flowfn.errors import ConflictingWritesError, InvalidUpdateError
from flowfn.pregel.node import Node
from flowfn.pregel.plan import PULL, PUSH
from flowfn.pregel.update import DoneTask, apply_writes, listeners_of
from flowfn.types import Overwrite


def done(name: str, *writes: tuple[str, Any], triggers: tuple[str, ...] = ("go",)) -> DoneTask:
    return DoneTask(name, (PULL, name), triggers, writes)


def given(**writes: Any) -> DoneTask:
    """An input, which no channel triggered."""
    return DoneTask("__input__", (), (), list(writes.items()))


def apply(
    channels: dict[str, Any], *tasks: DoneTask, versions: Any = None, seen: Any = None, listened: Any = ()
) -> Any:
    versions = {} if versions is None else versions
    nodes = {"n": Node("n", tuple(listened))}
    return apply_writes(channels, versions, {} if seen is None else seen, tasks, listeners_of(nodes, channels))


# ---------------------------------------------------------------- order


def test_writes_are_joined_by_task_path_whoever_finished_first() -> None:
    tasks = [
        done("a", ("all", "a"), ("all", "A")),
        done("b", ("all", "b")),
        *(DoneTask("work", (PUSH, number), (PUSH,), [("all", str(number))]) for number in (2, 10)),
    ]
    results = set()
    for order in itertools.permutations(tasks):
        channel = BinaryOperatorAggregate(str, operator.add)
        apply({"all": channel}, *order)
        results.add(channel.get())
    assert results == {"aAb210"}


# ---------------------------------------------------------------- versions


def test_all_that_moves_in_one_step_moves_to_one_above_the_highest_version() -> None:
    channels = {name: LastValue(int) for name in ("x", "y", "z")}
    versions = {"x": 1, "z": 4}
    assert apply(channels, done("a", ("x", 1), ("y", 2)), versions=versions) == {"x", "y"}
    assert versions == {"x": 5, "y": 5, "z": 4}


def test_a_channel_that_was_emptied_moves_but_has_nothing_to_offer() -> None:
    channels = {"go": EphemeralValue(int)}
    channels["go"].update([1])
    versions = {"go": 1}
    assert apply(channels, done("a"), versions=versions) == set()
    assert versions == {"go": 2}
    assert not channels["go"].is_available()


def test_an_input_is_no_step_and_clears_nothing() -> None:
    channels = {"kept": EphemeralValue(int), "x": LastValue(int)}
    channels["kept"].update([1])
    assert apply(channels, given(x=1), versions={"kept": 1}) == {"x"}
    assert channels["kept"].get() == 1


def test_a_node_has_seen_the_versions_from_before_its_writes() -> None:
    channels = {"x": LastValue(int), "never": LastValue(int)}
    versions, seen = {"x": 3}, {"a": {"x": 1, "w": 2}}
    apply(channels, done("a", ("x", 1), triggers=("x", "never")), versions=versions, seen=seen)
    assert seen == {"a": {"x": 3, "w": 2}}
    assert versions == {"x": 4}


# ---------------------------------------------------------------- consume and finish


def test_a_barrier_that_was_passed_is_closed_and_may_be_written_in_the_same_step() -> None:
    barrier = NamedBarrierValue(str, {"a", "b"})
    barrier.update(["a", "b"])
    versions = {"join": 1}
    assert apply({"join": barrier}, done("end", ("join", "a"), triggers=("join",)), versions=versions) == set()
    assert barrier.checkpoint() == {"a"}
    assert versions == {"join": 2}


@pytest.mark.parametrize(("listened", "moved"), [({"x"}, {"x"}), ({"late"}, {"x", "late"})])
def test_the_end_is_told_when_nothing_that_moved_makes_a_node_due(listened: set[str], moved: set[str]) -> None:
    channels = {"x": LastValue(int), "late": LastValueAfterFinish(int)}
    assert apply(channels, done("a", ("x", 1), ("late", 1)), listened=listened) == moved


def test_an_input_is_not_the_end() -> None:
    channels = {"late": LastValueAfterFinish(int)}
    apply(channels, given(late=1))
    assert not channels["late"].is_available()


# ---------------------------------------------------------------- what is refused


def test_two_writers_of_one_value_are_named() -> None:
    with pytest.raises(ConflictingWritesError) as caught:
        apply({"price": LastValue(int)}, done("b", ("price", 1)), done("a", ("price", 2)))
    assert (caught.value.channel, caught.value.writers) == ("price", ["a", "b"])
    assert "`price`" in str(caught.value)
    assert "`a` and `b`" in str(caught.value)


def test_one_writer_of_two_values_is_named() -> None:
    with pytest.raises(InvalidUpdateError, match=r"takes one value a super-step, but got 2\. Written by `a`"):
        apply({"price": LastValue(int, "price")}, done("a", ("price", 1), ("price", 2)))


def test_writers_of_two_overwrites_are_named() -> None:
    channels = {"all": BinaryOperatorAggregate(int, operator.add)}
    with pytest.raises(InvalidUpdateError, match="Written by `a` and `b`"):
        apply(channels, done("a", ("all", Overwrite(1))), done("b", ("all", Overwrite(2))))


def test_a_write_to_no_channel_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    channels = {"x": LastValue(int)}
    assert apply(channels, done("a", ("nowhere", 1), ("x", 2))) == {"x"}
    assert "`a` wrote to `nowhere`" in caplog.text


@pytest.mark.parametrize("name", ["__no_writes__", "__return__", "__interrupt__", "__resume__", "__error__"])
def test_what_a_task_tells_the_loop_is_no_write(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert apply({"x": Topic(int)}, done("a", (name, 1))) == set()
    assert caplog.text == ""
