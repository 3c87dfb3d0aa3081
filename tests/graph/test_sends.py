"""What a `Send` says of its own."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest

from flowfn import START, Command, Send, StateGraph, interrupt
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import TaskTimeoutError


class State(TypedDict):
    out: Annotated[list[Any], operator.add]


def test_a_time_out_of_its_own() -> None:
    async def wait(seconds: float) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {"out": [seconds]}

    def app(*sends: Send) -> Any:
        graph = StateGraph(State).add_node("wait", wait, timeout=30)
        return graph.add_conditional_edges(START, lambda state: list(sends), ["wait"]).compile()

    assert app(Send("wait", 0.0), Send("wait", 0.01, timeout=30)).invoke({"out": []}) == {"out": [0.0, 0.01]}
    with pytest.raises(TaskTimeoutError, match="`wait`"):
        app(Send("wait", 0.0), Send("wait", 20, timeout=0.05)).invoke({"out": []})


def test_thousands_of_them_keep_their_order() -> None:
    graph = StateGraph(State).add_node("work", lambda n: {"out": [n * n]})
    graph.add_conditional_edges(START, lambda state: [Send("work", n) for n in range(3000)], ["work"])
    assert graph.compile().invoke({"out": []})["out"] == [n * n for n in range(3000)]


def test_questions_of_parallel_nodes_in_a_graph_that_keeps_nothing_are_answered_by_their_ids() -> None:
    inner = StateGraph(State).add_node("ask", lambda n: {"out": [interrupt(n)]})
    inner.add_conditional_edges(START, lambda state: [Send("ask", n) for n in range(3)], ["ask"])
    outer = StateGraph(State).add_node("inner", inner.compile(checkpointer=False)).add_edge(START, "inner")
    app = outer.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}

    first, *others = app.invoke({"out": []}, config)["__interrupt__"]
    left = app.invoke(Command(resume={first.id: first.value + 10}), config)["__interrupt__"]
    assert left == others
    assert app.get_state(config).interrupts == tuple(others)

    done = app.invoke(Command(resume={question.id: question.value + 10 for question in left}), config)
    assert done == {"out": [10, 11, 12]}
