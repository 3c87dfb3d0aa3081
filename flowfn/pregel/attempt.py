"""One try of one task, on whatever worker it landed."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING, Any

from flowfn.context import CURRENT, INJECTED
from flowfn.pregel import cached, doubt, elsewhere, trying
from flowfn.pregel.calls import DUE, RUNNING, by_value
from flowfn.pregel.frame import CallFrame
from flowfn.stream.messages import set_for_langchain

if TYPE_CHECKING:
    from flowfn.pregel.calls import Call


def attempt(call: Call, depth: int, is_helper: bool) -> CallFrame:
    """Try a claimed call in this thread and report how it ended; gives the frame it had.

    Args:
        depth: how many attempts lie on this stack, this one included.
        is_helper: whether the thread is one of the crew's helpers.
    """
    frame = CallFrame(call.run, call, depth, is_helper)
    call.surroundings().run(execute, frame)
    return frame


def execute(frame: CallFrame) -> None:
    """Run the function of the frame's call, in the call's own context."""
    call = frame.of
    CURRENT.set(frame)
    try:
        if call.callee.cache is not None and cached.has_its_value(call):
            frame.ended = True
            return
        _begin(frame)
        callee = call.callee
        known = None if callee.effect is None else doubt.found(frame, *call.given())
        if known is not None:
            value = known.value
        elif callee.executor is not None:
            value = elsewhere.call(frame, *call.given())
        elif callee.injected or call.needs or callee.retry:
            args, kwargs = _arguments(frame)
            value = callee.fn(*args, **kwargs)
        else:
            value = callee.fn(*call.args, **call.kwargs)
        if call.frame is not None and (frame.open_calls or frame.unseen):
            call.run.crew.wait_for_calls(frame)
            frame.raise_unseen()
        if frame.messages is not None:
            frame.messages.ended(call, value)
    except BaseException as error:
        call.run.end(frame, error=error)
    else:
        call.run.end(frame, value)


def _begin(frame: CallFrame) -> None:
    call = frame.of
    if call.run.stop is not None:  # since it was claimed
        frame.check()
    is_first = not call.started
    call.started = time()
    if call.callee.timeout is not None and call.callee.executor is None:  # else once a worker begins with it
        trying.watch(frame)
    if call.run.telling is not None and is_first:
        call.run.telling.begun(call)
    if frame.messages is not None:
        frame.messages.begun(call)
        set_for_langchain(frame.config)


def start_coroutine(call: Call, loop: asyncio.AbstractEventLoop) -> None:
    """Try a call, which has its place already, as a coroutine on that loop."""
    if asyncio._get_running_loop() is loop:
        _create(call, loop)
    else:
        loop.call_soon_threadsafe(_create, call, loop)


def _create(call: Call, loop: asyncio.AbstractEventLoop) -> None:
    crew, frame = call.run.crew, None
    with crew.lock:  # held until there is something to cancel
        if call.state == DUE:
            frame = CallFrame(call.run, call, depth=1, is_helper=False)
            # Not by the loop's own factory, which might begin at once.
            handle = asyncio.Task(_aexecute(frame), loop=loop, context=call.surroundings())
            call.state, call.handle = RUNNING, handle  # both at once, for an interrupt that comes before
    if frame is not None:
        assert call.handle is not None
        # In a context that is there already: else each call would keep another copy of this one.
        call.handle.add_done_callback(frame.close, context=call.context)
    elif not call.run.is_body(call):
        crew.leave_place()


async def _aexecute(frame: CallFrame) -> None:
    call = frame.of
    CURRENT.set(frame)
    try:
        if call.callee.cache is not None and cached.has_its_value(call):
            frame.ended = True
            return
        _begin(frame)
        known = None if call.callee.effect is None else await doubt.afound(frame, *call.given())
        if known is not None:
            value = known.value
        elif call.callee.executor is not None:
            value = await elsewhere.acall(frame, *call.given())
        else:
            args, kwargs = _arguments(frame)
            value = await call.callee.fn(*args, **kwargs)
        if call.frame is not None and (frame.open_calls or frame.unseen):
            await call.run.crew.await_calls(frame)
            frame.raise_unseen()
        if frame.messages is not None:
            frame.messages.ended(call, value)
    except BaseException as error:
        call.run.end(frame, error=error)
    else:
        call.run.end(frame, value)


def _arguments(frame: CallFrame) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments with the values of its futures, and what the function's annotations ask for."""
    call = frame.of
    args, kwargs = call.given()
    if call.callee.retry:
        args, kwargs = tuple(map(by_value, args)), {name: by_value(value) for name, value in kwargs.items()}
    for name, kind in call.callee.injected.items():
        if name not in kwargs and not frame.passes(name):
            kwargs = {**kwargs, name: INJECTED[kind](frame)}
    return args, kwargs
