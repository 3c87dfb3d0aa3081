"""What a node is given is its own: nothing that it changes there is seen by anybody else."""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest

from flowfn import END, START, Command, Send, StateGraph
from flowfn.checkpoint import InMemorySaver

CONFIG = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    items: list[Any]
    log: Annotated[list[Any], operator.add]


@dataclass
class Data:
    items: list[Any] = field(default_factory=list)
    log: Annotated[list[Any], operator.add] = field(default_factory=list)


class Odd:
    """No plain data, so that it can only be shared."""


def spoil(items: list[Any]) -> None:
    items.append("spoiled")
    for inner in items:
        if isinstance(inner, dict):
            inner["spoiled"] = True


def a_line(schema: Any, *nodes: Any, saver: Any = None) -> Any:
    graph = StateGraph(schema)
    graph.add_sequence(nodes)
    graph.add_edge(START, nodes[0][0])
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("schema", [State, Data])
@pytest.mark.parametrize(
    ("items", "is_kept"),
    [([1, 2], False), ([1, 2], True), ([{"a": 1}], False), ([{"a": 1}], True), ([Odd(), {"a": 1}], False)],
)
def test_what_a_node_changes_in_its_state_reaches_nobody(schema: Any, items: list[Any], is_kept: bool) -> None:
    seen: list[Any] = []

    def change(state: Any) -> dict[str, Any]:
        spoil(state["items"] if schema is State else state.items)
        spoil(state["log"] if schema is State else state.log)
        return {}

    def look(state: Any) -> dict[str, Any]:
        seen.append(list(state["items"] if schema is State else state.items))
        seen.append(list(state["log"] if schema is State else state.log))
        return {}

    app = a_line(schema, ("change", change), ("look", look), saver=InMemorySaver() if is_kept else None)
    given: Any = {"items": list(items), "log": [{"b": 2}]}
    result = app.invoke(given, CONFIG)

    assert given == {"items": items, "log": [{"b": 2}]}
    assert seen == [items, [{"b": 2}]]
    assert result == {"items": items, "log": [{"b": 2}]}


def test_parallel_nodes_do_not_see_what_the_others_change() -> None:
    seen: list[Any] = []

    def change(state: State) -> dict[str, Any]:
        seen.append(list(state["items"]))
        state["items"].append("x")
        return {}

    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, change)
        graph.add_edge(START, name)
    assert graph.compile().invoke({"items": [1]}) == {"items": [1], "log": []}
    assert seen == [[1], [1], [1]]


def test_a_node_that_keeps_what_it_returned_cannot_change_the_state_by_it() -> None:
    kept = [1]

    def give(state: State) -> dict[str, Any]:
        return {"items": kept, "log": kept}

    def later(state: State) -> dict[str, Any]:
        kept.append("x")
        return {}

    app = a_line(State, ("give", give), ("later", later))
    assert app.invoke({}) == {"items": [1], "log": [1]}


def test_one_argument_sent_to_several_nodes_is_copied_for_each() -> None:
    shared = {"items": [1]}

    def work(state: State) -> dict[str, Any]:
        state["items"].append(2)
        return {"log": [len(state["items"])]}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_conditional_edges(START, lambda state: [Send("work", shared)] * 3, ["work"])
    assert graph.compile().invoke({"items": []})["log"] == [2, 2, 2]
    assert shared == {"items": [1]}


def test_what_a_conditional_edge_changes_reaches_nobody() -> None:
    def path(state: State) -> str:
        state["items"].append("x")
        return END

    graph = StateGraph(State)
    graph.add_node("a", lambda state: {"items": [*state["items"], 2]})
    graph.add_edge(START, "a")
    graph.add_conditional_edges("a", path)
    assert graph.compile().invoke({"items": [1]})["items"] == [1, 2]


def test_a_second_attempt_is_given_the_state_as_it_was() -> None:
    seen: list[Any] = []

    def flaky(state: State) -> dict[str, Any]:
        seen.append(list(state["items"]))
        state["items"].append("x")
        if len(seen) == 1:
            raise ConnectionError
        return {}

    graph = StateGraph(State)
    graph.add_node("flaky", flaky, retry_policy=2)
    graph.add_edge(START, "flaky")
    assert graph.compile().invoke({"items": [1]})["items"] == [1]
    assert seen == [[1], [1]]


def test_what_a_watcher_changes_reaches_nobody() -> None:
    app = a_line(
        State, ("one", lambda state: {"log": [1]}), ("two", lambda state: Command(update={"log": [2]})), saver=None
    )
    for chunk in app.stream({"log": [0]}, stream_mode="values"):
        final = [*chunk["log"]]
        chunk["log"].append("x")
    assert final == [0, 1, 2]


def test_the_values_a_watcher_has_seen_stay_as_they_were() -> None:
    async def one(state: State) -> dict[str, Any]:
        return {"log": [len(state["log"])]}

    app = a_line(State, ("a", one), ("b", one), ("c", one))

    async def collect() -> list[Any]:
        return [chunk async for chunk in app.astream({"log": []}, stream_mode="values")]

    assert [chunk["log"] for chunk in asyncio.run(collect())] == [[], [0], [0, 1], [0, 1, 2]]
