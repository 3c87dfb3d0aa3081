"""Rates and limits of tasks: over threads and processes that share a store, and without holding a worker."""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import LimitInsideItselfError, PolicyError
from flowfn.types import RetryPolicy

CONFIG = {"thread_id": "t"}


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


class Busy:
    """How many are inside at once, and at most."""

    def __init__(self):
        self.lock, self.now, self.most, self.starts = threading.Lock(), 0, 0, []

    def __enter__(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.starts.append(time.monotonic())

    def __exit__(self, *raised):
        with self.lock:
            self.now -= 1


def flow_of(fetch, saver):
    @entrypoint(checkpointer=saver)
    def flow(n):
        return [future.result() for future in [fetch(i) for i in range(n)]]

    return flow


def test_no_more_attempts_run_at_once_than_may(saver, call):
    busy = Busy()

    @task(max_running=2, name=f"limited {id(busy)}")
    def fetch(x):
        with busy:
            time.sleep(0.01)
        return x

    assert call(flow_of(fetch, saver), 8) == list(range(8))
    assert busy.most == 2


def test_coroutines_are_counted_too(saver):
    busy = Busy()

    @task(max_running=2, name=f"limited {id(busy)}")
    async def fetch(x):
        with busy:
            await asyncio.sleep(0.01)
        return x

    @entrypoint(checkpointer=saver)
    async def flow(n):
        return await asyncio.gather(*[fetch(i) for i in range(n)])

    assert asyncio.run(flow.ainvoke(8, CONFIG)) == list(range(8))
    assert busy.most == 2


def test_attempts_start_no_more_often_than_may(saver, call):
    busy = Busy()

    @task(rate="4/200ms", name=f"rated {id(busy)}")
    def fetch(x):
        with busy:
            return x

    assert call(flow_of(fetch, saver), 10) == list(range(10))
    starts = sorted(busy.starts)
    assert all(later - first > 0.1 for first, later in zip(starts, starts[4:], strict=False))


def test_every_attempt_counts(saver, call):
    busy = Busy()

    @task(rate="1/100ms", retry_policy=RetryPolicy(initial_interval=0, retry_on=Exception), name=f"rated {id(busy)}")
    def fetch(x):
        with busy:
            if len(busy.starts) < 3:
                raise ConnectionError
            return x

    assert call(flow_of(fetch, saver), 1) == [0]
    assert busy.starts[2] - busy.starts[0] > 0.1


def test_whoever_waits_for_its_turn_holds_no_worker(saver):
    @task(rate="1/300ms", name=f"slow {id(saver)}")
    def slow(x):
        return x

    @task
    def quick(x):
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        slow(1).result()
        waiting = slow(2)
        begun = time.monotonic()
        quick(3).result()
        passed = time.monotonic() - begun
        waiting.result()
        return passed

    assert flow.invoke(1, {**CONFIG, "max_concurrency": 1}) < 0.15


def test_a_call_that_waits_for_its_turn_can_be_cancelled(saver):
    @task(rate="1/1h", name=f"rare {id(saver)}")
    def rare(x):
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        rare(1).result()
        waiting = rare(2)
        time.sleep(0.05)
        return waiting.cancel()

    assert flow.invoke(1, CONFIG) is True


def test_a_failed_attempt_makes_room(saver, call):
    @task(max_running=1, name=f"failing {id(saver)}")
    def fetch(x):
        if x == 0:
            raise LookupError
        return x

    @entrypoint(checkpointer=saver)
    def flow(n):
        futures = [fetch(i) for i in range(3)]
        return [future.exception() or future.result() for future in futures]

    assert call(flow, 1)[1:] == [1, 2]


SCRIPT = """
    import os, sys, time
    from flowfn import entrypoint, task

    @task(max_running=1, name="shared")
    def alone(x):
        path = {folder!r} + "/inside"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        time.sleep(0.02)
        os.remove(path)
        if x == {dies} and sys.argv[1] == "dies":
            os.kill(os.getpid(), 9)
        return x

    @entrypoint(checkpointer="sqlite:///" + {folder!r} + "/flows.db")
    def flow(n):
        return [f.result() for f in [alone(i) for i in range(n)]]

    print(flow.invoke(5, {{"thread_id": sys.argv[1]}}))
"""


@pytest.mark.timeout(60)
def test_processes_that_share_a_store_share_the_limit_also_when_one_is_killed(tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(textwrap.dedent(SCRIPT.format(folder=str(tmp_path), dies=2)))
    names = ["a", "b", "dies"]
    running = [
        subprocess.Popen([sys.executable, str(script), name], stdout=subprocess.PIPE, text=True) for name in names
    ]
    told = [process.communicate(timeout=50)[0] for process in running]
    assert told == ["[0, 1, 2, 3, 4]\n", "[0, 1, 2, 3, 4]\n", ""]
    assert running[2].returncode == -9


def test_a_task_that_would_wait_for_its_own_place_is_refused(saver, call):
    @task(max_running=1, name=f"inner {id(saver)}")
    def down(x):
        return x if x == 0 else down(x - 1).result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        return down(x).result()

    with pytest.raises(LimitInsideItselfError, match="its own place"):
        call(flow, 2)


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(PolicyError, match="rate"):
        task(rate="often")(len)
    with pytest.raises(PolicyError, match="max_running"):
        task(max_running=0)(len)
