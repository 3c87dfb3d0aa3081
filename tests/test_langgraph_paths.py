"""LangGraph's import paths lead to flowfn's names, and the table below says which names are not there, and why."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import langgraph
import pytest

import flowfn.langgraph

FOLDER = Path(flowfn.langgraph.__file__).parent
ROOT = FOLDER.parent.parent

SERVER = "belongs to LangGraph's server"
TRACES = "says what LangSmith is shown"
OWN_TYPES = "a type of LangGraph's own signatures"
NOT_YET = "not yet"
OLD = "deprecated by LangGraph"
LOW = "LangGraph's runtime from inside"
STAND_IN = "a message graph is a graph with `MessagesState`"

MISSING = {
    "cache.base": {},
    "checkpoint.base": {
        **dict.fromkeys(["copy_checkpoint", "create_checkpoint", "empty_checkpoint", "writes_sort_key"], LOW),
        **dict.fromkeys(["get_checkpoint_metadata", "get_serializable_checkpoint_metadata"], LOW),
        "DeltaChannelHistory": LOW,
        "EmptyChannelError": "is in `errors`",
        "get_checkpoint_id": "`config['configurable'].get('checkpoint_id')`",
    },
    "checkpoint.memory": {"PersistentDict": "for LangGraph's own tests; `SqliteSaver` keeps threads in a file"},
    "constants": {
        **dict.fromkeys(["CONF", "CONFIG_KEY_CHECKPOINTER", "TASKS"], LOW),
        "TAG_HIDDEN": TRACES,
    },
    "errors": {
        "ErrorCode": "leads to LangGraph's pages",
        "NodeCancelledError": "a node that raises `CancelledError` fails with it",
        "NodeInterrupt": OLD,
        "TaskNotFound": SERVER,
        "UnknownInterruptError": "flowfn's answers are always strict: `UnknownQuestionError` and its kin",
        "is_invalid_resume": "the errors of an answer are `QuestionError`",
    },
    "graph": {"MessageGraph": STAND_IN},
    "graph.message": {"MessageGraph": STAND_IN},
    "managed.is_last_step": {"RemainingStepsManager": LOW},
    "runtime": {"BaseUser": SERVER, "ServerInfo": SERVER},
    "types": {
        **dict.fromkeys(["TracePolicy", "omit_payload"], TRACES),
        **dict.fromkeys(["PregelExecutableTask", "ensure_valid_checkpointer"], LOW),
        **dict.fromkeys(["All", "Checkpointer", "CheckpointPayload", "CheckpointTask", "DebugPayload"], OWN_TYPES),
        **dict.fromkeys(["TaskPayload", "TaskResultPayload", "StreamPart", "CheckpointStreamPart"], OWN_TYPES),
        **dict.fromkeys(["CustomStreamPart", "DebugStreamPart", "MessagesStreamPart", "TasksStreamPart"], OWN_TYPES),
        **dict.fromkeys(["UpdatesStreamPart", "ValuesStreamPart"], OWN_TYPES),
    },
}
"""Names that LangGraph has where flowfn has a module of the same path: module → name → why flowfn has none."""

MISSING_MODULES = {
    "cache.redis": "no Redis",
    "cache.sqlite": "`flowfn.cache.DiskCache` keeps results in a folder, not in a file",
    "callbacks": "LangChain's callbacks; `stream` shows what happens",
    "checkpoint.serde": "stored values are encoded otherwise: `flowfn.Serializer`, `flowfn.EncryptedSerializer`",
    "managed.base": LOW,
    "prebuilt": NOT_YET,
    "pregel.debug": LOW,
    "pregel.protocol": LOW,
    "pregel.remote": SERVER,
    "pregel.types": OLD,
    "store": NOT_YET,
    "stream": "streams of version v3 are not there yet",
    "typing": LOW,
    "utils": LOW,
    "version": "`importlib.metadata.version('flowfn')`",
    "warnings": OLD,
    "checkpoint.base.id": LOW,
    "checkpoint.sqlite.utils": LOW,
}
"""Modules of LangGraph, with all that is in them, of whose path flowfn has none: module → why."""


def modules_in(package: ModuleType) -> set[str]:
    """The modules below a package, without its name and those that are private."""
    names = set()
    for folder in map(Path, package.__path__):
        for path in folder.rglob("*.py"):
            *parents, name = path.relative_to(folder).with_suffix("").parts
            names.add(".".join(parents if name == "__init__" else [*parents, name]))
    return {name for name in names if name and not any(part.startswith("_") for part in name.split("."))}


OURS = sorted(modules_in(flowfn.langgraph))


def public(module: ModuleType) -> set[str]:
    """What a module of LangGraph offers: its `__all__`, else the classes and functions it defines."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    }


def theirs(name: str) -> ModuleType:
    return importlib.import_module(f"langgraph.{name}")


def ours(name: str) -> ModuleType:
    return importlib.import_module(f"flowfn.langgraph.{name}")


@pytest.mark.parametrize("name", OURS)
def test_a_module_has_the_names_of_langgraph_but_those_in_the_table(name):
    offered, there = set(getattr(ours(name), "__all__", ())), public(theirs(name))

    assert there - offered == MISSING.get(name, {}).keys()


@pytest.mark.parametrize("name", OURS)
def test_a_module_has_no_names_that_langgraph_has_not(name):
    alone = [one for one in getattr(ours(name), "__all__", ()) if not hasattr(theirs(name), one)]

    assert alone == []


@pytest.mark.parametrize("name", OURS)
def test_what_a_module_says_it_has_is_there(name):
    module = ours(name)

    for one in getattr(module, "__all__", ()):
        assert getattr(module, one) is not None


def test_every_module_of_langgraph_is_there_or_in_the_table():
    def is_told(name: str) -> bool:
        return any(name == known or name.startswith(f"{known}.") for known in MISSING_MODULES)

    assert [name for name in sorted(modules_in(langgraph)) if name not in OURS and not is_told(name)] == []


def test_the_tables_name_nothing_that_is_there():
    assert MISSING.keys() <= set(OURS)
    assert MISSING_MODULES.keys() & set(OURS) == set()
    assert all(importlib.util.find_spec(f"langgraph.{name}") for name in MISSING_MODULES)


def is_a_room(name: str) -> bool:
    return "." not in name and importlib.util.find_spec(f"flowfn.{name}") is not None


def test_what_flowfn_has_in_a_room_of_that_name_is_handed_on():
    rooms = {name: importlib.import_module(f"flowfn.{name}") for name in filter(is_a_room, MISSING)}
    late = [name for name, reason in MISSING_MODULES.items() if reason == NOT_YET and is_a_room(name)]

    assert [(room, name) for room in rooms for name in MISSING[room] if hasattr(rooms[room], name)] == []
    assert late == []


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_module_only_hands_names_on(path):
    docstring, *statements = ast.parse(path.read_text("utf-8")).body

    assert isinstance(docstring, ast.Expr)
    for statement in statements:
        if isinstance(statement, ast.ImportFrom):
            assert str(statement.module).startswith("flowfn.")
        else:
            assert isinstance(statement, ast.Assign)
            assert ast.unparse(statement.targets[0]) == "__all__"


# ---------------------------------------------------------------- programs

FUNCTIONS = """
import sys
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.func import entrypoint, task
from langgraph.types import Command, RetryPolicy, interrupt

@task(retry_policy=RetryPolicy(max_attempts=2))
def draft(topic: str) -> str:
    get_stream_writer()(f"drafting {topic}")
    return f"On {topic}."

@entrypoint(checkpointer=InMemorySaver())
def write(topic: str, *, previous: str | None = None) -> dict:
    text = draft(topic).result()
    try:
        answer = interrupt({"text": text})
    except GraphBubbleUp:
        raise
    except Exception:
        answer = "swallowed"
    return {"text": text, "answer": answer, "before": previous}

config = {"configurable": {"thread_id": "1"}}
for chunk in write.stream("cats", config, stream_mode=["custom", "updates"]):
    print(*(chunk if "__interrupt__" not in chunk[1] else ["asks", chunk[1]["__interrupt__"][0].value]))
print(write.invoke(Command(resume="yes"), config))
"""

GRAPH = """
import operator
import os
import sys
import tempfile
from typing import Annotated, TypedDict
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send, interrupt

class State(TypedDict):
    items: list[int]
    done: Annotated[list[int], operator.add]
    answer: str

def fan_out(state: State):
    return [Send("work", {"items": [item]}) for item in state["items"]]

def work(state: State):
    return {"done": [state["items"][0] * 10]}

def review(state: State):
    answer = interrupt({"done": state["done"]})
    return Command(update={"answer": answer}, goto=END)

builder = StateGraph(State)
builder.add_node("start", lambda state: {})
builder.add_node(work)
builder.add_node(review)
builder.add_edge(START, "start")
builder.add_conditional_edges("start", fan_out, ["work"])
builder.add_edge("work", "review")

with tempfile.TemporaryDirectory() as folder, SqliteSaver.from_conn_string(os.path.join(folder, "t.db")) as saver:
    graph = builder.compile(checkpointer=saver)
    assert isinstance(graph, CompiledStateGraph)
    config = {"configurable": {"thread_id": "1"}}
    for chunk in graph.stream({"items": [1, 2, 3], "done": [0]}, config, stream_mode="values"):
        print(chunk if "__interrupt__" not in chunk else chunk["__interrupt__"][0].value)
    print(graph.get_state(config).next)
    print(graph.invoke(Command(resume="fine"), config))
    print([state.next for state in graph.get_state_history(config)])
    try:
        graph.invoke({"items": [1]}, {"configurable": {"thread_id": "2"}, "recursion_limit": 1})
    except GraphRecursionError:
        print("too long")
"""

AWAITED = """
import asyncio
import os
import sys
import tempfile
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.runtime import Runtime

@task
async def double(n: int) -> int:
    return 2 * n

async def main(path):
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        @entrypoint(checkpointer=saver, context_schema=dict)
        async def flow(n: int, runtime: Runtime[dict], *, previous: int | None = None) -> int:
            return await double(n) + (previous or 0) + runtime.context["more"]

        config = {"configurable": {"thread_id": "1"}}
        print(await flow.ainvoke(1, config, context={"more": 100}))
        print(await flow.ainvoke(2, config, context={"more": 0}))
        print((await flow.aget_state(config)).values)

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(os.path.join(folder, "t.db")))
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", [FUNCTIONS, GRAPH, AWAITED], ids=["functions", "graph", "awaited"])
def test_a_program_moves_by_its_imports_alone(program):
    moved = program.replace("from langgraph.", "from flowfn.langgraph.")
    alone = "\nassert not {'langgraph', 'langchain_core'} & set(sys.modules)"

    assert run(moved + alone) == run(program)
