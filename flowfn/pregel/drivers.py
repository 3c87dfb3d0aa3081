"""Who does what a loop asks for: `drive` blocks, `adrive` awaits. The same cases, in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from threading import get_ident
from typing import Any

from flowfn.errors import FlowStop, Paused
from flowfn.executors import threads
from flowfn.pregel.attempt import attempt
from flowfn.pregel.calls import CRASHED, Call
from flowfn.pregel.effects import ALL, Effect, Execute, Load, OneQuestion, OpenQuestions, RecordAnswers, Store
from flowfn.pregel.loop import Loop, Outcome
from flowfn.pregel.run import Run
from flowfn.pregel.signals import Watched

GRACE = 1.0
"""How many seconds what runs elsewhere is waited for when a KeyboardInterrupt has ended what ran here."""

CANCELLED = "cancelled"
"""Why a run is paused whose coroutine was cancelled."""

DEEPEST = 50
"""How many flows may be nested on one stack; the next one gets a worker of its own."""


def drive(loop: Loop, input: Any, depth: int = 0) -> Outcome:
    """Run a loop in this thread until it ends.

    Raises:
        FlowPaused: a signal has paused the run.
    """
    with Watched(loop.run):
        return _drive(loop, input, depth)


def _drive(loop: Loop, input: Any, depth: int) -> Outcome:
    steps, answer, error = loop.super_steps(input), None, None
    try:
        while True:
            effect = steps.send(answer) if error is None else steps.throw(error)
            answer = error = None
            try:
                answer = perform(loop.run, effect, depth)
            except Exception as failure:
                error = failure
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except BaseException as reason:
        _abandon(loop.run, reason)
        raise


def _abandon(run: Run, reason: BaseException) -> None:
    """Whoever drove the run is gone: nothing more starts, and after an interrupt nobody waits for what runs."""
    run.pause("its driver has ended")
    if not isinstance(reason, Exception | FlowStop | asyncio.CancelledError):
        run.crash(reason)
        run.give_up(get_ident(), everything=True)


def perform(run: Run, effect: Effect, depth: int = 0) -> Any:
    """Do what an effect says, and wait for it."""
    if type(effect) is Execute:
        return _execute(run, effect.calls, depth)
    saver = run.saver
    assert saver is not None
    if type(effect) is Store:
        return saver.save(effect.saves)
    if type(effect) is Load:
        return saver.load(effect.place, effect.checkpoint)
    if type(effect) is OpenQuestions:
        return saver.questions(effect.thread, limit=ALL)
    if type(effect) is OneQuestion:
        return saver.question(effect.thread, effect.id)
    assert type(effect) is RecordAnswers
    return saver.answer(effect.thread, effect.answers)


def _execute(run: Run, calls: Sequence[Call], depth: int) -> None:
    """Run the nodes: the first plain function here, the others wherever there is a worker; none if the run has to stop.

    An interrupt of this thread ends the run: what this stack had claimed at once, what runs elsewhere after a while.
    """
    if run.stop is not None:
        return
    here = next(filter(_may_run_here, calls), None)
    for call in calls:
        if call is not here:
            _put(run, call)
    try:
        if here is not None:
            _attempt_here(run, here, depth)
        run.crew.work_off(run)
    except Exception:
        raise
    except BaseException as interrupt:  # it may have come anywhere on this stack
        run.crash(interrupt)
        run.crew.work_off(run, grace=GRACE)
        run.give_up(get_ident(), everything=True)
        _end_by(interrupt, here or calls[0])
    if run.crashed:
        _end_by_unseen(run, calls)


def _may_run_here(call: Call) -> bool:
    return not call.callee.is_async and call.callee.timeout is None


def _end_by(interrupt: BaseException | None, node: Call) -> None:
    """Have the run end as a node of it does that was interrupted."""
    node.outcome, node.error = CRASHED, interrupt


def _end_by_unseen(run: Run, calls: Sequence[Call]) -> None:
    """An interrupt that has ended a task, at whose result nobody looked, reaches whoever runs the flow all the same."""
    unseen = next((call for call in run.crashed if not call.looked), None)
    if unseen is not None:
        _end_by(unseen.error, calls[0])


def _attempt_here(run: Run, node: Call, depth: int) -> None:
    run.crew.claim_node(node)
    attempt(node, depth=depth + 1, is_helper=False)
    if not run.is_body(node):
        run.crew.leave_place()
    if node.outcome == CRASHED:
        assert node.error is not None
        raise node.error


def _put(run: Run, call: Call) -> None:
    if run.is_body(call):
        run.crew.start_body(call)
    else:
        with run.crew.lock:
            then = run.crew.put(call)
        if then is not None:
            then()


async def adrive(loop: Loop, input: Any) -> Outcome:
    """The awaited twin of `drive`."""
    with Watched(loop.run):
        return await _adrive(loop, input)


async def _adrive(loop: Loop, input: Any) -> Outcome:
    steps, answer, error = loop.super_steps(input), None, None
    try:
        while True:
            effect = steps.send(answer) if error is None else steps.throw(error)
            answer = error = None
            try:
                answer = await aperform(loop.run, effect)
            except Exception as failure:
                error = failure
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except BaseException as reason:
        _abandon(loop.run, reason)
        if isinstance(reason, Paused | KeyboardInterrupt) and _is_cancelled(loop.run):
            raise asyncio.CancelledError from None
        raise


def _is_cancelled(run: Run) -> bool:
    return isinstance(run.stop, Paused) and run.stop.reason == CANCELLED


async def aperform(run: Run, effect: Effect) -> Any:
    """Do what an effect says, and await it."""
    if type(effect) is Execute:
        return await _aexecute(run, effect.calls)
    saver = run.saver
    assert saver is not None
    if type(effect) is Store:
        return None if saver.save_now(effect.saves) else await saver.asave(effect.saves)
    if type(effect) is Load:
        return await saver.aload(effect.place, effect.checkpoint)
    if type(effect) is OpenQuestions:
        return await saver.aquestions(effect.thread, limit=ALL)
    if type(effect) is OneQuestion:
        return await saver.aquestion(effect.thread, effect.id)
    assert type(effect) is RecordAnswers
    return await saver.aanswer(effect.thread, effect.answers)


async def _aexecute(run: Run, calls: Sequence[Call]) -> None:
    """Run the nodes: coroutines on this loop, plain functions on workers.

    Cancelled, it pauses the run and waits for what runs in threads, so that the loop can note how it ended.
    """
    if run.stop is not None:
        return
    for call in calls:
        _put(run, call)
    run.crew.hire()
    try:
        await run.crew.awork_off(run)
    except asyncio.CancelledError:
        if isinstance(run.stop, Paused):
            run.stop = Paused(CANCELLED)  # whatever paused it before: who cancels waits for a cancellation
        run.pause(CANCELLED)
        await _work_off_the_rest(run)
    _end_by_unseen(run, calls)


async def _work_off_the_rest(run: Run) -> None:
    """Wait for what still runs; when the event loop was interrupted, it may have lost what would report some of it."""
    waits = asyncio.ensure_future(run.crew.awork_off(run))
    try:
        while not (await asyncio.wait([waits], timeout=GRACE))[0]:
            run.end_lost()
    finally:
        waits.cancel()


def drive_nested(loop: Loop, input: Any, depth: int) -> Outcome:
    """Drive a flow that is called inside another one's frame; when the stack is deep, on a fresh one."""
    if depth < DEEPEST:
        return drive(loop, input, depth)
    context = copy_context()
    return threads.on_worker(lambda: context.run(drive, loop, input))
