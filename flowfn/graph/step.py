"""What a node of a graph does: from the state it is given to the writes that its result stands for.

Its result is turned into writes where the node ran, conditional edges included: they may read what the node has just
written, and what they raise is the node's own failure, with its retries and its error handler.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from flowfn.channels.lending import lent
from flowfn.context import CURRENT, INJECTED
from flowfn.errors import InvalidUpdateError, ParentCommand, UnknownNodeError
from flowfn.graph.branch import Branch
from flowfn.graph.names import END, branch_to
from flowfn.graph.schema import ROOT, Mapper, is_instance_with_keys, keys_of, updates_of
from flowfn.pregel.callee import is_async
from flowfn.pregel.course import Course, Invoke, awaited, plainly
from flowfn.pregel.frame import CallFrame
from flowfn.pregel.plan import TASKS, View
from flowfn.pregel.program import Pregel
from flowfn.types import Command, Send

Write: TypeAlias = tuple[str, Any]


@dataclass
class Step:
    """A node of a graph at work.

    Attributes:
        name: of the node.
        action: what the user gave.
        keys: of the state that it may write.
        nodes: name → anything, of the nodes it may go to.
        prepares: key → what makes a write to it ready to be stored, see `add_messages`.
        edges: the writes that it always makes.
        branches: the conditional edges that leave it, each with the keys it reads and what makes its input of them.
    """

    name: str
    action: Any
    keys: frozenset[str]
    nodes: Mapping[str, Any]
    prepares: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    edges: list[Write] = field(default_factory=list)
    branches: list[tuple[Branch, Sequence[str], Mapper | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._brings = brought_parameters(self.action)
        self._call, self._acall = _called(self.action), _acalled(self.action)

    def __flow_key__(self) -> str:
        return self.name

    @property
    def bound(self) -> Callable[[Any], Any]:
        """The node as a plain function, or as an async one where it can only be awaited."""
        return self._awaited() if is_async(self.action) else self._plain()

    @property
    def abound(self) -> Callable[[Any], Any] | None:
        """The node as an async function, where it can be had both ways."""
        return self._awaited() if isinstance(self.action, Pregel) or _is_runnable(self.action) else None

    def _plain(self) -> Callable[[Any], Any]:
        @functools.wraps(self.action, updated=())
        def node(state: Any) -> list[Write]:
            return plainly(self._course(state, self._call))

        return node

    def _awaited(self) -> Callable[[Any], Any]:
        @functools.wraps(self.action, updated=())
        async def node(state: Any) -> list[Write]:
            return await awaited(self._course(state, self._acall))

        return node

    def _course(self, state: Any, action: Callable[..., Any]) -> Course[list[Write]]:
        frame = _frame()
        kinds = {name: INJECTED[kind](frame) for name, kind in self._brings.items()}
        try:
            result = yield Invoke(action, (state,), kinds)
        except ParentCommand as given:  # by a graph that it called
            result = given.command if isinstance(given.command, Command) else Command()
            result = Command(update=result.update, goto=result.goto)
        return (yield from self.routed(result, frame.run.view, frame.pushed))

    def routed(self, result: Any, view: View, pushed: Sequence[Write] = ()) -> Course[list[Write]]:
        """The writes that a result stands for: updates of the state, then where to go.

        Args:
            view: what the node's super-step sees.
            pushed: what it has written beside its result.
        Raises:
            InvalidUpdateError: it is no update of the state.
            UnknownNodeError: it says to go to what is no node.
            ParentCommand: it is a command to the graph around this one.
        """
        updates = [self._own(key, value) for key, value in [*pushed, *self.updates(result)] if key in self.keys]
        writes = [*updates, *self._goes_to(result), *self.edges]
        after = view.after(updates) if self.branches else view
        for branch, keys, mapper in self.branches:
            value = _state(after, keys, mapper)
            if isinstance(value, dict) and isinstance(result, dict) and branch.input_schema is None:
                value = {**result, **value}
            said = yield Invoke(branch.path, (value,))
            writes += branch.writes(said, self.nodes)
        return writes

    def _own(self, key: str, value: Any) -> Write:
        """A write as it will be stored, which nobody else can change any more."""
        prepare = self.prepares.get(key)
        return key, lent(value if prepare is None else prepare(value))

    def updates(self, result: Any) -> Sequence[Write]:
        """What a result writes to the state, (key, value) in order; also to keys that the state lacks."""
        if result is None:
            return ()
        if isinstance(result, Command):
            return () if result.graph == Command.PARENT else command_updates(result)
        if isinstance(result, list | tuple) and any(isinstance(one, Command) for one in result):
            return [write for one in result for write in self.updates(one)]
        if self.keys == {ROOT}:
            return [(ROOT, result)]
        if isinstance(result, dict):
            return list(result.items())
        if is_instance_with_keys(result):
            return updates_of(result, self.keys)
        raise InvalidUpdateError(
            f"Node `{self.name}` returned a `{type(result).__name__}`, {result!r:.100}. A node returns a dict with "
            "keys of the state, an instance of its schema, a `Command`, a list of these, or None."
        )

    def _goes_to(self, result: Any) -> Iterable[Write]:
        if isinstance(result, Send):
            result = Command(goto=result)
        for command in result if isinstance(result, list | tuple) else [result]:
            if isinstance(command, Command):
                if command.graph == Command.PARENT:
                    raise ParentCommand(command)
                yield from goto_writes(command, self.nodes, f"`goto` of node `{self.name}`")


def command_updates(command: Command[Any]) -> Sequence[Write]:
    """What a command writes to the state, (key, value) in order."""
    update = command.update
    if update is None:
        return ()
    if isinstance(update, dict):
        return list(update.items())
    if isinstance(update, list | tuple) and all(
        isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in update
    ):
        return update
    if is_instance_with_keys(update):
        return updates_of(update, keys_of(type(update)))
    return [(ROOT, update)]


def goto_writes(command: Command[Any], nodes: Mapping[str, Any], where: str) -> Iterable[Write]:
    """The writes by which the nodes that a command goes to become due.

    Raises:
        UnknownNodeError: what it goes to is no node; `where` begins the sentence.
    """
    targets = [command.goto] if isinstance(command.goto, Send | str) else command.goto
    for target in targets:
        name = target.node if isinstance(target, Send) else target
        if name not in nodes and name != END:
            raise UnknownNodeError(where, name, nodes)
        if isinstance(target, Send):
            yield TASKS, target
        elif name != END:
            yield branch_to(name), None


def _state(view: View, keys: Sequence[str], mapper: Mapper | None) -> Any:
    """What a function of the state is given."""
    if list(keys) == [ROOT]:
        return view.value(ROOT)
    values = view.values(keys)
    return values if mapper is None else mapper(values)


# ---------------------------------------------------------------- functions of every kind


def brought_parameters(action: Any) -> dict[str, str]:
    """The parameters after the first that the runtime brings: name → kind."""
    if isinstance(action, Pregel) or _is_runnable(action):
        return {}
    try:
        parameters = list(inspect.signature(action).parameters)
    except (TypeError, ValueError):
        return {}
    return {name: name for name in parameters[1:] if name in INJECTED}


def _is_runnable(action: Any) -> bool:
    """Whether it is something with LangChain's way of being run."""
    return callable(getattr(action, "invoke", None)) and callable(getattr(action, "ainvoke", None))


def _called(action: Any) -> Callable[..., Any]:
    if isinstance(action, Pregel):
        return action.invoke
    return (lambda state: action.invoke(state, _frame().config)) if _is_runnable(action) else action


def _acalled(action: Any) -> Callable[..., Any]:
    if isinstance(action, Pregel):
        return action.ainvoke
    return (lambda state: action.ainvoke(state, _frame().config)) if _is_runnable(action) else action


def path_of(path: Any) -> Callable[[Any], Any]:
    """A conditional edge's path as a function of the state."""
    brings = brought_parameters(path)
    if not brings and not _is_runnable(path):
        return cast(Callable[[Any], Any], path)
    called = _called(path)

    @functools.wraps(path, updated=())
    def brought(state: Any) -> Any:
        spot = CURRENT.get()
        return called(state, **{name: INJECTED[kind](spot.frame) for name, kind in brings.items() if spot is not None})

    return brought


def _frame() -> CallFrame:
    spot = CURRENT.get()
    assert spot is not None
    return cast(CallFrame, spot.frame)
