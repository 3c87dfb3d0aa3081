"""A thread's past, as people read it.

Generators that yield what they need of a saver, so that one text serves the blocking and the awaited methods.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from flowfn.checkpoint.base import Saver
from flowfn.checkpoint.records import CheckpointTuple, Memory, Place, QuestionRow, split_call_checkpoint_id
from flowfn.checkpoint.rows import interrupt_of
from flowfn.errors import InvalidUpdateError, UnknownCheckpointError
from flowfn.pregel.calls import ERROR
from flowfn.pregel.course import Invoke
from flowfn.pregel.effects import ALL
from flowfn.pregel.fork import newest_checkpoint, stored_part
from flowfn.pregel.plan import PUSH, DueTask, View, due_tasks, inner_address
from flowfn.pregel.questions import is_inside, last_asked, questions_of
from flowfn.pregel.update import COMMAND, FOR_THE_LOOP, INPUT, NO_WRITES, DoneTask, apply_writes
from flowfn.serde.base import Serializer
from flowfn.types import MISSING, PregelTask, StateSnapshot

if TYPE_CHECKING:
    from flowfn.pregel.program import Pregel
    from flowfn.pregel.terms import Terms

T = TypeVar("T")

NOT_WRITTEN = FOR_THE_LOOP - {NO_WRITES}
"""What stands among a task's writes that is none of its own."""

Writes: TypeAlias = list[tuple[str, Any]]


class Need(NamedTuple):
    """Call this method of the saver, or its awaited twin, with these arguments."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}


Reading: TypeAlias = Generator[Need | Invoke, Any, T]


def run(steps: Reading[T], saver: Saver) -> T:
    """Read or edit, blocking."""
    answer = None
    while True:
        try:
            need = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if isinstance(need, Invoke):
            answer = need.result()
            continue
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
        if isinstance(need, Invoke):
            answer = await need.aresult()
            continue
        twin = getattr(saver, f"a{need.method}")(*need.args, **need.kwargs)
        answer = [found async for found in twin] if need.method == "list" else await twin


class Standing:
    """Where a program stands at a checkpoint, or at the very beginning.

    Attributes:
        found: the checkpoint.
        channels, versions, seen: the state, see `plan.py`.
        pending: task id → the writes it has left there.
    """

    def __init__(self, program: Pregel, place: Place, found: CheckpointTuple | None) -> None:
        self.program, self.place, self.found = program, place, found
        self.channels: dict[str, Any] = program.new_channels()
        self.versions: dict[str, int] = {}
        self.seen: dict[str, dict[str, int]] = {}
        self.pending: dict[str, Writes] = {}
        self._given: Writes = []
        if found is None:
            return
        values = found.checkpoint["channel_values"]
        self.channels = {name: channel.restored(values.get(name, MISSING)) for name, channel in self.channels.items()}
        self.versions = dict(found.checkpoint["channel_versions"])
        self.seen = {node: dict(known) for node, known in found.checkpoint["versions_seen"].items()}
        for task, channel, value in found.pending_writes or ():
            self.pending.setdefault(task, []).append((channel, value))
        self._given = self.pending.pop(COMMAND, [])

    @property
    def step(self) -> int:
        """The number of the checkpoint's super-step."""
        return self.found.metadata.get("step", -1) if self.found is not None else -1

    @property
    def run(self) -> str:
        """The run that the checkpoint belongs to."""
        return self.found.metadata.get("run", "") if self.found is not None else ""

    def due(self) -> list[DueTask]:
        """The tasks that come next, those of nodes in the order in which the nodes were added."""
        due = due_tasks(self.program.nodes, View(self.channels), self.versions, self.seen, run=self.run)
        place = {name: at for at, name in enumerate(self.program.nodes)}
        return sorted(due, key=lambda task: -1 if task.path[0] == PUSH else place[task.name])

    def apply_given(self) -> None:
        """Fold in what a command has written to the state since the checkpoint; what was due stays due."""
        self.apply([DoneTask(INPUT, (), (), self._given)])

    def apply(self, tasks: Sequence[DoneTask]) -> set[str]:
        """Fold writes into the channels; gives the names of those that moved."""
        before = dict(self.versions)
        apply_writes(self.channels, self.versions, self.seen, tasks, self.program.listeners)
        return {name for name, version in self.versions.items() if version != before.get(name)}

    def finished(self, due: Sequence[DueTask]) -> dict[str, Writes]:
        """The writes of the due tasks that have finished, by task id."""
        left = {task.id: self.pending[task.id] for task in due if task.id in self.pending}
        own = {id: [write for write in writes if write[0] not in NOT_WRITTEN] for id, writes in left.items()}
        return {id: writes for id, writes in own.items() if writes}

    def error_of(self, task: DueTask) -> str | None:
        """What a due task has failed with."""
        return next((_shown(value) for channel, value in self.pending.get(task.id, ()) if channel == ERROR), None)


def _shown(error: Any) -> str:
    return error if isinstance(error, str) else repr(error)


def state(program: Pregel, terms: Terms, subgraphs: bool = False) -> Reading[StateSnapshot]:
    """A thread now, or at the checkpoint that the terms name.

    Args:
        subgraphs: whether the states of programs inside it are read too.
    """
    root, serde = program, program.saver("A state").serde
    program, at = root.inside(terms.ns), terms.checkpoint_id
    place = terms.place
    config = config_of(place, at)
    is_now = at is None
    if at is not None:
        found: CheckpointTuple | None = yield Need("get_tuple", (config,))
        if found is None:
            raise UnknownCheckpointError(place.thread, at)
        memory: Memory = yield Need("load", (place, found.metadata.get("run") or stored_part(at)))
        questions = [*memory.questions, *(yield from _asked_inside(place))]
    else:
        memory = yield Need("load", (place,))
        if memory.checkpoint is None:
            nowhere = {"configurable": {"thread_id": place.thread, **({"checkpoint_ns": place.ns} if place.ns else {})}}
            return StateSnapshot({}, (), nowhere, None, None, None, (), ())
        found = yield Need("get_tuple", (config_of(place, newest_checkpoint(memory)),))
        assert found is not None
        questions = yield from _open(place)
    shown = _snapshot(program, place, found, memory, questions, serde, is_now=is_now)
    if subgraphs:
        tasks = []
        for task in shown.tasks:
            inner = task.state and (yield from state(root, _inner_terms(terms, task), subgraphs=True))
            tasks.append(task._replace(state=inner))
        shown = shown._replace(tasks=tuple(tasks))
    return shown


def _open(place: Place) -> Reading[list[QuestionRow]]:
    """The open questions of a program and of those inside it."""
    rows: Sequence[tuple[str, QuestionRow]] = yield Need("questions", (place.thread,), {"limit": ALL})
    return [row for _, row in rows if row.ns == place.ns or is_inside(row.ns, place.ns)]


def _asked_inside(place: Place) -> Reading[list[QuestionRow]]:
    """All questions of the programs inside one."""
    rows: Sequence[QuestionRow] = yield Need("asked", (place.thread,))
    return [row for row in rows if is_inside(row.ns, place.ns)]


def _inner_terms(terms: Terms, task: PregelTask) -> Terms:
    """The terms of the program that a task is."""
    return replace(terms, ns=task.state["configurable"]["checkpoint_ns"], checkpoint_id=None)


def history(
    program: Pregel,
    terms: Terms,
    filter: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
    limit: int | None,
) -> Reading[list[StateSnapshot]]:
    """A thread's checkpoints as snapshots, newest first."""
    serde, program, place = program.saver("A state").serde, program.inside(terms.ns), terms.place
    inner = {"thread_id": place.thread, "checkpoint_ns": place.ns}
    listing = {"filter": filter, "before": before, "limit": limit}
    found: list[CheckpointTuple] = yield Need("list", ({"configurable": inner},), listing)
    inside = yield from _asked_inside(place)
    memories: dict[str, Memory] = {}
    results: dict[str | None, Any] = {}
    shown = []
    for one in found:
        base, run = stored_part(one.checkpoint["id"]), one.metadata.get("run")
        if program.is_function and one.metadata.get("source") == "loop":
            results[run] = program.output(Standing(program, place, one).channels, program.stream_channels)
        if base not in memories:
            memories[base] = yield Need("load", (place, base))
        memory = memories[base]
        # A program that remembers has one namespace for all its calls: the newest checkpoint is that of its last.
        questions = [*memory.questions, *[q for q in inside if one is found[0] or ":" in q.ns]]
        shown.append(_snapshot(program, place, one, memory, questions, serde, result=results.get(run)))
    return shown


def config_of(place: Place, checkpoint: str | None) -> dict[str, Any]:
    inner = {"thread_id": place.thread, "checkpoint_ns": place.ns}
    return {"configurable": inner if checkpoint is None else {**inner, "checkpoint_id": checkpoint}}


def _snapshot(
    program: Pregel,
    place: Place,
    found: CheckpointTuple,
    memory: Memory,
    questions: Sequence[QuestionRow],
    serde: Serializer,
    is_now: bool = False,
    result: Any = None,
) -> StateSnapshot:
    """One checkpoint as people see it; its questions are those that stood next, or, now, all that are open.

    Args:
        result: what the function came to in the end, if it did.
    """
    stands = Standing(program, place, found)
    due = stands.due()
    finished = stands.finished(due)
    if not is_now:
        following = _following(program, found)
        questions = [q for q in questions if q.step == following or q.ns != place.ns] if due else []
    stands.apply_given()
    asked = questions_of(due, finished, place.ns, questions)
    if not (is_now or program.is_function):
        asked = {id: _asked_last(mine) for id, mine in asked.items()}
    error = memory.run.error if memory.run and program.is_function and due else None
    tasks = tuple(
        PregelTask(
            task.id,
            task.name,
            task.path,
            stands.error_of(task) or (None if task.id in finished else error),
            tuple(interrupt_of(question, place.thread, serde) for question in asked[task.id]),
            inner_address(place.thread, place.ns, task),
            program.shown_result(finished[task.id]) if task.id in finished else result,
        )
        for task in due
    )
    following_names = [task.name for task in due if not (is_now and task.id in finished)]
    values = program.output(stands.channels, program.stream_channels)
    if is_now and finished:
        try:
            stands.apply([DoneTask(t.name, t.path, t.triggers, finished[t.id]) for t in due if t.id in finished])
        except InvalidUpdateError:  # by which the super-step has failed
            following_names = [task.name for task in due]
        else:
            values = program.output(stands.channels, program.stream_channels)
    metadata = {key: value for key, value in found.metadata.items() if key != "run"}
    return StateSnapshot(
        values,
        tuple(following_names),
        _mapped(place, found.config, metadata),
        metadata,
        found.checkpoint["ts"],
        _mapped(place, found.parent_config, metadata),
        tasks,
        tuple(question for task in tasks for question in task.interrupts),
    )


def _asked_last(questions: Sequence[QuestionRow]) -> list[QuestionRow]:
    """Those that are open; if there are none, those with which the task stopped last."""
    still_open = [row for row in questions if row.state == "open"]
    return still_open or [row for row in last_asked(questions) if row.step == questions[-1].step]


def _mapped(place: Place, config: dict[str, Any] | None, metadata: Mapping[str, Any]) -> Any:
    """A checkpoint's address, inside another program with those of the checkpoints around it."""
    if config is None or not place.ns:
        return config
    inner = config["configurable"]
    around = {**metadata.get("parents", {}), place.ns: inner["checkpoint_id"]}
    return {"configurable": {**inner, "checkpoint_map": around}}


def _following(program: Pregel, found: CheckpointTuple) -> int:
    """The number of the super-step that follows a checkpoint, as questions and calls have it."""
    if not program.is_function:
        return found.metadata.get("step", -1) + 1
    inside = split_call_checkpoint_id(found.checkpoint["id"])
    return inside[1] + 1 if inside else 0
