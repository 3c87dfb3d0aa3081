from __future__ import annotations

import functools
from typing import Any

import pytest

from flowfn.pregel.node import Node, NodeBuilder, Write
from flowfn.types import MISSING


async def slow_double(value: int) -> int:
    return value * 2


class AsyncObject:
    async def __call__(self, value: int) -> int:
        return value


# ---------------------------------------------------------------- writes


def test_a_result_is_written_to_each_channel_in_order() -> None:
    node = NodeBuilder().write_to("a", "b", length=len, seven=7).build()
    assert node.writes("xyz") == [("a", "xyz"), ("b", "xyz"), ("length", 3), ("seven", 7)]


def test_none_is_written_unless_it_is_skipped() -> None:
    node = NodeBuilder().write_to("a", Write("b", skip_none=True)).build()
    assert node.writes(None) == [("a", None)]


def test_a_mapper_that_gives_missing_writes_nothing() -> None:
    assert NodeBuilder().write_to(a=lambda result: MISSING).build().writes(1) == []


def test_any_function_to_pairs_is_a_writer() -> None:
    assert NodeBuilder().write_to(lambda result: result.items()).build().writes({"a": 1, "b": 2}) == [
        ("a", 1),
        ("b", 2),
    ]


# ---------------------------------------------------------------- what runs


def test_without_a_function_the_input_is_the_result() -> None:
    assert NodeBuilder().build().bound(5) == 5


def test_a_second_function_takes_what_the_first_returned() -> None:
    node = NodeBuilder().do(lambda n: n + 1).do(str).build()
    assert node.bound(1) == "2"
    assert not node.is_async


@pytest.mark.parametrize("functions", [(slow_double, str), (int, slow_double), (slow_double, slow_double)])
async def test_functions_are_chained_whichever_is_async(functions: tuple[Any, Any]) -> None:
    node = NodeBuilder().do(functions[0]).do(functions[1]).build()
    assert node.is_async
    assert int(await node.bound(2)) in (4, 8)


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (slow_double, True),
        (functools.partial(slow_double, 1), True),
        (AsyncObject(), True),
        (AsyncObject().__call__, True),
        (AsyncObject, False),
        (len, False),
        (functools.partial(len), False),
    ],
)
def test_a_node_knows_whether_its_function_is_awaited(function: Any, is_async: bool) -> None:
    assert Node("n", bound=function).is_async is is_async


# ---------------------------------------------------------------- subscriptions


def test_a_subscription_to_one_channel_reads_that_alone() -> None:
    node = NodeBuilder().subscribe_only("x").build("n")
    assert (node.name, node.triggers, node.channels) == ("n", ("x",), "x")


def test_triggers_need_not_be_read_nor_what_is_read_trigger() -> None:
    node = NodeBuilder().subscribe_to("x", "y").subscribe_to("z", read=False).read_from("w").build()
    assert (node.triggers, node.channels) == (("x", "y", "z"), ("x", "y", "w"))


@pytest.mark.parametrize(
    "subscribe",
    [
        lambda: NodeBuilder().subscribe_to("x").subscribe_only("y"),
        lambda: NodeBuilder().subscribe_only("x").subscribe_only("y"),
        lambda: NodeBuilder().subscribe_only("x").subscribe_to("y"),
        lambda: NodeBuilder().subscribe_only("x").subscribe_to("y", read=False),
        lambda: NodeBuilder().subscribe_only("x").read_from("y"),
    ],
)
def test_one_channel_alone_and_others_do_not_go_together(subscribe: Any) -> None:
    with pytest.raises(ValueError, match="x"):
        subscribe()


def test_what_is_said_about_a_node_adds_up() -> None:
    node = NodeBuilder().meta("red", owner="ann").meta("blue", size=3).build()
    assert (node.tags, node.metadata) == (("red", "blue"), {"owner": "ann", "size": 3})
