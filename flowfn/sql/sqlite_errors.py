"""What an error of SQLite means, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from flowfn.errors import StoreError

_WHY = {
    sqlite3.SQLITE_BUSY: "is locked: {holder} has been writing to it for more than {timeout:g} s. Let it end, or wait "
    "longer with `timeout=…`.",
    sqlite3.SQLITE_LOCKED: "is locked by another connection of this process: {error}.",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database, or is an encrypted one. Name another file.",
    sqlite3.SQLITE_CORRUPT: "is damaged ({error}). Stop what uses it and restore a copy, or save what can be read: "
    "`sqlite3 damaged.db .recover | sqlite3 new.db`.",
    sqlite3.SQLITE_READONLY: "cannot be written: the file or its folder is read-only ({error}). Change its "
    "permissions, or name another file.",
    sqlite3.SQLITE_PERM: "cannot be used: permission denied. Change its permissions, or name another file.",
    sqlite3.SQLITE_FULL: "could not grow: the disk is full, so make room there.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({error}): its folder cannot be written, or the path is a folder. "
    "Change its permissions, or name another file.",
    sqlite3.SQLITE_IOERR: "cannot be read or written: {error}. Look at the disk, whether it or a quota of yours is "
    "used up, and whether the file is still there.",
}
"""Primary result code → what it means and what to do."""

NETWORKS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs"}
"""File systems without the shared memory that a write-ahead log needs."""


SCARCE = 64 * 1024
"""Bytes: with less room than this left on the disk, an error of input or output is the disk's being full."""
_WRITE_LOCK = 120
"""The byte of the file of shared memory that stands for the right to write. Source: SQLite's walformat.html, 2.3."""


def explained(path: str, error: sqlite3.Error, timeout: float) -> StoreError:
    """The error as a sentence that names the database."""
    code = _code(error)
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path):
        code = sqlite3.SQLITE_FULL
    why = _WHY.get(code, "cannot be used: {error}.")
    holder = holder_of(path) if code == sqlite3.SQLITE_BUSY else None
    unknown = "another program (`fuser` with the path names it)"
    return StoreError(path, why.format(error=error, timeout=timeout, holder=holder or unknown))


def _code(error: sqlite3.Error) -> int:
    """The primary result code, 0 where there is none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_known(error: sqlite3.Error) -> bool:
    """Whether it says something about the file or the disk, and nothing about the statement."""
    return _code(error) in _WHY


def is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _is_full(path: str) -> bool:
    try:
        return shutil.disk_usage(os.path.dirname(path)).free < SCARCE
    except OSError:
        return False


def holder_of(path: str, locks: str = "/proc/locks") -> str | None:
    """Who holds the right to write, in words, where the system tells and it is a process that can be seen from here."""
    inodes: dict[str, bool] = {}
    for name, is_log in ((path, False), (f"{path}-shm", True)):
        try:
            at = os.stat(name)
        except OSError:
            continue
        inodes[f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"] = is_log
    try:
        lines = [line.split() for line in Path(locks).read_text().splitlines()]
    except OSError:
        return None
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 7387 fe:00:2154721 120 120
        if len(line) != 8 or line[3] != "WRITE" or line[5] not in inodes or not line[4].isdigit():
            continue
        pid, first, last = int(line[4]), int(line[6]), line[7]
        is_write_lock = first <= _WRITE_LOCK and (last == "EOF" or int(last) >= _WRITE_LOCK)
        if pid > 0 and (is_write_lock or not inodes[line[5]]):
            return "another connection of this process" if pid == os.getpid() else f"process {pid}{_command_of(pid)}"
    return None


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    command = " ".join(" ".join(words).split())
    return f" (`{command if len(command) <= 80 else command[:79] + '…'}`)" if command else ""


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether waiting may help."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def file_system(path: str, mounts: str = "/proc/self/mounts") -> str | None:
    """What kind of file system a path lies on, where the system tells."""
    try:
        lines = Path(mounts).read_text(errors="replace").splitlines()
    except OSError:
        return None
    real = os.path.join(os.path.realpath(path), "")
    points = [(point.replace("\\040", " "), kind) for _, point, kind, *_ in (line.split(" ") for line in lines)]
    around = [(len(point), kind) for point, kind in points if real.startswith(os.path.join(point, ""))]
    return max(around, default=(0, None), key=lambda found: found[0])[1]
