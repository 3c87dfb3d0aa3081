"""A full disk, and a file that another process holds: `StoreError` names the file, and nothing stored is lost."""

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import SaveCall
from flowfn.sql.sqlite_errors import explained, holder_of
from tests.checkpoint.filling import MANY, PLACE, RUN, call, filled, is_whole, numbers, start, told


@pytest.fixture
def path(tmp_path):
    return filled(str(tmp_path / "flows.db"))


# ---------------------------------------------------------------- a full disk


def mounted(folder):
    """Whether a disk of half a megabyte could be put there."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        return False
    return (
        subprocess.run([mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True).returncode == 0
    )


@pytest.fixture(params=["quota", "disk"])
def cramped(request, tmp_path):
    """A saver whose disk is soon full, and what makes room."""
    folder = tmp_path / "small"
    folder.mkdir()
    is_disk = request.param == "disk" and mounted(folder)
    if request.param == "disk" and not is_disk and os.environ.get("CI") != "true":
        pytest.skip("a small disk can only be mounted by root; the quota stands in for it")
    saver = SqliteSaver(folder / "flows.db")
    ballast = folder / "ballast"
    if is_disk:
        ballast.write_bytes(b"x" * 200_000)

    def make_room():
        ballast.unlink(missing_ok=True)
        saver.sql._writer.execute("PRAGMA max_page_count = 1000000")

    start(saver)
    if not is_disk:
        saver.sql._writer.execute("PRAGMA max_page_count = 60")
    yield saver, make_room
    saver.close()
    if is_disk:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_gets_full_in_a_commit_keeps_all_that_was_stored(cramped):
    saver, make_room = cramped
    seq = 0

    def fill():
        nonlocal seq
        while seq < 10_000:
            batch = [SaveCall(PLACE, RUN, call(seq + n)._replace(payload=b"x" * 700)) for n in (1, 2, 3)]
            saver.save(batch)
            seq += 3

    for _ in range(3):
        told(saver.path, fill, "disk is full", "make room")
        assert numbers(saver) == list(range(1, seq + 1))
    assert 30 < seq < 1000

    make_room()
    saver.save([SaveCall(PLACE, RUN, call(seq + 1))])
    assert numbers(saver) == list(range(1, seq + 2))
    saver.close()
    with SqliteSaver(saver.path) as again:
        assert numbers(again) == list(range(1, seq + 2))
    assert is_whole(saver.path)


def test_an_error_of_a_disk_without_room_is_named_so(path, monkeypatch):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert "Look at the disk" in str(explained(path, error, 1))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    assert "disk is full" in str(explained(path, error, 1))


# ---------------------------------------------------------------- locked for too long

HOLDS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="only Linux tells who holds a lock")
def test_who_holds_a_locked_file_is_named(path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child.stdout.readline()
    saver = SqliteSaver(path, timeout=0.05)
    text = told(path, lambda: saver.save([SaveCall(PLACE, RUN, call(MANY + 1))]), f"process {child.pid} (`", "0.05 s")
    assert "timeout=" in text
    assert len(numbers(saver)) == MANY
    child.communicate("")
    assert holder_of(path) is None
    saver.save([SaveCall(PLACE, RUN, call(MANY + 1))])
    assert len(numbers(SqliteSaver(path))) == MANY + 1


def test_who_holds_a_file_may_stay_unknown(path, tmp_path):
    at = os.stat(path)
    inode = f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"
    locks = tmp_path / "locks"
    lines = [f"1: POSIX  ADVISORY  READ 7 {inode} 0 EOF", "2: POSIX ADVISORY WRITE 7 00:00:1 0 EOF", "nonsense"]
    lines += [f"3: -> POSIX  ADVISORY  WRITE 7 {inode} 0 EOF", f"4: POSIX  ADVISORY  WRITE 0 {inode} 0 EOF"]
    locks.write_text("\n".join(lines))
    assert holder_of(path, str(locks)) is None
    assert holder_of(path, str(tmp_path / "none")) is None
    locks.write_text(f"1: POSIX  ADVISORY  WRITE {os.getpid()} {inode} 0 EOF\n")
    assert holder_of(path, str(locks)) == "another connection of this process"
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    assert "fuser" in str(explained(path, error, 1))
