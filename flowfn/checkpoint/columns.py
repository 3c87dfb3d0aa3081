"""The columns of a SQLite file that hold payloads, and where each payload of them stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flowfn.checkpoint.records import Place
from flowfn.checkpoint.signing import (
    Spot,
    answer_spot,
    call_spot,
    checkpoint_spot,
    question_spot,
    value_spot,
    write_spot,
)
from flowfn.checkpoint.tables import OF_A_THREAD, SEQ_BITS, SEQ_MASK


class Column(NamedTuple):
    """One column of payloads.

    Attributes:
        table, name: what it is called.
        row: the condition by which one of its rows is found.
        rows: what finds all of a thread: what `row` asks for, then what `spot` wants besides.
        spot: (thread, what `rows` found) → where the payload stands.
    """

    table: str
    name: str
    row: str
    rows: str
    spot: Callable[..., Spot]

    def found(self, condition: str) -> str:
        """Finds the rows of a thread whose payload meets the condition."""
        return f"{self.rows} AND {condition.format(f'{self.table}.{self.name}')}"

    @property
    def read(self) -> str:
        return f"SELECT {self.name} FROM {self.table} WHERE {self.row}"

    @property
    def write(self) -> str:
        return f"UPDATE {self.table} SET {self.name} = ? WHERE {self.row}"


IS_MARKED = "substr({0}, 1, 1) > x'10'"
"""Whether something was done to a payload, so that its first byte is more than the format: see `serde.base`."""
IS_PAYLOAD = "typeof({0}) = 'blob'"

CALLS = Column(
    "calls",
    "payload",
    "id = ?",
    "SELECT calls.id, runs.ns, runs.name, calls.key, calls.name, calls.flags FROM runs CROSS JOIN calls ON calls.id "
    f"BETWEEN runs.id << {SEQ_BITS} AND (runs.id << {SEQ_BITS} | {SEQ_MASK}) WHERE runs.thread = ?",
    lambda thread, id, ns, run, *call: call_spot(Place(thread, ns), run, *call),
)
CALLS_OF_RUN = CALLS._replace(rows=CALLS.rows.replace("runs.thread = ?", "runs.id = ?"))

COLUMNS = (
    CALLS,
    Column(
        "questions",
        "payload",
        "seq = ?",
        "SELECT seq, id FROM questions WHERE thread = ?",
        lambda thread, seq, id: question_spot(thread, id),
    ),
    Column(
        "questions",
        "answer",
        "seq = ?",
        "SELECT seq, id FROM questions WHERE thread = ?",
        lambda thread, seq, id: answer_spot(thread, id),
    ),
    *(
        Column(
            "checkpoints",
            name,
            "seq = ?",
            "SELECT seq, ns, id FROM checkpoints WHERE thread = ?",
            lambda thread, seq, ns, id: checkpoint_spot(Place(thread, ns), id),
        )
        for name in ("record", "metadata")
    ),
    Column(
        "channel_values",
        "payload",
        "thread = ? AND ns = ? AND channel = ? AND version = ? AND checkpoint = ?",
        "SELECT thread, ns, channel, version, checkpoint, prev FROM channel_values WHERE thread = ?",
        lambda thread, key, ns, channel, version, checkpoint, prev: value_spot(
            Place(thread, ns), channel, version, prev
        ),
    ),
    Column(
        "writes",
        "payload",
        "thread = ? AND ns = ? AND checkpoint = ? AND task = ? AND slot = ?",
        "SELECT thread, ns, checkpoint, task, slot, channel FROM writes WHERE thread = ?",
        lambda thread, key, ns, *write: write_spot(Place(thread, ns), *write),
    ),
)
"""Every column of payloads."""

THREAD_IDS = " UNION ".join(f"SELECT thread FROM {table}" for table in sorted(OF_A_THREAD))
