"""Tasks with a cache policy, in flows: what computes, what waits, and what is kept."""

import asyncio
import threading
import time

import pytest

from flowfn import CachePolicy, Command, approve, entrypoint, interrupt, task
from flowfn.cache import DiskCache, InMemoryCache
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import CacheError, UnkeyedArgumentError
from flowfn.types import RetryPolicy

CONFIG = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["memory", "disk"])
def cache(request, tmp_path):
    cache = InMemoryCache() if request.param == "memory" else DiskCache(tmp_path / "cache")
    yield cache
    cache.close()


def run(flow, value=0, config=None):
    """Invoke a flow, be it a function or a coroutine."""
    return flow.invoke(value, config or {})


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_equal_calls_at_the_same_time_compute_once(cache, limit):
    ran = []

    @task(cache_policy=True)
    def slow(x):
        ran.append(x)
        time.sleep(0.02)
        return [x]

    @entrypoint(cache=cache)
    def flow(_):
        return [call.result() for call in [slow(n % 2) for n in range(8)]]

    assert run(flow, config={"max_concurrency": limit}) == [[0], [1]] * 4
    assert sorted(ran) == [0, 1]


@pytest.mark.parametrize("limit", [None, 1])
def test_equal_awaited_calls_at_the_same_time_compute_once(cache, limit):
    ran = []

    @task(cache_policy=3600)
    async def slow(x):
        ran.append(x)
        await asyncio.sleep(0.02)
        return x

    @entrypoint(cache=cache)
    async def flow(_):
        return await asyncio.gather(*[slow(n % 2) for n in range(8)])

    assert asyncio.run(flow.ainvoke(0, {"max_concurrency": limit})) == [0, 1] * 4
    assert sorted(ran) == [0, 1]


def test_two_runs_at_once_share_what_one_computes(cache):
    ran, begun, goes_on = [], threading.Event(), threading.Event()

    @task(cache_policy="1d")
    def slow(x):
        ran.append(x)
        begun.set()
        goes_on.wait(20)
        return x * 2

    @entrypoint(cache=cache)
    def flow(x):
        return slow(x).result()

    results = []
    threads = [threading.Thread(target=lambda: results.append(run(flow, 21))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    goes_on.set()
    for thread in threads:
        thread.join()
    assert (results, ran) == ([42] * 3, [21])


def test_when_the_one_that_computes_fails_the_others_compute_themselves(cache):
    ran = []

    @task(cache_policy=True)
    def flaky(x):
        ran.append(x)
        time.sleep(0.01)
        if len(ran) == 1:
            raise ValueError("once")
        return x

    @entrypoint(cache=cache)
    def flow(_):
        calls = [flaky.with_options(interchangeable=True)(1) for _ in range(4)]
        return sorted(repr(call.exception()) if call.exception() else str(call.result()) for call in calls)

    assert run(flow) == ["1", "1", "1", "ValueError('once')"]
    assert len(ran) == 2


def test_a_retry_keeps_the_claim(cache):
    ran = []

    @task(cache_policy=True, retry_policy=3)
    def flaky(x):
        ran.append(x)
        if len(ran) < 3:
            raise ConnectionError
        return x

    flaky = flaky.with_options(retry_policy=RetryPolicy(initial_interval=0.01, jitter=False))

    @entrypoint(cache=cache)
    def flow(_):
        return [call.result() for call in [flaky(1) for _ in range(3)]]

    assert run(flow) == [1, 1, 1]
    assert len(ran) == 3


def test_a_question_gives_the_claim_back_and_its_answer_is_not_kept(cache):
    ran = []

    @task(cache_policy=True)
    def asks(x):
        ran.append(x)
        return interrupt("ok?")

    @task(cache_policy=True)
    def approves(x):
        return bool(approve("really?"))

    @entrypoint(cache=cache, checkpointer=InMemorySaver())
    def flow(x):
        return [asks(x).result(), approves(x).result()]

    for thread in ("a", "b"):
        config = {"configurable": {"thread_id": thread}}
        assert "__interrupt__" in flow.invoke(1, config)
        assert "__interrupt__" in flow.invoke(Command(resume=thread), config)
        assert flow.invoke(Command(resume=True), config) == [thread, True]
    assert len(ran) == 4
    assert cache.entries(asks._callee().title) == []
    assert cache.entries(approves._callee().title) == []


def test_a_call_inside_an_equal_one_does_not_wait_for_it(cache):
    ran = []

    @task(cache_policy=True)
    def down(x):
        ran.append(x)
        return x if len(ran) > 2 else down(x).result() + 1

    @entrypoint(cache=cache)
    def flow(x):
        return down(x).result()

    assert run(flow, 1) == 3
    assert len(ran) == 3


def test_refresh_computes_anew_and_replaces(cache):
    values = iter("abc")

    @task(cache_policy=True)
    def now(x):
        return next(values)

    @entrypoint(cache=cache)
    def flow(refresh):
        return now.with_options(refresh=refresh)(1).result()

    assert [run(flow, refresh) for refresh in (False, False, True, False)] == ["a", "a", "b", "b"]


def test_a_future_as_an_argument_counts_by_its_value(cache):
    ran, today = [], [1]

    @task
    def now():
        return today[0]

    @task(cache_policy=True)
    def double(x, more=()):
        ran.append(x)
        return 2 * x

    @entrypoint(cache=cache)
    def flow(_):
        return double(now(), more=[now()]).result()

    results = [run(flow), run(flow)]
    today[0] = 2
    assert [*results, run(flow)] == [2, 2, 4]
    assert ran == [1, 2]


def test_an_argument_without_a_key_is_named_where_the_task_is_called(cache):
    @task(cache_policy=True)
    def ask(connection, x):
        return x

    @task(cache_policy=CachePolicy(key_func=lambda connection, x: x))
    def told(connection, x):
        return [x]

    @entrypoint(cache=cache)
    def flow(x):
        with pytest.raises(UnkeyedArgumentError, match=r"`connection`, which is or holds a `_thread\.lock`"):
            ask(threading.Lock(), x)
        return told(threading.Lock(), x).result(), told.why(threading.Lock(), x).hit

    assert [run(flow, 1), run(flow, 1)] == [([1], True)] * 2


def test_version_takes_the_place_of_the_code(cache):
    def add_one(x):
        return x + 1

    def add_two(x):
        return x + 2

    def flow_of(fn, version):
        cached = (
            task(fn, name="add") if version is None else task(name="add", cache_policy=CachePolicy(version=version))(fn)
        )

        @entrypoint(cache=cache)
        def flow(x):
            return cached(x).result()

        return flow

    assert [run(flow_of(fn, v), 1) for fn, v in ((add_one, "1"), (add_two, "1"), (add_two, "2"))] == [2, 2, 3]


def test_hits_are_visible_in_streams(cache):
    @task(cache_policy=True)
    def double(x):
        return 2 * x

    @entrypoint(cache=cache)
    def flow(x):
        return double(x).result()

    run(flow, 1)
    assert list(flow.stream(1, stream_mode="updates")) == [
        {"double": 2, "__metadata__": {"cached": True}},
        {"flow": 2},
    ]


def test_why_says_hit_or_what_differs(cache):
    @task(cache_policy=True)
    def tax(x, rate="de"):
        return x

    @entrypoint(cache=cache)
    def flow(x):
        return tax(x).result(), str(tax.why(x)), tax.why(x, rate="at").differs

    value, hit, differs = run(flow, 1)
    assert (value, differs) == (1, ("argument `rate`",))
    assert hit.startswith("Hit: task `tests.func.test_cached_flows:test_why_says_hit_or_what_differs.<locals>.tax`")
    assert tax.why(1).hit
    assert tax.why(2).differs == ("argument `x`",)
    assert tax.with_options(cache_policy=CachePolicy(version="2")).why(1).differs == ("the version",)


def test_one_tasks_results_are_forgotten(cache):
    ran = []

    @task(cache_policy=True)
    def one(x):
        ran.append("one")
        return x

    @task(cache_policy=True)
    def two(x):
        ran.append("two")
        return x

    @entrypoint(cache=cache)
    def flow(x):
        return one(x).result() + two(x).result()

    run(flow, 1)
    one.clear_cache(cache)
    run(flow, 1)
    asyncio.run(two.aclear_cache(cache))
    run(flow, 1)
    flow.clear_cache()
    run(flow, 1)
    assert ran == ["one", "two", "one", "two", "one", "two"]


def test_a_folder_is_a_cache(tmp_path):
    ran = []

    @task(cache_policy=True)
    def slow(x):
        ran.append(x)
        return x

    def flow_with(cache):
        @entrypoint(cache=cache)
        def flow(x):
            return slow(x).result()

        return flow

    assert [run(flow_with(tmp_path / "c"), 1), run(flow_with(str(tmp_path / "c")), 1)] == [1, 1]
    assert ran == [1]


def test_a_folder_that_cannot_be_used_is_named_where_the_task_is_called(tmp_path):
    (tmp_path / "file").write_text("mine")

    @task(cache_policy=True)
    def slow(x):
        return x

    @entrypoint(cache=str(tmp_path / "file"))
    def flow(x):
        return slow(x).result()

    with pytest.raises(CacheError, match="is a file"):
        run(flow, 1)


def test_a_call_that_waits_for_another_run_can_be_cancelled(cache):
    begun, goes_on = threading.Event(), threading.Event()

    @task(cache_policy=True)
    def slow(x):
        begun.set()
        goes_on.wait(20)
        return x

    @entrypoint(cache=cache)
    def first(x):
        return slow(x).result()

    @entrypoint(cache=cache)
    def second(x):
        waiting = slow(x)
        time.sleep(0.05)  # until somebody has found that another run computes it
        return waiting.cancel()

    thread = threading.Thread(target=run, args=(first, 1))
    thread.start()
    assert begun.wait(20)
    assert run(second, 1) is True
    goes_on.set()
    thread.join()
