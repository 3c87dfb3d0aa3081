"""One super-step's writes, folded into the channels.

The order is by task path, so it does not matter who finished first. All channels that move in one super-step move to
the same version, one above the highest there was.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from flowfn.channels import Channel
from flowfn.checkpoint.records import Checkpoint
from flowfn.errors import ConflictingWritesError, InvalidUpdateError, listed
from flowfn.pregel.plan import PUSH, Channels, Nodes, Path, path_text

logger = logging.getLogger(__name__)

INPUT = "__input__"
"""Who writes what comes from outside."""

COMMAND = "command"
"""The task whose pending writes a command has made: they belong to the state, not to a node."""

NO_WRITES = "__no_writes__"
"""What a finished task has written that wrote nothing, so that it is known to have finished."""

FOR_THE_LOOP = frozenset(
    {NO_WRITES, PUSH, "__resume__", "__interrupt__", "__return__", "__error__", "__error_source_node__"}
)
"""What a task writes to tell the loop something; no channel has such a name."""


BRANCH = "__branch__"
"""Stands among the versions of a branch that leaves a thread's past, at the highest version the thread has: so the
branch counts on from there, and shares no version of a channel with the one it left."""


class Listeners(NamedTuple):
    """Who has to be told of a super-step.

    Attributes:
        nodes: channel → the nodes that it makes due.
        fleeting: channels that may change by a super-step without a write to them.
        waiting: channels that wait for the end.
    """

    nodes: Mapping[str, Sequence[str]]
    fleeting: Sequence[str]
    waiting: Sequence[str]


def listeners_of(nodes: Nodes, channels: Channels) -> Listeners:
    """Those of a program."""
    due: dict[str, list[str]] = {}
    for node in nodes.values():
        for trigger in node.triggers:
            due.setdefault(trigger, []).append(node.name)
    fleeting = [name for name, channel in channels.items() if not channel.is_steady]
    waiting = [name for name, channel in channels.items() if type(channel).finish is not Channel.finish]
    return Listeners(due, fleeting, waiting)


class DoneTask(NamedTuple):
    """A task's writes.

    Attributes:
        name: of the node.
        path: decides its place in the order.
        triggers: the channels it was due by; none for writes from outside a super-step, such as an input.
        writes: (channel, value) pairs in the order written.
    """

    name: str
    path: Path
    triggers: Sequence[str]
    writes: Sequence[tuple[str, Any]]


def apply_writes(
    channels: Channels,
    versions: MutableMapping[str, int],
    seen: MutableMapping[str, dict[str, int]],
    tasks: Sequence[DoneTask],
    listeners: Listeners,
) -> set[str]:
    """Fold one super-step's writes into its channels, in the order of task paths, whoever finished first.

    Args:
        channels: name → channel; changed in place, also when an error is raised: load them anew then.
        versions: name → version of each channel that ever moved; changed in place.
        seen: node → the versions it has seen; changed in place.
        tasks: each with its writes. Tasks that were triggered by nothing are no super-step: they only write.
        listeners: see there. If nothing moved that makes a node due, channels that wait for the end are told that it
            has come.
    Returns:
        Names of the channels that moved to a new version and have a value.
    Raises:
        ConflictingWritesError: two tasks wrote to a channel that takes one value a step.
        InvalidUpdateError: a write breaks its channel's rule in another way.
    """
    if len(tasks) > 1:
        tasks = sorted(tasks, key=lambda task: path_text(task.path))
    version = max(versions.values(), default=0) + 1
    moved: set[str] = set()

    def move(name: str) -> None:
        versions[name] = version
        if channels[name].is_available():
            moved.add(name)

    triggers = _mark_seen(versions, seen, tasks)
    for name in triggers:
        if name in channels and channels[name].consume():
            versions[name] = version
    for name, values in _by_channel(channels, tasks).items():
        try:
            changed = channels[name].update(values)
        except InvalidUpdateError as error:
            raise _refused(name, channels[name], tasks, error) from None
        if changed:
            move(name)
    if not triggers:
        return moved
    for name in listeners.fleeting:
        if name not in moved and channels[name].is_available() and channels[name].update(()):
            move(name)
    if moved.isdisjoint(listeners.nodes):
        for name in listeners.waiting:
            if channels[name].finish():
                move(name)
    return moved


def new_checkpoint(
    id: str, versions: Mapping[str, int], seen: Mapping[str, Mapping[str, int]], moved: Collection[str]
) -> Checkpoint:
    """The state now, as a checkpoint without its values."""
    return {
        "v": 4,
        "id": id,
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": {},
        "channel_versions": dict(versions),
        "versions_seen": {node: dict(known) for node, known in seen.items()},
        "updated_channels": sorted(moved),
    }


def _mark_seen(
    versions: Mapping[str, int], seen: MutableMapping[str, dict[str, int]], tasks: Sequence[DoneTask]
) -> set[str]:
    """Note for each task's node the versions that triggered it. Returns the channels that triggered any."""
    triggers: set[str] = set()
    for task in tasks:
        node_has_seen = seen.setdefault(task.name, {})
        for name in task.triggers:
            triggers.add(name)
            if name in versions:
                node_has_seen[name] = versions[name]
    return triggers


def _by_channel(channels: Channels, tasks: Sequence[DoneTask]) -> dict[str, list[Any]]:
    """The values written to each channel, in order; those written to no channel are logged and left out."""
    values: dict[str, list[Any]] = {}
    for task in tasks:
        for name, value in task.writes:
            if name in channels:
                values.setdefault(name, []).append(value)
            elif name not in FOR_THE_LOOP:
                logger.warning("Task `%s` wrote to `%s`, which is no channel; the write is left out.", task.name, name)
    return values


def _refused(
    name: str, channel: Channel[Any, Any, Any], tasks: Sequence[DoneTask], error: InvalidUpdateError
) -> InvalidUpdateError:
    """The error of a channel, with those who wrote to it."""
    writers = [task.name for task in tasks if any(written == name for written, _ in task.writes)]
    if channel.guard and len(writers) > 1:
        return ConflictingWritesError(name, writers)
    return InvalidUpdateError(f"{error} Written by {listed(writers)}.")
