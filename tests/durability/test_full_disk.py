"""A disk that fills up while a flow runs: it says what was not stored, and goes on once there is room."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import Place
from flowfn.errors import SaveFailedError, StoreError

CONFIG = {"thread_id": "t"}
BIG = 20_000
ROOT = Path(__file__).parent.parent.parent


def mounted(folder):
    """Whether a disk of four megabytes could be put there."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        return False
    return subprocess.run([mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True).returncode == 0


class Disk:
    """A folder on which there is soon no more room, until `make_room`."""

    def __init__(self, folder, is_real):
        self.folder, self.is_real = folder, is_real
        self.path = str(folder / "flows.db")
        self.ballast = folder / "ballast"
        if is_real:
            self.ballast.write_bytes(b"x" * 3_800_000)

    def saver(self):
        saver = SqliteSaver(self.path)
        if not self.is_real:
            saver.threads()
            saver.sql._writer.execute("PRAGMA max_page_count = 70")
        return saver

    def make_room(self, saver):
        if self.is_real:
            self.ballast.unlink()
        else:
            saver.sql._writer.execute("PRAGMA max_page_count = 1000000")


@pytest.fixture(params=["disk", "quota"])
def disk(request, tmp_path):
    is_real = request.param == "disk" and mounted(tmp_path)
    if request.param == "disk" and not is_real and os.environ.get("CI") != "true":
        pytest.skip("a small disk can only be mounted by root; the quota stands in for it")
    yield Disk(tmp_path, is_real)
    if is_real:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def stored(saver):
    [run] = saver.runs("t")
    return [row.arguments for row in saver.calls(Place("t"), run.id)]


def by_hand(flow, how, value):
    return flow.invoke(value, CONFIG) if how == "sync" else asyncio.run(flow.ainvoke(value, CONFIG))


def big_flow(saver, ran, how):
    """Fifty results of 20 kB, one after another, or ten at a time."""

    @task
    def fetch(x):
        ran.append(x)
        return bytes([x]) * BIG

    if how == "sync":

        @entrypoint(checkpointer=saver)
        def flow(n):
            return sum(len(fetch(x).result()) for x in range(n))
    else:

        @entrypoint(checkpointer=saver)
        async def flow(n):
            total = 0
            for x in range(0, n, 10):
                total += sum(len(one) for one in await fetch.map(range(x, x + 10)))
            return total

    return flow


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_run_stopped_by_a_full_disk_names_the_result_and_goes_on_when_there_is_room(disk, how):
    # given: a disk with room for some of fifty results
    saver, ran = disk.saver(), []
    flow = big_flow(saver, ran, how)

    # when: it is full in the middle of the run, and still is at the next try
    for value in (50, None):
        with pytest.raises((SaveFailedError, StoreError)) as caught:
            by_hand(flow, how, value)
        assert "disk is full" in str(caught.value)
        assert disk.path in str(caught.value)
        if value is not None:
            assert "the result of task `fetch`" in str(caught.value)
    kept = stored(saver)
    assert 2 <= len(kept) < 50
    before = list(ran)

    # then: with room it goes on, and what was stored is not computed again
    disk.make_room(saver)
    assert by_hand(flow, how, None) == 50 * BIG
    again = ran[len(before) :]
    assert {repr(x) for x in again}.isdisjoint(kept)
    assert sorted({*map(repr, again), *kept}, key=int) == [str(x) for x in range(50)]
    saver.close()


def test_a_question_that_finds_no_room_is_asked_once_there_is(disk):
    saver, ran = disk.saver(), []
    asked = "?" * 600_000

    @task
    def fill(x):
        ran.append(x)
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        fill(x).result()
        return interrupt(asked)[0]

    with pytest.raises(SaveFailedError, match=r"the question of `flow` could not be stored.*disk is full"):
        flow.invoke(1, CONFIG)
    assert saver.questions() == []
    assert stored(saver) == ["1"]
    disk.make_room(saver)
    assert flow.invoke(None, CONFIG)["__interrupt__"][0].value == asked
    assert flow.invoke(Command(resume="yes"), CONFIG) == "y"
    assert ran == [1]
    saver.close()


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from flowfn import entrypoint, task
from flowfn.checkpoint import SqliteSaver
from flowfn.errors import FlowError

@task
def fetch(x):
    print("ran", x, flush=True)
    return bytes([x]) * 20_000

@entrypoint(checkpointer=SqliteSaver(sys.argv[1]))
def flow(n):
    return sum(len(fetch(x).result()) for x in range(n))

if sys.argv[2] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    print("done", flow.invoke(None if sys.argv[3] == "again" else 30, {"thread_id": "t"}))
except FlowError as error:
    print(type(error).__name__, error)
"""


def test_a_file_that_may_not_grow_is_named_so_and_grows_when_it_may(tmp_path):
    # given: a process whose files may have 300 kB, as a quota would have it
    path = str(tmp_path / "flows.db")

    def process(limit, how):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, path, limit, how], capture_output=True, text=True, cwd=ROOT, check=True
        )
        return done.stdout.splitlines()

    # when
    *ran, told = process("300000", "first")

    # then
    assert told.startswith("SaveFailedError The run stopped because the result of task `fetch` could not be stored")
    assert path in told
    assert "quota" in told
    assert 5 < len(ran) < 30
    kept = stored(SqliteSaver(path))
    assert kept == [str(x) for x in range(len(ran) - 1)]
    *again, told = process("0", "again")
    assert told == "done 600000"
    assert again == [f"ran {x}" for x in range(len(kept), 30)]
