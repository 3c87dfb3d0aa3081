"""The bare limit: the least that work of this kind can cost in Python, whatever the library.

In memory that is the function, its pickled result in a dict, and for work done side by side a pool of threads or
`asyncio.gather`. On disk it is one transaction of two small rows for each result.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Entrant, Trials
from benchmarks.trials import size

TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE calls (id INTEGER PRIMARY KEY, key BLOB NOT NULL, name TEXT NOT NULL, payload BLOB NOT NULL);
CREATE TABLE steps (id INTEGER PRIMARY KEY, call INTEGER NOT NULL, source TEXT NOT NULL);
"""


def _add_one(x: int) -> int:
    return x + 1


async def _add_one_awaited(x: int) -> int:
    return x + 1


def in_turn() -> Entrant:
    def work(n: int) -> None:
        results: dict[int, bytes] = {}
        for i in range(n):
            results[i] = pickle.dumps(_add_one(i))

    return _entrant(work)


def fan_out() -> Entrant:
    def work(n: int) -> int:
        results: dict[int, bytes] = {}

        def one(i: int) -> int:
            x = _add_one(i)
            results[i] = pickle.dumps(x)
            return x

        with ThreadPoolExecutor() as pool:
            return sum(future.result() for future in [pool.submit(one, i) for i in range(n)])

    return _entrant(work)


def fan_out_awaited() -> Entrant:
    def work(n: int) -> int:
        results: dict[int, bytes] = {}

        async def one(i: int) -> int:
            x = await _add_one_awaited(i)
            results[i] = pickle.dumps(x)
            return x

        async def all_of_them() -> int:
            return sum(await asyncio.gather(*[one(i) for i in range(n)]))

        return asyncio.run(all_of_them())

    return _entrant(work)


def replay() -> Entrant:
    def trials(n: int) -> Trials:
        while True:
            stored = {i: pickle.dumps(i) for i in range(n)}
            yield partial(_load_each, stored)

    return Entrant(trials)


def _load_each(stored: dict[int, bytes]) -> None:
    for i in range(len(stored)):
        pickle.loads(stored[i])


def payload(value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Entrant:
    """Encoded and read back."""

    def work(n: int) -> None:
        for _ in range(n):
            decode(encode(value))

    return _entrant(work)


def _entrant(work: Any) -> Entrant:
    def trials(n: int) -> Trials:
        while True:
            yield partial(work, n)

    return Entrant(trials)


def commits() -> Entrant:
    def trials(n: int) -> Trials:
        for _, connection in _databases():
            yield partial(_commit_each, connection, n)

    return Entrant(trials)


def commits_awaited() -> Entrant:
    """On the event loop itself, each in a coroutine."""

    async def one(connection: sqlite3.Connection, i: int) -> None:
        _commit(connection, i, await _add_one_awaited(i))

    async def each(connection: sqlite3.Connection, n: int) -> None:
        for i in range(n):
            await one(connection, i)

    def trials(n: int) -> Trials:
        for _, connection in _databases():
            yield lambda connection=connection: asyncio.run(each(connection, n))  # type: ignore[misc]

    return Entrant(trials)


def commit_bytes() -> Entrant:
    """Reports by how many bytes a commit makes the file grow."""

    def grow(path: str, connection: sqlite3.Connection, n: int) -> float:
        before = size(path)
        _commit_each(connection, n)
        return (size(path) - before) / n

    def trials(n: int) -> Trials:
        for path, connection in _databases():
            yield partial(grow, path, connection, n)

    return Entrant(trials)


def _databases() -> Iterator[tuple[str, sqlite3.Connection]]:
    with TemporaryDirectory() as folder:
        for at in itertools.count():
            path = f"{folder}/{at}.db"
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.executescript(TABLES)
                yield path, connection


def _commit_each(connection: sqlite3.Connection, n: int) -> None:
    for i in range(n):
        _commit(connection, i, _add_one(i))


def _commit(connection: sqlite3.Connection, i: int, x: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO calls VALUES (?, ?, ?, ?)", (i, b"sixteen bytes ok", "add_one", pickle.dumps(x)))
    connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (i, i, "call"))
    connection.execute("COMMIT")
