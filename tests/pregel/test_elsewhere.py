"""Tasks whose attempts run in other processes behave as they do on threads."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import RemoteCallError, UnsendableError, WorkerDiedError

CONFIG = {"configurable": {"thread_id": "t"}}


@dataclass
class Order:
    number: int


@task(executor="processes")
def order(number: int, before: Order | None = None) -> tuple[Order, int]:
    return Order(number + (before.number if before else 0)), os.getpid()


@task(executor="processes")
async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


@task(executor="processes")
def asks(x: int) -> list[object]:
    return [interrupt(f"first {x}?"), interrupt(f"second {x}?")]


@task(executor="processes", timeout=0.3)
def sleeps(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)


@task(executor="processes")
def calls() -> object:
    return order(1)


@task(executor="processes")
def dies_at_first(folder: str) -> int:
    Path(folder, str(os.getpid())).touch()
    if len(list(Path(folder).iterdir())) == 1:
        os.kill(os.getpid(), 9)
    return len(list(Path(folder).iterdir()))


@task(executor="processes", effect="external", on_doubt="rerun")
def pays(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    os.kill(os.getpid(), 9)


def test_results_come_back_as_what_they_are_and_feed_other_tasks():
    @entrypoint(checkpointer=InMemorySaver())
    def flow(n):
        first = [order(i) for i in range(n)]
        return [f.result() for f in first], order(10, first[1].result()[0]).result()[0], later(3).result()

    orders, sum_, four = flow.invoke(3, CONFIG)

    assert [one for one, _ in orders] == [Order(0), Order(1), Order(2)]
    assert os.getpid() not in {pid for _, pid in orders}
    assert (sum_, four) == (Order(11), 4)


async def test_flows_that_are_awaited_use_processes_too():
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(n):
        orders = await asyncio.gather(*[order(i) for i in range(n)])
        return [one for one, _ in orders], await later(1)

    assert await flow.ainvoke(2, CONFIG) == ([Order(0), Order(1)], 2)


def test_questions_asked_elsewhere_are_answered_one_after_another():
    @entrypoint(checkpointer=InMemorySaver())
    def flow(n):
        return [f.result() for f in [asks(i) for i in range(n)]]

    state = flow.invoke(2, CONFIG)
    for word in ("first", "second"):
        questions = {q.value: q.id for q in state["__interrupt__"]}
        assert set(questions) == {f"{word} 0?", f"{word} 1?"}
        state = flow.invoke(Command(resume={id: shown.upper() for shown, id in questions.items()}), CONFIG)

    assert state == [["FIRST 0?", "SECOND 0?"], ["FIRST 1?", "SECOND 1?"]]


def test_a_task_that_takes_too_long_is_killed(tmp_path):
    @entrypoint(checkpointer=InMemorySaver())
    def flow(folder):
        try:
            sleeps(folder).result()
        except TimeoutError as error:
            return type(error).__name__

    assert flow.invoke(str(tmp_path), CONFIG) == "TaskTimeoutError"
    (pid,) = [int(file.name) for file in tmp_path.iterdir()]
    for _ in range(400):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.01)
    pytest.fail("it still runs")


def test_calls_inside_are_refused_and_arguments_that_cannot_travel_are_named_at_the_call():
    @entrypoint(checkpointer=InMemorySaver())
    def flow(_):
        with pytest.raises(RemoteCallError):
            calls().result()
        with pytest.raises(UnsendableError, match="Argument `number` of task `order`"):
            order(threading.Lock())
        return "done"

    assert flow.invoke(1, CONFIG) == "done"


def test_a_lost_attempt_starts_again_unless_its_effect_is_outside(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    @entrypoint(checkpointer=InMemorySaver())
    def flow(folder):
        with pytest.raises(WorkerDiedError):
            pays(f"{folder}/b").result()
        return dies_at_first(f"{folder}/a").result()

    assert flow.invoke(str(tmp_path), CONFIG) == 2
    assert len(list((tmp_path / "b").iterdir())) == 1


def test_any_object_with_submit_runs_tasks():
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as pool:

        @task(executor=pool)
        def where(x):
            return threading.current_thread().name[:4], x

        @entrypoint(checkpointer=InMemorySaver())
        def flow(x):
            return where(x).result()

        assert flow.invoke(3, CONFIG) == ("mine", 3)


SCRIPT = """
import os, sys
from dataclasses import dataclass
from flowfn import entrypoint, task
from flowfn.checkpoint import SqliteSaver

folder, is_first = sys.argv[1], sys.argv[2] == "1"
FACTOR = 10

@dataclass
class Price:
    amount: int

@task(executor="processes")
def price(i):
    with open(f"{folder}/calls", "a") as calls:
        calls.write(f"{i} ")
    return Price(i * FACTOR)

@entrypoint(checkpointer=SqliteSaver(f"{folder}/flows.db"))
def flow(n):
    first = [price(i).result() for i in range(n)]
    if is_first:
        os.kill(os.getpid(), 9)
    return [*first, price(n).result()]

prices = flow.invoke(3 if is_first else None, {"configurable": {"thread_id": "t"}})
print([type(p) is Price and p.amount for p in prices])
"""


def test_a_script_without_a_guard_is_killed_and_goes_on(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(is_first):
        command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), is_first]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert run("1").returncode == -9
    done = run("0")

    assert done.stdout == "[0, 10, 20, 30]\n", done.stderr
    assert (tmp_path / "calls").read_text() == "0 1 2 3 "


@task
def where(x: int) -> int:
    return os.getpid()


@task(executor="threads")
def here(x: int) -> int:
    return os.getpid()


def test_a_flow_or_thread_says_where_its_tasks_run_and_a_task_has_the_last_word():
    @entrypoint(checkpointer=InMemorySaver(), executor="processes")
    def flow(x):
        return where(x).result(), here(x).result()

    there, mine = flow.invoke(1, CONFIG)
    assert there != os.getpid()
    assert mine == os.getpid()

    @entrypoint(checkpointer=InMemorySaver())
    def plain(x):
        return where(x).result()

    assert plain.thread("a").run(1) == os.getpid()
    assert plain.thread("b", executor="processes").run(1) != os.getpid()
