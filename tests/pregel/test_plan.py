from __future__ import annotations

import operator
from typing import Any

import pytest

from flowfn.channels import BinaryOperatorAggregate, EphemeralValue, LastValue, Topic
from flowfn.errors import UnknownNodeError
from flowfn.pregel.node import Node
from flowfn.pregel.plan import (
    PULL,
    PUSH,
    TASKS,
    DueTask,
    View,
    due_tasks,
    node_key,
    path_text,
    read_input,
)
from flowfn.types import MISSING, Send


def holding(**values: Any) -> dict[str, Any]:
    """Channels with these values, None for an empty one."""
    channels: dict[str, Any] = {name: LastValue(object, name) for name in values}
    for name, value in values.items():
        channels[name].update([] if value is None else [value])
    return channels


def due(nodes: list[Node], channels: dict[str, Any], versions: dict[str, int], **more: Any) -> list[DueTask]:
    view = View(channels, more.get("managed", {}))
    return due_tasks({n.name: n for n in nodes}, view, versions, more.get("seen", {}), run="c1")


# ---------------------------------------------------------------- which


@pytest.mark.parametrize(
    ("version", "seen", "is_due"),
    [(1, {}, True), (1, {"n": {}}, True), (2, {"n": {"x": 1}}, True), (1, {"n": {"x": 1}}, False), (0, {}, False)],
)
def test_a_node_is_due_when_a_channel_has_a_version_it_has_not_seen(
    version: int, seen: dict[str, dict[str, int]], is_due: bool
) -> None:
    versions = {"x": version} if version else {}
    tasks = due([Node("n", ("x",), "x")], holding(x=5), versions, seen=seen)
    assert [task.name for task in tasks] == ["n"] * is_due


def test_a_node_is_not_due_by_a_channel_that_is_empty() -> None:
    assert due([Node("n", ("x",))], holding(x=None), {"x": 3}) == []


def test_a_node_is_not_due_by_a_start_value_that_nobody_wrote() -> None:
    channels = {"total": BinaryOperatorAggregate(int, operator.add)}
    assert due([Node("n", ("total",), "total")], channels, {}) == []


def test_a_node_whose_only_channel_is_empty_is_not_due() -> None:
    assert due([Node("n", ("x",), "y")], holding(x=1, y=None), {"x": 1}) == []


def test_one_new_trigger_of_several_is_enough_and_all_are_told() -> None:
    tasks = due([Node("n", ("y", "x"), "x")], holding(x=1, y=None), {"x": 1})
    assert [task.triggers for task in tasks] == [("x", "y")]


def test_due_nodes_come_by_name() -> None:
    nodes = [Node(name, ("x",), "x") for name in ("b", "c", "a")]
    assert [task.name for task in due(nodes, holding(x=1), {"x": 1})] == ["a", "b", "c"]


def test_sends_come_first_in_the_order_sent_each_with_its_own_input() -> None:
    channels = holding(x=1) | {TASKS: Topic(Send)}
    channels[TASKS].update([Send("b", 3), Send("a", None), Send("b", 1)])
    tasks = due([Node("a", ("x",), "x"), Node("b")], channels, {"x": 1})
    assert [(task.name, task.path, task.input) for task in tasks] == [
        ("b", (PUSH, 0, False), 3),
        ("a", (PUSH, 1, False), None),
        ("b", (PUSH, 2, False), 1),
        ("a", (PULL, "a"), 1),
    ]


def test_a_send_to_no_node_is_an_error() -> None:
    channels = {TASKS: Topic(Send)}
    channels[TASKS].update([Send("gone", 1), Send("a", 2)])
    with pytest.raises(UnknownNodeError, match="`gone`"):
        due([Node("a")], channels, {})


# ---------------------------------------------------------------- with what


def test_one_channel_gives_its_value_and_several_a_dict_without_the_empty_ones() -> None:
    channels = holding(x=1, y=None, z=3)
    assert read_input(Node("n", channels="x"), View(channels)) == 1
    assert read_input(Node("n", channels=("x", "y", "z")), View(channels)) == {"x": 1, "z": 3}
    assert read_input(Node("n", channels=()), View(channels)) == {}
    assert read_input(Node("n", channels="y"), View(channels)) is MISSING


def test_a_mapping_gives_values_under_other_keys() -> None:
    node = Node("n", channels={"price": "x", "tax": "y"})
    assert read_input(node, View(holding(x=1, y=None))) == {"price": 1}


def test_what_is_no_channel_is_read_from_managed_values() -> None:
    node = Node("n", ("x",), ("x", "is_last_step"))
    assert due([node], holding(x=1), {"x": 1}, managed={"is_last_step": False})[0].input == {
        "x": 1,
        "is_last_step": False,
    }


def test_inputs_are_read_before_any_write() -> None:
    channels = {"x": EphemeralValue(int)}
    channels["x"].update([1])
    tasks = due([Node("n", ("x",), "x")], channels, {"x": 1})
    channels["x"].update([])
    assert tasks[0].input == 1


# ---------------------------------------------------------------- ids and paths


def test_a_task_keeps_its_id_when_it_is_planned_again() -> None:
    def plan() -> list[str]:
        return [task.id for task in due([Node("a", ("x",), "x"), Node("b", ("x",), "x")], holding(x=1), {"x": 1})]

    assert plan() == plan()


def test_a_task_has_another_id_in_another_run_and_the_same_key() -> None:
    nodes, view = {"a": Node("a", ("x",), "x")}, View(holding(x=1))
    one, other = (due_tasks(nodes, view, {"x": 1}, {}, run=run)[0] for run in ("r1", "r2"))
    assert one.key == other.key
    assert one.id != other.id


def test_whatever_differs_gives_another_key() -> None:
    keys = {
        node_key("a", (PULL, "a"), 1),
        node_key("a", (PULL, "a"), 2),
        node_key("b", (PULL, "b"), 1),
        node_key("a", (PUSH, 0), 1),
        node_key("a", (PUSH, 1), 1),
    }
    assert len(keys) == 5
    assert all(len(key) == 16 for key in keys)


def test_paths_sort_by_name_and_numbers_by_size() -> None:
    paths: list[tuple[Any, ...]] = [(), (PULL, "a"), (PULL, "b"), (PUSH, 2), (PUSH, 10), (PUSH, (PULL, "a"), 0)]
    mixed = [paths[3], paths[0], *paths[4:], paths[2], paths[1]]
    assert sorted(mixed, key=path_text) == paths
