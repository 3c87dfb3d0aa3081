"""A graph as a program: each node is due when its channel `branch:to:NODE` is written, or the last source of a join."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from flowfn.cache import Cache
from flowfn.channels import (
    Channel,
    EphemeralValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    Topic,
)
from flowfn.channels.lending import lent
from flowfn.checkpoint import Saver
from flowfn.errors import InvalidUpdateError
from flowfn.graph.names import END, START, branch_to, join_of
from flowfn.graph.schema import ROOT, json_schema, mapper_of
from flowfn.graph.step import Step, Write, command_updates, goto_writes
from flowfn.pregel.callee import Callee, callee_of
from flowfn.pregel.course import Course
from flowfn.pregel.draw import Drawn, DrawnNode
from flowfn.pregel.node import Node, called_program
from flowfn.pregel.plan import TASKS, View
from flowfn.pregel.program import Pregel
from flowfn.types import Command, Send

if TYPE_CHECKING:
    from flowfn.graph.builder import NodeSpec, StateGraph


class CompiledStateGraph(Pregel):
    """A graph that can be run.

    Attributes:
        builder: the graph it was compiled from.
    """

    def __init__(
        self,
        builder: StateGraph[Any, Any, Any, Any],
        specs: Mapping[str, NodeSpec],
        *,
        checkpointer: Saver | str | bool | None,
        cache: Cache | str | os.PathLike[str] | None,
        store: Any,
        interrupt_before: Literal["*"] | Sequence[str],
        interrupt_after: Literal["*"] | Sequence[str],
        name: str,
    ) -> None:
        self.builder = builder
        self._specs = specs
        self._steps = self._new_steps()
        super().__init__(
            nodes={START: self._start(), **{name: self._node(name, spec) for name, spec in specs.items()}},
            channels=self._new_channels(),
            input_channels=START,
            output_channels=_one_or_several(builder.fields(builder.output_schema).channels),
            stream_channels=_one_or_several(builder.channels),
            stream_mode="updates",
            checkpointer=checkpointer,
            cache=cache,
            store=store,
            context_schema=builder.context_schema,
            interrupt_before_nodes=interrupt_before,
            interrupt_after_nodes=interrupt_after,
            managed={key: kind.value for key, kind in builder.managed.items()},
            name=name,
        )

    # --- what it is made of

    def _new_steps(self) -> dict[str, Step]:
        """Each node, with the edges that leave it."""
        builder = self.builder
        given = frozenset(builder.fields(builder.input_schema).channels)
        prepares = {key: ready for key, channel in builder.channels.items() if (ready := _prepare_of(channel))}
        steps = {START: Step(START, _unchanged, given, self._specs, prepares)}
        for name, spec in self._specs.items():
            steps[name] = Step(name, spec.action, frozenset(builder.channels), self._specs, prepares)
        for source, end in builder.edges:
            if end != END:
                steps[source].edges.append((branch_to(end), None))
        for sources, end in builder.waiting_edges:
            for source in sources if end != END else ():
                steps[source].edges.append((join_of(sources, end), source))
        for source, branches in builder.branches.items():
            for branch in branches.values():
                schema = branch.input_schema or self._schema_of(source)
                steps[source].branches.append((branch, builder.fields(schema).keys, mapper_of(schema)))
        return steps

    def _schema_of(self, node: str) -> Any:
        return self._specs[node].input_schema if node in self._specs else self.builder.state_schema

    def _new_channels(self) -> dict[str, Channel[Any, Any, Any]]:
        builder = self.builder
        channels = {**builder.channels, START: EphemeralValue(builder.input_schema), TASKS: Topic(Send)}
        for name, spec in self._specs.items():
            channels[branch_to(name)] = LastValueAfterFinish(Any) if spec.defer else EphemeralValue(Any, guard=False)
        for sources, end in builder.waiting_edges:
            if end != END:
                barrier = NamedBarrierValueAfterFinish if self._specs[end].defer else NamedBarrierValue
                channels[join_of(sources, end)] = barrier(str, set(sources))
        return channels

    def _start(self) -> Node:
        bound = self._steps[START].bound
        return Node(START, triggers=(START,), channels=START, bound=bound, writers=(_itself,), is_hidden=True)

    def _node(self, name: str, spec: NodeSpec) -> Node:
        step = self._steps[name]
        keys = _one_or_several(self.builder.fields(spec.input_schema).keys)
        joins = [join_of(sources, end) for sources, end in self.builder.waiting_edges if end == name]
        return Node(
            name=name,
            triggers=(branch_to(name), *joins),
            channels=keys if isinstance(keys, str) else tuple(keys),
            bound=step.bound,
            abound=step.abound,
            mapper=mapper_of(spec.input_schema),
            writers=(_itself,),
            metadata=spec.metadata,
            policies=spec.policies,
            handler=spec.handler,
            inner=spec.action if isinstance(spec.action, Pregel) else None,
            called=called_program(spec.action),
        )

    @property
    def drawn(self) -> Drawn:
        """What its picture shows."""
        builder = self.builder
        nodes = {
            name: DrawnNode(name, spec.metadata, spec.defer, self.nodes[name].inner, spec.ends)
            for name, spec in self._specs.items()
        }
        branches = [
            (source, name, branch.ends) for source, named in builder.branches.items() for name, branch in named.items()
        ]
        joins = list(builder.waiting_edges)
        return Drawn(nodes, list(builder.edges), joins, branches, self.interrupt_before, self.interrupt_after)

    def get_input_jsonschema(self) -> dict[str, Any]:
        """What `invoke` takes, as a JSON schema; a key whose type has none may be anything."""
        return json_schema(self.builder.input_schema, self.builder.fields(self.builder.input_schema))

    def get_output_jsonschema(self) -> dict[str, Any]:
        """What `invoke` gives, as a JSON schema."""
        return json_schema(self.builder.output_schema, self.builder.fields(self.builder.output_schema))

    # --- what loops ask

    def _callee_of(self, node: Node) -> Callee:
        action = self._steps[node.name].action
        known = callee_of(action if callable(action) and not isinstance(action, Pregel) else _unchanged, node.name)
        return replace(
            known,
            fn=node.bound,
            is_async=node.is_async,
            injected={},
            parameters=("state",),
            bind=lambda args, kwargs: args,
            by_place=1,
            **node.policies,
        )

    def command_writes(self, command: Command[Any]) -> list[tuple[str, Any]]:
        keys = self.channels_of_state
        updates = [(key, value) for key, value in command_updates(command) if key in keys]
        return [*updates, *goto_writes(command, self.builder.nodes, "`goto` of the command")]

    def update_course(self, node: str, values: Any, view: View) -> Course[list[Write]]:
        return self._steps[node].routed(values, view)

    @property
    def channels_of_state(self) -> frozenset[str]:
        """The keys of the state."""
        return frozenset(self.builder.channels)

    def input_writes(self, input: Any) -> list[tuple[str, Any]]:
        """The write of the input to the start.

        Raises:
            InvalidUpdateError: the start could make nothing of it.
        """
        try:
            self._steps[START].updates(input)
        except InvalidUpdateError:
            raise InvalidUpdateError(
                f"The input of `{self.name}` is a `{type(input).__name__}`. Give a dict with keys of its input schema: "
                f"{', '.join(map(repr, sorted(self._steps[START].keys)))}."
            ) from None
        return [(START, lent(input))]


def _one_or_several(keys: Iterable[str]) -> str | list[str]:
    """The keys of a state; of one that is a single value its channel alone."""
    names = list(keys)
    return ROOT if names == [ROOT] else names


def _prepare_of(channel: Channel[Any, Any, Any]) -> Any:
    """What its reducer wants done with a write before it is stored, None for nothing."""
    reducer = getattr(channel, "operator", None) or getattr(channel, "reducer", None)
    return getattr(getattr(reducer, "func", reducer), "prepared", None)


def _unchanged(input: Any) -> Any:
    return input


def _itself(writes: Any) -> Any:
    return writes
