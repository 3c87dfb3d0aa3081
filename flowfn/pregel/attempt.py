"""One try of one task, on whatever worker it landed."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING, Any

from flowfn.checkpoint.records import DEPENDS
from flowfn.context import CURRENT, INJECTED
from flowfn.futures import with_values
from flowfn.pregel.calls import DUE, RUNNING, behind
from flowfn.pregel.frame import CallFrame

if TYPE_CHECKING:
    from flowfn.pregel.calls import Call


def attempt(call: Call, depth: int, is_helper: bool) -> None:
    """Try a claimed call in this thread and report how it ended.

    Args:
        depth: how many attempts lie on this stack, this one included.
        is_helper: whether the thread is one of the crew's helpers.
    """
    context = call.context
    assert context is not None
    context.run(execute, CallFrame(call.run, call, depth, is_helper))


def execute(frame: CallFrame) -> None:
    """Run the function of the frame's call, in the call's own context."""
    call = frame.of
    CURRENT.set(frame)
    try:
        if call.cache_key is not None and call.run.answered_by_cache(call):
            frame.ended = True
            return
        call.started = time()
        if call.run.telling is not None:
            call.run.telling.begun(call)
        callee = call.callee
        if callee.injected or call.needs:
            args, kwargs = _arguments(frame)
            value = callee.fn(*args, **kwargs)
        else:
            value = callee.fn(*call.args, **call.kwargs)
        if call.frame is not None and (frame.open_calls or frame.unseen):
            call.run.crew.wait_for_calls(frame)
            frame.raise_unseen()
    except BaseException as error:
        call.run.end(frame, error=error)
    else:
        call.run.end(frame, value)


def start_coroutine(call: Call, loop: asyncio.AbstractEventLoop) -> None:
    """Try a call, which has its place already, as a coroutine on that loop."""
    if asyncio._get_running_loop() is loop:
        _create(call, loop)
    else:
        loop.call_soon_threadsafe(_create, call, loop)


def _create(call: Call, loop: asyncio.AbstractEventLoop) -> None:
    crew = call.run.crew
    with crew.lock:
        starts = call.state == DUE
        if starts:
            call.state = RUNNING
    if not starts:
        if not call.run.is_body(call):
            crew.leave_place()
        return
    frame = CallFrame(call.run, call, depth=1, is_helper=False)
    call.handle = loop.create_task(_aexecute(frame), context=call.context)
    call.handle.add_done_callback(frame.close)


async def _aexecute(frame: CallFrame) -> None:
    call = frame.of
    CURRENT.set(frame)
    try:
        if call.cache_key is not None and call.run.answered_by_cache(call):
            frame.ended = True
            return
        call.started = time()
        if call.run.telling is not None:
            call.run.telling.begun(call)
        args, kwargs = _arguments(frame)
        value = await call.callee.fn(*args, **kwargs)
        if call.frame is not None and (frame.open_calls or frame.unseen):
            await call.run.crew.await_calls(frame)
            frame.raise_unseen()
    except BaseException as error:
        call.run.end(frame, error=error)
    else:
        call.run.end(frame, value)


def _arguments(frame: CallFrame) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments with the values of its futures, and what the function's annotations ask for."""
    call = frame.of
    args, kwargs = call.args, call.kwargs
    if call.needs:
        call.flags |= max([needed.flags & DEPENDS for needed in call.needs])
        args = tuple(with_values(a, lambda future: behind(future).value_for_task()) for a in args)
        kwargs = {k: with_values(v, lambda future: behind(future).value_for_task()) for k, v in kwargs.items()}
    for name, kind in call.callee.injected.items():
        if name not in kwargs and not frame.passes(name):
            kwargs = {**kwargs, name: INJECTED[kind](frame)}
    return args, kwargs
