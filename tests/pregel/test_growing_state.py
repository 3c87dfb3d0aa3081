"""State that grows: what a graph stores of it, and how it goes on from there."""

from __future__ import annotations

import operator
import sqlite3
from contextlib import closing
from typing import Annotated, Any, TypedDict

import pytest

from flowfn import END, START, Command, Overwrite, StateGraph
from flowfn.channels import DeltaChannel
from flowfn.checkpoint import SqliteSaver


def merged(held: dict[str, int], writes: list[dict[str, int]]) -> dict[str, int]:
    return {key: value for part in (held, *writes) for key, value in part.items()}


class State(TypedDict):
    n: int
    log: Annotated[list[Any], operator.add]
    known: Annotated[dict[str, int], DeltaChannel(merged)]


def counting(saver: SqliteSaver, last: int) -> Any:
    """A graph that counts from `n` to `last`, and notes each number."""

    def count(state: State) -> dict[str, Any]:
        state["log"].append("spoilt")  # nobody else sees that
        return {"n": state["n"] + 1, "log": [state["n"]], "known": {str(state["n"]): state["n"]}}

    graph = StateGraph(State)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: "count" if state["n"] < last else END)
    return graph.compile(checkpointer=saver)


@pytest.fixture
def path(tmp_path: Any) -> Any:
    return tmp_path / "flows.db"


CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 1000}


def expected(n: int) -> dict[str, Any]:
    return {"n": n, "log": list(range(n)), "known": {str(number): number for number in range(n)}}


def rows(path: Any, channel: str) -> list[tuple[int, int | None]]:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT length(payload), prev FROM channel_values WHERE channel = ? ORDER BY version"
        return connection.execute(sql, (channel,)).fetchall()


def test_a_super_step_stores_what_it_added(path: Any) -> None:
    with SqliteSaver(path) as saver:
        assert counting(saver, 100).invoke({"n": 0}, CONFIG) == expected(100)
    for channel in ("log", "known"):
        whole = [length for length, prev in rows(path, channel) if prev is None]
        added = [length for length, prev in rows(path, channel) if prev is not None]
        assert len(whole) <= 8
        assert len(added) >= 90
        assert max(added) < 30


def test_every_checkpoint_reads_as_it_was_and_a_thread_goes_on_from_any(path: Any) -> None:
    for last in (10, 20, 30):  # a new process each
        with SqliteSaver(path) as saver:
            start = {"n": 0} if last == 10 else {}
            assert counting(saver, last).invoke(start or {"n": last - 10}, CONFIG) == expected(last)
    with SqliteSaver(path) as saver:
        graph = counting(saver, 30)
        history = [snapshot for snapshot in graph.get_state_history(CONFIG) if snapshot.next in ((), ("count",))]
        assert all(snapshot.values["log"] == list(range(snapshot.values["n"])) for snapshot in history)
        (past,) = [snapshot for snapshot in history if snapshot.values["n"] == 17]
        assert graph.invoke(None, {**past.config, "recursion_limit": 1000}) == expected(30)
        assert graph.get_state(CONFIG).values == expected(30)


def test_state_is_edited_on_top_of_what_was_added(path: Any) -> None:
    with SqliteSaver(path) as saver:
        graph = counting(saver, 20)
        graph.invoke({"n": 0}, CONFIG)
        for number in range(20, 23):
            graph.update_state(
                CONFIG, {"n": number + 1, "log": [number], "known": {str(number): number}}, as_node="count"
            )
        assert graph.get_state(CONFIG).values == expected(23)
        graph.update_state(CONFIG, {"log": Overwrite(["new"])}, as_node="count")
        graph.update_state(CONFIG, {"log": ["newer"]}, as_node="count")
        assert graph.get_state(CONFIG).values == {**expected(23), "log": ["new", "newer"]}
    assert sum(prev is not None for _, prev in rows(path, "log")) >= 15


def test_what_a_command_has_written_is_not_lost_in_an_edit(path: Any) -> None:
    with SqliteSaver(path) as saver:
        graph = counting(saver, 9)
        graph.invoke({"n": 0}, CONFIG, interrupt_before=["count"])
        graph.invoke(Command(update={"log": ["commanded"]}), CONFIG, interrupt_before=["count"])
        graph.update_state(CONFIG, {"known": {"edited": 1}}, as_node="count")
        assert "commanded" in graph.get_state(CONFIG).values["log"]
        assert graph.get_state(CONFIG).values["known"]["edited"] == 1
