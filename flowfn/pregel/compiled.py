"""What loops ask of a program: its channels, its nodes, and how values go in and come out. Nothing here waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from flowfn.cache.base import Cache
from flowfn.channels import Channel
from flowfn.errors import ConfigError, EmptyInputError, InvalidUpdateError, UnknownNodeError, listed
from flowfn.executors.base import Where
from flowfn.identity import digest
from flowfn.pregel import staging
from flowfn.pregel.callee import Callee, callee_of
from flowfn.pregel.calls import Call, NodeCall
from flowfn.pregel.course import Course
from flowfn.pregel.node import Node, NodeBuilder
from flowfn.pregel.plan import Channels, View, path_text
from flowfn.pregel.terms import Breakpoints
from flowfn.pregel.update import listeners_of
from flowfn.types import MISSING, Command, OnBusy

Keys = str | Sequence[str]


class Compiled:
    """The fixed part of a program, shared by all its runs.

    Attributes:
        name: under which it owns its threads.
        nodes: name → node.
        listeners: who has to be told of a super-step.
        as_callee: the program as something that a flow around it calls.
        cache: keeps results of tasks with a cache policy.
        executor: where its tasks run that do not say, or None for threads.
        max_running: how many of its runs there may be at once, None for any number.
        on_busy: what a run does that finds its thread, or the whole flow, busy.
        is_function: whether it is one function, whose calls make super-steps of their own.
        defaults: policies of nodes that have none.
        managed: name → from the number of super-steps that are left to what nodes read under that name.
        interrupt_before, interrupt_after: nodes that a run stops at, `"*"` for all.
    """

    is_function = False
    cache: Cache | None = None
    executor: Where | None = None
    max_running: int | None = None
    on_busy: OnBusy = "raise"
    context_schema: type[Any] | None = None
    managed: Mapping[str, Callable[[int], Any]] = {}
    defaults: Mapping[str, Any] = {}
    interrupt_before: Breakpoints = ()
    interrupt_after: Breakpoints = ()

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, Node | NodeBuilder],
        channels: Mapping[str, Channel[Any, Any, Any]],
        input_channels: Keys,
        output_channels: Keys,
        stream_channels: Keys | None,
    ) -> None:
        self.name = name
        self.nodes = {key: _named(key, node) for key, node in nodes.items()}
        self._fresh = dict(channels)
        for key, channel in self._fresh.items():
            channel.key = key
        self.input_channels, self.output_channels = input_channels, output_channels
        self.stream_channels: Keys = list(self._fresh) if stream_channels is None else stream_channels
        self._check()
        self.listeners = listeners_of(self.nodes, self._fresh)
        self.as_callee = Callee(
            fn=type(self),
            name=name.rpartition(":")[2],
            title=name,
            identity=digest(b"flow", name.encode()),
            is_async=False,
            parameters=("input",),
            bind=lambda args, kwargs: args,
            injected={},
        )
        self._callees = {key: self._callee_of(node) for key, node in self.nodes.items()}
        self._acallees = {
            key: replace(self._callees[key], fn=node.abound, is_async=True)
            for key, node in self.nodes.items()
            if node.abound is not None
        }

    def _check(self) -> None:
        for node in self.nodes.values():
            for trigger in node.triggers:
                if trigger not in self._fresh:
                    raise UnknownNodeError(f"Node `{node.name}` is triggered by a channel that", trigger, self._fresh)
        self.check_breakpoints(self.interrupt_before, self.interrupt_after)
        for keys in (self.input_channels, self.output_channels, self.stream_channels):
            unknown = [key for key in _several(keys) if key not in self._fresh]
            if unknown:
                raise ConfigError(f"Program `{self.name}` names {listed(unknown)}, which is no channel of it.")

    def check_breakpoints(self, *said: Breakpoints | None) -> None:
        """See that these are nodes to stop at.

        Raises:
            UnknownNodeError: one of them is no node.
        """
        for name in [name for names in said for name in names or ()]:
            if name not in self.nodes and name != "*":
                raise UnknownNodeError("`interrupt_before` or `interrupt_after`", name, self.nodes)

    def __flow_key__(self) -> str:
        """By which a call knows it again that is given it, or made by a function that holds it."""
        return self.name

    def clone(self) -> Self:
        """Another object of the same program, to be changed."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    # --- nodes

    def _callee_of(self, node: Node) -> Callee:
        return callee_of(node.bound, node.name, **{**self.defaults, **node.policies})

    def callee(self, node: str, is_awaited: bool = False) -> Callee:
        """What a node calls, where an event loop drives or not."""
        return (is_awaited and self._acallees.get(node)) or self._callees[node]

    def writes(self, node: Call) -> list[tuple[str, Any]]:
        """What a finished node writes, (channel, value) in order."""
        assert isinstance(node, NodeCall)
        if node.handled:
            return []
        if node.stored_writes is None:
            node.result_writes = node.result_writes or node.task.node.writes(node.value)
            return node.result_writes
        return node.stored_writes

    def path_text(self, node: Call) -> str:
        assert isinstance(node, NodeCall)
        return path_text(node.task.path)

    @property
    def cache_in(self) -> Cache | None:
        """The cache that keeps its tasks' results here and now: its own, or under test that of the stage."""
        stage = staging.current()
        return self.cache if stage is None else stage.cache

    # --- channels

    def new_channels(self) -> dict[str, Channel[Any, Any, Any]]:
        return {name: channel.from_checkpoint(MISSING) for name, channel in self._fresh.items()}

    def channel_title(self, name: str) -> str:
        """How a message calls what is in a channel."""
        return f"The value of channel `{name}`"

    def context_of(self, given: Any) -> Any:
        """The run-scoped context as functions see it: a dict becomes an instance of the schema, if there is one."""
        schema = self.context_schema
        return schema(**given) if schema is not None and isinstance(given, dict) and schema is not dict else given

    def input_writes(self, input: Any) -> list[tuple[str, Any]]:
        """The writes that an input stands for.

        Raises:
            InvalidUpdateError: several input channels, and the input is no dict.
        """
        if isinstance(self.input_channels, str):
            return [(self.input_channels, input)]
        if not isinstance(input, Mapping):
            raise InvalidUpdateError(
                f"`{self.name}` takes a dict with {listed(self.input_channels)}, not a `{type(input).__name__}`."
            )
        writes = [(name, input[name]) for name in self.input_channels if name in input]
        if not writes:
            raise EmptyInputError(self.name, None)
        return writes

    def output(self, channels: Channels, keys: Keys) -> Any:
        """What the channels show: one value, None when it is empty, or a dict of those that have one."""
        if isinstance(keys, str):
            return channels[keys].lent() if channels[keys].is_available() else None
        return View(channels).values(keys)

    def command_writes(self, command: Command[Any]) -> list[tuple[str, Any]]:
        """The writes that a command stands for that was given as input.

        Raises:
            InvalidUpdateError: the program has no state to update, and no nodes to go to.
        """
        if command.update is None and not command.goto:
            return []
        raise InvalidUpdateError(f"`{self.name}` is no graph: a Command can only answer its questions (`resume`).")

    def update_course(self, node: str, values: Any, view: View) -> Course[list[tuple[str, Any]]]:
        """The writes that a node would have made that had returned `values`."""
        return self.nodes[node].writes(values)
        yield

    def shows(self, moved: set[str], keys: Keys) -> bool:
        """Whether a watcher of these channels sees a difference."""
        return not moved.isdisjoint(_several(keys))

    def shown_update(self, node: NodeCall, keys: Keys) -> Any:
        """What a watcher of these channels sees a node do: its writes, one after another if it wrote to one of them
        twice; None for nothing."""
        writes = _shown(self.writes(node), keys)
        each = [value for _, value in writes] if isinstance(keys, str) else [{name: value} for name, value in writes]
        if not isinstance(keys, str) and len(dict(writes)) == len(writes):
            return dict(writes) or None
        return each if len(each) > 1 else each[0] if each else None

    def shown_result(self, writes: Sequence[tuple[str, Any]]) -> Any:
        """A finished node's writes as states show them: one value, or a dict."""
        shown = joined_writes(_shown(writes, self.stream_channels))
        return shown.get(self.stream_channels) if isinstance(self.stream_channels, str) else shown

    def shown_writes(self, node: NodeCall, keys: Keys) -> dict[str, Any]:
        """A node's writes to these channels."""
        return joined_writes(_shown(self.writes(node), keys))

    def previous(self, channels: Channels) -> Any:
        """What the thread's last finished run left for the next, or `MISSING`."""
        return MISSING


def _named(name: str, node: Node | NodeBuilder) -> Node:
    if isinstance(node, NodeBuilder):
        return node.build(name)
    return node if node.name == name else replace(node, name=name)


def _shown(writes: Sequence[tuple[str, Any]], keys: Keys) -> list[tuple[str, Any]]:
    names = _several(keys)
    return [write for write in writes if write[0] in names]


def joined_writes(writes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Name → what was written, or `{"$writes": […]}` if that was several times."""
    whole: dict[str, Any] = dict(writes)
    if len(whole) < len(writes):
        several = {name: [value for other, value in writes if other == name] for name in whole}
        whole = {name: values[0] if len(values) == 1 else {"$writes": values} for name, values in several.items()}
    return whole


def _several(keys: Keys) -> Sequence[str]:
    return (keys,) if isinstance(keys, str) else keys
