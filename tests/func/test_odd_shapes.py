"""Calls, values and signatures that are rare and must not hang or go wrong."""

import subprocess
import sys
import threading
from unittest.mock import Mock

import pytest

from flowfn import Command, Pregel, entrypoint, interrupt, record, task
from flowfn.channels import LastValue
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import AmbiguousCallError, EntrypointSignatureError, ForeignThreadError, OutsideFlowError
from flowfn.pregel.node import Node, Write

CONFIG = {"thread_id": "t"}


@task
def plain(x):
    return x


class Link:
    def __init__(self, before):
        self.before = before


@pytest.mark.timeout(10)
def test_a_long_chain_of_objects_is_walked_once():
    @task
    def take(link):
        return 1

    @entrypoint
    def flow(n):
        link = None
        for _ in range(n):
            link = Link(link)
        return take(link).result()

    assert flow.invoke(160) == 1


@pytest.mark.timeout(10)
def test_a_mock_can_be_a_task():
    @entrypoint
    def flow(x):
        return task(Mock(return_value=7), name="fake")().result()

    assert flow.invoke(1) == 7


@pytest.mark.timeout(20)
def test_a_thousand_questions_come_out_together():
    @task
    def ask(i):
        return interrupt(f"question {i}")

    @entrypoint(checkpointer=InMemorySaver())
    def flow(n):
        return ask.map(range(n)).result()

    asked = flow.invoke(1100, CONFIG)["__interrupt__"]

    assert len(asked) == 1100
    assert flow.invoke(Command(resume={q.id: q.value for q in asked}), CONFIG)[1099] == "question 1099"


@pytest.mark.timeout(10)
def test_a_callback_may_wait_for_another_task(tmp_path):
    got = []

    @task
    def slow():
        threading.Event().wait(0.02)
        return "slow"

    @entrypoint(checkpointer=SqliteSaver(tmp_path / "flows.db"))
    def flow(x):
        late = slow()
        told = threading.Event()

        def callback(future):
            got.append(late.result())
            told.set()

        plain(x).add_done_callback(callback)
        late.result()
        return told.wait(5)

    assert flow.invoke(1, CONFIG) is True
    assert got == ["slow"]


@pytest.mark.timeout(10)
def test_a_writer_that_raises_fails_its_super_step():
    def broken(result):
        raise ValueError("no such thing")

    program = Pregel(
        nodes={
            "fine": Node("fine", ("in",), "in", lambda x: x, (Write("out"),)),
            "bad": Node("bad", ("in",), "in", lambda x: x, (broken,)),
        },
        channels={"in": LastValue(int), "out": LastValue(int)},
        input_channels="in",
        output_channels="out",
        checkpointer=InMemorySaver(),
    )

    with pytest.raises(ValueError, match="no such thing"):
        program.invoke(1, CONFIG)


def test_what_is_recorded_cannot_call_tasks():
    @entrypoint
    def flow(x):
        return record(lambda: plain(x).result())

    with pytest.raises(OutsideFlowError):
        flow.invoke(1)


def test_recorded_methods_of_different_objects_are_told_apart():
    class Clock:
        def __init__(self, name):
            self.name = name

        def read(self):
            return self.name

    @entrypoint
    def flow(x):
        return [record(Clock(name).read) for name in "ab"]

    with pytest.raises(AmbiguousCallError):
        flow.invoke(1)


def test_a_key_that_leaves_out_what_differs_is_refused():
    @task(key=lambda lock: lock)
    def hold(lock):
        return 1

    @entrypoint
    def flow(x):
        return [hold(threading.Lock()).result() for _ in range(2)]

    with pytest.raises(AmbiguousCallError):
        flow.invoke(1)


def test_a_lambda_is_the_same_task_in_every_process():
    script = "from flowfn.identity import captured\nprint(captured(lambda x: x in {'a', 'b', 'c', 'd'}).hex())"

    seen = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(seen) == 1


def test_parameters_that_one_input_cannot_carry_are_refused():
    with pytest.raises(EntrypointSignatureError, match="rest"):

        @entrypoint
        def flow(x, **rest):
            return x


def test_an_update_by_another_flow_is_refused():
    saver = InMemorySaver()

    @entrypoint(checkpointer=saver)
    def mine(x):
        return x

    @entrypoint(checkpointer=saver)
    def theirs(x):
        return x

    mine.invoke(1, CONFIG)

    with pytest.raises(ForeignThreadError):
        theirs.update_state(CONFIG, 5)
    with pytest.raises(ForeignThreadError):
        theirs.thread("t").run(1)
    assert mine.invoke(2, CONFIG) == 2


def test_runs_of_a_flow_of_two_objects_are_two_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWFN_DB", f"sqlite:///{tmp_path}/flows.db")

    class Api:
        def __init__(self, url):
            self.url = url

        @entrypoint
        def sync(self, n):
            return f"{self.url}/{plain(n).result()}"

    assert [Api("a").sync.run(1), Api("b").sync.run(1)] == ["a/1", "b/1"]


def test_a_question_whose_allowed_answers_changed_is_asked_anew():
    allowed = [{"type": "integer"}]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return interrupt("how many?", response_schema=allowed[0])

    flow.invoke(1, CONFIG)
    flow.thread("t").answer(3)
    allowed[0] = {"type": "string"}

    assert [q.value for q in flow.invoke(None, CONFIG)["__interrupt__"]] == ["how many?"]
    assert flow.invoke(Command(resume="three"), CONFIG) == "three"
