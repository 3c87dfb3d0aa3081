"""Where each stored payload stands: the cell that its signature is bound to, and what errors call what stands there.

A payload that was signed for one cell is refused in every other, so nobody can pass a result off as another task's, or
an answer as that to another question. The second part is always the thread. A channel's value is named by its version
and not by the checkpoint that stored it, since it moves from one to the next when a thread is pruned.
"""

from __future__ import annotations

from typing import Any

from flowfn.checkpoint.records import FAILED, Place, short_title
from flowfn.serde.signed import Cell as Cell


def call(place: Place, run: str, key: bytes) -> Cell:
    """Of a call's outcome."""
    return "call", place.thread, place.ns, run, key


def value(place: Place, channel: str, version: Any, prev: Any = None) -> Cell:
    """Of a channel's value, or of what was added to it since version `prev`."""
    cell = "value", place.thread, place.ns, channel, version if type(version) in (int, str) else repr(version)
    return cell if prev is None else (*cell, prev if type(prev) in (int, str) else repr(prev))


def write(place: Place, checkpoint: str, task: str, slot: int, channel: str) -> Cell:
    """Of one pending write of a node; `slot` is its place among the task's writes."""
    return "write", place.thread, place.ns, checkpoint, task, slot, channel


def question(thread: str, id: str) -> Cell:
    """Of what a question shows."""
    return "question", thread, id


def answer(thread: str, id: str) -> Cell:
    """Of the answer to a question."""
    return "answer", thread, id


def checkpoint(place: Place, id: str) -> Cell:
    """Of a checkpoint's record, and of its metadata."""
    return "checkpoint", place.thread, place.ns, id


def in_thread(cell: Cell, thread: str) -> Cell:
    """The same cell of another thread."""
    return cell[0], thread, *cell[2:]


# ---------------------------------------------------------------- titles


def call_title(name: str, flags: int = 0) -> str:
    task = short_title(name)
    return f"What task `{task}` raised" if flags & FAILED else f"The result of task `{task}`"


def value_title(channel: str) -> str:
    return f"Channel `{channel}`"


def write_title(channel: str) -> str:
    return f"A write to channel `{channel}`"


def question_title(id: str) -> str:
    return f"Question `{id}`"


def answer_title(id: str) -> str:
    return f"The answer to question `{id}`"


def checkpoint_title(id: str) -> str:
    return f"Checkpoint `{id}`"
