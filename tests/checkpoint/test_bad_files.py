"""What can be wrong with a file: each is a `StoreError` that names the file, and nothing stored is lost."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import SaveCall
from tests.checkpoint.filling import MANY, PLACE, RUN, call, filled, is_whole, numbers, told

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def path(tmp_path):
    return filled(str(tmp_path / "flows.db"))


def crashed(path):
    """A process stores calls and is killed: some of them are in the log only."""
    child = subprocess.run(
        [sys.executable, "-c", CRASHES, path, str(MANY)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert os.path.getsize(f"{path}-wal") > 0
    return list(range(1, MANY + 51))


CRASHES = """
import os, signal, sys
from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import Place, SaveCall
from tests.checkpoint.filling import RUN, call
saver, first = SqliteSaver(sys.argv[1]), int(sys.argv[2]) + 1
for seq in range(first, first + 50):
    saver.save([SaveCall(Place("t"), RUN, call(seq))])
os.kill(os.getpid(), signal.SIGKILL)
"""

# ---------------------------------------------------------------- permissions


def error_of_nobody(work):
    """What `work` raises, as text, in a process that root's rights do not help; empty for nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = "it did not run"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
            text = ""
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text


@pytest.fixture
def shown():
    """A folder that everybody may look into."""
    folder = tempfile.mkdtemp(prefix="flowfn-")
    os.chmod(folder, 0o755)
    yield folder
    os.chmod(folder, 0o755)
    shutil.rmtree(folder)


def test_a_file_in_a_folder_that_cannot_be_written(shown):
    path = filled(os.path.join(shown, "flows.db"))
    os.chmod(path, 0o444)
    os.chmod(shown, 0o555)

    error = error_of_nobody(lambda: SqliteSaver(path).save([SaveCall(PLACE, RUN, call(MANY + 1))]))
    assert error.startswith("StoreError")
    assert path in error
    assert "permissions" in error
    assert "StoreError" in error_of_nobody(lambda: SqliteSaver(os.path.join(shown, "new.db")).threads())
    assert error_of_nobody(lambda: check(numbers(SqliteSaver(path, read_only=True)))) == ""

    os.chmod(shown, 0o755)
    os.chmod(path, 0o644)
    assert len(numbers(SqliteSaver(path))) == MANY


def check(found):
    assert len(found) == MANY


def test_a_file_that_cannot_be_written(shown):
    path = filled(os.path.join(shown, "flows.db"))
    os.chmod(path, 0o444)
    os.chmod(shown, 0o777)
    error = error_of_nobody(lambda: SqliteSaver(path).save([SaveCall(PLACE, RUN, call(MANY + 1))]))
    assert error.startswith("StoreError")
    assert path in error
    assert "read-only" in error
    assert os.listdir(shown) == ["flows.db"]
    os.chmod(path, 0o666)
    assert error_of_nobody(lambda: SqliteSaver(path).save([SaveCall(PLACE, RUN, call(MANY + 1))])) == ""
    assert len(numbers(SqliteSaver(path))) == MANY + 1


def test_a_file_that_cannot_be_read(shown):
    path = filled(os.path.join(shown, "flows.db"))
    os.chmod(path, 0o000)
    for read_only in (False, True):
        error = error_of_nobody(lambda read_only=read_only: SqliteSaver(path, read_only=read_only).threads())
        assert error.startswith("StoreError")
        assert path in error
    os.chmod(path, 0o644)
    assert len(numbers(SqliteSaver(path))) == MANY


# ---------------------------------------------------------------- damage


def test_a_folder_in_its_place(tmp_path):
    for read_only in (False, True):
        told(str(tmp_path), SqliteSaver(tmp_path, read_only=read_only).threads, "cannot be opened", "folder")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_truncated_file_is_left_alone(path, read_only):
    good = Path(path).read_bytes()
    for size in (len(good) // 2, 4096, 100, 10):
        os.truncate(path, size)
        saver = SqliteSaver(path, read_only=read_only)
        told(path, lambda saver=saver: numbers(saver))
        saver.close()
        assert os.path.getsize(path) == size
        Path(path).write_bytes(good)
        assert len(numbers(saver)) == MANY
        saver.close()
    assert is_whole(path)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_page_is_told_and_the_file_put_right_has_everything(path, read_only):
    good = Path(path).read_bytes()
    damaged = bytearray(good)
    for page in range(1, len(good) // 4096):
        if b"shop.charge" in good[page * 4096 : (page + 1) * 4096]:
            damaged[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
            break
    Path(path).write_bytes(damaged)
    saver = SqliteSaver(path, read_only=read_only)
    told(path, lambda: numbers(saver), "is damaged", ".recover")
    assert [row.thread for row in saver.threads()] == ["t"]
    saver.close()
    assert Path(path).read_bytes() == damaged
    Path(path).write_bytes(good)
    assert len(numbers(saver)) == MANY


@pytest.mark.parametrize("size", [0.5, 0.9])
def test_a_copy_in_place_of_a_damaged_file_finds_what_was_in_the_log(path, size):
    stored = crashed(path)
    good, log = Path(path).read_bytes(), Path(f"{path}-wal").read_bytes()
    os.truncate(path, int(len(good) * size))
    saver = SqliteSaver(path)
    told(path, lambda: numbers(saver), "is damaged")
    saver.close()
    assert Path(f"{path}-wal").read_bytes() == log

    Path(path).write_bytes(good)
    assert numbers(SqliteSaver(path)) == stored
    assert is_whole(path)


def test_an_empty_file_becomes_a_database(tmp_path):
    # As a process leaves it that is killed while it makes one.
    path = str(tmp_path / "flows.db")
    Path(path).touch()
    filled(path)
    assert len(numbers(SqliteSaver(path))) == MANY


@pytest.mark.parametrize("read_only", [False, True])
def test_an_empty_file_whose_log_is_not_empty_is_left_alone(path, read_only):
    stored = crashed(path)
    good, log = Path(path).read_bytes(), Path(f"{path}-wal").read_bytes()
    os.truncate(path, 0)
    saver = SqliteSaver(path, read_only=read_only)
    told(path, lambda: numbers(saver), "is empty", f"{path}-wal", "copy")
    saver.close()
    assert Path(f"{path}-wal").read_bytes() == log
    assert os.path.getsize(path) == 0

    Path(path).write_bytes(good)
    assert numbers(SqliteSaver(path)) == stored
    assert is_whole(path)


def test_garbage_in_its_place_is_left_alone(path):
    stored = crashed(path)
    good, log = Path(path).read_bytes(), Path(f"{path}-wal").read_bytes()
    Path(path).write_bytes(b"Dear diary, " * 1000)
    saver = SqliteSaver(path)
    told(path, lambda: numbers(saver))
    saver.close()
    assert Path(path).read_bytes() == b"Dear diary, " * 1000
    assert Path(f"{path}-wal").read_bytes() == log
    Path(path).write_bytes(good)
    assert numbers(SqliteSaver(path)) == stored


# ---------------------------------------------------------------- gone while it is open


def test_a_file_that_is_moved_away_takes_nothing_more_until_it_is_back(path, tmp_path):
    saver = SqliteSaver(path)
    saver.save([SaveCall(PLACE, RUN, call(MANY + 1))])
    os.rename(path, tmp_path / "away.db")
    for _ in range(2):
        told(path, lambda: saver.save([SaveCall(PLACE, RUN, call(MANY + 2))]), "moved or deleted", "back")
        told(path, lambda: numbers(saver), "moved or deleted")
    assert not os.path.exists(path)
    os.rename(tmp_path / "away.db", path)
    assert len(numbers(saver)) == MANY + 1
    saver.save([SaveCall(PLACE, RUN, call(MANY + 2))])
    saver.close()
    assert numbers(SqliteSaver(path)) == list(range(1, MANY + 3))
    assert is_whole(path)


def test_a_moved_file_finds_its_log_when_it_is_back_after_a_restart(path, tmp_path):
    saver = SqliteSaver(path)
    saver.save([SaveCall(PLACE, RUN, call(MANY + 1))])
    os.rename(path, tmp_path / "away.db")
    told(path, lambda: saver.save([SaveCall(PLACE, RUN, call(MANY + 2))]))
    saver.close()
    os.rename(tmp_path / "away.db", path)
    assert numbers(SqliteSaver(path)) == list(range(1, MANY + 2))


def test_a_deleted_file_is_told_and_a_closed_saver_begins_anew(path):
    saver = SqliteSaver(path)
    saver.save([SaveCall(PLACE, RUN, call(MANY + 1))])
    for name in (path, f"{path}-wal", f"{path}-shm"):
        os.unlink(name)
    told(path, lambda: saver.save([SaveCall(PLACE, RUN, call(MANY + 2))]), "moved or deleted", "close the saver")
    saver.close()
    assert saver.threads() == []
    filled(path)
    assert len(numbers(saver)) == MANY


def test_a_file_that_is_replaced_does_not_take_what_was_meant_for_the_other(path, tmp_path):
    saver = SqliteSaver(path)
    saver.load(PLACE)
    other = filled(str(tmp_path / "other.db"), calls=3)
    os.replace(other, path)
    told(path, lambda: saver.save([SaveCall(PLACE, RUN, call(MANY + 1))]), "was replaced", "close the saver")
    saver.close()
    assert numbers(saver) == [1, 2, 3]
    saver.save([SaveCall(PLACE, RUN, call(4))])
    assert numbers(SqliteSaver(path)) == [1, 2, 3, 4]
