"""A call: one task of one run, from the moment it is made to the moment its outcome is stored."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from flowfn.checkpoint import cells
from flowfn.checkpoint.cells import Cell
from flowfn.checkpoint.records import (
    CACHED,
    DEPENDS,
    FAILED,
    CallRow,
    task_id,
)
from flowfn.context import CURRENT
from flowfn.errors import FlowStop, ParentCommand, UnfinishedInCoroutineError, UnreadableError, UnstorableError
from flowfn.executors import threads
from flowfn.futures import TaskFuture, futures_in, with_values
from flowfn.serde.typed import ATOMS, copied
from flowfn.types import MISSING, Interrupt, NodeError

if TYPE_CHECKING:
    from contextvars import Context

    from flowfn.cache.flights import Claim
    from flowfn.pregel.cached import Wanted
    from flowfn.pregel.callee import Callee
    from flowfn.pregel.elsewhere import Elsewhere
    from flowfn.pregel.frame import CallFrame
    from flowfn.pregel.node import Node
    from flowfn.pregel.plan import DueTask
    from flowfn.pregel.run import Run

# states
BLOCKED, DUE, RUNNING, SAVING, RESTING, DONE = range(6)
"""RESTING: between two attempts."""

ERROR = "__error__"
"""What a node has written that has failed, and whose error handler is to run."""

# outcomes
VALUE, FAILURE, CANCELLED, STOPPED, CRASHED = range(5)
"""A value; an exception that is stored; ended on request; a stop; a KeyboardInterrupt or the like, never stored."""


class Call:
    """One call. Class attributes are what most calls never change.

    Attributes:
        run: the run it belongs to.
        callee: what is called.
        key: 16 bytes, see `identity`.
        caller: the key of the calling task, empty for the flow itself.
        frame: the frame that made it; None for a node of a program.
        step: number of its super-step.
        parts: its arguments as the key sees them; arguments, shown: they and the outcome as people see them.
        wanted: its entry in the cache; claim: its right to make that entry, while it has it.
        args, kwargs, context: what it is called with, and in; dropped once it has ended.
        needs: calls whose values its arguments wait for.
        feeds: calls that wait for its value.
        worker: the thread that has claimed it, 0 for none and for coroutines.
        looked: whether its caller has seen the outcome.
        acted: whether the caller went on after it had seen the failure: made another call, asked, or returned.
        slot: names its running attempt among those of a task with a limit.
        tried: how many attempts have failed that count for its retry policy; `wait`: seconds until the next one.
        rests: whether what is on its way into the store is an attempt that will be followed by another one.
        is_ending: whether it was cancelled while it ran; awaited: other such calls that its next attempt comes after.
        is_unclear: whether a failure now would not say whether its effect outside took place.
        is_changed: whether it differs from what is on record, and has an effect outside.
        shares: whether it, or a call around it, may have several attempts, which share the calls inside.
        number: place among the outcomes stored.
        place: how many calls its caller had made before.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    context: Context | None = None
    parts: Sequence[bytes] = ()
    arguments: str = ""
    shown: str = ""
    wanted: Wanted | None = None
    claim: Claim | None = None
    state = DUE
    outcome = VALUE
    value: Any = MISSING
    error: BaseException | None = None
    payload: bytes | None = None
    flags = 0
    attempt = 1
    started = 0.0
    ended = 0.0
    number = 0
    place = 0
    looked = False
    acted = False
    needs: list[Call] = []  # noqa: RUF012 - never changed in place
    feeds: list[Call] | None = None
    waiters: list[Callable[[], object]] | None = None
    handle: asyncio.Task[Any] | None = None
    work: bytes | None = None
    elsewhere: Elsewhere | None = None
    worker = 0
    slot = ""
    tried = 0
    wait = 0.0
    rests = False
    is_ending = False
    awaited: list[Call] = []  # noqa: RUF012 - never changed in place
    is_unclear = False
    is_changed = False
    shares = False

    def __init__(
        self, run: Run, callee: Callee, key: bytes, caller: bytes, frame: CallFrame | None, step: int = -1
    ) -> None:
        self.run, self.callee, self.key, self.caller, self.frame, self.step = run, callee, key, caller, frame, step

    @classmethod
    def replayed(cls, run: Run, callee: Callee, row: CallRow, frame: CallFrame) -> Call:
        """A call that has its outcome from the store."""
        call = cls(run, callee, row.key, row.caller, frame, row.step)
        call.state, call.payload = DONE, row.payload
        call.number, call.flags = row.seq, row.flags
        if row.flags & FAILED:
            call.outcome = FAILURE
        return call

    @property
    def name(self) -> str:
        return self.callee.name

    @property
    def id(self) -> str:
        """The task id: equal over retries, resumes and processes."""
        return task_id(self.run.id, self.key)

    @property
    def path(self) -> tuple[Any, ...]:
        """Where it stands: its caller's path, with its place among the calls of that."""
        return ("__pregel_push", self.frame.of.path if self.frame is not None else (), self.place, True)

    @property
    def line(self) -> str:
        """Its callers and itself, `name:id` each."""
        own = f"{self.name}:{self.id}"
        return own if self.frame is None else f"{self.frame.of.line}|{own}"

    @property
    def outermost_node(self) -> Node:
        """The node that it is, or that it is called in."""
        call = self
        while call.frame is not None:
            call = call.frame.of
        assert isinstance(call, NodeCall)
        return call.task.node

    @property
    def cell(self) -> Cell:
        """Where its outcome is stored."""
        return cells.call(self.run.place, self.run.id, self.key)

    @property
    def title(self) -> str:
        """What errors call its outcome."""
        return f"The result of task `{self.name}`"

    @property
    def digests(self) -> bytes:
        """Eight bytes for each argument: themselves where that is enough and no secret, else a hash."""
        secret = self.run.secret
        if secret:
            return b"".join([blake2b(p, digest_size=8, key=secret).digest() for p in self.parts])
        return b"".join([p.ljust(8, b"\0") if len(p) <= 8 else blake2b(p, digest_size=8).digest() for p in self.parts])

    @property
    def is_cached(self) -> bool:
        return bool(self.flags & CACHED)

    @property
    def condition(self) -> Any:
        return self.run.crew.condition

    def surroundings(self) -> Context:
        """The context that an attempt runs in; each of several gets a copy of its own."""
        assert self.context is not None
        return self.context.copy() if self.callee.retry else self.context

    # --- what the future asks

    def is_done(self) -> bool:
        return self.state == DONE

    def is_running(self) -> bool:
        return self.state in (RUNNING, SAVING)

    def is_cancelled(self) -> bool:
        return self.state == DONE and self.outcome == CANCELLED

    def order(self) -> int:
        return self.number

    def cancel(self) -> bool:
        return self.run.cancel(self)

    def result(self, timeout: float | None) -> Any:
        frame = self._wait(timeout)
        if self.outcome != VALUE:
            raise self._unhappy(frame)
        return self._happy(frame)

    def failure(self, timeout: float | None) -> BaseException | None:
        frame = self._wait(timeout)
        return None if self.outcome == VALUE else self._unhappy(frame)

    def deliver(self) -> Any:
        return self.result(None)

    def _wait(self, timeout: float | None) -> Any:
        """Return when there is an outcome; gives the frame that looks, if any."""
        spot = CURRENT.get()
        if spot is None:
            if self.state != DONE:
                self.run.crew.wait(self, None, timeout)
            return None
        frame: Any = spot.frame
        frame.check()
        if self.state != DONE:
            if frame.is_async and asyncio._get_running_loop() is not None:
                raise UnfinishedInCoroutineError(self.name)
            self.run.crew.wait(self, frame, timeout)
            if frame.run.stop is not None and self.outcome != CRASHED:  # it came while this waited
                frame.check()
        return frame

    def wait_in_loop(self) -> Generator[Any, None, None]:
        spot = CURRENT.get()
        frame: Any = spot.frame if spot else None
        if frame is not None:
            frame.check()
        return self.run.crew.wait_in_loop(self, frame)

    def failure_is_set(self) -> BaseException | None:
        """The failure, without anybody having looked at it."""
        return self._failure() if self.outcome == FAILURE and self.state == DONE else None

    def settled_error(self) -> BaseException | None:
        """What ended it, for a call that takes its value as an argument."""
        return self._failure() if self.outcome == FAILURE else self.error

    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Its arguments with the values of its futures."""
        args, kwargs = self.args, self.kwargs
        if self.needs:
            self.flags |= max([needed.flags & DEPENDS for needed in self.needs])
            args = tuple(with_values(a, lambda future: behind(future).value_for_task()) for a in args)
            kwargs = {k: with_values(v, lambda future: behind(future).value_for_task()) for k, v in kwargs.items()}
        return args, kwargs

    def value_for_task(self) -> Any:
        """The value as an argument of another task: a copy of plain data."""
        return by_value(self.value) if self.payload is None else self.run.decoded(self)

    def when_done(self, told: Callable[[], object], future: TaskFuture[Any]) -> None:
        if not self.run.crew.tell_when_done(self, told):
            told()

    def forget_callback(self, fn: Callable[[Any], object]) -> int:
        return self.run.crew.forget(self, fn)

    def hand_over(self, job: Callable[[], object]) -> None:
        threads.workers.submit(job)

    def wait_for_event(self, event: threading.Event, timeout: float | None) -> bool:
        return self.run.crew.wait_for_event(event, timeout)

    def wait_for_any(self, calls: Sequence[Call], timeout: float | None) -> Coroutine[Any, Any, None]:
        return self.run.crew.wait_for_any(calls, timeout)

    def lend(self) -> Callable[[], None]:
        spot = CURRENT.get()
        return self.run.crew.lend_for(self, spot.frame if spot else None)

    # --- looking

    def _happy(self, frame: Any) -> Any:
        """Hand the value to the calling frame."""
        if self.value is MISSING:
            self.value = self.run.decoded(self)
        if not self.run.journal.steps.is_sealed:
            self.run.deliver(self)
        if self.flags & DEPENDS and frame is not None:
            frame.of.flags |= DEPENDS
        return self.value

    def _unhappy(self, frame: Any) -> BaseException:
        """The failure that the calling frame may handle; raises what it may not."""
        if self.outcome == FAILURE:
            self.run.deliver(self)
            return self.run.looked_at(self, self._failure())
        if self.outcome == CANCELLED:
            if asyncio._get_running_loop() is not None and (frame is None or frame.is_async):
                raise asyncio.CancelledError(f"task `{self.name}` was cancelled")
            raise concurrent.futures.CancelledError(f"task `{self.name}` was cancelled")
        assert self.error is not None
        self.looked = True
        if frame is not None and isinstance(self.error, FlowStop):
            frame.stop = frame.stop or self.error
        raise self.error

    def _failure(self) -> BaseException:
        if self.error is None:
            self.error = self.run.decoded(self)
        error = self.error
        if not isinstance(error, BaseException):
            raise UnreadableError(self.title, "it is stored as a failure, and is no exception.")
        return error


def ran(callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture[Any]:
    """A function run here and now, outside any flow, as a finished future."""
    value = callee.fn(*args, **kwargs)
    return TaskFuture(cast(Any, _Ran(callee.name, asyncio.run(value) if callee.is_async else value)))


class _Ran:
    """What is behind such a future."""

    condition = threading.Condition(threading.RLock())

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def is_done(self) -> bool:
        return True

    def is_running(self) -> bool:
        return False

    is_cancelled = cancel = is_running

    def result(self, timeout: float | None = None) -> Any:
        return self.value

    deliver = result

    def failure(self, timeout: float | None = None) -> BaseException | None:
        return None

    failure_is_set = failure

    def order(self) -> int:
        return 0

    def when_done(self, told: Callable[[], object], future: TaskFuture[Any]) -> None:
        told()

    def lend(self) -> Callable[[], None]:
        return lambda: None


class NodeCall(Call):
    """A node of the program that is due in the current super-step.

    Attributes:
        task: what is due.
        stored_writes: its writes, if it finished before a crash.
        result_writes: the writes that its value stands for, once they were asked for.
        failed_before: the text of what it had failed with before, or None.
        handled: whether it has failed, and its error handler stands in for it.
        asked: the questions that it, or what it has called, has open.
        error_given: of an error handler: what it handles.
    """

    stored_writes: list[tuple[str, Any]] | None = None
    result_writes: list[tuple[str, Any]] | None = None
    failed_before: str | None = None
    handled = False
    asked: Sequence[Interrupt] = ()
    error_given: NodeError | None = None

    def __init__(self, run: Run, callee: Callee, task: DueTask) -> None:
        super().__init__(run, callee, task.key, b"", None, -1 if run.program.is_function else run.step)
        self.task = task

    @property
    def is_to_be_handled(self) -> bool:
        """Whether it has failed for good, and an error handler stands in for it."""
        has_failed = self.outcome == FAILURE and not isinstance(self.error, ParentCommand)
        return has_failed and self.task.node.handler is not None

    def restore(self, writes: list[tuple[str, Any]]) -> None:
        """It left these writes before a crash: its outcome, or the error that its handler is for.

        An error as text is for people alone: the node is tried again.
        """
        error = next((value for channel, value in writes if channel == ERROR), None)
        if isinstance(error, BaseException):
            self.state, self.outcome, self.error = DONE, FAILURE, error
            return
        self.failed_before = error
        own = [write for write in writes if write[0] != ERROR]
        if own:
            self.state, self.stored_writes = DONE, own

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def path(self) -> tuple[Any, ...]:
        return self.task.path


def behind(future: TaskFuture[Any]) -> Call:
    """The call behind a future."""
    return cast(Call, future._call)


def by_value(value: Any) -> Any:
    """A copy of plain data, the thing itself when it is anything else; futures inside stay futures."""
    if type(value) in ATOMS:
        return value
    try:
        return copied(value)
    except UnstorableError:
        if not futures_in(value) or isinstance(value, TaskFuture):
            return value
    if type(value) is dict:
        return {key: by_value(v) for key, v in value.items()}
    return type(value)(by_value(v) for v in value) if type(value) in (list, tuple) else value
