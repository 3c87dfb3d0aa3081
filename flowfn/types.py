"""Frozen values that users pass and receive.

Names, fields and defaults are LangGraph's, so that programs and their readers move freely between the two.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

from flowfn.amounts import UNITS, Duration, number, seconds, whole
from flowfn.errors import PolicyError
from flowfn.faults import default_retry_on

S = TypeVar("S")
V = TypeVar("V")

StreamMode: TypeAlias = Literal["values", "updates", "checkpoints", "tasks", "debug", "messages", "custom"]
StreamWriter: TypeAlias = Callable[[Any], None]
Status: TypeAlias = Literal["new", "running", "waiting", "failed", "killed", "paused", "finished"]
Durability: TypeAlias = Literal["sync", "async", "exit"]
OnBusy: TypeAlias = Literal["raise", "wait", "skip"]
ON_BUSY = ("raise", "wait", "skip")
DURABILITIES = ("sync", "async", "exit")


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
    """Run `node` in the next super-step with an input of its own.

    Attributes:
        timeout: how long an attempt may take, instead of what the node says.
    """

    node: str
    arg: Any
    timeout: Any = field(default=None, kw_only=True)


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
class NodeError:
    """What an error handler of a graph's node is given.

    Attributes:
        node: name of the node that has failed for good.
        error: what it has failed with.
    """

    node: str
    error: BaseException


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
        status: how it ended; `"begun"` for an effect outside of which nobody knows.
        started, ended: seconds since 1970, UTC.
        arguments, value: short previews.
    """

    id: str
    name: str
    caller: str | None
    step: int
    status: Literal["finished", "failed", "begun"]
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
class Happened(Generic[V]):
    """What `reconcile` says of an effect that took place: the result that its task would have given."""

    value: V


class _DidNotHappen:
    def __repr__(self) -> str:
        return "DID_NOT_HAPPEN"


DID_NOT_HAPPEN = _DidNotHappen()
"""What `reconcile` says of an effect that did not take place, so that its task may run."""

Reconcile: TypeAlias = Callable[..., Any]
"""Called with a task's arguments; gives `Happened(result)`, `DID_NOT_HAPPEN`, or None when it cannot tell."""


# ---------------------------------------------------------------- policies: read and checked when they are made

RetryOn: TypeAlias = type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool]
"""Which errors are tried again: a class, several, or a predicate."""

_RATE = re.compile(rf"(\d{{1,18}})\s*/\s*(\d+(?:\.\d+)?)?\s*({'|'.join(UNITS)})", re.ASCII)
_set = object.__setattr__  # fills a frozen value while it is made


class _RetryFields(NamedTuple):
    initial_interval: float
    backoff_factor: float
    max_interval: float
    max_attempts: int
    jitter: bool
    retry_on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]


class RetryPolicy(_RetryFields):
    """When a failed task is tried again.

    Attributes:
        initial_interval: seconds before the second attempt.
        backoff_factor: by which the interval grows after each attempt.
        max_interval: what it does not grow beyond; an error may ask for more.
        max_attempts: how often to try, the first time included.
        jitter: whether chance adds up to half of the interval.
        retry_on: a class of errors, several, or a predicate; by default what may pass by itself.
    Raises:
        PolicyError: a field holds what it cannot mean.
    """

    __slots__ = ()

    def __new__(
        cls,
        initial_interval: Duration = 0.5,
        backoff_factor: float = 2.0,
        max_interval: Duration = 128.0,
        max_attempts: int = 3,
        jitter: bool = True,
        retry_on: RetryOn = default_retry_on,
    ) -> Self:
        growth = number(backoff_factor)
        if growth is None or not 0.0 < growth < math.inf:
            raise PolicyError("backoff_factor", backoff_factor, "a number above 0; 1 keeps the interval as it is")
        if not isinstance(jitter, bool):
            raise PolicyError("jitter", jitter, "True or False")
        return super().__new__(
            cls,
            seconds(initial_interval, "initial_interval", may_be_zero=True),
            growth,
            seconds(max_interval, "max_interval", may_be_zero=True),
            whole(max_attempts, "max_attempts"),
            jitter,
            _retry_on(retry_on),
        )

    @classmethod
    def coerce(cls, given: int | RetryPolicy | Sequence[RetryPolicy] | None) -> tuple[RetryPolicy, ...] | None:
        """The policies that `retry_policy=` stands for, in order: a number is that many attempts; None stays None."""
        if given is None:
            return None
        if isinstance(given, int) and not isinstance(given, bool):
            return (cls(max_attempts=whole(given, "retry_policy")),)
        is_several = isinstance(given, Sequence) and not isinstance(given, RetryPolicy | str)
        policies: Any = given if is_several else [given]
        if not all(isinstance(policy, RetryPolicy) for policy in policies):
            raise PolicyError("retry_policy", given, "a number of attempts, a RetryPolicy, or a list of them")
        # Made anew, since `_replace` checks nothing.
        return tuple(cls(*policy) for policy in policies)


def _retry_on(given: Any) -> Any:
    if isinstance(given, type):
        if issubclass(given, Exception):
            return given
    elif callable(given):
        if not inspect.iscoroutinefunction(given):
            return given
    elif isinstance(given, Iterable) and not isinstance(given, str):
        kinds = tuple(given)
        if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            return kinds
    raise PolicyError(
        "retry_on",
        given,
        "a class of `Exception`, several, or a plain function from an exception to bool; stops and cancellations, "
        "which are no `Exception`, are never tried again",
    )


@dataclass(frozen=True, slots=True, init=False)
class TimeoutPolicy:
    """How long one attempt of a task may take.

    Attributes:
        run_timeout: seconds in all, or None.
        idle_timeout: seconds without a sign of progress, or None.
        refresh_on: which signs count: `"auto"`, writes, stream chunks, calls and heartbeats; `"heartbeat"`,
            `runtime.heartbeat()` alone.
    Raises:
        PolicyError: a field holds what it cannot mean.
    """

    run_timeout: float | None
    idle_timeout: float | None
    refresh_on: Literal["auto", "heartbeat"]

    def __init__(
        self,
        *,
        run_timeout: Duration | None = None,
        idle_timeout: Duration | None = None,
        refresh_on: Literal["auto", "heartbeat"] = "auto",
    ) -> None:
        if refresh_on not in ("auto", "heartbeat"):
            raise PolicyError("refresh_on", refresh_on, '"auto" or "heartbeat"')
        _set(self, "run_timeout", None if run_timeout is None else seconds(run_timeout, "run_timeout"))
        _set(self, "idle_timeout", None if idle_timeout is None else seconds(idle_timeout, "idle_timeout"))
        _set(self, "refresh_on", refresh_on)

    @classmethod
    def coerce(cls, given: Duration | TimeoutPolicy | None) -> TimeoutPolicy | None:
        """The policy that `timeout=` stands for: a duration limits the run; None where nothing is limited."""
        if given is None:
            return None
        policy = given if isinstance(given, TimeoutPolicy) else cls(run_timeout=seconds(given, "timeout"))
        return None if policy.run_timeout is None and policy.idle_timeout is None else policy


@dataclass(frozen=True, slots=True, init=False)
class CachePolicy:
    """How a task's results are kept over runs and threads.

    Attributes:
        key_func: called with the task's arguments, gives what names the entry instead of the arguments.
        ttl: seconds an entry lives; None for ever.
        version: part of the key instead of the code's own digest.
    Raises:
        PolicyError: a field holds what it cannot mean.
    """

    key_func: Callable[..., Hashable] | None
    ttl: float | None
    version: str | None

    def __init__(
        self,
        key_func: Callable[..., Hashable] | None = None,
        ttl: Duration | None = None,
        version: str | int | None = None,
    ) -> None:
        if key_func is not None and (not callable(key_func) or inspect.iscoroutinefunction(key_func)):
            raise PolicyError("key_func", key_func, "a plain function of the task's arguments")
        if version is not None and (isinstance(version, bool) or not isinstance(version, str | int) or version == ""):
            raise PolicyError("version", version, "a text or a whole number, another one for code that differs")
        _set(self, "key_func", key_func)
        _set(self, "ttl", None if ttl is None else seconds(ttl, "ttl"))
        _set(self, "version", None if version is None else str(version))

    @classmethod
    def coerce(cls, given: bool | Duration | CachePolicy | None) -> CachePolicy | None:
        """The policy that `cache_policy=` stands for: True keeps for ever, a duration so long; False is None."""
        if given is None or given is False:
            return None
        if isinstance(given, CachePolicy):
            return given
        return cls() if given is True else cls(ttl=seconds(given, "cache_policy"))


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """How often attempts of a task may start, in all threads and processes that share its database.

    Attributes:
        count: how many may start in any `per` seconds.
        per: those seconds.
    Raises:
        PolicyError: a field holds what it cannot mean.
    """

    count: int
    per: float

    def __init__(self, count: int, per: Duration = 1.0) -> None:
        _set(self, "count", whole(count, "count"))
        _set(self, "per", seconds(per, "per"))

    @classmethod
    def coerce(cls, given: str | Rate | None) -> Rate | None:
        """The rate that `rate=` stands for, such as `"5/s"`, `"100/m"` or `"10/3s"`; None stays None."""
        if given is None or isinstance(given, Rate):
            return given
        match = _RATE.fullmatch(given.strip()) if isinstance(given, str) else None
        if match is None:
            raise PolicyError("rate", given, 'starts and a duration, such as "5/s", "100/m" or "10/3s", or a Rate')
        count, amount, unit = match.groups()
        return cls(int(count), float(amount or 1) * UNITS[unit])
