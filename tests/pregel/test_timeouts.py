"""An attempt that takes too long is over: a coroutine is cancelled, a plain function is left behind."""

import asyncio
import threading
import time

import pytest

from flowfn import Runtime, entrypoint, task
from flowfn.checkpoint import InMemorySaver
from flowfn.errors import EndedFrameError, FlowStop, TaskTimeoutError
from flowfn.types import RetryPolicy, TimeoutPolicy

CONFIG = {"thread_id": "t"}
SOON = 0.05


@pytest.fixture(params=["sync", "async"])
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, config=CONFIG):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


def flow_of(body, **options):
    @entrypoint(checkpointer=InMemorySaver(), **options)
    def flow(x):
        return body(x).result()

    return flow


@pytest.mark.timeout(20)
def test_a_coroutine_is_cancelled(call):
    ended = []

    @task(timeout=SOON)
    async def slow(x):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(x)

    with pytest.raises(TaskTimeoutError, match="slow") as raised:
        call(flow_of(slow), 1)
    assert isinstance(raised.value, TimeoutError)
    assert ended == [1]


@pytest.mark.timeout(20)
def test_a_plain_function_is_left_behind_and_what_it_does_then_is_refused(call):
    goes_on, refused = threading.Event(), []

    @task
    def other(x):
        raise AssertionError("begun by an attempt that was over")

    @task(timeout=SOON)
    def slow(x):
        assert goes_on.wait(10)
        try:
            other(x)
        except (EndedFrameError, FlowStop) as error:
            refused.append(error)
        return "too late"

    flow = flow_of(slow)
    with pytest.raises(TaskTimeoutError):
        call(flow, 1)
    goes_on.set()
    deadline = time.monotonic() + 10
    while not refused and time.monotonic() < deadline:
        time.sleep(0.001)
    assert refused
    assert [info.status for info in flow.thread("t").calls()] == ["failed"]


@pytest.mark.timeout(20)
def test_an_attempt_that_was_left_behind_gives_its_place_to_others(call):
    goes_on = threading.Event()

    @task(timeout=SOON)
    def stuck(x):
        goes_on.wait(10)

    @task
    def quick(x):
        return x

    @entrypoint
    def flow(x):
        stuck(x).exception()
        return quick(x).result()

    assert call(flow, 1, {"max_concurrency": 1}) == 1
    goes_on.set()


@pytest.mark.timeout(20)
def test_a_timed_out_attempt_is_tried_again(call):
    begun = []

    @task(timeout=SOON, retry_policy=RetryPolicy(initial_interval=0))
    def slow(x):
        begun.append(x)
        if len(begun) < 3:
            time.sleep(10 * SOON)
        return x

    assert call(flow_of(slow), 1) == 1
    assert len(begun) == 3


@pytest.mark.timeout(20)
def test_a_coroutine_that_swallows_its_cancellation_is_left_behind():
    @task(timeout=SOON)
    async def stubborn(x):
        for _ in range(100):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass

    with pytest.raises(TaskTimeoutError):
        flow_of(stubborn).invoke(1, CONFIG)


@pytest.mark.timeout(20)
def test_a_flow_has_a_timeout_too(call):
    @entrypoint(checkpointer=InMemorySaver(), timeout=SOON)
    def plain(x):
        time.sleep(10 * SOON)

    @entrypoint(checkpointer=InMemorySaver(), timeout=SOON)
    async def coroutine(x):
        await asyncio.sleep(60)

    with pytest.raises(TaskTimeoutError):
        call(plain, 1)
    with pytest.raises(TaskTimeoutError):
        asyncio.run(coroutine.ainvoke(1, CONFIG))


@pytest.mark.timeout(20)
def test_signs_of_life_put_off_an_idle_timeout(call):
    @task
    def part(x):
        return x

    @task(timeout=TimeoutPolicy(idle_timeout=4 * SOON))
    def busy(x, runtime: Runtime = None):
        for i in range(6):
            time.sleep(SOON)
            part(i) if i % 2 else runtime.heartbeat()
        return x

    assert call(flow_of(busy), 1) == 1


@pytest.mark.timeout(20)
def test_without_signs_of_life_an_idle_timeout_comes(call):
    @task(timeout=TimeoutPolicy(idle_timeout=SOON))
    def idle(x):
        time.sleep(10 * SOON)

    with pytest.raises(TaskTimeoutError) as raised:
        call(flow_of(idle), 1)
    assert raised.value.kind == "idle"


def test_a_task_in_time_is_not_disturbed(call):
    @task(timeout=60)
    def quick(x):
        return x

    assert call(flow_of(quick), 1) == 1
