"""One entry into a program: where it runs, for whom, with whose workers, and how its stream is handed out."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowfn.context import CURRENT, Frame
from flowfn.errors import InnerBusyError, NoSaverError, NoThreadError, Paused, ThreadBusyError, ThreadMovedError
from flowfn.executors import threads
from flowfn.executors.base import Where
from flowfn.executors.remote import RemoteFrame
from flowfn.identity import Walk, digest
from flowfn.pregel import staging
from flowfn.pregel.compiled import Keys
from flowfn.pregel.crew import Crew
from flowfn.pregel.drivers import adrive, drive, drive_nested
from flowfn.pregel.frame import CallFrame
from flowfn.pregel.holding import Holding, Patience
from flowfn.pregel.lagging import LaggingSaver, lagging
from flowfn.pregel.loop import Loop, Outcome
from flowfn.pregel.run import Run
from flowfn.pregel.saving import Saving
from flowfn.pregel.terms import NO_OPTIONS, Options, Terms, joined, read_terms
from flowfn.stream.parts import Events, Part, Shape
from flowfn.types import MISSING, Durability, GraphOutput, OnBusy

if TYPE_CHECKING:
    from flowfn.pregel.program import Pregel


def result_of(outcome: Outcome, version: str) -> Any:
    """What `invoke` gives for an outcome."""
    value, asked = outcome.value, outcome.interrupts
    if version == "v2":
        return GraphOutput({} if asked and value is None else value, asked)
    if not asked:
        return value
    return {**(value if isinstance(value, dict) else {}), "__interrupt__": list(asked)}


class Entry:
    """One entry into a program: where it runs, for whom, and with whose workers."""

    def __init__(
        self,
        program: Pregel,
        config: Mapping[str, Any] | None,
        options: Options,
        shown: Keys,
        events: Events | None,
        loop: asyncio.AbstractEventLoop | None = None,
        durability: Durability | None = None,
        on_busy: OnBusy | None = None,
        executor: Where | None = None,
    ) -> None:
        self.program, self.shown, self.events = program, shown, events
        self._executor = executor or program.executor
        self._patience = Patience(on_busy or program.on_busy)
        self.forgets = False
        self.owner = ""
        bound = program.bound_config
        terms = read_terms(joined(bound, config) if bound else config, program.context_of(options.context))
        if options[1:] != NO_OPTIONS[1:]:
            program.check_breakpoints(options.interrupt_before, options.interrupt_after)
            terms = replace(
                terms,
                interrupt_before=options.interrupt_before,
                interrupt_after=options.interrupt_after,
                control=options.control,
            )
        spot = CURRENT.get()
        self.parent = None if spot is None else _parent(spot.frame, program, terms)
        if self.parent is not None:
            self._nest(self.parent, terms)
            return
        if terms.ns:
            terms = replace(terms, ns="", checkpoint_id=terms.configurable.get("checkpoint_map", {}).get(""))
        self.stage = staging.current()
        if program.checkpointer is True:
            raise NoSaverError(f"`checkpointer=True` of `{program.name}`")
        self.saver = lagging(program.kept_in, durability or "sync")
        if self.saver is not None and terms.thread is None:
            if self.stage is None:
                raise NoThreadError(getattr(program, "title", program.name))
            terms = replace(terms, thread=self.stage.new_thread())
        self.terms = terms
        self.crew = Crew(terms.max_concurrency, loop)
        self.saving = Saving(self.saver, loop, self.crew.lock) if self.saver is not None else None

    def _nest(self, parent: CallFrame, terms: Terms) -> None:
        """Run inside another flow's frame: its thread, its workers, its watcher, and a namespace of its own."""
        around = parent.run
        self.stage, self._executor = around.stage, self._executor or around.executor
        self.saver, self.crew, self.saving = around.saver, around.crew, around.saving
        if self.program.checkpointer is False:
            self.saver = self.saving = None
        self._inner_terms, self._around = terms, around
        if self.events is None and around.telling is not None:
            self.events = around.telling.events

    def _place_inside(self, parent: CallFrame, input: Any) -> None:
        """The namespace is named by the task that calls; where it calls several flows, all but the first are told apart
        by what is called with what, so that a replay finds each whatever its place."""
        around, node = self._around, parent.node
        is_node = node is not None and node.task.node.inner is self.program
        if is_node:
            key = digest(parent.path, b"node")
        else:
            key = parent.flow_key(self.program.name, Walk().packed(input) if input is not MISSING else b"")
        parent.raise_known_failure(key, self.program.as_callee)
        self._key = key
        path = [around.place.ns] if around.place.ns else []
        body = parent.of
        while body.frame is not None:
            body = body.frame.of
        if body is not parent.of:
            path.append(f"{body.name}:{body.id}")
        path.append(f"{parent.of.name}:{parent.of.id}")
        ns = "|".join(path)
        self._other_ns = "" if is_node else f"{ns}|{digest(around.id.encode(), key).hex()}"
        if self.program.checkpointer is True:
            names = [part.partition(":")[0] for part in ns.split("|")]
            is_first = node is not None and node.task.node.program is self.program
            ns, self._other_ns = "|".join(names if is_first else [*names, self.program.name]), ""
        said = parent.of.outermost_node.metadata
        self.terms = self._inner_terms.nested(around.thread, ns, around.terms, said)

    def new_loop(self) -> Loop:
        run = Run(self.program, self.terms, self.saver, self.crew, self.saving, self.events, self.parent)
        if self.parent is not None:
            run.called_by, run.other_ns = digest(self._around.id.encode(), self._key), self._other_ns
        run.shown, run.owner, run.stage, run.executor = self.shown, self.owner, self.stage, self._executor
        self.run = run
        if self.parent is not None:
            self.parent.run.nested.append(run)
        return Loop(run, self.forgets)

    def drive(self, input: Any) -> Outcome:
        """Run in this thread."""
        parent = self.parent
        if parent is None:
            with self._holding() as self.owner:
                while True:
                    try:
                        outcome = drive(self.new_loop(), input)
                    except ThreadMovedError:
                        continue
                    except ThreadBusyError as busy:
                        if self._patience.is_over(busy):
                            return Outcome(None)
                        self._patience.wait()
                        continue
                    if not (outcome.again or self._answers(outcome)):
                        return outcome
                    input = MISSING
        self._place_inside(parent, input)
        loop = self.new_loop()
        try:
            with self._alone(), self.crew.away(parent):
                outcome = drive_nested(loop, input, parent.depth)
        except Exception as error:
            parent.flow_failed(self._key, self.program.as_callee, input, error)
            raise
        return parent.nested_outcome(outcome, loop.run)

    async def adrive(self, input: Any) -> Outcome:
        """Run from this coroutine."""
        if self.parent is not None:
            self._place_inside(self.parent, input)
            inner = self.new_loop()
            try:
                with self._alone():
                    async with self.crew.aaway(self.parent):
                        result = await adrive(inner, input)
            except Exception as error:
                self.parent.flow_failed(self._key, self.program.as_callee, input, error)
                raise
            return self.parent.nested_outcome(result, inner.run)
        with self._holding() as self.owner:
            while True:
                try:
                    outcome = await adrive(self.new_loop(), input)
                except ThreadMovedError:
                    continue
                except ThreadBusyError as busy:
                    if self._patience.is_over(busy):
                        return Outcome(None)
                    await self._patience.await_()
                    continue
                if not (outcome.again or self._answers(outcome)):
                    return outcome
                input = MISSING

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """See that a program which keeps its state from call to call is not called twice at once."""
        crew, ns = self.crew, self.terms.ns
        if self.program.checkpointer is not True:
            yield
            return
        with crew.lock:
            is_busy = ns in crew.alone
            crew.alone.add(ns)
        if is_busy:
            raise InnerBusyError(self.program.name, ns)
        try:
            yield
        finally:
            crew.alone.discard(ns)

    def _answers(self, outcome: Outcome) -> bool:
        """Whether the stage has answered open questions, so that the run goes on."""
        if self.stage is None or not outcome.interrupts or self.terms.thread is None:
            return False
        answers = self.stage.answers(outcome.interrupts)
        if answers:
            self.stage.saver.answer(self.terms.thread, answers, by="the test")
        return bool(answers)

    def _holding(self) -> AbstractContextManager[str]:
        """Hold the thread, if there is one."""
        saver, thread = self.program.kept_in, self.terms.thread
        if saver is None or thread is None:
            return nullcontext("")
        return Holding(saver, thread, self.saver if isinstance(self.saver, LaggingSaver) else None)


def _parent(frame: Frame, program: Pregel, terms: Terms) -> CallFrame | None:
    """The frame whose run a flow that is called in it belongs to: it names no thread, or passes the frame's on."""
    if isinstance(frame, RemoteFrame):
        frame.refuse_call(f"Flow `{program.name}` was called")
    if isinstance(frame, CallFrame) and terms.thread in (None, frame.run.thread):
        return frame
    return None


def handed_out(entry: Entry, shape: Shape, parts: queue.SimpleQueue[Part | None], input: Any) -> Iterator[Any]:
    """Drive on a worker, and hand out the parts here."""
    failure: list[BaseException] = []
    context = copy_context()

    def work() -> None:
        try:
            context.run(entry.drive, input)
        except BaseException as error:
            failure.append(error)
        parts.put(None)

    threads.workers.submit(work)
    part = None
    try:
        while (part := parts.get()) is not None:
            yield shape.of(part)
    except (GeneratorExit, KeyboardInterrupt):
        if hasattr(entry, "run"):  # else it has not begun
            entry.run.pause("the stream was closed")
        while parts.get() is not None:
            pass
        if failure and not isinstance(failure[0], Paused):
            raise failure[0]
        raise
    if failure:
        raise failure[0]
