"""One thread of a flow as people address it: run, resume, answer, questions, history.

`Runs` gives a flow its verbs `run` and `thread`; `Thread` is the handle. What decides between starting, going on and
giving the stored result is one generator for the blocking and the awaited verbs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

from flowfn import places
from flowfn.checkpoint.leases import holder_of, is_held, standing
from flowfn.checkpoint.records import (
    FAILED,
    FORGOTTEN,
    INTENT,
    UNCLEAR,
    CallRow,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    ThreadRow,
    short_title,
    task_id,
)
from flowfn.checkpoint.rows import interrupt_of
from flowfn.errors import (
    AlreadyAnsweredError,
    ConfigError,
    FlowWaiting,
    ForeignThreadError,
    InputChangedError,
    ThreadBusyError,
)
from flowfn.executors import executor_named, threads
from flowfn.executors.base import ExecutorName
from flowfn.identity import Walk, digest
from flowfn.pregel import snapshot
from flowfn.pregel.draw import draw_run
from flowfn.pregel.effects import ALL
from flowfn.pregel.entry import Entry
from flowfn.pregel.holding import Patience
from flowfn.pregel.picture import Picture
from flowfn.pregel.resume import answers_by_id, input_digest
from flowfn.pregel.snapshot import Need, Reading
from flowfn.pregel.terms import NO_OPTIONS
from flowfn.types import MISSING, ON_BUSY, CallInfo, Durability, Interrupt, OnBusy, StateSnapshot, Status

if TYPE_CHECKING:
    from flowfn.checkpoint import Saver

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("flowfn")


class Course(NamedTuple):
    """What `run` is to do: begin with `input`, go on (`MISSING`), or else give `input` as the stored result."""

    goes: bool
    input: Any = MISSING


class Thread(Generic[P, R]):
    """A thread of a flow.

    Args:
        flow: the flow it belongs to.
        id: any text.
        max_concurrency: how many attempts run at once.
        ask: whether `run` asks open questions at the terminal; by default when there is one and `FLOWFN_ASK` is not 0.
        durability: as of `invoke`.
        executor: where tasks run that do not say; by default what the flow says.
        on_busy: what `run` and `resume` do when somebody else runs the thread; by default what the flow says.
        forgets: whether a new run starts as on a new thread, without `previous`.
    """

    def __init__(
        self,
        flow: Runs[P, R],
        id: str,
        max_concurrency: int | None = None,
        ask: bool | None = None,
        durability: Durability | None = None,
        on_busy: OnBusy | None = None,
        executor: ExecutorName | None = None,
        forgets: bool = False,
    ) -> None:
        self.flow: Any = flow.kept()
        self.id = str(id)
        if on_busy not in (None, *ON_BUSY):
            raise ConfigError(f"`on_busy` is {on_busy!r}; it can be 'raise', 'wait' or 'skip'.")
        self._executor = None if executor is None else executor_named(executor)
        self._durability: Durability | None = durability
        self._on_busy: OnBusy | None = on_busy
        self._ask, self._forgets = ask, forgets
        self._more = {} if max_concurrency is None else {"max_concurrency": max_concurrency}

    def __repr__(self) -> str:
        return f"<Thread `{self.id}` of `{self.flow.name}`>"

    @property
    def config(self) -> dict[str, Any]:
        """The config that addresses this thread."""
        return {"configurable": {"thread_id": self.id}, **self._more}

    @property
    def _place(self) -> Place:
        return Place(self.id)

    # --- running

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Come to the flow's result: start, go on, or give what is stored.

        On a new thread, or a finished one with another input, a run starts. An unfinished run goes on. A finished one
        with the same input gives its stored result.

        Raises:
            FlowWaiting: questions are open, and nobody here is asked.
            InputChangedError: the unfinished run was started with other arguments.
            FlowPaused: a Ctrl-C or SIGTERM has paused the run.
            Exception: whatever the flow raised.
        """
        return self._run(self.flow.input_of(args, kwargs))

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The awaited twin of `run`; questions are never asked at the terminal."""
        input, patience = self.flow.input_of(args, kwargs), self._patience()
        while True:
            try:
                act = await snapshot.arun(self._decide(input), self._saver)
                return await self._adrive(act.input, "raise") if act.goes else act.input
            except ThreadBusyError as busy:
                if patience.is_over(busy):
                    return cast(R, None)
                await patience.await_()

    def start(self, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Start a new run on a worker, whatever the thread's state; gives the future of its result."""
        return self._on_worker(lambda: self._drive(self.flow.input_of(args, kwargs)))

    def resume(self) -> R:
        """Go on with the unfinished run, or give the finished one's result.

        Raises:
            EmptyInputError: the thread is new.
            FlowWaiting: questions are open.
        """
        return self._drive(MISSING)

    async def aresume(self) -> R:
        return await self._adrive(MISSING)

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        """Start a new run and watch its updates."""
        input = self.flow.input_of(args, kwargs)
        return cast(Iterator[Any], self.flow.stream(input, self.config, durability=self._durability))

    def astream(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]:
        input = self.flow.input_of(args, kwargs)
        return cast(AsyncIterator[Any], self.flow.astream(input, self.config, durability=self._durability))

    def _run(self, input: Any) -> R:
        patience = self._patience()
        while True:
            try:
                act = snapshot.run(self._decide(input), self._saver)
                return self._drive(act.input, "raise") if act.goes else act.input
            except ThreadBusyError as busy:
                if patience.is_over(busy):
                    return cast(R, None)
                patience.wait()

    def _patience(self) -> Patience:
        return Patience(self._on_busy or self.flow.on_busy)

    def _decide(self, input: Any) -> Reading[Course]:
        """Whether to begin, to go on, or to give what is stored."""
        memory: Memory = yield Need("load", (self._place,))
        if memory.thread is not None and memory.thread.flow != self.flow.name:
            raise ForeignThreadError(self.id, memory.thread.flow, self.flow.name)
        row = memory.run
        if row is None:
            return Course(True, input)
        held = memory.thread and memory.thread.lease
        if held and is_held(held, time.time()):
            raise ThreadBusyError(self.id, holder_of(held), held.since)
        same = bool(row.digest) and row.digest == input_digest(input, self._saver.serde.digest_key)
        if row.status == "finished":
            if not same or self._forgets:
                return Course(True, input)
            logger.info("Thread `%s` has finished with this input; its stored result is given.", self.id)
            state: StateSnapshot = yield from snapshot.state(self.flow, self.flow._address(self.config))
            return Course(False, state.values)
        if not same:
            raise InputChangedError(self.id, row.status, row.input, self._saver.serde.preview(input, 200))
        return Course(True)

    def _drive(self, input: Any, on_busy: OnBusy | None = None) -> R:
        outcome = self._entry(None, on_busy).drive(input)
        while outcome.interrupts:
            if not self._asks_here():
                raise FlowWaiting(self.flow.title, self.id, outcome.interrupts)
            for question in outcome.interrupts:
                ask_at_terminal(self, question)
            outcome = self._entry(None, on_busy).drive(MISSING)
        return outcome.value  # type: ignore[no-any-return]

    async def _adrive(self, input: Any, on_busy: OnBusy | None = None) -> R:
        outcome = await self._entry(asyncio.get_running_loop(), on_busy).adrive(input)
        if outcome.interrupts:
            raise FlowWaiting(self.flow.title, self.id, outcome.interrupts)
        return outcome.value  # type: ignore[no-any-return]

    def _entry(self, loop: asyncio.AbstractEventLoop | None, on_busy: OnBusy | None) -> Entry:
        entry = Entry(
            self.flow,
            self.config,
            NO_OPTIONS,
            self.flow.output_channels,
            None,
            loop,
            self._durability,
            on_busy or self._on_busy,
            self._executor,
        )
        entry.forgets = self._forgets
        return entry

    def _asks_here(self) -> bool:
        if self._ask is not None:
            return self._ask
        return os.environ.get("FLOWFN_ASK") != "0" and sys.stdin.isatty() and sys.stderr.isatty()

    def _on_worker(self, job: Any) -> concurrent.futures.Future[Any]:
        result: concurrent.futures.Future[Any] = concurrent.futures.Future()
        context = copy_context()

        def work() -> None:
            try:
                result.set_result(context.run(job))
            except BaseException as error:
                result.set_exception(error)

        threads.workers.submit(work)
        return result

    # --- questions

    def answer(self, value: Any, id: str | None = None, *, by: str | None = None, note: str | None = None) -> None:
        """Record an answer, without running anything; the next `run` or `resume` goes on with it.

        Args:
            value: the answer, or a dict from question ids to answers.
            id: of the question; may be left out when only one is open.
            by, note: who answers, and what they say about it.
        Raises:
            QuestionError: the answer fits no open question; nothing is changed.
        """
        snapshot.run(self._answer(value, id, by, note), self._saver)

    async def aanswer(
        self, value: Any, id: str | None = None, *, by: str | None = None, note: str | None = None
    ) -> None:
        await snapshot.arun(self._answer(value, id, by, note), self._saver)

    def _answer(self, value: Any, id: str | None, by: str | None, note: str | None) -> Reading[None]:
        answers: Mapping[str, Any] = {} if id is None else {id: value}
        if id is None:
            rows: list[tuple[str, QuestionRow]] = yield Need("questions", (self.id,), {"limit": ALL})
            answers = answers_by_id(self.id, value, [row for _, row in rows])
        yield Need("answer", (self.id, answers), {"by": by, "note": note})

    def questions(self) -> list[Interrupt]:
        """The open questions, oldest first."""
        return snapshot.run(self._questions(), self._saver)

    async def aquestions(self) -> list[Interrupt]:
        return await snapshot.arun(self._questions(), self._saver)

    def _questions(self) -> Reading[list[Interrupt]]:
        rows: list[tuple[str, QuestionRow]] = yield Need("questions", (self.id,), {"limit": ALL})
        serde = self._saver.serde
        return [interrupt_of(row, self.id, serde) for _, row in rows]

    # --- looking

    def status(self) -> Status:
        """new, running, killed (while it ran), waiting, failed, paused or finished."""
        return snapshot.run(self._status(), self._saver)

    async def astatus(self) -> Status:
        return await snapshot.arun(self._status(), self._saver)

    def _status(self) -> Reading[Status]:
        row: ThreadRow | None = yield Need("thread", (self.id,))
        return "new" if row is None else standing(row, time.time())

    def state(self) -> StateSnapshot:
        """The thread now."""
        return cast(StateSnapshot, self.flow.get_state(self.config))

    async def astate(self) -> StateSnapshot:
        return cast(StateSnapshot, await self.flow.aget_state(self.config))

    def history(self, limit: int | None = None) -> list[StateSnapshot]:
        """One snapshot for each checkpoint and super-step, newest first."""
        return list(self.flow.get_state_history(self.config, limit=limit))

    async def ahistory(self, limit: int | None = None) -> list[StateSnapshot]:
        return [one async for one in self.flow.aget_state_history(self.config, limit=limit)]

    def fork(
        self,
        snapshot: StateSnapshot | None = None,
        *,
        results: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin a branch at a snapshot of the history, by default now, with some results or answers replaced.

        Runs nothing: go on with `resume`. See `Pregel.fork` for the arguments and errors.
        """
        self.flow.fork(self.config if snapshot is None else snapshot, results=results, answers=answers)

    async def afork(
        self,
        snapshot: StateSnapshot | None = None,
        *,
        results: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        await self.flow.afork(self.config if snapshot is None else snapshot, results=results, answers=answers)

    def calls(self) -> list[CallInfo]:
        """The recorded calls of the newest run, in the order stored."""
        return snapshot.run(self._calls(), self._saver)

    def draw_run(self) -> Picture:
        """What the newest run did, as a picture: its super-steps, tasks and questions."""
        return snapshot.run(draw_run(self._place), self._saver)

    async def adraw_run(self) -> Picture:
        return await snapshot.arun(draw_run(self._place), self._saver)

    async def acalls(self) -> list[CallInfo]:
        return await snapshot.arun(self._calls(), self._saver)

    def _calls(self) -> Reading[list[CallInfo]]:
        runs: list[RunRow] = yield Need("runs", (self.id,), {"limit": 1})
        if not runs:
            return []
        rows: list[CallRow] = yield Need("calls", (self._place, runs[0].id))
        clear = {row.key for row in rows if not row.flags & (INTENT | UNCLEAR)}
        return [_call_info(runs[0].id, row) for row in rows if not (row.flags & INTENT and row.key in clear)]

    @property
    def _saver(self) -> Saver:
        return cast("Saver", self.flow.saver("A thread"))


def _call_info(run: str, row: CallRow) -> CallInfo:
    return CallInfo(
        id=task_id(run, row.key),
        name=short_title(row.name),
        caller=task_id(run, row.caller) if row.caller else None,
        step=row.step,
        status="begun" if row.flags & INTENT else "failed" if row.flags & (FAILED | FORGOTTEN) else "finished",
        attempt=row.attempt,
        started=row.started,
        ended=row.ended,
        arguments=row.arguments,
        value=row.preview,
    )


def ask_at_terminal(thread: Thread[Any, Any], question: Interrupt) -> None:
    """Show a question, and ask until its answer is accepted: JSON, or else plain text; y and n for yes and no."""
    print(f"\n{question.value}", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise FlowWaiting(thread.flow.title, thread.id, [question])
        try:
            thread.answer(answer_of(line.strip()), question.id)
        except AlreadyAnsweredError as told:
            print(told, file=sys.stderr)
        except ValueError as refused:
            print(refused, file=sys.stderr)
            continue
        return


def answer_of(line: str) -> Any:
    """What a person means who types that."""
    if line.lower() in ("y", "yes", "n", "no"):
        return line.lower().startswith("y")
    try:
        return json.loads(line)
    except ValueError:
        return line


class Runs(Generic[P, R]):
    """The verbs of a flow that keep its runs."""

    if TYPE_CHECKING:
        name: str
        title: str
        owner: bytes
        func: Any
        output_channels: Any
        checkpointer: Saver | bool | None

        @property
        def kept_in(self) -> Saver | None: ...

        def clone(self) -> Any: ...
        def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def kept(self) -> Any:
        """This flow with a checkpointer: its own, or the one at its place."""
        if self.kept_in is not None:
            return self
        with_saver = self.clone()
        with_saver.checkpointer = places.saver_for(self.func)
        return with_saver

    def thread(
        self,
        id: str,
        *,
        max_concurrency: int | None = None,
        ask: bool | None = None,
        durability: Durability | None = None,
        on_busy: OnBusy | None = None,
        executor: ExecutorName | None = None,
    ) -> Thread[P, R]:
        """A handle of one thread, new or not.

        Args:
            id: any text; by this name the thread is found again, whichever process asks.
            max_concurrency: how many attempts run at once; by default as many as the work allows.
            ask: whether `run` asks open questions at the terminal; by default where there is one.
            durability: `"sync"` (the default), `"async"` or `"exit"`, see `invoke`.
            on_busy: what a run does that finds the thread busy: `"raise"` ThreadBusyError, `"wait"`, or `"skip"`, which
                runs nothing and gives None.
            executor: where tasks run that do not say: `"threads"`, `"processes"`, or an object with `submit`.
        """
        return Thread(self, id, max_concurrency, ask, durability, on_busy, executor)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Come to the result: an unfinished run with equal arguments goes on, else a new one starts.

        Raises:
            FlowWaiting: questions are open, and there is no terminal to ask them at.
            FlowPaused: a Ctrl-C or SIGTERM has paused the run.
            Exception: whatever the flow raised.
        """
        return self.own_thread(*args, **kwargs).run(*args, **kwargs)

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The awaited twin of `run`."""
        return await self.own_thread(*args, **kwargs).arun(*args, **kwargs)

    def own_thread(self, *args: P.args, **kwargs: P.kwargs) -> Thread[P, R]:
        """The thread on which `run` keeps the runs that are given these arguments."""
        flow = self.kept()
        secret = flow.saver("`run`").serde.digest_key
        given = Walk().packed(self.input_of(args, kwargs))
        own = digest(self.name.encode(), self.owner, given, size=8, secret=secret).hex()
        return Thread(flow, f"{self.title}-{own}", forgets=True)
