"""The course of a run: plan → execute → update, until no task is due.

A generator that yields effects and is handed their answers: it never waits, so one text serves blocking and awaiting
drivers, and a test can stop it after any effect, which is a crash at exactly that point.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from flowfn.checkpoint import cells
from flowfn.checkpoint.records import (
    AbandonQuestions,
    CheckpointMetadata,
    ForgetCalls,
    Memory,
    QuestionRow,
    RunRow,
    Save,
    SaveCheckpoint,
    SaveRun,
    TakeLease,
    call_checkpoint_id,
)
from flowfn.errors import (
    EmptyInputError,
    FlowStop,
    ForeignThreadError,
    NoSaverError,
    RecursionLimitError,
    SaveFailedError,
    SaveStopped,
    StoreConflictError,
    ThreadBusyError,
    ThreadMovedError,
)
from flowfn.ids import new_id
from flowfn.pregel import changed, resume
from flowfn.pregel.calls import CANCELLED, CRASHED, DONE, FAILURE, STOPPED, VALUE, NodeCall
from flowfn.pregel.effects import Effect, Execute, Load, OneQuestion, Store
from flowfn.pregel.fork import newest_checkpoint, next_fence
from flowfn.pregel.plan import DueTask, due_tasks
from flowfn.pregel.run import Run
from flowfn.pregel.update import DoneTask, apply_writes, new_checkpoint
from flowfn.serde.base import preview
from flowfn.types import MISSING, Command, Interrupt, Status

Steps: TypeAlias = Generator[Effect, Any, "Outcome"]
Part: TypeAlias = Generator[Effect, Any, None]

NOTHING = Memory(None, None, None, (), ())


@dataclass(slots=True)
class Outcome:
    """How an invocation ended.

    Attributes:
        value: of the output channels.
        interrupts: the open questions.
        again: whether an answer came in while the run was stopping, so that it can go on at once.
    """

    value: Any
    interrupts: tuple[Interrupt, ...] = ()
    again: bool = False


class Loop:
    """Takes a run through its super-steps.

    Attributes:
        channels, versions, seen: the state, see `plan.py`.
        step: number of the newest checkpoint, -1 for the first input.
        checkpoint_id: the newest stored checkpoint.
        metadata: of that checkpoint.
        forgets: whether a new run starts as on a new thread.
        pending: node task id → its writes, of nodes that finished before a crash.
    """

    def __init__(self, run: Run, forgets: bool = False) -> None:
        self.run, self.program, self.forgets = run, run.program, forgets
        self.channels = self.program.new_channels()
        self.versions: dict[str, int] = {}
        self.seen: dict[str, dict[str, int]] = {}
        self.step = -2
        self.checkpoint_id: str | None = None
        self.parent_id: str | None = None
        self.metadata: CheckpointMetadata = {}
        self.pending: dict[str, list[tuple[str, Any]]] = {}
        self.row = RunRow("", self.program.name, 1, 0.0, "running")

    def super_steps(self, input: Any) -> Steps:
        """The whole course.

        Args:
            input: what `invoke` was given, `MISSING` for going on, or a `Command`.
        """
        yield from self._start(input)
        self.run.previous = self.program.previous(self.channels)
        tasks = self._plan()
        taken = 0
        while tasks:
            taken += 1
            nodes = self._nodes(tasks)
            open_nodes = [node for node in nodes if node.state != DONE]
            self.run.begin_nodes(open_nodes)
            yield Execute(open_nodes)
            if self.run.asked and not self._is_broken(nodes):
                return (yield from self._wait(nodes))
            yield from self._raise_if_broken(nodes)
            tasks = yield from self._update(nodes)
            if taken > self.run.terms.recursion_limit and not self.program.is_function:
                yield from self._end("failed")
                raise RecursionLimitError(self.run.terms.recursion_limit)
        return Outcome(self.program.output(self.channels, self.run.shown))

    # --- the beginning

    def _start(self, input: Any) -> Part:
        run = self.run
        if run.saver is None:
            if isinstance(input, Command):
                raise NoSaverError("Answering (`Command(resume=…)`)")
            if input is MISSING:
                raise EmptyInputError(self.program.name, None)
            yield from self._begin_run(input, NOTHING)
            return
        memory: Memory = yield Load(run.place)
        self._check_owner(memory)
        if run.parent is not None:
            yield from self._go_on(memory) if memory.run else self._begin_run(input, memory)
            return
        at = run.terms.checkpoint_id
        if at is not None and at != newest_checkpoint(memory):
            yield from resume.from_the_past(self, at, memory, input)
        elif isinstance(input, Command):
            yield from resume.answered(self, memory, input)
        elif input is MISSING:
            if memory.checkpoint is None:
                raise EmptyInputError(self.program.name, run.thread)
            yield from self._go_on(memory)
        else:
            yield from self._begin_run(input, memory)

    def _check_owner(self, memory: Memory) -> None:
        thread = memory.thread
        if thread is not None and self.run.parent is None and thread.flow != self.program.name:
            raise ForeignThreadError(thread.thread, thread.flow, self.program.name)

    def restore(self, memory: Memory) -> None:
        """Take the state from a stored checkpoint."""
        found = memory.checkpoint
        if found is None:
            return
        checkpoint = found.checkpoint
        values = checkpoint["channel_values"]
        self.channels = {
            name: channel.from_checkpoint(values.get(name, MISSING)) for name, channel in self.channels.items()
        }
        self.versions = dict(checkpoint["channel_versions"])
        self.seen = {node: dict(versions) for node, versions in checkpoint["versions_seen"].items()}
        self.step = found.metadata.get("step", -1)
        self.metadata = found.metadata
        self.checkpoint_id = checkpoint["id"]
        parent = found.parent_config
        self.parent_id = parent["configurable"]["checkpoint_id"] if parent else None
        self.pending = {}
        for task, channel, value in found.pending_writes or ():
            self.pending.setdefault(task, []).append((channel, value))

    def _go_on(self, memory: Memory) -> Part:
        """Go on with the newest run, or find that it has finished."""
        self.restore(memory)
        row = memory.run
        self.run.depends = any(question.state == "answered" for question in memory.questions)
        if row is None or not self._plan():
            self._tell_state()
            return
        self.row = row._replace(attempt=row.attempt + 1, status="running", error=None)
        self.run.remember(row.id, memory, self.row.attempt)
        for name in self.program.nodes:
            self.run.meet(self.program.callee(name))
        taken = self._take_thread(memory)
        yield from self._store([*taken, SaveRun(self.run.place, self.row)], "that the run goes on")
        self._tell_state(row.error)

    def _begin_run(self, input: Any, memory: Memory) -> Part:
        """Start a new run with this input."""
        run = self.run
        self.restore(memory)
        if self.forgets:
            self.channels = self.program.new_channels()
        old = memory.run
        id = new_id()
        discarded = [DoneTask(t.name, t.path, t.triggers, ()) for t in self._plan()] if old is not None else []
        writes = self.program.input_writes(input)
        moved = self._apply([*discarded, DoneTask("__input__", (), (), writes)])
        self.pending = {}
        self.row = RunRow(id, self.program.name, 1, time.time(), "running", *self._shown_input(input))
        run.remember(id, NOTHING, 1)
        saves = self._take_thread(memory)
        if old is not None and old.status != "finished":
            changed.tell_abandoned(run, old, memory.questions)
            saves.append(AbandonQuestions(run.place))
        self.step += 1
        saves += self._checkpoint_saves(id, "input", moved)
        if run.saver is not None:
            for name in self.program.nodes:
                self.run.meet(self.program.callee(name))
            yield from self._store([*saves, SaveRun(run.place, self.row)], "the input")
        self._tell_checkpoint()

    def _take_thread(self, memory: Memory) -> list[Save]:
        """The save by which an outermost run takes its thread; all that it stores from then on depends on that."""
        run = self.run
        if run.parent is not None or run.saver is None:
            return []
        run.place = run.place._replace(fence=next_fence(memory))
        return [TakeLease(run.place, self.program.name, run.owner, self.program.max_running)]

    def _shown_input(self, input: Any) -> tuple[bytes, str]:
        """An input's digest, by which `run` knows it again, and a short text of it."""
        return resume.input_digest(input, self.run.secret), self.run.serde.preview(input, 200)

    # --- plan and execute

    def _plan(self) -> list[DueTask]:
        return due_tasks(
            self.program.nodes,
            self.channels,
            self.versions,
            self.seen,
            checkpoint_id=self.checkpoint_id or "",
            step=self.step + 1,
            ns=self.run.place.ns,
        )

    def _nodes(self, tasks: Sequence[DueTask]) -> list[NodeCall]:
        """The due tasks as calls; those that finished before a crash are done."""
        self.run.checkpoint_id = self.checkpoint_id or ""
        if self.run.telling is not None:
            self.run.telling.step = self.step + 1
        nodes = []
        for task in tasks:
            node = NodeCall(self.run, self.program.callee(task.name), task)
            node.attempt, node.shares = self.row.attempt, bool(node.callee.retry)
            node.tried = self.run.journal.tried(node.key)[1]
            if task.id in self.pending:
                node.state, node.stored_writes = DONE, self.pending[task.id]
            else:
                node.args, node.context = (task.input,), copy_context()
            nodes.append(node)
        return nodes

    # --- update

    def _apply(self, tasks: Sequence[DoneTask]) -> set[str]:
        return apply_writes(self.channels, self.versions, self.seen, tasks, self.program.listened)

    def _update(self, nodes: Sequence[NodeCall]) -> Generator[Effect, Any, list[DueTask]]:
        """Fold the writes into the channels and save the checkpoint; gives the tasks that are due next."""
        run = self.run
        try:
            done = [DoneTask(n.name, n.task.path, n.task.triggers, self.program.writes(n)) for n in nodes]
            before = dict(self.versions)
            moved = self._apply(done)
            closed = run.journal.steps.close()
            if run.telling is not None:
                run.telling.committed(closed)
            if self.program.is_function and run.journal.steps.committed:
                self.checkpoint_id = call_checkpoint_id(run.id, run.journal.steps.committed - 1)
            self.step += 1
            id = new_id()
            saves: list[Save] = self._checkpoint_saves(
                id, "loop", {n for n in self.versions if self.versions[n] != before.get(n)}
            )
        except Exception as error:
            yield from self._end("failed", error)
            raise
        if not self.program.is_function and not run.several_nodes:
            saves[:0] = run.node_saves(nodes)
        tasks = self._plan()
        if not tasks:
            self.row = self._row("finished")
            if any(question.state == "open" for question in run.journal.questions.values()):
                saves.append(AbandonQuestions(run.place, run.id))  # of earlier attempts, that nobody asks any more
            saves.append(SaveRun(run.place, self.row))
        if run.saver is not None:
            yield from self._store(saves, "a checkpoint")
        if run.telling is not None and not run.several_nodes:
            for node in nodes:
                run.telling.node_done(node)
        if self.program.shows(moved, self.run.shown):
            self._tell_values()
        self._tell_checkpoint(tasks)
        if not tasks:
            changed.tell_unclaimed(run)
        return tasks

    def _checkpoint_saves(self, id: str, source: Any, moved: set[str]) -> list[Save]:
        """The save of a new checkpoint, whose parent is the newest one; only the channels that moved are stored."""
        parent, self.checkpoint_id, self.parent_id = self.checkpoint_id, id, self.checkpoint_id
        run = self.run
        self.metadata = cast(CheckpointMetadata, {**self.marks(), "source": source, "run": run.id})
        if self.run.saver is None:
            return []
        values = {}
        for name in moved:
            value = self.channels[name].checkpoint()
            if value is not MISSING:
                cell = cells.value(run.place, name, self.versions[name])
                values[name] = run.dumps(value, self.program.channel_title(name), cell)
        checkpoint = new_checkpoint(id, self.versions, self.seen, moved)
        return [SaveCheckpoint(self.run.place, checkpoint, self.metadata, parent, values)]

    def marks(self) -> dict[str, Any]:
        """The metadata of a new checkpoint, but for where it comes from and the run it belongs to."""
        return {**self.run.terms.marks, "step": self.step, "parents": self.run.parents()}

    # --- the ways to end before the end

    def _is_broken(self, nodes: Sequence[NodeCall]) -> bool:
        return self.run.stop is not None or any(node.outcome in (FAILURE, CRASHED, CANCELLED) for node in nodes)

    def _raise_if_broken(self, nodes: Sequence[NodeCall]) -> Part:
        """End the run when a node, or a task that nobody looked at, did not come to a value."""
        run = self.run
        if run.stop is None and not run.failures and all(n.outcome == VALUE for n in nodes):
            return
        crashed = next((n.error for n in nodes if n.outcome == CRASHED), None)
        stop = run.stop or next((n.error for n in nodes if n.outcome == STOPPED), None)
        failed = next((n.error for n in nodes if n.outcome == FAILURE), None)
        if crashed is not None:
            yield from self._end("paused", crashed)
            raise crashed
        if isinstance(stop, SaveStopped) and isinstance(stop.cause, StoreConflictError):
            raise stop.cause
        if isinstance(stop, SaveStopped) and run.parent is None:
            raise SaveFailedError(stop.what, stop.cause) from stop.cause
        if stop is not None:
            if not isinstance(stop, SaveStopped):
                yield from self._end("paused")
            raise stop
        if failed is not None:
            yield from self._end("failed", failed)
            raise failed
        if any(n.outcome == CANCELLED for n in nodes):
            yield from self._end("paused")
            raise asyncio.CancelledError
        forgotten = [c for c in run.failures if not c.looked and (c.frame is None or not c.frame.raised)]
        if forgotten:
            error = forgotten[0].settled_error()
            assert error is not None
            error.add_note(f"Raised by task `{forgotten[0].name}`, at whose result nobody looked.")
            for other in forgotten[1:]:
                error.add_note(f"Task `{other.name}` failed unseen too: {preview(other.settled_error(), 200)}")
            yield from self._end("failed", error)
            raise error

    def _end(self, status: Status, error: BaseException | None = None) -> Part:
        """Note that the run has stopped short; failures that are not history are to be tried again."""
        run = self.run
        if run.saver is None:
            return
        saves: list[Save] = []
        if status == "failed":
            again = {call.number for call in run.failures if call.payload is not None and not call.acted}
            again.update(run.journal.retried)
            if again:
                saves.append(ForgetCalls(run.place, run.id, sorted(again)))
        self.row = self._row(status)._replace(error=None if error is None else run.serde.preview(error, 500))
        try:
            yield Store([*saves, SaveRun(run.place, self.row)])
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"How the run ended could not be stored: {failure}")

    def _wait(self, nodes: Sequence[NodeCall]) -> Steps:
        """End with open questions."""
        run = self.run
        asked = tuple(run.asked.values())
        if run.parent is not None:
            with run.crew.lock:
                run.parent.run.asked.update(run.asked)
        self.row = self._row("waiting")
        yield from self._store([SaveRun(run.place, self.row)], "that the run waits")
        if run.parent is None:
            for question in asked:
                row: QuestionRow | None = yield OneQuestion(run.place.thread, question.id)
                if row is not None and row.state == "answered":
                    return Outcome(None, asked, again=True)
        if run.telling is not None:
            for node in nodes:
                if node.outcome == STOPPED or node.outcome == VALUE:
                    run.telling.stopped(node, asked)
            run.telling.asked(asked, self.program.output(self.channels, run.shown))
        return Outcome(self.program.output(self.channels, self.run.shown), asked)

    def _store(self, saves: Sequence[Save], what: str) -> Part:
        try:
            yield Store(saves)
        except (FlowStop, StoreConflictError, ThreadBusyError, ThreadMovedError):
            raise
        except Exception as error:
            if self.run.parent is not None:
                stop = SaveStopped(what, error)  # an error would be the surrounding flow's to handle
                self.run.outermost.halt(stop)
                raise stop from error
            raise SaveFailedError(what, error) from error

    def _row(self, status: Status) -> RunRow:
        run = self.run
        with run.crew.lock:
            run.journal.steps.commit()
        code = {**run.code_before, **run.code}
        return self.row._replace(status=status, committed=run.journal.steps.committed, code=code)

    # --- watchers

    def _tell_state(self, error: str | None = None) -> None:
        """Tell where the run goes on, with the error that it had ended by."""
        if self.run.telling is not None:
            self.run.telling.last_error = error
        self._tell_checkpoint()
        self._tell_values()
        if self.run.telling is not None:
            self.run.telling.last_error = None

    def _tell_values(self) -> None:
        if self.run.telling is not None:
            self.run.telling.values(self.program.output(self.channels, self.run.shown))

    def _tell_checkpoint(self, tasks: Sequence[DueTask] | None = None) -> None:
        telling = self.run.telling
        if telling is None or self.run.saver is None or not telling.events.wants("checkpoints", "debug"):
            return
        assert self.checkpoint_id is not None
        due = self._plan() if tasks is None else tasks
        values = self.program.output(self.channels, self.run.shown)
        payload = telling.checkpoint_payload(self.checkpoint_id, self.parent_id, values, self.metadata, due)
        telling.checkpoint(payload, self.step)
