"""The first Ctrl-C or SIGTERM is a pause, the second one is not; and nothing else of the process is disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from flowfn import entrypoint, interrupt, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.checkpoint.records import SaveRun
from flowfn.context import CURRENT
from flowfn.errors import FlowPaused, FlowWaiting
from flowfn.pregel import signals

CONFIG = {"thread_id": "t"}
RAN: list[object] = []
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])

pytestmark = [pytest.mark.timeout(20), pytest.mark.skipif(sys.platform == "win32", reason="sends signals")]


@pytest.fixture(autouse=True)
def _as_a_script_finds_it(monkeypatch):
    RAN.clear()
    monkeypatch.setenv("FLOWFN_GRACE", "10")
    before = {number: signal.getsignal(number) for number in signals.WATCHED}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def saver(tmp_path):
    with contextlib.closing(SqliteSaver(tmp_path / "flows.db")) as saver:
        yield saver


def until(is_so, seconds=10.0):
    give_up = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def press(number=signal.SIGINT):
    """Send a signal from inside a flow, and return when its run is being paused."""
    run = CURRENT.get().frame.run
    while signals._watch.signal == 0:  # Python notices one late that comes just before the main thread goes to sleep
        os.kill(os.getpid(), number)
        time.sleep(0.02)
    until(lambda: run.stop is not None)


@task
def presses(x, number=signal.SIGINT):
    RAN.append(x)
    if RAN.count(x) == 1:
        press(number)
    return x


@task
def work(x):
    RAN.append(x)
    return x


@task
async def apresses(x, number=signal.SIGINT):
    RAN.append(x)
    if RAN.count(x) == 1:
        press(number)
        await asyncio.sleep(0.01)
    return x


@task
async def awork(x):
    RAN.append(x)
    return x


# ---------------------------------------------------------------- the first one


@BOTH
def test_what_runs_is_let_finish_and_nothing_more_begins(number, saver):
    # given
    @entrypoint(checkpointer=saver)
    def flow(x):
        return presses("first", number).result(), work("second").result()

    # when
    with pytest.raises(FlowPaused) as paused:
        flow.thread("t").run(1)

    # then
    assert (paused.value.flow, paused.value.thread, paused.value.signal) == ("flow", "t", number)
    assert flow.thread("t").status() == "paused"
    assert [call.status for call in flow.thread("t").calls()] == ["finished"]
    assert flow.thread("t").run(1) == ("first", "second")
    assert RAN == ["first", "second"]


@BOTH
def test_coroutines_that_run_are_let_finish_too(number, saver):
    # given
    @entrypoint(checkpointer=saver)
    async def flow(x):
        return await apresses("first", number), await awork("second")

    # when
    with pytest.raises(FlowPaused):
        asyncio.run(flow.thread("t").arun(1))

    # then
    assert flow.thread("t").status() == "paused"
    assert asyncio.run(flow.thread("t").arun(1)) == ("first", "second")
    assert RAN == ["first", "second"]


def test_a_function_that_runs_coroutines_is_paused_like_any_other(saver):
    # given
    begun, ended = [], []

    @task
    async def slow(x):
        begun.append(x)
        await asyncio.sleep(0.1)
        ended.append(x)
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        futures = [slow(1), slow(2)]
        until(lambda: len(begun) == 2)
        press()
        return [future.result() for future in futures]

    # when
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)

    # then
    assert sorted(ended) == [1, 2]
    assert len(flow.thread("t").calls()) == 2


@pytest.mark.parametrize("verb", ["run", "resume", "invoke", "arun", "aresume", "ainvoke", "astream"])
def test_every_verb_that_runs_in_the_main_thread_is_paused(verb, saver):
    # given
    @entrypoint(checkpointer=saver)
    def flow(x):
        return interrupt("go on?") and (presses("first").result(), work("second").result())

    with contextlib.suppress(FlowWaiting):
        flow.thread("t", ask=False).run(1)
    flow.thread("t").answer(True)

    async def watched():
        return [part async for part in flow.astream(None, CONFIG)]

    calls = {
        "run": lambda: flow.thread("t").run(1),
        "resume": lambda: flow.thread("t").resume(),
        "invoke": lambda: flow.invoke(None, CONFIG),
        "arun": lambda: asyncio.run(flow.thread("t").arun(1)),
        "aresume": lambda: asyncio.run(flow.thread("t").aresume()),
        "ainvoke": lambda: asyncio.run(flow.ainvoke(None, CONFIG)),
        "astream": lambda: asyncio.run(watched()),
    }

    # when, then
    with pytest.raises(FlowPaused):
        calls[verb]()
    assert flow.thread("t").status() == "paused"
    assert RAN == ["first"]


def test_a_press_while_a_stream_is_watched_pauses_what_runs_on_its_worker(saver):
    # given
    @task
    def presses_from_a_worker(x):
        RAN.append(x)
        run = CURRENT.get().frame.run
        while run.stop is None:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            with contextlib.suppress(AssertionError):
                until(lambda: run.stop is not None, seconds=0.5)
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        return presses_from_a_worker("first").result(), work("second").result()

    # when
    with pytest.raises(KeyboardInterrupt):
        list(flow.stream(1, CONFIG))

    # then
    assert RAN == ["first"]
    assert flow.thread("t").status() == "paused"
    assert [call.value for call in flow.thread("t").calls()] == ["'first'"]


def test_a_pause_is_no_error_that_a_program_swallows(saver):
    # given
    @entrypoint(checkpointer=saver)
    def flow(x):
        return presses(x).result(), work(x).result()

    done = []

    # when: a loop that goes on whatever fails
    with pytest.raises(KeyboardInterrupt):
        for x in range(3):
            try:
                done.append(flow.invoke(x, {"thread_id": str(x)}))
            except Exception as error:
                done.append(error)

    # then
    assert done == []
    assert RAN == [0]


def test_a_run_that_another_flows_task_runs_is_paused_with_it_and_that_is_no_failure_of_the_task(saver):
    # given
    @entrypoint(checkpointer=saver)
    def inner(x):
        return presses("first").result(), work("second").result()

    @task
    def outer_task(x):
        return inner.thread("inner").run(x)

    @entrypoint(checkpointer=saver)
    def outer(x):
        return outer_task(x).result()

    # when
    with pytest.raises(FlowPaused) as paused:
        outer.thread("outer").run(1)

    # then
    assert paused.value.thread == "outer"
    assert [outer.thread(id).status() for id in ("inner", "outer")] == ["paused", "paused"]
    assert outer.thread("outer").run(1) == ("first", "second")
    assert RAN == ["first", "second"]


def test_a_nested_flow_is_paused_with_the_one_around_it(saver):
    # given
    @entrypoint
    def inner(x):
        return presses("first").result(), work("second").result()

    @entrypoint(checkpointer=saver)
    def outer(x):
        return inner.invoke(x), work("third").result()

    # when
    with pytest.raises(FlowPaused):
        outer.invoke(1, CONFIG)

    # then
    assert RAN == ["first"]
    assert outer.invoke(None, CONFIG) == (("first", "second"), "third")
    assert RAN == ["first", "second", "third"]


def test_a_run_that_begins_after_the_signal_does_not_begin(saver):
    # given
    began = []

    @entrypoint(checkpointer=saver)
    def other(x):
        began.append(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        press()
        other.thread("other").run(x)

    # when
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)

    # then
    assert began == []
    other.thread("other").run(1)
    assert began == [1]


def test_runs_of_other_threads_are_paused_with_the_main_threads(saver):
    # given
    goes_on, ended = threading.Event(), []

    @entrypoint(checkpointer=saver)
    def beside(x):
        goes_on.wait(10)
        return work("beside").result()

    def run_beside():
        with contextlib.suppress(FlowPaused):
            ended.append(beside.invoke(1, {"thread_id": "beside"}))

    @entrypoint(checkpointer=saver)
    def flow(x):
        worker = threading.Thread(target=run_beside)
        worker.start()
        until(lambda: len(signals._running) == 2)
        press()
        goes_on.set()
        worker.join()
        return work("main").result()

    # when
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)

    # then
    assert ended == RAN == []
    assert beside.thread("beside").status() == "paused"


def test_people_are_told_what_is_paused_and_how_to_go_on(saver, capsys):
    # given
    @entrypoint(checkpointer=saver)
    def nightly(x):
        return presses(x).result(), work(x).result()

    # when
    with pytest.raises(FlowPaused, match=r'nightly\.thread\("t"\)\.resume\(\)'):
        nightly.invoke(1, CONFIG)

    # then
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith("flowfn pauses `nightly` on thread `t`: what runs may finish within 10 s")
    assert told.endswith('Go on with: nightly.thread("t").resume()')


def test_signals_at_the_same_moment_are_one(saver):
    # given: a wrapper that hands on what the terminal has sent to both
    @task
    def presses_twice(x):
        RAN.append(x)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: CURRENT.get().frame.run.stop is not None)
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        return presses_twice(x).result(), work(2).result()

    # when, then
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)
    assert flow.invoke(None, CONFIG) == (1, 2)
    assert RAN == [1, 2]


# ---------------------------------------------------------------- when the grace time is over


def computes():
    """Code that makes no call and looks at no result."""
    while True:
        sum(range(1000))


def sleeps():
    time.sleep(60)


@pytest.mark.parametrize("busy", [computes, sleeps])
def test_a_body_that_makes_no_call_is_interrupted_when_the_grace_time_is_over(busy, saver, monkeypatch):
    # given
    monkeypatch.setenv("FLOWFN_GRACE", "100ms")
    pressed = []

    @entrypoint(checkpointer=saver)
    def flow(x):
        value = work(x).result()
        if not pressed:
            pressed.append(True)
            press()
            busy()
        return value

    # when
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)

    # then
    assert flow.thread("t").status() == "paused"
    assert flow.invoke(None, CONFIG) == 1
    assert RAN == [1]


def test_a_coroutine_that_blocks_its_loop_is_interrupted_when_the_grace_time_is_over(saver, monkeypatch):
    # given
    monkeypatch.setenv("FLOWFN_GRACE", "0")

    @entrypoint(checkpointer=saver)
    async def flow(x):
        await awork(x)
        press()
        computes()

    # when, then
    with pytest.raises(FlowPaused):
        asyncio.run(flow.ainvoke(1, CONFIG))
    assert flow.thread("t").status() == "paused"


def test_a_coroutine_that_waits_is_cancelled_when_the_grace_time_is_over(saver, monkeypatch):
    # given
    monkeypatch.setenv("FLOWFN_GRACE", "0")
    tidied = []

    @task
    async def waits(x):
        try:
            await asyncio.sleep(60)
        finally:
            tidied.append(x)

    @entrypoint(checkpointer=saver)
    async def flow(x):
        future = waits(x)
        await asyncio.sleep(0.01)
        press()
        await future

    # when, then
    with pytest.raises(FlowPaused):
        asyncio.run(flow.ainvoke(1, CONFIG))
    assert tidied == [1]
    assert flow.thread("t").status() == "paused"


def test_what_other_threads_do_is_given_up_when_the_grace_time_is_over_and_not_recorded(saver, monkeypatch):
    # given
    monkeypatch.setenv("FLOWFN_GRACE", "0")
    begun, goes_on, late = threading.Event(), threading.Event(), []

    @task(inline=False)
    def endless(x):
        begun.set()
        goes_on.wait(10)
        try:
            work(x)
        except BaseException as error:
            late.append(error)
            raise
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        future = endless(x)
        begun.wait(10)
        if not late:
            press()
        return future.result()

    # when
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)
    goes_on.set()
    until(lambda: late)

    # then
    assert flow.thread("t").status() == "paused"
    assert flow.thread("t").calls() == []
    assert RAN == []
    assert flow.invoke(None, CONFIG) == 1


def test_a_limit_of_one_place_does_not_keep_what_waits_from_ending(saver, monkeypatch):
    # given: a task that has the only place and never ends, and one that waits to have it back
    monkeypatch.setenv("FLOWFN_GRACE", "0")
    begun = threading.Event()

    @task(inline=False)
    def endless(x):
        begun.set()
        threading.Event().wait(30)

    @task
    def waits(x):
        future = endless(x)
        with contextlib.suppress(TimeoutError):
            future.result(timeout=0.05)
        return future.result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        future = waits(x)
        if not begun.wait(0):
            threading.Thread(target=lambda: (begun.wait(10), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
        return future.result()

    # when, then
    with pytest.raises(FlowPaused):
        flow.invoke(1, {**CONFIG, "max_concurrency": 1})
    assert flow.thread("t").status() == "paused"


def test_a_grace_time_that_cannot_be_meant_is_told_and_costs_nobody_the_pause(saver, monkeypatch, capsys):
    # given
    monkeypatch.setenv("FLOWFN_GRACE", "soon")

    @entrypoint(checkpointer=saver)
    def flow(x):
        return presses(x).result(), work(2).result()

    # when, then
    with pytest.raises(FlowPaused):
        flow.invoke(1, CONFIG)
    assert "`FLOWFN_GRACE` cannot be 'soon'" in capsys.readouterr().err
    assert len(flow.thread("t").calls()) == 1


# ---------------------------------------------------------------- the second one


def test_a_second_press_stops_at_once(saver, monkeypatch):
    # given
    monkeypatch.setattr(signals, "ECHO", 0.0)
    pressed = []

    @task(inline=False)
    def endless(x):
        threading.Event().wait(30)

    @entrypoint(checkpointer=saver)
    def flow(x):
        value = work(x).result()
        if not pressed:
            pressed.append(endless(x))
            press()
            os.kill(os.getpid(), signal.SIGINT)
            computes()
        return value

    # when
    with pytest.raises(KeyboardInterrupt) as stopped:
        flow.invoke(1, CONFIG)

    # then
    assert not isinstance(stopped.value, FlowPaused)
    assert flow.thread("t").status() == "paused"
    assert flow.invoke(None, CONFIG) == 1
    assert RAN == [1]


def test_further_presses_end_even_a_run_whose_store_does_not_answer(saver, tmp_path, monkeypatch):
    # given: a database that somebody has locked, for which the runtime would wait half a minute
    monkeypatch.setattr(signals, "ECHO", 0.0)
    locking = sqlite3.connect(tmp_path / "flows.db", isolation_level=None, check_same_thread=False)
    is_over = threading.Event()

    def presses_until_it_is_over():
        while not is_over.wait(0.1):
            os.kill(os.getpid(), signal.SIGINT)

    @entrypoint(checkpointer=saver)
    def flow(x):
        work(1).result()
        locking.execute("BEGIN IMMEDIATE")
        threading.Thread(target=presses_until_it_is_over, daemon=True).start()
        return work(2).result()

    # when
    began = time.monotonic()
    try:
        flow.invoke(1, CONFIG)
    except KeyboardInterrupt:
        is_over.set()
    locking.close()

    # then
    assert is_over.is_set()
    assert time.monotonic() - began < 5
    assert [call.value for call in flow.thread("t").calls()] == ["1"]


# ---------------------------------------------------------------- what else there is


def handlers():
    return [signal.getsignal(number) for number in signals.WATCHED]


@pytest.mark.parametrize("end", ["finishes", "fails", "pauses"])
def test_handlers_are_restored_however_the_run_ends(end, saver):
    # given
    before = handlers()
    during = []

    @entrypoint(checkpointer=saver)
    def flow(x):
        during.append(handlers())
        if end == "fails":
            raise LookupError
        if end == "pauses":
            press()
        return work(x).result()

    # when
    with contextlib.suppress(LookupError, FlowPaused):
        flow.invoke(1, CONFIG)

    # then
    assert during[0] != before
    assert handlers() == before


def test_nested_and_overlapping_runs_set_handlers_once(saver):
    # given
    before, during = handlers(), []

    @entrypoint(checkpointer=saver)
    async def flow(x):
        during.append(handlers())
        await awork(x)
        during.append(handlers())

    async def all_of_them():
        before.extend(handlers())
        await asyncio.gather(*[flow.thread(str(x)).arun(x) for x in range(3)])
        before.extend(handlers())

    # when
    asyncio.run(all_of_them())

    # then
    assert all(one == during[0] for one in during)
    assert before[2:4] == before[4:6] != during[0]


def test_handlers_of_the_program_are_left_alone(saver):
    # given
    told = []
    signal.signal(signal.SIGINT, lambda number, frame: told.append(number))

    @entrypoint(checkpointer=saver)
    def flow(x):
        os.kill(os.getpid(), signal.SIGINT)
        return work(x).result()

    # when, then
    assert flow.invoke(1, CONFIG) == 1
    assert told == [signal.SIGINT]


def test_no_handlers_are_set_outside_the_main_thread(saver):
    # given
    before, during = handlers(), []

    @entrypoint(checkpointer=saver)
    def flow(x):
        during.append(handlers())

    # when
    worker = threading.Thread(target=lambda: flow.invoke(1, CONFIG))
    worker.start()
    worker.join()

    # then
    assert during == [before]


@pytest.mark.parametrize("saver_of_it", [None, InMemorySaver], ids=["nothing", "memory"])
def test_a_run_that_ends_with_its_process_is_interrupted_as_ever(saver_of_it):
    # given
    @entrypoint(checkpointer=saver_of_it and saver_of_it())
    def flow(x):
        os.kill(os.getpid(), signal.SIGINT)
        return work(x).result()

    # when
    with pytest.raises(KeyboardInterrupt) as interrupted:
        flow.invoke(1, CONFIG)

    # then
    assert type(interrupted.value) is KeyboardInterrupt
    assert RAN == []


class PressedAtTheEnd(SqliteSaver):
    """A signal comes while it is stored that a run has finished."""

    def save(self, saves):
        super().save(saves)
        if any(type(save) is SaveRun and save.row.status == "finished" for save in saves):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_that_comes_when_the_run_has_just_ended_is_not_lost(tmp_path):
    # given
    with contextlib.closing(PressedAtTheEnd(tmp_path / "flows.db")) as saver:

        @entrypoint(checkpointer=saver)
        def flow(x):
            return work(x).result()

        # when, then
        with pytest.raises(KeyboardInterrupt) as interrupted:
            flow.invoke(1, CONFIG)
        assert not isinstance(interrupted.value, FlowPaused)
        assert flow.thread("t").status() == "finished"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_ends_by_a_signal_as_ever(saver):
    # given
    @task
    def forks(x):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @entrypoint(checkpointer=saver)
    def flow(x):
        return forks(x).result()

    # when, then
    assert flow.invoke(1, CONFIG) == -signal.SIGTERM


def test_a_coroutine_that_is_cancelled_while_it_is_paused_ends_as_cancelled(saver):
    # given
    begun, paused, goes_on = threading.Event(), asyncio.Event(), threading.Event()

    @task(inline=False)
    def slow(x):
        begun.set()
        goes_on.wait(10)
        return x

    @entrypoint(checkpointer=saver)
    async def flow(x):
        future = slow(x)
        await asyncio.to_thread(begun.wait)
        press()
        paused.set()
        return await future

    async def main():
        running = asyncio.create_task(flow.ainvoke(1, CONFIG))
        running.add_done_callback(lambda done: ends.append(done.cancelled()))
        await paused.wait()
        running.cancel()
        asyncio.get_running_loop().call_later(0.01, goes_on.set)
        await asyncio.sleep(10)

    # when
    ends = []
    with pytest.raises(KeyboardInterrupt):  # which the signal is to whoever else runs
        asyncio.run(main())

    # then
    assert ends == [True]
    assert flow.thread("t").status() == "paused"
    assert [call.value for call in flow.thread("t").calls()] == ["1"]


def test_flows_are_imported_without_setting_anything():
    code = "import signal, flowfn; print(signal.getsignal(2) is signal.default_int_handler, signal.getsignal(15) == 0)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "True"]
