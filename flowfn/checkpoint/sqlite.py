"""Threads kept in one SQLite file. Its format is described in `tables`."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from flowfn.checkpoint import tables
from flowfn.checkpoint.base import (
    FORGOTTEN,
    FORMAT,
    AbandonQuestions,
    CallRow,
    CopyRun,
    ForgetCalls,
    Place,
    QuestionRow,
    RunRow,
    Save,
    SaveCall,
    SaveCheckpoint,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    ThreadRow,
    UseAnswer,
    question_id,
)
from flowfn.checkpoint.medium import After, Cut, Outline
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
from flowfn.errors import StoreConflictError
from flowfn.serde.base import Serializer
from flowfn.sql.base import Busy, DuplicateRow, Op, Query
from flowfn.sql.sqlite import SqliteDatabase, path_of
from flowfn.sql.sqlite_file import MEMORY
from flowfn.types import Status

T = TypeVar("T")

CACHED_RUNS = 10_000
"""How many numbers of runs are remembered, so that a call costs one insert and no look-up."""


class SqliteSaver(RowSaver):
    """Threads in a SQLite file, shared by any number of processes on one machine.

    A context manager, blocking or awaited, that closes the file at its end; there is no need to, since an open file
    holds no lock.

    Args:
        path: "flows.db", a `Path`, ":memory:", "sqlite:///flows.db" (relative) or "sqlite:////var/flows.db". Folders
            that are missing are made; the file is opened when first used. A `sqlite3.Connection` stands for its file.
        serde: encodes values.
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
        super().__init__(serde)
        if isinstance(path, sqlite3.Connection):
            self.path: str = path.execute("PRAGMA database_list").fetchone()[2] or MEMORY
        else:
            self.path = path_of(path)
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
        return self.sql.run(op, write=write)

    async def _ado(self, op: Op[T], *, write: bool = False) -> T:
        return await self.sql.arun(op, write=write)

    def save_now(self, saves: Sequence[Save]) -> bool:
        try:
            self.sql.try_run(self._save(saves), write=True)
        except Busy:
            return False
        return True

    # --- what is read

    def _thread(self, thread: str) -> Op[ThreadRow | None]:
        rows = yield Query(tables.THREAD, (tables.key_of(thread),))
        return ThreadRow(thread, *rows[0][1:]) if rows else None

    def _threads(self, status: Status | None, flow: str | None, limit: int) -> Op[list[ThreadRow]]:
        statuses = tables.STATUSES if status is None else (status,)
        pairs = [part for each in statuses for part in ((each,) if flow is None else (flow, each))]
        rows = yield Query(tables.threads_query(len(statuses), flow is not None), (*pairs, limit))
        return [ThreadRow(tables.thread_of(row[0]), *row[1:]) for row in rows]

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

    def _values(self, found: Unpacked) -> Op[dict[str, bytes]]:
        if not found.versions:
            return {}
        (thread, ns), id = found.stored.place, found.stored.id
        pairs = [part for pair in found.versions.items() for part in pair]
        rows = yield Query(tables.values_query(len(found.versions)), (*pairs, tables.key_of(thread), ns))
        values = {channel: payload for channel, _, payload in rows}
        if len(values) < len(rows):
            line = lineage(id, dict((yield Query(tables.PARENTS, (tables.key_of(thread), ns)))))
            values = {channel: payload for channel, checkpoint, payload in rows if checkpoint in line}
        return {channel: values[channel] for channel in found.versions if channel in values}

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
        questions = [question for question in map(QuestionRow._make, asked) if question.state != "abandoned"]
        return RunMemory(tables.run_row(rows[0][1:]), list(map(CallRow._make, calls)), questions)

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

    def _open(self, thread: str | None, limit: int) -> Op[list[tuple[str, QuestionRow]]]:
        rows = (
            yield Query(tables.OPEN, (limit,))
            if thread is None
            else Query(tables.OPEN_OF_THREAD, (tables.key_of(thread), limit))
        )
        return [(tables.thread_of(row[0]), QuestionRow._make(row[1:])) for row in rows]

    # --- what is written

    def _save(self, saves: Sequence[Save]) -> Op[None]:
        for save in saves:
            if type(save) is SaveCall:
                (place, run, row), id = save, self._run_ids.get(save[:2])
                if id is None:
                    id = yield from self._run_id(place, run, saves)
                try:
                    yield Query(tables.INSERT_CALL, (id << tables.SEQ_BITS | row[0], *row[1:]))
                except DuplicateRow:
                    raise StoreConflictError(self.path, place.thread) from None
            else:
                yield from _APPLY[type(save)](self, save)

    def _run_id(self, place: Place, run: str, saves: Sequence[Save] = ()) -> Op[int]:
        """The number of a stored run.

        Args:
            saves: of this transaction. The number of a run that it stores is not cached: it may yet be undone.
        """
        rows = yield Query(tables.RUN_ID, (tables.key_of(place.thread), place.ns, run))
        if not rows:
            raise StoreConflictError(self.path, place.thread)
        if not any(type(save) is SaveRun and save.place == place and save.row.id == run for save in saves):
            if len(self._run_ids) >= CACHED_RUNS:
                self._run_ids.clear()
            self._run_ids[place, run] = rows[0][0]
        return int(rows[0][0])

    def _save_run(self, save: SaveRun) -> Op[None]:
        (thread, ns), row = save
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
        for channel, payload in values.items():
            yield Query(tables.SAVE_VALUE, (thread, ns, channel, checkpoint["channel_versions"][channel], id, payload))

    def _save_writes(self, save: SaveWrites) -> Op[None]:
        (thread, ns), checkpoint, task, path, writes = save
        key = tables.key_of(thread)
        yield Query(tables.FORGET_WRITES, (key, ns, checkpoint, task))
        for slot, (channel, payload) in enumerate(writes):
            yield Query(tables.SAVE_WRITE, (key, ns, checkpoint, task, slot, channel, payload, path))

    def _write(self, place: Place, checkpoint: str, writes: Sequence[StoredWrite]) -> Op[None]:
        for write in writes:
            sql = tables.SAVE_WRITE if write.slot < 0 else tables.ADD_WRITE
            yield Query(sql, (tables.key_of(place.thread), place.ns, checkpoint, *write))

    def _save_question(self, save: SaveQuestion) -> Op[None]:
        yield Query(tables.SAVE_QUESTION, (tables.key_of(save.place.thread), *save.row))

    def _record(self, thread: str, answers: Mapping[str, bytes], by: str | None, note: str | None) -> Op[None]:
        for id, blob in answers.items():
            yield Query(tables.ANSWER, (blob, by, note, time.time(), tables.key_of(thread), id))

    def _use_answer(self, save: UseAnswer) -> Op[None]:
        yield Query(tables.USE_ANSWER, (save.attempt, tables.key_of(save.place.thread), save.question))

    def _forget_calls(self, save: ForgetCalls) -> Op[None]:
        id = yield from self._run_id(save.place, save.run)
        for seq in save.seqs:
            yield Query(tables.FORGET_CALL, (FORGOTTEN, id << tables.SEQ_BITS | seq))

    def _abandon_questions(self, save: AbandonQuestions) -> Op[None]:
        yield Query(tables.ABANDON, (tables.key_of(save.place.thread), save.run, save.run))

    def _copy_run(self, save: CopyRun) -> Op[None]:
        place, source, target, last = save
        thread = tables.key_of(place.thread)
        found = yield Query(tables.RUN_ID, (thread, place.ns, source))
        (new,) = (yield Query(tables.RUN_ID, (thread, place.ns, target))) or [(None,)]
        if new[0] is None:
            raise StoreConflictError(self.path, place.thread)
        for (old,) in found:
            try:
                yield Query(tables.COPY_CALLS, (new[0] << tables.SEQ_BITS, *tables.range_of(old), last))
            except DuplicateRow:
                raise StoreConflictError(self.path, place.thread) from None
            yield Query("UPDATE runs SET forked_from = ? WHERE id = ?", (old, new[0]))
        for question in map(QuestionRow._make, (yield Query(tables.QUESTIONS_OF_RUN, (thread, source, place.ns)))):
            if question.state == "answered" and question.step <= last:
                copy = question._replace(id=question_id(target, question.base), run=target, used=0)
                yield from self._save_question(SaveQuestion(place, copy))

    def _delete(self, thread: str) -> Op[None]:
        key = tables.key_of(thread)
        for (id,) in (yield Query(tables.RUN_IDS, (key,))):
            yield Query(tables.FORGET_CALLS_OF, tables.range_of(id))
        for table in tables.SCHEMA.keys() - {"calls"}:
            yield Query(f"DELETE FROM {table} WHERE thread = ?", (key,))
        self._run_ids.clear()

    # --- copied, and made smaller

    def _namespaces(self, thread: str) -> Op[list[str]]:
        rows = yield Query(tables.NAMESPACES, (tables.key_of(thread),))
        return sorted(ns for (ns,) in rows)

    def _outlines(self, place: Place) -> Op[list[Outline]]:
        rows = yield Query(tables.OUTLINES, (tables.key_of(place.thread), place.ns))
        return list(map(Outline._make, rows))

    def _value_keys(self, place: Place) -> Op[list[tuple[str, Any, str]]]:
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
            yield Query(tables.COPY_CALLS, (copy << tables.SEQ_BITS, *tables.range_of(id), sys.maxsize))
        for sql in tables.COPIES:
            yield Query(sql, (new, old))


_APPLY: dict[type, Callable[[SqliteSaver, Any], Op[None]]] = {
    SaveRun: SqliteSaver._save_run,
    SaveCheckpoint: SqliteSaver._save_checkpoint,
    SaveWrites: SqliteSaver._save_writes,
    SaveQuestion: SqliteSaver._save_question,
    UseAnswer: SqliteSaver._use_answer,
    ForgetCalls: SqliteSaver._forget_calls,
    AbandonQuestions: SqliteSaver._abandon_questions,
    CopyRun: SqliteSaver._copy_run,
}
