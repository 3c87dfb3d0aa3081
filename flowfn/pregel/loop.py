"""The course of a run: plan → execute → update, until no task is due.

A generator that yields effects and is handed their answers: it never waits, so one text serves blocking and awaiting
drivers, and a test can stop it after any effect, which is a crash at exactly that point.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Generator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from flowfn.channels.lending import lent
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
from flowfn.checkpoint.values import row_of
from flowfn.errors import (
    Asked,
    AtBreakpoint,
    EmptyInputError,
    FlowStop,
    ForeignThreadError,
    GraphDrained,
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
from flowfn.pregel.plan import PUSH, DueTask, View, due_tasks, handler_task
from flowfn.pregel.run import Run
from flowfn.pregel.terms import Breakpoints
from flowfn.pregel.update import COMMAND, INPUT, DoneTask, apply_writes, new_checkpoint
from flowfn.serde.base import preview
from flowfn.types import MISSING, Command, Interrupt, NodeError, Status

if TYPE_CHECKING:
    from flowfn.context import RunControl
    from flowfn.pregel.frame import CallFrame

Steps: TypeAlias = Generator[Effect, Any, "Outcome"]
Part: TypeAlias = Generator[Effect, Any, None]

NO_MEMORY = Memory(None, None, None, (), ())

BREAKPOINT = "__interrupt__"
"""Under which the versions are noted that a run had seen when it last went on from a breakpoint."""


@dataclass(slots=True)
class Outcome:
    """How an invocation ended.

    Attributes:
        value: of the output channels.
        interrupts: the open questions.
        is_break: whether it has stopped at a breakpoint, its own or that of a program inside.
        again: whether an answer came in while the run was stopping, so that it can go on at once.
    """

    value: Any
    interrupts: tuple[Interrupt, ...] = ()
    is_break: bool = False
    again: bool = False


class Loop:
    """Takes a run through its super-steps.

    Attributes:
        channels, versions, seen: the state, see `plan.py`; `stored_versions` are those of the newest checkpoint.
        step: number of the newest checkpoint, -1 for the first input.
        checkpoint_id: the newest stored checkpoint.
        metadata: of that checkpoint.
        forgets: whether a new run starts as on a new thread.
        given: what commands have written to the state that no checkpoint holds.
        pending: node task id → its writes, of nodes that finished before a crash.
        left: how many super-steps the recursion limit still allows, an input and what comes after the last counted.
    """

    def __init__(self, run: Run, forgets: bool = False) -> None:
        self.run, self.program, self.forgets = run, run.program, forgets
        self.left = run.terms.recursion_limit + 2
        self.channels = self.program.new_channels()
        self.versions: dict[str, int] = {}
        self.stored_versions: dict[str, int] = {}
        self.seen: dict[str, dict[str, int]] = {}
        self.step = -2
        self.checkpoint_id: str | None = None
        self.parent_id: str | None = None
        self.metadata: CheckpointMetadata = {}
        self.pending: dict[str, list[tuple[str, Any]]] = {}
        self.given: list[tuple[str, Any]] = []
        self.row = RunRow("", self.program.name, 1, 0.0, "running")

    def super_steps(self, input: Any) -> Steps:
        """The whole course.

        Args:
            input: what `invoke` was given, `MISSING` for going on, or a `Command`.
        """
        yield from self._start(input)
        program, run, terms = self.program, self.run, self.run.terms
        run.previous = program.previous(self.channels)
        stops_before = terms.interrupt_before or program.interrupt_before
        stops_after = terms.interrupt_after or program.interrupt_after
        tasks = self._plan()
        while tasks:
            if stops_before and self._stops_at(stops_before, tasks):
                return (yield from self._break())
            if terms.control is not None:
                yield from self._drain(terms.control)
            nodes = yield from self._execute(tasks)
            if not self._went_well(nodes):
                if run.asked and not self._is_broken(nodes):
                    return (yield from self._wait(nodes))
                if self._is_at_breakpoint(nodes):
                    return (yield from self._break())
                yield from self._raise_if_broken(nodes)
            done, tasks = tasks, (yield from self._update(nodes))
            if stops_after and self._stops_at(stops_after, done):
                return (yield from self._break(is_over=not tasks))
            if self.left < 1 and not program.is_function:
                yield from self._end("failed")
                raise RecursionLimitError(terms.recursion_limit)
        return self._outcome()

    # --- the beginning

    def _start(self, input: Any) -> Part:
        run = self.run
        if run.parent is not None:
            yield from self._settle_in(run.parent)
        if run.saver is None:
            if isinstance(input, Command) and not self.program.command_writes(input):
                raise NoSaverError("Answering (`Command(resume=…)`)")
            if input is MISSING:
                raise EmptyInputError(self.program.name, None)
            yield from self._begin_run(input, NO_MEMORY)
            return
        memory: Memory = yield Load(run.place)
        self._check_owner(memory)
        if run.parent is not None:
            is_known = memory.run is not None and memory.run.digest == run.called_by
            yield from self._go_on(memory) if is_known else self._begin_run(input, memory)
            return
        at = run.terms.checkpoint_id
        if at is not None and at != newest_checkpoint(memory):
            yield from resume.from_the_past(self, at, memory, input)
        elif isinstance(input, Command):
            yield from resume.commanded(self, memory, input)
        elif input is MISSING:
            if memory.checkpoint is None:
                raise EmptyInputError(self.program.name, run.thread)
            yield from self._go_on(memory)
        else:
            yield from self._begin_run(input, memory)

    def _settle_in(self, parent: CallFrame) -> Part:
        """Find the namespace of a nested run: that of the calling task, unless it is, or was, another call's."""
        run, first = self.run, self.run.place
        if not run.other_ns:
            return
        with run.crew.lock:
            is_free = parent.inner_call in (None, run.called_by)
        if run.saver is not None and (is_free or parent.run.attempt > 1):
            known: Memory = yield Load(first)
            is_mine = known.run is not None and known.run.digest == run.called_by
            is_free = is_mine or (is_free and known.run is None)
            if is_free and not is_mine and parent.run.attempt > 1:
                other: Memory = yield Load(first._replace(ns=run.other_ns))
                is_free = other.run is None
        with run.crew.lock:
            is_free = is_free and parent.inner_call in (None, run.called_by)
            if is_free:
                parent.inner_call = run.called_by
        if not is_free:
            run.move_to(run.other_ns)

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
        self.channels = {name: channel.restored(values.get(name, MISSING)) for name, channel in self.channels.items()}
        self.versions = dict(checkpoint["channel_versions"])
        self.stored_versions = dict(self.versions)
        self.seen = {node: dict(versions) for node, versions in checkpoint["versions_seen"].items()}
        self.step = found.metadata.get("step", -1)
        self.metadata = found.metadata
        self.checkpoint_id = checkpoint["id"]
        parent = found.parent_config
        self.parent_id = parent["configurable"]["checkpoint_id"] if parent else None
        self.pending = {}
        for task, channel, value in found.pending_writes or ():
            self.pending.setdefault(task, []).append((channel, value))
        self.given = self.pending.pop(COMMAND, [])
        if self.given:
            self._apply([DoneTask(INPUT, (), (), self.given)])

    def _go_on(self, memory: Memory, writes: Sequence[tuple[str, Any]] = ()) -> Part:
        """Go on with the newest run, or find that it has finished.

        Args:
            writes: to be made first, by a command.
        """
        self.restore(memory)
        row, run = memory.run, self.run
        run.depends = any(question.state == "answered" for question in memory.questions)
        given = [*self.given, *writes]
        if writes:
            self._apply([DoneTask(INPUT, (), (), writes)])
        run.id = row.id if row is not None else ""
        if row is None or not self._plan():
            if writes:
                free = TakeLease(run.place._replace(fence=next_fence(memory)), self.program.name, None)
                yield from self._store([free, self._command_save(given)], "what the command writes")
            self._tell_state()
            return
        self._pass_breakpoints()
        self.row = row._replace(attempt=row.attempt + 1, status="running", error=None)
        run.remember(row.id, memory, self.row.attempt)
        for name in self.program.nodes:
            run.meet(self.program.callee(name))
        saves = self._take_thread(memory)
        if writes:
            saves.append(self._command_save(given))
        yield from self._store([*saves, SaveRun(run.place, self.row)], "that the run goes on")
        self._tell_state(row.error)

    def _command_save(self, given: Sequence[tuple[str, Any]]) -> Save:
        """The save of what a command has written to the state, until a checkpoint holds it."""
        assert self.checkpoint_id is not None
        kept = self.run.tracked(given)
        return self.run.writes_save(self.checkpoint_id, COMMAND, "", "What the command writes", kept)

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
        self._apply([*discarded, DoneTask(INPUT, (), (), writes)])
        self.pending = {}
        self.row = RunRow(id, self.program.name, 1, time.time(), "running", *self._shown_input(input))
        run.remember(id, NO_MEMORY, 1)
        saves = self._take_thread(memory)
        if old is not None and old.status != "finished":
            changed.tell_abandoned(run, old, memory.questions)
            saves.append(AbandonQuestions(run.place))
        self.step += 1
        self.left -= 1
        saves += self._checkpoint_saves(id, "input")
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
        """An input's digest, by which `run` knows it again, or for a nested run its call's; and a short text of it."""
        known_by = self.run.called_by or resume.input_digest(input, self.run.secret)
        return known_by, self.run.serde.preview(input, 200)

    # --- plan and execute

    def _view(self) -> View:
        """What the next super-step sees."""
        managed = self.program.managed
        if not managed:
            return View(self.channels)
        return View(self.channels, {name: value(self.left - 1) for name, value in managed.items()})

    def _plan(self, moved: Collection[str] | None = None) -> list[DueTask]:
        """The tasks that are due; among those that these channels make due, where nothing else was left."""
        program, among = self.program, None
        if moved is not None:
            listeners = program.listeners.nodes
            among = {name for channel in moved if channel in listeners for name in listeners[channel]}
        view = self.run.view = self._view()
        return due_tasks(program.nodes, view, self.versions, self.seen, run=self.run.id, among=among)

    def _node(self, task: DueTask, failed: NodeCall | None = None) -> NodeCall:
        node = NodeCall(self.run, self.program.callee(task.name, self.run.crew.loop is not None), task)
        if task.timeout is not None:
            node.callee = replace(node.callee, timeout=task.timeout)
        node.attempt, node.shares = self.row.attempt, bool(node.callee.retry)
        node.tried = self.run.journal.tried(node.key)[1]
        if task.id in self.pending:
            node.restore(self.pending[task.id])
        if node.state == DONE:
            self.run.journal.restored.add(node.key)
        else:
            is_sent, mapper = task.path[0] == PUSH, (task if failed is None else failed.task).node.mapper
            input = lent(task.input) if is_sent or task.node.handler is not None else task.input
            node.args, node.context = (input if mapper is None or is_sent else mapper(input),), copy_context()
        return node

    def _execute(self, tasks: Sequence[DueTask]) -> Generator[Effect, Any, list[NodeCall]]:
        """Run the tasks that did not finish before a crash, then the handlers of those that have failed for good.

        Returns:
            All of them as calls.
        """
        run = self.run
        run.checkpoint_id, run.step = self.checkpoint_id or "", self.step + 1
        try:
            nodes = [self._node(task) for task in tasks]
        except Exception as error:  # the state does not fit the schema of a node
            yield from self._end("failed", error)
            raise
        if run.telling is not None:
            run.telling.going_on(self.step + 1, nodes)
        left = [node for node in nodes if node.state != DONE]
        run.several_nodes = len(left) > 1 or (bool(left) and left[0].task.node.handler is not None)
        if left:
            run.begin_nodes(left)
            yield Execute(left)
        failed = [node for node in nodes if node.outcome == FAILURE and node.is_to_be_handled]
        if failed and run.stop is None:
            handlers = [self._handler(node) for node in failed]
            nodes += handlers
            left = [node for node in handlers if node.state != DONE]
            run.begin_nodes(left)
            yield Execute(left)
        return nodes

    def _handler(self, failed: NodeCall) -> NodeCall:
        """The call of the handler of a node that has failed for good, which then counts as done."""
        error = failed.settled_error()
        assert error is not None
        failed.handled = True
        node = self._node(handler_task(failed.task, self.program.nodes, self.run.id), failed)
        node.error_given = NodeError(failed.name, error)
        return node

    # --- breakpoints and drains

    def _stops_at(self, names: Breakpoints, tasks: Sequence[DueTask]) -> bool:
        """Whether the run stops at one of these tasks: it is named, and something moved since the last such stop."""
        if not names or not any(not t.node.is_hidden if names == "*" else t.name in names for t in tasks):
            return False
        seen = self.seen.get(BREAKPOINT, {})
        return any(version > seen.get(name, 0) for name, version in self.versions.items())

    def _pass_breakpoints(self) -> None:
        """A run that goes on does not stop where it stopped before."""
        self.seen[BREAKPOINT] = dict(self.versions)

    def _break(self, is_over: bool = False) -> Steps:
        """End at a breakpoint."""
        if not is_over:
            yield from self._end("paused")
        if self.run.telling is not None and self.run.parent is None:
            self.run.telling.stopped_at_breakpoint()
        outcome = self._outcome()
        outcome.is_break = not is_over
        return outcome

    def _drain(self, control: RunControl) -> Part:
        """End here if somebody has asked for it."""
        if control.drain_reason is not None:
            yield from self._end("paused")
            raise GraphDrained(control.drain_reason)

    def _outcome(self) -> Outcome:
        return Outcome(self.program.output(self.channels, self.run.shown))

    # --- update

    def _apply(self, tasks: Sequence[DoneTask]) -> set[str]:
        return apply_writes(self.channels, self.versions, self.seen, tasks, self.program.listeners)

    def _update(self, nodes: Sequence[NodeCall]) -> Generator[Effect, Any, list[DueTask]]:
        """Fold the writes into the channels and save the checkpoint; gives the tasks that are due next."""
        run = self.run
        try:
            done = [DoneTask(n.name, n.task.path, n.task.triggers, self.program.writes(n)) for n in nodes]
            moved = self._apply(done)
            if self.program.is_function:
                self._close_calls()
            self.step += 1
            self.left -= 1
            saves = self._checkpoint_saves(new_id(), "loop")
            if not self.program.is_function and not run.several_nodes:
                saves[:0] = run.node_saves(nodes)
            tasks = self._plan(moved)
        except Exception as error:
            yield from self._end("failed", error)
            raise
        if not tasks:
            self.row = self._row("finished")
            if any(question.state == "open" for question in run.journal.questions.values()):
                saves.append(AbandonQuestions(run.place, run.id))  # of earlier attempts, that nobody asks any more
            saves.append(SaveRun(run.place, self.row))
        if run.saver is not None:
            yield from self._store(saves, "a checkpoint")
        if run.telling is not None and not run.several_nodes:
            for node in nodes:
                if node.stored_writes is None and not node.handled:
                    run.telling.node_done(node)
        if self.program.shows(moved, self.run.shown):
            self._tell_values()
        self._tell_checkpoint(tasks)
        if not tasks:
            changed.tell_unclaimed(run)
        return tasks

    def _close_calls(self) -> None:
        """The function has ended, and with it the super-steps of its calls."""
        steps, telling = self.run.journal.steps, self.run.telling
        closed = steps.close()
        if telling is not None:
            telling.committed(closed)
        if steps.committed:
            self.checkpoint_id = call_checkpoint_id(self.run.id, steps.committed - 1)

    def _checkpoint_saves(self, id: str, source: Any) -> list[Save]:
        """The save of a new checkpoint, whose parent is the newest one; only the channels that moved are stored."""
        parent, self.checkpoint_id, self.parent_id = self.checkpoint_id, id, self.checkpoint_id
        run = self.run
        before, self.stored_versions = self.stored_versions, dict(self.versions)
        moved = {name for name, version in self.versions.items() if version != before.get(name)}
        self.metadata = cast(CheckpointMetadata, {**self.marks(), "source": source, "run": run.id})
        if self.run.saver is None:
            return []
        values = {}
        title = self.program.channel_title
        for name in moved:
            channel, version = self.channels[name], self.versions[name]
            row = row_of(channel, run.place, name, version, before.get(name), run.dumps, title)
            if row is not None:
                values[name] = row
        checkpoint = new_checkpoint(id, self.versions, self.seen, moved)
        return [SaveCheckpoint(self.run.place, checkpoint, self.metadata, parent, values)]

    def marks(self) -> dict[str, Any]:
        """The metadata of a new checkpoint, but for where it comes from and the run it belongs to."""
        return {**self.run.terms.marks, "step": self.step, "parents": self.run.parents()}

    # --- the ways to end before the end

    def _went_well(self, nodes: Sequence[NodeCall]) -> bool:
        """Whether every node has come to a value, and nothing else stops the run."""
        run = self.run
        return run.stop is None and not (run.failures or run.asked) and all(n.outcome == VALUE for n in nodes)

    def _is_broken(self, nodes: Sequence[NodeCall]) -> bool:
        return self.run.stop is not None or any(
            node.outcome in (FAILURE, CRASHED, CANCELLED) and not node.handled for node in nodes
        )

    def _is_at_breakpoint(self, nodes: Sequence[NodeCall]) -> bool:
        """Whether a program inside has stopped at one, and nothing else is amiss."""
        return any(isinstance(node.error, AtBreakpoint) for node in nodes) and not self._is_broken(nodes)

    def _raise_if_broken(self, nodes: Sequence[NodeCall]) -> Part:
        """End the run when a node, or a task that nobody looked at, did not come to a value."""
        run = self.run
        nodes = [node for node in nodes if not node.handled]
        crashed = next((n.error for n in nodes if n.outcome == CRASHED), None)
        failed = next((n.error for n in nodes if n.outcome == FAILURE), None)
        stopped = [n.error for n in nodes if n.outcome == STOPPED]
        if failed is not None:  # what others wait for goes on with the next attempt
            stopped = [error for error in stopped if not isinstance(error, Asked | AtBreakpoint)]
        stop = run.stop or next(iter(stopped), None)
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
        if not self.program.is_function:
            saves += run.failure_saves()
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
                for question in asked:
                    run.parent.note_asked(question)
        self.row = self._row("waiting")
        if run.saver is not None:
            yield from self._store([SaveRun(run.place, self.row)], "that the run waits")
        if run.parent is None:
            for question in asked:
                row: QuestionRow | None = yield OneQuestion(run.place.thread, question.id)
                if row is not None and row.state == "answered":
                    return Outcome(None, asked, again=True)
        if run.telling is not None:
            for node in nodes:
                if node.asked:
                    run.telling.asked(tuple(node.asked), self.program.output(self.channels, run.shown))
                    run.telling.stopped(node)
        done = [node for node in nodes if node.outcome == VALUE and node.state == DONE]
        if done and not self.program.is_function:
            moved = self._apply([DoneTask(n.name, n.task.path, n.task.triggers, self.program.writes(n)) for n in done])
            if run.parent is None and self.program.shows(moved, run.shown):
                self._tell_values()
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
        run = self.run
        if run.telling is None:
            return
        telling = run.telling
        telling.is_going_on, telling.pending = True, self.pending
        telling.last_error = error if self.program.is_function else None
        self._tell_values()
        self._tell_checkpoint()
        telling.is_going_on, telling.pending, telling.last_error = False, {}, None

    def _tell_values(self) -> None:
        if self.run.telling is not None:
            self.run.telling.values(self.program.output(self.channels, self.run.shown))

    def _tell_checkpoint(self, tasks: Sequence[DueTask] | None = None) -> None:
        telling = self.run.telling
        if telling is None or self.run.saver is None or not telling.events.wants("checkpoints", "debug"):
            return
        assert self.checkpoint_id is not None
        due = self._plan() if tasks is None else tasks
        values = self.program.output(self.channels, self.program.stream_channels)
        payload = telling.checkpoint_payload(self.checkpoint_id, self.parent_id, values, self.metadata, due)
        telling.checkpoint(payload, self.step)
