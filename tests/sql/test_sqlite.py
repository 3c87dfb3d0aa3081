"""One operation in one transaction on SQLite: its turn, its errors, and what a Ctrl-C leaves."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from flowfn.errors import ConfigError, StoreError
from flowfn.sql import sqlite_errors, sqlite_file
from flowfn.sql.base import Busy, DuplicateRow, Query
from flowfn.sql.sqlite import SqliteDatabase, path_of

SCHEMA = {"things": ("CREATE TABLE things (name TEXT PRIMARY KEY)",)}


def add(*names):
    for name in names:
        yield Query("INSERT INTO things VALUES (?)", (name,))


def names():
    rows = yield Query("SELECT name FROM things ORDER BY name")
    return [name for (name,) in rows]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "er" / "things.db")


@pytest.fixture
def database(path):
    database = SqliteDatabase(path, SCHEMA, 1, timeout=0.05)
    yield database
    database.close()


def outsider(path):
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def test_addresses_mean_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    assert path_of("flows.db") == f"{here}/flows.db"
    assert path_of(tmp_path / "flows.db") == str(tmp_path / "flows.db")
    assert path_of("sqlite:///sub/flows.db") == f"{here}/sub/flows.db"
    assert path_of("sqlite:////var/flows.db") == "/var/flows.db"
    assert path_of(":memory:") == path_of("sqlite://") == path_of("sqlite:///:memory:") == ":memory:"
    with pytest.raises(ConfigError):
        path_of("")


def test_nothing_is_opened_before_it_is_used(database, path):
    assert not os.path.exists(os.path.dirname(path))
    database.run(add("a"), write=True)
    assert os.path.exists(path)


def test_an_operation_is_kept_when_it_returns(database, path):
    database.run(add("a", "b"), write=True)
    assert database.run(names()) == ["a", "b"]
    assert SqliteDatabase(path, SCHEMA, 1).run(names()) == ["a", "b"]


def test_an_operation_that_raises_leaves_nothing(database):
    def failing():
        yield from add("a")
        raise ValueError

    with pytest.raises(ValueError):
        database.run(failing(), write=True)
    assert database.run(names()) == []


def test_a_duplicate_is_thrown_in_where_it_was_yielded(database):
    def careful():
        yield from add("a")
        try:
            yield from add("a")
        except DuplicateRow:
            yield from add("b")

    database.run(careful(), write=True)
    assert database.run(names()) == ["a", "b"]


def test_ctrl_c_inside_a_transaction_takes_it_back(database):
    def interrupted():
        yield from add("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.run(interrupted(), write=True)
    database.run(add("b"), write=True)
    assert database.run(names()) == ["b"]


def test_a_rollback_that_was_itself_interrupted_is_made_up_for(database):
    database.run(add("a"), write=True)
    database._writer.execute("BEGIN IMMEDIATE")
    database._writer.execute("INSERT INTO things VALUES ('lost')")
    database.run(add("b"), write=True)
    assert database.run(names()) == ["a", "b"]


# ---------------------------------------------------------------- waiting


def test_who_waits_too_long_is_told_what_to_do(database, path):
    database.run(add("a"), write=True)
    other = outsider(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"is locked: another connection of this process.*timeout=") as caught:
        database.run(add("b"), write=True)
    assert path in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert database.run(names()) == ["a"]
    other.execute("ROLLBACK")
    database.run(add("b"), write=True)
    assert database.run(names()) == ["a", "b"]


def test_a_try_does_not_wait(database, path):
    database.run(add("a"), write=True)
    other = outsider(path)
    other.execute("BEGIN IMMEDIATE")
    op = add("b")
    with pytest.raises(Busy):
        database.try_run(op, write=True)
    other.execute("ROLLBACK")
    database.try_run(op, write=True)
    assert database.run(names()) == ["a", "b"]


def test_a_try_does_not_wait_for_another_worker_of_this_process(database):
    database.run(add("a"), write=True)
    with database._lock, pytest.raises(Busy):
        database.try_run(add("b"), write=True)


def test_a_writer_waits_for_its_turn(path):
    database = SqliteDatabase(path, SCHEMA, 1)
    database.run(add("a"), write=True)
    other = outsider(path)
    other.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=database.run, args=(add("b"),), kwargs={"write": True})
    writer.start()
    assert database.run(names()) == ["a"]
    other.execute("ROLLBACK")
    writer.join()
    assert database.run(names()) == ["a", "b"]


async def test_an_event_loop_goes_on_while_a_save_waits(path):
    database = SqliteDatabase(path, SCHEMA, 1)
    await database.arun(add("a"), write=True)
    other = outsider(path)
    other.execute("BEGIN IMMEDIATE")
    saves = [asyncio.create_task(database.arun(add(name), write=True)) for name in "bc"]
    for _ in range(3):
        await asyncio.sleep(0)
    assert await database.arun(names()) == ["a"]
    assert not any(save.done() for save in saves)
    other.execute("ROLLBACK")
    await asyncio.gather(*saves)
    assert await database.arun(names()) == ["a", "b", "c"]


def test_reads_are_not_kept_out_by_a_writer_and_see_one_moment(database, path):
    database.run(add("a"), write=True)

    def twice():
        first = yield from names()
        database.run(add("b"), write=True)
        return first, (yield from names())

    assert database.run(twice()) == (["a"], ["a"])
    assert database.run(names()) == ["a", "b"]


def test_reading_connections_are_used_again(database):
    database.run(add("a"), write=True)
    readers = [threading.Thread(target=database.run, args=(names(),)) for _ in range(30)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert 1 <= len(database._idle) <= 8


def test_a_closed_database_opens_again(database):
    database.run(add("a"), write=True)
    database.close()
    database.close()
    assert database.run(names()) == ["a"]


# ---------------------------------------------------------------- what can be wrong with a file


def test_a_newer_format_is_refused(database, path):
    database.run(add("a"), write=True)
    database.close()
    outsider(path).execute("UPDATE meta SET value = 2")
    with pytest.raises(StoreError, match="newer flowfn"):
        database.run(names())
    outsider(path).execute("UPDATE meta SET value = 1")
    assert database.run(names()) == ["a"]


@pytest.mark.parametrize("table", ["things (id)", "meta (id)", "meta (name, value)"])
def test_tables_of_another_program_are_refused(database, path, table):
    os.makedirs(os.path.dirname(path))
    outsider(path).execute(f"CREATE TABLE {table}")
    with pytest.raises(StoreError, match="another program"):
        database.run(add("a"), write=True)


def test_other_tables_in_the_file_are_no_matter(database, path):
    os.makedirs(os.path.dirname(path))
    outsider(path).execute("CREATE TABLE users (id)")
    database.run(add("a"), write=True)
    assert database.run(names()) == ["a"]


def test_what_is_not_a_database_is_named_so(database, path):
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.write("Dear diary, " * 1000)
    with pytest.raises(StoreError, match="is not a SQLite database") as caught:
        database.run(names())
    assert path in str(caught.value)


def test_a_damaged_file_is_named_so(database, path):
    database.run(add(*(str(number) for number in range(2000))), write=True)
    database.close()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (os.path.getsize(path) - 4096))
    with pytest.raises(StoreError, match="is damaged"):
        database.run(names())


def test_a_folder_is_no_database(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteDatabase(str(tmp_path), SCHEMA, 1).run(names())


def test_a_file_where_a_folder_should_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="has no folder"):
        SqliteDatabase(str(tmp_path / "file" / "things.db"), SCHEMA, 1).run(names())


def test_a_network_file_system_is_refused(database, path, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path}/deep nfs4 rw 0 0\n")
    assert sqlite_errors.file_system(path, str(mounts)) == "nfs4"
    assert sqlite_errors.file_system(str(tmp_path / "deeper"), str(mounts)) == "ext4"
    assert sqlite_errors.file_system(path, str(tmp_path / "none")) is None
    monkeypatch.setattr(sqlite_file, "file_system", lambda path: "nfs4")
    with pytest.raises(StoreError, match="network file system"):
        database.run(add("a"), write=True)


def test_a_full_disk_keeps_what_was_stored(database):
    database.run(add("a"), write=True)
    (pages,) = database._writer.execute("PRAGMA page_count").fetchone()
    database._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="disk is full"):
        database.run(add("x" * 100_000), write=True)
    assert database.run(names()) == ["a"]
    database._writer.execute("PRAGMA max_page_count = 100000")
    database.run(add("b"), write=True)
    assert database.run(names()) == ["a", "b"]


def test_a_read_only_file_is_named_so(database):
    database.run(add("a"), write=True)
    database._writer.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError, match="read-only"):
        database.run(add("b"), write=True)


def test_synchronous_is_normal_or_full(path):
    full = SqliteDatabase(path, SCHEMA, 1, synchronous="full")
    full.run(add("a"), write=True)
    assert full._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    with pytest.raises(ConfigError):
        SqliteDatabase(path, SCHEMA, 1, synchronous="off")


# ---------------------------------------------------------------- several processes

CHILD = """
import sys
from flowfn.sql.base import Query
from flowfn.sql.sqlite import SqliteDatabase
def add(name):
    yield Query("INSERT INTO things VALUES (?)", (name,))
sys.stdin.read(1)
database = SqliteDatabase(sys.argv[1], {"things": ("CREATE TABLE things (name TEXT PRIMARY KEY)",)}, 1)
for number in range(50):
    database.run(add(f"{sys.argv[2]}-{number}"), write=True)
"""


def test_processes_that_open_a_new_file_at_the_same_time_agree(path, database):
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, path, str(number)], stdin=subprocess.PIPE) for number in range(4)
    ]
    for child in children:
        child.stdin.write(b".")
        child.stdin.flush()
    for child in children:
        child.stdin.close()
        assert child.wait() == 0
    assert len(database.run(names())) == 200
