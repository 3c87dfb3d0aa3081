"""Rows for files of threads, and files with one thread in them."""

import os
import sqlite3
from contextlib import closing

import pytest

from flowfn.checkpoint import SqliteSaver, cells
from flowfn.checkpoint.base import CallRow, Place, QuestionRow, RunRow, SaveCall, SaveCheckpoint, SaveRun, question_id
from flowfn.errors import StoreError

RUN = "01990000-0000-7000-8000-000000000000"
PLACE = Place("t")
MANY = 400
"""Calls that fill some pages."""


def start(saver, thread="t", run=RUN):
    place = Place(thread)
    checkpoint = {"v": 4, "id": run, "ts": "", "channel_values": {}, "channel_versions": {"__start__": 1}}
    checkpoint |= {"versions_seen": {}, "updated_channels": ["__start__"]}
    metadata = {"source": "input", "step": -1, "run": run}
    values = {"__start__": saver.serde.dumps(1, "", cells.value(place, "__start__", 1))}
    saver.save(
        [
            SaveRun(place, RunRow(run, "flow", 1, 1.0, "running")),
            SaveCheckpoint(place, checkpoint, metadata, None, values),
        ]
    )
    return place


def call(seq):
    return CallRow(seq, os.urandom(16), b"", "shop.charge", seq, 1, 1.5, 2.5, 0, seq, b"d" * 8, "7", "14", b"\x10M\x0e")


def question(number, run=RUN):
    base = number.to_bytes(16, "big")
    return QuestionRow(question_id(run, base), base, run, "", b"", 0, None, b"\x10N", "?", None, float(number))


def filled(path, calls=MANY):
    """A closed file with one run."""
    with SqliteSaver(path) as saver:
        start(saver)
        saver.save([SaveCall(PLACE, RUN, call(seq)) for seq in range(1, calls + 1)])
    return path


def numbers(saver):
    return [row.seq for row in saver.calls(PLACE, RUN)]


def is_whole(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def told(path, work, *words):
    """The error that `work` raises; it names the file, and says these words."""
    with pytest.raises(StoreError) as caught:
        work()
    text = str(caught.value)
    assert all(word in text for word in (path, *words)), text
    return text
