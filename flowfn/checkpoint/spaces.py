"""What `InMemorySaver` keeps a thread in, and the journal that takes a save back."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeVar

from flowfn.checkpoint.base import CallRow, Delta, Place, QuestionRow, RunRow, ThreadRow
from flowfn.checkpoint.rows import RunMemory, StoredCheckpoint, StoredWrite, Unpacked, lineage
from flowfn.checkpoint.signing import (
    Sign,
    answer_spot,
    call_spot,
    checkpoint_spot,
    question_spot,
    value_spot,
    write_spot,
)
from flowfn.checkpoint.values import Rows, rows_of

K = TypeVar("K")
V = TypeVar("V")


class Space:
    """One namespace of a thread."""

    __slots__ = ("asked", "calls", "checkpoints", "newest", "runs", "values", "writes")

    def __init__(self) -> None:
        self.checkpoints: dict[str, StoredCheckpoint] = {}
        self.newest: str | None = None
        self.values: dict[tuple[str, Any], dict[str, bytes | Delta]] = {}
        """(channel, version) → the checkpoint that stored it → its row: two branches may count to the same version."""
        self.writes: dict[str, dict[tuple[str, int], StoredWrite]] = {}
        """Checkpoint → (task, slot) → write."""
        self.runs: dict[str, RunRow] = {}
        self.calls: dict[str, dict[int, CallRow]] = {}
        """Run → number → row."""
        self.asked: dict[str, dict[str, None]] = {}
        """Run → ids of its questions."""

    def values_of(self, found: Unpacked) -> dict[str, Rows]:
        """How the values of a checkpoint's channels are stored; empty channels are left out."""
        line: set[str] | None = None
        values: dict[str, Rows] = {}

        def row_at(version: Any) -> bytes | Delta | None:
            nonlocal line
            stored = self.values.get((channel, version))
            if stored is None:
                return None
            if len(stored) > 1:
                line = line or lineage(found.stored.id, {id: row.parent for id, row in self.checkpoints.items()})
                stored = {id: row for id, row in stored.items() if id in line}
            return next(reversed(stored.values()), None)

        for channel, version in found.versions.items():
            rows = rows_of(version, row_at)
            if rows is not None:
                values[channel] = rows
        return values

    def writes_of(self, checkpoint: str) -> list[StoredWrite]:
        return sorted(self.writes[checkpoint].values()) if checkpoint in self.writes else []

    def copy(self, thread: str) -> Space:
        """The same in another thread."""
        copy = Space()
        copy.checkpoints = {
            id: row._replace(place=row.place._replace(thread=thread)) for id, row in self.checkpoints.items()
        }
        copy.newest, copy.runs = self.newest, dict(self.runs)
        copy.values = {key: dict(stored) for key, stored in self.values.items()}
        copy.writes = {checkpoint: dict(rows) for checkpoint, rows in self.writes.items()}
        copy.calls = {run: dict(rows) for run, rows in self.calls.items()}
        copy.asked = {run: dict(ids) for run, ids in self.asked.items()}
        return copy

    def sign_anew(self, place: Place, sign: Sign, journal: Journal) -> None:
        """Every payload as `sign` makes it."""
        for id, row in list(self.checkpoints.items()):
            spot = checkpoint_spot(place, id)
            new = row._replace(record=sign(row.record, spot), metadata=sign(row.metadata, spot))
            journal.set(self.checkpoints, id, new)
        for (channel, version), stored in list(self.values.items()):
            for id, value in list(stored.items()):
                if isinstance(value, Delta):
                    payload = sign(value.payload, value_spot(place, channel, version, value.prev))
                    journal.set(stored, id, value._replace(payload=payload))
                else:
                    journal.set(stored, id, sign(value, value_spot(place, channel, version)))
        for checkpoint, writes in list(self.writes.items()):
            for key, write in list(writes.items()):
                spot = write_spot(place, checkpoint, write.task, write.slot, write.channel)
                journal.set(writes, key, write._replace(payload=sign(write.payload, spot)))
        for run, calls in list(self.calls.items()):
            for seq, call in list(calls.items()):
                spot = call_spot(place, run, call.key, call.name, call.flags)
                journal.set(calls, seq, call._replace(payload=sign(call.payload, spot)))


class KeptThread:
    __slots__ = ("open", "questions", "row", "spaces")

    def __init__(self) -> None:
        self.row: ThreadRow | None = None
        self.spaces: dict[str, Space] = {}
        self.questions: dict[str, QuestionRow] = {}
        self.open: dict[str, None] = {}
        """Ids of the questions that wait."""

    def run_of(self, space: Space, run: str) -> RunMemory:
        asked = [self.questions[id] for id in space.asked.get(run, ())]
        return RunMemory(space.runs[run], in_order(space.calls[run]), asked)

    def copy(self, name: str) -> KeptThread:
        """The same under another name; rows are values, so both may hold them."""
        copy = KeptThread()
        copy.row = None if self.row is None else self.row._replace(thread=name)
        copy.spaces = {ns: space.copy(name) for ns, space in self.spaces.items()}
        copy.questions, copy.open = dict(self.questions), dict(self.open)
        return copy

    def sign_anew(self, name: str, sign: Sign, journal: Journal) -> None:
        """Every payload as `sign` makes it."""
        for ns, space in list(self.spaces.items()):
            space.sign_anew(Place(name, ns), sign, journal)
        for id, row in list(self.questions.items()):
            answer = None if row.answer is None else sign(row.answer, answer_spot(name, id))
            payload = sign(row.payload, question_spot(name, id))
            journal.set(self.questions, id, row._replace(payload=payload, answer=answer))


class Journal(list[tuple[Callable[..., Any], tuple[Any, ...]]]):
    """What takes a save back. An entry is made before its change, and undoing what was not done yet is harmless."""

    def set(self, target: dict[K, V], key: K, value: V) -> None:
        self.append((target.__setitem__, (key, target[key])) if key in target else (target.pop, (key, None)))
        target[key] = value

    def drop(self, target: dict[K, Any], key: K) -> None:
        if key in target:
            self.append((target.__setitem__, (key, target[key])))
            target.pop(key)

    def take_back(self) -> None:
        for undo, arguments in reversed(self):
            undo(*arguments)


NOWHERE = Space()
"""Stands for a namespace that holds nothing; only read."""


def in_order(calls: dict[int, CallRow]) -> list[CallRow]:
    return sorted(calls.values(), key=itemgetter(0))
