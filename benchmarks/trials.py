"""What a library is put through: each function here makes an entrant of a library and a flow.

A trial has a saver and a thread of its own, that no trial before it has filled.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import flows
from benchmarks.flows import MakeFlow
from benchmarks.harness import Entrant, Sizes, Trials
from benchmarks.libraries import Library

ROOT = Path(__file__).resolve().parent.parent
_threads = itertools.count()


def fresh() -> dict[str, Any]:
    """The configuration of a thread that nobody has used."""
    return {"configurable": {"thread_id": f"thread-{next(_threads)}"}}


def in_memory(library: Library, make: MakeFlow, sizes: Sizes | None = None) -> Entrant:
    """One run of the flow."""

    def trials(n: int) -> Trials:
        while True:
            flow = make(library, library.memory())
            yield partial(flow.invoke, n, fresh())

    return Entrant(trials, sizes)


def invokes(library: Library, make: MakeFlow) -> Entrant:
    """Many runs, each on a new thread."""

    def trials(n: int) -> Trials:
        while True:
            flow, configs = make(library, library.memory()), [fresh() for _ in range(n)]
            flow.invoke(1, fresh())
            yield partial(_invoke_each, flow, configs)

    return Entrant(trials)


def _invoke_each(flow: Any, configs: list[dict[str, Any]]) -> None:
    for config in configs:
        flow.invoke(1, config)


def awaited_in_memory(library: Library, make: MakeFlow, sizes: Sizes | None = None) -> Entrant:
    """One awaited run of the flow."""

    def trials(n: int) -> Trials:
        with asyncio.Runner() as runner:
            while True:
                flow = make(library, library.memory())
                yield lambda flow=flow: runner.run(flow.ainvoke(n, fresh()))  # type: ignore[misc]

    return Entrant(trials, sizes)


def on_sqlite(library: Library, make: MakeFlow) -> Entrant:
    """One run on a new file, that was opened before."""

    def trials(n: int) -> Trials:
        with TemporaryDirectory() as folder:
            for at in itertools.count():
                with library.sqlite(f"{folder}/{at}.db") as saver:
                    flow = make(library, saver)
                    flow.invoke(0, fresh())
                    yield partial(flow.invoke, n, fresh())

    return Entrant(trials)


def awaited_on_sqlite(library: Library, make: MakeFlow) -> Entrant:
    """One awaited run on a new file, that was opened before."""

    def trials(n: int) -> Trials:
        with TemporaryDirectory() as folder, asyncio.Runner() as runner:
            for at in itertools.count():
                opened = library.asqlite(f"{folder}/{at}.db")
                flow = make(library, runner.run(_entered(opened)))
                try:
                    runner.run(flow.ainvoke(0, fresh()))
                    yield lambda flow=flow: runner.run(flow.ainvoke(n, fresh()))  # type: ignore[misc]
                finally:
                    runner.run(opened.__aexit__(None, None, None))

    return Entrant(trials)


async def _entered(opened: Any) -> Any:
    return await opened.__aenter__()


def bytes_on_sqlite(library: Library, make: MakeFlow) -> Entrant:
    """Reports by how many bytes a unit makes the file grow."""

    def trials(n: int) -> Trials:
        with TemporaryDirectory() as folder:
            for at in itertools.count():
                path = f"{folder}/{at}.db"
                with library.sqlite(path) as saver:
                    flow = make(library, saver)
                    flow.invoke(0, fresh())
                    before = size(path)
                    yield partial(_growth, flow, n, path, before)

    return Entrant(trials)


def _growth(flow: Any, n: int, path: str, before: int) -> float:
    flow.invoke(n, fresh())
    return (size(path) - before) / n


def size(path: str) -> int:
    """Bytes of a SQLite file once its log is folded into it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return os.path.getsize(path)


def replay(library: Library, sizes: Sizes | None = None) -> Entrant:
    """The second run of a thread, whose first one finished every call and then raised."""

    def trials(n: int) -> Trials:
        while True:
            flow, config = flows.fails_once(library, library.memory()), fresh()
            try:
                flow.invoke(n, config)
            except flows.Mishap:
                pass
            yield partial(flow.invoke, None, config)

    return Entrant(trials, sizes)


def conversation(library: Library) -> Entrant:
    """A run with a question and its answer for each unit."""

    def trials(n: int) -> Trials:
        while True:
            flow = flows.asks(library, library.memory())
            yield partial(_converse, library, flow, n)

    return Entrant(trials)


def _converse(library: Library, flow: Any, n: int) -> Any:
    config = fresh()
    result = flow.invoke(n, config)
    for _ in range(n):
        result = flow.invoke(library.command(resume=1), config)
    return result


class LongRun:
    """One long run a round, of which both the first and the last thousand calls are reported."""

    def __init__(self, library: Library, saver: str) -> None:
        self.library, self.saver = library, saver
        self._first = 0.0

    def last(self) -> Entrant:
        def trials(n: int) -> Trials:
            with TemporaryDirectory() as folder:
                for at in itertools.count():
                    saver = self.library.memory() if self.saver == "memory" else f"{folder}/{at}.db"
                    if isinstance(saver, str):
                        with self.library.sqlite(saver) as opened:
                            yield partial(self._run, opened, n)
                    else:
                        yield partial(self._run, saver, n)

        return Entrant(trials)

    def first(self) -> Entrant:
        """To be entered after `last`, whose run it reports."""

        def trials(n: int) -> Trials:
            while True:
                yield lambda: self._first

        return Entrant(trials)

    def _run(self, saver: Any, n: int) -> float:
        last: float
        self._first, last = flows.timed(self.library, saver).invoke(n, fresh())
        return last


def python(code: str) -> Entrant:
    """Fresh interpreters that run this code; one that reports does so by what it prints."""

    def trials(n: int) -> Trials:
        # The first run compiles, for both to the same place: else who was installed would have bytecode, and who is
        # being written might have none.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": _bytecode().name}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _interpret(code, 1, environment)
        while True:
            yield partial(_interpret, code, n, environment)

    return Entrant(trials)


@functools.cache
def _bytecode() -> TemporaryDirectory[str]:
    """A folder that lasts as long as the process."""
    return TemporaryDirectory()


def _interpret(code: str, n: int, environment: dict[str, str]) -> str:
    said = ""
    for _ in range(n):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        said = done.stdout
    return said
