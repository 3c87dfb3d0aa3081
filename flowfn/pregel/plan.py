"""Which tasks are due, the id of each, and what it reads.

A node is due when a channel that triggers it is available and has a version the node has not seen. What a task reads
is read here, before any of the super-step's writes, so all of them see the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from flowfn.channels import Channel
from flowfn.checkpoint.records import task_id
from flowfn.errors import UnknownNodeError
from flowfn.pregel.node import Node
from flowfn.types import MISSING, Send, TimeoutPolicy

Channels: TypeAlias = Mapping[str, Channel[Any, Any, Any]]
Nodes: TypeAlias = Mapping[str, Node]
Path: TypeAlias = tuple[Any, ...]
Versions: TypeAlias = Mapping[str, int]

PULL = "__pregel_pull"
PUSH = "__pregel_push"
TASKS = "__pregel_tasks"
HANDLER = "node_error_handler"
"""Ends the path of the handler of a node that has failed."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


class View(NamedTuple):
    """What a super-step sees: the channels as they stood before it, and the managed values."""

    channels: Channels
    managed: Mapping[str, Any] = NOTHING

    def value(self, name: str) -> Any:
        """A copy for whoever reads it; `MISSING` when the channel is empty."""
        channel = self.channels.get(name)
        if channel is None:
            return self.managed.get(name, MISSING)
        return channel.lent() if channel.is_available() else MISSING

    def values(self, names: Collection[str]) -> dict[str, Any]:
        """Those that have a value."""
        channels, read = self.channels, {}
        for name in names:
            channel = channels.get(name)
            if channel is None:
                if name in self.managed:
                    read[name] = self.managed[name]
            elif channel.is_available():
                read[name] = channel.lent()
        return read

    def after(self, writes: Sequence[tuple[str, Any]]) -> View:
        """The same for a node that has made these writes, which nobody else sees yet."""
        changed: dict[str, Channel[Any, Any, Any]] = {}
        for name in dict.fromkeys(name for name, _ in writes if name in self.channels):
            changed[name] = self.channels[name].copy()
            changed[name].update([value for written, value in writes if written == name])
        return View({**self.channels, **changed}, self.managed)


class DueTask(NamedTuple):
    """A node that is to run in this super-step.

    Attributes:
        key: 16 bytes that say what made it due: equal each time that is planned, in a fork too.
        id: the same within one run.
        name: of the node.
        path: `("__pregel_pull", name)`, or `("__pregel_push", number, False)` for a `Send`.
        node: what runs.
        input: what it reads, as it stood before the super-step.
        triggers: the channels whose versions it has seen once it is done.
        timeout: of a `Send` that has one: how long it may take, instead of what its node says.
    """

    key: bytes
    id: str
    name: str
    path: Path
    node: Node
    input: Any
    triggers: tuple[str, ...]
    timeout: TimeoutPolicy | None = None


def due_tasks(
    nodes: Nodes,
    view: View,
    versions: Versions,
    seen: Mapping[str, Versions],
    *,
    run: str,
    among: Collection[str] | None = None,
) -> list[DueTask]:
    """The tasks of the next super-step: each `Send` in the order sent, then the nodes that are due, by name.

    Args:
        nodes: name → node.
        view: what is read.
        versions: name → version of each channel that ever moved.
        seen: name of a node → the versions it had before it when it ran last.
        run: id of the run that they belong to.
        among: only these nodes can be due; all of them when it is not known.
    Raises:
        UnknownNodeError: a `Send` names no node.
    """

    def due(name: str, path: Path, version: int, value: Any, triggers: tuple[str, ...]) -> DueTask:
        key = node_key(name, path, version)
        return DueTask(key, task_id(run, key), name, path, nodes[name], value, triggers)

    channels = view.channels
    tasks: list[DueTask] = []
    if TASKS in channels:
        version = versions.get(TASKS, 0)
        for at, send in _sends(channels, nodes):
            task = due(send.node, (PUSH, at, False), version, send.arg, (PUSH,))
            tasks.append(task if send.timeout is None else task._replace(timeout=TimeoutPolicy.coerce(send.timeout)))
    candidates = nodes if among is None else among
    names = [name for name in candidates if is_due(nodes[name], channels, versions, seen.get(name, NOTHING))]
    if len(names) > 1:
        names.sort()
    for name in names:
        node = nodes[name]
        value = read_input(node, view)
        if value is not MISSING:
            version = max([versions.get(trigger, 0) for trigger in node.triggers])
            tasks.append(due(name, (PULL, name), version, value, tuple(sorted(node.triggers))))
    return tasks


def handler_task(failed: DueTask, nodes: Nodes, run: str) -> DueTask:
    """The task that stands in for one that has failed for good: its node's error handler."""
    key = blake2b(failed.key + HANDLER.encode(), digest_size=16).digest()
    name = failed.node.handler
    assert name is not None
    return DueTask(key, task_id(run, key), name, (*failed.path, HANDLER), nodes[name], failed.input, (PUSH,))


def inner_ns(ns: str, task: DueTask) -> str:
    """The namespace of the program that a task of a program in namespace `ns` is, or calls first."""
    inner = task.node.inner
    if inner is not None and inner.checkpointer is True:
        return "|".join([part.partition(":")[0] for part in [*ns.split("|"), task.name] if part])
    return f"{ns}|{task.name}:{task.id}" if ns else f"{task.name}:{task.id}"


def inner_address(thread: str, ns: str, task: DueTask) -> dict[str, Any] | None:
    """The config of the state of the program that a task is or calls, None if there is none."""
    inner = task.node.program
    if inner is None or inner.checkpointer is False:
        return None
    return {"configurable": {"thread_id": thread, "checkpoint_ns": inner_ns(ns, task)}}


def is_due(node: Node, channels: Channels, versions: Versions, seen: Versions) -> bool:
    """Whether a channel that triggers the node is available and newer than what the node has seen of it."""
    for trigger in node.triggers:
        if versions.get(trigger, 0) > seen.get(trigger, 0) and channels[trigger].is_available():
            return True
    return False


def read_input(node: Node, view: View) -> Any:
    """What the node reads; `MISSING` when it reads one channel and that is empty.

    A dict leaves out the channels that are empty.
    """
    if isinstance(node.channels, tuple):
        return view.values(node.channels)
    if isinstance(node.channels, str):
        return view.value(node.channels)
    read = view.values(node.channels.values())
    return {key: read[name] for key, name in node.channels.items() if name in read}


def node_key(name: str, path: Path, version: int) -> bytes:
    """16 bytes: equal each time what triggered this task at that version is planned, different for any other."""
    return blake2b(f"{name}\0{path_text(path)}\0{version}".encode(), digest_size=16).digest()


def path_text(path: Path) -> str:
    """A path as text that sorts as the path does: by name, and numbers by their size."""
    if len(path) == 2 and type(path[1]) is str:
        return f"{path[0]}/{path[1]}"
    return "/".join(
        f"{part:010d}" if isinstance(part, int) else f"~{path_text(part)}" if isinstance(part, tuple) else part
        for part in path
    )


def _sends(channels: Channels, nodes: Nodes) -> Iterator[tuple[int, Send]]:
    """Each send with its number among all."""
    if not channels[TASKS].is_available():
        return
    for number, send in enumerate(channels[TASKS].get()):
        if send.node not in nodes:
            raise UnknownNodeError("A Send", send.node, nodes)
        yield number, send
