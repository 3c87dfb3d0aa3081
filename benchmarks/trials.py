"""What a library is put through: each function here makes an entrant of a library and a flow.

A trial has a saver and a thread of its own, that no trial before it has filled.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import flows, graphs
from benchmarks.flows import MakeFlow
from benchmarks.harness import Entrant, Sizes, Trials, cpu
from benchmarks.libraries import Library

ROOT = Path(__file__).resolve().parent.parent
APPENDS = 100
"""Super-steps that append to a list that is there."""
_threads = itertools.count()

Use = Callable[[Library, Any, int], Any]
"""What is done with a flow, given the number of units."""


def fresh() -> dict[str, Any]:
    """The configuration of a thread that nobody has used."""
    return {"configurable": {"thread_id": f"thread-{next(_threads)}"}}


def once(library: Library, flow: Any, n: int) -> Any:
    """One run of that many units."""
    return flow.invoke(n, fresh())


def each(library: Library, flow: Any, n: int) -> None:
    """That many runs of one unit, each on a new thread."""
    for _ in range(n):
        flow.invoke(1, fresh())


def asked(library: Library, flow: Any, n: int) -> Any:
    """One run with a question for each unit, each of which is answered."""
    config = fresh()
    result = flow.invoke(n, config)
    for _ in range(n):
        result = flow.invoke(library.command(resume=1), config)
    return result


def in_memory(library: Library, make: MakeFlow, sizes: Sizes | None = None, use: Use = once) -> Entrant:
    """A flow whose threads nobody keeps longer than the process."""

    def trials(n: int) -> Trials:
        while True:
            flow = make(library, library.memory())
            flow.invoke(1, fresh())
            yield partial(use, library, flow, n)

    return Entrant(trials, sizes)


def awaited_in_memory(library: Library, make: MakeFlow, sizes: Sizes | None = None) -> Entrant:
    """One awaited run of a flow whose threads nobody keeps longer than the process."""

    def trials(n: int) -> Trials:
        with asyncio.Runner() as runner:
            while True:
                flow = make(library, library.memory())
                yield lambda flow=flow: runner.run(flow.ainvoke(n, fresh()))  # type: ignore[misc]

    return Entrant(trials, sizes)


def on_sqlite(library: Library, make: MakeFlow, sizes: Sizes | None = None, use: Use = once) -> Entrant:
    """A flow that keeps its threads in a new file, which was opened before."""

    def trials(n: int) -> Trials:
        with TemporaryDirectory() as folder:
            for at in itertools.count():
                with library.sqlite(f"{folder}/{at}.db") as saver:
                    flow = make(library, saver)
                    flow.invoke(1, fresh())
                    yield partial(use, library, flow, n)

    return Entrant(trials, sizes)


def awaited_on_sqlite(library: Library, make: MakeFlow) -> Entrant:
    """One awaited run on a new file, that was opened before."""

    def trials(n: int) -> Trials:
        with TemporaryDirectory() as folder, asyncio.Runner() as runner:
            for at in itertools.count():
                opened = library.asqlite(f"{folder}/{at}.db")
                flow = make(library, runner.run(_entered(opened)))
                try:
                    runner.run(flow.ainvoke(1, fresh()))
                    yield lambda flow=flow: runner.run(flow.ainvoke(n, fresh()))  # type: ignore[misc]
                finally:
                    runner.run(opened.__aexit__(None, None, None))

    return Entrant(trials)


async def _entered(opened: Any) -> Any:
    return await opened.__aenter__()


def bytes_on_sqlite(library: Library, make: MakeFlow, sizes: Sizes | None = None, use: Use = once) -> Entrant:
    """Reports by how many bytes a unit makes the file grow."""

    def trials(n: int) -> Trials:
        with TemporaryDirectory() as folder:
            for at in itertools.count():
                path = f"{folder}/{at}.db"
                with library.sqlite(path) as saver:
                    flow = make(library, saver)
                    flow.invoke(1, fresh())
                    yield partial(_growth, path, partial(use, library, flow, n), n)

    return Entrant(trials, sizes)


def _growth(path: str, work: Callable[[], Any], n: int) -> float:
    before = size(path)
    work()
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


def answers(library: Library, sizes: Sizes | None = None) -> Entrant:
    """An answer to each of many threads that wait in one file, each of which then ends."""

    def trials(n: int) -> Trials:
        with _parked(library, n) as (path, configs):
            for at in itertools.count():
                with library.sqlite(shutil.copy(path, f"{path}-{at}")) as saver:
                    yield partial(_answer_each, library, flows.asks(library, saver), configs)

    return Entrant(trials, sizes)


def _answer_each(library: Library, flow: Any, configs: Sequence[dict[str, Any]]) -> None:
    for config in configs:
        flow.invoke(library.command(resume=1), config)


def questions(library: Library, sizes: Sizes | None = None) -> Entrant:
    """The list of what is open in all threads of one file."""

    def trials(n: int) -> Trials:
        with _parked(library, n) as (path, _), library.sqlite(path) as saver:
            while True:
                yield partial(_list, library, saver, n)

    return Entrant(trials, sizes)


def _list(library: Library, saver: Any, n: int) -> None:
    assert len(library.questions(saver)) == n


@contextmanager
def _parked(library: Library, n: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A file in which so many threads wait at a question, and their configurations."""
    configs = [fresh() for _ in range(n)]
    with TemporaryDirectory() as folder:
        path = f"{folder}/parked.db"
        with library.sqlite(path) as saver:
            flow = flows.asks(library, saver)
            for config in configs:
                flow.invoke(1, config)
        yield path, configs


def append_cpu(library: Library, medium: str, sizes: Sizes | None = None, is_filled: bool = True) -> Entrant:
    """Reports the microseconds of CPU of a super-step that appends an item to a list of so many.

    Args:
        medium: `memory` or `SQLite`.
        is_filled: whether the list holds anything before.
    """

    def trials(n: int) -> Trials:
        while True:
            with TemporaryDirectory() as folder, _opened(library, medium, folder) as saver:
                moments: list[float] = []
                append = filled(library, saver, n if is_filled else 0, partial(_note, moments))
                yield partial(_per_step, append, moments)

    return Entrant(trials, sizes)


def _opened(library: Library, medium: str, folder: str) -> AbstractContextManager[Any]:
    return library.sqlite(f"{folder}/one.db") if medium == "SQLite" else nullcontext(library.memory())


def _note(moments: list[float]) -> None:
    moments.append(cpu())


def _per_step(append: Callable[[], Any], moments: list[float]) -> float:
    moments.clear()
    append()
    return (moments[-1] - moments[0]) / (len(moments) - 1) * 1e6


def append_bytes(library: Library, sizes: Sizes | None = None, is_filled: bool = True) -> Entrant:
    """Reports by how many bytes a super-step that appends an item to a list of so many makes the file grow."""

    def trials(n: int) -> Trials:
        while True:
            with TemporaryDirectory() as folder, library.sqlite(path := f"{folder}/one.db") as saver:
                yield partial(_growth, path, filled(library, saver, n if is_filled else 0), APPENDS)

    return Entrant(trials, sizes)


def filled(library: Library, saver: Any, n: int, begun: Callable[[], None] = lambda: None) -> Callable[[], Any]:
    """Appends `APPENDS` items, one a super-step, to a list that holds so many."""
    graph, config = graphs.appending(library, saver, begun), {**fresh(), "recursion_limit": 2 * APPENDS}
    graph.invoke({"left": 1, "items": [graphs.item(number) for number in range(n)]}, config)
    return partial(graph.invoke, {"left": APPENDS, "items": []}, config)


class LongRun:
    """One long run a round, of which both the first and the last thousand calls are reported."""

    def __init__(self, library: Library, on: Callable[..., Entrant]) -> None:
        self.library, self._on = library, on
        self._first = 0.0

    def last(self, sizes: Sizes | None = None) -> Entrant:
        return self._on(self.library, flows.timed, sizes, self._run)

    def first(self) -> Entrant:
        """To be entered after `last`, whose run it reports."""

        def trials(n: int) -> Trials:
            while True:
                yield lambda: self._first

        return Entrant(trials)

    def _run(self, library: Library, flow: Any, n: int) -> float:
        last: float
        self._first, last = flow.invoke(n, fresh())
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
