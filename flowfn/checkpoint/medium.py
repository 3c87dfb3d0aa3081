"""What a medium of rows has to provide: how an operation runs on it, and the small operations it is put together from.

An operation is a generator that runs in one transaction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from flowfn.checkpoint.base import (
    CallRow,
    Lease,
    Place,
    QuestionRow,
    RunRow,
    Save,
    Saver,
    ThreadRow,
    split_call_checkpoint_id,
)
from flowfn.checkpoint.rows import Page, RunMemory, StoredCheckpoint, StoredWrite, Unpacked, unpacked
from flowfn.checkpoint.signing import Sign
from flowfn.checkpoint.values import Rows
from flowfn.rates import State
from flowfn.sql.base import Op
from flowfn.types import Status

T = TypeVar("T")
LAST_ID = "\U0010ffff"
"""Sorts after every id."""


class After(NamedTuple):
    """Where a listing goes on: behind this checkpoint, in the order of id, thread and namespace, largest first."""

    id: str = LAST_ID
    thread: str = ""
    ns: str = ""


class Outline(NamedTuple):
    """What a checkpoint's row says without being decoded: its parent, and the run it belongs to."""

    id: str
    parent: str | None
    run: str | None


class Home(NamedTuple):
    """A channel's value that a checkpoint which stays takes over from one that goes."""

    channel: str
    version: Any
    old: str
    new: str


class Cut(NamedTuple):
    """What one namespace loses, and what of it moves so that the rest reads as before.

    Attributes:
        runs: ids of runs, each with its calls and questions.
        checkpoints: ids of checkpoints, each with its writes and the values that it stored.
        parents: checkpoint that stays → its new parent.
        homes: values that stay. They move before anything goes.
        values: values that go, (channel, version, the checkpoint that stored it).
    """

    runs: frozenset[str] = frozenset()
    checkpoints: frozenset[str] = frozenset()
    parents: Mapping[str, str | None] = {}
    homes: Sequence[Home] = ()
    values: Sequence[tuple[str, Any, str]] = ()


class Gate(NamedTuple):
    """What is known of the attempts of a task with a rate or a limit.

    Attributes:
        turns: state of its rate, see `rates`.
        slots: attempt → the lease by which it counts as running.
    """

    turns: State = ()
    slots: Mapping[str, Lease] = {}


class Medium(Saver):
    """Keeps rows. Everything else that a saver promises is said in terms of these operations."""

    # --- how an operation runs

    @abstractmethod
    def _do(self, op: Op[T], *, write: bool = False) -> T: ...
    @abstractmethod
    async def _ado(self, op: Op[T], *, write: bool = False) -> T: ...

    # --- what the medium reads

    @abstractmethod
    def _thread(self, thread: str) -> Op[ThreadRow | None]: ...
    @abstractmethod
    def _stored(self, place: Place, id: str | None) -> Op[StoredCheckpoint | None]:
        """The checkpoint of that id, or the newest."""

    @abstractmethod
    def _stored_after(self, thread: str | None, ns: str | None, after: After, limit: int) -> Op[list[StoredCheckpoint]]:
        """Checkpoints of a thread or of all, in a namespace or in all, newest first, those behind `after`."""

    @abstractmethod
    def _values(self, found: Unpacked) -> Op[dict[str, Rows]]:
        """How the values of a checkpoint's channels are stored; empty channels are left out."""

    @abstractmethod
    def _writes(self, place: Place, checkpoint: str) -> Op[list[StoredWrite]]: ...
    @abstractmethod
    def _run(self, place: Place, run: str) -> Op[RunMemory | None]: ...
    @abstractmethod
    def _runs(self, place: Place, limit: int) -> Op[list[RunRow]]: ...
    @abstractmethod
    def _calls(self, place: Place, run: str) -> Op[list[CallRow]]: ...
    @abstractmethod
    def _threads(self, status: Status | None, flow: str | None, limit: int) -> Op[list[ThreadRow]]: ...
    @abstractmethod
    def _question(self, thread: str, id: str) -> Op[QuestionRow | None]: ...
    @abstractmethod
    def _namespaces(self, thread: str) -> Op[list[str]]:
        """Those that hold checkpoints or runs, sorted."""

    @abstractmethod
    def _outlines(self, place: Place) -> Op[list[Outline]]: ...
    @abstractmethod
    def _value_keys(self, place: Place) -> Op[list[tuple[str, Any, str, Any]]]:
        """Every stored value: (channel, version, the checkpoint that stored it, the version that it builds on)."""

    @abstractmethod
    def _threads_with(self, run: str) -> Op[list[str]]:
        """The threads that have a run, or checkpoints, of that id."""

    @abstractmethod
    def _open(self, thread: str | None, limit: int) -> Op[list[tuple[str, QuestionRow]]]: ...
    @abstractmethod
    def _asked(self, thread: str) -> Op[list[QuestionRow]]: ...

    # --- what the medium writes

    @abstractmethod
    def _save(self, saves: Sequence[Save]) -> Op[None]: ...
    @abstractmethod
    def _write(self, place: Place, checkpoint: str, writes: Sequence[StoredWrite]) -> Op[None]:
        """Store writes: special ones, which have a slot below 0, replace; the others stay if they are there."""

    @abstractmethod
    def _record(self, thread: str, answers: Mapping[str, bytes], by: str | None, note: str | None) -> Op[None]:
        """Answer open questions."""

    @abstractmethod
    def _gates(self, task: str | None) -> Op[dict[str, Gate]]:
        """Task → what is known of its attempts; of one task, or of all."""

    @abstractmethod
    def _set_gate(self, task: str, gate: Gate) -> Op[None]: ...
    @abstractmethod
    def _prolong(self, thread: str, owner: str) -> Op[None]: ...
    @abstractmethod
    def _delete(self, thread: str) -> Op[None]: ...

    @abstractmethod
    def _cut(self, place: Place, cut: Cut) -> Op[None]: ...
    @abstractmethod
    def _stand_at(self, thread: str, row: RunRow | None) -> Op[None]:
        """The thread's row shows this run; None: no run of it is left."""

    @abstractmethod
    def _copy(self, source: str, target: str) -> Op[None]:
        """Every row of a thread once more, under another id, what is signed signed anew."""

    @abstractmethod
    def _sign_anew(self, sign: Sign) -> Op[None]:
        """Every payload of every thread as `sign` makes it."""

    # --- what several operations read

    def _page(self, stored: StoredCheckpoint) -> Op[Page]:
        found = unpacked(stored, self.serde)
        values = yield from self._values(found)
        writes = yield from self._writes(stored.place, stored.id)
        run = (yield from self._run(stored.place, stored.id)) if found.begins_run() else None
        return Page(found, values, writes, run)

    def _page_of(self, place: Place, checkpoint: str | None) -> Op[Page | None]:
        """The page on which a checkpoint stands, or the newest one."""
        stored = yield from self._stored(place, checkpoint)
        if stored is None and checkpoint is not None and (inside := split_call_checkpoint_id(checkpoint)):
            stored = yield from self._stored(place, inside[0])
        return None if stored is None else (yield from self._page(stored))
