"""A run's side of a stream: which of the things that happen to it become which parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowfn.checkpoint.records import (
    RECORDED,
    QuestionRow,
    call_checkpoint_id,
)
from flowfn.checkpoint.rows import interrupt_of
from flowfn.errors import ParentCommand
from flowfn.pregel.calls import ERROR, FAILURE, STOPPED, VALUE, Call, NodeCall
from flowfn.pregel.messaging import Messaging
from flowfn.pregel.plan import PUSH, DueTask, inner_address
from flowfn.pregel.questions import last_asked, questions_of
from flowfn.stream import parts
from flowfn.types import Interrupt

if TYPE_CHECKING:
    from flowfn.pregel.frame import CallFrame
    from flowfn.pregel.run import Run
    from flowfn.stream.parts import Events


SHOWN = ("source", "step", "parents", "call_step", "calls")
"""What a stream shows of a new checkpoint's metadata; of one that a run goes on from it shows all that is stored."""


class Telling:
    """Tells a run's events to its watcher."""

    def __init__(self, run: Run, events: Events) -> None:
        self.run, self.events = run, events
        self.messages = None if events.messages is None else Messaging(run, events.messages)
        self.ns: tuple[str, ...] = tuple(run.place.ns.split("|")) if run.place.ns else ()
        self.step = -1
        self.due: Sequence[DueTask] = ()
        self.is_going_on = False
        self.last_error: str | None = None
        self.pending: Mapping[str, Sequence[tuple[str, Any]]] = {}
        self._members: dict[int, list[str]] = {}

    def going_on(self, step: int, nodes: Sequence[NodeCall]) -> None:
        """A super-step begins, in which some nodes may be known to have finished."""
        self.step = step
        for node in nodes:
            if node.stored_writes is not None:
                self.node_done(node)

    def begun(self, call: Call) -> None:
        """A call begins."""
        if isinstance(call, NodeCall):
            if call.task.node.is_hidden:
                return
            input, triggers = call.args[0], call.task.triggers
        else:
            input, triggers = (call.args, call.kwargs), (PUSH,)
        part = parts.started(call.id, call.name, input, triggers, self._metadata(call))
        self.events.tell_debug(self.ns, "tasks", "task", self.step, part)

    def _metadata(self, call: Call) -> dict[str, Any]:
        """What the caller and the node, or that around a task, say about themselves."""
        terms, node = self.run.terms, call.outermost_node
        tags = [*terms.tags, *node.tags]
        return {**({"tags": tags} if tags else {}), **terms.metadata, **node.metadata}

    def settled(self, call: Call, committed: Sequence[int]) -> None:
        """A call or node has its outcome, and super-steps may have committed with it."""
        if call.frame is not None and call.outcome == VALUE and not call.flags & RECORDED:
            self.events.tell(self.ns, "updates", parts.update(call.name, call.value, call.is_cached))
        if isinstance(call, NodeCall) and call.outcome == VALUE:
            if self.run.several_nodes:
                self.node_done(call)
        elif call.outcome in (VALUE, FAILURE, STOPPED) and not call.flags & RECORDED:
            self._ended(call)
        if self.run.saver is not None and self.events.wants("checkpoints", "debug"):
            self._members.setdefault(call.step, []).append(call.id)
            self.committed(committed)

    def _ended(self, call: Call) -> None:
        if isinstance(call, NodeCall) and call.task.node.is_hidden:
            return
        if isinstance(call.error, ParentCommand):  # no failure: the node around it goes on with that
            return
        asked = [
            q for q in self.run.asked.values() if call.error is not None and getattr(call.error, "question", 0) == q.id
        ]
        error = call.error if call.outcome == FAILURE else None
        result: Any = {}
        if call.outcome == VALUE:
            result = {"__return__": call.value}
            if isinstance(call, NodeCall):
                result = self.run.program.shown_writes(call, self.run.program.stream_channels)
        if call.frame is not None or call.outcome != STOPPED:
            self.events.tell_debug(
                self.ns, "tasks", "task_result", self.step, parts.ended(call.id, call.name, error, result, asked)
            )

    def stopped(self, node: NodeCall) -> None:
        """A node ends with open questions."""
        self.events.tell_debug(
            self.ns, "tasks", "task_result", self.step, parts.ended(node.id, node.name, None, {}, node.asked)
        )

    def node_done(self, node: NodeCall) -> None:
        """A node's writes are stored."""
        if node.task.node.is_hidden:
            return
        shown = self.run.program.shown_update(node, self.run.shown)
        is_known = node.stored_writes is not None or node.is_cached
        self.events.tell(self.ns, "updates", parts.update(node.name, shown, is_known))
        if not is_known:
            self._ended(node)

    def stopped_at_breakpoint(self) -> None:
        """The run ends at a breakpoint."""
        self.events.tell(self.ns, "updates", {"__interrupt__": ()})

    def values(self, value: Any, interrupts: tuple[Interrupt, ...] = ()) -> None:
        self.events.tell(self.ns, "values", value, interrupts)

    def asked(self, interrupts: tuple[Interrupt, ...], value: Any) -> None:
        """The run ends with open questions."""
        self.events.tell(self.ns, "updates", {"__interrupt__": interrupts})
        self.events.tell(self.ns, "values", value if isinstance(value, dict) else {}, interrupts)

    def custom(self, frame: CallFrame, chunk: Any) -> None:
        node = frame.of
        while node.frame is not None:
            node = node.frame.of
        if self.ns and not self.events.subgraphs:
            return
        inside = () if node is frame.of else (f"{node.name}:{node.id}",)
        self.events.tell((*self.ns, *inside), "custom", chunk)

    def retried(self, call: Call, error: BaseException, wait: float) -> None:
        """An attempt has failed, and another one will follow in so many seconds."""
        part = {"id": call.id, "name": call.name, "attempt": call.attempt, "error": error, "wait": wait}
        self.events.tell_debug(self.ns, "none", "retry", self.step, part)

    def changed(self, call: Call, parameters: Sequence[str], text: str) -> None:
        """A call that is not on record, where results of its task lie unclaimed."""
        part = {"id": call.id, "name": call.name, "differs_in": list(parameters), "message": text}
        self.events.tell_debug(self.ns, "none", "changed_call", self.step, part)

    def checkpoint(self, payload: Mapping[str, Any], step: int) -> None:
        """A checkpoint of the program is saved."""
        self.events.tell_debug(self.ns, "checkpoints", "checkpoint", step, payload)

    def committed(self, steps: Sequence[int]) -> None:
        """Super-steps inside the function have committed."""
        run = self.run
        for step in steps:
            calls = self._members.pop(step, [])
            id = call_checkpoint_id(run.id, step)
            parent = call_checkpoint_id(run.id, step - 1) if step else run.id
            metadata = {"source": "call", "step": self.step, "parents": {}, "call_step": step, "calls": calls}
            self.checkpoint(self.checkpoint_payload(id, parent, None, metadata, self.due), self.step)

    def checkpoint_payload(
        self, id: str, parent: str | None, values: Any, metadata: Mapping[str, Any], due: Sequence[DueTask]
    ) -> dict[str, Any]:
        """A checkpoint in the `checkpoints` shape."""
        self.due = due
        place = self.run.place
        is_function = self.run.program.is_function
        questions = list(self.run.journal.questions.values()) if is_function or self.is_going_on else []
        questions = [row for row in questions if not (is_function and row.used)]
        if self.is_going_on:
            questions += [row for row in self.run.outermost.open_before if row.ns != place.ns]
        asked = questions_of(due, self.pending, place.ns, questions)
        if not is_function:
            asked = {id: last_asked(rows) for id, rows in asked.items()}
        tasks = []
        for task in due:
            told = {**self._left(task), "interrupts": self._questions(asked[task.id])}
            if "error" in told:
                del told["interrupts"]
            state = inner_address(place.thread, place.ns, task)
            tasks.append({"id": task.id, "name": task.name, **told, "state": state})
        shown = {key: value for key, value in metadata.items() if key in SHOWN or (self.is_going_on and key != "run")}
        return parts.checkpoint(
            self._config(id),
            None if parent is None else self._config(parent),
            values,
            shown,
            [task.name for task in due],
            tasks,
        )

    def _left(self, task: DueTask) -> dict[str, Any]:
        """What a due task had come to before the run went on."""
        writes = self.pending.get(task.id, ())
        error = next((value for channel, value in writes if channel == ERROR), self.last_error)
        own = [write for write in writes if write[0] != ERROR]
        if own:
            result = self.run.program.shown_result(own)
            return {"result": result} if result else {}
        return {} if error is None else {"error": error if isinstance(error, str) else repr(error)}

    def _questions(self, rows: Sequence[QuestionRow]) -> tuple[dict[str, Any], ...]:
        serde, thread = self.run.serde, self.run.place.thread
        return tuple(parts.interrupt_shape(interrupt_of(row, thread, serde)) for row in rows)

    def _config(self, id: str) -> dict[str, Any]:
        place = self.run.place
        own: dict[str, Any] = {"thread_id": place.thread, "checkpoint_ns": place.ns, "checkpoint_id": id}
        if place.ns:
            own["checkpoint_map"] = {**self.run.parents(), place.ns: id}
        return {"configurable": {**self.run.terms.configurable, **own}}
