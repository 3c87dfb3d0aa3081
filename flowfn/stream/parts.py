"""What a watcher sees: one shape a mode, LangGraph's.

An `Events` collects what its watcher asked for; the runtime tells it what happened and asks it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, get_args

from flowfn.errors import ConfigError, listed
from flowfn.stream.messages import MessageStream
from flowfn.types import Interrupt, StreamMode

Namespace = tuple[str, ...]
MODES = frozenset(get_args(StreamMode))


class Part(NamedTuple):
    """One thing that happened, as one mode shows it."""

    ns: Namespace
    mode: str
    data: Any
    interrupts: tuple[Interrupt, ...] = ()


def checked_modes(modes: str | Iterable[str]) -> list[str]:
    """The modes as a list.

    Raises:
        ConfigError: one of them is none.
    """
    names = [modes] if isinstance(modes, str) else list(modes)
    unknown = [name for name in names if name not in MODES]
    if unknown:
        raise ConfigError(f"Stream mode {listed(unknown)} does not exist. Modes: {listed(sorted(MODES))}.")
    return names


class Shape(NamedTuple):
    """How parts are handed out: LangGraph's versions, several modes or one, with or without namespaces."""

    version: str
    several: bool
    subgraphs: bool

    def of(self, part: Part) -> Any:
        if self.version == "v2":
            whole = {"type": part.mode, "ns": part.ns, "data": part.data}
            return {**whole, "interrupts": part.interrupts} if part.mode == "values" else whole
        data = part.data
        if part.mode == "values" and part.interrupts:
            data = (
                {**data, "__interrupt__": part.interrupts}
                if isinstance(data, dict)
                else {"__interrupt__": part.interrupts}
            )
        head = ((part.ns,) if self.subgraphs else ()) + ((part.mode,) if self.several else ())
        return (*head, data) if head else data


class Events:
    """Where a run and the runs nested in it tell what happens.

    Args:
        modes: what the watcher asked for.
        subgraphs: whether it also wants what happens in nested flows.
        put: takes each part, in whatever worker it happened.
    """

    def __init__(self, modes: Sequence[str], subgraphs: bool, put: Callable[[Part], None]) -> None:
        self.modes = frozenset(modes)
        self.subgraphs = subgraphs
        self._put = put
        self.messages: MessageStream | None = None
        if "messages" in self.modes:
            self.messages = MessageStream(lambda ns, data: self.tell(ns, "messages", data), subgraphs)

    def wants(self, *modes: str) -> bool:
        return not self.modes.isdisjoint(modes)

    def tell(self, ns: Namespace, mode: str, data: Any, interrupts: tuple[Interrupt, ...] = ()) -> None:
        if mode in self.modes and (self.subgraphs or not ns or mode == "custom"):
            self._put(Part(ns, mode, data, interrupts))

    def tell_debug(self, ns: Namespace, mode: str, kind: str, step: int, data: Any) -> None:
        """A part of `mode` that `debug` shows as well, wrapped."""
        self.tell(ns, mode, data)
        if "debug" in self.modes:
            now = datetime.now(UTC).isoformat()
            self.tell(ns, "debug", {"step": step, "timestamp": now, "type": kind, "payload": data})


# ---------------------------------------------------------------- shapes


def started(id: str, name: str, input: Any, triggers: Sequence[str], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """`tasks`: a task begins."""
    part = {"id": id, "name": name, "input": input, "triggers": tuple(triggers)}
    return {**part, "metadata": dict(metadata)} if metadata else part


def ended(id: str, name: str, error: BaseException | None, result: Any, asked: Sequence[Interrupt]) -> dict[str, Any]:
    """`tasks`: a task has its outcome, or a question."""
    return {
        "id": id,
        "name": name,
        "error": error,
        "result": result,
        "interrupts": [interrupt_shape(question) for question in asked],
    }


def interrupt_shape(question: Interrupt) -> dict[str, Any]:
    return {"value": question.value, "id": question.id, "response_schema": question.response_schema}


def update(name: str, value: Any, is_cached: bool) -> dict[str, Any]:
    """`updates`: what a task gave."""
    return {name: value, "__metadata__": {"cached": True}} if is_cached else {name: value}


def checkpoint(
    config: Mapping[str, Any],
    parent_config: Mapping[str, Any] | None,
    values: Any,
    metadata: Mapping[str, Any],
    next_nodes: Sequence[str],
    tasks: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """`checkpoints`: a checkpoint was saved."""
    return {
        "config": config,
        "parent_config": parent_config,
        "values": values,
        "metadata": metadata,
        "next": list(next_nodes),
        "tasks": list(tasks),
    }
