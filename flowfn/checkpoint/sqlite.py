"""Threads kept in one SQLite file. Its format is described in `tables`."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from flowfn.checkpoint import columns, tables
from flowfn.checkpoint.base import (
    FORGOTTEN,
    FORMAT,
    RETRIED,
    AbandonQuestions,
    CallRow,
    CopyRun,
    Delta,
    ForgetCalls,
    Lease,
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
from flowfn.checkpoint.columns import Column
from flowfn.checkpoint.leases import check_few, check_free
from flowfn.checkpoint.medium import After, Cut, Gate, Outline
from flowfn.checkpoint.rows import (
    RunMemory,
    StoredCheckpoint,
    StoredWrite,
    Unpacked,
    lineage,
    run_of,
    stored_checkpoint,
)
from flowfn.checkpoint.rowsaver import RowSaver
from flowfn.checkpoint.signing import PLAIN, Sign, forked_from, forked_question, moved_from, tell_missing_keys
from flowfn.checkpoint.values import Rows, rows_of
from flowfn.errors import LeaseLostError, StoreConflictError
from flowfn.serde.base import Serializer
from flowfn.serde.keys import default_keyring
from flowfn.serde.signed import key_id_of
from flowfn.sql.base import Busy, DuplicateRow, Op, Query, Row
from flowfn.sql.sqlite import SqliteDatabase, path_of
from flowfn.sql.sqlite_file import MEMORY
from flowfn.types import Status

T = TypeVar("T")

_NO_ROWS: dict[str, bytes | Delta] = {}

CACHED_RUNS = 10_000
"""How many numbers of runs are remembered, so that a call costs one insert and no look-up."""


class SqliteSaver(RowSaver):
    """Threads in a SQLite file, shared by any number of processes on one machine.

    A context manager, blocking or awaited, that closes the file at its end; there is no need to, since an open file
    holds no lock.

    Args:
        path: "flows.db", a `Path`, ":memory:", "sqlite:///flows.db" (relative) or "sqlite:////var/flows.db". Folders
            that are missing are made; the file is opened when first used. A `sqlite3.Connection` stands for its file.
        serde: encodes values. Without keys of its own it signs with those of `FLOWFN_KEY`, or else of the user's key
            file, which is made when it is needed; a database in memory needs none.
        synchronous: with "normal" a killed process loses nothing; "full" keeps every commit through a power cut, too,
            and waits for the disk at each.
        timeout: seconds to wait while other processes write.
        read_only: for viewers: the file has to be there, nothing in it or beside it is made or changed, and whatever
            would write raises `StoreError`. Others may write meanwhile. Only the log of a killed process, where its
            index is missing, gets a new index beside it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | sqlite3.Connection,
        *,
        serde: Serializer | None = None,
        synchronous: Literal["normal", "full"] = "normal",
        timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        if isinstance(path, sqlite3.Connection):
            self.path: str = path.execute("PRAGMA database_list").fetchone()[2] or MEMORY
        else:
            self.path = path_of(path)
        serde = serde or Serializer()
        super().__init__(serde if serde.keys is not None or self.path == MEMORY else serde.signed_by(default_keyring()))
        self.sql = SqliteDatabase(
            self.path,
            tables.SCHEMA,
            FORMAT,
            migrations=tables.MIGRATIONS,
            synchronous=synchronous,
            timeout=timeout,
            read_only=read_only,
        )
        self._run_ids: dict[tuple[Place, str], int] = {}
        self._knows_keys = False

    @classmethod
    def from_conn_string(cls, conn_string: str) -> Self:
        """The saver of that file, for `with` and `async with`."""
        return cls(conn_string)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SqliteSaver({self.path!r}{', read_only=True' if self.sql.read_only else ''})"

    def close(self) -> None:
        self.sql.close()

    def _do(self, op: Op[T], *, write: bool = False) -> T:
        return self.sql.run(op if self._knows_keys else self._first(op), write=write)

    async def _ado(self, op: Op[T], *, write: bool = False) -> T:
        return await self.sql.arun(op if self._knows_keys else self._first(op), write=write)

    def _first(self, op: Op[T]) -> Op[T]:
        """The first operation, and before it a look at which keys have signed here."""
        rows = yield Query(tables.KEYS)
        self._knows_keys = True
        tell_missing_keys(self.path, [id for (id,) in rows], self.serde)
        return (yield from op)

    def save_now(self, saves: Sequence[Save]) -> bool:
        try:
            op = self._save(saves)
            self.sql.try_run(op if self._knows_keys else self._first(op), write=True)
        except Busy:
            return False
        return True

    # --- what is read

    def _thread(self, thread: str) -> Op[ThreadRow | None]:
        rows = yield Query(tables.THREAD, (tables.key_of(thread),))
        return tables.thread_row(rows[0]) if rows else None

    def _threads(self, status: Status | None, flow: str | None, limit: int) -> Op[list[ThreadRow]]:
        statuses = tables.STATUSES if status is None else (status,)
        pairs = [part for each in statuses for part in ((each,) if flow is None else (flow, each))]
        rows = yield Query(tables.threads_query(len(statuses), flow is not None), (*pairs, limit))
        return list(map(tables.thread_row, rows))

    def _stored(self, place: Place, id: str | None) -> Op[StoredCheckpoint | None]:
        thread = tables.key_of(place.thread)
        rows = (
            yield Query(tables.NEWEST, (thread, place.ns))
            if id is None
            else Query(tables.STORED, (thread, place.ns, id))
        )
        return StoredCheckpoint(place, *rows[0][2:]) if rows else None

    def _stored_after(self, thread: str | None, ns: str | None, after: After, limit: int) -> Op[list[StoredCheckpoint]]:
        if thread is None:
            query = Query(tables.STORED_AFTER, (after.id, tables.key_of(after.thread), after.ns, limit))
        elif ns is None:
            query = Query(tables.STORED_AFTER_IN_THREAD, (tables.key_of(thread), after.id, after.ns, limit))
        else:
            query = Query(tables.STORED_BEFORE, (tables.key_of(thread), ns, after.id, limit))
        rows = yield query
        return [StoredCheckpoint(Place(tables.thread_of(row[0]), row[1]), *row[2:]) for row in rows]

    def _values(self, found: Unpacked) -> Op[dict[str, Rows]]:
        if not found.versions:
            return {}
        here, id = (tables.key_of(found.stored.place.thread), found.stored.place.ns), found.stored.id
        pairs = [part for pair in found.versions.items() for part in pair]
        rows = yield Query(tables.values_query(len(found.versions)), (*pairs, *here))
        wanted = [part for channel, _, _, prev, _ in rows if prev is not None for part in (channel, prev)]
        if wanted:
            rows = [*rows, *(yield Query(tables.chains_query(len(wanted) // 2), (*here, *wanted)))]
        stored: dict[tuple[str, Any], dict[str, bytes | Delta]] = {}
        for channel, version, checkpoint, prev, payload in rows:
            row = payload if prev is None else Delta(prev, payload)
            stored.setdefault((channel, version), {})[checkpoint] = row
        if len(stored) < len(rows):
            line = lineage(id, dict((yield Query(tables.PARENTS, here))))
            for key, each in stored.items():
                if len(each) > 1:
                    stored[key] = {checkpoint: row for checkpoint, row in each.items() if checkpoint in line}

        def row_at(version: Any) -> bytes | Delta | None:
            return next(reversed(stored.get((channel, version), _NO_ROWS).values()), None)

        values: dict[str, Rows] = {}
        for channel, version in found.versions.items():
            of_channel = rows_of(version, row_at)
            if of_channel is not None:
                values[channel] = of_channel
        return values

    def _writes(self, place: Place, checkpoint: str) -> Op[list[StoredWrite]]:
        rows = yield Query(tables.WRITES, (tables.key_of(place.thread), place.ns, checkpoint))
        return [StoredWrite._make(row) for row in rows]

    def _run(self, place: Place, run: str) -> Op[RunMemory | None]:
        thread = tables.key_of(place.thread)
        rows = yield Query(tables.RUN, (thread, place.ns, run))
        if not rows:
            return None
        calls = yield Query(tables.CALLS, tables.range_of(rows[0][0]))
        asked = yield Query(tables.QUESTIONS_OF_RUN, (thread, run, place.ns))
        return RunMemory(
            tables.run_row(rows[0][1:]), list(map(CallRow._make, calls)), list(map(QuestionRow._make, asked))
        )

    def _runs(self, place: Place, limit: int) -> Op[list[RunRow]]:
        rows = yield Query(tables.RUNS, (tables.key_of(place.thread), place.ns, limit))
        return [tables.run_row(row) for row in rows]

    def _calls(self, place: Place, run: str) -> Op[list[CallRow]]:
        found = yield Query(tables.RUN_ID, (tables.key_of(place.thread), place.ns, run))
        rows = (yield Query(tables.CALLS, tables.range_of(found[0][0]))) if found else []
        return list(map(CallRow._make, rows))

    def _question(self, thread: str, id: str) -> Op[QuestionRow | None]:
        rows = yield Query(tables.QUESTION, (tables.key_of(thread), id))
        return QuestionRow._make(rows[0]) if rows else None

    def _asked(self, thread: str) -> Op[list[QuestionRow]]:
        rows = yield Query(tables.QUESTIONS_OF_THREAD, (tables.key_of(thread),))
        return list(map(QuestionRow._make, rows))

    def _open(self, thread: str | None, limit: int) -> Op[list[tuple[str, QuestionRow]]]:
        rows = (
            yield Query(tables.OPEN, (limit,))
            if thread is None
            else Query(tables.OPEN_OF_THREAD, (tables.key_of(thread), limit))
        )
        return [(tables.thread_of(row[0]), QuestionRow(*row[1:])) for row in rows]

    # --- what is written

    def _save(self, saves: Sequence[Save]) -> Op[None]:
        if saves and saves[0].place.fence is not None and type(saves[0]) not in (SaveCall, TakeLease):
            yield from self._check_fence(saves[0].place)
        for save in saves:
            if type(save) is SaveCall:
                (place, run, row), id = save, self._run_ids.get(save[:2])
                if id is None:
                    id = yield from self._run_id(place, run, saves)
                number, fence = id << tables.SEQ_BITS | row[0], place.fence
                try:
                    if fence is None:
                        yield Query(tables.INSERT_CALL, (number, *row[1:]))
                    else:
                        yield Query(tables.INSERT_CALL_HELD, (number, fence, tables.key_of(place.thread), *row[1:]))
                except DuplicateRow:
                    if fence is not None:
                        yield from self._check_fence(place)
                    raise StoreConflictError(self.path, place.thread) from None
                if row.payload[:1] > PLAIN:
                    yield from self._note(row.payload)
            else:
                yield from _APPLY[type(save)](self, save)

    def _note(self, *payloads: bytes) -> Op[None]:
        """List the keys with which these payloads are signed among those that have signed here."""
        for payload in payloads:
            if payload[:1] > PLAIN and (id := key_id_of(payload)) is not None:
                yield Query(tables.NOTE_KEY, (id, time.time()))

    def _run_id(self, place: Place, run: str, saves: Sequence[Save] = ()) -> Op[int]:
        """The number of a stored run.

        Args:
            saves: of this transaction. The number of a run that it stores is not cached: it may yet be undone.
        """
        rows = yield Query(tables.RUN_ID, (tables.key_of(place.thread), place.ns, run))
        if not rows:
            if place.fence is not None:
                yield from self._check_fence(place)
            raise StoreConflictError(self.path, place.thread)
        if not any(type(save) is SaveRun and save.place == place and save.row.id == run for save in saves):
            if len(self._run_ids) >= CACHED_RUNS:
                self._run_ids.clear()
            self._run_ids[place, run] = rows[0][0]
        return int(rows[0][0])

    def _check_fence(self, place: Place) -> Op[None]:
        rows = yield Query(tables.FENCE, (tables.key_of(place.thread),))
        if not rows or rows[0][0] != place.fence:
            raise LeaseLostError(self.path, place.thread)

    def _take_lease(self, save: TakeLease) -> Op[None]:
        key, now = tables.key_of(save.place.thread), time.time()
        row = yield from self._thread(save.place.thread)
        check_free(save, row and row.lease, row.fence if row else 0, now)
        if save.most is not None:
            others = yield Query(tables.LEASES_OF_FLOW, (save.flow, key))
            check_few(save, list(map(Lease._make, others)), now)
        term = (save.owner, now, now + self.lease_seconds)
        yield Query(tables.TAKE_LEASE, (key, save.flow, now, save.place.fence, *term))

    def _gates(self, task: str | None) -> Op[dict[str, Gate]]:
        rows = yield Query(tables.GATES) if task is None else Query(tables.GATE, (task,))
        return {name: _gate(*json.loads(state)) for name, state in rows}

    def _set_gate(self, task: str, gate: Gate) -> Op[None]:
        yield Query(tables.SET_GATE, (task, json.dumps(gate)))

    def _prolong(self, thread: str, owner: str) -> Op[None]:
        yield Query(tables.RENEW_LEASE, (time.time() + self.lease_seconds, tables.key_of(thread), owner))

    def _save_run(self, save: SaveRun) -> Op[None]:
        (thread, ns, _), row = save
        key = tables.key_of(thread)
        yield Query(tables.SAVE_RUN, (key, ns, *row[:7], json.dumps(dict(row.code)), *row[8:]))
        if not ns:
            yield Query(tables.SAVE_THREAD, (key, row.flow, row.status, row.id, time.time()))

    def _save_checkpoint(self, save: SaveCheckpoint) -> Op[None]:
        place, checkpoint, metadata, parent, values = save
        thread, ns, id = tables.key_of(place.thread), place.ns, checkpoint["id"]
        _, _, _, record, encoded = stored_checkpoint(place, checkpoint, metadata, parent, self.serde)
        facts = (run_of(metadata), metadata.get("source"), metadata.get("step"), checkpoint["ts"])
        yield Query(tables.SAVE_CHECKPOINT, (thread, ns, id, parent, *facts, encoded, record))
        versions = checkpoint["channel_versions"]
        for channel, row in values.items():
            if isinstance(row, bytes):
                yield Query(tables.SAVE_VALUE, (thread, ns, channel, versions[channel], id, row))
            else:
                yield Query(tables.SAVE_DELTA, (thread, ns, channel, versions[channel], id, *row))
        yield from self._note(record, encoded, *(row if isinstance(row, bytes) else row[1] for row in values.values()))

    def _save_writes(self, save: SaveWrites) -> Op[None]:
        (thread, ns, _), checkpoint, task, path, writes = save
        key = tables.key_of(thread)
        yield Query(tables.FORGET_WRITES, (key, ns, checkpoint, task))
        for slot, (channel, payload) in enumerate(writes):
            yield Query(tables.SAVE_WRITE, (key, ns, checkpoint, task, slot, channel, payload, path))
            yield from self._note(payload)

    def _write(self, place: Place, checkpoint: str, writes: Sequence[StoredWrite]) -> Op[None]:
        for write in writes:
            sql = tables.SAVE_WRITE if write.slot < 0 else tables.ADD_WRITE
            yield Query(sql, (tables.key_of(place.thread), place.ns, checkpoint, *write))
            yield from self._note(write.payload)

    def _save_question(self, save: SaveQuestion) -> Op[None]:
        yield Query(tables.SAVE_QUESTION, (tables.key_of(save.place.thread), *save.row))
        yield from self._note(save.row.payload, save.row.answer or b"")

    def _record(self, thread: str, answers: Mapping[str, bytes], by: str | None, note: str | None) -> Op[None]:
        for id, blob in answers.items():
            yield Query(tables.ANSWER, (blob, by, note, time.time(), tables.key_of(thread), id))
            yield from self._note(blob)

    def _use_answer(self, save: UseAnswer) -> Op[None]:
        yield Query(tables.USE_ANSWER, (save.attempt, tables.key_of(save.place.thread), save.question))

    def _forget_calls(self, save: ForgetCalls) -> Op[None]:
        id = yield from self._run_id(save.place, save.run)
        for seq in save.seqs:
            yield Query(tables.FORGET_CALL, (FORGOTTEN, RETRIED, id << tables.SEQ_BITS | seq))

    def _abandon_questions(self, save: AbandonQuestions) -> Op[None]:
        yield Query(tables.ABANDON, (tables.key_of(save.place.thread), save.run, save.run))

    def _copy_run(self, save: CopyRun) -> Op[None]:
        place, source, target, last, *_ = save
        thread = tables.key_of(place.thread)
        found = yield Query(tables.RUN_ID, (thread, place.ns, source))
        (new,) = (yield Query(tables.RUN_ID, (thread, place.ns, target))) or [(None,)]
        if new[0] is None:
            raise StoreConflictError(self.path, place.thread)
        for (old,) in found:
            try:
                without = json.dumps([key.hex().upper() for key in save.without])
                yield Query(tables.COPY_CALLS, (new[0] << tables.SEQ_BITS, *tables.range_of(old), last, without))
            except DuplicateRow:
                raise StoreConflictError(self.path, place.thread) from None
            yield Query("UPDATE runs SET forked_from = ? WHERE id = ?", (old, new[0]))
            rows = yield Query(columns.CALLS_OF_RUN.found(columns.IS_MARKED), (new[0],))
            yield from self._sign_rows(columns.CALLS_OF_RUN, place.thread, rows, forked_from(source, self.serde))
        for question in map(QuestionRow._make, (yield Query(tables.QUESTIONS_OF_RUN, (thread, source, place.ns)))):
            if question.state == "answered" and question.step <= last and question.base not in save.without_answers:
                copy = forked_question(question, place.thread, target, self.serde)
                yield from self._save_question(SaveQuestion(place, copy))

    def _delete(self, thread: str) -> Op[None]:
        key = tables.key_of(thread)
        for (id,) in (yield Query(tables.RUN_IDS, (key,))):
            yield Query(tables.FORGET_CALLS_OF, tables.range_of(id))
        for table in tables.OF_A_THREAD:
            yield Query(f"DELETE FROM {table} WHERE thread = ?", (key,))
        self._run_ids.clear()

    # --- copied, and made smaller

    def _namespaces(self, thread: str) -> Op[list[str]]:
        rows = yield Query(tables.NAMESPACES, (tables.key_of(thread),))
        return sorted(ns for (ns,) in rows)

    def _outlines(self, place: Place) -> Op[list[Outline]]:
        rows = yield Query(tables.OUTLINES, (tables.key_of(place.thread), place.ns))
        return list(map(Outline._make, rows))

    def _value_keys(self, place: Place) -> Op[list[tuple[str, Any, str, Any]]]:
        return list((yield Query(tables.VALUE_KEYS, (tables.key_of(place.thread), place.ns))))

    def _threads_with(self, run: str) -> Op[list[str]]:
        rows = yield Query(tables.THREADS_WITH, (run,))
        return [tables.thread_of(thread) for (thread,) in rows]

    def _cut(self, place: Place, cut: Cut) -> Op[None]:
        here = (tables.key_of(place.thread), place.ns)
        for channel, version, old, new in cut.homes:
            yield Query(tables.MOVE_VALUE, (new, *here, channel, version, old))
        for value in cut.values:
            yield Query(tables.FORGET_VALUE, (*here, *value))
        for checkpoint in cut.checkpoints:
            yield Query(tables.FORGET_WRITES_OF, (*here, checkpoint))
            yield Query(tables.FORGET_CHECKPOINT, (*here, checkpoint))
        for checkpoint, parent in cut.parents.items():
            yield Query(tables.MOVE_CHECKPOINT, (parent, *here, checkpoint))
        for run in cut.runs:
            for (id,) in (yield Query(tables.RUN_ID, (*here, run))):
                yield Query(tables.FORGET_CALLS_OF, tables.range_of(id))
                yield Query(tables.FORGET_RUN, (id,))
            yield Query(tables.FORGET_QUESTIONS_OF, (here[0], run, place.ns))
        self._run_ids.clear()

    def _stand_at(self, thread: str, row: RunRow | None) -> Op[None]:
        if row is None:
            yield Query(tables.FORGET_THREAD, (tables.key_of(thread),))
        else:
            yield Query(tables.STAND_AT, (row.flow, row.status, row.id, tables.key_of(thread)))

    def _copy(self, source: str, target: str) -> Op[None]:
        old, new = tables.key_of(source), tables.key_of(target)
        yield Query(tables.COPY_THREAD, (new, time.time(), old))
        for (id,) in (yield Query(tables.RUN_IDS, (old,))):
            yield Query(tables.COPY_RUN, (new, id))
            ((copy,),) = yield Query(tables.LAST_RUN_ID)
            yield Query(tables.COPY_CALLS, (copy << tables.SEQ_BITS, *tables.range_of(id), sys.maxsize, "[]"))
        for sql in tables.COPIES:
            yield Query(sql, (new, old))
        yield from self._sign_thread(target, columns.IS_MARKED, moved_from(source, self.serde))

    def _sign_anew(self, sign: Sign) -> Op[None]:
        yield Query(tables.FORGET_KEYS)
        for (thread,) in (yield Query(columns.THREAD_IDS)):
            yield from self._sign_thread(tables.thread_of(thread), columns.IS_PAYLOAD, sign)

    def _sign_thread(self, thread: str, condition: str, sign: Sign) -> Op[None]:
        for column in columns.COLUMNS:
            rows = yield Query(column.found(condition), (tables.key_of(thread),))
            yield from self._sign_rows(column, thread, rows, sign)

    def _sign_rows(self, column: Column, thread: str, rows: Sequence[Row], sign: Sign) -> Op[None]:
        """The payloads of these rows as `sign` makes them, one at a time."""
        wanted = column.row.count("?")
        for row in rows:
            ((old,),) = yield Query(column.read, row[:wanted])
            new = sign(old, column.spot(thread, *row))
            if new != old:
                yield Query(column.write, (new, *row[:wanted]))
            yield from self._note(new)


def _gate(turns: Any, slots: Mapping[str, Any]) -> Gate:
    return Gate(turns, {slot: Lease._make(lease) for slot, lease in slots.items()})


_APPLY: dict[type, Callable[[SqliteSaver, Any], Op[None]]] = {
    SaveRun: SqliteSaver._save_run,
    SaveCheckpoint: SqliteSaver._save_checkpoint,
    SaveWrites: SqliteSaver._save_writes,
    SaveQuestion: SqliteSaver._save_question,
    UseAnswer: SqliteSaver._use_answer,
    ForgetCalls: SqliteSaver._forget_calls,
    AbandonQuestions: SqliteSaver._abandon_questions,
    CopyRun: SqliteSaver._copy_run,
    TakeLease: SqliteSaver._take_lease,
}
