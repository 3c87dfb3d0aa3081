"""`SqliteSaver(path, read_only=True)`: it shows everything, and changes nothing in the file or beside it."""

import asyncio
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import AbandonQuestions, Place, SaveCall, SaveQuestion
from flowfn.errors import ConfigError, StoreError
from tests.checkpoint.filling import RUN, call, question, start

PLACE = Place("t")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "flows.db")


@pytest.fixture
def stored(path):
    """A file that nobody has open, with a call and a question."""
    with SqliteSaver(path) as saver:
        start(saver)
        saver.save([SaveCall(PLACE, RUN, call(1)), SaveQuestion(PLACE, question(1))])
    return path


def folder(path):
    """Names and contents of all that lies there."""
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest() if each.is_file() else None
        for each in Path(path).parent.iterdir()
    }


def everything(saver):
    return (
        saver.load(PLACE),
        saver.threads(),
        saver.questions(),
        saver.runs("t"),
        saver.calls(PLACE, RUN),
        list(saver.list(None)),
        saver.get_tuple({"thread_id": "t"}),
        saver.question("t", question(1).id),
    )


def test_a_viewer_sees_everything_and_leaves_no_trace(stored):
    before = folder(stored)
    with SqliteSaver(stored, read_only=True) as viewer:
        seen = everything(viewer)
        assert asyncio.run(viewer.aload(PLACE)) == seen[0]
    assert folder(stored) == before
    assert list(before) == ["flows.db"]
    assert everything(SqliteSaver(stored)) == seen
    assert repr(viewer) == f"SqliteSaver({stored!r}, read_only=True)"


EMPTY = {"id": "x", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
WRITES = {
    "save": lambda saver: saver.save([SaveCall(PLACE, RUN, call(2))]),
    "save_now": lambda saver: saver.save_now([AbandonQuestions(PLACE)]),
    "answer": lambda saver: saver.answer("t", {question(1).id: 1}),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_for_runs": lambda saver: saver.delete_for_runs([RUN]),
    "prune": lambda saver: saver.prune(["t"]),
    "trust": lambda saver: saver.trust(),
    "put": lambda saver: saver.put(
        {"thread_id": "t"},
        {"id": "x", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}},
        {},
        {},
    ),
    "put_writes": lambda saver: saver.put_writes({"thread_id": "t", "checkpoint_id": RUN}, [("x", 1)], "task"),
    "asave": lambda saver: asyncio.run(saver.asave([SaveCall(PLACE, RUN, call(2))])),
    "aanswer": lambda saver: asyncio.run(saver.aanswer("t", {question(1).id: 1})),
    "aprune": lambda saver: asyncio.run(saver.aprune(["t"])),
    "atrust": lambda saver: asyncio.run(saver.atrust()),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_open_elsewhere", [False, True])
def test_whatever_would_write_says_that_this_is_a_viewer(stored, write, is_open_elsewhere):
    with SqliteSaver(stored) as other, SqliteSaver(stored, read_only=True) as viewer:
        if is_open_elsewhere:
            other.load(PLACE)
        before = everything(viewer)
        with pytest.raises(StoreError, match="for viewing only") as caught:
            WRITES[write](viewer)
        assert stored in str(caught.value)
        assert everything(viewer) == before


def test_a_viewer_makes_no_file(path):
    viewer = SqliteSaver(path, read_only=True)
    for _ in range(2):
        with pytest.raises(StoreError, match="is not there"):
            viewer.threads()
    assert os.listdir(os.path.dirname(path)) == []
    with SqliteSaver(path) as saver:
        start(saver)
        assert len(viewer.threads()) == 1


@pytest.mark.parametrize("make", [lambda path: open(path, "w").close(), lambda path: make_other(path, "users")])
def test_a_file_without_threads_says_so_and_stays_as_it_is(path, make):
    make(path)
    before = folder(path)
    with pytest.raises(StoreError, match="holds no threads yet"):
        SqliteSaver(path, read_only=True).threads()
    assert folder(path) == before


def make_other(path, table):
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table} (id)")


def test_files_that_are_no_flows_are_refused_untouched(path):
    make_other(path, "checkpoints")
    before = folder(path)
    with pytest.raises(StoreError, match="another program"):
        SqliteSaver(path, read_only=True).threads()
    Path(path).write_text("Dear diary, " * 500)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        SqliteSaver(path, read_only=True).threads()
    Path(path).unlink()
    make_other(path, "checkpoints")
    assert folder(path).keys() == before.keys()


def test_a_database_in_memory_has_nothing_to_view():
    with pytest.raises(ConfigError, match="read_only"):
        SqliteSaver(":memory:", read_only=True)


def test_a_viewer_sees_what_others_store_meanwhile(stored):
    viewer = SqliteSaver(stored, read_only=True)
    assert len(viewer.calls(PLACE, RUN)) == 1
    writer = SqliteSaver(stored)
    for seq in range(2, 12):
        writer.save([SaveCall(PLACE, RUN, call(seq))])
        assert len(viewer.calls(PLACE, RUN)) == seq
    writer.close()
    assert len(viewer.calls(PLACE, RUN)) == 11


def test_a_viewer_keeps_nobody_from_folding_the_log_away(stored):
    writer, viewer = SqliteSaver(stored), SqliteSaver(stored, read_only=True)
    writer.save([SaveCall(PLACE, RUN, call(2))])
    everything(viewer)
    writer.close()
    everything(viewer)
    assert os.listdir(os.path.dirname(stored)) == ["flows.db"]


WRITER = """
import sys
from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import Place, SaveCall
from tests.checkpoint.filling import RUN, call
saver = SqliteSaver(sys.argv[1])
print("ready", flush=True)
for seq in range(2, 100_000):
    saver.save([SaveCall(Place("t"), RUN, call(seq))])
"""


def test_a_viewer_works_while_another_process_writes_and_after_it_was_killed(stored):
    child = subprocess.Popen([sys.executable, "-c", WRITER, stored], stdout=subprocess.PIPE, cwd=ROOT)
    child.stdout.readline()
    viewer, seen = SqliteSaver(stored, read_only=True), [0]
    while len(seen) < 30 or seen[-1] < 200:
        seen.append(len(viewer.calls(PLACE, RUN)))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert seen == sorted(seen)
    log = hashlib.sha256(Path(f"{stored}-wal").read_bytes()).hexdigest()
    main = hashlib.sha256(Path(stored).read_bytes()).hexdigest()
    left = viewer.calls(PLACE, RUN)
    assert len(left) >= seen[-1]
    assert hashlib.sha256(Path(f"{stored}-wal").read_bytes()).hexdigest() == log
    assert hashlib.sha256(Path(stored).read_bytes()).hexdigest() == main
    assert SqliteSaver(stored).calls(PLACE, RUN) == left


ROOT = Path(__file__).parent.parent.parent


def test_a_viewer_waits_for_nobody_who_holds_the_right_to_write(stored):
    other = sqlite3.connect(stored, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM calls")
    assert len(SqliteSaver(stored, read_only=True, timeout=0).calls(PLACE, RUN)) == 1


def test_a_change_that_no_lock_could_keep_out_is_told(stored):
    viewer = SqliteSaver(stored, read_only=True)

    def slow():
        rows = yield from viewer._calls(PLACE, RUN)
        with SqliteSaver(stored) as saver:
            saver.save([SaveCall(PLACE, RUN, call(2))])
        os.utime(stored, ns=(1, 1))
        return rows

    with pytest.raises(StoreError, match="View it again"):
        viewer.sql.run(slow())
    assert len(viewer.calls(PLACE, RUN)) == 2


def test_a_viewer_works_across_a_fork(stored):
    viewer = SqliteSaver(stored, read_only=True)
    assert len(viewer.threads()) == 1
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if len(viewer.threads()) == 1 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(viewer.threads()) == 1
