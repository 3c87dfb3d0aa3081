"""A fork: a new run of a thread that shares its past up to some checkpoint, with results or answers put in the place of
recorded ones where somebody wants to know what would have been.

A replaced result takes with it what was computed from it. A call that took its value as an argument has another key in
the fork by itself; one that took the call's future has the same key, and its row says so (`CallRow.needs`): it drops.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowfn import schema
from flowfn.checkpoint import cells
from flowfn.checkpoint.records import (
    DEPENDS,
    FORGOTTEN,
    INTENT,
    AbandonQuestions,
    CallRow,
    CopyRun,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    Save,
    SaveCall,
    SaveCheckpoint,
    SaveQuestion,
    SaveRun,
    call_checkpoint_id,
    question_id,
    short_title,
    split_call_checkpoint_id,
    task_id,
)
from flowfn.checkpoint.rows import schema_of
from flowfn.errors import (
    AnswerRefusedError,
    UnknownCallError,
    UnknownCheckpointError,
    UnknownQuestionError,
    UnstorableError,
    UnstorableResultError,
)
from flowfn.ids import new_id
from flowfn.pregel.update import BRANCH, new_checkpoint
from flowfn.serde.base import Serializer

if TYPE_CHECKING:
    from flowfn.checkpoint.records import CheckpointMetadata
    from flowfn.pregel.program import Pregel


@dataclass(frozen=True, slots=True)
class Past:
    """Where a fork leaves its thread.

    Attributes:
        at: the checkpoint, stored or of a super-step inside a function.
        last: number of the last super-step that had been: inside the function, -1 for none, or of the graph.
        memory: the run that it belongs to.
        is_over: whether nothing was due there.
        is_function: whether the super-steps are those inside a function, whose calls the fork makes again.
        step: number of that checkpoint's super-step.
    """

    place: Place
    at: str
    last: int
    memory: Memory
    is_over: bool
    is_function: bool = True

    @property
    def step(self) -> int:
        assert self.memory.checkpoint is not None
        return self.memory.checkpoint.metadata.get("step", -1)

    @property
    def calls(self) -> list[CallRow]:
        """The outcomes that the fork shares."""
        return [row for row in self.memory.calls if row.step <= self.shared and not row.flags & (FORGOTTEN | INTENT)]

    @property
    def shared(self) -> int:
        """The last super-step whose calls the fork shares, -1 for none: nodes that have run are not asked again."""
        return self.last if self.is_function else -1

    @property
    def answerable(self) -> list[QuestionRow]:
        """The questions that were answered by then, and those that stood next."""
        later = [question.step for question in self.memory.questions if question.step > self.last]
        following = min(later, default=-1)
        return [q for q in self.memory.questions if q.step <= self.shared or q.step == following]

    @property
    def open_then(self) -> list[QuestionRow]:
        """The questions that stood next."""
        return [question for question in self.answerable if question.step > self.last]


def stored_part(checkpoint: str) -> str:
    """The stored checkpoint that an id belongs to: itself, or the one that began the run of a super-step inside it."""
    inside = split_call_checkpoint_id(checkpoint)
    return inside[0] if inside else checkpoint


def newest_checkpoint(memory: Memory) -> str | None:
    """Id of the thread's newest checkpoint, super-steps inside functions counted."""
    if memory.checkpoint is None:
        return None
    id = memory.checkpoint.checkpoint["id"]
    committed = committed_steps(memory)
    if memory.run is None or id != memory.run.id or not committed:
        return id
    return call_checkpoint_id(id, committed - 1)


def next_fence(memory: Memory) -> int:
    """The number of the lease by which a thread is taken that was loaded so."""
    return 1 + (memory.thread.fence if memory.thread is not None else 0)


def branched(memory: Memory, newest: Memory) -> Memory:
    """A past state from which a branch grows that shares no version with the newest one, see `BRANCH`."""
    now, then = newest.checkpoint, memory.checkpoint
    if now is not None and then is not None and now.config != then.config:
        highest = max(now.checkpoint["channel_versions"].values(), default=0)
        then.checkpoint["channel_versions"][BRANCH] = highest
    return memory


def committed_steps(memory: Memory) -> int:
    """How many super-steps inside the function have committed."""
    known = [row.committed for row in memory.calls if not row.flags & INTENT]
    return max([memory.run.committed if memory.run else 0, *known])


def past(program: Pregel, place: Place, at: str, memory: Memory, is_over: bool, is_now: bool = False) -> Past:
    """The past up to a checkpoint.

    Args:
        is_now: whether it goes on to what happened since in the super-steps that have not committed.
    Raises:
        UnknownCheckpointError: its super-step has not committed.
    """
    if not program.is_function:
        assert memory.checkpoint is not None
        return Past(place, at, memory.checkpoint.metadata.get("step", -1), memory, is_over, is_function=False)
    _, last = split_call_checkpoint_id(at) or (at, -1)
    if last >= committed_steps(memory):
        raise UnknownCheckpointError(place.thread, at)
    if is_now:
        last = max([row.step for row in memory.calls] + [row.step for row in memory.questions], default=last)
    return Past(place, at, last, memory, is_over)


def fork_saves(
    program: Pregel,
    serde: Serializer,
    past: Past,
    metadata: Mapping[str, Any],
    results: Mapping[str, Any],
    answers: Mapping[str, Any],
) -> list[Save]:
    """The saves that make the new run.

    Args:
        metadata: of the checkpoint that begins it, but for the run's id.
        results: task id, or name where it is the only one, → value in the place of the recorded outcome.
        answers: question id → answer in the place of the recorded one.
    Raises:
        UnknownCallError: a result for a call that is not in that past, or whose name is not the only one.
        UnknownQuestionError: an answer to a question that is not.
        AnswerRefusedError: the question's schema refuses the answer.
        UnstorableResultError: a value that cannot be stored.
    """
    id, place, memory = new_id(), past.place, past.memory
    replaced = _named_calls(place.thread, past, results)
    asked = {question.id: question for question in past.answerable}
    unknown = [name for name in answers if name not in asked]
    if unknown:
        raise UnknownQuestionError(place.thread, unknown, list(asked))
    checkpoint = memory.checkpoint
    assert checkpoint is not None
    found = checkpoint.checkpoint
    new = new_checkpoint(id, found["channel_versions"], found["versions_seen"], ())
    old = memory.run or RunRow(past.at, program.name, 1, time.time(), "running")
    row = old._replace(
        id=id,
        attempt=int(past.is_over),
        status="finished" if past.is_over else "paused",
        started=time.time(),
        committed=min(past.shared + 1, committed_steps(memory)),
        error=None,
    )
    marks: CheckpointMetadata = {**metadata, "source": "fork", "run": id}  # type: ignore[typeddict-item]
    saves: list[Save] = [AbandonQuestions(place)]
    saves += [SaveCheckpoint(place, new, marks, past.at, {}), SaveRun(place, row)]
    if memory.run is not None:
        dropped = _given_them(past.calls, {call.key for call in replaced})
        without = [asked[name].base for name in answers]
        saves.append(CopyRun(place, old.id, id, past.shared, sorted(dropped), without))
    for call, value in replaced.items():
        saves.append(SaveCall(place, id, _result(call, value, serde, cells.call(place, id, call.key))))
    for name, answer in answers.items():
        question = _answer(asked[name], answer, id, place.thread, serde)
        # The checkpoint that begins the fork of a graph has a number of its own.
        saves.append(SaveQuestion(place, question._replace(step=question.step + (not past.is_function))))
    return saves


def _named_calls(thread: str, past: Past, results: Mapping[str, Any]) -> dict[CallRow, Any]:
    """The recorded calls that results are given for."""
    run = past.memory.run.id if past.memory.run else ""
    calls = past.calls
    by_id = {task_id(run, row.key): row for row in calls}
    chosen: dict[CallRow, Any] = {}
    for name, value in results.items():
        fits = [by_id[name]] if name in by_id else [row for row in calls if name in (row.name, short_title(row.name))]
        if len(fits) != 1:
            known = [(id, short_title(row.name), row.arguments) for id, row in by_id.items()]
            raise UnknownCallError(thread, name, len(fits), known)
        chosen[fits[0]] = value
    return chosen


def _given_them(calls: Sequence[CallRow], keys: Collection[bytes]) -> set[bytes]:
    """These keys, and those of all calls that were given the future of one of them, or have made it."""
    dropped, callers = set(keys), set()
    for row in calls:  # a call is stored after those it was given or has made
        needs = {row.needs[at : at + 16] for at in range(0, len(row.needs), 16)}
        if row.key in dropped or row.key in callers or not dropped.isdisjoint(needs):
            dropped.add(row.key)
            callers.add(row.caller)
    return dropped


def _result(row: CallRow, value: Any, serde: Serializer, cell: tuple[str | bytes | int, ...]) -> CallRow:
    what = f"The result for task `{short_title(row.name)}`"
    now = time.time()
    # It depends on a person, so nothing that is computed from it may go into a cache.
    return row._replace(
        flags=DEPENDS,
        started=now,
        ended=now,
        preview=serde.preview(value),
        payload=_encoded(serde, value, what, cell),
    )


def _answer(row: QuestionRow, answer: Any, run: str, thread: str, serde: Serializer) -> QuestionRow:
    """A question answered anew, as a row of the new run."""
    why = schema.check(answer, schema_of(row)) if row.schema else None
    if why is not None:
        raise AnswerRefusedError(row.id, why)
    id = question_id(run, row.base)
    what = f"The answer to question `{row.id}`"
    return row._replace(
        id=id,
        run=run,
        payload=serde.signed_anew(row.payload, cells.question(thread, row.id), cells.question(thread, id)),
        state="answered",
        answer=_encoded(serde, answer, what, cells.answer(thread, id)),
        answered=time.time(),
        by=None,
        note=None,
        used=0,
    )


def _encoded(serde: Serializer, value: Any, what: str, cell: tuple[str | bytes | int, ...]) -> bytes:
    try:
        return serde.dumps(value, what, cell)
    except UnstorableError as error:
        raise UnstorableResultError(what, error) from None
