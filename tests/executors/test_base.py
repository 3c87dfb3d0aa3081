"""Executors by name and by object; what is lost on the way starts again, a few times, and arrives once."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from loky import get_reusable_executor

from flowfn import get_runtime
from flowfn.context import ExecutionInfo
from flowfn.errors import PolicyError, UnfitWorkerError, WorkerDiedError
from flowfn.executors import payload
from flowfn.executors.base import THREADS, Renewed, Sent, executor_named
from flowfn.executors.payload import Errand
from flowfn.executors.processes import shared
from flowfn.serde import Serializer
from tests.executors import shop, work

INFO = ExecutionInfo("task-id", "thread-1", "run-1", "", 1)
PLAIN = Serializer()
FORKSERVER = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module")
def standard():
    """The standard library's pool."""
    with ProcessPoolExecutor(1, mp_context=FORKSERVER) as pool:
        yield pool


def packed(fn, *args) -> bytes:
    around = payload.surroundings({}, None, None, False)
    return Errand(INFO, "work", b"path", payload.work("work", fn, args, {}), around, code=payload.code_of(fn)).packed()


@pytest.fixture(scope="module")
def loky():
    """The pool that loky makes anew when it breaks."""
    yield executor_named(lambda: get_reusable_executor(max_workers=1))
    get_reusable_executor(max_workers=1).shutdown(kill_workers=True)


class Box:
    """Where an outcome arrives."""

    def __init__(self):
        self.arrived = threading.Event()
        self.outcomes = []

    def __call__(self, outcome):
        self.outcomes.append(outcome)
        self.arrived.set()

    def value(self):
        assert self.arrived.wait(20)
        (outcome,) = self.outcomes
        value = PLAIN.loads(outcome.blob)
        if outcome.kind == "failure":
            raise value
        return value


def sent(executor, fn, *args):
    box = Box()
    box.sent = Sent(executor, packed(fn, *args), "work", box)
    return box


class Told:
    """An executor that does with each payload what it was told: a value to give, an error to raise."""

    def __init__(self, *steps):
        self.steps, self.count = list(steps), 0

    def submit(self, fn, data):
        step = self.steps[min(self.count, len(self.steps) - 1)]
        self.count += 1
        future: Future[bytes] = Future()
        if isinstance(step, Exception):
            future.set_exception(step)
        elif callable(step):
            future.set_result(step(fn, data))
        return future


def works(fn, data):
    return fn(data)


# ---------------------------------------------------------------- which executor


def test_threads_and_processes_have_a_name():
    assert executor_named("threads") is THREADS
    assert executor_named("processes") is executor_named("processes") is shared


def test_any_object_with_submit_is_an_executor():
    with ThreadPoolExecutor(1) as pool:
        assert executor_named(pool) is pool


@pytest.mark.parametrize("given", ["thread", "", None, 3, object(), ["processes"]])
def test_what_is_no_executor_is_refused_with_what_would_be(given):
    with pytest.raises(PolicyError, match=r'`executor` cannot be .* Give "threads", "processes", an object with'):
        executor_named(given)


# ---------------------------------------------------------------- what arrives


@pytest.mark.parametrize("fn", [shop.double.func, lambda x: 2 * x, shop.Till(21).add.func])
def test_every_executor_gives_the_same(pool, standard, loky, fn):
    with ThreadPoolExecutor(1) as threads:
        assert [sent(one, fn, 21).value() for one in (pool, threads, standard, loky, Told(works))] == [42] * 5


def test_nothing_but_bytes_goes_to_an_executor():
    seen = []

    class Spy:
        def submit(self, fn, *args, **kwargs):
            seen.append((fn.__module__, fn.__qualname__, [type(arg) for arg in args], kwargs))
            future: Future[bytes] = Future()
            future.set_result(fn(*args))
            return future

    assert sent(Spy(), shop.double.func, 4).value() == 8
    assert seen == [("flowfn.executors.remote", "run_payload", [bytes], {})]


def test_it_is_told_when_an_attempt_begins(pool):
    for executor in (pool, Told(works)):
        begun = threading.Event()
        box = Box()
        Sent(executor, packed(shop.double.func, 1), "work", box, begun.set)

        assert box.value() == 2
        assert begun.is_set()


def test_a_failure_of_the_task_is_no_failure_of_the_executor():
    executor = Told(works)

    with pytest.raises(shop.Odd):
        sent(executor, shop.fails, 3).value()

    assert executor.count == 1


# ---------------------------------------------------------------- what is lost


def _dies_at_first(folder: str) -> int:
    marks = len(os.listdir(folder))
    open(os.path.join(folder, str(marks)), "w").close()
    if marks < 1:
        work.die(b"")
    return marks


def test_an_attempt_whose_worker_dies_starts_again(pool, tmp_path, caplog):
    assert sent(pool, _dies_at_first, str(tmp_path)).value() == 1
    assert "An attempt at task `work` was lost with its worker and starts again: process " in caplog.text


def test_a_task_that_kills_its_worker_each_time_fails_with_a_sentence(pool, tmp_path):
    with pytest.raises(WorkerDiedError, match=r"Task `work` was begun 3 times, .* was ended by SIGKILL\. Look for"):
        sent(pool, work.die, b"").value()

    assert sent(pool, shop.double.func, 2).value() == 4


@pytest.mark.parametrize("error", [BrokenExecutor("gone"), CancelledError(), RuntimeError("KilledWorker")])
def test_whatever_an_executor_itself_fails_with_counts_as_lost(error):
    executor = Told(error, error, works)

    assert sent(executor, shop.double.func, 2).value() == 4
    assert executor.count == 3

    with pytest.raises(WorkerDiedError, match=f"at last, {type(error).__name__}"):
        sent(Told(error), shop.double.func, 2).value()


def test_an_attempt_that_must_not_be_repeated_is_not_once_it_has_begun(pool):
    box = Box()
    Sent(pool, packed(work.die, b""), "work", box, may_repeat=False)

    with pytest.raises(WorkerDiedError, match=r"An attempt at task `work` was lost .* how far it had come"):
        box.value()

    class Refuses(Told):
        def submit(self, fn, data):
            if self.count == 0:
                self.count += 1
                raise RuntimeError("not yet")
            return super().submit(fn, data)

    box = Box()
    Sent(Refuses(works), packed(shop.double.func, 1), "work", box, may_repeat=False)

    assert box.value() == 2


def test_heartbeats_are_heard_while_the_attempt_goes_on(pool, tmp_path):
    signed = threading.Event()
    box = Box()
    Sent(pool, packed(_beats_until_told, str(tmp_path / "go")), "work", box, signed=signed.set)

    assert signed.wait(10)
    assert not box.arrived.is_set()
    (tmp_path / "go").touch()
    assert box.value() == "done"


def _beats_until_told(path: str) -> str:
    while not os.path.exists(path):
        get_runtime().heartbeat()
        time.sleep(0.005)
    return "done"


def test_an_executor_that_starts_again_by_itself_is_taken_at_its_word():
    kind = type("KilledWorker", (Exception,), {"__module__": "distributed.scheduler"})
    executor = Told(kind("gone.\nSee the log."), works)

    with pytest.raises(WorkerDiedError, match=r"how far it had come: KilledWorker: gone\.$"):
        sent(executor, shop.double.func, 2).value()

    assert executor.count == 1


def test_a_broken_pool_is_made_anew_and_only_the_guilty_attempt_fails():
    made = []

    def make():
        made.append(ProcessPoolExecutor(2, mp_context=FORKSERVER))
        return made[-1]

    executor = executor_named(make)
    assert isinstance(executor, Renewed)
    guilty = sent(executor, work.die, b"")
    others = [sent(executor, shop.double.func, i) for i in range(6)]

    assert [box.value() for box in others] == [0, 2, 4, 6, 8, 10]
    with pytest.raises(WorkerDiedError, match="begun 3 times"):
        guilty.value()
    assert len(made) == 3
    assert sent(executor, shop.double.func, 7).value() == 14
    made[-1].shutdown()


def test_who_stands_in_line_waits_for_those_before():
    futures: list[Future[bytes]] = []

    class Manual:
        def submit(self, fn, data):
            futures.append(Future())
            return futures[-1]

    executor = Renewed(Manual)
    replies = [executor.submit_in_line(work.echo, b"x") for _ in range(4)]
    dropped = replies.pop(1)

    assert dropped.cancel()
    assert len(futures) == 1
    futures[0].set_exception(BrokenExecutor("gone"))
    assert isinstance(replies[0].exception(), BrokenExecutor)
    assert len(futures) == 2
    futures[1].set_result(b"a")
    futures[2].set_result(b"b")
    assert [reply.result() for reply in replies[1:]] == [b"a", b"b"]


def test_the_advice_for_a_pool_that_stays_broken_is_to_give_what_makes_it():
    with pytest.raises(WorkerDiedError, match="give `executor=` a function that makes the executor"):
        sent(Told(BrokenExecutor("gone")), shop.double.func, 2).value()


def test_an_executor_that_takes_nothing_fails_the_task():
    class Closed:
        def submit(self, fn, data):
            raise RuntimeError("cannot schedule new futures after shutdown")

    with pytest.raises(WorkerDiedError, match="cannot schedule new futures after shutdown"):
        sent(Closed(), shop.double.func, 2).value()


def test_a_worker_that_gives_no_outcome_fails_the_task():
    with pytest.raises(UnfitWorkerError, match="it gave None instead"):
        sent(Told(lambda fn, data: None), shop.double.func, 2).value()


# ---------------------------------------------------------------- workers with other code


def test_processes_that_have_imported_older_code_are_replaced(pool, tmp_path, monkeypatch):
    path = tmp_path / "flowfn_test_older.py"
    path.write_text("def f():\n    return 'old'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    pool.end()
    import flowfn_test_older

    assert sent(pool, flowfn_test_older.f).value() == "old"
    path.write_text("def f():\n    return 'newer'\n")
    exec(path.read_text(), vars(flowfn_test_older))

    assert sent(pool, flowfn_test_older.f).value() == "newer"


def test_code_that_no_worker_has_fails_the_task(pool, tmp_path, monkeypatch):
    path = tmp_path / "flowfn_test_unsaved.py"
    path.write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import flowfn_test_unsaved

    exec("def f():\n    return 2\n", vars(flowfn_test_unsaved))

    with pytest.raises(UnfitWorkerError, match="it has another version of `flowfn_test_unsaved"):
        sent(pool, flowfn_test_unsaved.f).value()


# ---------------------------------------------------------------- ending one


def test_a_killed_attempt_is_not_heard_of_again(pool, tmp_path):
    box = sent(pool, work.wait_for, str(tmp_path).encode())
    pid = work.read(tmp_path / "pid")

    box.sent.kill()

    assert work.is_gone(pid)
    assert sent(pool, shop.double.func, 2).value() == 4
    assert box.outcomes == []


def test_an_executor_that_cannot_cancel_finishes_what_nobody_hears_of():
    started, go = threading.Event(), threading.Event()

    def waits(fn, data):
        started.set()
        go.wait()
        return fn(data)

    with ThreadPoolExecutor(1) as threads:

        class Slow:
            def submit(self, fn, data):
                return threads.submit(waits, fn, data)

        box = sent(Slow(), shop.double.func, 2)
        started.wait()
        box.sent.kill()
        go.set()

    assert box.outcomes == []


def test_an_outcome_that_is_there_is_not_taken_back_by_a_kill(pool):
    box = sent(pool, shop.double.func, 2)
    assert box.value() == 4

    box.sent.kill()

    assert sent(pool, shop.double.func, 3).value() == 6
