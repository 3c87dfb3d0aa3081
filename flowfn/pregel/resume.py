"""Going on: answers to the newest questions, and forks from a thread's past."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowfn.checkpoint.records import (
    Memory,
    QuestionRow,
    TakeLease,
)
from flowfn.errors import (
    AmbiguousAnswerError,
    NothingToResumeError,
    UnknownQuestionError,
)
from flowfn.identity import Walk, digest
from flowfn.pregel.effects import Load, OneQuestion, OpenQuestions, RecordAnswers, Store
from flowfn.pregel.fork import branched, fork_saves, next_fence, past, stored_part
from flowfn.types import MISSING, Command

if TYPE_CHECKING:
    from flowfn.pregel.effects import Effect
    from flowfn.pregel.loop import Loop, Part

QUESTION_ID = re.compile(r"q_[0-9a-f]{32}\Z")


def commanded(loop: Loop, memory: Memory, command: Command[Any]) -> Part:
    """Go on as a command says: with its answers, after its writes to the state and to where it goes."""
    writes = loop.program.command_writes(command)
    if command.resume is not MISSING or (command.update is None and not command.goto):
        memory = yield from _answered(loop, memory, command)
    if memory.checkpoint is None:
        yield from loop._begin_run(command, memory)
    else:
        yield from loop._go_on(memory, writes)


def _answered(loop: Loop, memory: Memory, command: Command[Any]) -> Generator[Effect, Any, Memory]:
    """Record the command's answers; gives the memory with them."""
    thread = loop.run.place.thread
    rows: Sequence[tuple[str, QuestionRow]] = yield OpenQuestions(thread)
    answers = answers_by_id(thread, command.resume, [row for _, row in rows], bool(memory.questions))
    yield RecordAnswers(thread, answers)
    stored: dict[str, QuestionRow] = {}
    for id in answers:
        stored[id] = yield OneQuestion(thread, id)
    loop.run.open_before = [stored.get(row.id, row) for _, row in rows]
    return memory._replace(questions=[stored.get(question.id, question) for question in memory.questions])


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


def from_the_past(loop: Loop, at: str, newest: Memory, input: Any) -> Part:
    """Begin at a checkpoint that is not the newest: with an input a new run, else a fork of the run it belongs to."""
    place = loop.run.place
    memory: Memory = branched((yield Load(place, stored_part(at))), newest)
    loop.restore(memory)
    loop.run.id = memory.run.id if memory.run is not None else ""
    there = past(loop.program, place, at, memory, is_over=not loop._plan())
    if input is not MISSING and not isinstance(input, Command):
        yield from loop._begin_run(input, memory)
        return
    answers: Mapping[str, Any] = {}
    writes = loop.program.command_writes(input) if isinstance(input, Command) else []
    if isinstance(input, Command) and (input.resume is not MISSING or (input.update is None and not input.goto)):
        if memory.run is None or there.is_over:
            raise NothingToResumeError(place.thread)
        answers = answers_by_id(place.thread, input.resume, there.open_then)
        unknown = [id for id in answers if id not in {question.id for question in there.open_then}]
        if unknown:
            raise UnknownQuestionError(place.thread, unknown, [question.id for question in there.open_then])
    loop.step += 1
    loop.left -= 1
    free = TakeLease(place._replace(fence=next_fence(newest)), loop.program.name, None)
    yield Store([free, *fork_saves(loop.program, loop.run.serde, there, loop.marks(), {}, answers)])
    yield from loop._go_on((yield Load(place)), writes)


def input_digest(input: Any, secret: bytes) -> bytes:
    """By which `run` knows an input again."""
    return digest(Walk().packed(input), secret=secret)
