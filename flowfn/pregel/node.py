"""A unit of work: what triggers it, what it reads, what runs, and how its result becomes writes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import CellType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from flowfn.pregel import callee
from flowfn.pregel.code import innermost
from flowfn.types import MISSING, CachePolicy, RetryPolicy, TimeoutPolicy

if TYPE_CHECKING:
    from flowfn.pregel.program import Pregel

Writer: TypeAlias = Callable[[Any], Iterable[tuple[str, Any]]]
"""From a node's result to its (channel, value) writes."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one channel, of a node's result or what a mapper makes of it.

    Attributes:
        channel: its name.
        mapper: from the result to the value; `MISSING` from it writes nothing. None writes the result itself.
        skip_none: write nothing when the value is None.
    """

    channel: str
    mapper: Callable[[Any], Any] | None = None
    skip_none: bool = False

    def __call__(self, result: Any) -> Iterable[tuple[str, Any]]:
        """The write of this result, or none."""
        value = result if self.mapper is None else self.mapper(result)
        if value is MISSING or (value is None and self.skip_none):
            return ()
        return ((self.channel, value),)


def _identity(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Node:
    """A unit of work.

    Attributes:
        name: unique among the nodes of a program.
        triggers: channels of which a new version makes the node due.
        channels: what it reads: one name gives that channel's value, several a dict of those that have a value, and a
            mapping such a dict under other keys (key → channel).
        bound: what runs, with what it reads as its one argument; sync or async.
        writers: what makes writes of its result.
        policies: fields of its `Callee`: retry, timeout, cache.
        tags, metadata: about the node, for whoever watches.
        abound: what runs instead of `bound` where an event loop drives, for what can be had both ways.
        mapper: makes what `bound` takes of what was read.
        handler: the node that runs in its place when it has failed for good.
        inner: the program that it is, for a flow inside a flow; `called` the one that its function calls.
        is_hidden: whether it is none of the user's, and no watcher is told of it.
        is_async: whether `bound` gives an awaitable.
    """

    name: str
    triggers: tuple[str, ...] = ()
    channels: str | tuple[str, ...] | Mapping[str, str] = ()
    bound: Callable[..., Any] = _identity
    writers: tuple[Writer, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    policies: Mapping[str, Any] = field(default_factory=dict)
    abound: Callable[..., Any] | None = None
    mapper: Callable[[Any], Any] | None = None
    handler: str | None = None
    inner: Pregel | None = None
    called: Pregel | None = None
    is_hidden: bool = False
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", callee.is_async(self.bound))

    @property
    def program(self) -> Pregel | None:
        """The program that it is or calls."""
        return self.inner or self.called

    def writes(self, result: Any) -> list[tuple[str, Any]]:
        """The (channel, value) writes that this result stands for, in the order of the writers."""
        return [write for writer in self.writers for write in writer(result)]


def called_program(action: Any) -> Pregel | None:
    """The program that a function names, the first of several, as far as it can be known before it runs."""
    function = innermost(action)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    held = [cell.cell_contents for _, cell in cells if cell != CellType()]
    named = [function.__globals__.get(name) for name in code.co_names]
    return next((value for value in [*held, *named] if hasattr(type(value), "get_subgraphs")), None)


class NodeBuilder:
    """Builds a node for a `Pregel` program, call after call."""

    __slots__ = ("_bound", "_channels", "_metadata", "_policies", "_tags", "_triggers", "_writers")

    def __init__(self) -> None:
        self._channels: str | list[str] = []
        self._triggers: list[str] = []
        self._bound: Callable[..., Any] | None = None
        self._writers: list[Writer] = []
        self._tags: list[str] = []
        self._metadata: dict[str, Any] = {}
        self._policies: dict[str, Any] = {}

    def subscribe_only(self, channel: str) -> Self:
        """Be due when this channel moves, and take its value as input."""
        if self._channels:
            raise ValueError(f"`subscribe_only({channel!r})` came after the node was set to read {self._channels!r}.")
        self._channels = channel
        self._triggers.append(channel)
        return self

    def subscribe_to(self, *channels: str, read: bool = True) -> Self:
        """Be due when any of these channels moves; with `read`, take them into the dict that is the input."""
        if read:
            self.read_from(*channels)
        elif isinstance(self._channels, str):
            raise self._reads_one(channels)
        self._triggers.extend(channels)
        return self

    def read_from(self, *channels: str) -> Self:
        """Take these channels into the dict that is the input, without being due when they move."""
        if isinstance(self._channels, str):
            raise self._reads_one(channels)
        self._channels.extend(channels)
        return self

    def do(self, function: Callable[..., Any]) -> Self:
        """Run this function; a second one takes what the first returned."""
        self._bound = function if self._bound is None else _chained(self._bound, function)
        return self

    def write_to(self, *channels: str | Writer, **values: Any) -> Self:
        """Write the result to these channels; as keywords, what a callable makes of it, or a constant."""
        self._writers += [Write(channel) if isinstance(channel, str) else channel for channel in channels]
        self._writers += [
            Write(channel, value if callable(value) else functools.partial(_constant, value))
            for channel, value in values.items()
        ]
        return self

    def meta(self, *tags: str, **metadata: Any) -> Self:
        """Say something about the node to whoever watches."""
        self._tags.extend(tags)
        self._metadata.update(metadata)
        return self

    def add_retry_policies(self, *policies: RetryPolicy) -> Self:
        """Run the node again after a failure, as the first policy says that the error matches."""
        self._policies["retry"] = (*self._policies.get("retry", ()), *(RetryPolicy.coerce(policies) or ()))
        return self

    def add_cache_policy(self, policy: callee.CachePolicies) -> Self:
        """Keep what the node gives over threads and runs, in the program's cache."""
        self._policies["cache"] = CachePolicy.coerce(policy)
        return self

    def set_timeout(self, timeout: callee.Timeouts) -> Self:
        """Limit how long one attempt may take."""
        self._policies["timeout"] = TimeoutPolicy.coerce(timeout)
        return self

    def build(self, name: str = "") -> Node:
        """The node; a program gives it the name it stands under."""
        return Node(
            name=name,
            triggers=tuple(self._triggers),
            channels=self._channels if isinstance(self._channels, str) else tuple(self._channels),
            bound=self._bound or _identity,
            writers=tuple(self._writers),
            tags=tuple(self._tags),
            metadata=dict(self._metadata),
            policies=dict(self._policies),
        )

    def _reads_one(self, channels: tuple[str, ...]) -> ValueError:
        return ValueError(f"The node takes the value of `{self._channels}` alone, so it cannot read {channels!r} too.")


def _constant(value: Any, result: Any) -> Any:
    return value


def _chained(first: Callable[..., Any], second: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function that hands what the first gives to the second; async if either is."""
    if not (callee.is_async(first) or callee.is_async(second)):

        @functools.wraps(first)
        def chain(*args: Any, **kwargs: Any) -> Any:
            return second(first(*args, **kwargs))

        return chain

    @functools.wraps(first)
    async def achain(*args: Any, **kwargs: Any) -> Any:
        between = first(*args, **kwargs)
        if inspect.isawaitable(between):
            between = await between
        result = second(between)
        return await result if inspect.isawaitable(result) else result

    return achain
