"""What only a file can do: be shared, killed, reopened, and stay small."""

import asyncio
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flowfn.checkpoint import InMemorySaver, SqliteSaver, open_saver
from flowfn.checkpoint.base import (
    Place,
    RunRow,
    SaveCall,
    SaveQuestion,
    SaveRun,
)
from flowfn.errors import AlreadyAnsweredError, ConfigError, StoreConflictError, StoreError
from tests.checkpoint.filling import RUN, call, question, start

ROOT = Path(__file__).parent.parent.parent
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "flows.db")


# ---------------------------------------------------------------- addresses


def test_an_address_names_a_saver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_saver("memory://"), InMemorySaver)
    assert open_saver("sqlite:///a.db").path == str(tmp_path / "a.db")
    assert open_saver(f"sqlite:///{tmp_path}/a.db").path == str(tmp_path / "a.db")
    assert open_saver("sub/a.db").path == str(tmp_path / "sub" / "a.db")
    with pytest.raises(ConfigError, match="sqlite:///"):
        open_saver("mysql://localhost/flows")
    assert os.listdir(tmp_path) == []


def test_a_saver_is_a_context_blocking_and_awaited(path):
    with SqliteSaver.from_conn_string(path) as saver:
        start(saver)

    async def awaited():
        async with SqliteSaver.from_conn_string(f"sqlite:///{path}") as saver:
            return await saver.aload(Place("t"))

    assert asyncio.run(awaited()).run.id == RUN


def test_a_connection_stands_for_its_file(path):
    assert SqliteSaver(sqlite3.connect(path)).path == path
    assert SqliteSaver(sqlite3.connect(":memory:")).path == ":memory:"


def test_everything_is_there_after_a_restart(path):
    saver = SqliteSaver(path)
    place = start(saver)
    saver.save([SaveCall(place, RUN, call(1)), SaveQuestion(place, question(1))])
    before = saver.load(place), list(saver.list(None))
    saver.close()
    assert (SqliteSaver(path).load(place), list(SqliteSaver(path).list(None))) == before


# ---------------------------------------------------------------- several processes


def test_one_saver_serves_loops_and_workers_alike(path):
    saver = SqliteSaver(path)
    place = start(saver)
    asyncio.run(saver.asave([SaveCall(place, RUN, call(1))]))
    saver.save([SaveCall(place, RUN, call(2))])

    async def on_a_worker():
        await asyncio.to_thread(saver.save, [SaveCall(place, RUN, call(3))])
        await saver.asave([SaveCall(place, RUN, call(4))])
        return [row.seq for row in await saver.acalls(place, RUN)]

    assert asyncio.run(on_a_worker()) == [1, 2, 3, 4]


def write_a_thread(path, thread, saver=None):
    saver = saver or SqliteSaver(path)
    place = start(saver, thread)
    for seq in range(1, 101):
        saver.save([SaveCall(place, RUN, call(seq))])


@pytest.mark.parametrize("is_shared", [False, True], ids=["own saver", "saver from before the fork"])
def test_processes_write_different_threads_and_none_is_locked_out(path, is_shared):
    saver = SqliteSaver(path)
    start(saver)
    threads = [str(number) for number in range(4)]
    shared = saver if is_shared else None
    children = [FORK.Process(target=write_a_thread, args=(path, thread, shared)) for thread in threads]
    for child in children:
        child.start()
    write_a_thread(path, "mine", saver)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    assert [len(saver.calls(Place(thread), RUN)) for thread in [*threads, "mine"]] == [100] * 5


def test_two_processes_that_record_on_one_run_conflict(path):
    one, other = SqliteSaver(path), SqliteSaver(path)
    place = start(one)
    one.save([SaveCall(place, RUN, call(1))])
    with pytest.raises(StoreConflictError) as caught:
        other.save([SaveCall(place, RUN, call(1))])
    assert path in str(caught.value)


def test_the_number_of_a_run_that_was_undone_is_not_remembered(path):
    saver = SqliteSaver(path)
    place = start(saver)
    saver.save([SaveCall(place, RUN, call(1))])
    undone, other = Place("undone"), Place("other")
    with pytest.raises(StoreConflictError):
        saver.save(
            [
                SaveRun(undone, RunRow("r", "flow", 1, 1.0, "running")),
                SaveCall(undone, "r", call(1)),
                SaveCall(place, RUN, call(1)),
            ]
        )
    SqliteSaver(path).save([SaveRun(other, RunRow("r", "flow", 1, 1.0, "running"))])
    with pytest.raises(StoreConflictError):
        saver.save([SaveCall(undone, "r", call(1))])
    assert saver.calls(other, "r") == []


def answer_all(path, name, gate, won):
    saver = SqliteSaver(path)
    gate.wait()
    for number in range(30):
        try:
            saver.answer("t", {question(number).id: name}, by=name)
            won.put((number, name))
        except AlreadyAnsweredError:
            pass
    won.put(None)


def test_of_two_people_who_answer_at_once_one_wins_and_the_other_is_told(path):
    saver = SqliteSaver(path)
    place = start(saver)
    saver.save([SaveQuestion(place, question(number)) for number in range(30)])
    gate, won = FORK.Barrier(2), FORK.Queue()
    people = [FORK.Process(target=answer_all, args=(path, name, gate, won)) for name in ("kim", "lee")]
    for person in people:
        person.start()
    winners, done = {}, 0
    while done < 2:
        told = won.get(timeout=10)
        if told is None:
            done += 1
        else:
            assert told[0] not in winners
            winners[told[0]] = told[1]
    for person in people:
        person.join()
    assert {number: saver.question("t", question(number).id).by for number in range(30)} == winners
    assert len(winners) == 30


KILLED = """
import sys
from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import SaveCall
from tests.checkpoint.filling import RUN, call, start
saver = SqliteSaver(sys.argv[1])
place = start(saver)
for seq in range(1, 100_000):
    saver.save([SaveCall(place, RUN, call(seq))])
    print(seq, flush=True)
"""


def test_a_killed_process_loses_nothing_that_was_acknowledged(path):
    child = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    acknowledged = 0
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged >= 500:
            break
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
    stored = [row.seq for row in SqliteSaver(path).calls(Place("t"), RUN)]
    assert stored == list(range(1, len(stored) + 1))
    assert len(stored) in (acknowledged, acknowledged + 1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_save_now_stores_nothing_while_another_process_writes(path):
    saver = SqliteSaver(path)
    place = start(saver)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert saver.save_now([SaveCall(place, RUN, call(1))]) is False
    other.execute("ROLLBACK")
    assert saver.calls(place, RUN) == []
    assert saver.save_now([SaveCall(place, RUN, call(1))]) is True


def test_a_file_that_stays_locked_is_reported_with_what_to_do(path):
    saver = SqliteSaver(path, timeout=0.05)
    place = start(saver)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"0\.05 s.*timeout="):
        saver.save([SaveCall(place, RUN, call(1))])
    with pytest.raises(StoreError, match="is locked"):
        asyncio.run(saver.asave([SaveCall(place, RUN, call(1))]))
    assert saver.load(place).run.id == RUN


def test_a_database_of_langgraph_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT)")
    with pytest.raises(StoreError, match="another program"):
        SqliteSaver(path).load(Place("t"))
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


# ---------------------------------------------------------------- costs


def test_a_small_call_takes_few_bytes(path):
    saver = SqliteSaver(path)
    place = start(saver)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = os.path.getsize(path)
    for seq in range(1, 10_001):
        saver.save([SaveCall(place, RUN, call(seq))])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert (os.path.getsize(path) - before) / 10_000 <= 150


def test_a_call_is_one_insert(path):
    saver = SqliteSaver(path)
    place = start(saver)
    saver.save([SaveCall(place, RUN, call(1))])
    said = []
    saver.sql._writer.set_trace_callback(said.append)
    saver.save([SaveCall(place, RUN, call(2))])
    assert [line.split()[0] for line in said] == ["BEGIN", "INSERT", "COMMIT"]


def test_the_code_of_a_run_is_kept_as_json(path):
    saver = SqliteSaver(path)
    saver.save([SaveRun(Place("t"), RunRow("r", "flow", 1, 1.0, "running", code={"m.f": "ü"}))])
    with sqlite3.connect(path) as connection:
        assert json.loads(connection.execute("SELECT code FROM runs").fetchone()[0]) == {"m.f": "ü"}
