"""A cache in a folder: who can use it, what is read from it, and what happens when it fails."""

import errno
import logging
import os
import pickle
import sqlite3
import stat
import threading
import time
from pathlib import Path

import diskcache
import pytest

from flowfn.cache import DiskCache, folder
from flowfn.cache.base import Row
from flowfn.cache.flights import Claim
from flowfn.cache.keys import Subject
from flowfn.errors import CacheError
from flowfn.serde.base import Serializer
from flowfn.serde.keys import Keyring
from flowfn.types import MISSING
from tests.cache.processes import Child

TASK = "shop:tax"
KEY, OTHER = b"k" * 16, b"o" * 16
LARGE = b"x" * 100_000
SUBJECT = Subject(TASK, b"", ("x",), code=b"d" * 16, functions={"shop:tax": b"t"})
RAN = []


class Evil:
    """Whose pickle, loaded, says so."""

    def __reduce__(self):
        return RAN.append, ("ran",)


class Opaque:
    """Has to be pickled."""

    def __init__(self, value=1):
        self.value = value


@pytest.fixture
def cache(tmp_path):
    cache = DiskCache(tmp_path / "cache")
    yield cache
    cache.close()


def keep(cache, value, key=KEY, ttl=None):
    claim = cache.ask(TASK, key)
    assert isinstance(claim, Claim)
    return cache.keep(claim, value, ttl)


def sql(cache, statement, *values):
    """Change the database as somebody else could."""
    connection = sqlite3.connect(cache.folder / "cache.db", isolation_level=None)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def files(cache):
    return sorted(path for path in cache.folder.rglob("*.val"))


# ---------------------------------------------------------------- the folder


def test_the_folder_is_made_when_it_is_first_used_for_its_user_alone(tmp_path):
    cache = DiskCache(tmp_path / "deep" / "cache")
    assert not cache.folder.exists()
    keep(cache, LARGE)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (cache.folder, cache.folder / "cache.db", *files(cache))]
    assert modes == [0o700, 0o600, 0o600]
    cache.close()


def test_an_empty_folder_that_is_there_is_used(tmp_path):
    (tmp_path / "cache").mkdir(mode=0o755)
    assert keep(DiskCache(tmp_path / "cache"), 1)


def test_another_process_finds_what_was_kept(cache):
    keep(cache, {"small": 1})
    keep(cache, LARGE, OTHER)

    def work(tell, wait):
        other = DiskCache(cache.folder)
        return [other.look(TASK, KEY), other.look(TASK, OTHER) == LARGE]

    assert Child(work).result() == [{"small": 1}, True]


def test_what_another_process_clears_or_replaces_is_gone_here_at_once(cache):
    keep(cache, 1)
    keep(cache, 1, OTHER)

    def work(tell, wait):
        other = DiskCache(cache.folder)
        other.keep(other.permit(TASK, KEY), 2)
        tell("replaced")
        wait()
        other.clear()

    child = Child(work)
    assert child.hear() == "replaced"
    assert [cache.look(TASK, KEY), cache.look(TASK, OTHER)] == [2, 1]
    child.go()
    child.result()
    assert [cache.look(TASK, KEY), cache.look(TASK, OTHER)] == [MISSING, MISSING]


def test_six_processes_open_one_folder_at_once(tmp_path):
    def work(n):
        def work(tell, wait):
            tell("ready")
            wait()
            cache = DiskCache(tmp_path / "cache")
            return [keep(cache, n, bytes([n]) * 16), cache.look(TASK, bytes([n]) * 16)]

        return work

    children = [Child(work(n)) for n in range(6)]
    for child in children:
        child.hear()
    for child in children:
        child.go()
    assert [child.result() for child in children] == [[True, n] for n in range(6)]


def test_a_parent_and_its_forked_child_go_on_with_an_open_cache(cache):
    keep(cache, "before")

    def work(tell, wait):
        found = cache.look(TASK, KEY)
        kept = keep(cache, "child", OTHER)
        tell("kept")
        wait()  # until the parent has closed it
        return [found, kept, cache.look(TASK, OTHER), keep(cache, "later", b"l" * 16)]

    child = Child(work)
    assert child.hear() == "kept"
    assert [cache.look(TASK, KEY), cache.look(TASK, OTHER)] == ["before", "child"]
    cache.close()
    child.go()
    assert child.result() == ["before", True, "child", True]
    assert cache.look(TASK, b"l" * 16) == "later"
    assert sql(cache, "PRAGMA integrity_check") == [("ok",)]


def test_a_folder_that_is_deleted_while_it_is_open_is_made_again(cache):
    keep(cache, 1)
    for path in sorted(cache.folder.rglob("*"), reverse=True):
        path.unlink()
    cache.folder.rmdir()
    assert cache.look(TASK, KEY) is MISSING
    assert keep(cache, 2)
    assert DiskCache(cache.folder).look(TASK, KEY) == 2


def test_threads_that_come_and_go_leave_few_connections_open(cache):
    keep(cache, 1)

    def open_files():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum("cache.db" in os.readlink(link) for link in links if os.path.lexists(link))

    for _ in range(20):
        threads = [threading.Thread(target=cache.look, args=(TASK, KEY)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 0 < open_files() <= 3 * (folder._IDLE + 1)


def test_a_closed_cache_opens_again(cache):
    keep(cache, 1)
    cache.close()
    assert cache.look(TASK, KEY) == 1


def test_a_cache_is_not_sent_anywhere(cache):
    with pytest.raises(TypeError, match="name its folder there"):
        pickle.dumps(cache)


# ---------------------------------------------------------------- folders that cannot be used


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(CacheError, match=r"cache` is a file\. A cache is a folder"):
        DiskCache(tmp_path / "cache").look(TASK, KEY)
    with pytest.raises(CacheError, match="cannot be made"):
        DiskCache(tmp_path / "cache" / "below").ask(TASK, KEY)
    assert (tmp_path / "cache").read_text() == "mine"


def test_a_folder_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(CacheError, match=r"cannot be written\. Change its permissions"):
        DiskCache(tmp_path / "cache").open()


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "file_system", lambda path: "nfs4")
    with pytest.raises(CacheError, match=r"network file system \(nfs4\)"):
        DiskCache(tmp_path / "cache").open()


def test_a_path_with_a_variable_in_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP", "elsewhere")
    with pytest.raises(CacheError, match=r"has a `\$`"):
        DiskCache(tmp_path / "$SHOP").open()


def test_a_folder_of_another_program_is_left_alone(tmp_path):
    with diskcache.Cache(str(tmp_path / "cache")) as theirs:
        theirs["key"] = "value"
        with pytest.raises(CacheError, match="used by another program"):
            DiskCache(tmp_path / "cache").clear()
        assert theirs["key"] == "value"


def test_a_damaged_database_says_what_to_do(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "cache.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(CacheError, match=r"is damaged .* Delete the folder"):
        DiskCache(tmp_path / "cache").ask(TASK, KEY)


@pytest.mark.parametrize(("name", "value"), [("_sql", "x"), ("disk_nonsense", 1), ("sqlite_nonsense", "x; DROP")])
def test_settings_that_somebody_has_put_there_run_nothing(cache, name, value):
    keep(cache, 1)
    cache.close()
    sql(cache, "INSERT INTO Settings VALUES (?, ?)", name, value)
    try:
        assert cache.look(TASK, KEY) == 1
    except CacheError as error:
        assert "Delete the folder" in str(error) or "cannot be used" in str(error)


# ---------------------------------------------------------------- entries that cannot be trusted


def is_missed(cache, caplog, key=KEY):
    """Whether an entry counts as none, the log says so, and it can be computed anew."""
    caplog.set_level(logging.WARNING)
    assert cache.look(TASK, key) is MISSING
    assert "counts as none" in caplog.text
    claim = cache.ask(TASK, key)
    return isinstance(claim, Claim) and cache.keep(claim, "anew") and cache.look(TASK, key) == "anew"


@pytest.mark.parametrize("value", ["small", LARGE])
def test_a_changed_byte_is_noticed(cache, caplog, value):
    keep(cache, value)
    if files(cache):
        data = bytearray(files(cache)[0].read_bytes())
        data[-1] ^= 1
        files(cache)[0].write_bytes(data)
    else:
        ((data,),) = sql(cache, "SELECT value FROM Cache")
        sql(cache, "UPDATE Cache SET value = ?", data[:-1] + bytes([data[-1] ^ 1]))
    assert is_missed(cache, caplog)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01" * 9, b"\x02" + b"\0" * 30])
def test_a_value_cut_short_is_noticed(cache, caplog, data):
    keep(cache, "small")
    sql(cache, "UPDATE Cache SET value = ?", data)
    assert is_missed(cache, caplog)
    assert cache.entries(TASK) == []


def test_a_file_that_is_missing_or_cut_short_is_noticed(cache, caplog):
    keep(cache, LARGE)
    files(cache)[0].unlink()
    assert is_missed(cache, caplog)
    keep(cache, LARGE, OTHER)
    os.truncate(files(cache)[0], 1000)
    assert is_missed(cache, caplog, OTHER)


@pytest.mark.parametrize("mode", [0, 3, 4, 7])
def test_rows_of_other_kinds_are_never_loaded(cache, caplog, mode):
    keep(cache, "small")
    sql(cache, "UPDATE Cache SET mode = ?, value = ?", mode, pickle.dumps(Evil()))
    assert is_missed(cache, caplog)
    assert RAN == []


@pytest.mark.parametrize("value", ["text", 7, None])
def test_rows_that_hold_no_bytes_are_refused(cache, caplog, value):
    keep(cache, "small")
    sql(cache, "UPDATE Cache SET value = ?", value)
    assert is_missed(cache, caplog)


def test_no_file_outside_the_folder_is_read_or_removed(cache, caplog, tmp_path):
    keep(cache, "secret", OTHER)
    ((valid,),) = sql(cache, "SELECT value FROM Cache")
    secret = tmp_path / "secret"
    secret.write_bytes(valid)
    link = cache.folder / "aa" / "bb" / ("c" * 28 + ".val")
    inside = cache.folder / "dd"
    keep(cache, LARGE)
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    inside.symlink_to(tmp_path)
    (tmp_path / "ee").mkdir()
    (tmp_path / "ee" / link.name).write_bytes(valid)
    for name in ("../secret", str(secret), f"aa/bb/{link.name}", f"dd/ee/{link.name}", "cache.db"):
        sql(cache, "UPDATE Cache SET mode = 2, value = NULL, filename = ?", name)
        assert is_missed(cache, caplog)
        sql(cache, "UPDATE Cache SET filename = ?", name)
        cache.clear()
        caplog.clear()
        cache._say._said.clear()
        assert secret.read_bytes() == valid
        assert (tmp_path / "ee" / link.name).exists()
        assert (cache.folder / "cache.db").exists()
        keep(cache, LARGE)


def test_a_pickle_that_nobody_signed_is_not_loaded(cache, caplog):
    keep(cache, "small")
    cache._write(cache.permit(TASK, KEY), Row(Serializer().dumps(Evil())), None)
    RAN.clear()
    assert is_missed(cache, caplog)
    assert RAN == []


def test_a_result_signed_with_a_key_that_is_not_here_is_a_miss(tmp_path, caplog):
    theirs = DiskCache(tmp_path / "cache", serde=Serializer(keys=Keyring.of("their secret, long enough")))
    keep(theirs, Opaque())
    mine = DiskCache(tmp_path / "cache", serde=Serializer(keys=Keyring.of("my secret, long enough too")))
    assert is_missed(mine, caplog)


def test_a_signed_result_answers_no_other_call(cache, caplog):
    keep(cache, Opaque(1))
    keep(cache, Opaque(2), OTHER)
    assert cache.look(TASK, KEY).value == 1
    ((data,),) = sql(cache, "SELECT value FROM Cache WHERE key = ?", OTHER)
    sql(cache, "UPDATE Cache SET value = ? WHERE key = ?", data, KEY)
    assert is_missed(cache, caplog)
    assert cache.look(TASK, OTHER).value == 2


def test_a_description_that_is_damaged_harms_nobody(cache):
    claim = cache.ask(TASK, KEY)
    cache._write(claim, Row(Serializer().dumps(1), b"nonsense", b"c" * 16, b"nonsense"), None)
    assert cache.entries(TASK) == []
    assert cache.look(TASK, KEY) == 1
    cache._write(cache.permit(TASK, OTHER), cache._row(TASK, OTHER, 1, SUBJECT.parts([b"1"], ["1"])), None)
    assert len(cache.entries(TASK)) == 1
    sql(cache, "UPDATE Code SET functions = ?", Serializer().dumps({1: 2}))
    assert cache.entries(TASK) == []


# ---------------------------------------------------------------- folders that fail while they are used


def test_a_full_disk_costs_no_result_and_leaves_nothing_behind(cache, caplog):
    keep(cache, "small")
    writer = cache._store._first()
    ((pages,),) = writer._sql("PRAGMA page_count").fetchall()
    writer._sql(f"PRAGMA max_page_count = {pages}")
    claim = cache.ask(TASK, OTHER)
    assert cache.keep(claim, b"y" * 30_000) is False
    assert "full" in caplog.text
    assert files(cache) == []
    assert cache.look(TASK, KEY) == "small"
    writer._sql("PRAGMA max_page_count = 1000000")
    assert keep(cache, b"y" * 30_000, OTHER)


def test_a_disk_without_room_for_a_file_costs_no_result(cache, caplog, monkeypatch):
    class Full:
        def __init__(self, *args):
            os.close(args[0])

        def __enter__(self):
            raise OSError(errno.ENOSPC, "No space left on device")

        def __exit__(self, *args):
            pass

    monkeypatch.setattr(folder, "open", Full, raising=False)
    claim = cache.ask(TASK, KEY)
    assert cache.keep(claim, LARGE) is False
    assert "No space left" in caplog.text
    assert files(cache) == []


def test_whoever_finds_the_folder_busy_computes(tmp_path, caplog):
    cache = DiskCache(tmp_path / "cache", timeout=0.01)
    keep(cache, "there")
    busy = sqlite3.connect(cache.folder / "cache.db", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    claim = cache.ask(TASK, OTHER)
    assert isinstance(claim, Claim)
    assert cache.keep(claim, "lost") is False
    assert "locked" in caplog.text
    assert cache.look(TASK, KEY) == "there"
    with pytest.raises(CacheError, match="locked"):
        cache.clear()
    busy.close()
    assert keep(cache, "kept", OTHER)


def test_a_database_that_breaks_while_it_is_open_costs_no_result(cache, caplog):
    keep(cache, "there")
    sql(cache, "PRAGMA wal_checkpoint(TRUNCATE)")
    with open(cache.folder / "cache.db", "r+b") as file:
        file.write(b"no database at all" * 1000)
    cache._store._idle.clear()  # as a process that has read nothing yet
    assert cache.look(TASK, KEY) is MISSING
    claim = cache.ask(TASK, KEY)
    assert cache.keep(claim, "computed") is False
    assert "damaged" in caplog.text


# ---------------------------------------------------------------- what it costs


def test_a_hit_reads_one_row_and_writes_nothing(cache):
    keep(cache, "small")
    reader = cache._store._idle[-1] if cache._store._idle else cache._store._first()
    cache.look(TASK, KEY)
    seen = []
    for one in {id(f): f for f in (*cache._store._idle, cache._store._first(), reader)}.values():
        one._con.set_trace_callback(seen.append)
    cache.look(TASK, KEY)
    assert len(seen) == 1
    assert seen[0].startswith("SELECT")


def test_large_results_lie_in_files_and_go_with_their_entries(cache):
    for n in range(3):
        keep(cache, LARGE, bytes([n]) * 16, ttl=100 if n else None)
    assert len(files(cache)) == 3
    cache.keep(cache.permit(TASK, b"\0" * 16), "small now")
    assert len(files(cache)) == 2
    cache.clear([(TASK,)])
    assert files(cache) == []
    assert Path(cache.folder, "cache.db").exists()


def test_expired_entries_go_first_when_room_is_needed(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path / "cache", size_limit=1 << 20)
    keep(cache, b"a" * 300_000, b"a" * 16)
    keep(cache, b"b" * 300_000, b"b" * 16, ttl=10)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    for key in (b"c", b"d"):
        keep(cache, key * 300_000, key * 16)
    found = [cache.look(TASK, key * 16) is not MISSING for key in (b"a", b"b", b"c", b"d")]
    assert found == [True, False, True, True]
    cache.close()
