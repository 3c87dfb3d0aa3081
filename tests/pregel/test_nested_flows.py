"""Flows called inside flows: their places, their stops, and the futures that cross between them."""

import asyncio
import threading

import pytest

from flowfn import Command, entrypoint, interrupt, task, wait
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import BlockedLoopError

CONFIG = {"thread_id": "t"}


@task
def leaf(x):
    return x + 1


@task
async def aleaf(x):
    return x + 1


@entrypoint
def inner(x):
    return leaf(x).result()


@entrypoint
async def ainner(x):
    return await aleaf(x)


@pytest.mark.timeout(10)
def test_one_place_is_enough_for_a_task_that_calls_a_flow_that_calls_a_task():
    @task
    def outer_task(x):
        return inner.invoke(x)

    @entrypoint
    def outer(x):
        return outer_task(x).result()

    assert outer.invoke(1, {"max_concurrency": 1}) == 2


@pytest.mark.timeout(10)
async def test_one_place_is_enough_for_the_same_in_coroutines():
    @task
    async def outer_task(x):
        return await ainner.ainvoke(x)

    @entrypoint
    async def outer(x):
        return await outer_task(x)

    assert await outer.ainvoke(1, {"max_concurrency": 1}) == 2


@pytest.mark.timeout(10)
def test_a_future_of_the_outer_flow_that_fails_fails_the_call_of_the_inner_one():
    @task
    def broken():
        raise LookupError("gone")

    @entrypoint
    def outer(x):
        future = broken()

        @entrypoint
        def inside(y):
            return leaf(future).result()

        return inside.invoke(x)

    with pytest.raises(LookupError, match="gone"):
        outer.invoke(1)


@pytest.mark.timeout(10)
def test_a_coroutine_that_would_wait_for_its_own_loop_is_an_error_and_no_hang():
    @entrypoint
    def blocking(x):
        return aleaf(x).result()

    @entrypoint
    async def outer(x):
        return blocking.invoke(x)

    with pytest.raises(BlockedLoopError, match="ainvoke"):
        outer.invoke(1)


@pytest.mark.timeout(10)
def test_closing_a_stream_stops_the_flows_inside_too():
    ran, seen = [], threading.Event()

    @task
    def step(i):
        ran.append(i)
        seen.wait(0.05)
        return i

    @entrypoint
    def inside(n):
        return [step(i).result() for i in range(n)]

    @entrypoint(checkpointer=InMemorySaver())
    def outer(n):
        return inside.invoke(n)

    stream = outer.stream(40, CONFIG, stream_mode="updates", subgraphs=True)
    next(stream)
    stream.close()

    assert len(ran) < 10
    assert outer.invoke(None, CONFIG) == list(range(40))
    assert sorted(set(ran)) == list(range(40))


def test_what_a_question_of_a_nested_flow_decided_is_not_cached():
    from flowfn import CachePolicy
    from flowfn.cache import InMemoryCache

    @entrypoint
    def asks(x):
        return interrupt(f"{x}?")

    @task(cache_policy=CachePolicy())
    def decided(x):
        return asks.invoke(x)

    @entrypoint(checkpointer=InMemorySaver(), cache=InMemoryCache())
    def outer(x):
        return decided(x).result()

    outer.invoke(1, {"thread_id": "a"})
    assert outer.invoke(Command(resume="yes"), {"thread_id": "a"}) == "yes"

    assert "__interrupt__" in outer.invoke(1, {"thread_id": "b"})


@pytest.mark.timeout(10)
def test_a_coroutine_of_a_plain_flow_can_be_cancelled_at_once():
    started = []

    @task
    async def slow():
        started.append(1)
        await asyncio.sleep(30)

    @entrypoint
    def flow(x):
        future = slow()
        is_cancelling = future.cancel()
        wait([future])
        return is_cancelling and future.cancelled()

    assert flow.invoke(1) is True


def test_a_handled_failure_of_a_nested_flow_is_history():
    charged, fails = [], [True]

    @task
    def charge(x):
        charged.append(x)
        if fails:
            raise ConnectionError("bank away")
        return "charged"

    @entrypoint
    def billing(x):
        return charge(x).result()

    @entrypoint(checkpointer=InMemorySaver())
    def outer(x):
        try:
            how = billing.invoke(x)
        except ConnectionError as error:
            how = leaf(len(str(error))).result()
        return [how, interrupt("sure?")]

    outer.invoke(1, CONFIG)
    fails.clear()

    assert outer.invoke(Command(resume="yes"), CONFIG) == [10, "yes"]
    assert charged == [1]


def test_a_failure_of_a_nested_flow_that_ends_the_run_is_tried_again():
    charged, fails = [], [True]

    @task
    def charge(x):
        charged.append(x)
        if fails:
            raise ConnectionError("bank away")
        return "charged"

    @entrypoint
    def billing(x):
        return charge(x).result()

    @entrypoint(checkpointer=InMemorySaver())
    def outer(x):
        return [leaf(x).result(), billing.invoke(x)]

    with pytest.raises(ConnectionError):
        outer.invoke(1, CONFIG)
    fails.clear()

    assert outer.invoke(None, CONFIG) == [2, "charged"]
    assert charged == [1, 1]
