"""Tasks with an effect outside, such as a payment: what is done before one begins, so that none happens twice unasked.

That it begins is stored first, as an **intent**. An intent without an outcome means that nobody knows whether the
effect took place: the process was killed, or the attempt was left behind. Such a call is in doubt, and is not silently
run again: the task's `reconcile` is asked, which may look the effect up, and else a person.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from flowfn.checkpoint.records import INTENT, CallRow, Save, SaveCall
from flowfn.errors import EffectRefusedError, ReconcileError
from flowfn.pregel import changed, outcomes
from flowfn.pregel.lagging import LaggingSaver
from flowfn.types import DID_NOT_HAPPEN, Happened

if TYPE_CHECKING:
    from flowfn.pregel.frame import CallFrame

logger = logging.getLogger("flowfn")

ANSWERS = {
    "anyOf": [
        {"const": "run"},
        {"type": "object", "properties": {"result": {}}, "required": ["result"], "additionalProperties": False},
    ]
}
"""To a question about a call in doubt: run it again, or the result that its effect had."""

Steps: TypeAlias = Generator[Callable[[], Any], Any, Happened[Any] | None]
"""Yields functions to be called, whose results may be awaitable."""


def found(frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Happened[Any] | None:
    """What the task's effect is known to have come to, or None: then that it begins is stored, and it may begin."""
    steps, answer = _steps(frame, args, kwargs), None
    while True:
        try:
            answer = steps.send(answer)()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def afound(frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Happened[Any] | None:
    """The awaited twin of `found`."""
    steps, answer = _steps(frame, args, kwargs), None
    while True:
        try:
            answer = steps.send(answer)()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if inspect.isawaitable(answer):
            answer = await answer


def _store(frame: CallFrame, save: Save) -> None:
    saver = frame.run.saver
    assert saver is not None
    saver.save([save])
    if isinstance(saver, LaggingSaver):
        saver.catch_up()


def _steps(frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
    call, run = frame.of, frame.run
    if run.saver is None:
        return None
    with run.crew.lock:
        intent = run.journal.intents.get(call.key)
        is_changed = call.is_changed or call.key in run.journal.refused
    call.is_unclear = True  # until this comes to its end, a failure says nothing about the effect
    if is_changed:
        _ask_about_change(frame)
    if intent is not None:
        known = yield from _resolved(frame, intent, args, kwargs)
        if known is not None:
            call.is_unclear = False
            return known
    with run.crew.lock:
        row = outcomes.row(call, run.journal)
        intent = row._replace(flags=INTENT, ended=row.started)
        run.journal.note_effect(intent)
    yield lambda: _store(frame, SaveCall(run.place, run.id, intent))
    call.is_unclear = call.is_changed = False
    return None


def _ask_about_change(frame: CallFrame) -> None:
    call = frame.of
    question = {
        "task": call.name,
        "arguments": call.arguments,
        "reason": "This call differs from what is on record, and its effect is outside. May it run?",
    }
    answer, _, _ = frame.ask(question, f"changed {call.attempt}", bool)  # who has refused once is asked anew
    if not answer:
        raise EffectRefusedError(call.name, call.arguments)


def _resolved(frame: CallFrame, intent: CallRow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
    """What became of a call in doubt; None if it is to run."""
    call, callee = frame.of, frame.of.callee
    said: Any = None
    if callee.reconcile is not None:
        reconcile = callee.reconcile
        said = yield lambda: reconcile(*args, **kwargs)
        if said is not None and said is not DID_NOT_HAPPEN and not isinstance(said, Happened):
            raise ReconcileError(call.name, said)
    if said is not None:
        logger.warning(
            "Task `%s` was begun before and nobody knew how it ended; `reconcile` says that its effect %s.",
            call.name,
            "took place" if isinstance(said, Happened) else "did not take place, so it runs",
            extra=changed.context(frame.run, call.name),
        )
        return said if isinstance(said, Happened) else None
    if callee.on_doubt == "rerun":
        return None
    question = {
        "task": call.name,
        "arguments": call.arguments,
        "reason": "It was begun, and nobody knows whether its effect took place. Answer with the result it had, as "
        '{"result": …}, or with "run" to have it run again.',
    }
    answer, _, _ = frame.ask(question, f"in doubt {intent.seq}", ANSWERS)  # one answer is for one attempt
    return None if answer == "run" else Happened(answer["result"])
