"""What is, and is not, found in a cache."""

import asyncio
import logging
import threading
import time
from dataclasses import dataclass

import pytest

from flowfn import CachePolicy, RetryPolicy, entrypoint, interrupt, task
from flowfn.cache import DiskCache, InMemoryCache
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import PolicyError, UnkeyedArgumentError

RAN = []


@dataclass(frozen=True)
class Scale:
    factor: int

    @task(cache_policy=CachePolicy())
    def of(self, x):
        RAN.append((self.factor, x))
        return x * self.factor


class Account:
    def __init__(self, name):
        self.name = name

    @task(cache_policy=CachePolicy())
    def balance(self, x):
        return self.name


def test_methods_of_different_objects_have_different_entries():
    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [Scale(1).of(x).result(), Scale(2).of(x).result(), Scale(2).of(x).result()]

    RAN.clear()
    assert flow.invoke(10) == [10, 20, 20]
    assert RAN == [(1, 10), (2, 10)]


def test_an_object_without_an_identity_is_an_error_that_says_what_to_do():
    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return Account("a").balance(x).result()

    with pytest.raises(UnkeyedArgumentError, match=r"`self`.*Account.*key_func"):
        flow.invoke(1)


def test_arguments_that_are_left_out_are_not_taken_for_each_other():
    class Connection:
        def __init__(self, place):
            self.place, self.lock = place, threading.Lock()

    @task(cache_policy=CachePolicy(), key=lambda connection, x: (connection.place, x))
    def ask(connection, x):
        return connection.place

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [ask(Connection("eu"), x).result(), ask(Connection("us"), x).result()]

    assert flow.invoke(1) == ["eu", "us"]


def test_a_future_as_an_argument_does_not_stand_for_another_threads_value():
    today = [1]

    @task
    def now():
        return today[0]

    @task(cache_policy=CachePolicy())
    def double(x):
        return 2 * x

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return double(now()).result()

    first = flow.invoke(0)
    today[0] = 2

    assert [first, flow.invoke(0)] == [2, 4]


def test_a_result_that_no_cache_can_keep_is_a_result_all_the_same():
    @task(cache_policy=CachePolicy())
    def lock():
        return threading.Lock()

    @entrypoint(cache=InMemoryCache())
    def flow(x):
        return [type(lock().result()).__name__ for _ in range(3)]

    assert flow.invoke(0, {"max_concurrency": 1}) == ["lock"] * 3


# ---------------------------------------------------------------- equal calls, hits and misses


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.fixture(params=["memory", "disk"])
def cache(request, tmp_path):
    cache = InMemoryCache() if request.param == "memory" else DiskCache(tmp_path / "cache")
    yield cache
    cache.close()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, config=None):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


@task(cache_policy=True)
def slow(x):
    RAN.append(x)
    time.sleep(0.02)
    return {"x": x}


def flow_of(cache, **options):
    @entrypoint(cache=cache, **options)
    def flow(n):
        return [future.result() for future in [slow(7) for _ in range(n)]]

    return flow


def test_equal_calls_at_the_same_time_compute_once(cache, call):
    assert call(flow_of(cache), 6) == [{"x": 7}] * 6
    assert RAN == [7]


def test_equal_coroutines_at_the_same_time_compute_once(cache):
    @task(cache_policy=True)
    async def fetch(x):
        RAN.append(x)
        await asyncio.sleep(0.02)
        return x

    @entrypoint(cache=cache)
    async def flow(n):
        return await asyncio.gather(*[fetch.with_options(interchangeable=True)(7) for _ in range(n)])

    assert asyncio.run(flow.ainvoke(6)) == [7] * 6
    assert RAN == [7]


def test_one_place_is_enough_for_those_who_wait_for_an_entry(cache, call):
    assert call(flow_of(cache), 4, {"max_concurrency": 1}) == [{"x": 7}] * 4


def test_flows_in_several_threads_compute_once(cache):
    flow, told = flow_of(cache), []
    workers = [threading.Thread(target=lambda: told.append(flow.invoke(2))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert told == [[{"x": 7}] * 2] * 4
    assert RAN == [7]


def test_a_caller_that_spoils_what_it_was_handed_spoils_no_entry(cache, call):
    @entrypoint(cache=cache)
    def flow(x):
        first = slow(x).result()
        first["spoiled"] = True
        return slow(x).result()

    assert call(flow, 7) == {"x": 7}
    assert call(flow, 7) == {"x": 7}


def test_when_the_one_who_computes_fails_another_one_tries(cache, call):
    @task(cache_policy=True)
    def flaky(x):
        RAN.append(x)
        time.sleep(0.01)
        if len(RAN) == 1:
            raise ConnectionError
        return x

    @entrypoint(cache=cache)
    def flow(n):
        futures = [flaky(7) for _ in range(3)]
        return [type(future.exception()).__name__ for future in futures]

    assert sorted(call(flow, 1)) == ["ConnectionError", "NoneType", "NoneType"]
    assert RAN == [7, 7]


def test_a_retried_task_is_cached_when_it_has_its_value(cache, call):
    @task(cache_policy=True, retry_policy=RetryPolicy(initial_interval=0, retry_on=Exception))
    def flaky(x):
        RAN.append(x)
        if len(RAN) < 3:
            raise ConnectionError
        return x

    @entrypoint(cache=cache)
    def flow(x):
        return flaky(x).result()

    assert [call(flow, 7), call(flow, 7)] == [7, 7]
    assert RAN == [7, 7, 7]


def test_what_a_future_comes_to_is_part_of_the_key(cache, call):
    @task
    def one(x):
        return x

    @entrypoint(cache=cache)
    def flow(x):
        return slow(one(x)).result()

    assert [call(flow, 1), call(flow, 1), call(flow, 2)] == [{"x": 1}, {"x": 1}, {"x": 2}]
    assert RAN == [1, 2]


def test_a_hit_is_told_to_watchers_history_and_log(cache, caplog):
    flow = flow_of(cache, checkpointer=InMemorySaver())
    flow.invoke(1, {"thread_id": "t"})
    with caplog.at_level(logging.INFO, "flowfn"):
        updates = list(flow.stream(1, {"thread_id": "u"}))
    assert updates[0] == {"slow": {"x": 7}, "__metadata__": {"cached": True}}
    assert "Task `slow` is answered by the cache" in caplog.text
    assert [info.value for info in flow.thread("u").calls()] == ["{'x': 7}"]


def test_an_answer_never_reaches_the_cache(cache, call):
    from flowfn import Command

    @task(cache_policy=True)
    def ask(x):
        RAN.append(x)
        return interrupt("how much?")

    @entrypoint(cache=cache, checkpointer=InMemorySaver())
    def flow(x):
        return ask(x).result()

    call(flow, 7, {"thread_id": "t"})
    assert call(flow, Command(resume=5), {"thread_id": "t"}) == 5
    assert "__interrupt__" in call(flow, 7, {"thread_id": "u"})


def test_refresh_makes_the_entry_anew(cache, call):
    values = [1, 2]

    @task(cache_policy=True)
    def rate(x):
        return values.pop(0)

    @entrypoint(cache=cache)
    def flow(fresh):
        return (rate.with_options(refresh=True) if fresh else rate)(7).result()

    assert [call(flow, False), call(flow, True), call(flow, False)] == [1, 2, 2]


def test_clearing_forgets_a_task_or_a_whole_flow(cache, call):
    flow = flow_of(cache)
    call(flow, 1)
    slow.clear_cache(cache)
    call(flow, 1)
    asyncio.run(flow.aclear_cache())
    call(flow, 1)
    assert RAN == [7, 7, 7]


def test_why_says_hit_or_what_differs(cache, call):
    flow = flow_of(cache)
    assert "no entry" in str(flow.why(slow, 7))
    call(flow, 1)
    assert flow.why(slow, 7).hit
    assert flow.why(slow, 8).differs == ("argument `x`",)
    with pytest.raises(PolicyError, match="keeps no results"):
        flow.why(task(len), [])


def test_a_flow_keeps_its_own_result_for_equal_inputs(cache, call):
    @entrypoint(cache=cache, cache_policy=60)
    def flow(x):
        RAN.append(x)
        return entrypoint.final(value=x, save=x + 1)

    assert [call(flow, 1), call(flow, 1), call(flow, 2)] == [1, 1, 2]
    assert RAN == [1, 2]


def test_a_policy_without_a_cache_keeps_results_beside_the_file(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "shop.py"
    script.write_text(
        "from flowfn import entrypoint, task\n"
        "@task(cache_policy=True)\n"
        "def price(x):\n"
        "    print('computed')\n"
        "    return x\n"
        "@entrypoint\n"
        "def flow(x):\n"
        "    return price(x).result()\n"
        "print(flow.invoke(1), price.why(1).hit)\n"
    )
    told = [subprocess.run([sys.executable, script], capture_output=True, text=True).stdout for _ in range(2)]
    assert told == ["computed\n1 True\n", "1 True\n"]
    assert (tmp_path / ".flowfn" / "cache").is_dir()
