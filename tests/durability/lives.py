"""One life of a process that may be killed: it takes a thread of a flow on, and keeps a log that outlives it.

What is told to the log is there before the next instruction runs: a line is appended by one write and flushed to disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from crashing import CONFIG
from shapes import FLOWS

from flowfn import Command
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.errors import FlowWaiting

INPUTS = {
    "sequence": [24],
    "fan-out": [24],
    "mapped": [24],
    "race": [12],
    "mixed kinds": [10],
    "nested tasks": [10],
    "questions": [5],
    "questions in tasks": [6],
    "handled failures": [10],
    "recorded": [12],
    "previous over two runs": [10, 11],
    "nested flow": [20],
    "nested flow in a task": [20],
    "graph": [8],
}
"""Of each flow's runs: so large that a life has many moments to be killed at."""

DONE, WAITS, BROKEN = 0, 3, 1
"""How a life ends by itself: what its process exits with."""


@dataclass(frozen=True)
class Plan:
    """What a round runs.

    Attributes:
        shape, how: the flow, and whether it is made of functions or coroutines.
        via: invoke, stream, or the handle of the thread.
        answers: who answers questions: the process itself by `Command`, or another process once it has ended
            (`outside`) or while it runs (`meanwhile`).
        concurrency: `max_concurrency`.
        pace: how many seconds a task takes at most.
        disk: how many seconds a transaction takes at most, beside its own time.
        durability: sync, async or exit.
    """

    shape: str
    how: str
    via: str
    answers: str
    concurrency: int | None
    pace: float
    disk: float
    durability: str

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items())


class Line(NamedTuple):
    """One line of the log.

    Attributes:
        life: number of the process, from 0.
        what: `ran` a body began, `ended` it came to its end, `saw` a result or answer reached its caller, `asked` a
            question was shown, `gave` an answer was given, `told` a warning, `done` the thread came to its end.
        label: which call, question or result.
        mark: chance, so that no two executions of a body give the same.
        by: label of the body that saw it.
    """

    life: int
    what: str
    label: str
    mark: str = ""
    by: str = ""


class Log:
    """The witness of flows that are killed, see `crashing.Witness`. Every result bears a mark of its own."""

    def __init__(self, path: Path, life: int, pace: float) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._life, self._pace = life, pace

    def __flow_key__(self) -> str:
        return "log"

    def note(self, what: str, label: str, mark: str = "", by: str = "") -> None:
        os.write(self._file, json.dumps([self._life, what, label, mark, by]).encode() + b"\n")
        os.fsync(self._file)

    def run(self, task: str, argument: Any) -> list[Any]:
        value = [task, argument, secrets.token_hex(4)]
        self.note("ran", *named(value))
        return value

    def work(self, value: list[Any]) -> Work:
        return Work(random.random() * self._pace, lambda: self.note("ended", *named(value)))

    def see(self, value: list[Any], by: list[Any]) -> list[Any]:
        self.note("saw", *named(value), by=named(by)[0])
        return value

    def hear(self, question: str, answer: str, by: list[Any]) -> list[Any]:
        self.note("saw", question, answer, by=named(by)[0])
        return [question, "", answer]


class Work:
    """Takes a while, then tells that it is over; waited for as a future is."""

    def __init__(self, seconds: float, told: Callable[[], None]) -> None:
        self._seconds, self._told = seconds, told

    def result(self) -> None:
        if self._seconds:
            time.sleep(self._seconds)
        self._told()

    def __await__(self) -> Iterator[Any]:
        yield from asyncio.sleep(self._seconds).__await__()
        self._told()


def named(value: list[Any]) -> tuple[str, str]:
    """Label and mark of what a body returns."""
    task, argument, mark = value
    return f"{task} {argument}".rstrip(), mark


def lines_of(folder: Path) -> list[Line]:
    """The log so far."""
    path = folder / "log"
    return [Line(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


class SlowSaver(SqliteSaver):
    """Is often killed while it stores something.

    Args:
        seconds: how long a transaction that stores stays open at most, beside its own time.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(path)
        self._seconds = seconds

    def _save(self, saves: Any) -> Any:
        for save in saves:
            yield from super()._save([save])
            if self._seconds:
                time.sleep(random.random() * self._seconds)


class Taking:
    """The ways to take a thread on; each gives the value that the flow came to, or its open questions.

    Args:
        flow: on its saver.
        plan: how.
    """

    def __init__(self, flow: Any, plan: Plan) -> None:
        self._flow, self._plan = flow, plan
        self._lag = {} if plan.durability == "sync" else {"durability": plan.durability}
        self._config = {**CONFIG, "max_concurrency": plan.concurrency}

    def begin(self, input: Any) -> tuple[Any, Any]:
        return self._by_handle("run", input) if self._plan.via == "handle" else self._by_flow(input)

    def go_on(self) -> tuple[Any, Any]:
        return self._by_handle("resume") if self._plan.via == "handle" else self._by_flow(None)

    def answer(self, answers: dict[str, str]) -> tuple[Any, Any]:
        if self._plan.via != "handle":
            return self._by_flow(Command(resume=answers))
        self._handle("answer", answers)
        return self.go_on()

    def _by_flow(self, input: Any) -> tuple[Any, Any]:
        if self._plan.via == "stream":
            value = self._streamed(input)
        elif self._plan.how == "sync":
            value = self._flow.invoke(input, self._config, **self._lag)
        else:
            value = asyncio.run(self._flow.ainvoke(input, self._config, **self._lag))
        asked = value.get("__interrupt__", ()) if isinstance(value, dict) else ()
        return (None, asked) if asked else (value, ())

    def _streamed(self, input: Any) -> Any:
        options = {**self._lag, "stream_mode": "values"}
        if self._plan.how == "sync":
            return list(self._flow.stream(input, self._config, **options))[-1]

        async def all_of_it() -> Any:
            return [chunk async for chunk in self._flow.astream(input, self._config, **options)]

        return asyncio.run(all_of_it())[-1]

    def _by_handle(self, verb: str, *given: Any) -> tuple[Any, Any]:
        try:
            return self._handle(verb, *given), ()
        except FlowWaiting as waiting:
            return None, waiting.questions

    def _handle(self, verb: str, *given: Any) -> Any:
        thread = self._flow.thread("t", max_concurrency=self._plan.concurrency, ask=False, **self._lag)
        if self._plan.how == "sync":
            return getattr(thread, verb)(*given)
        return asyncio.run(getattr(thread, f"a{verb}")(*given))


def flow_of_plan(plan: Plan, see: Any, saver: Any) -> Any:
    make, _ = FLOWS[plan.shape]
    return make(see, plan.how, saver)


def lived(plan: Plan, folder: Path, life: int) -> int:
    """Take the thread on, from wherever it stands, until it ends or waits for another process; gives which."""
    saver, see = SlowSaver(folder / "flows.db", plan.disk), Log(folder / "log", life, plan.pace)
    taking, inputs, value = Taking(flow_of_plan(plan, see, saver), plan), INPUTS[plan.shape], None
    while True:
        runs = saver.runs("t")
        if len(runs) == len(inputs) and runs[0].status == "finished":
            stored, _ = taking.go_on()
            assert value is None or value == stored, f"{value} was given, and {stored} is stored"
            see.note("done", json.dumps(stored))
            return DONE
        is_next = not runs or runs[0].status == "finished"
        value, asked = taking.begin(inputs[len(runs)]) if is_next else taking.go_on()
        while asked:
            for question in asked:
                see.note("asked", question.value, question.id)
            if plan.answers != "command":
                return WAITS
            answers = {question.id: secrets.token_hex(4) for question in asked}
            for question in asked:
                see.note("gave", question.value, answers[question.id])
            value, asked = taking.answer(answers)
