"""Values that grow, in a file: how many bytes they take, how they are read, and what is left of them after a kill."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.checkpoint.base import Place
from flowfn.errors import StoreError, UnreadableError
from flowfn.serde import EncryptedSerializer, Keyring
from flowfn.types import Overwrite
from tests.contracts.growing import Line, merged
from tests.contracts.saving import PLACE

# ---------------------------------------------------------------- whatever is written


def as_reduced(held, writes):
    """The values after a super-step, by the plainest means."""
    new = dict(held)
    for name, values in writes.items():
        replaced = [value.value for value in values if isinstance(value, Overwrite)]
        if name == "delta":
            new[name] = replaced[0] if replaced else merged(dict(held.get(name, {})), values)
        elif name == "topic":
            items = [item for value in values for item in (value if isinstance(value, list) else [value])]
            if held.get(name) or items:
                new[name] = [*held.get(name, ()), *items]
        else:
            new[name] = (
                replaced[0] if replaced else [*held.get(name, ()), *(item for value in values for item in value)]
            )
    return new


ITEMS = st.lists(st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2), max_size=3)
LOG = st.lists(ITEMS, min_size=1, max_size=2) | ITEMS.map(lambda items: [[1], Overwrite(items), [2]])
TOPIC = st.lists(st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=3), max_size=3)
DICTS = st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 9), max_size=2))
DELTA = st.lists(DICTS, min_size=1, max_size=2) | DICTS.map(lambda held: [{"a": [1]}, Overwrite(held)])
WRITES = st.fixed_dictionaries({}, optional={"log": LOG, "topic": TOPIC, "delta": DELTA})
STEPS = st.lists(st.tuples(WRITES, st.sampled_from(["on", "on", "restart", "back"]), st.integers(0, 99)), max_size=25)


@pytest.mark.parametrize("make", [InMemorySaver, lambda: SqliteSaver(":memory:")], ids=["memory", "sqlite"])
def test_what_is_read_back_is_what_was_written_whatever_that_was(make):
    @settings(max_examples=150, deadline=None)
    @given(STEPS)
    def check(steps):
        saver = make()
        line, held = Line(saver), {"log": [], "delta": {}}
        known = []
        for number, (writes, then, choice) in enumerate(steps):
            held = as_reduced(held, writes)
            line.step(f"{number:04d}", **writes)
            known.append(held)
            assert line.seen() == held
            if then == "restart":
                line = line.back_at()
            elif then == "back":  # another branch leaves from there, and counts to versions that are taken
                line, held = line.back_at(f"{choice % len(known):04d}"), known[choice % len(known)]
            assert line.seen() == held
        for number, held in enumerate(known):
            assert line.back_at(f"{number:04d}").seen() == held
        saver.close()

    check()


# ---------------------------------------------------------------- bytes, and statements


def size_of(path, steps):
    """Bytes in the file after so many super-steps, each of which adds to every channel."""
    with SqliteSaver(path) as saver:
        line = Line(saver)
        for number in range(steps):
            line.step(f"{number:06d}", log=[[number]], topic=[number])
    return os.path.getsize(path)


def test_a_super_step_takes_as_many_bytes_however_long_the_list_is(tmp_path):
    few, many = 1_000, 10_000
    short, long = size_of(tmp_path / "short.db", few), size_of(tmp_path / "long.db", many)
    assert long / many < 1.15 * short / few


def test_all_chains_of_a_checkpoint_are_read_by_one_statement(tmp_path):
    with SqliteSaver(tmp_path / "flows.db") as saver:
        line = Line(saver)
        for number in range(200):
            line.step(f"{number:04d}", log=[[number]], topic=[number], delta=[{"a": [number]}])
        saver.load(PLACE)
        said = []
        for connection in (saver.sql._writer, *saver.sql._idle):
            connection.set_trace_callback(said.append)
        saver.load(PLACE)
        assert sum("channel_values" in statement and "RECURSIVE" in statement for statement in said) == 1
        assert sum("channel_values" in statement for statement in said) == 2


# ---------------------------------------------------------------- kills, and damage

GROWS = """
import sys
from flowfn.checkpoint import SqliteSaver
from tests.contracts.growing import Line
line = Line(SqliteSaver(sys.argv[1]))
try:
    line = line.back_at()
except AttributeError:
    pass
at = len(line.seen()["log"])
while True:
    line.step(f"{at:06d}", log=[[at]], topic=[at], delta=[{"a": [at]}])
    at += 1
    print(at, flush=True)
"""


def test_a_killed_process_leaves_every_value_as_after_some_super_step(tmp_path):
    path = tmp_path / "flows.db"
    told = 0
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", GROWS, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(37):
            told = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with SqliteSaver(path) as saver:
            seen = Line(saver).back_at().seen()
        numbers = list(range(len(seen["log"])))
        assert len(numbers) >= told
        assert seen == {"log": numbers, "topic": numbers, "delta": {"steps": len(numbers), "a": numbers}}


def grown(path, serde=None):
    """A closed file with fourteen super-steps: of the list, the whole of eight items, and six additions."""
    with SqliteSaver(path, serde=serde) as saver:
        line = Line(saver)
        for number in range(14):
            line.step(f"{number:04d}", log=[[number]])
    return path


def execute(path, sql, *params):
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, params).fetchall()


def rows(path):
    return execute(path, "SELECT version, prev FROM channel_values ORDER BY version")


def test_the_whole_is_stored_whenever_the_list_has_doubled(tmp_path):
    path = grown(tmp_path / "flows.db")
    whole = [version for version, prev in rows(path) if prev is None]
    assert whole == [1, 2, 4, 8]
    assert all(prev == version - 1 for version, prev in rows(path) if prev is not None)


@pytest.mark.parametrize(
    ("gone", "still"),
    [(8, range(7)), (10, range(9)), (13, range(12))],
)
def test_without_a_row_what_builds_on_it_is_an_error_and_never_another_value(tmp_path, gone, still):
    path = grown(tmp_path / "flows.db")
    execute(path, "DELETE FROM channel_values WHERE version = ?", gone)
    with SqliteSaver(path) as saver:
        for number in range(gone, 14):
            with pytest.raises(
                UnreadableError, match=f"Channel `log`.*added to its version {gone}, which is not there"
            ):
                saver.load(PLACE, f"{number:04d}")
        for number in still:
            assert Line(saver).back_at(f"{number:04d}").seen()["log"] == list(range(number + 1))


@pytest.mark.parametrize("prev", [None, 8, 9, 12, 99, "11", b"x"])
def test_an_encrypted_addition_is_read_in_its_own_chain_alone(tmp_path, prev):
    serde = EncryptedSerializer(Keyring.of("a secret of these tests"))
    path = grown(tmp_path / "flows.db", serde)
    execute(path, "UPDATE channel_values SET prev = ? WHERE version = 12", prev)
    with SqliteSaver(path, serde=serde) as saver:
        with pytest.raises(UnreadableError, match="Channel `log`"):
            saver.load(PLACE)
        assert Line(saver).back_at("0010").seen()["log"] == list(range(11))


# ---------------------------------------------------------------- files of the format before

FORMAT_1 = """CREATE TABLE channel_values (
    thread TEXT NOT NULL, ns TEXT NOT NULL, channel TEXT NOT NULL, version NOT NULL, checkpoint TEXT NOT NULL,
    payload BLOB NOT NULL, PRIMARY KEY (thread, ns, channel, version, checkpoint)
) WITHOUT ROWID"""


def of_format_1(path):
    """A file as it was before values could be added to, with a thread of three super-steps, and how it reads."""
    with SqliteSaver(path) as saver:
        line = Line(saver)
        for number, items in enumerate(([1, 2, 3], [4], [5])):
            line.step(f"{number:04d}", log=[Overwrite([*line.seen()["log"], *items])], last=[number])
        before = [line.back_at(f"{number:04d}").seen() for number in range(3)]
    assert all(prev is None for _, prev in rows(path))
    for statement in (
        "ALTER TABLE channel_values RENAME TO newer",
        FORMAT_1,
        "INSERT INTO channel_values SELECT thread, ns, channel, version, checkpoint, payload FROM newer",
        "DROP TABLE newer",
        "UPDATE meta SET value = 1 WHERE name = 'format'",
    ):
        execute(path, statement)
    return before


def test_a_file_of_format_1_is_migrated_and_goes_on(tmp_path):
    path = tmp_path / "flows.db"
    before = of_format_1(path)
    with SqliteSaver(path, read_only=True) as viewer, pytest.raises(StoreError, match=r"older flowfn \(format 1"):
        viewer.load(PLACE)
    with SqliteSaver(path) as saver:
        assert [Line(saver).back_at(f"{number:04d}").seen() for number in range(3)] == before
        line = Line(saver).back_at().step("0003", log=[[6]])
        assert line.deltas() == {"log"}
        assert line.back_at().seen()["log"] == [1, 2, 3, 4, 5, 6]
        saver.copy_thread("t", "u")
        assert Line(saver, Place("u")).back_at().seen() == line.seen()
    new = tmp_path / "new.db"
    with SqliteSaver(new) as saver:
        saver.thread("t")
    schema = "SELECT name, sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name"
    assert execute(path, schema) == execute(new, schema)
    assert execute(path, "SELECT value FROM meta WHERE name = 'format'") == [(2,)]
