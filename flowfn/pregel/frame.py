"""One execution of a flow's body, a node, or an attempt at a task, as its code and the runtime see it."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from flowfn.checkpoint.records import DEPENDS, RECORDED
from flowfn.context import CURRENT, At, ExecutionInfo, Frame, Line, Runtime, Spot
from flowfn.errors import (
    AmbiguousCallError,
    Asked,
    AtBreakpoint,
    BlockedLoopError,
    EndedFrameError,
    FlowStop,
    ForkedProcessError,
    LimitInsideItselfError,
    OutsideFlowError,
    TaskTimeoutError,
)
from flowfn.executors import THREADS, payload, threads
from flowfn.futures import TaskFuture, futures_in
from flowfn.identity import Walk, digest, packed_arguments, question_base
from flowfn.pregel import cached, questions
from flowfn.pregel.callee import INJECT, Callee, callee_of
from flowfn.pregel.calls import Call, NodeCall, behind, by_value
from flowfn.schema import schema_of
from flowfn.serde.typed import ATOMS
from flowfn.timeouts import is_refreshed_by
from flowfn.types import MISSING, Interrupt, NodeError

if TYPE_CHECKING:
    from flowfn.pregel.loop import Outcome
    from flowfn.pregel.messaging import Messaging
    from flowfn.pregel.run import Run


class _Met:
    """The last of some equal calls of a frame: how many there were, whose it was, and what its digest left out."""

    __slots__ = ("count", "left_out", "made", "owner")

    def __init__(self, count: int, owner: Any, made: int, left_out: Sequence[Any]) -> None:
        self.count, self.owner, self.made, self.left_out = count, owner, made, left_out


class CallFrame(Frame):
    """One execution.

    Attributes:
        run: the run it belongs to.
        of: the call that is executed.
        path: what the keys of its calls start with.
        depth: how many attempts lie on its stack, itself included.
        is_helper: whether it runs on one of the crew's helpers.
        stop: the stop that has reached it; everything it asks for raises it again.
        ended, raised: whether its function has come to its end, and whether by an exception.
        too_late: what it has failed with, though its function still runs; `is_left_behind` once nobody waits for that.
        began, refreshed: seconds of the monotonic clock: when it began, and when it last showed a sign of progress.
        holds_place, has_place, waits: see `crew`.
        inner_call: which flow called in it has the namespace of its task.
        pushed: what a node writes to the state beside its result, (key, value).
        made: how many calls it has made; open_calls: how many of them have no outcome yet.
        failed: calls whose failure it has looked at; `fresh` are those since when it has not acted, and `unseen` those
            that failed without its looking.
    """

    stop: FlowStop | None = None
    ended = raised = False
    is_left_behind = False
    too_late: TaskTimeoutError | None = None
    began = refreshed = 0.0
    waits = 0
    made = 0
    open_calls = 0
    inner_call: bytes | None = None
    pushed: Sequence[tuple[str, Any]] = ()
    failed: Sequence[Call] = ()
    fresh: Sequence[Call] = ()
    unseen: Sequence[Call] = ()

    def __init__(self, run: Run, of: Call, depth: int, is_helper: bool) -> None:
        self.run, self.of, self.depth, self.is_helper = run, of, depth, is_helper
        self.is_async = of.callee.is_async
        is_body = of.frame is None and run.program.is_function
        self.path = b"" if is_body else of.key
        self.holds_place = self.has_place = not is_body
        self._met: dict[bytes, _Met | int] = {}
        self._owner: Any = None if self.is_async else get_ident()
        self._forks = threads.forks

    @property
    def messages(self) -> Messaging | None:
        """Who is told its messages, if anybody watches them."""
        return None if self.run.telling is None else self.run.telling.messages

    @property
    def node(self) -> NodeCall | None:
        """The node of a program that this executes; None in a task's attempt."""
        return self.of if isinstance(self.of, NodeCall) else None

    @property
    def node_error(self) -> NodeError | None:  # type: ignore[override]
        """What an error handler handles."""
        return self.node.error_given if self.node is not None else None

    def note_asked(self, question: Interrupt) -> None:
        """A question is open that the code inside has asked. The lock is held."""
        self.run.asked[question.id] = question
        call = self.of
        while call.frame is not None:
            call = call.frame.of
        if isinstance(call, NodeCall):
            call.asked = (*[asked for asked in call.asked if asked.id != question.id], question)

    def emit_message(self, message: Any, metadata: dict[str, Any]) -> None:
        telling = self.run.telling
        if telling is not None and telling.messages is not None:
            telling.messages.emit(self, message, metadata)

    def push(self, key: str, value: Any) -> None:
        if self.node is None or self.run.program.is_function:
            raise OutsideFlowError("A write to the state was pushed", ", in a node of a graph")
        self.pushed = [*self.pushed, (key, value)]

    # --- what the code inside asks for

    def call(self, spot: Spot, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture[Any]:
        """Make a call: find its outcome, or have it run."""
        self.check("Task `%s` was called", callee.name, acts=True)
        values = callee.bind(args, kwargs)
        parts, left_out, futures = (
            packed_arguments(values) if callee.key is None else _parts(callee, args, kwargs, values)
        )
        key = self._key(spot, callee, parts, left_out)
        run = self.run
        if callee.is_async and not self.is_async and run.crew.is_home(asyncio._get_running_loop()):
            raise BlockedLoopError(callee.name, self.of.name)
        if callee.title not in run.code:
            run.meet(callee)
        if callee.max_running is not None and self._is_inside(callee):
            raise LimitInsideItselfError(callee.name, callee.max_running)
        shares = self.of.shares
        known = run.known_call(key, self, callee) if run.has_records or shares else None
        if known is not None:
            return TaskFuture(known)
        if run.stage is not None:
            callee = run.stage.cast(callee, args, kwargs)
        executor = callee.executor or run.executor
        if executor is not callee.executor or executor is THREADS:
            callee = replace(callee, executor=None if executor is THREADS else executor)
        call = Call(run, callee, key, self.path, self)
        call.place, self.made = self.made, self.made + 1
        if shares or callee.retry:
            call.shares = True
        call.parts, call.context = parts, copy_context()
        if callee.executor is not None:
            payload.refuse_injected(callee.name, callee.injected)
            if not futures:
                call.work = payload.work(callee.name, callee.fn, args, kwargs)
        call.args = tuple([a if type(a) in ATOMS else by_value(a) for a in args])
        if kwargs:
            call.kwargs = {k: by_value(v) for k, v in kwargs.items()}
        if callee.cache is not None and not futures and run.program.cache_in is not None:
            call.wanted = cached.wanted(callee, args, kwargs)
        if futures:
            call.needs = [behind(future) for future in futures]
        shown = run.serde.preview
        call.arguments = ", ".join([shown(value) for value in values if value is not INJECT])
        run.make(call)
        return TaskFuture(call)

    def _is_inside(self, callee: Callee) -> bool:
        """Whether this frame, or one around it, executes a call of that task."""
        frame: CallFrame | None = self
        while frame is not None:
            if frame.of.callee.title == callee.title:
                return True
            frame = frame.of.frame or frame.run.parent
        return False

    def record(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.check("`record` was called", acts=True)
        callee = callee_of(fn)
        values = callee.bind(args, kwargs)
        parts, left_out, _ = _parts(callee, args, kwargs, values)
        key = self._key(self.spot, callee, parts, left_out)
        call = self.run.known_call(key, self, callee)
        if call is None:
            call = Call(self.run, callee, key, self.path, self)
            call.flags, call.parts, call.shares = RECORDED, parts, self.of.shares
            shown = self.run.serde.preview
            call.arguments = ", ".join([shown(value) for value in values if value is not INJECT])
            self.run.record(call, lambda: _alone(fn, args, kwargs))
        return call.deliver()

    def ask(self, value: Any, key: str | None, response_schema: Any) -> tuple[Any, str | None, str | None]:
        self.check("`interrupt` was called", acts=True)
        allowed = None if response_schema is None else json.dumps(schema_of(response_schema), sort_keys=True)
        base = question_base(self.spot.path, value, key, allowed, self.run.secret)
        occurrence = self._occurrence(base, "interrupt", (), may_mix=False)
        if occurrence:
            base = digest(base, b"%d" % occurrence)
        if self.run.saver is None:  # the run around it keeps the question, beside those of other calls
            base = digest(base, self.run.called_by)
        return questions.ask(self, base, value, key, response_schema, allowed)

    def write(self, chunk: Any) -> None:
        self.check("The stream was written to")
        self.show_progress("progress")
        self.run.emit_custom(self, chunk)

    @property
    def config(self) -> dict[str, Any]:
        return self.run.config_of(self)

    @property
    def has_previous(self) -> bool:  # type: ignore[override]
        return self.run.previous is not MISSING

    @property
    def runtime(self) -> Runtime[Any]:
        run = self.run
        previous = None if run.previous is MISSING else run.previous
        info = ExecutionInfo(self.of.id, run.thread, run.id, run.place.ns, self.of.attempt)
        beat = functools.partial(self.show_progress, "heartbeat")
        return Runtime(run.terms.context, run.program.store, self.write, previous, info, beat, run.terms.control)

    # --- flows called inside

    def flow_key(self, name: str, input: bytes) -> bytes:
        """The key of a nested flow's call with that input."""
        self.check("Flow `%s` was called", name, acts=True)
        base = digest(self.spot.path, b"flow", name.encode(), input, secret=self.run.secret)
        return digest(base, b"%d" % self._occurrence(base, name, [], may_mix=False))

    def raise_known_failure(self, key: bytes, callee: Callee) -> None:
        """Raise the failure that is on record for a nested flow's call, so that a replay goes the same way."""
        known = self.run.known_call(key, self, callee) if self.run.has_records or self.of.shares else None
        if known is not None:
            known.deliver()

    def flow_failed(self, key: bytes, callee: Callee, input: Any, error: Exception) -> None:
        """A nested flow has failed: put that on record, as any call's failure, and raise it."""
        call = Call(self.run, callee, key, self.path, self)
        call.flags, call.arguments, call.error = RECORDED, self.run.serde.preview(input), error
        self.run.store_failure(call)
        call.deliver()

    def nested_outcome(self, outcome: Outcome, run: Run) -> Outcome:
        """What a nested flow came to; stops this frame when it asks."""
        self.run.nested.remove(run)
        if run.depends:
            self.of.flags |= DEPENDS
            self.run.depends = True
        if outcome.interrupts:
            self.stop = Asked(outcome.interrupts[0].id)
            raise self.stop
        if outcome.is_break:
            self.stop = AtBreakpoint()
            raise self.stop
        return outcome

    # --- checks

    @property
    def spot(self) -> Spot:
        """Where the calling code stands in this frame."""
        spot = CURRENT.get()
        return spot if spot is not None and spot.frame is self else self

    def check(self, what: str = "A result was looked at", name: str = "", acts: bool = False) -> None:
        """Raise the stop that has reached this frame or its run, or the error of code that outlived it.

        Args:
            what, name: what the code is doing, for the error.
            acts: whether it goes on by this, after the failures it has looked at.
        """
        if self.stop is not None or self.run.stop is not None:
            self.stop = self.stop or self.run.stop
            assert self.stop is not None
            raise self.stop
        if self.ended:
            raise EndedFrameError(self.of.name, what % name if name else what)
        if acts and self.of.callee.timeout is not None:
            self.show_progress("progress")
        if self._forks != threads.forks:
            raise ForkedProcessError(self.of.name)
        if acts and self.fresh:
            for call in self.fresh:
                call.acted = True
            self.fresh = ()

    def show_progress(self, sign: Literal["progress", "heartbeat"]) -> None:
        """The attempt is alive, which puts off an idle time-out."""
        policy = self.of.callee.timeout
        if policy is not None and is_refreshed_by(policy, sign):
            self.refreshed = monotonic()

    def raise_unseen(self) -> None:
        """A task's function has returned, and its calls have ended: what failed unseen is the task's own failure."""
        if self.unseen and self.stop is None:
            self.unseen[0].looked = True
            error = self.unseen[0].settled_error()
            assert error is not None
            error.add_note(f"Raised by task `{self.unseen[0].name}`, at whose result `{self.of.name}` never looked.")
            raise error

    def passes(self, name: str) -> bool:
        """Whether the caller has passed this parameter by place."""
        parameters = self.of.callee.parameters
        at = parameters.index(name) if name in parameters else len(self.of.args)
        return at < min(len(self.of.args), self.of.callee.by_place)

    def close(self, handle: asyncio.Task[None]) -> None:
        """The coroutine is over; if it never began, it was cancelled."""
        if self.of.handle is handle:
            self.of.handle = None
        if not self.ended:
            self.run.end(self, error=asyncio.CancelledError())
        if self.holds_place and not self.is_left_behind:
            self.run.crew.leave_place()
        if not handle.cancelled() and (interrupt := handle.exception()) is not None:
            self.run.lose(self.of, interrupt)

    # --- identity

    def _key(self, spot: Spot, callee: Callee, parts: list[bytes], left_out: Sequence[Any]) -> bytes:
        if callee.owner is not None:
            parts = [callee.owner[0], *parts]
            left_out = [*callee.owner[1], *left_out]
        base = digest(spot.path, callee.identity, *parts, secret=self.run.secret)
        if not left_out and base not in self._met and self._is_alone():
            self._met[base] = 1
            return base
        occurrence = self._occurrence(base, callee.name, left_out, callee.interchangeable)
        return base if occurrence == 0 else digest(base, b"%d" % occurrence)

    def _is_alone(self) -> bool:
        """Whether a plain function's own thread is calling, so that the order of its calls needs no proof."""
        return not self.is_async and get_ident() == self._owner

    def _occurrence(self, base: bytes, name: str, left_out: Sequence[Any], may_mix: bool) -> int:
        """How many equal calls this frame has made before; refuses those that a replay could not tell apart."""
        met = self._met.get(base)
        if not left_out and self._is_alone() and not isinstance(met, _Met):
            self._met[base] = (met or 0) + 1
            return met or 0
        owner, made = self._advance()
        if isinstance(met, int):
            met = _Met(met, self._owner, 0, [])
            self._met[base] = met
        if met is None:
            self._met[base] = _Met(1, owner, made, left_out)
            return 0
        if not may_mix:
            if len(met.left_out) != len(left_out) or any(
                a is not b for a, b in zip(met.left_out, left_out, strict=True)
            ):
                kinds = sorted({type(v).__name__ for v in [*met.left_out, *left_out]})
                raise AmbiguousCallError(
                    name, f"their arguments differ only in objects that have no stable identity ({', '.join(kinds)})"
                )
            if met.owner is not owner and not self._comes_after(met):
                raise AmbiguousCallError(name, "two coroutines or threads make equal calls at once")
        count = met.count
        met.count, met.owner, met.made, met.left_out = count + 1, owner, made, left_out
        return count

    def _advance(self) -> tuple[Any, int]:
        """The line of execution that makes a call now, and the number of that call on it."""
        if self._is_alone():
            return self._owner, 0
        owner = _line_owner()
        spot = self.spot
        line = spot.line
        if line is not None and line.owner is owner:
            line = Line(owner, line.made + 1, line.before)
        else:
            line = Line(owner, 1, line)
        CURRENT.set(At(self, spot.path, line))
        return owner, line.made

    def _comes_after(self, met: _Met) -> bool:
        """Whether the earlier call was certainly made before this one: on a line this one came from, or on one that
        has ended."""
        line = self.spot.line
        if line is not None and line.comes_after(met.owner, met.made):
            return True
        owner = met.owner
        if isinstance(owner, asyncio.Task):
            return owner.done()
        return isinstance(owner, threading.Thread) and not owner.is_alive()


def _line_owner() -> Any:
    """The running asyncio task, or else the thread."""
    if asyncio._get_running_loop() is not None:
        return asyncio.current_task() or threading.current_thread()
    return threading.current_thread()


def _parts(
    callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any], values: tuple[Any, ...]
) -> tuple[list[bytes], Sequence[Any], Sequence[TaskFuture[Any]]]:
    """What a call's key is made of: the arguments, or what its key function says; what was left out; the futures."""
    if callee.key is None:
        return packed_arguments(values)
    futures = [future for value in values for future in futures_in(value)]
    walk = Walk()
    return [walk.packed(callee.key(*args, **kwargs))], walk.left_out, futures


def _alone(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function where no flow is to be found, so that it cannot call tasks or ask."""
    token = CURRENT.set(None)
    try:
        return fn(*args, **kwargs)
    finally:
        CURRENT.reset(token)
