"""Futures are waited for in every way that the standard library and flowfn know."""

import asyncio
import concurrent.futures
import time

import pytest

import flowfn
from flowfn import entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver

CONFIG = {"thread_id": "t"}


@task
def quick(x):
    return x


@task
def slow(x):
    time.sleep(0.03)
    return x


@task
async def aslow(x):
    await asyncio.sleep(0.02)
    return x


@task
async def aquick(x):
    return x


@task
def fail(x):
    raise ValueError(x)


def inside(body, saver=None, **more):
    """What `body` gives inside a flow."""
    return entrypoint(checkpointer=saver)(lambda x: body()).invoke(1, {**CONFIG, **more})


def ainside(body, saver=None):
    async def flow(x):
        return await body()

    return asyncio.run(entrypoint(checkpointer=saver)(flow).ainvoke(1, CONFIG))


# ---------------------------------------------------------------- the standard library


def test_concurrent_futures_wait_takes_unfinished_futures():
    def body():
        futures = [slow(i) for i in range(3)]
        done, rest = concurrent.futures.wait(futures)
        return sorted(f.result() for f in done), len(rest)

    assert inside(body) == ([0, 1, 2], 0)


@pytest.mark.parametrize("wait", [concurrent.futures.wait, flowfn.wait])
def test_waiting_for_all_waits_for_all_when_some_were_done_before(wait):
    def body():
        before = quick(1)
        before.result()
        done, rest = wait([before, slow(2)])
        return sorted(f.result() for f in done), len(rest)

    assert inside(body) == ([1, 2], 0)


def test_concurrent_futures_as_completed_hands_out_each_future_once_when_some_were_done_before():
    def body():
        before = quick(1)
        before.result()
        return [f.result() for f in concurrent.futures.as_completed([before, slow(2)])]

    assert inside(body) == [1, 2]


def test_concurrent_futures_wait_times_out():
    def body():
        future = slow(1)
        done, rest = concurrent.futures.wait([future], timeout=0.001)
        return len(done), len(rest), future.result()

    assert inside(body) == (0, 1, 1)


def test_concurrent_futures_wait_returns_at_the_first_failure():
    def body():
        futures = [slow(1), fail(2)]
        concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        return futures[1].done(), type(futures[1].exception()).__name__

    assert inside(body) == (True, "ValueError")


def test_concurrent_futures_as_completed_hands_out_every_future():
    assert inside(lambda: sorted(f.result() for f in concurrent.futures.as_completed([slow(i) for i in range(5)]))) == [
        0,
        1,
        2,
        3,
        4,
    ]


async def by_gather(futures):
    return await asyncio.gather(*futures)


async def by_wait(futures):
    done, rest = await asyncio.wait(futures)
    assert not rest
    return sorted([f.result() for f in done])


async def by_as_completed(futures):
    return sorted([await f for f in asyncio.as_completed(futures)])


async def by_wait_for(futures):
    return [await asyncio.wait_for(f, 5) for f in futures]


async def by_timeout(futures):
    async with asyncio.timeout(5):
        return [await f for f in futures]


async def by_task_group(futures):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(f.coroutine()) for f in futures]
    return [t.result() for t in tasks]


async def by_shield(futures):
    return [await asyncio.shield(f) for f in futures]


async def by_ensure_future(futures):
    return [await asyncio.ensure_future(f) for f in futures]


async def by_create_task(futures):
    return [await asyncio.create_task(f.coroutine()) for f in futures]


async def by_flowfn_wait(futures):
    done, rest = await flowfn.wait(futures)
    assert not rest
    return sorted([f.result() for f in done])


async def by_flowfn_as_completed(futures):
    return sorted([f.result() async for f in flowfn.as_completed(futures)])


WAITS = [
    by_gather,
    by_wait,
    by_as_completed,
    by_wait_for,
    by_timeout,
    by_task_group,
    by_shield,
    by_ensure_future,
    by_create_task,
    by_flowfn_wait,
    by_flowfn_as_completed,
]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("some_done", [False, True], ids=["none done", "some done"])
@pytest.mark.parametrize("make", [slow, aslow, aquick], ids=["functions", "coroutines", "quick coroutines"])
@pytest.mark.parametrize("by", WAITS)
def test_asyncio_waits_for_futures_in_every_way(by, make, some_done):
    async def body():
        before = [make(i) for i in range(2)]
        if some_done:
            for future in before:
                await future
        return await by([*before, *[make(i) for i in range(2, 4)]])

    assert ainside(body, InMemorySaver()) == [0, 1, 2, 3]


@pytest.mark.parametrize("make", [slow, aslow])
def test_asyncio_wraps_a_future(make):
    async def body():
        return await asyncio.wait_for(asyncio.wrap_future(make(1)), 0.5)

    assert ainside(body) == 1


def test_a_wait_for_that_times_out_cancels_the_coroutine():
    async def body():
        future = aslow(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.001)
        return future.cancelled()

    assert ainside(body) is True


# ---------------------------------------------------------------- flowfn's own waits


@task
def timed(x):
    time.sleep(0.01 * x)
    return x


@pytest.mark.parametrize("how", ["as_completed", "wait", "first"])
def test_stored_outcomes_come_in_the_order_stored_at_a_replay(how):
    fails, seen, saver = [True], [], InMemorySaver()

    @entrypoint(checkpointer=saver)
    def flow(x):
        futures = [timed(3), timed(1), timed(2)]
        if how == "as_completed":
            got = [f.result() for f in flowfn.as_completed(futures)]
        elif how == "wait":
            done, _ = flowfn.wait(futures)
            got = [f.result() for f in done]
        else:
            done, rest = flowfn.wait(futures, return_when=flowfn.waiting.FIRST_COMPLETED)
            got = [[f.result() for f in done], len(rest), [f.result() for f in rest]]
        seen.append(got)
        if fails:
            raise ValueError
        return got

    with pytest.raises(ValueError):
        flow.invoke(1, CONFIG)
    fails.clear()
    flow.invoke(None, CONFIG)
    assert seen[0] == seen[1]


def test_as_completed_times_out():
    def body():
        with pytest.raises(TimeoutError):
            for _ in flowfn.as_completed([slow(1)], timeout=0.001):
                pass
        return "timed out"

    assert inside(body) == "timed out"
