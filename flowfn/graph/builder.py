"""`StateGraph`: nodes and edges, put together and checked, from which a program is compiled."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, get_args, get_origin

from flowfn.cache import Cache
from flowfn.channels import Channel, LastValue
from flowfn.checkpoint import Saver
from flowfn.errors import GraphError, NotATaskError, UnknownNodeError
from flowfn.graph.branch import Branch, path_ends
from flowfn.graph.compile import CompiledStateGraph
from flowfn.graph.managed import ManagedValue
from flowfn.graph.names import DEFAULT_HANDLER, END, SEPARATORS, START, handler_of
from flowfn.graph.schema import Fields, fields_of, first_hint, returned_hint
from flowfn.graph.step import path_of
from flowfn.pregel.callee import CachePolicies, RetryPolicies, Timeouts, kind_of_generator, policies, short_name
from flowfn.pregel.program import Pregel
from flowfn.types import Command

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    StateT = TypeVar("StateT")
    ContextT = TypeVar("ContextT", default=None)
    InputT = TypeVar("InputT", default=StateT)
    OutputT = TypeVar("OutputT", default=StateT)
else:
    from typing import TypeVar

    StateT, ContextT, InputT, OutputT = map(TypeVar, ("StateT", "ContextT", "InputT", "OutputT"))


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as it was added.

    Attributes:
        action: what runs.
        input_schema: the schema of what it is given.
        defer: whether it waits until nothing else is due.
        metadata: for whoever watches.
        policies: fields of its `Callee`.
        handler: the node that runs when it has failed for good.
        is_handler: whether it is such a node.
        ends: where it may go by itself, for pictures: names, or name → label.
    """

    action: Any
    input_schema: Any
    defer: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    policies: Mapping[str, Any] = field(default_factory=dict)
    handler: str | None = None
    is_handler: bool = False
    ends: Sequence[str] | Mapping[str, str] | None = None


class StateGraph(Generic[StateT, ContextT, InputT, OutputT]):
    """Nodes that read a shared state and write updates of it, and edges that say which comes next.

    A node is a function from the state to an update: a dict with some of its keys, an instance of a schema, a
    `Command`, or None. Nodes that are due run at the same time, all on the state as it stood before; then their updates
    are joined, key by key, by what the schema says of the key: `Annotated[T, reducer]`, `Annotated[T, SomeChannel]`, or
    else one value a super-step. What a node is given is its own copy.

    Args:
        state_schema: TypedDict, dataclass or pydantic model; any other type is a state of one value.
        context_schema: class of the run-scoped `context=`; a dict is made into one.
        input_schema: what `invoke` takes, by default the whole state.
        output_schema: what `invoke` gives, by default the whole state.
    Raises:
        GraphError: a schema says two different things of one key.
    """

    def __init__(
        self,
        state_schema: type[StateT],
        context_schema: type[ContextT] | None = None,
        *,
        input_schema: type[InputT] | None = None,
        output_schema: type[OutputT] | None = None,
    ) -> None:
        self.state_schema, self.context_schema = state_schema, context_schema
        self.input_schema: Any = input_schema or state_schema
        self.output_schema: Any = output_schema or state_schema
        self.nodes: dict[str, NodeSpec] = {}
        self.edges: dict[tuple[str, str], None] = {}
        self.waiting_edges: dict[tuple[tuple[str, ...], str], None] = {}
        self.branches: dict[str, dict[str, Branch]] = {}
        self.schemas: dict[int, tuple[Any, Fields]] = {}
        self.channels: dict[str, Channel[Any, Any, Any]] = {}
        self.managed: dict[str, type[ManagedValue]] = {}
        self._defaults: dict[str, Any] = {}
        self._default_handler: Any = None
        self._is_compiled = False
        for schema in (self.state_schema, self.input_schema, self.output_schema):
            self._add_schema(schema, may_manage=schema is self.state_schema)

    # --- schemas

    def fields(self, schema: Any) -> Fields:
        """The channels and managed values of a schema that the graph knows."""
        return self.schemas[id(schema)][1]

    def _add_schema(self, schema: Any, may_manage: bool = True) -> None:
        if id(schema) in self.schemas:
            return
        fields = fields_of(schema)
        if fields.managed and not may_manage:
            raise GraphError(
                f"Schema `{_title(schema)}` of the input or output has `{next(iter(fields.managed))}`, whose value is "
                "computed for each super-step and can be neither given nor taken."
            )
        self.schemas[id(schema)] = (schema, fields)
        for key, channel in fields.channels.items():
            known = self.channels.setdefault(key, channel)
            if known == channel or isinstance(channel, LastValue):
                continue
            if not isinstance(known, LastValue):
                raise GraphError(f"Key `{key}` has another channel in schema `{_title(schema)}` than in one before.")
            self.channels[key] = channel
        self.managed.update(fields.managed)

    # --- nodes

    def add_node(
        self,
        node: str | Callable[..., Any] | Any,
        action: Callable[..., Any] | Any = None,
        *,
        defer: bool = False,
        metadata: Mapping[str, Any] | None = None,
        input_schema: Any = None,
        retry_policy: RetryPolicies | None = None,
        cache_policy: CachePolicies | None = None,
        error_handler: Callable[..., Any] | None = None,
        destinations: Sequence[str] | Mapping[str, str] | None = None,
        timeout: Timeouts | None = None,
    ) -> Self:
        """Add a node.

        Args:
            node: its name; or what runs, which is then called by its own name.
            action: a function, sync or async, or a compiled graph or flow. It takes the state, and may ask by name for
                `config`, `runtime`, `store`, `writer` or `previous`.
            defer: run only when nothing else is due.
            metadata: for whoever watches.
            input_schema: what it is given, with keys of its own if need be; by default what its first parameter is
                annotated as, else the state. A node that reads less is given less.
            retry_policy, cache_policy, timeout: as of a task.
            error_handler: a function of the state and `error: NodeError` that runs when the node has failed for good,
                and gives an update in its place.
            destinations: where it may go by a `Command`, for pictures: names, or name → label.
        Raises:
            GraphError: the name is taken, reserved, or cannot be one.
            NotATaskError: the action is a generator function.
        """
        name, action = (node, action) if isinstance(node, str) else (_name(node), node)
        if action is None:
            raise GraphError(f"Node `{name}` has nothing to run: `add_node({name!r}, function)`.")
        self._check_name(name)
        self._check_action(name, action)
        if self._is_compiled:
            logger.warning("Node `%s` was added to a graph that was compiled before; that program lacks it.", name)
        schema = input_schema or self._inferred_schema(action) or self.state_schema
        self._add_schema(schema)
        handler = self._add_handler(name, error_handler, schema) if error_handler is not None else None
        self.nodes[name] = NodeSpec(
            action=action,
            input_schema=schema,
            defer=defer,
            metadata=dict(metadata or {}),
            policies=policies(retry_policy=retry_policy, cache_policy=cache_policy, timeout=timeout),
            handler=handler,
            ends=destinations if destinations is not None else _said_ends(action),
        )
        return self

    def _add_handler(self, node: str, error_handler: Any, schema: Any) -> str:
        name = handler_of(node)
        self.nodes[name] = NodeSpec(error_handler, schema, is_handler=True)
        return name

    def _check_name(self, name: str) -> None:
        if name in (START, END):
            raise GraphError(f"`{name}` names an end of the graph, so no node can have that name.")
        if name in self.nodes:
            raise GraphError(f"The graph has a node `{name}` already. Give this one another name.")
        for separator in SEPARATORS:
            if separator in name:
                raise GraphError(f"`{separator}` is reserved, so no node can be called `{name}`.")

    def _check_action(self, name: str, action: Any) -> None:
        kind = kind_of_generator(action) if callable(action) else None
        if kind is not None:
            raise NotATaskError(name, kind)
        if isinstance(action, StateGraph):
            raise GraphError(f"Node `{name}` is a graph that is not compiled: `add_node({name!r}, graph.compile())`.")
        if not (callable(action) or isinstance(action, Pregel) or hasattr(action, "invoke")):
            raise GraphError(
                f"Node `{name}` cannot run a `{type(action).__name__}`: give a function or compiled graph."
            )

    def _inferred_schema(self, action: Any) -> Any:
        """What the action's first parameter is annotated as, if that can be a schema."""
        hint = None if isinstance(action, Pregel) else first_hint(action)
        return hint if isinstance(hint, type) and getattr(hint, "__annotations__", None) else None

    def set_node_defaults(
        self,
        *,
        retry_policy: RetryPolicies | None = None,
        cache_policy: CachePolicies | None = None,
        error_handler: Callable[..., Any] | None = None,
        timeout: Timeouts | None = None,
    ) -> Self:
        """Set policies of all nodes that have none of their own; those of inner graphs are not touched.

        Neither the cache policy nor the error handler counts for error handlers.
        """
        self._defaults.update(policies(retry_policy=retry_policy, cache_policy=cache_policy, timeout=timeout))
        self._default_handler = error_handler or self._default_handler
        return self

    # --- edges

    def add_edge(self, start_key: str | Sequence[str], end_key: str) -> Self:
        """Go from a node to another one; from several, once all of them have run.

        Raises:
            GraphError: it leaves the end, or goes to the start.
        """
        sources = [start_key] if isinstance(start_key, str) else list(start_key)
        if END in sources:
            raise GraphError(f"The edge to `{end_key}` starts at END, where the graph is over.")
        if end_key == START:
            raise GraphError(f"The edge from `{sources[0]}` goes to START, where the graph only begins.")
        if isinstance(start_key, str):
            self.edges[start_key, end_key] = None
            return self
        for name in sources:
            if name not in self.nodes:
                raise UnknownNodeError(f"The edge to `{end_key}`", name, self.nodes)
        if end_key != END and end_key not in self.nodes:
            raise UnknownNodeError(f"The edge from `{'`, `'.join(sources)}`", end_key, self.nodes)
        self.waiting_edges[tuple(sources), end_key] = None
        return self

    def add_conditional_edges(
        self,
        source: str,
        path: Any,
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """Go from a node to where a function of the state says.

        Args:
            source: the node, or START.
            path: gives a node's name, a `Send`, END, or several of them. It sees the state with what the node has just
                written.
            path_map: what `path` may give → the node that is meant; or the names it may give. Pictures show the edges
                that it names, or that the path's result does, annotated as a `Literal`.
        Raises:
            GraphError: the node has such an edge with a function of the same name.
        """
        name = _name(path)
        branches = self.branches.setdefault(source, {})
        if name in branches:
            raise GraphError(f"Node `{source}` has a conditional edge by a function `{name}` already.")
        schema = self._inferred_schema(path)
        if schema is not None:
            self._add_schema(schema)
        branches[name] = Branch(source, name, path_of(path), path_ends(path, path_map), schema)
        return self

    def add_sequence(self, nodes: Sequence[Callable[..., Any] | tuple[str, Callable[..., Any]]]) -> Self:
        """Add nodes that run one after another; each is a function, or a name and a function.

        Raises:
            GraphError: there are none.
        """
        if not nodes:
            raise GraphError("A sequence needs at least one node.")
        before: str | None = None
        for node in nodes:
            name, action = node if isinstance(node, tuple) else (_name(node), node)
            self.add_node(name, action)
            if before is not None:
                self.add_edge(before, name)
            before = name
        return self

    def set_entry_point(self, key: str) -> Self:
        """Begin with this node: `add_edge(START, key)`."""
        return self.add_edge(START, key)

    def set_conditional_entry_point(
        self, path: Callable[..., Any], path_map: Mapping[Hashable, str] | Sequence[str] | None = None
    ) -> Self:
        """Begin where a function of the input says: `add_conditional_edges(START, path)`."""
        return self.add_conditional_edges(START, path, path_map)

    def set_finish_point(self, key: str) -> Self:
        """End with this node: `add_edge(key, END)`."""
        return self.add_edge(key, END)

    # --- compiling

    def validate(self, interrupt: Sequence[str] | None = None) -> Self:
        """Check that all edges lead from nodes to nodes, and that one leads from START.

        Args:
            interrupt: names of nodes to stop at.
        Raises:
            UnknownNodeError: one of the names is no node.
            GraphError: no edge leaves START.
        """
        several = [(source, end) for sources, end in self.waiting_edges for source in sources]
        for source, end in [*self.edges, *several]:
            self._check_source(f"The edge to `{end}`", source)
            if end not in self.nodes and end != END:
                raise UnknownNodeError(f"The edge from `{source}`", end, self.nodes)
        for source, branches in self.branches.items():
            for branch in branches.values():
                self._check_source(f"The conditional edge `{branch.name}`", source)
                for end in (branch.ends or {}).values():
                    if end not in self.nodes and end != END:
                        raise UnknownNodeError(branch.title, end, self.nodes)
        for name, spec in self.nodes.items():
            for end in spec.ends or ():
                if end not in self.nodes and end != END:
                    raise UnknownNodeError(f"`destinations` of node `{name}`", end, self.nodes)
        if START not in self.branches and all(source != START for source, _ in [*self.edges, *several]):
            raise GraphError("No edge leaves START, so nothing would run: `graph.add_edge(START, some_node)`.")
        for name in interrupt or ():
            if name not in self.nodes:
                raise UnknownNodeError("`interrupt_before` or `interrupt_after`", name, self.nodes)
        self._is_compiled = True
        return self

    def _check_source(self, where: str, source: str) -> None:
        if source not in self.nodes and source != START:
            raise UnknownNodeError(where, source, self.nodes)

    def compile(
        self,
        checkpointer: Saver | str | bool | None = None,
        *,
        cache: Cache | str | os.PathLike[str] | None = None,
        store: Any = None,
        interrupt_before: Literal["*"] | Sequence[str] | None = None,
        interrupt_after: Literal["*"] | Sequence[str] | None = None,
        name: str | None = None,
    ) -> CompiledStateGraph:
        """The graph as a program that can be run.

        Args:
            checkpointer: where its threads are kept: a saver or its address; without one nothing is. For a graph that
                is a node of another one: None to be kept with the run of that, True to go on from its own last state
                in each run, False not to be kept.
            cache: where nodes with a cache policy keep what they gave, over runs and threads.
            store: given to functions that ask for it.
            interrupt_before, interrupt_after: stop before or after these nodes, `"*"` for all.
            name: under which the program owns its threads.
        Raises:
            UnknownNodeError, GraphError: see `validate`.
        """
        breakpoints = [name for said in (interrupt_before, interrupt_after) if said != "*" for name in said or ()]
        self.validate(breakpoints)
        handlers: dict[str, NodeSpec] = {}
        nodes: dict[str, NodeSpec] = {}
        for node, spec in self.nodes.items():
            defaults = {k: v for k, v in self._defaults.items() if not (spec.is_handler and k == "cache")}
            handler = spec.handler
            if self._default_handler is not None and handler is None and not spec.is_handler:
                handler = DEFAULT_HANDLER
                handlers[handler] = NodeSpec(self._default_handler, self.state_schema, is_handler=True)
            nodes[node] = replace(spec, policies={**defaults, **spec.policies}, handler=handler)
        return CompiledStateGraph(
            self,
            {**nodes, **handlers},
            checkpointer=checkpointer,
            cache=cache,
            store=store,
            interrupt_before=interrupt_before or (),
            interrupt_after=interrupt_after or (),
            name=name or "graph",
        )


def _title(schema: Any) -> str:
    return getattr(schema, "__name__", str(schema))


def _name(action: Any) -> str:
    """What a function, or whatever runs, is called by itself.

    Raises:
        GraphError: it has no name.
    """
    name = getattr(action, "name", None) if isinstance(action, Pregel) or hasattr(action, "invoke") else None
    return name or short_name(action)


def _said_ends(action: Any) -> Sequence[str] | None:
    """Where a function goes by the commands that it says it returns: `Command[Literal["a", "b"]]`."""
    hint = None if isinstance(action, Pregel) or not callable(action) else returned_hint(action)
    for said in (hint, *get_args(hint)):
        if get_origin(said) is Command and get_args(said) and get_origin(get_args(said)[0]) is Literal:
            return get_args(get_args(said)[0])
    return None
