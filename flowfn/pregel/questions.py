"""Asking: from what is shown to the answer that was given to just that, or to a stop."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flowfn import schema
from flowfn.checkpoint import cells
from flowfn.checkpoint.records import DEPENDS, QuestionRow, Save, SaveQuestion, UseAnswer, question_id
from flowfn.checkpoint.rows import schema_of
from flowfn.errors import AnswerRefusedError, Asked, NoSaverError, SaveStopped
from flowfn.pregel import changed
from flowfn.pregel.plan import DueTask
from flowfn.types import Interrupt

if TYPE_CHECKING:
    from flowfn.pregel.frame import CallFrame
    from flowfn.pregel.run import Run


def ask(
    asking: CallFrame, base: bytes, value: Any, key: str | None, response_schema: Any, allowed: str | None
) -> tuple[Any, str | None, str | None]:
    """The answer to a question of this frame, who gave it, and their note; stops the frame when there is none.

    Args:
        base: names the question, see `QuestionRow`.
        allowed: the JSON schema of an answer, as text.
    """
    frame = asking
    while frame.run.saver is None and frame.run.parent is not None:
        frame = frame.run.parent  # nothing of a run is kept: its questions are those of the one around it
    run = frame.run
    if run.saver is None:
        raise NoSaverError("A question (`interrupt`)")
    with run.crew.lock:
        row = run.journal.questions.get(base)
    if row is None:
        row = _new(run, frame, base, value, key, allowed)
    elif row.state == "open":
        row = _look_again(run, row)
    if row.state != "answered":
        _stop_at(asking, frame, row, value)
    return _use(run, frame, row, response_schema), row.by, row.note


def _new(run: Run, frame: CallFrame, base: bytes, value: Any, key: str | None, allowed: str | None) -> QuestionRow:
    """A question that was never asked before, now stored."""
    id = question_id(run.id, base)
    row = QuestionRow(
        id=id,
        base=base,
        run=run.id,
        ns=run.place.ns,
        caller=frame.path,
        step=-1,
        key=key,
        payload=run.dumps(value, f"The question of `{frame.of.name}`", cells.question(run.place.thread, id)),
        preview=run.serde.preview(value, 200),
        schema=allowed,
        asked=time.time(),
    )
    changed.tell_question(run, row)
    steps = run.journal.steps
    with run.crew.lock:
        if run.is_body(frame.of):
            row = row._replace(step=steps.join())
            steps.is_sealed = True
        else:
            row = row._replace(step=frame.of.step)
            steps.begin(row.step)
    _store(run, frame, [SaveQuestion(run.place, row)])
    with run.crew.lock:
        run.journal.questions[base] = row
    return row


def _store(run: Run, frame: CallFrame, saves: Sequence[Save]) -> None:
    assert run.saver is not None
    try:
        run.saver.save(saves)
    except Exception as error:
        frame.stop = SaveStopped(f"the question of `{frame.of.name}`", error)
        run.outermost.halt(frame.stop)
        raise frame.stop from error


def _look_again(run: Run, row: QuestionRow) -> QuestionRow:
    """Whether somebody has answered since the run was loaded."""
    assert run.saver is not None
    now = run.saver.question(run.place.thread, row.id)
    if now is None or now.state == row.state:
        return row
    with run.crew.lock:
        run.journal.questions[row.base] = now
        run.journal.steps.settle(row.step)
    return now


def _use(run: Run, frame: CallFrame, row: QuestionRow, response_schema: Any) -> Any:
    """The answer as the flow wants it; that it was used is stored first."""
    assert run.saver is not None
    assert row.answer is not None
    cell = cells.answer(run.place.thread, row.id)
    answer = run.serde.loads(row.answer, cell, f"The answer to question `{row.id}`")
    if response_schema is not None:
        try:
            answer = schema.converted(answer, response_schema)
        except ValueError as error:
            raise AnswerRefusedError(row.id, str(error)) from None
    use(run, frame, row.base)
    return answer


def use(run: Run, frame: CallFrame, base: bytes) -> None:
    """The frame has used the answer to a question; that it did is stored."""
    frame.of.flags |= DEPENDS
    run.depends = True
    with run.crew.lock:
        row = run.journal.questions[base]
        if row.used:
            return
        run.journal.questions[base] = row._replace(used=run.attempt)
        run.journal.unused.pop(base, None)
    _store(run, frame, [UseAnswer(run.place, row.id, run.attempt)])


def _stop_at(asking: CallFrame, frame: CallFrame, row: QuestionRow, value: Any) -> NoReturn:
    run, question = frame.run, Interrupt(value, row.id, response_schema=schema_of(row))
    with run.crew.lock:
        frame.note_asked(question)
        if asking is not frame:
            asking.note_asked(question)
    if run.stage is not None:
        run.stage.asked(question, frame)
    asking.stop = Asked(row.id)
    raise asking.stop


def questions_of(
    due: Sequence[DueTask], finished: Collection[str], ns: str, questions: Sequence[QuestionRow]
) -> dict[str, list[QuestionRow]]:
    """The questions of each due task, by its id.

    Args:
        finished: ids of those that have their outcome.
        ns: the namespace of the program whose tasks they are.
    """
    asked: dict[str, list[QuestionRow]] = {task.id: [] for task in due}
    asking = {task.key: task for task in due}
    around: dict[str, DueTask] = {}
    for task in due:
        around[f"{task.name}:{task.id}"] = task
        around.setdefault(task.name, task)
    waiting = next((task for task in due if task.id not in finished), due[0] if due else None)
    depth = len(ns.split("|")) if ns else 0
    for question in questions:
        found: DueTask | None = None
        if question.ns == ns:
            found = asking.get(question.caller, waiting)
        elif is_inside(question.ns, ns):
            found = around.get(question.ns.split("|")[depth])
        if found is not None:
            asked[found.id].append(question)
    return asked


def last_asked(questions: Sequence[QuestionRow]) -> list[QuestionRow]:
    """Of each task that asked the last one."""
    return list({(row.ns, row.caller): row for row in questions}.values())


def is_inside(inner: str, ns: str) -> bool:
    """Whether a namespace is that of a program which runs in the program of `ns`.

    A program that remembers has a namespace of names alone, without the ids of the tasks around it.
    """
    parts, around = inner.split("|"), ns.split("|") if ns else []
    return (
        inner != ""
        and len(parts) > len(around)
        and all(part in (whole, whole.partition(":")[0]) for part, whole in zip(parts, around, strict=False))
    )
