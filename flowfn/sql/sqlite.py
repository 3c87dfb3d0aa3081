"""SQLite: which connection runs an operation, how it waits for its turn, and what a fork leaves of it.

A process has one connection that writes, behind a lock, and as many that read as there are reads under way; a write
never waits for a read. Writers of several processes take turns by `BEGIN IMMEDIATE`, which waits at the door and never
fails half-way. The writing connection itself does not wait (its busy time-out is zero), so the same one serves a caller
that may block and an event loop that must not.

Before a fork everything is closed and in both processes opened again. A child that inherited an open file would believe
to hold its locks; when the parent then closed the database, SQLite would delete the log that the child is writing to.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from flowfn.errors import ConfigError, StoreError
from flowfn.sql.base import Busy, Database, DuplicateRow, Op
from flowfn.sql.sqlite_errors import explained, is_damage
from flowfn.sql.sqlite_file import MEMORY, Connection, Migration, SqliteFile, Synchronous, begin

T = TypeVar("T")

IDLE = 8
"""How many reading connections are kept open for the next read."""


def path_of(address: str | os.PathLike[str]) -> str:
    """The absolute path, or `:memory:`, that a path or an address such as `sqlite:///flows.db` means.

    As elsewhere, three slashes begin a relative path and four an absolute one.
    """
    text = os.fspath(address)
    if text.startswith("sqlite://"):
        text = text.removeprefix("sqlite://").removeprefix("/") or MEMORY
    if not text:
        raise ConfigError('A SQLite database needs a path: "flows.db", "sqlite:///flows.db", or ":memory:".')
    return text if text == MEMORY else os.path.abspath(text)


class SqliteDatabase(Database):
    """One SQLite file, opened when first used.

    Args:
        path: absolute, or `:memory:`.
        schema: table name → statements that make it and its indexes.
        format: version of the tables; a database of a newer one is refused, one of an older one migrated.
        migrations: format → what brings a database from the format before to it.
        synchronous: normal keeps every commit when a process is killed; full also when the power fails.
        timeout: seconds to wait for other writers.
        read_only: nothing is made, changed or migrated, and an operation that writes is refused.
    """

    def __init__(
        self,
        path: str,
        schema: Mapping[str, Sequence[str]],
        format: int,
        *,
        migrations: Mapping[int, Migration] | None = None,
        synchronous: Synchronous = "normal",
        timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        if read_only and path == MEMORY:
            raise ConfigError("A database in memory cannot be opened with `read_only=True`: there is nothing to view.")
        self.path, self.timeout, self.read_only = path, timeout, read_only
        self.file = SqliteFile(path, schema, format, migrations or {}, synchronous, timeout)
        self._writer: Connection | None = None
        self._idle: list[Connection] = []
        self._begin_process()
        _DATABASES.add(self)

    def _begin_process(self) -> None:
        """What belongs to this process and no other."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        # Bare locks, taken by `with` only: between taking one and the `with` that gives it back no Ctrl-C can come.
        self._gate = threading.Lock()
        self._reads: set[object] = set()
        self._worker: ThreadPoolExecutor | None = None

    # --- running operations

    def run(self, op: Op[T], *, write: bool = False) -> T:
        return self._run(op, write, is_patient=True)

    def try_run(self, op: Op[T], *, write: bool = False) -> T:
        if write and not self.read_only and self._lock.locked() and self._pid == os.getpid():
            raise Busy
        return self._run(op, write, is_patient=False)

    async def arun(self, op: Op[T], *, write: bool = False) -> T:
        try:
            return self.try_run(op, write=write)
        except Busy:
            pass
        # A worker of our own: the loop's may all be taken by tasks that wait for this very save.
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "flowfn-sqlite")
        return await asyncio.get_running_loop().run_in_executor(self._worker, lambda: self.run(op, write=write))

    def _run(self, op: Op[T], write: bool, is_patient: bool) -> T:
        if self._pid != os.getpid():
            self._abandon()
        try:
            if self._writer is not None:
                self.file.check_there()
            if write and self.read_only:
                raise StoreError(
                    self.path,
                    "is open for viewing only (`read_only=True`), so nothing can be stored, answered or deleted there. "
                    "Open it without `read_only` to change it.",
                )
            if write or self.path == MEMORY:
                with self._lock:
                    return self._transact(self._writer or self._open(), op, self._begin, is_patient)
            return self._read(op)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
                # No authorizer of ours refuses anything: a Ctrl-C came inside one, and SQLite has swallowed it.
                raise KeyboardInterrupt from None
            self.file.is_damaged |= is_damage(error)
            raise explained(self.path, error, self.timeout) from error

    def _read(self, op: Op[T]) -> T:
        if self._writer is None and not self.read_only:
            with self._lock:
                if self._writer is None:
                    self._open()
        connection: Connection | None = None
        read = object()
        try:
            with self._gate:
                self._reads.add(read)
            if self.read_only:
                connection, stamp = self.file.view()
            else:
                connection, stamp = self._idle.pop() if self._idle else self.file.connect(self.timeout), None
            result = self._transact(connection, op, _begin_reading, True)
            if stamp is not None and stamp != self.file.stamp():
                raise StoreError(self.path, "was changed by another process while it was viewed. View it again.")
            if len(self._idle) < IDLE and self._writer is not None:
                kept, connection = connection, None  # first: a Ctrl-C may come as soon as it is there for others
                self._idle.append(kept)
            return result
        finally:
            if connection is not None:
                self.file.close([connection])
            self._reads.discard(read)

    def _transact(self, connection: Connection, op: Op[T], begin: Callable[[Connection, bool], Any], wait: bool) -> T:
        try:
            if connection.in_transaction:  # a Ctrl-C came between the last one's error and its rollback
                connection.execute("ROLLBACK")
            begin(connection, wait)
            try:
                result = _drive(connection, op)
            except sqlite3.Error:
                connection.compiled.is_any = True  # One that does not fit its tables any more is not asked about.
                raise
            finally:
                if connection.compiled.is_any:
                    self.file.check_format(connection)
            connection.execute("COMMIT")
            return result
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _begin(self, connection: Connection, wait: bool) -> None:
        begin(connection, self.timeout, is_patient=wait)

    # --- connections

    def _open(self) -> Connection:
        """The writing connection, on a database whose tables are there. The lock is held."""
        self._writer = writer = self.file.open()
        return writer

    def close(self) -> None:
        if self._pid != os.getpid():
            self._abandon()
        with self._lock:
            self._close()
            self.file.forget()
        if self._worker is not None:
            self._worker.shutdown(wait=False)
            self._worker = None

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        idle, self._idle = self._idle, []
        # The writer last: whoever closes a database last folds its log into it, which a reader cannot.
        self.file.close([*idle, *([writer] if writer is not None else [])])

    def __del__(self) -> None:
        if os is not None and getattr(self, "_pid", None) == os.getpid():  # modules go first when Python ends
            self._close()

    # --- forks

    def _before_fork(self) -> None:
        """Close everything, and keep it closed until the fork is done; who still reads or writes is waited for."""
        self._locked = [lock for lock in (self._lock, self._gate) if lock.acquire(timeout=10)]
        give_up = time.monotonic() + 1
        while self._reads and time.monotonic() < give_up:
            threading.Event().wait(0.001)
        if len(self._locked) == 2 and self.path != MEMORY:
            self._close()

    def _after_fork(self, is_child: bool) -> None:
        if is_child:
            self._abandon()
        else:
            for lock in self._locked:
                lock.release()

    def _abandon(self) -> None:
        """Leave the connections of the parent process alone: even to close one could disturb its files."""
        if self.path != MEMORY:
            _ABANDONED.extend([*self._idle, *([self._writer] if self._writer else [])])
            self._idle, self._writer = [], None
        self._begin_process()


def _begin_reading(connection: Connection, wait: bool) -> None:
    connection.execute("BEGIN")


def _drive(connection: Connection, op: Op[T]) -> T:
    execute = connection.execute
    try:
        sql, params = next(op)
        while True:
            try:
                rows = execute(sql, params).fetchall()
            except sqlite3.IntegrityError as error:
                sql, params = op.throw(DuplicateRow(str(error)))
            except UnicodeEncodeError:
                rows = execute(sql, [_without_surrogates(param) for param in params]).fetchall()
                sql, params = op.send(rows)
            else:
                sql, params = op.send(rows)
    except StopIteration as done:
        result: T = done.value
        return result


def _without_surrogates(param: Any) -> Any:
    return param.encode("utf-8", "backslashreplace").decode() if isinstance(param, str) else param


_DATABASES: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()
_FORKING: list[SqliteDatabase] = []
_ABANDONED: list[Connection] = []
"""Connections of a parent process, kept so that nothing closes them."""


def _before_fork() -> None:
    _FORKING[:] = list(_DATABASES)
    for database in _FORKING:
        database._before_fork()


def _after_fork(is_child: bool) -> None:
    while _FORKING:
        _FORKING.pop()._after_fork(is_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=lambda: _after_fork(True),
    )
