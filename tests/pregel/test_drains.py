"""A run that is asked to stop finishes its open super-step, and goes on later without doing anything twice."""

from __future__ import annotations

from typing import Any

import pytest

from flowfn import START, GraphDrained, RunControl, StateGraph, entrypoint, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver

CONFIG = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    return InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")


def test_a_function_finishes_its_open_super_step_and_opens_no_other(saver: Any) -> None:
    control, ran = RunControl(), []

    @task
    def step(n: int) -> int:
        ran.append(n)
        if n == 1:
            control.request_drain("deploy")
        return n

    @entrypoint(checkpointer=saver)
    def flow(x: int) -> int:
        first = [step(n) for n in (1, 2, 3)]
        return sum(one.result() for one in first) + step(4).result()

    with pytest.raises(GraphDrained, match="deploy"):
        flow.invoke(0, CONFIG, control=control)
    assert sorted(ran) == [1, 2, 3]
    assert flow.get_state(CONFIG).next == ("flow",)

    assert flow.invoke(None, CONFIG) == 10
    assert sorted(ran) == [1, 2, 3, 4]


def test_a_bare_except_does_not_swallow_a_drain(saver: Any) -> None:
    control, ran = RunControl(), []

    @task
    def step(n: int) -> int:
        ran.append(n)
        control.request_drain()
        return n

    @entrypoint(checkpointer=saver)
    def flow(x: int) -> str:
        step(1).result()
        try:
            step(2).result()
        except BaseException:
            step(3)
        return "went on"

    with pytest.raises(GraphDrained):
        flow.invoke(0, CONFIG, control=control)
    assert ran == [1]


def test_a_run_that_was_drained_before_it_began_runs_nothing(saver: Any) -> None:
    control, ran = RunControl(), []
    control.request_drain()

    @entrypoint(checkpointer=saver)
    def flow(x: int) -> int:
        ran.append(x)
        return x

    with pytest.raises(GraphDrained):
        flow.invoke(5, CONFIG, control=control)
    assert ran == []
    assert flow.invoke(None, CONFIG) == 5


def test_a_graph_inside_a_graph_is_drained_with_it(saver: Any) -> None:
    control, ran = RunControl(), []

    def note(name: str) -> Any:
        def node(state: dict[str, Any]) -> dict[str, Any]:
            ran.append(name)
            if name == "one":
                control.request_drain()
            return {}

        return node

    inner = StateGraph(dict)
    inner.add_sequence([("one", note("one")), ("two", note("two"))]).add_edge(START, "one")
    outer = StateGraph(dict)
    outer.add_sequence([("inner", inner.compile()), ("last", note("last"))]).add_edge(START, "inner")
    app = outer.compile(checkpointer=saver)

    with pytest.raises(GraphDrained):
        app.invoke({"a": 1}, CONFIG, control=control)
    assert ran == ["one"]
    app.invoke(None, CONFIG)
    assert ran == ["one", "two", "last"]
