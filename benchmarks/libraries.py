"""The two libraries behind one set of names, so that every flow here is written once and is the same work for both.

Both run at their defaults, but for the speed of the disk: LangGraph's files are set to `synchronous=NORMAL`, which is
flowfn's default.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import langgraph.checkpoint.memory
import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio
import langgraph.func
import langgraph.graph
import langgraph.types

import flowfn
from flowfn.checkpoint import InMemorySaver, SqliteSaver


@dataclass(frozen=True)
class Library:
    """What a flow and its trial need of a library.

    Args:
        memory: a new saver that keeps everything in memory.
        sqlite: the saver of a file, and the one for flows that are awaited.
        questions: what is open in all threads that a saver keeps.
        graph: `StateGraph`, given the schema of the state.
        send: what has a node run with an input of its own.
    """

    task: Callable[[Callable[..., Any]], Callable[..., Any]]
    entrypoint: Callable[..., Callable[[Callable[..., Any]], Any]]
    interrupt: Callable[[Any], Any]
    command: Callable[..., Any]
    memory: Callable[[], Any]
    sqlite: Callable[[str], AbstractContextManager[Any]]
    asqlite: Callable[[str], AbstractAsyncContextManager[Any]]
    questions: Callable[[Any], Sequence[Any]]
    graph: Callable[[Any], Any]
    send: Callable[[str, Any], Any]


@contextmanager
def _langgraph_sqlite(path: str) -> Iterator[Any]:
    # A task is saved on whatever thread it ran; the saver has a lock for that.
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield langgraph.checkpoint.sqlite.SqliteSaver(connection)
    finally:
        connection.close()


@asynccontextmanager
async def _langgraph_asqlite(path: str) -> AsyncIterator[Any]:
    async with langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver.from_conn_string(path) as saver:
        await saver.conn.execute("PRAGMA synchronous = NORMAL")
        yield saver


def _langgraph_questions(saver: Any) -> list[Any]:
    """There is no other list than that of all checkpoints, each with what its tasks have left."""
    return [write for found in saver.list(None) for write in found.pending_writes if write[1] == "__interrupt__"]


def _flowfn_questions(saver: Any) -> list[Any]:
    return saver.questions(limit=sys.maxsize)  # type: ignore[no-any-return]


LANGGRAPH = Library(
    task=langgraph.func.task,
    entrypoint=langgraph.func.entrypoint,
    interrupt=langgraph.types.interrupt,
    command=langgraph.types.Command,
    memory=langgraph.checkpoint.memory.InMemorySaver,
    sqlite=_langgraph_sqlite,
    asqlite=_langgraph_asqlite,
    questions=_langgraph_questions,
    graph=langgraph.graph.StateGraph,
    send=langgraph.types.Send,
)

FLOWFN = Library(
    task=flowfn.task,
    entrypoint=flowfn.entrypoint,
    interrupt=flowfn.interrupt,
    command=flowfn.Command,
    memory=InMemorySaver,
    sqlite=SqliteSaver,
    asqlite=SqliteSaver,
    questions=_flowfn_questions,
    graph=flowfn.StateGraph,
    send=flowfn.Send,
)
