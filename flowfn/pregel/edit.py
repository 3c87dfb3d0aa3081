"""A thread edited by hand: updates as if nodes had run, copies, and forks.

Generators like those of `snapshot.py`, whose effects they yield.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from flowfn.checkpoint import cells
from flowfn.checkpoint.records import (
    PACKED,
    AbandonQuestions,
    CheckpointMetadata,
    Memory,
    Place,
    RunRow,
    Save,
    SaveCheckpoint,
    SaveRun,
    SaveWrites,
    TakeLease,
)
from flowfn.checkpoint.values import row_of
from flowfn.errors import (
    EmptyInputError,
    ForeignThreadError,
    InvalidUpdateError,
    UnknownNodeError,
    UnstorableError,
    UnstorableResultError,
    listed,
)
from flowfn.ids import new_id
from flowfn.pregel.fork import branched, fork_saves, newest_checkpoint, next_fence, past, stored_part
from flowfn.pregel.plan import View
from flowfn.pregel.snapshot import Need, Reading, Standing, Writes, config_of
from flowfn.pregel.update import INPUT, NO_WRITES, DoneTask, new_checkpoint
from flowfn.serde.base import Serializer
from flowfn.types import StateUpdate, Status

if TYPE_CHECKING:
    from flowfn.pregel.program import Pregel
    from flowfn.pregel.terms import Terms

BY_HAND = ("__interrupt__",)
"""What triggers an update: no channel, so the node it is written as has seen nothing by it."""

END, COPY = "__end__", "__copy__"
"""`as_node` of an update that clears what is due, and of one that only branches off."""


class Edit:
    """A thread as it stands at the checkpoint that is edited, and what the edit saves.

    Attributes:
        stands: the state there, changed by the edit.
        parent: id of that checkpoint, None on a new thread; `is_newest` whether it is the thread's newest.
        called_by: see `Run`: an inner program goes on from the edit when it is called again.
        saves: what is to be stored before the new checkpoint.
    """

    def __init__(
        self, program: Pregel, serde: Serializer, place: Place, memory: Memory, newest: Memory, at: str | None
    ) -> None:
        self.program, self.serde, self.place = program, serde, place
        self.stands = Standing(program, place, memory.checkpoint)
        self.parent = newest_checkpoint(memory) if at is None else at
        self.before = dict(self.stands.versions)
        self.is_newest = at is None or at == newest_checkpoint(newest)
        self.called_by = memory.run.digest if memory.run is not None and place.ns else b""
        if place.ns:
            self.saves: list[Save] = [AbandonQuestions(place, newest.run.id)] if newest.run is not None else []
        else:
            self.saves = [_free(program, place, newest), AbandonQuestions(place)]

    def checkpoint(self, source: str, marks: Mapping[str, Any]) -> tuple[str, list[Save]]:
        """The new checkpoint's id, and all that is to be stored with it.

        Args:
            marks: what its metadata says of the caller.
        """
        stands, place, program = self.stands, self.place, self.program
        id, step = new_id(), stands.step + (stands.found is not None or source != "input")
        moved = {name for name, version in stands.versions.items() if version != self.before.get(name)}
        stored = moved if source != "fork" else {name for name in stands.versions if name in stands.channels}
        checkpoint = new_checkpoint(id, stands.versions, stands.seen, moved)
        parents = stands.found.metadata.get("parents", {}) if stands.found is not None else {}
        own = {"source": source, "step": step, "parents": parents, "run": id}
        metadata = cast(CheckpointMetadata, {**marks, **own})
        values = {}
        for name in stored:  # a copy does not follow the checkpoint that it copies
            version, before = stands.versions[name], None if source == "fork" else self.before.get(name)
            row = row_of(stands.channels[name], place, name, version, before, self.dumps, program.channel_title)
            if row is not None:
                values[name] = row
        status: Status = "paused" if stands.due() else "finished"
        run = RunRow(id, program.name, 1, time.time(), status, self.called_by)
        saved = SaveCheckpoint(place, checkpoint, metadata, self.parent, values)
        return id, [*self.saves, saved, SaveRun(place, run)]

    def dumps(self, value: Any, what: str, cell: tuple[str | bytes | int, ...]) -> bytes:
        try:
            return self.serde.dumps(value, what, cell)
        except UnstorableError as error:
            raise UnstorableResultError("The update", error) from None


def update(program: Pregel, terms: Terms, updates: Sequence[StateUpdate]) -> Reading[dict[str, Any]]:
    """Write to a thread as if nodes had returned these values in one super-step; gives the new checkpoint's config.

    Raises:
        ForeignThreadError: the thread belongs to another flow.
        UnknownNodeError: `as_node` names no node.
        InvalidUpdateError: nobody can say as which node, or the writes break a channel's rule.
    """
    serde, root = program.saver("An update").serde, program
    program, place, at = root.inside(terms.ns), terms.place, terms.checkpoint_id
    newest: Memory = yield Need("load", (place,))
    if newest.thread is not None and newest.thread.flow != program.name and not place.ns:
        raise ForeignThreadError(place.thread, newest.thread.flow, program.name)
    memory: Memory = newest if at is None else branched((yield Need("load", (place, stored_part(at)))), newest)
    edit = Edit(program, serde, place, memory, newest, at)
    first = updates[0]
    if first.as_node in (COPY, INPUT) or (first.as_node == END and first.values is None):
        if len(updates) > 1:
            raise InvalidUpdateError(f"An update as `{first.as_node}` is the only one of its super-step.")
        id, saves = _as_no_node(edit, first, terms.marks)
    else:
        writes = yield from _node_writes(edit, updates)
        edit.stands.apply(writes)
        id, saves = edit.checkpoint("update", terms.marks)
    yield Need("save", (saves,))
    if first.as_node == COPY and first.values:
        terms = replace(terms, checkpoint_id=None)
        return (yield from update(root, terms, [StateUpdate(*one) for one in first.values]))
    return config_of(place, id)


def _as_no_node(edit: Edit, update: StateUpdate, marks: Mapping[str, Any]) -> tuple[str, list[Save]]:
    """An update that no node makes: a new input, a copy of the checkpoint, or the end of what is due."""
    stands = edit.stands
    if update.as_node == INPUT:
        if update.values is None:
            raise EmptyInputError(edit.program.name, edit.place.thread)
        stands.apply([DoneTask(INPUT, (), (), edit.program.input_writes(update.values))])
        return edit.checkpoint("input", marks)
    if update.as_node == COPY:
        if stands.found is None:
            raise InvalidUpdateError("There is no checkpoint to copy.")
        parent = stands.found.parent_config
        edit.parent = parent["configurable"]["checkpoint_id"] if parent is not None else None
        return edit.checkpoint("fork", marks)
    due = stands.due()
    finished = stands.finished(due)
    stands.apply_given()
    stands.apply([DoneTask(t.name, t.path, t.triggers, finished.get(t.id, ())) for t in due])
    return edit.checkpoint("update", marks)


def _node_writes(edit: Edit, updates: Sequence[StateUpdate]) -> Reading[list[DoneTask]]:
    """What the nodes would have written; also noted as theirs, where they are due, for the history."""
    program, stands = edit.program, edit.stands
    view, done = View(stands.channels), []
    due: dict[str, list[str]] = {}
    for task in stands.due():
        due.setdefault(task.name, []).append(task.id)
    for number, one in enumerate(updates):
        name = _writing_node(program, stands, one.as_node, len(updates))
        writes: Writes = yield from program.update_course(name, one.values, view)
        done.append(DoneTask(name, (*BY_HAND, number), BY_HAND, writes))
        ids = due.get(name) or []
        id = one.task_id or (ids.pop(0) if ids else None)
        if id is not None and edit.parent is not None and edit.is_newest:
            edit.saves.append(_writes_save(edit, edit.parent, id, writes))
    return done


def _writes_save(edit: Edit, checkpoint: str, task: str, writes: Writes) -> SaveWrites:
    cell = cells.write(edit.place, checkpoint, task, 0, PACKED)
    packed = edit.dumps([part for write in writes or [(NO_WRITES, None)] for part in write], "The update", cell)
    return SaveWrites(edit.place, checkpoint, task, "", [(PACKED, packed)])


def _writing_node(program: Pregel, stands: Standing, as_node: str | None, several: int) -> str:
    """The node that an update is written as."""
    if as_node is not None:
        if as_node not in program.nodes:
            raise UnknownNodeError("`as_node`", as_node, program.nodes)
        return as_node
    if len(program.nodes) == 1:
        return next(iter(program.nodes))
    newest = sorted((v, name) for name, known in stands.seen.items() if name in program.nodes for v in known.values())
    if several > 1 or (len(newest) > 1 and newest[-1][0] == newest[-2][0]):
        raise InvalidUpdateError(f"Say which node writes, `as_node=…`: {listed(program.nodes)}.")
    if newest:
        return newest[-1][1]
    if isinstance(program.input_channels, str) and program.input_channels in program.nodes:
        return program.input_channels
    raise InvalidUpdateError(f"No node has run yet: say which one writes, `as_node=…`: {listed(program.nodes)}.")


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
    there = past(
        program, place, at, branched(memory, newest), _is_over(program, place, memory), at == newest_checkpoint(newest)
    )
    marks = {**terms.marks, "step": there.step + 1, "parents": {}}
    serde = program.saver("`fork`").serde
    saves = fork_saves(program, serde, there, marks, results or {}, answers or {})
    yield Need("save", ([_free(program, place, newest), *saves],))
    branch: Memory = yield Need("load", (place,))
    return config_of(place, newest_checkpoint(branch))


def _free(program: Pregel, place: Place, newest: Memory) -> TakeLease:
    """Refuses an edit of a thread that somebody runs, or has run since it was loaded."""
    return TakeLease(place._replace(fence=next_fence(newest)), program.name, None)


def _is_over(program: Pregel, place: Place, memory: Memory) -> bool:
    """Whether nothing was due at a stored checkpoint."""
    return not Standing(program, place, memory.checkpoint).due()
