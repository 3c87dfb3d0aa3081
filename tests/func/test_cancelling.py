"""A run whose coroutine is cancelled stops, says so, and can go on."""

import asyncio

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint import InMemorySaver


@task
async def quick(x):
    return x


def waiting_flow(saver, goes_on, reached):
    @entrypoint(checkpointer=saver)
    async def flow(x):
        got = await quick(x)
        reached.set()
        if not goes_on:
            await asyncio.Event().wait()
        return got

    return flow


@pytest.mark.timeout(10)
async def test_a_cancelled_run_is_paused_wherever_its_body_waits():
    # given
    goes_on, reached = [], asyncio.Event()
    flow = waiting_flow(InMemorySaver(), goes_on, reached)
    running = asyncio.create_task(flow.ainvoke(1, {"thread_id": "t"}))
    await reached.wait()

    # when
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    # then
    assert await flow.thread("t").astatus() == "paused"
    goes_on.append(True)
    assert await flow.ainvoke(None, {"thread_id": "t"}) == 1


@pytest.mark.timeout(10)
async def test_a_time_over_a_run_raises_what_asyncio_raises():
    flow = waiting_flow(InMemorySaver(), [], asyncio.Event())

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(flow.ainvoke(1, {"thread_id": "t"}), 0.05)

    assert await flow.thread("t").astatus() == "paused"
