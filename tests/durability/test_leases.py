"""One run at a time records on a thread: two processes, a stopped one, a dead one; and what a run does that is late."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import ConfigError, FlowBusyError, LeaseLostError, PolicyError, ThreadBusyError

CONFIG = {"thread_id": "t"}

SCRIPT = """
    import os, sys, time
    from flowfn import entrypoint, task
    from flowfn.checkpoint import SqliteSaver

    saver = SqliteSaver({store!r})
    saver.lease_seconds = {lease}

    @task
    def wait_for(name):
        open({folder!r} + "/begun " + name + " " + str(os.getpid()), "w").close()
        while not os.path.exists({folder!r} + "/" + name):
            time.sleep(0.005)
        return name

    @entrypoint(checkpointer=saver, name="shop:flow")
    def flow(x):
        return [wait_for("one").result(), wait_for("two").result()]

    try:
        print(flow.invoke(None if sys.argv[1:] == ["on"] else 1, {{"thread_id": "t"}}))
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def begun(tmp_path):
    """Begins the script in a process of its own."""
    processes = []

    def begin(*args, lease=30.0):
        code = SCRIPT.format(store=str(tmp_path / "flows.db"), folder=str(tmp_path), lease=lease)
        (tmp_path / "shop.py").write_text(textwrap.dedent(code))
        process = subprocess.Popen(
            [sys.executable, str(tmp_path / "shop.py"), *args], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def wait_until(is_so, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def has_begun(folder, name):
    return any(path.name.startswith(f"begun {name}") for path in folder.iterdir())


def go_on(folder, name):
    (folder / name).touch()


@pytest.mark.timeout(60)
def test_of_two_processes_that_go_on_with_a_thread_one_runs_and_the_other_is_told(begun, tmp_path):
    first = begun()
    wait_until(lambda: has_begun(tmp_path, "one"))
    second = begun("on")

    told, _ = second.communicate(timeout=30)

    assert "ThreadBusyError Thread `t` is being run by process" in told
    assert f"process {first.pid}, since 20" in told
    go_on(tmp_path, "one")
    go_on(tmp_path, "two")
    assert first.communicate(timeout=30)[0] == "['one', 'two']\n"


@pytest.mark.timeout(60)
def test_a_dead_owner_is_replaced_at_once(begun, tmp_path):
    first = begun()
    wait_until(lambda: has_begun(tmp_path, "one"))
    first.kill()
    first.wait()
    assert [row.status for row in SqliteSaver(tmp_path / "flows.db").threads()] == ["killed"]

    go_on(tmp_path, "one")
    go_on(tmp_path, "two")

    assert begun("on").communicate(timeout=30)[0] == "['one', 'two']\n"


@pytest.mark.timeout(60)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
def test_a_process_that_wakes_up_after_its_lease_writes_nothing(begun, tmp_path):
    first = begun(lease=0.5)
    wait_until(lambda: has_begun(tmp_path, "one"))
    os.kill(first.pid, signal.SIGSTOP)
    try:
        time.sleep(0.7)
        go_on(tmp_path, "one")
        second = begun("on", lease=30.0)
        wait_until(lambda: has_begun(tmp_path, "two"))
        saver = SqliteSaver(tmp_path / "flows.db")
        before = saver.threads(), len(saver.runs("t"))
    finally:
        os.kill(first.pid, signal.SIGCONT)

    told, _ = first.communicate(timeout=30)

    assert told.startswith("LeaseLostError"), told
    assert (saver.threads(), len(saver.runs("t"))) == before
    go_on(tmp_path, "two")
    assert second.communicate(timeout=30)[0] == "['one', 'two']\n"


@pytest.mark.timeout(60)
def test_a_lease_is_renewed_while_a_task_takes_its_time(begun, tmp_path):
    first = begun(lease=0.3)
    wait_until(lambda: has_begun(tmp_path, "one"))
    time.sleep(1.0)
    told, _ = begun("on").communicate(timeout=30)
    assert "ThreadBusyError" in told
    go_on(tmp_path, "one")
    go_on(tmp_path, "two")
    assert first.communicate(timeout=30)[0] == "['one', 'two']\n"


# ---------------------------------------------------------------- in one process


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


class Shop:
    """A flow that waits inside its task until it is let go on."""

    def __init__(self, saver, **options):
        self.begun, self.goes_on, self.ran = threading.Event(), threading.Event(), []

        @task
        def work(x):
            self.ran.append(x)
            self.begun.set()
            assert self.goes_on.wait(20)
            return x

        @entrypoint(checkpointer=saver, name="flow", **options)
        def flow(x: int) -> int:
            return work(x).result()

        self.flow = flow

    def start(self, thread="t"):
        future = self.flow.thread(thread).start(1)
        assert self.begun.wait(20)
        return future


@pytest.mark.parametrize("is_async", [False, True])
def test_a_second_run_in_one_process_is_refused(saver, is_async):
    shop = Shop(saver)
    first = shop.start()
    with pytest.raises(ThreadBusyError, match="this process"):
        asyncio.run(shop.flow.ainvoke(2, CONFIG)) if is_async else shop.flow.invoke(2, CONFIG)
    assert shop.flow.thread("t").status() == "running"
    shop.goes_on.set()
    assert first.result(20) == 1
    assert shop.ran == [1]


@pytest.mark.parametrize("edit", ["update_state", "fork"])
def test_a_thread_is_not_edited_under_a_run(saver, edit):
    shop = Shop(saver)
    first = shop.start()
    with pytest.raises(ThreadBusyError):
        shop.flow.update_state(CONFIG, 5) if edit == "update_state" else shop.flow.fork(CONFIG)
    shop.goes_on.set()
    assert first.result(20) == 1


def test_whoever_waits_runs_when_the_thread_is_free(saver):
    shop = Shop(saver)
    first = shop.start()
    second = shop.flow.thread("t", on_busy="wait")
    waiting = second.start(2)
    time.sleep(0.1)
    assert not waiting.done()
    shop.goes_on.set()
    assert (first.result(20), waiting.result(20)) == (1, 2)


async def test_whoever_waits_in_a_coroutine_blocks_nobody(saver):
    shop = Shop(saver)
    first = shop.start()
    waiting = asyncio.create_task(shop.flow.thread("t", on_busy="wait").arun(2))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    shop.goes_on.set()
    assert await waiting == 2
    assert first.result(20) == 1


def test_a_run_that_is_left_out_runs_nothing(saver):
    shop = Shop(saver)
    first = shop.start()
    assert shop.flow.thread("t", on_busy="skip").start(2).result(20) is None
    shop.goes_on.set()
    assert first.result(20) == 1
    assert shop.ran == [1]


def test_a_flow_has_as_many_runs_as_it_may(saver):
    shop = Shop(saver, max_running=1)
    first = shop.start("a")
    with pytest.raises(FlowBusyError, match="may have 1 run"):
        shop.flow.thread("b").run(2)
    assert shop.flow.thread("b", on_busy="skip").run(2) is None
    shop.goes_on.set()
    assert first.result(20) == 1
    assert shop.flow.thread("b").run(2) == 2


def test_a_run_that_waits_for_an_answer_holds_nothing(saver):
    from flowfn import Command, interrupt

    @entrypoint(checkpointer=saver, max_running=1)
    def flow(x):
        return interrupt("go on?")

    flow.invoke(1, {"thread_id": "a"})
    flow.invoke(1, {"thread_id": "b"})
    assert flow.invoke(Command(resume="yes"), {"thread_id": "a"}) == "yes"


def test_a_run_whose_thread_is_deleted_stops(saver):
    shop = Shop(saver)
    first = shop.start()
    saver.delete_thread("t")
    shop.goes_on.set()
    with pytest.raises(LeaseLostError, match="deleted"):
        first.result(20)


def test_what_cannot_be_meant_is_refused(saver):
    shop = Shop(saver)
    with pytest.raises(ConfigError, match="'raise', 'wait' or 'skip'"):
        shop.flow.thread("t", on_busy="hope")
    with pytest.raises(PolicyError, match="on_busy"):
        Shop(saver, on_busy="hope")
    with pytest.raises(PolicyError, match="max_running"):
        Shop(saver, max_running=0)
