"""Who does what a loop asks for: `drive` blocks, `adrive` awaits. The same cases, in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any

from flowfn.errors import Paused
from flowfn.executors import threads
from flowfn.pregel.attempt import attempt
from flowfn.pregel.calls import CRASHED, Call
from flowfn.pregel.effects import ALL, Effect, Execute, Load, OneQuestion, OpenQuestions, RecordAnswers, Store
from flowfn.pregel.loop import Loop, Outcome
from flowfn.pregel.run import Run

GRACE = 1.0
"""How many seconds what runs is waited for after a Ctrl-C."""

CANCELLED = "cancelled"
"""Why a run is paused whose coroutine was cancelled."""

DEEPEST = 50
"""How many flows may be nested on one stack; the next one gets a worker of its own."""


def drive(loop: Loop, input: Any, depth: int = 0) -> Outcome:
    """Run a loop in this thread until it ends."""
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
    except BaseException:
        loop.run.abandon()
        raise


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
    """Run the nodes: the first plain function here, the others wherever there is a worker."""
    here = next((call for call in calls if not call.callee.is_async), None)
    for call in calls:
        if call is not here:
            _put(run, call)
    if here is not None:
        run.crew.claim_node(here)
        attempt(here, depth=depth + 1, is_helper=False)
        if not run.is_body(here):
            run.crew.leave_place()
        if here.outcome == CRASHED:
            # A Ctrl-C may have come anywhere on this stack, also where a call was about to be settled.
            run.pause("interrupted")
            run.crew.work_off(run, grace=GRACE)
            return
    run.crew.work_off(run)


def _put(run: Run, call: Call) -> None:
    if run.is_body(call):
        run.crew.start_body(call)
    else:
        with run.crew.lock:
            then = run.crew.put(call)
        if then is not None:
            then()


async def adrive(loop: Loop, input: Any) -> Outcome:
    """Run a loop from this coroutine until it ends."""
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
    except Paused as paused:
        if paused.reason == CANCELLED:
            raise asyncio.CancelledError from None
        raise
    except BaseException:
        loop.run.abandon()
        raise


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
    for call in calls:
        _put(run, call)
    run.crew.hire()
    try:
        await run.crew.awork_off(run)
    except asyncio.CancelledError:
        run.pause(CANCELLED)
        await run.crew.awork_off(run)


def drive_nested(loop: Loop, input: Any, depth: int) -> Outcome:
    """Drive a flow that is called inside another one's frame; when the stack is deep, on a fresh one."""
    if depth < DEEPEST:
        return drive(loop, input, depth)
    context = copy_context()
    return threads.on_worker(lambda: context.run(drive, loop, input))
