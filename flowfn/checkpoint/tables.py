"""The format of a SQLite file of threads: its tables, and every statement that reads or writes them.

**The format (2).** It stays: a newer flowfn reads it, or migrates it in a transaction.

| table | a row is | found by |
|---|---|---|
| meta | a fact about the file; `format` is the number above | name |
| threads | a thread, and the lease of who runs it | thread; status and time; flow, status and time |
| runs | a run; its text id is `name`, its number `id` is never used again | number; (thread, ns, name); name |
| calls | a call with an outcome: appended in the order of its number, `run.id << 32 \\| seq` | number |
| questions | a question and its answer, in the order asked | (thread, id); run; the open ones by time and by thread |
| checkpoints | a checkpoint without values; `record` is what `rows` encodes | (thread, ns, id); id; run |
| channel_values | a channel's value, or what was added to its version `prev` | (thread, ns, channel, version) |
| writes | one pending write of a node's task | (thread, ns, checkpoint, task, slot) |
| keys | the id of a key that has signed a payload here | id |

A call costs one small row at the end of one table and nothing else; a run's calls are one range of numbers. Branches
count versions independently, so a value's key ends with the checkpoint that stored it; where two rows share a version,
a reader takes the one in its own line of parents. Of an addition, the rows that it builds on, down to a whole
value, are read in one query for all channels. Texts are UTF-8; a thread id with lone surrogates is a blob instead.
Moments are seconds since 1970, UTC. Payloads are what the serializer made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from flowfn.checkpoint.base import INTENT, Lease, RunRow, ThreadRow
from flowfn.checkpoint.rows import json_of
from flowfn.errors import UnreadableError
from flowfn.sql.sqlite_file import Migration
from flowfn.types import Status

SEQ_BITS = 32
SEQ_MASK = (1 << SEQ_BITS) - 1

SCHEMA: dict[str, Sequence[str]] = {
    "threads": (
        """CREATE TABLE threads (
            thread TEXT PRIMARY KEY, flow TEXT NOT NULL, status TEXT NOT NULL, run TEXT NOT NULL, updated REAL NOT NULL,
            fence INTEGER NOT NULL DEFAULT 0, owner TEXT, since REAL, until REAL
        ) WITHOUT ROWID""",
        "CREATE INDEX threads_by_status ON threads (status, updated)",
        "CREATE INDEX threads_of_flow ON threads (flow, status, updated)",
    ),
    "runs": (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY AUTOINCREMENT, thread TEXT NOT NULL, ns TEXT NOT NULL, name TEXT NOT NULL,
            flow TEXT NOT NULL, attempt INTEGER NOT NULL, started REAL NOT NULL, status TEXT NOT NULL,
            digest BLOB NOT NULL, input TEXT NOT NULL, code TEXT NOT NULL, committed INTEGER NOT NULL, error TEXT,
            forked_from INTEGER, UNIQUE (thread, ns, name)
        )""",
        "CREATE INDEX runs_by_name ON runs (name)",
    ),
    "calls": (
        """CREATE TABLE calls (
            id INTEGER PRIMARY KEY, key BLOB NOT NULL, caller BLOB NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
            attempt INTEGER NOT NULL, started REAL NOT NULL, ended REAL NOT NULL, flags INTEGER NOT NULL,
            committed INTEGER NOT NULL, digests BLOB NOT NULL, arguments TEXT NOT NULL, preview TEXT NOT NULL,
            needs BLOB NOT NULL, payload BLOB NOT NULL
        )""",
    ),
    "questions": (
        """CREATE TABLE questions (
            seq INTEGER PRIMARY KEY, thread TEXT NOT NULL, id TEXT NOT NULL, base BLOB NOT NULL, run TEXT NOT NULL,
            ns TEXT NOT NULL, caller BLOB NOT NULL, step INTEGER NOT NULL, key TEXT, payload BLOB NOT NULL,
            preview TEXT NOT NULL, schema TEXT, asked REAL NOT NULL, state TEXT NOT NULL, answer BLOB, by TEXT,
            note TEXT, answered REAL, used INTEGER NOT NULL, UNIQUE (thread, id)
        )""",
        "CREATE INDEX questions_of_run ON questions (thread, run)",
        "CREATE INDEX questions_open ON questions (asked) WHERE state = 'open'",
        "CREATE INDEX questions_open_of_thread ON questions (thread, asked) WHERE state = 'open'",
    ),
    "checkpoints": (
        """CREATE TABLE checkpoints (
            seq INTEGER PRIMARY KEY, thread TEXT NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL, parent TEXT, run TEXT,
            source TEXT, step INTEGER, ts TEXT NOT NULL, metadata BLOB NOT NULL, record BLOB NOT NULL,
            UNIQUE (thread, ns, id)
        )""",
        "CREATE INDEX checkpoints_by_id ON checkpoints (id)",
        "CREATE INDEX checkpoints_of_run ON checkpoints (run)",
    ),
    "channel_values": (
        """CREATE TABLE channel_values (
            thread TEXT NOT NULL, ns TEXT NOT NULL, channel TEXT NOT NULL, version NOT NULL, checkpoint TEXT NOT NULL,
            prev, payload BLOB NOT NULL, PRIMARY KEY (thread, ns, channel, version, checkpoint)
        ) WITHOUT ROWID""",
    ),
    "writes": (
        """CREATE TABLE writes (
            thread TEXT NOT NULL, ns TEXT NOT NULL, checkpoint TEXT NOT NULL, task TEXT NOT NULL, slot INTEGER NOT NULL,
            channel TEXT NOT NULL, payload BLOB NOT NULL, path TEXT NOT NULL,
            PRIMARY KEY (thread, ns, checkpoint, task, slot)
        ) WITHOUT ROWID""",
    ),
    "gates": ("CREATE TABLE gates (task TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",),
    "keys": ("CREATE TABLE keys (id BLOB PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID",),
}
OF_A_THREAD = SCHEMA.keys() - {"calls", "gates", "keys"}
"""Tables whose rows name their thread."""

MIGRATIONS: dict[int, Migration] = {
    # A new table, since the column has to stand before payloads, to be read without them.
    2: (
        "ALTER TABLE channel_values RENAME TO channel_values_1",
        *SCHEMA["channel_values"],
        """INSERT INTO channel_values (thread, ns, channel, version, checkpoint, payload)
            SELECT thread, ns, channel, version, checkpoint, payload FROM channel_values_1""",
        "DROP TABLE channel_values_1",
    ),
}
"""What brings a file from the format before to this one."""

CALL_COLUMNS = (
    "key, caller, name, step, attempt, started, ended, flags, committed, digests, arguments, preview, payload, needs"
)
RUN_COLUMNS = "name, flow, attempt, started, status, digest, input, code, committed, error"
OPEN_COLUMNS = "id, base, run, ns, caller, step, key, payload, preview, schema, asked"
"""Of a question that is open: the rest of its row is as `QuestionRow` has it by default."""
QUESTION_COLUMNS = f"{OPEN_COLUMNS}, state, answer, by, note, answered, used"


def _read(columns: str) -> str:
    """Columns as they are read: a payload is bytes, whatever somebody wrote in its place."""
    return re.sub(r"\b(payload|answer|record|metadata)\b", r"CAST(\1 AS BLOB)", columns)


INSERT_CALL = f"INSERT INTO calls (id, {CALL_COLUMNS}) VALUES ({', '.join('?' * 15)})"
# Without the newest lease the key is NULL, which the column refuses; a query of its own would cost a tenth of a call.
INSERT_CALL_HELD = INSERT_CALL.replace(
    "(?, ?,", "(?, CASE ? WHEN (SELECT fence FROM threads WHERE thread = ?) THEN ? END,", 1
)
COPY_CALLS = f"""INSERT INTO calls (id, {CALL_COLUMNS}) SELECT ? | (id & {SEQ_MASK}), {CALL_COLUMNS} FROM calls
    WHERE id BETWEEN ? AND ? AND (step <= ? OR flags & {INTENT}) AND hex(key) NOT IN (SELECT value FROM json_each(?))"""
FORGET_CALL = "UPDATE calls SET flags = (flags | ?) & ~? WHERE id = ?"
CALLS = f"SELECT id & {SEQ_MASK}, {_read(CALL_COLUMNS)} FROM calls WHERE id BETWEEN ? AND ? ORDER BY id"

RUN = f"SELECT id, {RUN_COLUMNS} FROM runs WHERE thread = ? AND ns = ? AND name = ?"
RUN_ID = "SELECT id FROM runs WHERE thread = ? AND ns = ? AND name = ?"
RUNS = f"SELECT {RUN_COLUMNS} FROM runs WHERE thread = ? AND ns = ? ORDER BY name DESC LIMIT ?"
SAVE_RUN = f"""INSERT INTO runs (thread, ns, {RUN_COLUMNS}) VALUES ({", ".join("?" * 12)})
    ON CONFLICT (thread, ns, name) DO UPDATE SET flow = excluded.flow, attempt = excluded.attempt,
    started = excluded.started, status = excluded.status, digest = excluded.digest, input = excluded.input,
    code = excluded.code, committed = excluded.committed, error = excluded.error"""

THREAD_COLUMNS = "thread, flow, status, run, updated, fence, owner, since, until"
THREAD = f"SELECT {THREAD_COLUMNS} FROM threads WHERE thread = ?"
SAVE_THREAD = """INSERT INTO threads (thread, flow, status, run, updated) VALUES (?, ?, ?, ?, ?) ON CONFLICT (thread)
    DO UPDATE SET flow = excluded.flow, status = excluded.status, run = excluded.run, updated = excluded.updated,
    owner = CASE excluded.status WHEN 'running' THEN owner END"""
FENCE = "SELECT fence FROM threads WHERE thread = ?"
TAKE_LEASE = """INSERT INTO threads (thread, flow, status, run, updated, fence, owner, since, until)
    VALUES (?, ?, 'new', '', ?, ?, ?, ?, ?) ON CONFLICT (thread)
    DO UPDATE SET fence = excluded.fence, owner = excluded.owner, since = excluded.since, until = excluded.until"""
RENEW_LEASE = "UPDATE threads SET until = ? WHERE thread = ? AND owner = ?"
LEASES_OF_FLOW = """SELECT owner, since, until FROM threads WHERE flow = ? AND thread <> ? AND owner NOT NULL
    AND status IN ('new', 'running')"""
STAND_AT = "UPDATE threads SET flow = ?, status = ?, run = ? WHERE thread = ?"
FORGET_THREAD = "DELETE FROM threads WHERE thread = ?"
STATUSES: tuple[Status, ...] = ("new", "running", "waiting", "failed", "killed", "paused", "finished")

STORED_COLUMNS = _read("thread, ns, id, parent, record, metadata")
STORED = f"SELECT {STORED_COLUMNS} FROM checkpoints WHERE thread = ? AND ns = ? AND id = ?"
NEWEST = f"SELECT {STORED_COLUMNS} FROM checkpoints WHERE thread = ? AND ns = ? ORDER BY id DESC LIMIT 1"
_PORTION = f"""SELECT {STORED_COLUMNS} FROM checkpoints WHERE seq IN (SELECT seq FROM checkpoints WHERE {{}}
    ORDER BY id DESC, thread DESC, ns DESC LIMIT ?) ORDER BY id DESC, thread DESC, ns DESC"""
STORED_BEFORE = f"""SELECT {STORED_COLUMNS} FROM checkpoints WHERE thread = ? AND ns = ? AND id < ?
    ORDER BY id DESC LIMIT ?"""
# The sorter holds numbers of rows, not rows.
STORED_AFTER_IN_THREAD = _PORTION.format("thread = ? AND (id, ns) < (?, ?)")
STORED_AFTER = f"""SELECT {STORED_COLUMNS} FROM checkpoints WHERE (id, thread, ns) < (?, ?, ?)
    ORDER BY id DESC, thread DESC, ns DESC LIMIT ?"""
OUTLINES = "SELECT id, parent, run FROM checkpoints WHERE thread = ? AND ns = ? ORDER BY id"
PARENTS = "SELECT id, parent FROM checkpoints WHERE thread = ? AND ns = ?"
SAVE_CHECKPOINT = """INSERT INTO checkpoints (thread, ns, id, parent, run, source, step, ts, metadata, record)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, ns, id) DO UPDATE SET parent = excluded.parent,
    run = excluded.run, source = excluded.source, step = excluded.step, ts = excluded.ts,
    metadata = excluded.metadata, record = excluded.record"""
SAVE_VALUE = "INSERT OR REPLACE INTO channel_values VALUES (?, ?, ?, ?, ?, NULL, ?)"
SAVE_DELTA = SAVE_VALUE.replace("NULL", "?")

VALUE_COLUMNS = "v.channel, v.version, v.checkpoint, v.prev, CAST(v.payload AS BLOB)"
WANTED_VALUES = "wanted CROSS JOIN channel_values AS v"

WRITES = f"""SELECT {_read("task, slot, channel, payload, path")} FROM writes
    WHERE thread = ? AND ns = ? AND checkpoint = ? ORDER BY task, slot"""
SAVE_WRITE = """INSERT OR REPLACE INTO writes (thread, ns, checkpoint, task, slot, channel, payload, path)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_WRITE = SAVE_WRITE.replace("OR REPLACE", "OR IGNORE")
FORGET_WRITES = "DELETE FROM writes WHERE thread = ? AND ns = ? AND checkpoint = ? AND task = ?"

QUESTION = f"SELECT {_read(QUESTION_COLUMNS)} FROM questions WHERE thread = ? AND id = ?"
QUESTIONS_OF_RUN = QUESTION.replace("id = ?", "run = ? AND ns = ? ORDER BY seq")
QUESTIONS_OF_THREAD = QUESTION.replace("AND id = ?", "ORDER BY seq")
OPEN = f"SELECT thread, {_read(OPEN_COLUMNS)} FROM questions WHERE state = 'open' ORDER BY asked, seq LIMIT ?"
OPEN_OF_THREAD = OPEN.replace("ORDER BY", "AND thread = ? ORDER BY")
SAVE_QUESTION = f"""INSERT OR IGNORE INTO questions (thread, {QUESTION_COLUMNS}) VALUES ({", ".join("?" * 18)})"""
ANSWER = """UPDATE questions SET state = 'answered', answer = ?, by = ?, note = ?, answered = ?
    WHERE thread = ? AND id = ? AND state = 'open'"""
USE_ANSWER = "UPDATE questions SET used = ? WHERE thread = ? AND id = ? AND used = 0"
NOTE_KEY = "INSERT OR IGNORE INTO keys (id, since) VALUES (?, ?)"
KEYS = "SELECT id FROM keys ORDER BY since, id"
FORGET_KEYS = "DELETE FROM keys"
ABANDON = "UPDATE questions SET state = 'abandoned' WHERE thread = ? AND state = 'open' AND (? IS NULL OR run = ?)"

GATE = "SELECT task, state FROM gates WHERE task = ?"
GATES = "SELECT task, state FROM gates"
SET_GATE = "INSERT OR REPLACE INTO gates (task, state) VALUES (?, ?)"

NAMESPACES = """WITH RECURSIVE
    stored (ns) AS (SELECT min(ns) FROM checkpoints WHERE thread = ?1 UNION ALL
        SELECT (SELECT min(ns) FROM checkpoints WHERE thread = ?1 AND ns > stored.ns) FROM stored WHERE ns NOT NULL),
    run (ns) AS (SELECT min(ns) FROM runs WHERE thread = ?1 UNION ALL
        SELECT (SELECT min(ns) FROM runs WHERE thread = ?1 AND ns > run.ns) FROM run WHERE ns NOT NULL)
    SELECT ns FROM stored WHERE ns NOT NULL UNION SELECT ns FROM run WHERE ns NOT NULL"""
"""Steps from one namespace to the next along the index, however many rows each holds."""
VALUE_KEYS = "SELECT channel, version, checkpoint, prev FROM channel_values WHERE thread = ? AND ns = ?"
THREADS_WITH = "SELECT thread FROM runs WHERE name = ?1 UNION SELECT thread FROM checkpoints WHERE run = ?1"
MOVE_VALUE = """INSERT OR REPLACE INTO channel_values SELECT thread, ns, channel, version, ?, prev, payload
    FROM channel_values WHERE thread = ? AND ns = ? AND channel = ? AND version = ? AND checkpoint = ?"""
FORGET_VALUE = """DELETE FROM channel_values WHERE thread = ? AND ns = ? AND channel = ? AND version = ?
    AND checkpoint = ?"""
FORGET_CHECKPOINT = "DELETE FROM checkpoints WHERE thread = ? AND ns = ? AND id = ?"
FORGET_WRITES_OF = "DELETE FROM writes WHERE thread = ? AND ns = ? AND checkpoint = ?"
FORGET_RUN = "DELETE FROM runs WHERE id = ?"
FORGET_CALLS_OF = "DELETE FROM calls WHERE id BETWEEN ? AND ?"
FORGET_QUESTIONS_OF = "DELETE FROM questions WHERE thread = ? AND run = ? AND ns = ?"
MOVE_CHECKPOINT = "UPDATE checkpoints SET parent = ? WHERE thread = ? AND ns = ? AND id = ?"

RUN_IDS = "SELECT id FROM runs WHERE thread = ? ORDER BY id"
COPY_RUN = f"""INSERT INTO runs (thread, ns, {RUN_COLUMNS}) SELECT ?, ns, {RUN_COLUMNS} FROM runs WHERE id = ?"""
LAST_RUN_ID = "SELECT last_insert_rowid()"
COPY_THREAD = """INSERT INTO threads (thread, flow, status, run, updated) SELECT ?, flow, status, run, ? FROM threads
    WHERE thread = ?"""
COPIES = tuple(
    f"INSERT INTO {table} (thread, {columns}) SELECT ?, {columns} FROM {table} WHERE thread = ? ORDER BY {order}"
    for table, columns, order in (
        ("questions", QUESTION_COLUMNS, "seq"),
        ("checkpoints", "ns, id, parent, run, source, step, ts, metadata, record", "seq"),
        ("channel_values", "ns, channel, version, checkpoint, prev, payload", "ns"),
        ("writes", "ns, checkpoint, task, slot, channel, payload, path", "ns"),
    )
)


@functools.cache
def threads_query(statuses: int, is_of_flow: bool) -> str:
    """Threads in one of so many statuses, newest first: one walk along an index for each status, merged."""
    flow = "flow = ? AND " if is_of_flow else ""
    walks = [f"SELECT {THREAD_COLUMNS} FROM threads WHERE {flow}status = ?"] * statuses
    return " UNION ALL ".join(walks) + " ORDER BY updated DESC LIMIT ?"


@functools.cache
def values_query(channels: int) -> str:
    """The rows of so many channels, by (channel, version) pairs, then thread and namespace."""
    pairs = ", ".join(["(?, ?)"] * channels)
    return f"""WITH wanted (channel, version) AS (VALUES {pairs}) SELECT {VALUE_COLUMNS} FROM {WANTED_VALUES}
        WHERE v.thread = ? AND v.ns = ? AND v.channel = wanted.channel AND v.version = wanted.version"""


@functools.cache
def chains_query(channels: int) -> str:
    """The rows of so many channels with all that they build on, by thread and namespace, then (channel, version)
    pairs. It follows versions alone, each once, in however many branches it stands.
    """
    pairs = ", ".join(f"(?{at}, ?{at + 1})" for at in range(3, 3 + 2 * channels, 2))
    rows = f"""FROM {WANTED_VALUES}
        WHERE v.thread = ?1 AND v.ns = ?2 AND v.channel = wanted.channel AND v.version = wanted.version"""
    return f"""WITH RECURSIVE wanted (channel, version) AS (
        VALUES {pairs} UNION SELECT v.channel, v.prev {rows} AND v.prev NOT NULL)
        SELECT {VALUE_COLUMNS} {rows}"""


def key_of(thread: str) -> str | bytes:
    """A thread's id as it is stored."""
    if thread.isascii():
        return thread
    try:
        thread.encode()
    except UnicodeEncodeError:
        return thread.encode("utf-8", "surrogatepass")
    return thread


def thread_of(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "surrogatepass")


def range_of(run: int) -> tuple[int, int]:
    """The numbers of a run's calls."""
    return run << SEQ_BITS, run << SEQ_BITS | SEQ_MASK


def thread_row(row: Sequence[Any]) -> ThreadRow:
    thread, flow, status, run, updated, fence, *lease = row
    return ThreadRow(thread_of(thread), flow, status, run, updated, fence, Lease(*lease) if lease[0] else None)


def run_row(row: Sequence[Any]) -> RunRow:
    code = json_of(row[7], what := f"Run `{row[0]}`")
    if not isinstance(code, dict):
        raise UnreadableError(what, "it does not say which code it ran.")
    return RunRow._make((*row[:7], code, *row[8:]))
