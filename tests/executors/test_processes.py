"""The pool: one process an attempt, ended without harm to the others."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flowfn.errors import WorkerDiedError
from flowfn.executors import processes
from flowfn.executors.processes import Processes
from tests.executors import work

ROOT = Path(__file__).parents[2]


def script(tmp_path, code: str, *arguments: object) -> list[str]:
    """The command that runs the code as a script."""
    path = tmp_path / "script.py"
    path.write_text(code)
    return [sys.executable, str(path), *map(str, arguments)]


def run(command: list[str], **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=30, check=False, cwd="/", **options
    )


def test_work_is_done_in_other_processes_side_by_side(pool, tmp_path):
    jobs = [pool.submit(work.meet, str(tmp_path).encode()) for _ in range(2)]

    pids = {int(job.result()) for job in jobs}

    assert len(pids) == 2
    assert os.getpid() not in pids


def test_a_process_is_used_again(pool):
    pids = {pool.submit(work.pid, b"").result() for _ in range(20)}

    assert len(pids) <= 2


def test_an_error_of_who_listens_costs_its_own_job_alone(pool):
    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        pool.submit(work.pid, b"", fails).result()

    assert pool.submit(work.echo, b"x").result() == b"x"


def test_large_messages_go_both_ways(pool):
    data = os.urandom(5_000_000)

    assert pool.submit(work.echo, data).result() == data


def test_it_is_told_when_a_process_begins(pool):
    told = threading.Event()

    pool.submit(work.pid, b"", told.set).result()

    assert told.is_set()


@pytest.mark.parametrize(
    ("fate", "how"), [(work.die, "was ended by SIGKILL"), (work.leave, "ended with exit status 7")]
)
def test_a_process_that_dies_is_the_end_of_its_own_job_alone(pool, tmp_path, fate, how):
    other = pool.submit(work.wait_for, str(tmp_path).encode())
    work.read(tmp_path / "pid")

    with pytest.raises(WorkerDiedError, match=how):
        pool.submit(fate, b"").result()

    (tmp_path / "go").touch()
    assert int(other.result()) == work.read(tmp_path / "pid")
    assert pool.submit(work.echo, b"goes on").result() == b"goes on"


def test_a_process_that_dies_idle_costs_no_job(pool):
    idle = int(pool.submit(work.pid, b"").result())
    (process,) = [process for process in processes._processes if process._popen.pid == idle]
    os.kill(idle, signal.SIGKILL)
    while process.is_alive():
        time.sleep(0.001)

    assert int(pool.submit(work.pid, b"").result()) != idle
    assert not any(process._connection.closed for process in processes._processes)


def test_a_process_that_closes_its_connection_counts_as_dead(pool):
    with pytest.raises(WorkerDiedError, match=r"exit status 1|ended by SIGKILL"):
        pool.submit(work.hang_up, b"").result()


def test_a_death_is_heard_of_though_a_forked_child_lives_on(pool):
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        pool.submit(work.fork_and_die, b"").result(timeout=4)


def test_killing_a_job_ends_what_it_has_started_and_nothing_else(pool, tmp_path):
    (tmp_path / "other").mkdir()
    other = pool.submit(work.wait_for, str(tmp_path / "other").encode())
    job = pool.submit(work.start_another, str(tmp_path).encode())
    started = work.read(tmp_path / "pid")

    job.kill()

    assert isinstance(job.exception(), WorkerDiedError)
    assert work.is_gone(started)
    (tmp_path / "other" / "go").touch()
    assert other.exception() is None


def test_killing_a_job_that_nobody_has_begun_drops_it(tmp_path):
    pool = Processes(1)
    first = pool.submit(work.wait_for, str(tmp_path).encode())
    second = pool.submit(work.leave, b"")

    second.kill()
    (tmp_path / "go").touch()

    assert second.cancelled()
    assert first.exception() is None
    pool.end()


def test_killing_a_job_that_is_done_ends_nothing(pool):
    job = pool.submit(work.pid, b"")
    job.result()

    job.kill()

    assert work.echo(b"x") == pool.submit(work.echo, b"x").result()
    assert job.exception() is None


def test_processes_without_work_end(monkeypatch):
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.01)
    pool = Processes(1)

    first = int(pool.submit(work.pid, b"").result())

    assert work.is_gone(first)
    assert int(pool.submit(work.pid, b"").result()) != first


def test_a_pool_that_was_ended_lets_its_jobs_finish_and_works_again(tmp_path):
    pool = Processes(1)
    running = pool.submit(work.wait_for, str(tmp_path).encode())
    first = work.read(tmp_path / "pid")
    waiting = pool.submit(work.pid, b"")

    pool.end()
    later = pool.submit(work.pid, b"")
    (tmp_path / "go").touch()

    assert int(running.result()) == first
    assert int(waiting.result()) != first
    assert int(later.result()) != first
    assert work.is_gone(first)
    pool.end()


def test_many_uses_leave_nothing_behind():
    def use(count):
        pool = Processes(1)
        jobs = [pool.submit(work.die if i == 5 else work.pid, b"x") for i in range(count)]
        pids = {int(job.result()) for job in jobs if job.exception() is None}
        pool.end()
        assert all(work.is_gone(pid) for pid in pids)
        return len(pids)

    use(10)
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    assert use(100) == 2
    gc.collect()

    assert len(os.listdir("/proc/self/fd")) <= before[0]
    assert threading.active_count() <= before[1] + 1


SCRIPT = """
from flowfn.executors.processes import shared
from tests.executors import work
print(shared.submit(work.echo, b"hello").result().decode(), flush=True)
"""


@pytest.mark.parametrize("has_file", [True, False])
def test_it_works_without_a_main_guard_and_without_a_file(tmp_path, has_file):
    done = run(script(tmp_path, SCRIPT)) if has_file else run([sys.executable, "-"], input=SCRIPT)

    assert (done.stdout, done.stderr) == ("hello\n", "")


BUSY = """
import os, signal, sys, threading
from pathlib import Path
from flowfn.executors.processes import shared
from tests.executors import work
folder = Path(sys.argv[1])
job = shared.submit(work.start_another, str(folder).encode())
work.read(folder / "pid")
"""


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_lives_on_when_the_program_ends(tmp_path, end):
    run(script(tmp_path, BUSY + end, tmp_path))

    assert work.is_gone(work.read(tmp_path / "pid"))


CHILD = """
import os, signal, sys
from pathlib import Path
from flowfn.executors.processes import shared
from tests.executors import work
folder = Path(sys.argv[1])
mine = int(shared.submit(work.pid, b"").result())
job = shared.submit(work.start_another, str(folder).encode())
work.read(folder / "pid")
if os.fork() == 0:
    theirs = int(shared.submit(work.pid, b"").result())
    (folder / "child").write_text(f"{theirs != mine} {work.is_gone(work.read(folder / 'pid'))}")
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_has_processes_of_its_own_and_keeps_none_of_its_parent_alive(tmp_path):
    run(script(tmp_path, CHILD, tmp_path))

    while not (tmp_path / "child").exists():
        pass
    assert (tmp_path / "child").read_text() == "True True"


def test_an_interrupt_at_the_terminal_leaves_the_processes_alone(tmp_path):
    code = BUSY.replace("start_another", "wait_for") + (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.killpg(0, signal.SIGINT)\n"
        "(folder / 'go').touch()\n"
        "print(job.exception())\n"
    )

    done = run(script(tmp_path, code, tmp_path), start_new_session=True)

    assert done.stdout == "None\n"
