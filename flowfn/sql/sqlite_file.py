"""One SQLite file on disk: how it is opened, in which format its tables are, and whether it is still there.

Whoever opens a file to write finds its tables whole and in this program's format: both making and migrating them is one
transaction, so a process that is killed on the way leaves the file as it was. Whoever only views it changes nothing:
not even the two files that SQLite keeps beside a log are made, where there is no log to read.

A process that has a file open may live on while a newer program migrates it. SQLite then compiles every statement anew,
and asks the connection's authorizer about each: so a transaction in which nothing was compiled is known to have met the
format it was written for, and one in which something was looks at the format before it commits.

The file itself is never opened but by SQLite: closing it would drop the locks of every connection in this process.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from flowfn.errors import ConfigError, StoreError
from flowfn.sql.base import Busy
from flowfn.sql.sqlite_errors import NETWORKS, file_system, is_busy, is_damage, is_known

MEMORY = ":memory:"
SLICE = 0.25
"""Seconds that one wait inside SQLite lasts; between two of them Ctrl-C gets through."""

Synchronous: TypeAlias = Literal["normal", "full"]
Migration: TypeAlias = Sequence[str | Callable[[sqlite3.Connection], object]]
"""Statements, and functions that execute some, all in one transaction; none of them may end it."""

_log = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """By what a file that nobody writes is known to be unchanged."""

    device: int
    inode: int
    size: int
    written: int


class Connection(sqlite3.Connection):
    """A connection that knows whether a statement was compiled since the format was looked at."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.compiled = compiled = Compiled()
        self.set_authorizer(compiled.note)


class Compiled:
    """Whether a statement was compiled; apart from its connection, which could not go away if it held itself."""

    __slots__ = ("is_any",)

    def __init__(self) -> None:
        self.is_any = False

    def note(self, *what: object) -> int:
        self.is_any = True
        return sqlite3.SQLITE_OK


class SqliteFile:
    """See `SqliteDatabase` for the arguments."""

    def __init__(
        self,
        path: str,
        schema: Mapping[str, Sequence[str]],
        format: int,
        migrations: Mapping[int, Migration],
        synchronous: Synchronous,
        timeout: float,
    ) -> None:
        if synchronous not in ("normal", "full"):
            raise ConfigError(f"`synchronous` is {synchronous!r}; it can be 'normal' or 'full'.")
        self.path, self.schema, self.format, self.migrations = path, schema, format, migrations
        self.synchronous, self.timeout = synchronous, timeout
        self.is_damaged = False
        self._opened: tuple[int, int] | None = None

    # --- to write

    def connect(self, timeout: float) -> Connection:
        connection = _connected(self.path, timeout)
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        return connection

    def open(self) -> Connection:
        """A connection that may write, to tables that are there and in this format."""
        if self.path != MEMORY:
            self.check_there()
            self._check_place()
        connection = self.connect(self.timeout)
        try:
            found = self._format_of(connection)
            if self.path != MEMORY:
                self._keep_log(connection)
            connection.execute("PRAGMA busy_timeout = 0")
            if found != self.format:
                begin(connection, self.timeout)
                found = self._format_of(connection)
                if found is None:
                    self._make_tables(connection)
                elif found != self.format:
                    self._migrate(connection, found)
                connection.execute("COMMIT")
            if self.path != MEMORY:
                at = os.stat(self.path)
                self._opened = at.st_dev, at.st_ino
        except BaseException as error:
            self.is_damaged |= isinstance(error, sqlite3.Error) and is_damage(error)
            self.close([connection])
            raise
        return connection

    def check_there(self) -> None:
        """Raise when the file that was opened is no longer what the path names: what it takes would be lost."""
        if self._opened is None:
            return
        try:
            at = os.stat(self.path)
            if (at.st_dev, at.st_ino) == self._opened:
                return
            what = "was replaced by another file while it was open"
        except OSError:
            what = "is not there any more: it was moved or deleted while it was open"
        raise StoreError(
            self.path,
            f"{what}, so nothing more is stored in it. Put the file back, if you still have it, and go on; or close "
            f"the saver to use what is there now. Its log, `{self.path}-wal`, belongs to it: move both.",
        )

    def forget(self) -> None:
        """From now on the path may name another file."""
        self._opened, self.is_damaged = None, False

    def close(self, connections: Sequence[sqlite3.Connection]) -> None:
        """Close them, the last one last.

        Whoever closes a database last folds its log into it. Into a damaged file it must not: a copy that is put in
        its place needs the log. So a connection that cannot write is the last one then.
        """
        keeper: sqlite3.Connection | None = None
        if self.is_damaged and _size(f"{self.path}-wal"):
            try:
                keeper = self._viewer("mode=ro")
                keeper.execute("SELECT 1 FROM sqlite_master").fetchone()
            except sqlite3.Error:
                pass
        for connection in connections:
            connection.close()
        if keeper is not None:
            keeper.close()

    def _check_place(self) -> None:
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(self.path, f"has no folder, and none can be made: {error}.") from error
        if (kind := file_system(self.path)) in NETWORKS:
            raise StoreError(
                self.path,
                f"lies on a network file system ({kind}), where several processes would damage it. Keep it on a "
                f"local disk.",
            )
        # SQLite would open it all the same, and leave a log beside it that nobody can write either.
        if os.path.isfile(self.path) and not os.access(self.path, os.W_OK):
            raise StoreError(
                self.path,
                "cannot be written: the file is read-only. Change its permissions, name another file, or view it with "
                "`SqliteSaver(path, read_only=True)`.",
            )
        self._check_log()

    def _check_log(self) -> None:
        # SQLite would delete the log of an empty file, with all that is in it.
        if _size(self.path) == 0 and _size(f"{self.path}-wal"):
            raise StoreError(
                self.path,
                f"is empty, but what was stored last is in its log, `{self.path}-wal`. Put a copy of the database in "
                f"its place and leave the log where it is; if there is none, move the log away to begin anew.",
            )

    def _keep_log(self, connection: sqlite3.Connection) -> None:
        """Switch to a write-ahead log, which lets others read while one writes.

        Of several processes that switch a new file at once, all but one are turned away without waiting: so it is tried
        again here.
        """
        give_up = time.monotonic() + self.timeout
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > give_up:
                    raise
                threading.Event().wait(0.005)
        if mode != "wal":
            raise StoreError(
                self.path,
                f"cannot keep a write-ahead log (its journal mode stays `{mode}`), which several processes need to "
                f"share it. Keep it on a local disk.",
            )
        connection.execute("PRAGMA journal_size_limit = 67108864")

    # --- the format

    def _format_of(self, connection: sqlite3.Connection) -> int | None:
        """The format of the tables that are there, or None if there are none.

        Raises:
            StoreError: it is newer than this program, or the tables are another program's.
        """
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not there & (self.schema.keys() | {"meta"}):
            return None
        try:
            rows = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            rows = []
        if not rows:
            raise StoreError(self.path, "holds tables of another program. Name another file.")
        if rows[0][0] > self.format:
            raise StoreError(
                self.path,
                f"was written by a newer flowfn (format {rows[0][0]}; this one knows up to {self.format}). Update "
                f"flowfn here, or name another file.",
            )
        return int(rows[0][0])

    def check_format(self, connection: Connection) -> None:
        """Raise when the tables that a transaction met are of another format than when the file was opened."""
        found = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        if found != (self.format,):
            raise StoreError(
                self.path,
                f"was migrated to format {found and found[0]} while this process had it open, by a newer flowfn (this "
                f"one knows format {self.format}), so nothing more is stored in it from here. Update flowfn and start "
                f"this process again: it goes on from what is stored.",
            )
        connection.compiled.is_any = False

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (self.format,))
        for statements in self.schema.values():
            for statement in statements:
                connection.execute(statement)

    def _migrate(self, connection: sqlite3.Connection, found: int) -> None:
        """Bring the tables from an older format to this one, in the transaction that is open."""
        wanted = range(found + 1, self.format + 1)
        if any(version not in self.migrations for version in wanted):
            raise StoreError(
                self.path,
                f"was written by an older flowfn (format {found}), which this one (format {self.format}) can no longer "
                f"read. Open it once with a flowfn in between, which migrates it.",
            )
        _log.info("migrating `%s` from format %d to %d", self.path, found, self.format)
        try:
            for version in wanted:
                for step in self.migrations[version]:
                    if isinstance(step, str):
                        connection.execute(step)
                    else:
                        step(connection)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (self.format,))
            # Others compile their statements anew, even where a migration changed rows alone.
            ((schema,),) = connection.execute("PRAGMA schema_version").fetchall()
            connection.execute(f"PRAGMA schema_version = {schema + 1}")
        except Exception as error:
            if isinstance(error, sqlite3.Error) and is_known(error):
                raise
            raise StoreError(
                self.path,
                f"could not be migrated from format {found} to {self.format}: {error}. It is as it was: use the older "
                f"flowfn with it, and report this.",
            ) from error

    # --- to view

    def view(self) -> tuple[Connection, Stamp | None]:
        """A connection that cannot write, and, when there is no log to read, the stamp of the file alone.

        Without a log nobody writes, or nobody has yet, and the file is read as it lies, without locks or files beside
        it. Compare the stamp after reading.
        """
        stamp = self.stamp()
        if stamp is None:
            raise StoreError(self.path, "is not there. Name the file that a flow has been run with.")
        self._check_log()
        is_alone = not _size(f"{self.path}-wal") and not _size(f"{self.path}-journal")
        is_alone = is_alone and not (os.path.exists(f"{self.path}-wal") and os.path.exists(f"{self.path}-shm"))
        connection = self._viewer("immutable=1" if is_alone else "mode=ro")
        try:
            found = self._format_of(connection)
            if found is None:
                raise StoreError(self.path, "holds no threads yet. Run a flow with it first, or name another file.")
            if found != self.format:
                raise StoreError(
                    self.path,
                    f"was written by an older flowfn (format {found}; this one reads {self.format}). Open it once "
                    f"without `read_only=True`, which migrates it.",
                )
        except BaseException:
            connection.close()
            raise
        return connection, stamp if is_alone else None

    def stamp(self) -> Stamp | None:
        try:
            at = os.stat(self.path)
        except OSError:
            return None
        return Stamp(at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns)

    def _viewer(self, how: str) -> Connection:
        return _connected(f"{Path(self.path).as_uri()}?{how}", self.timeout, is_uri=True)


def _connected(name: str, timeout: float, *, is_uri: bool = False) -> Connection:
    return sqlite3.connect(
        name,
        uri=is_uri,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=Connection,
    )


def begin(connection: sqlite3.Connection, timeout: float, *, is_patient: bool = True) -> None:
    """Begin a transaction that writes, when it is this connection's turn.

    Raises:
        Busy: it is not, and is not to be waited for.
        sqlite3.OperationalError: it was not for `timeout` seconds.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        return
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        if not is_patient:
            raise Busy from None
    give_up = time.monotonic() + timeout
    try:
        while True:
            left = give_up - time.monotonic()
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * max(0.0, min(left, SLICE)))}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or left <= 0:
                    raise
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
