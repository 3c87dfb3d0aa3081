"""An attempt that runs on an executor: its errand goes out, and what comes back ends the frame as on any worker.

Whoever runs the attempt waits here, so places, time-outs, retries and the cache are those of every attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowfn.checkpoint import cells
from flowfn.executors import payload
from flowfn.executors.base import Sent, Threads
from flowfn.executors.payload import Answer, Errand, Outcome
from flowfn.pregel import questions, trying
from flowfn.serde.base import Serializer

if TYPE_CHECKING:
    from flowfn.pregel.calls import Call
    from flowfn.pregel.frame import CallFrame

PLAIN = Serializer()
"""Reads what comes back, which this process trusts as its own code."""


class Elsewhere:
    """An attempt under way on an executor."""

    def __init__(self, frame: CallFrame, work: bytes) -> None:
        of = frame.of
        executor = of.callee.executor
        assert executor is not None
        assert not isinstance(executor, Threads)
        self.reply: Future[Outcome] = Future()
        self._sent = Sent(
            executor,
            _errand(frame, work).packed(),
            of.name,
            self._arrived,
            begun=lambda: trying.watch(frame) if of.callee.timeout is not None else None,
            signed=lambda: frame.show_progress("heartbeat"),
            may_repeat=of.callee.effect is None,
        )

    def _arrived(self, outcome: Outcome) -> None:
        with suppress(InvalidStateError):  # it was ended meanwhile
            self.reply.set_result(outcome)

    def end(self) -> None:
        """End the attempt; whoever waits for it is cancelled."""
        self._sent.kill()
        with suppress(InvalidStateError):  # its outcome is here already
            self.reply.set_exception(asyncio.CancelledError())


def call(frame: CallFrame, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the frame's function gives elsewhere; raises what it raises there."""
    work = _work(frame.of, args, kwargs)
    while True:
        frame.of.elsewhere = Elsewhere(frame, work)
        outcome = frame.of.elsewhere.reply.result()
        if _is_over(frame, outcome):
            return _value(frame, outcome)


async def acall(frame: CallFrame, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The awaited twin of `call`."""
    work = _work(frame.of, args, kwargs)
    while True:
        going = frame.of.elsewhere = Elsewhere(frame, work)
        try:
            outcome = await asyncio.shield(asyncio.wrap_future(going.reply))
        except asyncio.CancelledError:
            going.end()
            raise
        if _is_over(frame, outcome):
            return _value(frame, outcome)


def end(call: Call) -> bool:
    """End an attempt that runs elsewhere; False when none does."""
    if call.elsewhere is None:
        return False
    call.elsewhere.end()
    return True


# ---------------------------------------------------------------- there


def _work(call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    return call.work or payload.work(call.name, call.callee.fn, args, kwargs)


def _errand(frame: CallFrame, work: bytes) -> Errand:
    run, of = frame.run, frame.of
    callee = of.callee
    return Errand(
        info=frame.runtime.execution_info,
        task=of.name,
        path=frame.path,
        work=work,
        around=run.surroundings,
        is_async=callee.is_async,
        injected={n: kind for n, kind in callee.injected.items() if n not in of.kwargs and not frame.passes(n)},
        code=payload.code_of(callee.fn),
        allow_pickle=getattr(run.serde, "allow_pickle", True),
        may_ask=run.saver is not None,
        has_previous=frame.has_previous,
        secret=run.secret,
        answers=_answers(frame),
    )


def _answers(frame: CallFrame) -> dict[bytes, Answer]:
    """The answers there are to questions of this task."""
    run, known = frame.run, {}
    with run.crew.lock:
        rows = [row for row in run.journal.questions.values() if row.caller == frame.path and row.answer is not None]
    for row in rows:
        assert row.answer is not None
        cell = cells.answer(run.place.thread, row.id)
        value = run.serde.loads(row.answer, cell, f"The answer to question `{row.id}`")
        known[row.base] = Answer(row.id, PLAIN.dumps(value), row.by, row.note)
    return known


# ---------------------------------------------------------------- and back


def _is_over(frame: CallFrame, outcome: Outcome) -> bool:
    """Whether it has an outcome; False when all it asked was answered meanwhile, so that it can be sent again.

    Raises:
        Asked: a question has no answer.
    """
    run = frame.run
    for base in outcome.used:
        questions.use(run, frame, base)
    for base, value, key, schema in outcome.questions:
        questions.ask(frame, base, PLAIN.loads(value), key, None, schema)
    return outcome.kind != "asked"


def _value(frame: CallFrame, outcome: Outcome) -> Any:
    run, of = frame.run, frame.of
    of.started = outcome.started or of.started
    if outcome.kind == "failure":
        raise PLAIN.loads(outcome.blob)
    if run.saver is not None:
        of.payload = run.serde.trusted(outcome.blob, of.cell)
    return PLAIN.loads(outcome.blob)
