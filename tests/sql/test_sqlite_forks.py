"""A database that was open before a fork works in both processes after it."""

import os
import threading

import pytest

from flowfn.sql.base import Query
from flowfn.sql.sqlite import SqliteDatabase

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


def in_child(work):
    """Run `work` in a fork of this process; gives its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def exit_code(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_parent_and_child_both_write_after_a_fork(database):
    database.run(add("before"), write=True)
    assert database.run(names()) == ["before"]

    def child():
        assert database.run(names()) == ["before"]
        database.run(add("child"), write=True)

    assert exit_code(in_child(child)) == 0
    database.run(add("parent"), write=True)
    assert database.run(names()) == ["before", "child", "parent"]


def test_a_parent_that_closes_does_not_pull_the_log_from_under_its_child(database):
    database.run(add("before"), write=True)
    to_child, to_parent = os.pipe(), os.pipe()

    def child():
        database.run(add("one"), write=True)
        os.write(to_parent[1], b".")
        os.read(to_child[0], 1)
        database.run(add("two"), write=True)

    pid = in_child(child)
    os.read(to_parent[0], 1)
    database.run(add("three"), write=True)
    database.close()
    os.write(to_child[1], b".")
    assert exit_code(pid) == 0
    assert database.run(names()) == ["before", "one", "three", "two"]


def test_a_fork_waits_for_the_transaction_of_another_worker(database):
    database.run(add("before"), write=True)
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        yield from add("slow")
        begun.set()
        go_on.wait(5)

    worker = threading.Thread(target=database.run, args=(slow(),), kwargs={"write": True})
    worker.start()
    begun.wait(5)
    threading.Timer(0.05, go_on.set).start()
    pid = in_child(lambda: database.run(add("child"), write=True))
    worker.join()
    assert exit_code(pid) == 0
    assert database.run(names()) == ["before", "child", "slow"]


def test_a_database_in_memory_goes_with_the_child():
    database = SqliteDatabase(":memory:", SCHEMA, 1)
    database.run(add("a"), write=True)

    def child():
        database.run(add("child"), write=True)
        assert database.run(names()) == ["a", "child"]

    assert exit_code(in_child(child)) == 0
    assert database.run(names()) == ["a"]
