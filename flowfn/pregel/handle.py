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
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

from flowfn import places
from flowfn.checkpoint.records import (
    FAILED,
    FORGOTTEN,
    CallRow,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    task_id,
)
from flowfn.errors import AlreadyAnsweredError, FlowWaiting, ForeignThreadError, InputChangedError
from flowfn.executors import threads
from flowfn.identity import Walk, digest
from flowfn.pregel import snapshot
from flowfn.pregel.effects import ALL
from flowfn.pregel.entry import Entry
from flowfn.pregel.resume import answers_by_id, shown_input
from flowfn.pregel.snapshot import Need, Reading
from flowfn.types import MISSING, CallInfo, Interrupt, StateSnapshot, Status

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
        forgets: whether a new run starts as on a new thread, without `previous`.
    """

    def __init__(
        self, flow: Runs[P, R], id: str, max_concurrency: int | None, ask: bool | None, forgets: bool = False
    ) -> None:
        self.flow: Any = flow.kept()
        self.id = str(id)
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
            Exception: whatever the flow raised.
        """
        return self._run(self.flow.input_of(args, kwargs))

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The awaited twin of `run`; questions are never asked at the terminal."""
        input = self.flow.input_of(args, kwargs)
        act = await snapshot.arun(self._decide(input), self._saver)
        if not act.goes:
            return act.input  # type: ignore[no-any-return]
        outcome = await self._entry(asyncio.get_running_loop()).adrive(act.input)
        if outcome.interrupts:
            raise FlowWaiting(self.flow.title, self.id, outcome.interrupts)
        return outcome.value  # type: ignore[no-any-return]

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
        outcome = await self._entry(asyncio.get_running_loop()).adrive(MISSING)
        if outcome.interrupts:
            raise FlowWaiting(self.flow.title, self.id, outcome.interrupts)
        return outcome.value  # type: ignore[no-any-return]

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        """Start a new run and watch its updates."""
        return cast(Iterator[Any], self.flow.stream(self.flow.input_of(args, kwargs), self.config))

    def astream(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]:
        return cast(AsyncIterator[Any], self.flow.astream(self.flow.input_of(args, kwargs), self.config))

    def _run(self, input: Any) -> R:
        act = snapshot.run(self._decide(input), self._saver)
        return self._drive(act.input) if act.goes else act.input

    def _decide(self, input: Any) -> Reading[Course]:
        """Whether to begin, to go on, or to give what is stored."""
        memory: Memory = yield Need("load", (self._place,))
        if memory.thread is not None and memory.thread.flow != self.flow.name:
            raise ForeignThreadError(self.id, memory.thread.flow, self.flow.name)
        row = memory.run
        if row is None:
            return Course(True, input)
        same = row.digest == shown_input(input)[0] if row.digest else False
        if row.status == "finished":
            if not same or self._forgets:
                return Course(True, input)
            logger.info("Thread `%s` has finished with this input; its stored result is given.", self.id)
            state: StateSnapshot = yield from snapshot.state(self.flow, self.flow._address(self.config))
            return Course(False, state.values)
        if not same:
            raise InputChangedError(self.id, row.status, row.input, shown_input(input)[1])
        return Course(True)

    def _drive(self, input: Any) -> R:
        outcome = self._entry(None).drive(input)
        while outcome.interrupts:
            if not self._asks_here():
                raise FlowWaiting(self.flow.title, self.id, outcome.interrupts)
            for question in outcome.interrupts:
                ask_at_terminal(self, question)
            outcome = self._entry(None).drive(MISSING)
        return outcome.value  # type: ignore[no-any-return]

    def _entry(self, loop: asyncio.AbstractEventLoop | None) -> Entry:
        entry = Entry(self.flow, self.config, None, self.flow.output_channels, None, loop)
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
        loads = self._saver.serde.loads
        return [
            Interrupt(loads(row.payload), row.id, response_schema=json.loads(row.schema) if row.schema else None)
            for _, row in rows
        ]

    # --- looking

    def status(self) -> Status:
        """new, running (or killed while it ran), waiting, failed, paused or finished."""
        return snapshot.run(self._status(), self._saver)

    async def astatus(self) -> Status:
        return await snapshot.arun(self._status(), self._saver)

    def _status(self) -> Reading[Status]:
        rows: list[RunRow] = yield Need("runs", (self.id,), {"limit": 1})
        return rows[0].status if rows else "new"

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

    def calls(self) -> list[CallInfo]:
        """The recorded calls of the newest run, in the order stored."""
        return snapshot.run(self._calls(), self._saver)

    async def acalls(self) -> list[CallInfo]:
        return await snapshot.arun(self._calls(), self._saver)

    def _calls(self) -> Reading[list[CallInfo]]:
        runs: list[RunRow] = yield Need("runs", (self.id,), {"limit": 1})
        if not runs:
            return []
        rows: list[CallRow] = yield Need("calls", (self._place, runs[0].id))
        return [_call_info(runs[0].id, row) for row in rows]

    @property
    def _saver(self) -> Saver:
        return cast("Saver", self.flow.saver("A thread"))


def _call_info(run: str, row: CallRow) -> CallInfo:
    return CallInfo(
        id=task_id(run, row.key),
        name=row.name.rpartition(":")[2],
        caller=task_id(run, row.caller) if row.caller else None,
        step=row.step,
        status="failed" if row.flags & (FAILED | FORGOTTEN) else "finished",
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
            thread.answer(_typed(line.strip()), question.id)
        except AlreadyAnsweredError as told:
            print(told, file=sys.stderr)
        except ValueError as refused:
            print(refused, file=sys.stderr)
            continue
        return


def _typed(line: str) -> Any:
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
        checkpointer: Saver | None

        def clone(self) -> Any: ...
        def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def kept(self) -> Any:
        """This flow with a checkpointer: its own, or the one at its place."""
        if self.checkpointer is not None:
            return self
        with_saver = self.clone()
        with_saver.checkpointer = places.saver_for(self.func)
        return with_saver

    def thread(self, id: str, *, max_concurrency: int | None = None, ask: bool | None = None) -> Thread[P, R]:
        """A handle of one thread, new or not.

        Args:
            id: any text; by this name the thread is found again, whichever process asks.
            max_concurrency: how many attempts run at once; by default as many as the work allows.
            ask: whether `run` asks open questions at the terminal; by default where there is one.
        """
        return Thread(self, id, max_concurrency, ask)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Come to the result: an unfinished run with equal arguments goes on, else a new one starts.

        Raises:
            FlowWaiting: questions are open, and there is no terminal to ask them at.
            Exception: whatever the flow raised.
        """
        return self._own_thread(args, kwargs).run(*args, **kwargs)

    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The awaited twin of `run`."""
        return await self._own_thread(args, kwargs).arun(*args, **kwargs)

    def _own_thread(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Thread[P, R]:
        """The thread of the runs that are given these arguments."""
        own = digest(self.name.encode(), self.owner, Walk().packed(self.input_of(args, kwargs)), size=8).hex()
        return Thread(self, f"{self.title}-{own}", None, None, forgets=True)
