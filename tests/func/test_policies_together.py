"""What several policies of a task promise together: retries, time-outs, caches, rates, limits, and the calls inside."""

import asyncio
import threading
import time

import pytest

from flowfn import entrypoint, task
from flowfn.cache import InMemoryCache
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import PolicyError
from flowfn.types import RetryPolicy

CONFIG = {"thread_id": "t"}
AGAIN = RetryPolicy(max_attempts=3, initial_interval=0)


@pytest.fixture(params=["none", "memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "none":
        yield None
        return
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, config=CONFIG):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


# ---------------------------------------------------------------- attempts and the calls inside


def test_calls_that_a_failed_attempt_had_cancelled_run_in_the_next_one(saver, call):
    attempts = []

    @task
    def part(x):
        return x

    @task(retry_policy=AGAIN)
    def whole():
        attempts.append(1)
        parts = part.map(range(5))
        if len(attempts) == 1:
            raise ConnectionError
        return parts.result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole().result()

    assert call(flow, 1, {"configurable": {"thread_id": "t"}, "max_concurrency": 1}) == [0, 1, 2, 3, 4]


def test_a_coroutine_that_ended_with_a_timed_out_attempt_runs_again_in_the_next_one(saver, call):
    begun, ended = [], []

    @task
    async def part(x):
        begun.append(len(ended))
        try:
            await asyncio.sleep(10 if len(begun) == 1 else 0)
        finally:
            await asyncio.sleep(0.01)
            ended.append(1)
        return x

    @task(retry_policy=AGAIN, timeout=0.05)
    async def whole():
        return await part(7)

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole().result()

    assert call(flow, 1) == 7
    assert begun == [0, 1]  # one after the other


def test_a_flow_inside_an_attempt_that_is_left_behind_goes_no_further(saver):
    ran, attempts, goes_on = [], [], threading.Event()

    @task
    def part(x):
        ran.append(x)
        if len(ran) == 2:
            goes_on.wait(5)
        return x

    @entrypoint
    def inner(x):
        return [part(i).result() for i in range(3)]

    @task(timeout=0.1, retry_policy=AGAIN)
    def whole():
        attempts.append(threading.current_thread())
        return inner.invoke(1)

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole().result()

    assert flow.invoke(1, CONFIG) == [0, 1, 2]
    goes_on.set()
    seen = len(ran)
    time.sleep(0.05)
    assert len(ran) == seen
    assert len(attempts) == 2


# ---------------------------------------------------------------- a cache and what has to wait


@pytest.mark.parametrize("policies", [{"rate": "1/h"}, {"max_running": 1}])
def test_what_the_cache_answers_waits_for_no_turn(saver, call, policies):
    ran, cache = [], InMemoryCache()

    @task(cache_policy=True, name=f"read {id(cache)}", **policies)
    def read(x):
        ran.append(x)
        return x

    @entrypoint(checkpointer=saver, cache=cache)
    def flow(x):
        return [future.result() for future in [read(1) for _ in range(20)]]

    assert call(flow, 1) == [1] * 20
    assert ran == [1]


def test_equal_calls_with_a_limit_compute_once_though_the_first_attempt_fails(saver, call):
    ran = []

    @task(cache_policy=True, max_running=1, retry_policy=AGAIN, name=f"read {id(ran)}")
    def read(x):
        ran.append(x)
        if len(ran) == 1:
            raise ConnectionError
        return x

    @entrypoint(checkpointer=saver, cache=InMemoryCache())
    def flow(x):
        return [future.result() for future in [read(1) for _ in range(8)]]

    assert call(flow, 1) == [1] * 8
    assert ran == [1, 1]


def test_a_flow_that_waits_for_what_another_one_computes_can_be_paused():
    goes_on = threading.Event()

    @task(cache_policy=True)
    def read(x):
        goes_on.wait(5)
        return x

    @entrypoint(checkpointer=InMemorySaver(), cache=InMemoryCache())
    def flow(x):
        return read(1).result()

    first = threading.Thread(target=lambda: flow.invoke(1, CONFIG))
    first.start()
    waiting = flow.stream(1, {"thread_id": "u"}, stream_mode="debug")
    next(waiting)
    waiting.close()

    assert flow.thread("u").status() == "paused"
    goes_on.set()
    first.join()
    assert flow.thread("u").resume() == 1


def test_what_an_interrupt_has_ended_holds_no_claim(call):
    ran, kept = [], []

    @task(cache_policy=True)
    def read(x):
        ran.append(x)
        if len(ran) == 1:
            raise KeyboardInterrupt
        return x

    @entrypoint(checkpointer=InMemorySaver(), cache=InMemoryCache())
    def flow(x):
        future = read(1)
        kept.append(future)
        return future.result()

    with pytest.raises(KeyboardInterrupt):
        flow.invoke(1, CONFIG)
    assert call(flow, 1, {"thread_id": "u"}) == 1


# ---------------------------------------------------------------- limits


def test_the_next_attempt_begins_as_soon_as_one_has_ended(saver, call):
    @task(max_running=1, name=f"one {id(saver)} {time.monotonic()}")
    def one(x):
        return x

    @entrypoint(checkpointer=saver)
    def flow(n):
        return [future.result() for future in [one(i) for i in range(n)]]

    begun = time.monotonic()
    assert call(flow, 40) == list(range(40))
    assert time.monotonic() - begun < 1.0  # looking every 50 ms would take 2 s


# ---------------------------------------------------------------- options


def test_a_policy_can_be_taken_back_and_the_others_stay():
    ran = []

    @task(cache_policy=True, retry_policy=AGAIN)
    def read(x):
        ran.append(x)
        if len(ran) == 1:
            raise ConnectionError
        return x

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [read.with_options(cache_policy=False)(1).result() for _ in range(2)]

    assert flow.invoke(1) == [1, 1]
    assert ran == [1, 1, 1]


@pytest.mark.parametrize("option", [{"key": "x"}, {"interchangeable": "no"}, {"inline": "never"}])
def test_an_option_that_cannot_be_meant_is_refused_at_once(option):
    with pytest.raises(PolicyError, match=next(iter(option))):
        task(**option)(str.upper)


def test_a_task_without_a_cache_cannot_be_refreshed():
    with pytest.raises(PolicyError, match="cache_policy"):
        task(str.upper).with_options(refresh=True)


def test_a_method_taken_from_its_class_does_not_spoil_the_methods_of_objects():
    class Shop:
        @task(retry_policy=AGAIN)
        def price(self, sku):
            return len(sku)

    shop = Shop()

    @entrypoint
    def flow(sku):
        return Shop.price(shop, sku).result(), shop.price(sku).result()

    assert flow.invoke("abc") == (3, 3)
