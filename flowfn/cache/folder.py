"""A folder of diskcache's, as a cache here uses it.

diskcache keeps small values in rows of a SQLite database and large ones in files beside it, and does expiry, tags and
eviction. Two things are different here. Its disk takes bytes alone, which were encoded before, and reads nothing else:
no pickle, and no file outside its folder. And its connections are not one for each thread but a few, lent to whoever
reads or writes, so that none has to be opened for a new worker, and none is open at a fork.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import diskcache
from diskcache.core import DBNAME, MODE_BINARY, MODE_RAW

from flowfn.cache.base import Sayings
from flowfn.errors import CacheError, UnreadableError
from flowfn.sql.sqlite_errors import NETWORKS, file_system, is_busy, is_damage

R = TypeVar("R")

Disk: Any = diskcache.Disk
Cache: Any = diskcache.Cache

HEAD_OF_FILE = 1 << 16
"""Bytes of a file that are read when its beginning is asked for."""

_SETTINGS = {
    "statistics": 0,
    "tag_index": 1,
    "eviction_policy": "least-recently-stored",
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2048,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,
    "sqlite_synchronous": 1,
    "disk_min_file_size": 1 << 15,
    "disk_pickle_protocol": 0,
}
"""All of diskcache's settings. Least recently *stored* since a hit would else have to write; culled by our own word,
since it would else do so in silence; no memory map since a file cut short under one would end the process."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS Claims (key BLOB PRIMARY KEY, task TEXT, owner TEXT, until REAL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS Code (digest BLOB PRIMARY KEY, functions BLOB) WITHOUT ROWID",
)
_PROGRAM = 0x666C6F77
"""Tells a folder of ours from one that another program uses diskcache for."""
_FORGOTTEN = 3600.0
"""Seconds after which a claim that has lapsed is not even remembered."""
_OPENING = 5.0
"""Seconds that opening may take, at least, while others open too."""
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)
_IDLE = 8
"""How many connections that nobody uses are kept open."""


class BlobDisk(Disk):  # type: ignore[misc]
    """Bytes in rows and files, and nothing else."""

    _FILE = re.compile(r"[0-9a-f]{2}[/\\][0-9a-f]{2}[/\\][0-9a-f]{28}\.val", re.ASCII)

    def put(self, key: Any) -> tuple[Any, bool]:
        if type(key) is not bytes:
            raise TypeError(f"a key is bytes, not {key!r}")
        return key, True

    def get(self, key: Any, raw: bool) -> bytes:
        if not raw or type(key) is not bytes:
            raise UnreadableError("A key in the cache", "it is something else than bytes.")
        return key

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, str | None, bytes | None]:
        if type(value) is not bytes:
            raise TypeError(f"a value is bytes, not {value!r}")
        if len(value) < self.min_file_size:
            return 0, MODE_RAW, None, value
        name, path = self.filename()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(value)
        except BaseException:
            self.remove(name)
            raise
        return len(value), MODE_BINARY, name, None

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        if mode == MODE_RAW and filename is None and type(value) is bytes:
            return value
        if mode != MODE_BINARY or not self._is_mine(filename):
            raise UnreadableError("A cached result", "its row holds something else than bytes.")
        try:
            with open(os.path.join(self._directory, str(filename)), "rb") as file:
                return file.read(HEAD_OF_FILE if read else -1)
        except OSError as error:
            raise UnreadableError("A cached result", f"its file cannot be read: {error}.") from None

    def remove(self, file_path: str) -> None:
        if self._is_mine(file_path):
            super().remove(file_path)

    def _is_mine(self, name: str | None) -> bool:
        """Whether it names one of the files made here, in this folder and behind no link."""
        if name is None or not self._FILE.fullmatch(name):
            return False
        path = os.path.join(os.path.realpath(self._directory), name)
        return os.path.realpath(path) == path


class Folder(Cache):  # type: ignore[misc]
    """diskcache's folder, with one connection for whoever has borrowed it, and errors as SQLite tells them."""

    _connection: sqlite3.Connection | None = None
    _is_writing = False

    @property
    def _con(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                os.path.join(self._directory, DBNAME),
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            for setting in ("cache_size", "mmap_size", "synchronous"):
                self._connection.execute(f"PRAGMA {setting} = {_SETTINGS[f'sqlite_{setting}']}")
        return self._connection

    @property
    def _sql_retry(self) -> Callable[..., sqlite3.Cursor]:
        return self._con.execute  # whoever opens tries again; diskcache would for a minute

    def another(self) -> Folder:
        """The same folder with a connection of its own."""
        other = object.__new__(Folder)
        other.__dict__.update(self.__dict__, _connection=None, _is_writing=False)
        return other

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transact(
        self, retry: bool = False, filename: str | None = None
    ) -> Iterator[tuple[Callable[..., sqlite3.Cursor], Callable[[str | None], object]]]:
        """A transaction that writes, or a part of the one around; files follow what becomes of the rows."""
        if self._is_writing:
            self._made.append(filename)
            yield self._con.execute, self._doomed.append
            return
        self._made: list[str | None] = [filename]
        self._doomed: list[str | None] = []
        connection = self._con
        gone = self._made
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._is_writing = True
            yield connection.execute, self._doomed.append
            connection.execute("COMMIT")
            gone = self._doomed
        finally:
            self._is_writing = False
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for name in gone:
                if name is not None:
                    self._disk.remove(name)


# ---------------------------------------------------------------- the folder and its connections


class Store:
    """A folder that is opened when first used, and whoever reads or writes in it.

    Attributes:
        is_open: whether it has been opened, here or in the process this one was forked from.
    """

    def __init__(self, path: str, size_limit: int, timeout: float) -> None:
        self.path, self.size_limit, self.timeout = path, size_limit, timeout
        self.is_open = False
        self._say = Sayings()
        self._file = os.path.join(path, DBNAME)
        self._place: tuple[int, int] | None = None
        self._writer: Folder | None = None
        self._idle: list[Folder] = []
        self._begin_process()
        _STORES.add(self)

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._reads: set[object] = set()

    def read(self, work: Callable[[Folder], R]) -> R:
        """What `work` gives, done with a folder that nobody else uses meanwhile."""
        read, writer = object(), self._writer
        if writer is None or self._is_gone():
            writer = self._first()
        with self._gate:
            self._reads.add(read)
        folder: Folder | None = None
        try:
            folder = self._idle.pop() if self._idle else writer.another()
            return work(folder)
        except sqlite3.Error as error:
            folder = None
            self._forget(error)
            raise
        finally:
            if folder is not None and len(self._idle) < _IDLE:
                self._idle.append(folder)
            self._reads.discard(read)

    def write(self, work: Callable[[Folder], R]) -> R:
        """The same, when it is this caller's turn to write."""
        with self._lock:
            try:
                return work(self._opened())
            except sqlite3.Error as error:
                self._forget(error)
                raise

    def tried(
        self, what: str, way: Callable[[Callable[[Folder], R]], R], work: Callable[[Folder], R], otherwise: R
    ) -> R:
        """The same in that way, `read` or `write`; where the folder fails, `otherwise`, and a word in the log."""
        try:
            return way(work)
        except (sqlite3.Error, OSError) as error:
            self._say("A result could not be %s the cache `%s`, which %s", what, self.path, why(error))
            return otherwise

    def open(self) -> None:
        """See that the folder can be used.

        Raises:
            CacheError: it cannot.
        """
        self._first()
        self.is_open = True

    def close(self) -> None:
        with self._lock:
            self._close()
        self.is_open = False

    def _first(self) -> Folder:
        with self._lock:
            return self._opened()

    def _opened(self) -> Folder:
        if self._writer is None or self._is_gone():
            self._writer, self._idle = None, []
            self._writer = opened(self.path, self.size_limit, self.timeout)
            at = os.stat(self._file)
            self._place = at.st_dev, at.st_ino
        return self._writer

    def _is_gone(self) -> bool:
        """Whether the path names another folder than the one that is open, or none: somebody has deleted it."""
        try:
            at = os.stat(self._file)
        except OSError:
            return True
        return (at.st_dev, at.st_ino) != self._place

    def _forget(self, error: sqlite3.Error) -> None:
        """Open the folder anew at the next use, unless it is only busy or full."""
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in _PASSING:
            self._writer, self._idle = None, []

    def _close(self) -> None:
        idle, self._idle = self._idle, []
        writer, self._writer = self._writer, None
        for folder in (*idle, *([writer] if writer is not None else [])):
            folder.close()

    def __del__(self) -> None:
        if os is not None and getattr(self, "_pid", None) == os.getpid():  # modules go first when Python ends
            self._close()

    # --- forks

    def before_fork(self) -> None:
        """Close everything, and keep it closed until the fork is done: a child that inherits an open database would
        believe to hold its locks."""
        self._locked = [lock for lock in (self._lock, self._gate) if lock.acquire(timeout=10)]
        give_up = time.monotonic() + 1
        while self._reads and time.monotonic() < give_up:
            threading.Event().wait(0.001)
        if len(self._locked) == 2:
            self._close()

    def after_fork(self, is_child: bool) -> None:
        if not is_child:
            for lock in self._locked:
                lock.release()
            return
        _ABANDONED.extend([*self._idle, *([self._writer] if self._writer is not None else [])])
        self._writer, self._idle = None, []
        self._begin_process()


_STORES: weakref.WeakSet[Store] = weakref.WeakSet()
_FORKING: list[Store] = []
_ABANDONED: list[Folder] = []
"""What a parent process had open, kept so that nothing closes it in the child."""


def _before_fork() -> None:
    _FORKING[:] = list(_STORES)
    for store in _FORKING:
        store.before_fork()


def _after_fork(is_child: bool) -> None:
    while _FORKING:
        _FORKING.pop().after_fork(is_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(False),
        after_in_child=lambda: _after_fork(True),
    )


# ---------------------------------------------------------------- opening


def opened(path: str, size_limit: int, timeout: float) -> Folder:
    """The folder, made if it is not there.

    Raises:
        CacheError: it cannot be used.
    """
    _check_place(path)
    give_up = time.monotonic() + max(timeout, _OPENING)
    while True:
        try:
            _mark(path, timeout)
            return _made(path, size_limit, timeout)
        except CacheError:
            raise
        except (sqlite3.Error, OSError) as error:
            # While a database is made, whoever else opens it may be turned away without waiting.
            if not (isinstance(error, sqlite3.OperationalError) and is_busy(error)) or time.monotonic() > give_up:
                raise CacheError(path, why(error)) from error
            threading.Event().wait(0.005)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CacheError(path, f"holds settings that nobody knows ({error}). Delete the folder.") from error


def _made(path: str, size_limit: int, timeout: float) -> Folder:
    folder = Folder(path, timeout, BlobDisk, size_limit=size_limit, **_SETTINGS)
    for statement in _TABLES:
        folder._sql_retry(statement)
    folder._sql_retry("DELETE FROM Claims WHERE until < ?", (time.time() - _FORGOTTEN,))
    return folder


def _check_place(path: str) -> None:
    """Make the folder, if it is not there, and see that it is one, and here."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise CacheError(path, "is a file. A cache is a folder: name another one.")
    if os.path.expandvars(path) != path:
        raise CacheError(path, "has a `$` in its path, which diskcache would take for a variable. Name another folder.")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, mode=0o700)
    except OSError as error:
        raise CacheError(path, f"cannot be made: {error}. Name another folder.") from error
    if (kind := file_system(path)) in NETWORKS:
        raise CacheError(
            path,
            f"lies on a network file system ({kind}), where several processes would damage it. Name a folder on a "
            f"local disk.",
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise CacheError(path, "cannot be written. Change its permissions, or name another folder.")


def _mark(path: str, timeout: float) -> None:
    """Make an empty database that says whose it is, or see that the one that is there is ours."""
    file = os.path.join(path, DBNAME)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(file, timeout=timeout, isolation_level=None)
    try:
        if _program(connection) == _PROGRAM:
            return
        connection.execute("PRAGMA auto_vacuum = 1")  # which nothing can change once anything is there
        connection.execute("BEGIN IMMEDIATE")
        if _program(connection) != _PROGRAM and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise CacheError(path, "is used by another program. Name another folder.")
        connection.execute(f"PRAGMA application_id = {_PROGRAM}")
        connection.execute("COMMIT")
    finally:
        connection.close()


def _program(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def why(error: sqlite3.Error | OSError) -> str:
    """What is wrong with the folder, and what to do, to follow its name in a sentence."""
    if isinstance(error, CacheError):
        return error.why
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return f"is damaged ({error}). Delete the folder: what it holds can be computed again."
    return f"cannot be used: {error}."
