"""A stage puts flows on a saver in memory, without rebuilding them, and plays whatever they need."""

import asyncio
import time

import pytest

from flowfn import RetryPolicy, approve, entrypoint, interrupt, task
from flowfn.errors import PolicyError, UnansweredError
from flowfn.testing import call, stage
from flowfn.types import StreamWriter

CHARGED = []


@task(retry_policy=RetryPolicy(initial_interval=60, retry_on=Exception))
def charge(amount):
    CHARGED.append(amount)
    return f"receipt {amount}"


@task
def refund(amount, *, reason="none"):
    return interrupt({"refund": amount})


@entrypoint(checkpointer="sqlite:////dev/null/flows.db")
def shop(amount: int):
    if amount > 10 and not approve({"amount": amount}):
        return "refused"
    return charge(amount).result()


@pytest.fixture(autouse=True)
def _nothing_charged():
    CHARGED.clear()


def test_a_flow_runs_on_the_stage_and_not_on_its_own_store():
    with stage() as s:
        assert shop.invoke(5) == "receipt 5"
        assert shop.invoke(5, {"thread_id": "t"}) == "receipt 5"
        assert shop.run(6) == "receipt 6"
        assert shop.thread("t").status() == "finished"
        assert len(s.saver.threads()) == 3
    with pytest.raises(OSError):
        shop.invoke(5, {"thread_id": "t"})


def test_a_task_is_played_by_another_function():
    with stage() as s:
        s.replace(charge, lambda amount: f"fake {amount}")
        assert shop.run(5) == "fake 5"
        assert s.calls(charge) == [call(5)]
        assert s.calls(refund) == []
    assert CHARGED == []


def test_a_coroutine_may_play_a_function_and_a_function_a_coroutine():
    @task
    async def fetch(x):
        raise AssertionError

    @entrypoint
    async def flow(x):
        return [await fetch(x), await charge(x)]

    async def fake(amount):
        await asyncio.sleep(0)
        return "fake"

    with stage() as s:
        s.replace(fetch, lambda x: "page")
        s.replace(charge, fake)
        assert asyncio.run(flow.ainvoke(1)) == ["page", "fake"]


def test_what_plays_a_task_is_tried_again_without_waiting():
    attempts = []

    def fake(amount):
        attempts.append(amount)
        if len(attempts) < 3:
            raise ConnectionError
        return "at last"

    begun = time.monotonic()
    with stage() as s:
        s.replace(charge, fake)
        assert shop.run(5) == "at last"
    assert time.monotonic() - begun < 10


def test_questions_are_answered_in_order_and_the_flow_goes_on():
    with stage() as s:
        s.answer(True)
        s.answer(False)
        assert shop.run(50) == "receipt 50"
        assert shop.run(60) == "refused"
        assert [question.value for question in s.questions] == [{"amount": 50}, {"amount": 60}]


def test_an_answer_may_be_for_one_task_or_for_what_fits():
    @entrypoint
    def flow(x):
        first = interrupt({"pay": x})
        return [first, refund(x).result()]

    with stage() as s:
        s.answer("refunded", task=refund)
        s.answer(lambda asked: asked["pay"] * 2, where=lambda asked: "pay" in asked)
        assert flow.run(7) == [14, "refunded"]


def test_an_answer_may_stand_for_any_number():
    with stage() as s:
        s.answer(True, always=True)
        assert [shop.run(50), shop.run(60)] == ["receipt 50", "receipt 60"]


def test_a_question_that_nobody_answers_is_an_error():
    with stage(), pytest.raises(UnansweredError, match="'amount': 50"):
        shop.run(50)


def test_a_stage_that_is_not_strict_lets_it_wait():
    with stage(strict=False) as s:
        thread = shop.thread("t", ask=False)
        waiting = shop.invoke(50, {"thread_id": "t"})
        assert "__interrupt__" in waiting
        thread.answer(True)
        assert thread.resume() == "receipt 50"
        assert len(s.questions) == 1


def test_a_flow_in_a_task_is_on_the_same_stage():
    @task
    def nested(x):
        return shop.invoke(x)

    @entrypoint
    def outer(x):
        return nested(x).result()

    with stage() as s:
        s.answer(True)
        s.replace(charge, lambda amount: "fake")
        assert outer.run(50) == "fake"


def test_stages_nest_and_leave_nothing_behind():
    with stage() as outer:
        shop.run(1)
        with stage() as inner:
            shop.run(2)
        assert len(outer.saver.threads()) == len(inner.saver.threads()) == 1
        assert [made.args for made in outer.calls(charge)] == [(1,)]


def test_the_same_is_a_fixture(stage):
    stage.replace(charge, lambda amount: "fake")
    assert shop.run(5) == "fake"


def test_a_stage_knows_nothing_of_replays():
    @entrypoint
    def flow(x):
        charge(x).result()
        interrupt("go on?")
        return charge(x + 1).result()

    with stage() as s:
        s.answer(None)
        flow.run(1)
        assert s.calls(charge) == [call(1), call(2)]


def test_what_plays_a_task_is_given_its_arguments_and_what_it_asks_for_itself():
    @task
    def shout(x, writer: StreamWriter):
        writer(x)
        return x

    @entrypoint
    def flow(x):
        return shout(x).result()

    with stage() as s:
        s.replace(shout, lambda x: x + 1)
        assert flow.run(1) == 2


def test_only_tasks_can_be_played_and_only_by_functions():
    with stage() as s:
        with pytest.raises(PolicyError, match="@task"):
            s.replace(len, len)
        with pytest.raises(PolicyError, match="fake"):
            s.replace(task(len), 5)
