"""A frame that has ended refuses whatever it left behind."""

import asyncio
import threading

import pytest

from flowfn import entrypoint, get_stream_writer, interrupt, record, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import EndedFrameError

CONFIG = {"thread_id": "t"}


RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@task
def work(x):
    RAN.append(x)
    return x


@task
async def awork(x):
    RAN.append(x)
    return x


ACTS = {
    "a call": lambda: work(1),
    "a mapped call": lambda: work.map([1, 2]),
    "a question": lambda: interrupt("another?"),
    "a recorded call": lambda: record(lambda: RAN.append(1)),
    "a stream write": lambda: get_stream_writer()("chunk"),
}


async def test_a_frame_that_has_ended_refuses_the_calls_of_coroutines_it_left_behind():
    # given
    errors = []

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        async def later():
            await asyncio.sleep(0.02)
            try:
                await awork("late")
            except BaseException as error:
                errors.append(error)

        keep.append(asyncio.create_task(later()))
        return "finished"

    keep = []

    # when
    assert await flow.ainvoke(1, CONFIG) == "finished"
    await keep[0]

    # then
    assert isinstance(errors[0], EndedFrameError)
    assert RAN == []


@pytest.mark.parametrize("act", [a for a in ACTS if a != "a mapped call"])
def test_a_frame_that_has_ended_refuses_whatever_threads_it_left_behind_do(act):
    # given
    errors, gate, over = [], threading.Event(), threading.Event()

    @task
    def leaves(x):
        import contextvars

        context = contextvars.copy_context()

        def later():
            gate.wait(5)
            try:
                context.run(ACTS[act])
            except BaseException as error:
                errors.append(error)
            over.set()

        threading.Thread(target=later, daemon=True).start()
        return x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        value = leaves(x).result()
        gate.set()
        over.wait(5)
        return value

    # when
    assert flow.invoke(1, CONFIG) == 1

    # then
    assert isinstance(errors[0], EndedFrameError)
    assert RAN == []
