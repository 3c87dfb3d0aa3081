"""What loops ask of a program: its channels, its nodes, and how values go in and come out. Nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from flowfn.pregel.node import Node, NodeBuilder
from flowfn.pregel.plan import Channels, listened_channels, path_text
from flowfn.types import MISSING, OnBusy

Keys = str | Sequence[str]


class Compiled:
    """The fixed part of a program, shared by all its runs.

    Attributes:
        name: under which it owns its threads.
        nodes: name → node.
        listened: channels that make a node due.
        as_callee: the program as something that a flow around it calls.
        cache: keeps results of tasks with a cache policy.
        executor: where its tasks run that do not say, or None for threads.
        max_running: how many of its runs there may be at once, None for any number.
        on_busy: what a run does that finds its thread, or the whole flow, busy.
        is_function: whether it is one function, whose calls make super-steps of their own.
    """

    is_function = False
    cache: Cache | None = None
    executor: Where | None = None
    max_running: int | None = None
    on_busy: OnBusy = "raise"
    context_schema: type[Any] | None = None

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
        self.listened = listened_channels(self.nodes)
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

    def _check(self) -> None:
        for node in self.nodes.values():
            for trigger in node.triggers:
                if trigger not in self._fresh:
                    raise UnknownNodeError(f"Node `{node.name}` is triggered by a channel that", trigger, self._fresh)
        for keys in (self.input_channels, self.output_channels, self.stream_channels):
            unknown = [key for key in _several(keys) if key not in self._fresh]
            if unknown:
                raise ConfigError(f"Program `{self.name}` names {listed(unknown)}, which is no channel of it.")

    def clone(self) -> Self:
        """Another object of the same program, to be changed."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    # --- nodes

    def _callee_of(self, node: Node) -> Callee:
        return callee_of(node.bound, node.name, **node.policies)

    def callee(self, node: str) -> Callee:
        return self._callees[node]

    def writes(self, node: Call) -> list[tuple[str, Any]]:
        """What a finished node writes, (channel, value) in order."""
        assert isinstance(node, NodeCall)
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
        return {name: channel.copy() for name, channel in self._fresh.items()}

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
            return channels[keys].get() if channels[keys].is_available() else None
        return {name: channels[name].get() for name in keys if channels[name].is_available()}

    def shows(self, moved: set[str], keys: Keys) -> bool:
        """Whether a watcher of these channels sees a difference."""
        return not moved.isdisjoint(_several(keys))

    def shown_update(self, node: NodeCall, keys: Keys) -> Any:
        """What a watcher of these channels sees a node do; None for nothing."""
        writes = self.shown_writes(node, keys)
        if isinstance(keys, str):
            return writes.get(keys)
        return writes or None

    def shown_result(self, writes: Sequence[tuple[str, Any]]) -> Any:
        """A finished node's writes as states show them: one value, or a dict."""
        shown = {name: value for name, value in writes if name in _several(self.stream_channels)}
        return shown.get(self.stream_channels) if isinstance(self.stream_channels, str) else shown

    def shown_writes(self, node: NodeCall, keys: Keys) -> dict[str, Any]:
        """A node's writes to these channels."""
        return {name: value for name, value in self.writes(node) if name in _several(keys)}

    def previous(self, channels: Channels) -> Any:
        """What the thread's last finished run left for the next, or `MISSING`."""
        return MISSING


def _named(name: str, node: Node | NodeBuilder) -> Node:
    if isinstance(node, NodeBuilder):
        return node.build(name)
    return node if node.name == name else replace(node, name=name)


def _several(keys: Keys) -> Sequence[str]:
    return (keys,) if isinstance(keys, str) else keys
