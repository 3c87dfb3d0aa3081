"""The graphs that are measured. Each takes the number of units as a flow of `flows.py` does, for either library.

The ends are written out, `"__start__"` and `"__end__"`: both libraries call them so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from benchmarks.libraries import Library

START, END = "__start__", "__end__"


class Left(TypedDict):
    """How many super-steps are left."""

    left: int


class Grown(Left):
    """A list that grows by an item a super-step."""

    items: Annotated[list[Any], operator.add]


class Sum(TypedDict):
    """What many nodes of one super-step add up."""

    n: int
    total: Annotated[int, operator.add]


@dataclass(frozen=True)
class Counting:
    """A compiled graph whose input is made of the number of units.

    Args:
        result: key of the state that is the result.
    """

    graph: Any
    input: Callable[[int], dict[str, Any]]
    result: str

    def invoke(self, n: int, config: dict[str, Any]) -> Any:
        """Run it, with as many super-steps as that takes."""
        return self.graph.invoke(self.input(n), {**config, "recursion_limit": n + 10})[self.result]


def loop(library: Library, saver: Any) -> Counting:
    """Two nodes in turn, so many super-steps."""

    def ping(state: Left) -> dict[str, int]:
        return {"left": state["left"] - 1}

    def pong(state: Left) -> dict[str, int]:
        return {"left": state["left"] - 1}

    graph = library.graph(Left)
    graph.add_node("ping", ping).add_node("pong", pong).add_edge(START, "ping")
    graph.add_conditional_edges("ping", lambda state: "pong" if state["left"] else END)
    graph.add_conditional_edges("pong", lambda state: "ping" if state["left"] else END)
    return Counting(graph.compile(checkpointer=saver), lambda n: {"left": n}, "left")


def sends(library: Library, saver: Any) -> Counting:
    """One node so often in one super-step, each time with another input."""

    def add(state: dict[str, int]) -> dict[str, int]:
        return {"total": state["x"] + 1}

    def each(state: Sum) -> list[Any]:
        return [library.send("add", {"x": x}) for x in range(state["n"])]

    graph = library.graph(Sum)
    graph.add_node("add", add).add_conditional_edges(START, each)
    return Counting(graph.compile(checkpointer=saver), lambda n: {"n": n, "total": 0}, "total")


def grows(library: Library, saver: Any) -> Counting:
    """A list that gets an item a super-step, so many super-steps."""
    return Counting(appending(library, saver), lambda n: {"left": n, "items": []}, "items")


def item(number: int) -> str:
    """What a list is filled with."""
    return f"item {number}"


def appending(library: Library, saver: Any, begun: Callable[[], None] = lambda: None) -> Any:
    """A compiled graph whose node, which sees the whole list, appends an item in each of `left` super-steps.

    Args:
        begun: called by the node, whenever it begins.
    """

    def append(state: Grown) -> dict[str, Any]:
        begun()
        return {"left": state["left"] - 1, "items": [item(state["left"])]}

    graph = library.graph(Grown)
    graph.add_node("append", append).add_edge(START, "append")
    graph.add_conditional_edges("append", lambda state: "append" if state["left"] else END)
    return graph.compile(checkpointer=saver)
