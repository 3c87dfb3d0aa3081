"""Frozen values that users pass and receive.

Names, fields and defaults are LangGraph's, so that programs and their readers move freely between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

S = TypeVar("S")
V = TypeVar("V")

StreamMode: TypeAlias = Literal["values", "updates", "checkpoints", "tasks", "debug", "messages", "custom"]
StreamWriter: TypeAlias = Callable[[Any], None]
Status: TypeAlias = Literal["new", "running", "waiting", "failed", "killed", "paused", "finished"]


class Config(dict[str, Any]):
    """How one call is to be run; the annotation by which a function asks for it (`config: Config`).

    Keys are LangGraph's: `configurable` (with `thread_id`, `checkpoint_id`, `checkpoint_ns`), `tags`, `metadata`,
    `max_concurrency`, `recursion_limit`, `run_name`.
    """


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A question that a flow asked.

    Attributes:
        value: what is shown to the person.
        id: `q_` and hex; names what was shown, see `interrupt`.
        response_schema: JSON schema that an answer has to fit, or None.
    """

    value: Any
    id: str
    response_schema: dict[str, Any] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Send:
    """Run `node` in the next super-step with an input of its own."""

    node: str
    arg: Any


MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__bool__": lambda self: False})()
"""Stands where None is a value like any other."""


@dataclass(frozen=True, slots=True)
class Command(Generic[S]):
    """What to do instead of taking an input: answer questions, write to channels, go to nodes.

    Attributes:
        graph: None for this graph, `Command.PARENT` for the one around it.
        update: writes to the state, as a node would return them.
        resume: the answer to the only open question, or a map from question ids to answers. None answers too.
        goto: node, `Send`, or several of them, to run next.
    """

    graph: str | None = None
    update: Any = None
    resume: Any = MISSING
    goto: Send | Sequence[Send | str] | str = ()

    PARENT = "__parent__"


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace a reducer channel's value instead of joining with it."""

    value: Any


@dataclass(frozen=True, slots=True)
class Verdict:
    """A person's decision about something to be approved; true only when approved.

    Attributes:
        approved: the decision.
        payload: what was approved, as edited by the person, or as it was shown.
        by: who answered, when known.
        note: what the person said about it.
    """

    approved: bool
    payload: Any = None
    by: str | None = None
    note: str | None = None

    def __bool__(self) -> bool:
        return self.approved


class PregelTask(NamedTuple):
    """A task that is due, or was, at one checkpoint."""

    id: str
    name: str
    path: tuple[Any, ...]
    error: str | None = None
    interrupts: tuple[Interrupt, ...] = ()
    state: Any = None
    result: Any = None


class StateSnapshot(NamedTuple):
    """A thread at one checkpoint.

    Attributes:
        values: the state; for a function, what its last finished run returned.
        next: names of the nodes that are due.
        config: addresses this checkpoint.
        metadata: `source`, `step`, `parents`; for a super-step inside a function also `call_step` and `calls`.
        created_at: ISO time, UTC.
        parent_config: addresses the checkpoint before, or None.
        tasks: the due nodes, with their questions, errors and results.
        interrupts: the open questions.
    """

    values: Any
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: Mapping[str, Any] | None
    created_at: str | None
    parent_config: dict[str, Any] | None
    tasks: tuple[PregelTask, ...]
    interrupts: tuple[Interrupt, ...]


class StateUpdate(NamedTuple):
    """One update for `bulk_update_state`."""

    values: Any
    as_node: str | None = None
    task_id: str | None = None


class CallInfo(NamedTuple):
    """One recorded call of a run, for people to read.

    Attributes:
        id: the task id, equal over retries, resumes and processes.
        name: of the task.
        caller: id of the calling task, None for the flow itself.
        step: number of its super-step inside the run.
        status: how it ended.
        started, ended: seconds since 1970, UTC.
        arguments, value: short previews.
    """

    id: str
    name: str
    caller: str | None
    step: int
    status: Literal["finished", "failed", "running"]
    attempt: int
    started: float
    ended: float
    arguments: str
    value: str


@dataclass(frozen=True, slots=True)
class GraphOutput(Generic[V]):
    """What `invoke(version="v2")` gives: the value, and the open questions."""

    value: V
    interrupts: tuple[Interrupt, ...] = ()


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How a task's results are cached.

    Attributes:
        key_func: called with the task's arguments, gives what names the entry instead of the arguments.
        ttl: seconds an entry lives; None for ever.
        version: part of the key instead of the code's own digest.
    """

    key_func: Callable[..., Hashable] | None = None
    ttl: float | None = None
    version: str | None = None
