"""A file of an older format becomes one of this format whole, or stays whole as it was."""

import signal
import sqlite3
import subprocess
import sys

import pytest

from flowfn.errors import StoreError
from flowfn.sql.base import Query
from flowfn.sql.sqlite import SqliteDatabase
from flowfn.sql.sqlite_file import SqliteFile

# Three formats: 1 has names, 2 gives them a length, 3 renames the table.
OLD = {"things": ("CREATE TABLE things (name TEXT PRIMARY KEY)",)}
NEW = {
    "items": ("CREATE TABLE items (name TEXT PRIMARY KEY, length INTEGER)", "CREATE INDEX lengths ON items (length)")
}


def measure(connection):
    for (name,) in connection.execute("SELECT name FROM things").fetchall():
        connection.execute("UPDATE things SET length = ? WHERE name = ?", (len(name), name))


def measure_nothing(connection):
    connection.execute("UPDATE things SET name = name")


MIGRATIONS = {
    2: ("ALTER TABLE things ADD COLUMN length INTEGER", measure),
    3: ("ALTER TABLE things RENAME TO items", "CREATE INDEX lengths ON items (length)"),
}


def add(*names):
    for name in names:
        yield Query("INSERT INTO things (name) VALUES (?)", (name,))


def items():
    return (yield Query("SELECT name, length FROM items ORDER BY name"))


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "things.db")
    database = SqliteDatabase(path, OLD, 1)
    database.run(add("a", "bcd", *(f"n{number}" for number in range(2000))), write=True)
    database.close()
    return path


def contents(path):
    """What a stranger finds: the format, the tables with their columns, and the rows."""
    with sqlite3.connect(path) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name").fetchall()
        (table,) = [name for name, _ in tables if name in ("things", "items")]
        rows = connection.execute(f"SELECT * FROM {table} ORDER BY name").fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return connection.execute("SELECT value FROM meta").fetchone()[0], tables, rows


def test_an_older_format_is_migrated_step_by_step_and_once(path):
    database = SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS)
    assert database.run(items())[:2] == [("a", 1), ("bcd", 3)]
    after = contents(path)
    assert after[0] == 3
    database.close()
    assert SqliteDatabase(path, NEW, 3, migrations={}).run(items())[:2] == [("a", 1), ("bcd", 3)]
    assert contents(path) == after


def test_a_new_file_has_the_newest_format_at_once(tmp_path):
    database = SqliteDatabase(str(tmp_path / "new.db"), NEW, 3, migrations={2: ("nonsense",), 3: ("nonsense",)})
    assert database.run(items()) == []


def test_a_migrated_file_is_refused_by_the_older_program(path):
    SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS).run(items())
    with pytest.raises(StoreError, match=r"newer flowfn \(format 3; this one knows up to 1\)") as caught:
        SqliteDatabase(path, OLD, 1).run(add("z"), write=True)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    "broken",
    [
        {2: MIGRATIONS[2], 3: ("ALTER TABLE things RENAME TO items", "CREATE TABLE nonsense")},
        {2: (*MIGRATIONS[2], lambda connection: 1 / 0), 3: MIGRATIONS[3]},
        {2: (*MIGRATIONS[2], "INSERT INTO things (name) VALUES ('a')"), 3: MIGRATIONS[3]},
    ],
    ids=["statement", "function", "constraint"],
)
def test_a_migration_that_fails_leaves_the_file_as_it_was(path, broken):
    before = contents(path)
    database = SqliteDatabase(path, NEW, 3, migrations=broken)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"could not be migrated from format 1 to 3.*as it was") as caught:
            database.run(items())
        assert path in str(caught.value)
    assert contents(path) == before
    assert SqliteDatabase(path, OLD, 1).run(iter_names())[0] == ("a",)
    assert SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS).run(items())[0] == ("a", 1)


def iter_names():
    return (yield Query("SELECT name FROM things ORDER BY name"))


def test_a_format_that_nothing_leads_on_from_is_refused(path):
    before = contents(path)
    with pytest.raises(StoreError, match=r"older flowfn \(format 1\).*flowfn in between"):
        SqliteDatabase(path, NEW, 3, migrations={3: MIGRATIONS[3]}).run(items())
    assert contents(path) == before


def test_a_full_disk_in_a_migration_is_named_so_and_leaves_the_file_as_it_was(path, monkeypatch):
    before = contents(path)
    connect = SqliteFile.connect

    def small(self, timeout):
        connection = connect(self, timeout)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(SqliteFile, "connect", small)
    with pytest.raises(StoreError, match="disk is full"):
        SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS).run(items())
    monkeypatch.undo()
    assert contents(path) == before
    assert SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS).run(items())[0] == ("a", 1)


# ---------------------------------------------------------------- while another program has it open

COMPATIBLE = {2: (measure_nothing,), 3: (measure_nothing,)}
"""To tables that take every statement of the older program, so that no statement of its fails."""


@pytest.mark.parametrize("migrations", [MIGRATIONS, COMPATIBLE], ids=["other tables", "same tables"])
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_program_that_has_the_file_open_is_stopped_by_a_newer_one_that_migrates_it(path, migrations, is_warm):
    # given: an older program at work, which may have written and read before
    older = SqliteDatabase(path, OLD, 1)
    older.run(add("x"), write=True)
    for name in ("y", "z") if is_warm else ():
        older.run(add(name), write=True)
        assert older.run(iter_names())[0] == ("a",)

    # when
    SqliteDatabase(path, NEW, 3, migrations=migrations).run(add() if migrations is COMPATIBLE else items())
    before = contents(path)

    # then: whatever it tries
    for _ in range(2):
        for op, write in ((add("late"), True), (iter_names(), False)):
            with pytest.raises(StoreError, match=r"migrated to format 3 while.*knows format 1\).*Update") as told:
                older.run(op, write=write)
            assert path in str(told.value)
    assert contents(path) == before
    older.close()
    with pytest.raises(StoreError, match="newer flowfn"):
        older.run(iter_names())


def test_an_operation_that_goes_wrong_on_migrated_tables_is_told_why(path):
    older = SqliteDatabase(path, OLD, 1)
    older.run(add("x"), write=True)
    SqliteDatabase(path, NEW, 3, migrations=COMPATIBLE).run(add())

    def trips():
        yield Query("SELECT name FROM things LIMIT 1")
        raise ValueError("what is this?")

    with pytest.raises(StoreError, match="migrated to format 3") as caught:
        older.run(trips(), write=True)
    assert isinstance(caught.value.__context__, ValueError)


def test_a_viewer_sees_when_the_file_is_migrated(path):
    viewer = SqliteDatabase(path, OLD, 1, read_only=True)
    assert viewer.run(iter_names())[0] == ("a",)
    newer = SqliteDatabase(path, NEW, 3, migrations=COMPATIBLE)
    newer.run(add())
    with pytest.raises(StoreError, match="newer flowfn"):
        viewer.run(iter_names())


def test_changes_of_another_program_that_leave_the_format_are_no_matter(path):
    database = SqliteDatabase(path, OLD, 1)
    database.run(add("x"), write=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("ANALYZE")
    database.run(add("y"), write=True)
    assert ("y",) in database.run(iter_names())


def test_the_format_is_looked_at_only_when_a_statement_was_compiled(path):
    database = SqliteDatabase(path, OLD, 1)
    for name in ("x", "y"):
        database.run(add(name), write=True)
    said = []
    database._writer.set_trace_callback(said.append)
    database.run(add("z"), write=True)
    assert [statement.split()[0] for statement in said] == ["BEGIN", "INSERT", "COMMIT"]


def test_viewing_migrates_nothing(path):
    before = contents(path)
    viewer = SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS, read_only=True)
    with pytest.raises(StoreError, match=r"older flowfn.*without `read_only=True`"):
        viewer.run(items())
    assert contents(path) == before


KILLED = """
import os, signal, sqlite3, sys
sys.path.insert(0, os.path.dirname(sys.argv[2]))
from test_migrations import MIGRATIONS, NEW, SqliteDatabase, items
path, at = sys.argv[1], sys.argv[3]

def die(connection):
    os.kill(os.getpid(), signal.SIGKILL)

def spill(connection):
    # More than SQLite keeps in memory, so that uncommitted pages stand in the log when the process dies.
    connection.execute("PRAGMA cache_size = 10")
    connection.executemany("INSERT INTO things (name) VALUES (?)", [(str(n) * 50,) for n in range(10_000)])

migrations = dict(MIGRATIONS)
if at == "between the formats":
    migrations[2] = (*MIGRATIONS[2], die)
elif at == "in the last step":
    migrations[3] = (*MIGRATIONS[3], die)
elif at == "with half of it in the log":
    migrations[2] = (*MIGRATIONS[2], spill, die)
database = SqliteDatabase(path, NEW, 3, migrations=migrations)
database.run(items())
assert at == "after the commit", at
die(None)
"""


@pytest.mark.parametrize(
    "at", ["between the formats", "in the last step", "with half of it in the log", "after the commit"]
)
def test_a_process_killed_in_a_migration_leaves_the_file_whole(path, at):
    before = contents(path)
    child = subprocess.run([sys.executable, "-c", KILLED, path, __file__, at], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    if at == "after the commit":
        assert contents(path)[0] == 3
    else:
        assert contents(path) == before
        assert SqliteDatabase(path, OLD, 1).run(iter_names())[0] == ("a",)
    rows = SqliteDatabase(path, NEW, 3, migrations=MIGRATIONS).run(items())
    assert len(rows) == 2002
    assert rows[:2] == [("a", 1), ("bcd", 3)]


OPENS = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[2]))
from test_migrations import MIGRATIONS, NEW, SqliteDatabase, items
sys.stdin.read(1)
assert len(SqliteDatabase(sys.argv[1], NEW, 3, migrations=MIGRATIONS).run(items())) == 2002
"""


def test_processes_that_migrate_a_file_at_the_same_time_agree(path):
    children = [
        subprocess.Popen([sys.executable, "-c", OPENS, path, __file__], stdin=subprocess.PIPE) for _ in range(4)
    ]
    for child in children:
        child.stdin.write(b".")
        child.stdin.flush()
    for child in children:
        child.stdin.close()
        assert child.wait() == 0
    assert contents(path)[0] == 3
