"""What running code may ask for: a question, `previous`, the store, a stream writer, a task call.

Code that runs inside a flow finds its **frame**, one execution of a flow or of an attempt at a task, through a context
variable, so everything here also works in the coroutines and callbacks that the code starts. What a frame does with a
wish is the runtime's business; here is only how to reach it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from flowfn.errors import OutsideFlowError
from flowfn.futures import TaskFuture
from flowfn.identity import digest
from flowfn.types import NodeError, StreamWriter, Verdict

P = ParamSpec("P")
R = TypeVar("R")
ContextT = TypeVar("ContextT")


class Line:
    """How far one line of execution, an asyncio task or a worker, has come in making calls, and where it branched off.

    Immutable: a coroutine inherits the line of the code that started it, as of that moment, with its context.
    """

    __slots__ = ("before", "made", "owner")

    def __init__(self, owner: Any, made: int, before: Line | None) -> None:
        self.owner, self.made, self.before = owner, made, before

    def comes_after(self, owner: Any, made: int) -> bool:
        """Whether the owner's call number `made` was made before this point of this line."""
        line: Line | None = self
        while line is not None:
            if line.owner is owner:
                return line.made >= made
            line = line.before
        return False


class Spot(ABC):
    """Where code stands: its frame, the path that its calls' keys start with, and its line of execution."""

    frame: Frame
    path: bytes
    line: Line | None = None


class At(Spot):
    """A spot inside a frame that is not where the frame's code begins."""

    def __init__(self, frame: Frame, path: bytes, line: Line | None) -> None:
        self.frame, self.path, self.line = frame, path, line


CURRENT: ContextVar[Spot | None] = ContextVar("flowfn_spot", default=None)


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """Which execution this is.

    Attributes:
        task_id: equal over retries, resumes and processes, different in a new run or fork: an idempotency key to hand
            to the outside world.
        thread_id, run_id: None and "" without a checkpointer.
        checkpoint_ns: empty for the outermost flow.
        node_attempt: 1 for the first try.
    """

    task_id: str
    thread_id: str | None
    run_id: str
    checkpoint_ns: str
    node_attempt: int


class RunControl:
    """Asks a run to stop between two super-steps: give it to `invoke` or `stream` as `control=`.

    What runs is let finish and stored; then the call raises `GraphDrained`, and `invoke(None)` goes on.

    Attributes:
        drain_reason: why, once somebody has asked.
    """

    def __init__(self) -> None:
        self.drain_reason: str | None = None

    @property
    def drain_requested(self) -> bool:
        return self.drain_reason is not None

    def request_drain(self, reason: str = "shutdown") -> None:
        """Ask; may be called from any worker, and inside the run itself."""
        self.drain_reason = reason


@dataclass(frozen=True, slots=True)
class Runtime(Generic[ContextT]):
    """What a function gets that has a parameter annotated `Runtime`.

    Attributes:
        context: the `context=` of the invocation.
        store: the flow's store, shared by all threads.
        stream_writer: writes to the `custom` stream.
        previous: what the thread's last finished run left.
        execution_info: ids of this execution.
        heartbeat: puts off the task's idle time-out, when it has one: call it where work goes on without calls.
        control: the `control=` of the invocation, or None.
    """

    context: ContextT
    store: Any
    stream_writer: StreamWriter
    previous: Any
    execution_info: ExecutionInfo
    heartbeat: Callable[[], None] = lambda: None
    control: RunControl | None = None

    @property
    def task_id(self) -> str:
        """Shorthand for `execution_info.task_id`."""
        return self.execution_info.task_id


class Frame(Spot):
    """One execution of a flow, node or attempt, as the code inside sees it; also the spot where that code begins."""

    @property
    def frame(self) -> Frame:  # type: ignore[override]
        return self

    @abstractmethod
    def call(self, spot: Spot, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture[Any]: ...
    @abstractmethod
    def record(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    @abstractmethod
    def ask(self, value: Any, key: str | None, response_schema: Any) -> tuple[Any, str | None, str | None]:
        """The answer, who gave it, and what they said; stops the frame when there is none."""

    @abstractmethod
    def write(self, chunk: Any) -> None: ...

    node_error: NodeError | None = None
    """What an error handler handles."""

    def emit_message(self, message: Any, metadata: dict[str, Any]) -> None:
        """Show a message, or a piece of one, in stream mode `messages`; nothing where nobody watches that."""
        del message, metadata

    def push(self, key: str, value: Any) -> None:
        """Write to the state of the graph whose node runs, beside what it returns.

        Raises:
            OutsideFlowError: no node runs here.
        """
        raise OutsideFlowError("A write to the state was pushed", ", in a node of a graph")

    has_previous: bool
    """Whether a run of the thread has finished before this one."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]: ...
    @property
    @abstractmethod
    def runtime(self) -> Runtime[Any]: ...


def spot_for(what: str, advice: str = "") -> Spot:
    """Where the calling code stands.

    Raises:
        OutsideFlowError: in no flow; the sentence begins with `what`.
    """
    spot = CURRENT.get()
    if spot is None:
        raise OutsideFlowError(what, advice)
    return spot


def interrupt(value: Any, *, key: str | None = None, response_schema: Any = None) -> Any:
    """Ask a person and give their answer; the run stops here until there is one.

    Everything that has finished is stored, parallel tasks come to their own end or question, and the call that runs the
    flow returns with the question. When it is resumed, the function runs again from its first line, finished tasks
    answer from the store, and this call gives the answer.

    Args:
        value: what to show; anything that can be stored.
        key: ties the answer to this name instead of to what is shown, for a value that changes harmlessly.
        response_schema: what an answer has to be: a JSON schema, `bool`, a `Literal[...]`, a dataclass, a pydantic
            model. Other answers are refused and leave the question open; a dataclass or model comes back as instance.
    Raises:
        NoSaverError: the flow has no checkpointer, so nothing could go on.
        UnstorableResultError: `value` cannot be stored.
    """
    answer, _, _ = spot_for("`interrupt` was called").frame.ask(value, key, response_schema)
    return answer


APPROVAL = {
    "anyOf": [
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "payload": {}, "note": {"type": ["string", "null"]}},
            "required": ["approved"],
            "additionalProperties": False,
        },
    ]
}


def approve(payload: Any, *, title: str | None = None, key: str | None = None) -> Verdict:
    """Ask a person to approve something; the verdict is true only when they did.

    Args:
        payload: what is to be approved; the person may give back an edited one.
        title: a line above it.
        key: as in `interrupt`.
    Returns:
        The decision, with the payload as approved. The answer is True or False, or `{"approved": True, "payload": …,
        "note": …}`.
    """
    shown = payload if title is None else {"title": title, "payload": payload}
    answer, by, note = spot_for("`approve` was called").frame.ask(shown, key, APPROVAL)
    if isinstance(answer, bool):
        return Verdict(answer, payload, by, note)
    return Verdict(answer["approved"], answer.get("payload", payload), by, answer.get("note") or note)


def record(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a plain function here, once: every replay gets the recorded result.

    For what would differ at each replay, `record(date.today)` or `record(uuid4)`. The function runs inside its caller,
    so it should be quick, and cannot call tasks.
    """
    return spot_for("`record` was called", ", or call the function itself").frame.record(fn, args, kwargs)  # type: ignore[no-any-return]


@contextmanager
def branch(name: str) -> Iterator[None]:
    """Give the calls inside a path of their own, so that equal calls of racing coroutines can be told apart.

    Args:
        name: equal at every replay, different for each of the racing callers.
    """
    spot = spot_for("`branch` was entered")
    token = CURRENT.set(At(spot.frame, digest(spot.path, b"branch", name.encode()), spot.line))
    try:
        yield
    finally:
        CURRENT.reset(token)


def get_config() -> dict[str, Any]:
    """The config of the running invocation."""
    return spot_for("`get_config` was called").frame.config


def get_store() -> Any:
    """The flow's store, or None."""
    return spot_for("`get_store` was called").frame.runtime.store


def get_stream_writer() -> StreamWriter:
    """A function that writes its argument to the `custom` stream."""
    return spot_for("`get_stream_writer` was called").frame.write


def get_runtime(schema: type[ContextT] | None = None) -> Runtime[ContextT]:
    """Context, store, writer, `previous` and ids of the running execution."""
    return spot_for("`get_runtime` was called").frame.runtime


def get_previous() -> Any:
    """What the thread's last finished run left, None on the first."""
    return spot_for("`get_previous` was called").frame.runtime.previous


class FlowFilter(logging.Filter):
    """Gives every log record `flow_thread`, `flow_run` and `flow_task`, None outside a flow: for a handler or logger.

    `handler.addFilter(FlowFilter())`, then `%(flow_task)s` in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        spot = CURRENT.get()
        info = None if spot is None else spot.frame.runtime.execution_info
        known = vars(record)
        known.setdefault("flow_thread", info and info.thread_id)
        known.setdefault("flow_run", info and info.run_id)
        known.setdefault("flow_task", info and info.task_id)
        return True


INJECTED: Mapping[str, Callable[[Frame], Any]] = {
    "config": lambda frame: frame.config,
    "runtime": lambda frame: frame.runtime,
    "store": lambda frame: frame.runtime.store,
    "writer": lambda frame: frame.write,
    "previous": lambda frame: frame.runtime.previous,
    "error": lambda frame: frame.node_error,
}
"""What a function's parameters may ask for, by name."""
