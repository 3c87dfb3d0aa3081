"""A cache in a folder, which several processes share.

An entry is one value of diskcache's: a checksum, the parts of its key, and its blob. Nothing is kept in the process in
front of the folder: what another process clears or replaces is gone here at once.
"""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, Literal

from flowfn.amounts import seconds, whole
from flowfn.cache.base import Cache, Described, Row
from flowfn.cache.flights import LEASE, Claim, Held
from flowfn.cache.folder import HEAD_OF_FILE, Folder, Store, why
from flowfn.errors import CacheError, PolicyError, UnreadableError
from flowfn.owners import Owner
from flowfn.serde.base import Serializer
from flowfn.serde.keys import default_keyring

SIZE_LIMIT = 1 << 30
"""Bytes: 1 GiB."""

LEAST = 1 << 20
"""Bytes that a folder needs to hold anything at all."""

_HEAD = Struct(">BII")
"""Before each value: format, a checksum of all that follows it, and the length of the description before the blob."""
_CHECKED = 5
_FORMAT = 1


class DiskCache(Cache):
    """Keeps results in a folder, for all processes of this machine.

    Pickled results are signed, and only signed ones are read; see `Serializer` for the key. The folder is made when it
    is first used, for this user alone.

    Args:
        folder: where; relative to the working directory.
        serde: encodes values.
        size_limit: bytes; beyond it the entries go that were stored first.
        timeout: seconds to wait for other processes that write.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        serde: Serializer | None = None,
        size_limit: int = SIZE_LIMIT,
        timeout: float = 10.0,
    ) -> None:
        self.folder = Path(os.path.abspath(Path(folder).expanduser()))
        self.size_limit = whole(size_limit, "size_limit")
        if self.size_limit < LEAST:
            raise PolicyError("size_limit", size_limit, f"at least {LEAST} bytes; an empty folder takes some already")
        self._store = Store(str(self.folder), self.size_limit, seconds(timeout, "timeout", may_be_zero=True))
        super().__init__(serde or Serializer(keys=default_keyring()), _Leases(self._store))

    def __repr__(self) -> str:
        return f"DiskCache({str(self.folder)!r})"

    def __reduce__(self) -> Any:
        raise TypeError("a cache is not sent to another process; name its folder there")

    def open(self) -> None:
        if not self._store.is_open:
            self._store.open()

    def close(self) -> None:
        self._store.close()

    def _read(self, place: bytes) -> bytes | None:
        store = self._store
        value = store.tried("read from", store.read, lambda folder: _find(folder, place), None)
        return None if value is None else _blob(value)

    def _write(self, claim: Claim, row: Row, ttl: float | None) -> bool:
        value, store = _joined(row), self._store
        if len(value) > self.size_limit:
            self._say("A result of task `%s` is larger than the cache `%s` may be", claim.task, self.folder)
            return False
        is_kept, evicted = store.tried(
            "stored in", store.write, lambda folder: _put(folder, claim, row, value, ttl), (False, 0)
        )
        if evicted:
            self._say(
                "The cache `%s` has grown beyond its limit of %d bytes: what was stored first makes room",
                self.folder,
                self.size_limit,
            )
        return is_kept

    def _claimed(self, claim: Claim, *, may_replace: bool) -> Held | Literal[True] | None:
        store = self._store
        return store.tried("claimed in", store.write, lambda folder: _take(folder, claim, may_replace), None)

    def _described(self, task: str, limit: int) -> Iterable[Described]:
        store = self._store
        return store.tried("explained from", store.read, lambda folder: _descriptions(folder, task, limit), [])

    def _functions(self, code: bytes) -> bytes | None:
        store = self._store
        return store.tried("explained from", store.read, lambda folder: _functions(folder, code), None)

    def _clear(self, task: str | None) -> None:
        try:
            self._store.write(lambda folder: _forget(folder, task))
        except (sqlite3.Error, OSError) as error:
            raise CacheError(str(self.folder), why(error)) from error


class _Leases:
    """The claims that stand in the folder."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def holder(self, key: bytes) -> Held | None:
        return self._store.read(lambda folder: _holder(folder, key))

    def renew(self, key: bytes, owner: Owner) -> None:
        self._store.tried("claimed in", self._store.write, lambda folder: _renewed(folder, key, owner), False)

    def give_back(self, key: bytes, owner: Owner) -> None:
        self._store.tried("given back to", self._store.write, lambda folder: _ended(folder, key, owner), False)


# ---------------------------------------------------------------- what is done with the folder


_FIND = "SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1 AND (expire_time IS NULL OR expire_time > ?)"


def _find(folder: Folder, key: bytes) -> bytes | None:
    """The value of an entry; as diskcache's own `get`, which is half as quick and takes a missing file for no entry."""
    row = folder._con.execute(_FIND, (key, time.time())).fetchone()
    if row is None:
        return None
    mode, filename, value = row
    found: bytes = folder.disk.fetch(mode, filename, value, False)
    return found


def _put(folder: Folder, claim: Claim, row: Row, value: bytes, ttl: float | None) -> tuple[bool, int]:
    """Put an entry in place: whether it is there, and how many others had to go."""
    with folder._transact() as (sql, _):
        if claim.is_leased and not _ended(folder, claim.key, claim.owner):
            return False, 0
        folder.set(claim.key, value, expire=ttl, tag=claim.task)
        if row.functions:
            sql("INSERT OR IGNORE INTO Code VALUES (?, ?)", (row.code, row.functions))
    claim.is_leased = False
    return True, _evict(folder)


def _evict(folder: Folder) -> int:
    """Bring the folder below its limit; how many entries had to go for that, those stored first."""
    if folder.volume() <= folder.size_limit:
        return 0
    folder.expire()
    folder._sql("DELETE FROM Code")  # which is for explanations alone
    evicted = 0
    while (volume := folder.volume()) > folder.size_limit:
        with folder._transact() as (sql, gone):
            (count,) = sql("SELECT COUNT(*) FROM Cache").fetchone()
            most = max(1, int(count * (volume - folder.size_limit) / volume))
            rows = sql("SELECT rowid, filename FROM Cache ORDER BY store_time LIMIT ?", (most,)).fetchall()
            for rowid, filename in rows:
                sql("DELETE FROM Cache WHERE rowid = ?", (rowid,))
                gone(filename)
        if not rows:
            break
        evicted += len(rows)
    return evicted


def _ended(folder: Folder, key: bytes, owner: Owner) -> bool:
    """End an owner's lease; whether it stood."""
    ended = folder._sql("DELETE FROM Claims WHERE key = ? AND owner = ?", (key, str(owner)))
    return bool(ended.rowcount)


def _renewed(folder: Folder, key: bytes, owner: Owner) -> bool:
    """Let an owner's lease count for longer; whether it stood."""
    values = time.time() + LEASE, key, str(owner)
    return bool(folder._sql("UPDATE Claims SET until = ? WHERE key = ? AND owner = ?", values).rowcount)


def _take(folder: Folder, claim: Claim, may_replace: bool) -> Held | Literal[True] | None:
    """Lease a key to a claim; who has it else, or True when there is an entry by now."""
    with folder._transact() as (sql, _):
        if not may_replace and claim.key in folder:
            return True
        held = _holder(folder, claim.key)
        if held is not None and not held.is_over():
            return held
        values = claim.key, claim.task, str(claim.owner), time.time() + LEASE
        sql("INSERT OR REPLACE INTO Claims VALUES (?, ?, ?, ?)", values)
    claim.is_leased = True
    return None


def _holder(folder: Folder, key: bytes) -> Held | None:
    row = folder._sql("SELECT owner, until FROM Claims WHERE key = ?", (key,)).fetchone()
    if row is None or not isinstance(row[1], float):
        return None
    owner = Owner.parsed(str(row[0]))
    return None if owner is None else Held(owner, row[1])


def _descriptions(folder: Folder, task: str, limit: int) -> list[Described]:
    rows = folder._sql(
        "SELECT store_time, expire_time, mode, filename, substr(value, 1, ?) FROM Cache WHERE tag = ? "
        "ORDER BY rowid DESC LIMIT ?",
        (HEAD_OF_FILE, task, limit),
    ).fetchall()
    found = []
    for stored, until, mode, filename, value in rows:
        with suppress(UnreadableError):
            about = _about(folder.disk.fetch(mode, filename, value, True))
            if about:
                found.append(Described(about, stored, until))
    return sorted(found, key=lambda described: -described.stored)


def _functions(folder: Folder, code: bytes) -> bytes | None:
    row = folder._sql("SELECT functions FROM Code WHERE digest = ?", (code,)).fetchone()
    return None if row is None else bytes(row[0])


def _forget(folder: Folder, task: str | None) -> None:
    if task is None:
        folder._sql("DELETE FROM Claims")
        folder._sql("DELETE FROM Code")
        folder.clear()
    else:
        folder._sql("DELETE FROM Claims WHERE task = ?", (task,))
        folder.evict(task)


# ---------------------------------------------------------------- one value for an entry


def _joined(row: Row) -> bytes:
    body = row.about + row.blob
    length = len(row.about).to_bytes(4, "big")
    return _HEAD.pack(_FORMAT, zlib.crc32(body, zlib.crc32(length)), len(row.about)) + body


def _blob(value: bytes) -> bytes:
    """The blob in an entry's value.

    Raises:
        UnreadableError: it is damaged.
    """
    if len(value) >= _HEAD.size:
        format, checksum, length = _HEAD.unpack_from(value)
        if format == _FORMAT and zlib.crc32(memoryview(value)[_CHECKED:]) == checksum:
            return value[_HEAD.size + length :]
    raise UnreadableError("A cached result", "these bytes are damaged, or were written by another version of flowfn.")


def _about(value: bytes) -> bytes:
    """The description in the beginning of an entry's value; nothing if there is none."""
    if len(value) < _HEAD.size:
        return b""
    length: int = _HEAD.unpack_from(value)[2]
    return value[_HEAD.size : _HEAD.size + length]
