"""A `KeyboardInterrupt` at any point of the runtime's own code leaves a run that ends soon and can be resumed.

A signal's handler may raise wherever CPython looks for signals: after a call, at the beginning of a function, and where
a loop turns back. A trace function counts these points in the main thread, and raises at one of them.
`FLOWFN_ROUNDS=100` tries so many of each kind of run; by default a few.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import random
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.pregel import drivers

ROUNDS = int(os.environ.get("FLOWFN_ROUNDS", "8"))
RUNTIME = ("flowfn", "threading", "queue", "contextlib", "sqlite3", "concurrent")
LOOKS = {dis.opmap.get(name) for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD")}
CONFIG = {"thread_id": "t"}

pytestmark = [
    pytest.mark.timeout(60 + 5 * ROUNDS),
    pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts the instructions of CPython"),
]


@functools.cache
def bytecode(code: CodeType) -> bytes:
    return code.co_code


@functools.cache
def handlers(code: CodeType) -> list[Any]:
    return dis._parse_exception_table(code)  # type: ignore[attr-defined]


def handler(code: CodeType, at: int) -> int | None:
    return next((entry.target for entry in handlers(code) if entry.start <= at < entry.end), None)


class Interrupt:
    """While it is entered, one of this thread's points inside the runtime raises KeyboardInterrupt; at 0, none does.

    Attributes:
        points: how many there were.
        where: the one that raised.
    """

    def __init__(self, at: int = 0) -> None:
        self._at, self._before = at, {}
        self.points = 0
        self.where: str | None = None

    def __enter__(self) -> Interrupt:
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in RUNTIME:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            code, before, now = frame.f_code, self._before.get(frame), frame.f_lasti
            self._before[frame] = now
            # What comes after the call stands for its end only where the same handler catches both.
            if before is not None and bytecode(code)[before] in LOOKS and handler(code, before) == handler(code, now):
                self.points += 1
                if self.points == self._at:
                    self.where = f"{code.co_qualname}, line {frame.f_lineno}"
                    sys.settrace(None)
                    raise KeyboardInterrupt
        return self._stepped


class Seen:
    """What tasks have run, and what the flow has seen of them."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.seen: list[int] = []
        self.again: list[int] = []

    def run(self, x: int) -> int:
        if x in self.seen:
            self.again.append(x)
        self.ran.append(x)
        return x

    def __reduce__(self) -> Any:
        raise TypeError("not to be stored")


def one_after_another(saver, seen):
    work = task(name="work")(seen.run)

    @entrypoint(checkpointer=saver)
    def flow(n):
        for x in range(n):
            seen.seen.append(work(x).result())
        return sum(seen.seen[-n:])

    return flow


def at_once(saver, seen):
    work = task(name="work")(seen.run)

    @entrypoint(checkpointer=saver)
    def flow(n):
        total = 0
        for value in work.map(range(n)):
            seen.seen.append(value)
            total += value
        return total

    return flow


def inside_one_another(saver, seen):
    work = task(name="work")(seen.run)

    @task
    def outer(x):
        return work(x).result() + work(x + 1).result()

    @entrypoint
    def inner(n):
        return work(n).result()

    @entrypoint(checkpointer=saver)
    def flow(n):
        return outer(0).result() + inner.invoke(n - 1)

    return flow


@pytest.fixture(params=["memory", "sqlite"])
def new_saver(request, tmp_path):
    numbers = iter(range(1_000_000))

    @contextlib.contextmanager
    def new():
        if request.param == "memory":
            yield InMemorySaver()
        else:
            with contextlib.closing(SqliteSaver(tmp_path / f"{next(numbers)}.db")) as saver:
                yield saver

    return new


def gone_on(flow):
    """What the run comes to that another thread goes on with; it must not hang."""
    result = []

    def go_on():
        is_new = flow.thread("t").status() == "new"
        result.append(flow.invoke(3 if is_new else None, CONFIG))

    worker = threading.Thread(target=go_on, daemon=True)
    worker.start()
    worker.join(10)
    return result


@pytest.mark.parametrize("shape", [one_after_another, at_once, inside_one_another])
def test_an_interrupt_anywhere_leaves_a_run_that_goes_on(shape, new_saver):
    with new_saver() as saver, Interrupt() as counting:
        shape(saver, Seen()).invoke(3, CONFIG)
    chance = random.Random(ROUNDS)
    for at in sorted(chance.sample(range(1, counting.points), ROUNDS)):
        # given
        seen = Seen()
        with new_saver() as saver:
            flow = shape(saver, seen)

            # when
            began = time.monotonic()
            with contextlib.suppress(KeyboardInterrupt), Interrupt(at) as interrupt:
                flow.invoke(3, CONFIG)
            took = time.monotonic() - began

            # then: nobody was waited for who was gone, nothing hangs, and nothing that was seen runs again
            assert took < 20 * drivers.GRACE, interrupt.where
            assert gone_on(flow) == [3], interrupt.where
            assert seen.again == [], interrupt.where
