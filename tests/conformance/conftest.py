"""One program, two libraries: what LangGraph gives for it, flowfn gives too.

A **program** is a function of a `Kit`, the names of one library; it returns what is to be compared. `same(program)`
runs it on both, asserts that they agree and gives the common result; `both(program)` gives the pair, where flowfn
differs on purpose. Every test runs twice, through the blocking methods and through the awaited ones. `known.py` lists
the tests that fail, and why.

Compared is everything but what no two runs share: ids become `#1`, `#2`, … by order of appearance, times become `time`,
and flowfn's checkpoints inside functions (`source: "call"`) are left out, since only flowfn has them.
"""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import langgraph.channels as their_channels
import langgraph.config
import langgraph.errors
import langgraph.func
import langgraph.graph
import langgraph.graph.message
import langgraph.managed
import langgraph.pregel
import langgraph.runtime
import langgraph.types
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache as TheirCache
from langgraph.checkpoint.memory import InMemorySaver as TheirSaver
from langgraph.pregel._write import ChannelWriteEntry
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

import flowfn
import flowfn.channels as our_channels
import flowfn.errors
from flowfn.cache import InMemoryCache
from flowfn.checkpoint import InMemorySaver
from flowfn.pregel.node import Write

HERE = Path(__file__).parent
KNOWN = runpy.run_path(str(HERE / "known.py"))["KNOWN"]

THREAD = {"configurable": {"thread_id": "t"}}


class Kit:
    """The names of one library, and its methods in one way, blocking or awaited; the thread is `t` by default."""

    def __init__(self, names: SimpleNamespace, way: str) -> None:
        self._names, self._is_awaited = names, way == "awaited"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, name)

    def __reduce__(self) -> Any:
        raise TypeError("a kit is no value")

    def invoke(self, flow: Any, input: Any, config: Any = None, **more: Any) -> Any:
        if self._is_awaited:
            return asyncio.run(flow.ainvoke(input, THREAD if config is None else config, **more))
        return flow.invoke(input, THREAD if config is None else config, **more)

    def attempt(self, flow: Any, input: Any, config: Any = None, **more: Any) -> Any:
        """What `invoke` gives or raises."""
        try:
            return self.invoke(flow, input, config, **more)
        except Exception as error:
            return ("raised", error)

    def stream(self, flow: Any, input: Any, config: Any = None, **more: Any) -> list[Any]:
        """Every chunk; if the run ends with an exception, that is the last one."""
        config, chunks = THREAD if config is None else config, []

        async def collect() -> None:
            async for chunk in flow.astream(input, config, **more):
                chunks.append(chunk)

        try:
            if self._is_awaited:
                asyncio.run(collect())
            else:
                for chunk in flow.stream(input, config, **more):
                    chunks.append(chunk)
        except Exception as error:
            chunks.append(("raised", error))
        return chunks

    def state(self, flow: Any, config: Any = None, **more: Any) -> Any:
        """A thread now; inside a function, as of the checkpoint that its run began with."""
        config = THREAD if config is None else config
        now = self._get_state(flow, config, **more)
        if not is_call_checkpoint(now):
            return now
        base = self._get_state(
            flow, {"configurable": {**config["configurable"], "checkpoint_id": base_id(now)}}, **more
        )
        return now._replace(
            config=base.config, metadata=base.metadata, parent_config=base.parent_config, created_at=base.created_at
        )

    def _get_state(self, flow: Any, config: Any, **more: Any) -> Any:
        return asyncio.run(flow.aget_state(config, **more)) if self._is_awaited else flow.get_state(config, **more)

    def history(self, flow: Any, config: Any = None, **more: Any) -> list[Any]:
        config = THREAD if config is None else config

        async def collect() -> list[Any]:
            return [found async for found in flow.aget_state_history(config, **more)]

        return asyncio.run(collect()) if self._is_awaited else list(flow.get_state_history(config, **more))

    def update(self, flow: Any, values: Any, config: Any = None, **more: Any) -> Any:
        config = THREAD if config is None else config
        if self._is_awaited:
            return asyncio.run(flow.aupdate_state(config, values, **more))
        return flow.update_state(config, values, **more)

    def bulk_update(self, flow: Any, steps: Any, config: Any = None) -> Any:
        config = THREAD if config is None else config
        if self._is_awaited:
            return asyncio.run(flow.abulk_update_state(config, steps))
        return flow.bulk_update_state(config, steps)

    def wait_for(self, flow: Any, node: str) -> None:
        """Waits, inside a node, until the writes of one beside it are kept."""
        while not any(one.name == node and one.result for one in Context().run(flow.get_state, THREAD).tasks):
            sleep(0.001)

    def graph(self, schema: Any, nodes: Any, *paths: str, branches: Any = None, **options: Any) -> Any:
        """A compiled graph of named nodes, with edges along each path, `"start a b end"`."""
        ends, builder = {"start": self.START, "end": self.END}, self.StateGraph(schema)
        for name, node in nodes.items():
            builder.add_node(name, node)
        for names in ([ends.get(name, name) for name in path.split()] for path in paths):
            for edge in pairwise(names):
                builder.add_edge(*edge)
        for name, path in (branches or {}).items():
            builder.add_conditional_edges(name, path)
        return builder.compile(**options)


# ---------------------------------------------------------------- the two libraries

THEIRS = SimpleNamespace(
    library="langgraph",
    entrypoint=langgraph.func.entrypoint,
    task=langgraph.func.task,
    interrupt=langgraph.types.interrupt,
    Command=langgraph.types.Command,
    Interrupt=langgraph.types.Interrupt,
    Overwrite=langgraph.types.Overwrite,
    CachePolicy=langgraph.types.CachePolicy,
    InMemorySaver=TheirSaver,
    InMemoryCache=TheirCache,
    Runtime=langgraph.runtime.Runtime,
    Config=RunnableConfig,
    Store=BaseStore,
    StreamWriter=langgraph.types.StreamWriter,
    get_config=langgraph.config.get_config,
    get_store=langgraph.config.get_store,
    get_runtime=langgraph.runtime.get_runtime,
    get_stream_writer=langgraph.config.get_stream_writer,
    Pregel=langgraph.pregel.Pregel,
    NodeBuilder=langgraph.pregel.NodeBuilder,
    write=lambda channel, skip_none=False: ChannelWriteEntry(channel, skip_none=skip_none),
    channels=their_channels,
    GraphRecursionError=langgraph.errors.GraphRecursionError,
    InvalidUpdateError=langgraph.errors.InvalidUpdateError,
    EmptyInputError=langgraph.errors.EmptyInputError,
    Send=langgraph.types.Send,
    StateUpdate=langgraph.types.StateUpdate,
    RetryPolicy=langgraph.types.RetryPolicy,
    TimeoutPolicy=langgraph.types.TimeoutPolicy,
    StateGraph=langgraph.graph.StateGraph,
    START=langgraph.graph.START,
    END=langgraph.graph.END,
    MessagesState=langgraph.graph.MessagesState,
    add_messages=langgraph.graph.message.add_messages,
    IsLastStep=langgraph.managed.IsLastStep,
    RemainingSteps=langgraph.managed.RemainingSteps,
    RunControl=langgraph.runtime.RunControl,
    NodeError=langgraph.errors.NodeError,
    GraphDrained=langgraph.errors.GraphDrained,
    ParentCommand=langgraph.errors.ParentCommand,
)
OURS = SimpleNamespace(
    library="flowfn",
    entrypoint=flowfn.entrypoint,
    task=flowfn.task,
    interrupt=flowfn.interrupt,
    Command=flowfn.Command,
    Interrupt=flowfn.Interrupt,
    Overwrite=flowfn.Overwrite,
    CachePolicy=flowfn.CachePolicy,
    InMemorySaver=InMemorySaver,
    InMemoryCache=InMemoryCache,
    Runtime=flowfn.Runtime,
    Config=flowfn.Config,
    Store=BaseStore,
    StreamWriter=flowfn.StreamWriter,
    get_config=flowfn.get_config,
    get_store=flowfn.get_store,
    get_runtime=flowfn.get_runtime,
    get_stream_writer=flowfn.get_stream_writer,
    Pregel=flowfn.Pregel,
    NodeBuilder=flowfn.NodeBuilder,
    write=lambda channel, skip_none=False: Write(channel, skip_none=skip_none),
    channels=our_channels,
    GraphRecursionError=flowfn.errors.RecursionLimitError,
    InvalidUpdateError=flowfn.errors.InvalidUpdateError,
    EmptyInputError=flowfn.errors.EmptyInputError,
    Send=flowfn.Send,
    StateUpdate=flowfn.StateUpdate,
    RetryPolicy=flowfn.RetryPolicy,
    TimeoutPolicy=flowfn.TimeoutPolicy,
    StateGraph=getattr(flowfn, "StateGraph", None),
    START="__start__",
    END="__end__",
    MessagesState=getattr(flowfn, "MessagesState", None),
    add_messages=getattr(flowfn, "add_messages", None),
    IsLastStep=getattr(flowfn, "IsLastStep", None),
    RemainingSteps=getattr(flowfn, "RemainingSteps", None),
    RunControl=getattr(flowfn, "RunControl", None),
    NodeError=getattr(flowfn, "NodeError", None),
    GraphDrained=getattr(flowfn.errors, "GraphDrained", None),
    ParentCommand=getattr(flowfn.errors, "ParentCommand", None),
)
for _kit in (THEIRS, OURS):
    _kit.InMemoryStore = InMemoryStore

SAME_ERRORS = {"RecursionLimitError": "GraphRecursionError", "ConflictingWritesError": "InvalidUpdateError"}


# ---------------------------------------------------------------- what is compared

ID = re.compile(r"\b(?:q_)?[0-9a-f]{32}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:\.\d+)?\b")
TIMES = ("timestamp", "created_at", "ts")


class Comparable:
    """Makes plain values of what a program returned, so that equal behaviour gives equal values."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return ID.sub(self._name, value)
        if isinstance(value, BaseException):
            return self._error(value)
        kind = type(value).__name__
        if kind == "Interrupt":
            return {"Interrupt": self.of(value.value), "id": self.of(value.id), "schema": value.response_schema}
        if kind == "Overwrite":
            return {"Overwrite": self.of(value.value)}
        if kind == "GraphOutput":
            return {"GraphOutput": self.of(value.value), "interrupts": self.of(value.interrupts)}
        if hasattr(value, "_asdict"):
            return {kind: self.of(value._asdict())}
        if isinstance(value, dict):
            return {self.of(key): self._entry(key, value[key]) for key in sorted(value, key=str)}
        if isinstance(value, list | tuple):
            return type(value)([self.of(item) for item in value if not is_call_checkpoint(item)])
        return value

    def _entry(self, key: Any, value: Any) -> Any:
        return "time" if key in TIMES and isinstance(value, str) else self.of(value)

    def _name(self, match: re.Match[str]) -> str:
        id = match.group().partition(".")[0]
        return self._ids.setdefault(id, f"#{len(self._ids) + 1}")

    def _error(self, error: BaseException) -> Any:
        """An error of the program is compared with its arguments, one of a library by the name of its class."""
        kind = type(error)
        name = SAME_ERRORS.get(kind.__name__, kind.__name__)
        is_own = not kind.__module__.startswith(("langgraph", "flowfn"))
        return {"error": name, "args": self.of(error.args)} if is_own else {"error": name}


def is_call_checkpoint(value: Any) -> bool:
    """Whether a snapshot, or a chunk of a stream, is about a checkpoint inside a function."""
    metadata = getattr(value, "metadata", None)
    if isinstance(value, tuple) and metadata is None:
        return bool(value) and isinstance(value[-1], dict) and is_call_checkpoint(value[-1])
    if isinstance(value, dict):
        for inner in ("data", "payload"):
            if isinstance(value.get(inner), dict):
                return is_call_checkpoint(value[inner])
        metadata = value.get("metadata")
    return isinstance(metadata, dict) and metadata.get("source") == "call"


def base_id(state: Any) -> str:
    return str(state.config["configurable"]["checkpoint_id"]).partition(".")[0]


# ---------------------------------------------------------------- the fixtures

Program = Callable[[Any], Any]


@dataclass
class Pair:
    """What one program gave on both libraries."""

    theirs: Any
    ours: Any


def differences(pair: Pair, path: str = "result") -> Iterator[str]:
    """Where the two differ, one line each, as deep inside as it can be told."""
    theirs, ours = pair.theirs, pair.ours
    if type(theirs) is not type(ours) or not isinstance(theirs, dict | list | tuple):
        if type(theirs) is not type(ours) or theirs != ours:
            yield f"  {path}: LangGraph {theirs!r}, flowfn {ours!r}"
        return
    if len(theirs) != len(ours) and not isinstance(theirs, dict):
        yield f"  {path}: LangGraph {len(theirs)} items, flowfn {len(ours)}"
        yield from (f"    LangGraph {item!r}" for item in theirs)
        yield from (f"    flowfn    {item!r}" for item in ours)
        return
    keys = list(range(len(theirs)))
    if isinstance(theirs, dict):
        keys = [key for key in theirs if key in ours]
        alone = [key for key in [*theirs, *ours] if key not in keys]
        if len(alone) > len(keys):
            yield f"  {path}: LangGraph {theirs!r}, flowfn {ours!r}"
            return
        for key in alone:
            yield f"  {path}[{key!r}]: LangGraph {theirs.get(key, 'nothing')!r}, flowfn {ours.get(key, 'nothing')!r}"
    for key in keys:
        yield from differences(Pair(theirs[key], ours[key]), f"{path}[{key!r}]")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {test: reason for reason, tests in KNOWN.items() for test in tests}
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        name = re.sub(r"\[(?:blocking|awaited)(?:-|(?=\]))", "[", item.name).replace("[]", "")
        if name in reasons:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reasons[name]))


@pytest.fixture(params=["blocking", "awaited"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def both(way: str) -> Callable[[Program], Pair]:
    """Runs a program on both libraries; gives what each came to, comparable."""

    def run(program: Program) -> Pair:
        return Pair(*[Comparable().of(program(Kit(names, way))) for names in (THEIRS, OURS)])

    return run


@pytest.fixture
def same(both: Callable[[Program], Pair]) -> Callable[[Program], Any]:
    """Runs a program on both libraries, asserts that they agree, and gives what they agree on."""

    def run(program: Program) -> Any:
        pair = both(program)
        found = list(differences(pair))
        if found:
            pytest.fail("\n".join(found), pytrace=False)
        return pair.ours

    return run
