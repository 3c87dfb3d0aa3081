"""Threads kept in this process's memory: dicts and a lock, nothing on disk.

Values are kept encoded, as every saver keeps them, so that a run here sees what it would see after a restart. A save
that fails half-way is taken back from a journal of what each change replaced.
"""

from __future__ import annotations

import functools
import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, ParamSpec, TypeVar

from flowfn.checkpoint.base import (
    FORGOTTEN,
    INTENT,
    RETRIED,
    AbandonQuestions,
    CallRow,
    CopyRun,
    Delta,
    ForgetCalls,
    Lease,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    Save,
    SaveCall,
    SaveCheckpoint,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    TakeLease,
    ThreadRow,
    UseAnswer,
)
from flowfn.checkpoint.leases import check_few, check_free
from flowfn.checkpoint.medium import After, Cut, Gate, Outline
from flowfn.checkpoint.rows import (
    SLOTS,
    RunMemory,
    StoredCheckpoint,
    StoredWrite,
    Unpacked,
    metadata_of,
    remembered,
    run_of,
    stored_checkpoint,
    unpacked,
)
from flowfn.checkpoint.rowsaver import RowSaver
from flowfn.checkpoint.signing import Sign, call_spot, forked_from, forked_question, moved_from
from flowfn.checkpoint.spaces import NOWHERE, Journal, KeptThread, Space, in_order
from flowfn.checkpoint.values import Rows
from flowfn.errors import LeaseLostError, StoreConflictError, UnknownCheckpointError
from flowfn.serde.base import Serializer
from flowfn.sql.base import Op, Query
from flowfn.types import Status

P = ParamSpec("P")
T = TypeVar("T")

NAME = "memory://"


def _operation(body: Callable[P, T]) -> Callable[P, Op[T]]:
    """An operation that asks nothing of anybody; its body runs when the operation does, under the lock."""

    @functools.wraps(body)
    def op(*args: P.args, **kwargs: P.kwargs) -> Op[T]:
        return body(*args, **kwargs)
        yield Query("")

    return op


class InMemorySaver(RowSaver):
    """Threads that live as long as this object. For tests, notebooks, and flows that need no restart."""

    is_instant = True

    def __init__(self, serde: Serializer | None = None) -> None:
        super().__init__(serde)
        self._lock = threading.RLock()
        self._kept: dict[str, KeptThread] = {}
        self._gate_of: dict[str, Gate] = {}

    def _do(self, op: Op[T], *, write: bool = False) -> T:
        with self._lock:
            try:
                next(op)
            except StopIteration as done:
                value: T = done.value
                return value
        raise AssertionError("an operation in memory asks no queries")

    async def _ado(self, op: Op[T], *, write: bool = False) -> T:
        return self._do(op)

    def load(self, place: Place, checkpoint: str | None = None) -> Memory:
        # As in `RowSaver`, without the generators: every run begins here.
        with self._lock:
            thread, space = self._kept.get(place.thread), self._space(place)
            stored = space.checkpoints.get(space.newest or "" if checkpoint is None else checkpoint)
            if stored is None and checkpoint is not None:
                raise UnknownCheckpointError(place.thread, checkpoint)
            if thread is None or stored is None:
                return Memory(None if thread is None else thread.row, None, None, (), ())
            row, found = thread.row, unpacked(stored, self.serde)
            values, writes = space.values_of(found), space.writes_of(stored.id)
            run = thread.run_of(space, found.run) if found.run in space.runs else (None, (), ())
        return Memory(row, remembered(found, values, writes, self.serde), *run)

    @_operation
    def _load(self, place: Place, checkpoint: str | None) -> Memory:
        return self.load(place, checkpoint)

    def save(self, saves: Sequence[Save]) -> None:
        if len(saves) == 1 and type(saves[0]) is SaveCall:
            # By far the most frequent, and one atomic step of a dict.
            self._save_call(saves[0], None)
            return
        journal = Journal()
        with self._lock:
            try:
                if saves and saves[0].place.fence is not None and type(saves[0]) is not TakeLease:
                    self._check_fence(saves[0].place)
                for save in saves:
                    _APPLY[type(save)](self, save, journal)
            except BaseException:
                journal.take_back()
                raise

    def _check_fence(self, place: Place) -> None:
        kept = self._kept.get(place.thread)
        if kept is None or kept.row is None or kept.row.fence != place.fence:
            raise LeaseLostError(NAME, place.thread)

    def save_now(self, saves: Sequence[Save]) -> bool:
        self.save(saves)
        return True

    @_operation
    def _save(self, saves: Sequence[Save]) -> None:
        self.save(saves)

    # --- what is read

    def _space(self, place: Place) -> Space:
        thread = self._kept.get(place.thread)
        return NOWHERE if thread is None else thread.spaces.get(place.ns, NOWHERE)

    @_operation
    def _thread(self, thread: str) -> ThreadRow | None:
        found = self._kept.get(thread)
        return None if found is None else found.row

    @_operation
    def _stored(self, place: Place, id: str | None) -> StoredCheckpoint | None:
        space = self._space(place)
        return space.checkpoints.get(space.newest or "" if id is None else id)

    @_operation
    def _stored_after(self, thread: str | None, ns: str | None, after: After, limit: int) -> list[StoredCheckpoint]:
        threads = self._kept.values() if thread is None else filter(None, [self._kept.get(thread)])
        found = (
            stored
            for kept in threads
            for name, space in kept.spaces.items()
            if ns is None or name == ns
            for stored in space.checkpoints.values()
            if (stored.id, stored.place.thread, stored.place.ns) < after
        )
        return heapq.nlargest(limit, found, key=lambda stored: (stored.id, stored.place.thread, stored.place.ns))

    @_operation
    def _values(self, found: Unpacked) -> dict[str, Rows]:
        return self._space(found.stored.place).values_of(found)

    @_operation
    def _writes(self, place: Place, checkpoint: str) -> list[StoredWrite]:
        return self._space(place).writes_of(checkpoint)

    @_operation
    def _run(self, place: Place, run: str) -> RunMemory | None:
        space = self._space(place)
        return self._kept[place.thread].run_of(space, run) if run in space.runs else None

    @_operation
    def _runs(self, place: Place, limit: int) -> list[RunRow]:
        return heapq.nlargest(limit, self._space(place).runs.values(), key=itemgetter(0))

    @_operation
    def _calls(self, place: Place, run: str) -> list[CallRow]:
        return in_order(self._space(place).calls.get(run, {}))

    @_operation
    def _threads(self, status: Status | None, flow: str | None, limit: int) -> list[ThreadRow]:
        rows = (kept.row for kept in self._kept.values() if kept.row is not None)
        fit = (row for row in rows if status in (None, row.status) and flow in (None, row.flow))
        return heapq.nlargest(limit, fit, key=lambda row: row.updated)

    @_operation
    def _question(self, thread: str, id: str) -> QuestionRow | None:
        found = self._kept.get(thread)
        return None if found is None else found.questions.get(id)

    @_operation
    def _asked(self, thread: str) -> list[QuestionRow]:
        found = self._kept.get(thread)
        return [] if found is None else list(found.questions.values())

    @_operation
    def _open(self, thread: str | None, limit: int) -> list[tuple[str, QuestionRow]]:
        threads = self._kept if thread is None else {thread: self._kept.get(thread, KeptThread())}
        rows = ((name, kept.questions[id]) for name, kept in threads.items() for id in kept.open)
        return heapq.nsmallest(limit, rows, key=lambda found: found[1].asked)

    # --- what is written

    @_operation
    def _write(self, place: Place, checkpoint: str, writes: Sequence[StoredWrite]) -> None:
        rows = self._grown(place)[1].writes.setdefault(checkpoint, {})
        for write in writes:
            if write.slot < 0:
                rows[write.task, write.slot] = write
            else:
                rows.setdefault((write.task, write.slot), write)

    @_operation
    def _record(self, thread: str, answers: Mapping[str, bytes], by: str | None, note: str | None) -> None:
        kept, now = self._kept[thread], time.time()
        for id, blob in answers.items():
            row = kept.questions[id]
            kept.questions[id] = row._replace(state="answered", answer=blob, by=by, note=note, answered=now)
            kept.open.pop(id, None)

    @_operation
    def _delete(self, thread: str) -> None:
        self._kept.pop(thread, None)

    # --- copied, and made smaller

    @_operation
    def _namespaces(self, thread: str) -> list[str]:
        kept = self._kept.get(thread, KeptThread())
        return sorted(ns for ns, space in kept.spaces.items() if space.checkpoints or space.runs)

    @_operation
    def _outlines(self, place: Place) -> list[Outline]:
        rows = self._space(place).checkpoints.values()
        return [Outline(row.id, row.parent, run_of(metadata_of(row, self.serde))) for row in rows]

    @_operation
    def _value_keys(self, place: Place) -> list[tuple[str, Any, str, Any]]:
        return [
            (*key, checkpoint, row.prev if type(row) is Delta else None)
            for key, stored in self._space(place).values.items()
            for checkpoint, row in stored.items()
        ]

    @_operation
    def _threads_with(self, run: str) -> list[str]:
        def has(space: Space) -> bool:
            rows = space.checkpoints.values()
            return run in space.runs or any(run_of(metadata_of(row, self.serde)) == run for row in rows)

        return [name for name, kept in self._kept.items() if any(map(has, kept.spaces.values()))]

    @_operation
    def _cut(self, place: Place, cut: Cut) -> None:
        thread, space = self._grown(place)
        for channel, version, old, new in cut.homes:
            stored = space.values[channel, version]
            stored[new] = stored[old]
        for channel, version, checkpoint in cut.values:
            stored = space.values[channel, version]
            del stored[checkpoint]
            if not stored:
                del space.values[channel, version]
        for id in cut.checkpoints:
            space.checkpoints.pop(id)
            space.writes.pop(id, None)
        space.newest = max(space.checkpoints, default=None)
        for id, parent in cut.parents.items():
            space.checkpoints[id] = space.checkpoints[id]._replace(parent=parent)
        for run in cut.runs:
            space.runs.pop(run)
            space.calls.pop(run)
            for id in space.asked.pop(run, ()):
                thread.questions.pop(id)
                thread.open.pop(id, None)

    @_operation
    def _stand_at(self, thread: str, row: RunRow | None) -> None:
        kept = self._kept[thread]
        if row is None or kept.row is None:
            kept.row = None
        else:
            kept.row = kept.row._replace(flow=row.flow, status=row.status, run=row.id)

    @_operation
    def _copy(self, source: str, target: str) -> None:
        copy = self._kept[source].copy(target)
        if copy.row is not None:
            copy.row = copy.row._replace(updated=time.time(), fence=0, lease=None)
        if self.serde.keys is not None:
            copy.sign_anew(target, moved_from(source, self.serde), Journal())
        self._kept[target] = copy

    @_operation
    def _sign_anew(self, sign: Sign) -> None:
        journal = Journal()
        try:
            for name, kept in list(self._kept.items()):
                kept.sign_anew(name, sign, journal)
        except BaseException:
            journal.take_back()
            raise

    def _grown(self, place: Place) -> tuple[KeptThread, Space]:
        """The thread and namespace, made if there were none; an empty one is as good as none."""
        thread = self._kept.get(place.thread)
        if thread is None:
            thread = self._kept[place.thread] = KeptThread()
        space = thread.spaces.get(place.ns)
        if space is None:
            space = thread.spaces[place.ns] = Space()
        return thread, space

    # --- how each save is applied

    def _save_call(self, save: SaveCall, journal: Journal | None) -> None:
        place, run, row = save
        if place[2] is not None:
            self._check_fence(place)
        calls = self._space(place).calls.get(run)
        if calls is None or calls.setdefault(row[0], row) is not row:
            raise StoreConflictError(NAME, place.thread)
        if journal is not None:
            journal.append((calls.pop, (row[0], None)))

    def _take_lease(self, save: TakeLease, journal: Journal) -> None:
        thread, now = self._grown(save.place)[0], time.time()
        row = thread.row or ThreadRow(save.place.thread, save.flow, "new", "", now)
        check_free(save, row.lease, row.fence, now)
        if save.most is not None:
            rows = [kept.row for kept in self._kept.values() if kept is not thread and kept.row is not None]
            check_few(save, [row.lease for row in rows if row.flow == save.flow and row.lease is not None], now)
        lease = None if save.owner is None else Lease(save.owner, now, now + self.lease_seconds)
        assert save.place.fence is not None
        journal.append((setattr, (thread, "row", thread.row)))
        thread.row = row._replace(fence=save.place.fence, lease=lease)

    @_operation
    def _gates(self, task: str | None) -> dict[str, Gate]:
        return dict(self._gate_of) if task is None else {task: self._gate_of.get(task, Gate())}

    @_operation
    def _set_gate(self, task: str, gate: Gate) -> None:
        self._gate_of[task] = gate

    @_operation
    def _prolong(self, thread: str, owner: str) -> None:
        kept = self._kept.get(thread)
        if kept is not None and kept.row is not None and kept.row.lease is not None and kept.row.lease.owner == owner:
            until = time.time() + self.lease_seconds
            kept.row = kept.row._replace(lease=kept.row.lease._replace(until=until))

    def _save_run(self, save: SaveRun, journal: Journal) -> None:
        place, row = save
        thread, space = self._grown(place)
        journal.set(space.runs, row.id, row)
        if row.id not in space.calls:
            journal.set(space.calls, row.id, {})
        if not place.ns:
            journal.append((setattr, (thread, "row", thread.row)))
            fence, lease = (0, None) if thread.row is None else (thread.row.fence, thread.row.lease)
            lease = lease if row.status == "running" else None
            thread.row = ThreadRow(place.thread, row.flow, row.status, row.id, time.time(), fence, lease)

    def _save_checkpoint(self, save: SaveCheckpoint, journal: Journal) -> None:
        stored = stored_checkpoint(save.place, save.checkpoint, save.metadata, save.parent, self.serde)
        _, space = self._grown(save.place)
        journal.set(space.checkpoints, stored.id, stored)
        if space.newest is None or stored.id > space.newest:
            journal.append((setattr, (space, "newest", space.newest)))
            space.newest = stored.id
        versions = save.checkpoint["channel_versions"]
        for channel, row in save.values.items():
            rows = space.values.setdefault((channel, versions[channel]), {})
            journal.set(rows, stored.id, row)

    def _save_writes(self, save: SaveWrites, journal: Journal) -> None:
        rows = self._grown(save.place)[1].writes.setdefault(save.checkpoint, {})
        for slots in (SLOTS.values(), count()):  # special ones, and those of its own in order
            for slot in slots:
                if (save.task, slot) in rows:
                    journal.drop(rows, (save.task, slot))
                elif slot >= 0:
                    break
        for slot, (channel, blob) in enumerate(save.writes):
            journal.set(rows, (save.task, slot), StoredWrite(save.task, slot, channel, blob, save.path))

    def _save_question(self, save: SaveQuestion, journal: Journal) -> None:
        (thread, space), row = self._grown(save.place), save.row
        if row.id not in thread.questions:
            journal.set(thread.questions, row.id, row)
            journal.set(space.asked.setdefault(row.run, {}), row.id, None)
            if row.state == "open":
                journal.set(thread.open, row.id, None)

    def _use_answer(self, save: UseAnswer, journal: Journal) -> None:
        asked = self._grown(save.place)[0].questions
        row = asked.get(save.question)
        if row is not None and row.used == 0:
            journal.set(asked, row.id, row._replace(used=save.attempt))

    def _forget_calls(self, save: ForgetCalls, journal: Journal) -> None:
        calls = self._space(save.place).calls.get(save.run, {})
        for seq in save.seqs:
            if seq in calls:
                journal.set(calls, seq, calls[seq]._replace(flags=(calls[seq].flags | FORGOTTEN) & ~RETRIED))

    def _abandon_questions(self, save: AbandonQuestions, journal: Journal) -> None:
        thread, _ = self._grown(save.place)
        for id in list(thread.open):
            row = thread.questions[id]
            if save.run in (None, row.run):
                journal.set(thread.questions, id, row._replace(state="abandoned"))
                journal.drop(thread.open, id)

    def _copy_run(self, save: CopyRun, journal: Journal) -> None:
        place, source, target, last, without, without_answers = save
        thread, space = self._grown(place)
        sign, dropped = forked_from(source, self.serde), frozenset(without)
        for row in in_order(space.calls.get(source, {})):
            if (row.step <= last or row.flags & INTENT) and row.key not in dropped:
                payload = sign(row.payload, call_spot(place, target, row.key, row.name, row.flags))
                self._save_call(SaveCall(place, target, row._replace(payload=payload)), journal)
        for id in list(space.asked.get(source, ())):
            question = thread.questions[id]
            if question.state == "answered" and question.step <= last and question.base not in without_answers:
                copy = forked_question(question, place.thread, target, self.serde)
                self._save_question(SaveQuestion(place, copy), journal)


_APPLY: dict[type, Callable[[InMemorySaver, Any, Journal], None]] = {
    SaveCall: InMemorySaver._save_call,
    SaveRun: InMemorySaver._save_run,
    SaveCheckpoint: InMemorySaver._save_checkpoint,
    SaveWrites: InMemorySaver._save_writes,
    SaveQuestion: InMemorySaver._save_question,
    UseAnswer: InMemorySaver._use_answer,
    ForgetCalls: InMemorySaver._forget_calls,
    AbandonQuestions: InMemorySaver._abandon_questions,
    CopyRun: InMemorySaver._copy_run,
    TakeLease: InMemorySaver._take_lease,
}

MemorySaver = InMemorySaver
