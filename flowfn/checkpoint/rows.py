"""How stored rows become what people read: the part of reading that every saver shares, none of which waits.

A **stored checkpoint** is a row without its channel values, which stand elsewhere under (channel, version). A
super-step inside a function has no row of its own: `call_checkpoints` computes its checkpoint from the rows of its
calls and questions. Everything here is a plain function over rows already fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from flowfn.checkpoint import cells
from flowfn.checkpoint.base import (
    FAILED,
    FORGOTTEN,
    INTENT,
    PACKED,
    RETRIED,
    CallRow,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Place,
    QuestionRow,
    RunRow,
    call_checkpoint_id,
    split_call_checkpoint_id,
    task_id,
    thread_name,
)
from flowfn.checkpoint.values import Rows, chain_of, joined
from flowfn.errors import (
    AlreadyAnsweredError,
    AnswerRefusedError,
    ConfigError,
    UnknownQuestionError,
    UnreadableError,
)
from flowfn.schema import check
from flowfn.serde.base import Serializer
from flowfn.types import Interrupt

RESULT, ERROR, INTERRUPT, RESUME = "__return__", "__error__", "__interrupt__", "__resume__"

_NO_CHECKPOINT = "what is stored there is no checkpoint."

SLOTS = {ERROR: -1, "__scheduled__": -2, INTERRUPT: -3, RESUME: -4}
"""Special writes have a place of their own among a task's writes, so that the newest replaces the older."""


class Address(NamedTuple):
    """What a config names: a thread, a namespace or all of them, a checkpoint or the newest."""

    thread: str
    ns: str | None
    checkpoint: str | None

    @property
    def place(self) -> Place:
        return Place(self.thread, self.ns or "")


def address(config: Mapping[str, Any]) -> Address:
    """What `config` names, whether or not its keys are wrapped in `configurable`.

    Raises:
        ConfigError: it names no thread.
    """
    named: Mapping[str, Any] = config.get("configurable") or config
    if named.get("thread_id") is None:
        raise ConfigError('The config names no thread. Pass `{"configurable": {"thread_id": "some-name"}}`.')
    checkpoint = named.get("checkpoint_id")
    return Address(
        thread_name(named["thread_id"]),
        named.get("checkpoint_ns"),
        None if checkpoint is None else str(checkpoint),
    )


def config_of(place: Place, checkpoint: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": place.thread, "checkpoint_ns": place.ns, "checkpoint_id": checkpoint}}


# ---------------------------------------------------------------- stored checkpoints


class StoredCheckpoint(NamedTuple):
    """A checkpoint's row: `record` and `metadata` are encoded; the values of its channels are stored apart."""

    place: Place
    id: str
    parent: str | None
    record: bytes
    metadata: bytes


class StoredWrite(NamedTuple):
    """One pending write; `slot` orders the writes of a task."""

    task: str
    slot: int
    channel: str
    payload: bytes
    path: str = ""


class RunMemory(NamedTuple):
    """A run with its calls, in the order stored, and its questions, in the order asked."""

    row: RunRow
    calls: Sequence[CallRow]
    questions: Sequence[QuestionRow]


def stored_checkpoint(
    place: Place, checkpoint: Checkpoint, metadata: CheckpointMetadata, parent: str | None, serde: Serializer
) -> StoredCheckpoint:
    """The row of a checkpoint."""
    c = checkpoint
    record = [c.get("v", 4), c["ts"], c["channel_versions"], c["versions_seen"], c.get("updated_channels")]
    what, cell = cells.checkpoint_title(c["id"]), cells.checkpoint(place, c["id"])
    return StoredCheckpoint(
        Place(place.thread, place.ns),
        c["id"],
        parent,
        serde.dumps(record, what, cell),
        serde.dumps(dict(metadata), what, cell),
    )


def run_of(metadata: Mapping[str, Any]) -> str | None:
    """The run that a checkpoint belongs to; `run_id` is what programs written for LangGraph call it."""
    run = metadata.get("run") or metadata.get("run_id")
    return None if run is None else str(run)


class Unpacked(NamedTuple):
    """A stored checkpoint with its record and metadata decoded; its channel values still have to be looked up."""

    stored: StoredCheckpoint
    v: int
    ts: str
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    updated: list[str] | None
    metadata: CheckpointMetadata

    @property
    def run(self) -> str | None:
        return self.metadata.get("run")

    def begins_run(self) -> bool:
        return self.run == self.stored.id


def unpacked(stored: StoredCheckpoint, serde: Serializer) -> Unpacked:
    """The checkpoint of a row.

    Raises:
        UnreadableError: it cannot be read, or is none.
    """
    loads, what, cell = serde.loads, cells.checkpoint_title(stored.id), cells.checkpoint(stored.place, stored.id)
    record, metadata = loads(stored.record, cell, what), loads(stored.metadata, cell, what)
    try:
        v, ts, versions, seen, updated = record
        if type(versions) is type(seen) is type(metadata) is dict:
            return Unpacked(stored, v, ts, versions, seen, updated, cast(CheckpointMetadata, metadata))
    except (TypeError, ValueError):
        pass
    raise UnreadableError(what, _NO_CHECKPOINT)


def metadata_of(stored: StoredCheckpoint, serde: Serializer) -> CheckpointMetadata:
    what = cells.checkpoint_title(stored.id)
    found = serde.loads(stored.metadata, cells.checkpoint(stored.place, stored.id), what)
    if type(found) is not dict:
        raise UnreadableError(what, _NO_CHECKPOINT)
    return cast(CheckpointMetadata, found)


def lineage(checkpoint: str, parents: Mapping[str, str | None]) -> set[str]:
    """The stored checkpoints from which `checkpoint` grew, itself included."""
    line: set[str] = set()
    at: str | None = checkpoint
    while at is not None and at not in line:
        if at not in parents and (inside := split_call_checkpoint_id(at)):
            at = inside[0]
            continue
        line.add(at)
        at = parents.get(at)
    return line


def checkpoint_tuple(
    found: Unpacked, values: Mapping[str, Rows], writes: Iterable[StoredWrite], serde: Serializer
) -> CheckpointTuple:
    """A stored checkpoint as people see it; `values` are the rows of its channels that have any."""
    shown = remembered(found, values, writes, serde)
    channel_values = shown.checkpoint["channel_values"]
    for channel, rows in values.items():
        if type(rows) is not bytes:
            channel_values[channel] = joined(channel_values[channel])
    return shown


def remembered(
    found: Unpacked, values: Mapping[str, Rows], writes: Iterable[StoredWrite], serde: Serializer
) -> CheckpointTuple:
    """A stored checkpoint as a run goes on from it: values that were added to are each a `Chain`."""
    place, id, parent, _, _ = found.stored
    loads, versions = serde.loads, found.versions
    checkpoint: Checkpoint = {
        "v": found.v,
        "id": id,
        "ts": found.ts,
        "channel_values": {
            channel: loads(rows, cells.value(place, channel, versions[channel]), cells.value_title(channel))
            if isinstance(rows, bytes)
            else chain_of(place, channel, rows, serde)
            for channel, rows in values.items()
        },
        "channel_versions": versions,
        "versions_seen": found.seen,
        "updated_channels": found.updated,
    }
    return CheckpointTuple(
        config_of(place, id),
        checkpoint,
        found.metadata,
        None if parent is None else config_of(place, parent),
        [pending for write in writes for pending in _pending(write, place, id, serde)],
    )


def _pending(write: StoredWrite, place: Place, checkpoint: str, serde: Serializer) -> list[tuple[str, str, Any]]:
    """The pending writes of a row: (task, channel, value)."""
    value = written(write, place, checkpoint, serde)
    if write.channel != PACKED:
        return [(write.task, write.channel, value)]
    if type(value) is not list or not all(type(channel) is str for channel in value[::2]):
        raise UnreadableError(cells.write_title(write.channel), "what is stored there are no writes.")
    return [(write.task, channel, each) for channel, each in zip(value[::2], value[1::2], strict=False)]


def written(write: StoredWrite, place: Place, checkpoint: str, serde: Serializer) -> Any:
    """The value of a pending write."""
    cell = cells.write(place, checkpoint, write.task, write.slot, write.channel)
    return serde.loads(write.payload, cell, cells.write_title(write.channel))


# ---------------------------------------------------------------- super-steps inside a function


def committed_steps(memory: RunMemory) -> int:
    """How many super-steps inside the run have committed: numbers 0 up to one less than this."""
    return max([memory.row.committed, *(row.committed for row in memory.calls if not row.flags & INTENT)])


def with_calls(start: CheckpointTuple, memory: RunMemory, serde: Serializer) -> CheckpointTuple:
    """The checkpoint that began a run, with all that the run's calls left as pending writes."""
    place = address(start.config).place
    writes = [
        *(start.pending_writes or ()),
        *_call_writes(place, memory.row.id, _standing(memory.calls), memory.questions, serde),
    ]
    return start._replace(pending_writes=writes)


def call_checkpoints(
    start: CheckpointTuple, memory: RunMemory, serde: Serializer, only: int | None = None
) -> Iterator[CheckpointTuple]:
    """The checkpoints of a run's committed super-steps, newest first; or one of them, if there is such.

    Args:
        start: the checkpoint that began the run.
        memory: the run.
        only: number of the one super-step wanted.
    """
    run, committed = memory.row.id, committed_steps(memory)
    calls: dict[int, list[CallRow]] = {}
    for row in _standing(memory.calls):
        calls.setdefault(min(row.step, committed), []).append(row)
    questions: dict[int, list[QuestionRow]] = {}
    for question in memory.questions:
        questions.setdefault(min(question.step, committed), []).append(question)
    place = address(start.config).place
    for k in range(committed - 1, -1, -1) if only is None else [only] if 0 <= only < committed else []:
        mine, asked = calls.get(k, []), [q for q in questions.get(k, []) if q.answered is not None]
        moments = [*(row.ended for row in mine), *(q.answered for q in asked if q.answered is not None)]
        metadata: CheckpointMetadata = {
            **start.metadata,
            "source": "call",
            "step": start.metadata.get("step", -1) + 1,
            "call_step": k,
            "calls": [*(task_id(run, row.key) for row in mine), *(q.id for q in asked)],
        }
        checkpoint: Checkpoint = {**start.checkpoint, "id": call_checkpoint_id(run, k)}
        if moments:
            checkpoint["ts"] = datetime.fromtimestamp(max(moments), UTC).isoformat()
        yield CheckpointTuple(
            config_of(place, checkpoint["id"]),
            checkpoint,
            metadata,
            config_of(place, call_checkpoint_id(run, k - 1) if k else run),
            list(_call_writes(place, run, calls.get(k + 1, ()), questions.get(k + 1, ()), serde)),
        )


def _standing(calls: Sequence[CallRow]) -> list[CallRow]:
    """Without the failures that were forgotten and whose call has been tried again since."""
    newest = {row.key: row.seq for row in calls}
    return [
        row
        for row in calls
        if not row.flags & (RETRIED | INTENT) and (not row.flags & FORGOTTEN or newest[row.key] == row.seq)
    ]


def _call_writes(
    place: Place, run: str, calls: Iterable[CallRow], questions: Iterable[QuestionRow], serde: Serializer
) -> Iterator[tuple[str, str, Any]]:
    for row in calls:
        yield task_id(run, row.key), ERROR if row.flags & FAILED else RESULT, outcome(row, place, run, serde)
    for question in questions:
        task = task_id(run, question.caller)
        if question.answer is not None:
            yield task, RESUME, [answer(question, place.thread, serde)]
        elif question.state == "open":
            yield task, INTERRUPT, [interrupt_of(question, place.thread, serde)]


def outcome(row: CallRow, place: Place, run: str, serde: Serializer) -> Any:
    """What a call gave, or the exception that it raised."""
    return serde.loads(row.payload, cells.call(place, run, row.key), cells.call_title(row.name, row.flags))


def answer(row: QuestionRow, thread: str, serde: Serializer) -> Any:
    """The answer to a question that has one."""
    assert row.answer is not None
    return serde.loads(row.answer, cells.answer(thread, row.id), cells.answer_title(row.id))


def interrupt_of(row: QuestionRow, thread: str, serde: Serializer) -> Interrupt:
    """A question as people see it."""
    shown = serde.loads(row.payload, cells.question(thread, row.id), cells.question_title(row.id))
    return Interrupt(shown, row.id, response_schema=schema_of(row))


def schema_of(row: QuestionRow) -> Any:
    """The JSON schema of an answer, None where any will do."""
    return None if row.schema is None else json_of(row.schema, cells.question_title(row.id))


def json_of(text: str, what: str) -> Any:
    """What a column of JSON says.

    Raises:
        UnreadableError: it is no JSON.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise UnreadableError(what, f"what is stored with it is no JSON: {error}.") from error


class Page(NamedTuple):
    """One stored checkpoint with all that a listing shows of it: the run it began, or None."""

    found: Unpacked
    values: Mapping[str, Rows]
    writes: Sequence[StoredWrite]
    run: RunMemory | None

    def shown(self, serde: Serializer) -> CheckpointTuple:
        stored = checkpoint_tuple(self.found, self.values, self.writes, serde)
        return stored if self.run is None else with_calls(stored, self.run, serde)

    def newest_first(self, serde: Serializer) -> Iterator[CheckpointTuple]:
        """The super-steps inside the run it began, then the checkpoint itself."""
        if self.run is not None:
            stored = checkpoint_tuple(self.found, self.values, (), serde)
            yield from call_checkpoints(stored, self.run, serde)
        yield self.shown(serde)

    def newest(self, serde: Serializer) -> CheckpointTuple:
        return next(self.newest_first(serde))

    def inside(self, checkpoint: str, serde: Serializer) -> CheckpointTuple | None:
        """The super-step of that id inside the run it began, None if that has not committed."""
        named = split_call_checkpoint_id(checkpoint)
        if self.run is None or named is None:
            return None
        stored = checkpoint_tuple(self.found, self.values, (), serde)
        found = next(call_checkpoints(stored, self.run, serde, named[1]), None)
        return found if found is not None and found.checkpoint["id"] == checkpoint else None


def matches(found: CheckpointTuple, filter: Mapping[str, Any] | None) -> bool:
    """Whether the metadata holds all that `filter` names."""
    metadata: Mapping[str, Any] = found.metadata
    return not filter or all(name in metadata and metadata[name] == value for name, value in filter.items())


# ---------------------------------------------------------------- what may be stored


def numbered(writes: Sequence[tuple[str, Any]]) -> list[tuple[int, str, Any]]:
    """Writes with their slots: (slot, channel, value)."""
    return [(SLOTS.get(channel, at), channel, value) for at, (channel, value) in enumerate(writes)]


def check_answers(
    thread: str, answers: Mapping[str, Any], found: Mapping[str, QuestionRow], open_ids: Sequence[str]
) -> None:
    """Raise why these answers cannot be recorded, if so.

    Raises:
        UnknownQuestionError, AlreadyAnsweredError, AnswerRefusedError: see `Saver.answer`.
    """
    unknown = [id for id in answers if id not in found]
    if unknown:
        raise UnknownQuestionError(thread, unknown, open_ids)
    for id in answers:
        if found[id].state != "open":
            raise AlreadyAnsweredError(thread, id, found[id].by, found[id].state)
    for id, answer in answers.items():
        schema = schema_of(found[id])
        why = None if schema is None else check(answer, schema)
        if why is not None:
            raise AnswerRefusedError(id, why)
