"""A thread's past, read or edited.

Generators that yield what they need of a saver, so that one text serves the blocking and the awaited methods.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from flowfn.checkpoint import cells
from flowfn.checkpoint.base import Saver
from flowfn.checkpoint.records import (
    AbandonQuestions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    Save,
    SaveCheckpoint,
    SaveRun,
    TakeLease,
    split_call_checkpoint_id,
)
from flowfn.checkpoint.rows import interrupt_of
from flowfn.errors import (
    EmptyInputError,
    ForeignThreadError,
    InvalidUpdateError,
    UnknownCheckpointError,
    UnknownNodeError,
    UnstorableError,
    UnstorableResultError,
    listed,
)
from flowfn.ids import new_id
from flowfn.pregel.effects import ALL
from flowfn.pregel.fork import branched, fork_saves, newest_checkpoint, next_fence, past, stored_part
from flowfn.pregel.plan import PULL, Channels, DueTask, due_tasks
from flowfn.pregel.update import DoneTask, apply_writes, new_checkpoint
from flowfn.types import MISSING, PregelTask, StateSnapshot, StateUpdate

if TYPE_CHECKING:
    from flowfn.pregel.program import Pregel
    from flowfn.pregel.terms import Terms

T = TypeVar("T")

BY_HAND = ("__interrupt__",)
"""What triggers an update: no channel, so the node it is written as has seen nothing by it."""


class Need(NamedTuple):
    """Call this method of the saver, or its awaited twin, with these arguments."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}


Reading: TypeAlias = Generator[Need, Any, T]


def run(steps: Reading[T], saver: Saver) -> T:
    """Read or edit, blocking."""
    answer = None
    while True:
        try:
            need = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = getattr(saver, need.method)(*need.args, **need.kwargs)
        if need.method == "list":
            answer = list(answer)


async def arun(steps: Reading[T], saver: Saver) -> T:
    """Read or edit, awaited."""
    answer = None
    while True:
        try:
            need = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        twin = getattr(saver, f"a{need.method}")(*need.args, **need.kwargs)
        answer = [found async for found in twin] if need.method == "list" else await twin


def state(program: Pregel, terms: Terms) -> Reading[StateSnapshot]:
    """A thread now, or at the checkpoint that the terms name."""
    place, at = terms.place, terms.checkpoint_id
    config = _config(place, at)
    if at is not None:
        found: CheckpointTuple | None = yield Need("get_tuple", (config,))
        if found is None:
            raise UnknownCheckpointError(place.thread, at)
        memory: Memory = yield Need("load", (place, found.metadata.get("run") or stored_part(at)))
        return _snapshot(program, place, found, memory, memory.questions)
    memory = yield Need("load", (place,))
    if memory.checkpoint is None:
        nowhere = {"configurable": {"thread_id": place.thread, **({"checkpoint_ns": place.ns} if place.ns else {})}}
        return StateSnapshot({}, (), nowhere, None, None, None, (), ())
    newest = newest_checkpoint(memory)
    found = yield Need("get_tuple", (_config(place, newest),))
    assert found is not None
    open_rows: Sequence[tuple[str, QuestionRow]] = yield Need("questions", (place.thread,), {"limit": ALL})
    rows = [row for _, row in open_rows if row.ns == place.ns or row.ns.startswith(f"{place.ns}|" if place.ns else "")]
    return _snapshot(program, place, found, memory, rows, is_now=True)


def history(
    program: Pregel,
    terms: Terms,
    filter: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
    limit: int | None,
) -> Reading[list[StateSnapshot]]:
    """A thread's checkpoints as snapshots, newest first."""
    place = terms.place
    inner = {"thread_id": place.thread, "checkpoint_ns": place.ns}
    listing = {"filter": filter, "before": before, "limit": limit}
    found: list[CheckpointTuple] = yield Need("list", ({"configurable": inner},), listing)
    memories: dict[str, Memory] = {}
    results: dict[str | None, Any] = {}
    shown = []
    for one in found:
        base, run = stored_part(one.checkpoint["id"]), one.metadata.get("run")
        if program.is_function and one.metadata.get("source") == "loop":
            results[run] = program.output(_channels(program, one.checkpoint), program.stream_channels)
        if base not in memories:
            memories[base] = yield Need("load", (place, base))
        memory = memories[base]
        shown.append(_snapshot(program, place, one, memory, memory.questions, result=results.get(run)))
    return shown


def step_of(found: CheckpointTuple) -> int:
    """The number of a checkpoint's super-step."""
    return found.metadata.get("step", -1)


def _config(place: Place, checkpoint: str | None) -> dict[str, Any]:
    inner = {"thread_id": place.thread, "checkpoint_ns": place.ns}
    return {"configurable": inner if checkpoint is None else {**inner, "checkpoint_id": checkpoint}}


def _snapshot(
    program: Pregel,
    place: Place,
    found: CheckpointTuple,
    memory: Memory,
    questions: Sequence[QuestionRow],
    is_now: bool = False,
    result: Any = None,
) -> StateSnapshot:
    """One checkpoint as people see it; its questions are those that stood next, or, now, all that are open.

    Args:
        result: what the function came to in the end, if it did.
    """
    channels = _channels(program, found.checkpoint)
    versions = dict(found.checkpoint["channel_versions"])
    seen = {node: dict(known) for node, known in found.checkpoint["versions_seen"].items()}
    due = _due(program, place, found, channels, versions, seen)
    writes = _node_writes(found, due)
    split = split_call_checkpoint_id(found.checkpoint["id"])
    if not is_now:
        following = split[1] + 1 if split else 0
        questions = [q for q in questions if q.step == following] if due else []
    serde = program.saver("A state").serde
    asked = tuple(interrupt_of(q, place.thread, serde) for q in questions)
    error = memory.run.error if memory.run and due else None
    tasks = tuple(
        PregelTask(
            task.id,
            task.name,
            task.path,
            None if task.id in writes else error,
            asked if i == 0 else (),
            None,
            program.shown_result(writes[task.id]) if task.id in writes else result,
        )
        for i, task in enumerate(due)
    )
    following_names = [task.name for task in due]
    if is_now and writes:
        done = [DoneTask(t.name, t.path, t.triggers, writes[t.id]) for t in due if t.id in writes]
        apply_writes(channels, versions, seen, done, program.listened)
        left = [task.name for task in due if task.id not in writes]
        more = [task.name for task in _due(program, place, found, channels, versions, seen)]
        following_names = [name for name in program.nodes if name in {*left, *more}]
    metadata = {key: value for key, value in found.metadata.items() if key != "run"}
    return StateSnapshot(
        program.output(channels, program.stream_channels),
        tuple(following_names),
        found.config,
        metadata,
        found.checkpoint["ts"],
        found.parent_config,
        tasks,
        asked,
    )


def _node_writes(found: CheckpointTuple, due: Sequence[DueTask]) -> dict[str, list[tuple[str, Any]]]:
    """The writes of the due nodes that have finished, by task id."""
    ids = {task.id for task in due}
    writes: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in found.pending_writes or ():
        if task in ids and channel not in ("__interrupt__", "__error__", "__resume__"):
            writes.setdefault(task, []).append((channel, value))
    return writes


def _channels(program: Pregel, checkpoint: Checkpoint) -> dict[str, Any]:
    values = checkpoint["channel_values"]
    return {
        name: channel.from_checkpoint(values.get(name, MISSING)) for name, channel in program.new_channels().items()
    }


def _due(
    program: Pregel,
    place: Place,
    found: CheckpointTuple,
    channels: Channels,
    versions: Mapping[str, int],
    seen: Mapping[str, Mapping[str, int]],
) -> list[DueTask]:
    return due_tasks(
        program.nodes,
        channels,
        versions,
        seen,
        checkpoint_id=stored_part(found.checkpoint["id"]),
        step=step_of(found) + (0 if found.metadata.get("source") == "call" else 1),
        ns=place.ns,
    )


def _free(program: Pregel, place: Place, newest: Memory) -> TakeLease:
    """Refuses an edit of a thread that somebody runs, or has run since it was loaded."""
    return TakeLease(place._replace(fence=next_fence(newest)), program.name, None)


def _is_over(program: Pregel, place: Place, memory: Memory) -> bool:
    """Whether nothing was due at a stored checkpoint."""
    found = memory.checkpoint
    assert found is not None
    versions, seen = found.checkpoint["channel_versions"], found.checkpoint["versions_seen"]
    return not _due(program, place, found, _channels(program, found.checkpoint), versions, seen)


def update(program: Pregel, terms: Terms, updates: Sequence[StateUpdate]) -> Reading[dict[str, Any]]:
    """Write to a thread as if nodes had returned these values in one super-step; gives the new checkpoint's config."""
    place, at = terms.place, terms.checkpoint_id
    newest: Memory = yield Need("load", (place,))
    if newest.thread is not None and newest.thread.flow != program.name and not place.ns:
        raise ForeignThreadError(place.thread, newest.thread.flow, program.name)
    memory: Memory = newest if at is None else branched((yield Need("load", (place, stored_part(at)))), newest)
    old = memory.checkpoint
    channels: Any = program.new_channels() if old is None else _channels(program, old.checkpoint)
    versions = dict(old.checkpoint["channel_versions"]) if old else {}
    seen = {n: dict(v) for n, v in old.checkpoint["versions_seen"].items()} if old else {}
    tasks = []
    for one in updates:
        node = program.nodes[_writing_node(program, seen, one.as_node)]
        tasks.append(DoneTask(node.name, (PULL, node.name), BY_HAND, node.writes(one.values)))
    before = dict(versions)
    apply_writes(channels, versions, seen, tasks, program.listened)
    moved = {name for name in versions if versions[name] != before.get(name)}
    id, step = new_id(), (step_of(old) if old else -1) + 1
    goes_on = bool(due_tasks(program.nodes, channels, versions, seen, checkpoint_id=id, step=step + 1))
    checkpoint = new_checkpoint(id, versions, seen, moved)
    metadata: CheckpointMetadata = {"source": "update", "step": step, "parents": {}, "run": id}
    parent = newest_checkpoint(memory) if at is None else at
    saves: list[Save] = [] if place.ns else [_free(program, place, newest)]
    if any(question.state == "open" for question in newest.questions):
        saves.append(AbandonQuestions(place))
    values = _encoded(program, place, channels, versions, moved)
    saves.append(SaveCheckpoint(place, checkpoint, metadata, parent, values))
    saves.append(SaveRun(place, RunRow(id, program.name, 1, time.time(), "paused" if goes_on else "finished")))
    yield Need("save", (saves,))
    return _config(place, id)


def bulk_update(program: Pregel, terms: Terms, supersteps: Sequence[Sequence[StateUpdate]]) -> Reading[dict[str, Any]]:
    """Several super-steps of updates, one checkpoint each."""
    if not supersteps or not all(supersteps):
        raise InvalidUpdateError("Give at least one super-step, and at least one update in each.")
    config: dict[str, Any] = {}
    for updates in supersteps:
        config = yield from update(program, terms, updates)
        terms = replace(terms, checkpoint_id=None)
    return config


def fork(
    program: Pregel, terms: Terms, results: Mapping[str, Any] | None, answers: Mapping[str, Any] | None
) -> Reading[dict[str, Any]]:
    """Begin a branch at a checkpoint, with some results or answers replaced; gives its config."""
    place = terms.place
    newest: Memory = yield Need("load", (place,))
    at = terms.checkpoint_id or newest_checkpoint(newest)
    if at is None:
        raise EmptyInputError(program.name, place.thread)
    memory: Memory = yield Need("load", (place, stored_part(at)))
    while (results or answers) and _is_over(program, place, memory):
        # After the end of a run there is nothing to go on with: the branch leaves it after its last call.
        found = memory.checkpoint
        if memory.run is not None and memory.run.id != stored_part(at):
            memory = yield Need("load", (place, memory.run.id))
            at = newest_checkpoint(memory) or at
            break
        if found is None or found.parent_config is None:
            break
        at = found.parent_config["configurable"]["checkpoint_id"]
        memory = yield Need("load", (place, stored_part(at)))
    there = past(place, at, branched(memory, newest), _is_over(program, place, memory), at == newest_checkpoint(newest))
    marks = {**terms.marks, "step": there.step + 1, "parents": {}}
    has_questions = any(question.state == "open" for question in newest.questions)
    serde = program.saver("`fork`").serde
    saves = fork_saves(program, serde, there, marks, has_questions, results or {}, answers or {})
    yield Need("save", ([_free(program, place, newest), *saves],))
    branch: Memory = yield Need("load", (place,))
    return _config(place, newest_checkpoint(branch))


def _encoded(
    program: Pregel, place: Place, channels: Channels, versions: Mapping[str, int], moved: set[str]
) -> dict[str, bytes]:
    serde = program.saver("An update").serde
    values = {name: channels[name].checkpoint() for name in moved}
    try:
        return {
            name: serde.dumps(value, program.channel_title(name), cells.value(place, name, versions[name]))
            for name, value in values.items()
            if value is not MISSING
        }
    except UnstorableError as error:
        raise UnstorableResultError("The update", error) from None


def _writing_node(program: Pregel, seen: Mapping[str, Mapping[str, int]], as_node: str | None) -> str:
    """The node that an update is written as."""
    if as_node is not None:
        if as_node not in program.nodes:
            raise UnknownNodeError("`as_node`", as_node, program.nodes)
        return as_node
    if len(program.nodes) == 1:
        return next(iter(program.nodes))
    newest = sorted((max(v.values(), default=0), n) for n, v in seen.items() if n in program.nodes)
    if len(newest) > 1 and newest[-1][0] == newest[-2][0]:
        raise InvalidUpdateError(f"Several nodes ran last: say which one writes, `as_node=…`: {listed(program.nodes)}.")
    if not newest:
        raise InvalidUpdateError(f"No node has run yet: say which one writes, `as_node=…`: {listed(program.nodes)}.")
    return newest[-1][1]
