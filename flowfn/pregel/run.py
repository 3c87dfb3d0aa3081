"""One run, as it is told what happens: calls made, attempts begun and ended, saves done, questions asked.

It is told by whatever worker something happened on, and changes only under the crew's lock. The course it takes through
its super-steps is `loop.py`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

from flowfn.channels import UntrackedValue
from flowfn.checkpoint import cells
from flowfn.checkpoint.cells import Cell
from flowfn.checkpoint.records import (
    CACHED,
    DEPENDS,
    PACKED,
    Memory,
    Place,
    QuestionRow,
    Save,
    SaveCall,
    SaveWrites,
)
from flowfn.errors import (
    FlowStop,
    GraphDrained,
    ParentCommand,
    Paused,
    SaveStopped,
    UnstorableError,
    UnstorableResultError,
    WorkerDiedError,
)
from flowfn.executors import payload
from flowfn.executors.threads import let_pass
from flowfn.pregel import cached, changed, elsewhere, gates, outcomes, trying
from flowfn.pregel.callee import Callee, is_gated
from flowfn.pregel.calls import (
    BLOCKED,
    CANCELLED,
    CRASHED,
    DONE,
    DUE,
    ERROR,
    FAILURE,
    RESTING,
    RUNNING,
    SAVING,
    STOPPED,
    VALUE,
    Call,
    NodeCall,
)
from flowfn.pregel.code import source_digest
from flowfn.pregel.journal import Journal
from flowfn.pregel.lagging import RunSaver
from flowfn.pregel.plan import PUSH, View
from flowfn.pregel.saving import Saving
from flowfn.pregel.telling import Telling
from flowfn.pregel.update import NO_WRITES
from flowfn.serde.base import Serializer
from flowfn.stream.messages import with_callback
from flowfn.types import MISSING, Interrupt

if TYPE_CHECKING:
    from flowfn.context import RunControl
    from flowfn.executors.base import Where
    from flowfn.pregel.crew import Crew
    from flowfn.pregel.frame import CallFrame
    from flowfn.pregel.program import Pregel
    from flowfn.pregel.staging import Staged
    from flowfn.pregel.terms import Terms
    from flowfn.stream.parts import Events

logger = logging.getLogger("flowfn")

PLAIN = Serializer()
"""Encodes for runs that no saver keeps, whose cached results are decoded all the same."""

NOBODY = -1
"""No thread's number."""

NO_JOURNAL = Journal()
"""Stands until the run has its own."""


class Run:
    """One run of a program on one thread, or in memory only.

    Attributes:
        id: that of the checkpoint that began it.
        secret: goes into every hash of a value that is stored.
        owner: by this name it holds its thread, once its `place` has the number of a lease.
        journal: what it remembers of its calls.
        has_records: whether a call may find its outcome on record.
        called_by: for a nested run, 16 bytes that name the call that it is; `other_ns` is its namespace where the
            first one is another call's.
        code: task → digest of its source, of the tasks called so far; `code_before` what it was when they were last.
        calls: key → call that has no outcome yet.
        depends: whether anything in it depends on a person's answer.
        nested: the runs of flows that are being called inside.
        nodes: those of the current super-step; `step` is its number, `view` what it sees.
        several_nodes: whether what each of them gives is stored at once, and not only with the checkpoint.
        open_calls: how many calls and nodes have no outcome yet; `quiet` are told when there are none.
        executor: where the tasks run that do not say, or None for threads.
        stage: where it runs under test, or None.
        stop: what stops every frame of the run, or None.
        open_before: questions, of nested flows too, that were open when the answers of this attempt came.
        asked: its open questions of this attempt, those of nested flows too: id → question.
        failures: calls of this attempt that failed, whether now or on record.
        crashed: those that an interrupt ended.
        shared: key → call, of those that further attempts of a call around them may make again.
        previous: what the thread's last finished run left, or `MISSING`.
    """

    def __init__(
        self,
        program: Pregel,
        terms: Terms,
        saver: RunSaver | None,
        crew: Crew,
        saving: Saving | None,
        events: Events | None,
        parent: CallFrame | None,
    ) -> None:
        self.program, self.terms, self.saver, self.crew, self.saving = program, terms, saver, crew, saving
        self.parent = parent
        self.serde = PLAIN if saver is None else saver.serde
        self.secret: bytes = self.serde.digest_key if saver is not None or parent is None else parent.run.secret
        fence: int | None = None if parent is None else parent.run.place.fence
        self.place: Place = Place(terms.thread or "", terms.ns, fence)
        self.owner = ""
        self.called_by = b""
        self.other_ns = ""
        self.thread = terms.thread
        self.id = ""
        self.attempt = 1
        self.journal = NO_JOURNAL
        self.has_records: bool = False
        self.code: dict[str, str] = {}
        self.code_before: Mapping[str, str] = {}
        self.calls: dict[bytes, Call] = {}
        self.open_calls = 0
        self.quiet: list[Callable[[], object]] = []
        self.stage: Staged | None = None
        self.executor: Where | None = None
        self.stop: FlowStop | None = None
        self.asked: dict[str, Interrupt] = {}
        self.open_before: Sequence[QuestionRow] = ()
        self.failures: list[Call] = []
        self.crashed: list[Call] = []
        self.shared: dict[bytes, Call] = {}
        self.previous: Any = MISSING
        self.depends = False
        self.nested: list[Run] = []
        self.several_nodes = False
        self.nodes: Sequence[NodeCall] = ()
        self.step = -1
        self.view = View({})
        self.checkpoint_id = ""
        self.telling = Telling(self, events) if events is not None else None
        self.shown: str | Sequence[str] = program.output_channels

    def remember(self, id: str, memory: Memory, attempt: int) -> None:
        """Go on from what the store holds of the run."""
        found, row = memory.checkpoint, memory.run
        self.id, self.attempt = id, attempt
        self.code_before = row.code if row else {}
        calls, questions = memory.calls, [asked for asked in memory.questions if asked.state != "abandoned"]
        if not self.program.is_function and found is not None:
            after = found.metadata.get("step", -1)
            calls = [call for call in calls if call.step > after]
            questions = [question for question in questions if question.step > after]
        self.journal = Journal(calls, questions, row.committed if row else 0, counts_steps=self.program.is_function)
        self.journal.stored = memory.calls[-1].seq if memory.calls else 0
        self.has_records = bool(calls)

    @functools.cached_property
    def surroundings(self) -> bytes:
        """What code that runs elsewhere may ask for, packed once."""
        previous = None if self.previous is MISSING else self.previous
        config = self.terms.config_inside(self.id)
        return payload.surroundings(config, self.terms.context, previous, self.program.store is not None)

    def move_to(self, ns: str) -> None:
        """Keep what it stores in that namespace; it has stored nothing so far."""
        self.terms = replace(self.terms, ns=ns)
        self.place = self.place._replace(ns=ns)
        if self.telling is not None:
            self.telling = Telling(self, self.telling.events)

    # --- where things are

    @property
    def title(self) -> str:
        """What people call its flow."""
        return getattr(self.program, "title", self.program.name)

    @property
    def can_go_on_elsewhere(self) -> bool:
        """Whether another process could go on with it: a saver that saves in no time keeps it in this one's memory."""
        saver = self.program.kept_in
        return saver is not None and not saver.is_instant

    @property
    def how_to_resume(self) -> str:
        return f'{self.title}.thread("{self.place.thread}").resume()'

    def is_body(self, call: Call) -> bool:
        """Whether this is the body of a flow written as a function, which holds no place of the crew."""
        return call.frame is None and self.program.is_function

    def path_of(self, call: Call) -> bytes:
        """What the keys of a call's own calls start with; empty for a flow's body."""
        return b"" if self.is_body(call) else call.key

    def config_of(self, frame: CallFrame) -> dict[str, Any]:
        call = frame.of
        config = self.terms.config_inside(self.id)
        config["metadata"], config["tags"] = self.metadata_of(call), self.tags_of(call)
        if not self.program.is_function:
            config["configurable"]["checkpoint_ns"] = config["metadata"]["langgraph_checkpoint_ns"]
        handler = None if frame.messages is None else frame.messages.handler(call)
        if handler is not None or self.terms.callbacks is not None:
            config["callbacks"] = with_callback(self.terms.callbacks, handler)
        return config

    def metadata_of(self, call: Call) -> dict[str, Any]:
        """What is said of a call to whoever runs inside it or sees its messages, with LangGraph's keys."""
        thread = {} if self.thread is None else {"thread_id": self.thread}
        return {
            **thread,
            **self.terms.metadata,
            **call.outermost_node.metadata,
            "langgraph_step": max(self.step, 0) if self.program.is_function else self.step,
            "langgraph_node": call.name,
            "langgraph_triggers": tuple(call.task.triggers) if isinstance(call, NodeCall) else (PUSH,),
            "langgraph_path": call.path,
            "langgraph_checkpoint_ns": "|".join([part for part in (self.place.ns, call.line) if part]),
        }

    def tags_of(self, call: Call) -> list[str]:
        return [*self.terms.tags, *call.outermost_node.tags]

    def parents(self) -> dict[str, str]:
        """The checkpoints of the surrounding flows that this run belongs to: namespace → id."""
        if self.parent is None:
            return {}
        around = self.parent.run
        return {**around.parents(), around.place.ns: around.checkpoint_id}

    def begin_nodes(self, calls: Sequence[NodeCall]) -> None:
        """These nodes are due in this super-step."""
        with self.crew.lock:
            self.nodes = calls
            self.open_calls += len(calls)

    # --- told by frames: a call is made

    def meet(self, callee: Callee) -> None:
        """A task is called for the first time in this attempt."""
        now = self.code[callee.title] = source_digest(callee.fn)
        if self.code_before.get(callee.title, now) != now:
            changed.tell_code(self, callee.title)

    def known_call(self, key: bytes, frame: CallFrame, callee: Callee) -> Call | None:
        """The call that is on record under that key."""
        if frame.of.shares and (earlier := self.shared.get(key)) is not None:
            return trying.adopted(earlier, frame)
        row = self.journal.claim(key)
        if row is None:
            return None
        call = Call.replayed(self, callee, row, frame)
        if call.outcome == FAILURE:
            self.failures.append(call)
        return call

    def make(self, call: Call) -> None:
        """A call that has no outcome: it joins its super-step and is due once its arguments have their values."""
        if self.has_records:
            changed.tell(self, call)
        if self.terms.control is not None:
            self._drain(call, self.terms.control)
        lock = self.crew.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if self.stop is not None:
                raise self.stop
            self._join(call)
            callee = call.callee
            if call.needs:
                then = self._block(call)
            elif callee.rate is None and callee.max_running is None:
                then = self.crew.put(call)
            else:
                then = gates.ask(call)
        if then is not None:
            then()

    def _drain(self, call: Call, control: RunControl) -> None:
        """Stop the run where a call would open the next super-step of the function, if somebody has asked for it."""
        if control.drain_reason is None or call.frame is None or not self.is_body(call.frame.of):
            return
        if self.journal.steps.is_sealed:
            self.halt(GraphDrained(control.drain_reason))

    def put(self, call: Call) -> Callable[[], object] | None:
        """A call is due, if its rate and limit allow. The lock is held; gives what is to be done once it is not."""
        return gates.ask(call) if is_gated(call.callee) else self.crew.put(call)

    def lay_down(self, call: Call) -> None:
        """A claimed call rests until it is revived; raises the stop of a run that has stopped."""
        with self.crew.lock:
            if self.stop is not None:
                raise self.stop
            call.state = RESTING

    def revive(self, call: Call) -> None:
        """A call that rests is due again."""
        is_body = self.is_body(call)
        with self.crew.lock:
            if call.state != RESTING:
                return
            call.state = DUE
            then = None if is_body else self.put(call)
        if is_body:
            self.crew.start_body(call)
        elif then is not None:
            then()

    def _block(self, call: Call) -> Callable[[], object] | None:
        """Have a call wait for those whose values its arguments are. The lock is held."""
        call.state = BLOCKED
        waits_for = [needed for needed in dict.fromkeys(call.needs) if needed.state != DONE]
        for needed in waits_for:
            needed.feeds = [*(needed.feeds or ()), call]
        return None if waits_for else lambda: self._feed(call)

    def _join(self, call: Call) -> None:
        frame = call.frame
        assert frame is not None
        steps = self.journal.steps
        if self.is_body(frame.of):
            call.step = steps.join()
        else:
            call.step = frame.of.step
            steps.begin(call.step)
        if call.shares:
            self.shared[call.key] = call
        if call.shares or call.callee.effect is not None:
            call.attempt, call.tried = self._attempts_before(call)
        frame.open_calls += 1
        self.calls[call.key] = call
        self.open_calls += 1

    def _attempts_before(self, call: Call) -> tuple[int, int]:
        """The number of the attempt that begins, and how many before it count for its retry policy."""
        before, failed = self.journal.tried(call.key)
        return before + 1, failed

    def _feed(self, call: Call) -> None:
        """All that a call's arguments wait for is done: it is due, or ends as the first of them that has no value."""
        broken = next((needed for needed in call.needs if needed.outcome != VALUE), None)
        with self.crew.lock:
            if call.state != BLOCKED:
                return
            call.state = RUNNING if broken else DUE
            then = None if broken else self.put(call)
        if broken is None:
            if then is not None:
                then()
            return
        call.outcome, call.error = broken.outcome, broken.settled_error()
        self.settle(call)

    def record(self, call: Call, fn: Callable[[], Any]) -> None:
        """Run a recorded call inside its caller, and store what it gave before anybody sees it."""
        changed.tell(self, call)
        with self.crew.lock:
            self._join(call)
            call.state, call.worker = RUNNING, get_ident()
        call.started = time.time()
        try:
            call.value = fn()
        except Exception as error:
            call.outcome, call.error = FAILURE, error
        except BaseException as error:
            call.outcome, call.error = CRASHED, error
            self.settle(call)
            raise
        call.ended = time.time()
        if self.saver is not None:
            outcomes.encode(call, self.serde)
        self._store(call)

    def store_failure(self, call: Call) -> None:
        """Store the failure of a call that had none of its own attempts."""
        with self.crew.lock:
            self._join(call)
            call.state, call.worker = RUNNING, get_ident()
        call.outcome = FAILURE
        call.started = call.ended = time.time()
        if self.saver is not None:
            outcomes.encode(call, self.serde)
        self._store(call)

    def cancel(self, call: Call) -> bool:
        """End a call on request; False when it has its outcome, or runs in a thread, where nothing can end it."""
        with self.crew.lock:
            if call.state == DONE or call.state == SAVING:
                return False
            dropped = self.crew.drop(call)
            handle = call.handle
            call.is_ending = handle is not None
        if dropped:
            call.outcome = CANCELLED
            self.settle(call)
            return True
        if handle is None:
            return elsewhere.end(call)
        loop = handle.get_loop()
        if asyncio._get_running_loop() is loop:
            handle.cancel()
        else:
            loop.call_soon_threadsafe(handle.cancel)
        return True

    # --- told by attempts

    def answered_by_cache(self, call: Call, value: Any) -> None:
        """A call has its value from the cache."""
        logger.info("Task `%s` is answered by the cache", call.name, extra=changed.context(self, call.name))
        if self.telling is not None and isinstance(call, NodeCall):
            self.telling.begun(call)
        call.started = call.ended = time.time()
        call.flags |= CACHED
        call.value = value
        self._conclude(call, VALUE)

    def end(self, frame: CallFrame, value: Any = None, error: BaseException | None = None) -> None:
        """An attempt has come to its end, one way or another."""
        call = frame.of
        if call.state == DONE:  # it was given up
            frame.ended = True
            return
        if call.callee.timeout is None:
            frame.ended = True
        else:
            with self.crew.lock:
                if frame.ended:
                    return
                frame.ended = True
            error = frame.too_late or error  # whatever the function came to: it was over already
        call.ended = time.time()
        if error is None and frame.stop is None:
            if frame.fresh:
                _make_history(frame, None)
            call.value = value
            if call.claim is not None:
                cached.let_go(call) if call.flags & DEPENDS else cached.keep(call, value)
            if self.saver is None or call.frame is None:
                self._conclude(call, VALUE)
            else:
                call.args, call.kwargs, call.context = (), {}, None
                outcomes.encode(call, self.serde)
                self.put_on_record(call)
            return
        frame.raised = error is not None
        if error is None or frame.failed:
            _make_history(frame, error)
        if (
            error is not None
            and not isinstance(error, Exception | FlowStop | asyncio.CancelledError)
            and not (frame.stop is not None and isinstance(error, BaseExceptionGroup))
        ):
            self._cancel_children(frame)
            mine = get_ident()  # what an interrupt has kept this stack from noting
            self._end_all(lambda one: one.frame is frame and one.worker == mine, CRASHED, error)
            self._conclude(call, CRASHED, error)
        elif frame.stop is not None:
            self._conclude(call, STOPPED, frame.stop)
        elif isinstance(error, FlowStop):
            self._conclude(call, STOPPED, error)
        elif isinstance(error, Exception):
            self._fail(frame, error)
        else:
            self._conclude(call, CANCELLED, error)

    def fail(self, frame: CallFrame, error: Exception) -> None:
        """An attempt has failed while its function still runs."""
        frame.of.ended = time.time()
        frame.raised = True
        _make_history(frame, error)
        self._fail(frame, error)

    def _fail(self, frame: CallFrame, error: Exception) -> None:
        self._cancel_children(frame)
        if frame.of.claim is not None:
            cached.let_go(frame.of)
        is_lost = frame.too_late is not None or isinstance(error, WorkerDiedError)
        if is_lost and frame.of.callee.effect is not None:
            frame.of.is_unclear = True
        if not trying.is_tried_again(frame, error):
            self._conclude(frame.of, FAILURE, error)

    def _cancel_children(self, frame: CallFrame) -> None:
        """Calls that a failed frame has made and nobody has begun do not start."""
        if frame.open_calls:
            for child in list(self.calls.values()):
                if child.frame is frame and child.state in (BLOCKED, DUE, RESTING):
                    self.cancel(child)

    def _conclude(self, call: Call, outcome: int, error: BaseException | None = None) -> None:
        """Note an outcome, and have it stored if it is one to be kept."""
        call.outcome, call.error = outcome, error
        call.args, call.kwargs, call.context = (), {}, None
        kept = outcome <= FAILURE and self.saver is not None
        if isinstance(call, NodeCall):
            self._conclude_node(call, kept)
        elif kept:
            outcomes.encode(call, self.serde)
            self.put_on_record(call)
        else:
            self.settle(call)

    def _conclude_node(self, call: NodeCall, kept: bool) -> None:
        if not (kept and self.several_nodes and (call.outcome == VALUE or call.is_to_be_handled)):
            self.settle(call)
            return
        try:
            save = self._node_save(call)
        except Exception as error:  # what a writer of the program raises, too
            if call.outcome == VALUE:
                call.outcome, call.error = FAILURE, error
            self.settle(call)
            return
        self._save(call, save)

    def _node_save(self, call: NodeCall) -> SaveWrites:
        """The save of what a node came to, beside the checkpoint it was due at."""
        given = [(ERROR, call.error)] if call.outcome == FAILURE else self.tracked(self.program.writes(call))
        if call.failed_before is not None and call.outcome == VALUE:
            given = [*(given or [(NO_WRITES, None)]), (ERROR, call.failed_before)]
        path = self.program.path_text(call)
        return self.writes_save(self.checkpoint_id, call.id, path, f"What node `{call.name}` wrote", given)

    def tracked(self, writes: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """The writes without those to channels that nothing is stored of."""
        channels = self.view.channels
        return [write for write in writes if not isinstance(channels.get(write[0]), UntrackedValue)]

    def writes_save(
        self, checkpoint: str, task: str, path: str, what: str, given: Sequence[tuple[str, Any]]
    ) -> SaveWrites:
        """The save of writes that no checkpoint holds yet, beside the one they came after, in one row."""
        cell = cells.write(self.place, checkpoint, task, 0, PACKED)
        packed = self.dumps([part for write in given or [(NO_WRITES, None)] for part in write], what, cell)
        return SaveWrites(self.place, checkpoint, task, path, [(PACKED, packed)])

    def failure_saves(self) -> list[SaveWrites]:
        """The saves of what nodes have failed with, as texts; for people alone."""
        failed = [node for node in self.nodes if node.outcome == FAILURE and not node.is_to_be_handled]
        failed = [node for node in failed if not isinstance(node.error, ParentCommand)]
        return [
            self.writes_save(
                self.checkpoint_id, node.id, self.program.path_text(node), "", [(ERROR, self.serde.preview(node.error))]
            )
            for node in failed
        ]

    def node_saves(self, calls: Sequence[NodeCall]) -> list[SaveWrites]:
        """The saves of finished nodes that go with the next checkpoint; for the history alone."""
        is_meant = self.saver is not None
        return [self._node_save(call) for call in calls if call.stored_writes is None] if is_meant else []

    def dumps(self, value: Any, what: str, cell: Cell) -> bytes:
        """The value encoded for a cell; `what` says in an error what it was.

        Raises:
            UnstorableResultError: it cannot be.
        """
        try:
            return self.serde.dumps(value, what, cell)
        except UnstorableError as error:
            raise UnstorableResultError(what, error) from None

    def decoded(self, call: Call) -> Any:
        """What a call's payload holds, a new copy each time."""
        assert call.payload is not None
        return self.serde.loads(call.payload, call.cell, call.title)

    # --- saves

    def put_on_record(self, call: Call, more: Sequence[Save] = ()) -> None:
        """Have an outcome stored; it is settled once that is done.

        Args:
            more: what is to be stored with it.
        """
        saving = self.saving
        if saving is None or saving.is_instant:
            self._store(call, more)
            return
        lock = self.crew.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if call.state == DONE:
                return
            call.state = SAVING
            batch = saving.add(self._saves_of(call, more), call)
        if batch is not None:
            saving.begin(batch)

    def _saves_of(self, call: Call, more: Sequence[Save]) -> Sequence[Save]:
        """The saves of an outcome, numbered. The lock is held."""
        row = outcomes.row(call, self.journal)
        if call.callee.effect is not None:
            self.journal.note_effect(row)
        save = SaveCall(self.place, self.id, row)
        return trying.failed_attempt(call, save, more) if call.rests else (save,)

    def _store(self, call: Call, more: Sequence[Save] = ()) -> None:
        """Store an outcome here and now, if there is a store, and settle it."""
        if self.saver is not None:
            lock = self.crew.lock
            if lock.locked():
                let_pass(lock)
            with lock:
                if call.state == DONE:
                    return
                saves = self._saves_of(call, more)
            try:
                self.saver.save(saves)
            except BaseException as error:
                self.saved(call, error)
                if isinstance(error, Exception):
                    return
                raise
        if call.rests:
            trying.rest(call)
        else:
            self.settle(call)

    def _save(self, call: Call, save: SaveWrites) -> None:
        assert self.saving is not None
        with self.crew.lock:
            call.state = SAVING
            batch = self.saving.add((save,), call)
        if batch is not None:
            self.saving.begin(batch)

    def saved(self, call: Call, error: BaseException | None) -> None:
        """A call's outcome is durable, or could not be stored: then the whole run stops."""
        if call.state == DONE:  # it was given up
            return
        if error is not None and not isinstance(error, Exception):  # whether it is stored is in doubt
            call.outcome, call.error = CRASHED, error
        elif error is not None:
            stop = SaveStopped(f"the result of task `{call.name}`", error)
            call.outcome, call.error = STOPPED, stop
            if self.stop is None:
                self.outermost.halt(stop)
        elif call.rests:
            trying.rest(call)
            return
        self.settle(call)

    def settle(self, call: Call) -> None:
        """A call has its outcome: whoever waits goes on."""
        lock = self.crew.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            if call.state == DONE:
                return
            if not call.number:
                call.number = self.journal.next_number()
            frame = call.frame
            committed: Sequence[int] = ()
            if frame is not None:
                self.calls.pop(call.key, None)
                if call.outcome <= CANCELLED:
                    committed = self.journal.steps.settle(call.step)
            waiters, call.waiters = call.waiters, None
            slot, call.slot = call.slot, ""
            if call.shares and call.outcome > FAILURE:
                self.shared.pop(call.key, None)  # further attempts make it anew
            feeds, call.feeds = call.feeds, None
            if call.outcome == FAILURE and frame is not None:
                self.failures.append(call)
                frame.unseen = [*frame.unseen, call]
            elif call.outcome == CRASHED and frame is not None:
                self.crashed.append(call)
            # Without a call in between: an interrupt finds the call done and no longer counted, or neither.
            call.state = DONE
            quiet: Sequence[Callable[[], object]] = ()
            if frame is not None:
                frame.open_calls -= 1
            if self.telling is None:
                self.open_calls -= 1
                if not self.open_calls:
                    quiet, self.quiet = self.quiet, []
        if self.telling is not None:
            self.telling.settled(call, committed)
            with lock:  # only now: who is told that nothing is open has been told everything
                quiet = self._one_less()
        if call.claim is not None:
            cached.let_go(call)
        if slot:
            gates.leave(call, slot)
        for dependent in feeds or ():
            if all(needed.state == DONE for needed in dependent.needs):
                dependent.run._feed(dependent)
        for told in waiters or ():
            told()
        for told in quiet:
            told()

    def _one_less(self) -> Sequence[Callable[[], object]]:
        """One call less is open; gives those who wait for the last. The lock is held."""
        self.open_calls -= 1
        if self.open_calls or not self.quiet:
            return ()
        quiet, self.quiet = self.quiet, []
        return quiet

    def deliver(self, call: Call) -> None:
        """A result reaches its caller; the first that reaches the flow's body seals its super-step."""
        steps = self.journal.steps
        if steps.is_sealed or call.step != steps.open or call.frame is None or not self.is_body(call.frame.of):
            return
        # No lock: should another worker open the next super-step at this very moment, that one is sealed early.
        steps.is_sealed = True
        if self.telling is not None:
            with self.crew.lock:
                committed = steps.commit()
            self.telling.committed(committed)

    # --- failures

    def looked_at(self, call: Call, error: BaseException) -> BaseException:
        """A failure is seen by its caller, who may handle it."""
        call.looked = True
        for needed in call.needs:
            if needed.outcome == FAILURE:
                self.looked_at(needed, error)  # its failure is what this call ended as
        frame = call.frame
        if frame is not None and call not in frame.fresh:
            frame.fresh = [*frame.fresh, call]
            frame.failed = [*frame.failed, call]
            frame.unseen = [unseen for unseen in frame.unseen if unseen is not call]
        return error

    # --- watchers

    def emit_custom(self, frame: CallFrame, chunk: Any) -> None:
        if self.telling is not None:
            self.telling.custom(frame, chunk)

    # --- the end before the end

    def pause(self, reason: str, signal: int = 0, ends_coroutines: bool = True) -> None:
        """Every frame stops at its next call, question or look; what runs is let finish and stored.

        Args:
            signal: the one that asked for it.
            ends_coroutines: whether those that run are cancelled.
        """
        self.halt(Paused(reason, signal))
        if ends_coroutines:
            for run in self._tree():
                for call in run._open():
                    if call.handle is not None:
                        run.cancel(call)

    def halt(self, stop: FlowStop) -> None:
        """Every frame stops, those of nested flows too, and nothing more begins."""
        for run in self._tree():
            with self.crew.lock:
                run.stop = run.stop or stop
            for call in run._open():
                run._is_stopped_unbegun(call)

    @property
    def outermost(self) -> Run:
        """The run that all others around this one are nested in."""
        return self if self.parent is None else self.parent.run.outermost

    def _tree(self) -> list[Run]:
        """This run and those nested in it."""
        with self.crew.lock:
            nested = list(self.nested)
        return [self, *[run for inner in nested for run in inner._tree()]]

    def _open(self) -> list[Call]:
        return [*self.calls.values(), *self.nodes]

    def _is_stopped_unbegun(self, call: Call) -> bool:
        """Whether the call had not begun; then it ends here, and whoever waits for it stops."""
        with self.crew.lock:
            if not self.crew.drop(call):
                return False
            call.outcome, call.error = STOPPED, self.stop
        self.settle(call)
        return True

    def leave_behind(self, frame: CallFrame) -> list[Call]:
        """Flows called in an attempt that is left behind stop with it.

        Returns:
            Those of their calls whose outcome will still come.
        """
        left = []
        for inner in [inner for inner in self.nested if inner.parent is frame]:
            inner.pause("the attempt that called it took too long")
            inner.give_up(NOBODY, everything=False)
            left += [call for run in (inner, *inner.nested) for call in run._open() if call.state != DONE]
        return left

    def crash(self, error: BaseException) -> None:
        """An interrupt has unwound this thread's stack, wherever it was: what the stack had claimed ends as well."""
        self.pause("it was interrupted")
        for inner in list(self.nested):
            inner.crash(error)
        mine = get_ident()
        self._end_all(lambda call: call.worker == mine, CRASHED, error)
        if self.saving is not None:
            self.saving.crash(error)
        with self.crew.lock:  # one that was interrupted while it was settled is still counted
            self.open_calls = sum(call.state != DONE for call in self._open())
        if self.parent is None:
            self.crew.disband()

    def lose(self, call: Call, error: BaseException) -> None:
        """An interrupt came while it was being noted how a coroutine had ended."""
        self._end_all(lambda one: one is call, CRASHED, error)
        if self.saving is not None:
            self.saving.crash(error)

    def end_lost(self) -> None:
        """The event loop of this thread, idle for a while, was interrupted: what it knows no more of has ended."""
        interrupt = KeyboardInterrupt()
        for inner in list(self.nested):
            inner.end_lost()
        self._end_all(
            lambda call: call.callee.is_async and call.state == RUNNING and (call.handle is None or call.handle.done()),
            CRASHED,
            interrupt,
        )
        if self.saving is not None:
            self.saving.crash(interrupt)

    def give_up(self, driver: int, everything: bool) -> None:
        """What other threads than the driver's still run is no longer waited for; its outcome will be refused.

        Args:
            everything: also coroutines, which were cancelled and should have ended, and what is being stored.
        """
        if self.parent is None:
            self.crew.disband()
        for inner in list(self.nested):
            inner.give_up(driver, everything)
        self._end_all(
            lambda call: call.worker != driver and (everything or (call.handle is None and call.state != SAVING)),
            STOPPED,
            self.stop,
        )

    def _end_all(self, is_meant: Callable[[Call], bool], outcome: int, error: BaseException | None) -> None:
        for call in self._open():
            with self.crew.lock:
                ends = call.state in (RUNNING, SAVING) and is_meant(call)
                if ends:
                    call.outcome, call.error = outcome, error
            if ends:
                self.settle(call)


def _make_history(frame: CallFrame, error: BaseException | None) -> None:
    """A frame ends: a failure it looked at is history if it went on after that, unless the failure is what ends it."""
    if error is None:
        for call in frame.fresh:
            call.acted = True
        return
    chain = _chain(error)
    for call in frame.failed:
        if id(call.error) in chain:
            call.acted = False


def _chain(error: BaseException) -> set[int]:
    """Ids of an exception, its causes, and the members of groups, all the way down."""
    chain: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in chain:
            chain.add(id(one))
            todo.append(one.__cause__)
            if isinstance(one, BaseExceptionGroup):
                todo.extend(one.exceptions)
    return chain
