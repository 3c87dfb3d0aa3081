"""Several runs at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from flowfn import START, StateGraph, entrypoint
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import ConfigError


@entrypoint
def double(n: int) -> int:
    if n < 0:
        raise ValueError(n)
    return n * 2


@pytest.fixture(params=["blocking", "awaited"])
def batch(request: pytest.FixtureRequest) -> Any:
    if request.param == "blocking":
        return lambda flow, *args, **more: flow.batch(*args, **more)
    return lambda flow, *args, **more: asyncio.run(flow.abatch(*args, **more))


def test_results_come_in_the_order_of_the_inputs(batch: Any) -> None:
    assert batch(double, [3, 1, 2]) == [6, 2, 4]
    assert batch(double, []) == []


def test_a_failure_is_raised_once_all_have_ended(batch: Any) -> None:
    with pytest.raises(ValueError, match="-1"):
        batch(double, [1, -1, 2])


def test_failures_can_stand_in_their_places(batch: Any) -> None:
    first, failed, last = batch(double, [1, -1, 2], return_exceptions=True)
    assert (first, last) == (2, 4)
    assert isinstance(failed, ValueError)


def test_each_run_may_have_a_config_of_its_own(batch: Any) -> None:
    graph = StateGraph(dict).add_node("n", lambda state: {"seen": state}).add_edge(START, "n")
    app = graph.compile(checkpointer=InMemorySaver())
    configs = [{"configurable": {"thread_id": name}} for name in "ab"]
    batch(app, [{"x": 1}, {"x": 2}], configs)
    assert [app.get_state(config).values["seen"] for config in configs] == [{"x": 1}, {"x": 2}]
    with pytest.raises(ConfigError, match="was given 1 configs"):
        batch(app, [{"x": 1}, {"x": 2}], configs[:1])


def test_no_more_runs_than_max_concurrency_at_once(batch: Any) -> None:
    now, most, lock = 0, 0, threading.Lock()

    @entrypoint
    def flow(n: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.01)
        with lock:
            now -= 1
        return n

    assert batch(flow, list(range(8)), {"max_concurrency": 2}) == list(range(8))
    assert most <= 2
