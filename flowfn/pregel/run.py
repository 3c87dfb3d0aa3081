"""One run, as it is told what happens: calls made, attempts begun and ended, saves done, questions asked.

It is told by whatever worker something happened on, and changes only under the crew's lock. The course it takes through
its super-steps is `loop.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowfn.checkpoint.base import Saver
from flowfn.checkpoint.records import (
    CACHED,
    DEPENDS,
    Memory,
    Place,
    SaveCall,
    SaveWrites,
)
from flowfn.errors import (
    FlowStop,
    Paused,
    SaveStopped,
    UnstorableError,
    UnstorableResultError,
)
from flowfn.executors.threads import let_pass
from flowfn.pregel import changed, outcomes
from flowfn.pregel.callee import Callee
from flowfn.pregel.calls import BLOCKED, CANCELLED, CRASHED, DONE, DUE, FAILURE, RUNNING, SAVING, STOPPED, VALUE, Call
from flowfn.pregel.code import source_digest
from flowfn.pregel.journal import Journal
from flowfn.pregel.saving import Saving
from flowfn.pregel.telling import Telling
from flowfn.pregel.update import NO_WRITES
from flowfn.serde.base import Serializer
from flowfn.types import MISSING, Interrupt

if TYPE_CHECKING:
    from flowfn.pregel.crew import Crew
    from flowfn.pregel.frame import CallFrame
    from flowfn.pregel.program import Pregel
    from flowfn.pregel.terms import Terms
    from flowfn.stream.parts import Events

logger = logging.getLogger("flowfn")

PLAIN = Serializer()
"""Encodes for runs that no saver keeps, whose cached results are decoded all the same."""

NO_JOURNAL = Journal()
"""Stands until the run has its own."""


class Run:
    """One run of a program on one thread, or in memory only.

    Attributes:
        id: that of the checkpoint that began it.
        journal: what it remembers of its calls.
        has_records: whether a call may find its outcome on record.
        code: task → digest of its source, of the tasks called so far; `code_before` what it was when they were last.
        calls: key → call that has no outcome yet.
        depends: whether anything in it depends on a person's answer.
        nested: the runs of flows that are being called inside.
        nodes: those of the current super-step.
        open_calls: how many calls and nodes have no outcome yet; `quiet` are told when there are none.
        stop: what stops every frame of the run, or None.
        asked: its open questions of this attempt, those of nested flows too: id → question.
        failures: calls of this attempt that failed, whether now or on record.
        previous: what the thread's last finished run left, or `MISSING`.
    """

    def __init__(
        self,
        program: Pregel,
        terms: Terms,
        saver: Saver | None,
        crew: Crew,
        saving: Saving | None,
        events: Events | None,
        parent: CallFrame | None,
    ) -> None:
        self.program, self.terms, self.saver, self.crew, self.saving = program, terms, saver, crew, saving
        self.parent = parent
        self.serde = PLAIN if saver is None else saver.serde
        self.place = Place(terms.thread or "", terms.ns)
        self.thread = terms.thread
        self.id = ""
        self.attempt = 1
        self.journal = NO_JOURNAL
        self.has_records = False
        self.code: dict[str, str] = {}
        self.code_before: Mapping[str, str] = {}
        self.calls: dict[bytes, Call] = {}
        self.open_calls = 0
        self.quiet: list[Callable[[], object]] = []
        self.stop: FlowStop | None = None
        self.asked: dict[str, Interrupt] = {}
        self.failures: list[Call] = []
        self.previous: Any = MISSING
        self.depends = False
        self.nested: list[Run] = []
        self.several_nodes = False
        self.nodes: Sequence[Call] = ()
        self.checkpoint_id = ""
        self.telling = Telling(self, events) if events is not None else None
        self.shown: str | Sequence[str] = program.output_channels

    def remember(self, id: str, memory: Memory, attempt: int) -> None:
        """Go on from what the store holds of the run."""
        committed = memory.run.committed if memory.run else 0
        self.id, self.attempt = id, attempt
        self.has_records = bool(memory.calls)
        self.code_before = memory.run.code if memory.run else {}
        self.journal = Journal(memory.calls, memory.questions, committed)

    # --- where things are

    def is_body(self, call: Call) -> bool:
        """Whether this is the body of a flow written as a function, which holds no place of the crew."""
        return call.frame is None and self.program.is_function

    def path_of(self, call: Call) -> bytes:
        """What the keys of a call's own calls start with; empty for a flow's body."""
        return b"" if self.is_body(call) else call.key

    def config_of(self, frame: CallFrame) -> dict[str, Any]:
        return self.terms.config_inside(self.id)

    def parents(self) -> dict[str, str]:
        """The checkpoints of the surrounding flows that this run belongs to: namespace → id."""
        if self.parent is None:
            return {}
        around = self.parent.run
        return {**around.parents(), around.place.ns: around.checkpoint_id}

    def begin_nodes(self, calls: Sequence[Call]) -> None:
        """These nodes are due in this super-step."""
        with self.crew.lock:
            self.several_nodes = len(calls) > 1
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
        crew, lock = self.crew, self.crew.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            self._join(call)
            then = self._block(call) if call.needs else crew.put(call)
        if then is not None:
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
        if frame.of.frame is None:
            call.step = steps.join()
        else:
            call.step = frame.of.step
            steps.begin(call.step)
        frame.open_calls += 1
        self.calls[call.key] = call
        self.open_calls += 1

    def _feed(self, call: Call) -> None:
        """All that a call's arguments wait for is done: it is due, or ends as the first of them that has no value."""
        broken = next((needed for needed in call.needs if needed.outcome != VALUE), None)
        with self.crew.lock:
            if call.state != BLOCKED:
                return
            call.state = RUNNING if broken else DUE
            then = None if broken else self.crew.put(call)
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
            call.state = RUNNING
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
            call.state = RUNNING
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
        if dropped:
            call.outcome = CANCELLED
            self.settle(call)
            return True
        if handle is None:
            return False
        loop = handle.get_loop()
        if asyncio._get_running_loop() is loop:
            handle.cancel()
        else:
            loop.call_soon_threadsafe(handle.cancel)
        return True

    # --- told by attempts

    def answered_by_cache(self, call: Call) -> bool:
        """Settle a call from the cache, if its policy and the cache say so."""
        try:
            value = self.program.cached(call)
        except Exception:  # an entry that cannot be read is as good as none
            logger.exception("An entry of the cache for task `%s` could not be read", call.name)
            return False
        if value is MISSING:
            return False
        call.started = call.ended = time.time()
        call.flags |= CACHED
        call.value = value
        self._conclude(call, VALUE)
        return True

    def end(self, frame: CallFrame, value: Any = None, error: BaseException | None = None) -> None:
        """An attempt has come to its end, one way or another."""
        call = frame.of
        call.ended = time.time()
        frame.ended = True
        if error is None and frame.stop is None:
            if frame.fresh:
                _make_history(frame, None)
            call.value = value
            if self.saver is None or call.frame is None:
                self._conclude(call, VALUE)
            else:
                call.args, call.kwargs, call.context = (), {}, None
                outcomes.encode(call, self.serde)
                self._put_on_record(call)
            if call.cache_key is not None and not call.flags & DEPENDS and call.outcome == VALUE:
                self._keep_in_cache(call)
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
            self._conclude(call, CRASHED, error)
        elif frame.stop is not None:
            self._conclude(call, STOPPED, frame.stop)
        elif isinstance(error, FlowStop):
            self._conclude(call, STOPPED, error)
        elif isinstance(error, Exception):
            self._cancel_children(frame)
            self._conclude(call, FAILURE, error)
        else:
            self._conclude(call, CANCELLED, error)

    def _keep_in_cache(self, call: Call) -> None:
        """Put a result into the cache; a cache that fails costs nobody the result."""
        try:
            self.program.keep_in_cache(call)
        except Exception:
            logger.exception("The result of task `%s` could not be kept in the cache", call.name)

    def _cancel_children(self, frame: CallFrame) -> None:
        """Calls that a failed frame has made and nobody has begun do not start."""
        if frame.open_calls:
            for child in [c for c in list(self.calls.values()) if c.frame is frame and c.state in (BLOCKED, DUE)]:
                self.cancel(child)

    def _conclude(self, call: Call, outcome: int, error: BaseException | None = None) -> None:
        """Note an outcome, and have it stored if it is one to be kept."""
        call.outcome, call.error = outcome, error
        call.args, call.kwargs, call.context = (), {}, None
        kept = outcome <= FAILURE and self.saver is not None
        if call.frame is None:
            self._conclude_node(call, kept)
        elif kept:
            outcomes.encode(call, self.serde)
            self._put_on_record(call)
        else:
            self.settle(call)

    def _conclude_node(self, call: Call, kept: bool) -> None:
        if not (kept and self.several_nodes and call.outcome == VALUE):
            self.settle(call)
            return
        try:
            save = self._node_save(call)
        except Exception as error:  # what a writer of the program raises, too
            call.outcome, call.error = FAILURE, error
            self.settle(call)
            return
        self._save(call, save)

    def _node_save(self, call: Call) -> SaveWrites:
        """The save of a finished node's writes, beside the checkpoint it was due at."""
        given = self.program.writes(call) or [(NO_WRITES, None)]
        writes = [(name, self.dumps(v, f"What node `{call.name}` wrote")) for name, v in given]
        return SaveWrites(self.place, self.checkpoint_id, call.id, self.program.path_text(call), writes)

    def node_saves(self, calls: Sequence[Call]) -> list[SaveWrites]:
        """The saves of finished nodes that go with the next checkpoint; for the history alone."""
        return [self._node_save(call) for call in calls] if self.saver is not None else []

    def dumps(self, value: Any, what: str) -> bytes:
        """The value encoded; `what` says in an error what it was.

        Raises:
            UnstorableResultError: it cannot be.
        """
        try:
            return self.serde.dumps(value, what)
        except UnstorableError as error:
            raise UnstorableResultError(what, error) from None

    def decoded(self, call: Call) -> Any:
        """What a call's payload holds, a new copy each time."""
        assert call.payload is not None
        return self.serde.loads(call.payload)

    # --- saves

    def _put_on_record(self, call: Call) -> None:
        """Have an outcome stored; it is settled once that is done."""
        saving = self.saving
        if saving is None or saving.is_instant:
            self._store(call)
            return
        lock = self.crew.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            call.state = SAVING
            save = SaveCall(self.place, self.id, outcomes.row(call, self.journal))
            batch = saving.add(save, call)
        if batch is not None:
            saving.begin(batch)

    def _store(self, call: Call) -> None:
        """Store an outcome here and now, if there is a store, and settle it."""
        if self.saver is not None:
            lock = self.crew.lock
            if lock.locked():
                let_pass(lock)
            with lock:
                save = SaveCall(self.place, self.id, outcomes.row(call, self.journal))
            try:
                self.saver.save([save])
            except Exception as error:
                self.saved(call, error)
                return
        self.settle(call)

    def _save(self, call: Call, save: SaveWrites) -> None:
        assert self.saving is not None
        with self.crew.lock:
            call.state = SAVING
            batch = self.saving.add(save, call)
        if batch is not None:
            self.saving.begin(batch)

    def saved(self, call: Call, error: BaseException | None) -> None:
        """A call's outcome is durable, or could not be stored: then the whole run stops."""
        if error is not None:
            stop = SaveStopped(f"the result of task `{call.name}`", error)
            self.stop = self.stop or stop
            call.outcome, call.error = STOPPED, stop
        self.settle(call)

    def settle(self, call: Call) -> None:
        """A call has its outcome: whoever waits goes on."""
        lock = self.crew.lock
        if lock.locked():
            let_pass(lock)
        with lock:
            call.state = DONE
            if not call.number:
                call.number = self.journal.next_number()
            frame = call.frame
            committed: Sequence[int] = ()
            if frame is not None:
                frame.open_calls -= 1
                self.calls.pop(call.key, None)
                if call.outcome <= CANCELLED:
                    committed = self.journal.steps.settle(call.step)
            waiters, call.waiters = call.waiters, None
            feeds, call.feeds = call.feeds, None
            if call.outcome == FAILURE and frame is not None:
                self.failures.append(call)
                frame.unseen = [*frame.unseen, call]
            quiet = self._one_less() if self.telling is None else ()
        if self.telling is not None:
            self.telling.settled(call, committed)
            with lock:  # only now: who is told that nothing is open has been told everything
                quiet = self._one_less()
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
        if steps.is_sealed or call.step != steps.open or call.frame is None or call.frame.of.frame is not None:
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

    def abandon(self) -> None:
        """Whoever drove the run is gone: nothing more starts, and nobody waits for what runs."""
        self.pause("its driver was interrupted")

    def pause(self, reason: str) -> None:
        """Every frame stops at its next call, question or look; what runs is let finish and stored."""
        with self.crew.lock:
            self.stop = self.stop or Paused(reason)
            nested = list(self.nested)
        for inner in nested:
            inner.pause(reason)
        for call in [*self.calls.values(), *self.nodes]:
            if call.state in (BLOCKED, DUE) or (call.handle is not None and call.state == RUNNING):
                self.cancel(call)


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
