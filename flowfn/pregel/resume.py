"""Going on: answers to the newest questions, and forks from a thread's past."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowfn import schema
from flowfn.checkpoint.records import (
    AbandonQuestions,
    CopyRun,
    Memory,
    QuestionRow,
    Save,
    SaveQuestion,
    SaveRun,
    call_checkpoint_id,
    question_id,
    split_call_checkpoint_id,
)
from flowfn.errors import (
    AmbiguousAnswerError,
    AnswerRefusedError,
    NothingToResumeError,
    UnknownCheckpointError,
    UnknownQuestionError,
)
from flowfn.identity import Walk, digest
from flowfn.ids import new_id
from flowfn.pregel.effects import Load, OpenQuestions, RecordAnswers, Store
from flowfn.serde.base import preview
from flowfn.types import MISSING, Command, Status

if TYPE_CHECKING:
    from flowfn.pregel.loop import Loop, Part

QUESTION_ID = re.compile(r"q_[0-9a-f]{32}\Z")


def answered(loop: Loop, memory: Memory, command: Command[Any]) -> Part:
    """Record the command's answers and go on."""
    thread = loop.run.place.thread
    rows: Sequence[tuple[str, QuestionRow]] = yield OpenQuestions(thread)
    answers = answers_by_id(thread, command.resume, [row for _, row in rows], bool(memory.questions))
    yield RecordAnswers(thread, answers)
    now: Memory = yield Load(loop.run.place)
    yield from loop._go_on(now)


def is_answer_map(answer: Any) -> bool:
    """Whether a resume value is a map from question ids rather than an answer itself."""
    return (
        isinstance(answer, Mapping)
        and bool(answer)
        and all(isinstance(key, str) and QUESTION_ID.match(key) for key in answer)
    )


def answers_by_id(thread: str, answer: Any, open_rows: Sequence[QuestionRow], has_asked: bool = True) -> dict[str, Any]:
    """What `Command(resume=…)` says, as question id → answer.

    Raises:
        NothingToResumeError: no question is open, and the answer names none.
        AmbiguousAnswerError: one bare answer, several open questions.
    """
    if is_answer_map(answer):
        if not open_rows and not has_asked:
            raise NothingToResumeError(thread)
        return dict(answer)
    if not open_rows or answer is MISSING:
        raise NothingToResumeError(thread)
    if len(open_rows) > 1:
        raise AmbiguousAnswerError(thread, [(row.id, row.preview) for row in open_rows])
    return {open_rows[0].id: answer}


def committed_steps(memory: Memory) -> int:
    """How many super-steps inside the function have committed."""
    return max([memory.run.committed if memory.run else 0, *[row.committed for row in memory.calls]])


def newest_checkpoint(memory: Memory) -> str | None:
    """Id of the thread's newest checkpoint, super-steps inside functions counted."""
    if memory.checkpoint is None:
        return None
    id = memory.checkpoint.checkpoint["id"]
    committed = committed_steps(memory)
    if memory.run is None or id != memory.run.id or not committed:
        return id
    return call_checkpoint_id(id, committed - 1)


def highest_version(newest: Memory) -> int:
    """The highest version of any channel of the thread: what a new branch counts on from."""
    found = newest.checkpoint
    return 0 if found is None else max(found.checkpoint["channel_versions"].values(), default=0)


def from_the_past(loop: Loop, at: str, newest: Memory, input: Any) -> Part:
    """Begin at a checkpoint that is not the newest: with an input a new run, else a fork of the run it belongs to."""
    place = loop.run.place
    base, last = split_call_checkpoint_id(at) or (at, -1)
    memory: Memory = yield Load(place, base)
    if last >= committed_steps(memory):
        raise UnknownCheckpointError(place.thread, at)
    loop.after = highest_version(newest)
    if input is not MISSING and not isinstance(input, Command):
        yield from loop._begin_run(input, memory)
        return
    loop.restore(memory)
    if isinstance(input, Command) and (memory.run is None or not loop._plan()):
        raise NothingToResumeError(place.thread)
    yield from _fork(loop, at, last, memory, newest, input)


def _fork(loop: Loop, at: str, last: int, memory: Memory, newest: Memory, input: Any) -> Part:
    run, id = loop.run, new_id()
    old = memory.run or loop.row._replace(id=at, started=time.time())
    is_over = not loop._plan()
    given = (
        _answers_then(run.place.thread, id, last, memory.questions, input, run.dumps) if input is not MISSING else []
    )
    kept = [
        q._replace(run=id, id=question_id(id, q.base))
        for q in memory.questions
        if q.step <= last and q.state == "answered"
    ]
    status: Status = "finished" if is_over else "running"
    loop.row = old._replace(id=id, attempt=1, status=status, started=time.time(), committed=last + 1, error=None)
    run.remember(
        id,
        Memory(None, None, loop.row, [c for c in memory.calls if c.step <= last], [*kept, *given]),
        1,
    )
    loop.checkpoint_id = at
    loop.step += 1
    saves: list[Save] = [AbandonQuestions(run.place)] if newest.questions else []
    saves += loop._checkpoint_saves(id, "fork", set())
    saves.append(SaveRun(run.place, loop.row))
    if memory.run is not None:
        saves.append(CopyRun(run.place, old.id, id, last))
    saves += [SaveQuestion(run.place, row) for row in given]
    yield Store(saves)
    loop._tell_state()


def _answers_then(
    thread: str, id: str, last: int, questions: Sequence[QuestionRow], command: Any, dumps: Any
) -> list[QuestionRow]:
    """The questions that were open at that point, answered anew, as rows of the run `id`."""
    later = [q for q in questions if q.step > last]
    first = min((q.step for q in later), default=-1)
    open_then = [q for q in later if q.step == first]
    answers = answers_by_id(thread, command.resume, open_then)
    by_id = {q.id: q for q in open_then}
    unknown = [name for name in answers if name not in by_id]
    if unknown:
        raise UnknownQuestionError(thread, unknown, list(by_id))
    rows = []
    for name, answer in answers.items():
        row = by_id[name]
        why = schema.check(answer, json.loads(row.schema)) if row.schema else None
        if why is not None:
            raise AnswerRefusedError(row.id, why)
        rows.append(
            row._replace(
                id=question_id(id, row.base),
                run=id,
                state="answered",
                answer=dumps(answer, f"The answer to question `{row.id}`"),
                answered=time.time(),
                by=None,
                note=None,
                used=0,
            )
        )
    return rows


def shown_input(input: Any) -> tuple[bytes, str]:
    """An input's digest, by which `run` knows it again, and a short text of it."""
    return digest(Walk().packed(input)), preview(input, 200)
