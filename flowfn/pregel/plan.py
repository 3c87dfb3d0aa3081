"""Which tasks are due, and the id of each.

A node is due when a channel that triggers it is available and has a version the node has not seen. What a task reads
is read here, before any of the super-step's writes, so all of them see the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from flowfn.channels import Channel
from flowfn.pregel.node import Node
from flowfn.types import MISSING, Send

Channels: TypeAlias = Mapping[str, Channel[Any, Any, Any]]
Nodes: TypeAlias = Mapping[str, Node]
Path: TypeAlias = tuple[Any, ...]
Versions: TypeAlias = Mapping[str, int]

PULL = "__pregel_pull"
PUSH = "__pregel_push"
TASKS = "__pregel_tasks"

NOTHING: Mapping[str, Any] = MappingProxyType({})

logger = logging.getLogger(__name__)


class DueTask(NamedTuple):
    """A node that is to run in this super-step.

    Attributes:
        id: see `task_id`.
        name: of the node.
        path: `("__pregel_pull", name)`, or `("__pregel_push", number)` for a `Send`.
        node: what runs.
        input: what it reads, as it stood before the super-step.
        triggers: the channels whose versions it has seen once it is done.
    """

    id: str
    name: str
    path: Path
    node: Node
    input: Any
    triggers: tuple[str, ...]


def due_tasks(
    nodes: Nodes,
    channels: Channels,
    versions: Versions,
    seen: Mapping[str, Versions],
    *,
    checkpoint_id: str,
    step: int,
    ns: str = "",
    managed: Mapping[str, Any] = NOTHING,
) -> list[DueTask]:
    """The tasks of the next super-step: each `Send` in the order sent, then the nodes that are due, by name.

    Args:
        nodes: name → node.
        channels: name → channel; read, never changed.
        versions: name → version of each channel that ever moved.
        seen: name of a node → the versions it had before it when it ran last.
        checkpoint_id, step, ns: of the state that is read; part of each id.
        managed: name → value of what a node may read that is no channel.
    """

    def due(name: str, path: Path, value: Any, triggers: tuple[str, ...]) -> DueTask:
        return DueTask(task_id(checkpoint_id, ns, step, name, path), name, path, nodes[name], value, triggers)

    tasks = []
    if TASKS in channels:
        tasks = [due(send.node, (PUSH, number), send.arg, (PUSH,)) for number, send in _sends(channels, nodes)]
    names = [name for name, node in nodes.items() if is_due(node, channels, versions, seen.get(name, NOTHING))]
    if len(names) > 1:
        names.sort()
    for name in names:
        node = nodes[name]
        value = read_input(node, channels, managed)
        if value is not MISSING:
            tasks.append(due(name, (PULL, name), value, tuple(sorted(node.triggers))))
    return tasks


def is_due(node: Node, channels: Channels, versions: Versions, seen: Versions) -> bool:
    """Whether a channel that triggers the node is available and newer than what the node has seen of it."""
    for trigger in node.triggers:
        if versions.get(trigger, 0) > seen.get(trigger, 0) and channels[trigger].is_available():
            return True
    return False


def listened_channels(nodes: Nodes) -> frozenset[str]:
    """Names of the channels that make a node due."""
    return frozenset(trigger for node in nodes.values() for trigger in node.triggers)


def read_input(node: Node, channels: Channels, managed: Mapping[str, Any] = NOTHING) -> Any:
    """What the node reads; `MISSING` when it reads one channel and that is empty.

    A dict leaves out the channels that are empty.
    """
    if isinstance(node.channels, str):
        return _value(node.channels, channels, managed)
    named = node.channels if isinstance(node.channels, Mapping) else {name: name for name in node.channels}
    values = {key: _value(name, channels, managed) for key, name in named.items()}
    return {key: value for key, value in values.items() if value is not MISSING}


def task_id(checkpoint_id: str, ns: str, step: int, name: str, path: Path) -> str:
    """32 hex digits: equal each time this task is due at this checkpoint, different for any other."""
    text = f"{checkpoint_id}\0{ns}\0{step}\0{name}\0{path_text(path)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def path_text(path: Path) -> str:
    """A path as text that sorts as the path does: by name, and numbers by their size."""
    if len(path) == 2 and type(path[1]) is str:
        return f"{path[0]}/{path[1]}"
    return "/".join(
        f"{part:010d}" if isinstance(part, int) else f"~{path_text(part)}" if isinstance(part, tuple) else part
        for part in path
    )


def _value(name: str, channels: Channels, managed: Mapping[str, Any]) -> Any:
    channel = channels.get(name)
    if channel is None:
        return managed.get(name, MISSING)
    return channel.get() if channel.is_available() else MISSING


def _sends(channels: Channels, nodes: Nodes) -> Iterator[tuple[int, Send]]:
    """Each send to a node that exists, with its number among all; the others are logged and left out."""
    if not channels[TASKS].is_available():
        return
    for number, send in enumerate(channels[TASKS].get()):
        if send.node in nodes:
            yield number, send
        else:
            logger.warning("A Send names `%s`, which is no node; it is left out.", send.node)
