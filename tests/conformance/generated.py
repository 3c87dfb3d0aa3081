"""Programs made at random: what a graph is and what is done with it, as data; and what one library makes of them.

A `Program` is plain data that prints as Python: a `Graph` (nodes that write, ask, fail, send, go somewhere; edges,
branches, joins) and a script of things done to one thread of it. `build` makes the graph with one library's names,
`record` performs the script there and gives what can be compared after every super-step: streams, state, history.
`programs(theme)` is the Hypothesis strategy; a theme makes some features likelier, and all features mix.

Where flowfn differs on purpose, `ON_PURPOSE` says why and evens out the records; nothing else is evened out, but for
the order in which parallel tasks of one super-step end, which is chance in both libraries.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import langgraph.errors
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.channels import NamedBarrierValue, Topic
from langgraph.checkpoint.sqlite import SqliteSaver as TheirSqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsyncSqlite
from langgraph.pregel._loop import PregelLoop
from pydantic import BaseModel, create_model

import flowfn.errors
from flowfn.checkpoint import SqliteSaver
from flowfn.errors import FlowStop
from tests.conformance.conftest import ID, SAME_ERRORS, Comparable, Pair, differences, is_call_checkpoint

START, END = "__start__", "__end__"
MODES = ["values", "updates", "tasks", "checkpoints", "debug", "custom"]
WAYS = ("blocking", "awaited")
MEDIA = ("memory", "sqlite")
CALLS = ("double", "inner")
DEBUG = ("checkpoint", "task", "task_result")


# ---------------------------------------------------------------- a program, as data


class Spec:
    """Prints as Python, without what is left at its default, so that a failing program can be read and pasted."""

    def __repr__(self) -> str:
        given = [f for f in fields(self) if getattr(self, f.name) != _default(f)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _default(f: Any) -> Any:
    return f.default_factory() if callable(f.default_factory) else f.default


@dataclass(frozen=True, repr=False)
class Node(Spec):
    """One node.

    Attributes:
        does: what it does before it returns, in order: `("say", text)` on the custom stream, `("ask", text)`,
            `("fail", times, error)` in the first attempts of each task, `("task", n)` and `("flow", n)` call a task
            and an entrypoint, `("who",)` reads the context.
        writes: (key, value) pairs beside its entry in `log`; a value may be `("overwrite", value)`.
        goto: targets of a `Command`: names, END or `("send", name, argument)`.
        parent: it ends with a `Command` to the graph above: a target there, or `""` for an update alone.
        gives: how the update is returned: `dict`, `none`, `list`, `object` (of the state's class), `command`.
        graph: a subgraph that is the node, or that the node's function invokes, if `calls`.
        kept: the subgraph's `checkpointer=`.
        reads: the keys of its `input_schema`; `infers` gives that schema by annotation.
        policy: `retry` attempts, and whether it is `cached`, has a `timeout` (awaited only), a `handler`.
    """

    name: str
    does: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()
    goto: tuple[Any, ...] = ()
    parent: str | None = None
    gives: str = "dict"
    graph: Graph | None = None
    calls: bool = False
    kept: bool | None = None
    reads: tuple[str, ...] | None = None
    infers: bool = False
    named: bool = True
    defer: bool = False
    retry: int = 0
    cached: bool = False
    timeout: bool = False
    handler: Handler | None = None
    metadata: bool = False
    destinations: bool = False


@dataclass(frozen=True, repr=False)
class Handler(Spec):
    """What is done about a node's error: an update, and perhaps a target."""

    goto: str | None = None


@dataclass(frozen=True, repr=False)
class Branch(Spec):
    """A conditional edge: option number `len(log) % len(options)`, or `after` once the log has `until` entries.

    An option is a name, END, a tuple of names, or a tuple of `("send", name, argument)`. `map` is how labels become
    names: None, `"dict"` or `"list"`.
    """

    source: str
    options: tuple[Any, ...]
    until: int = 99
    after: Any = END
    map: str | None = None


@dataclass(frozen=True, repr=False)
class Graph(Spec):
    """The nodes, and how they follow each other; `state` is `typed`, `dataclass`, `pydantic` or `bare`."""

    nodes: tuple[Node, ...]
    keys: tuple[str, ...] = ()
    state: str = "typed"
    takes: tuple[str, ...] | None = None
    gives: tuple[str, ...] | None = None
    is_managed: bool = False
    sequence: tuple[str, ...] = ()
    edges: tuple[Any, ...] = ()
    branches: tuple[Branch, ...] = ()
    entry: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    before: Any = ()
    after: Any = ()


@dataclass(frozen=True, repr=False)
class Program(Spec):
    """A graph, and what is done with one thread of it.

    The script's actions: `("run", writes, options)`; `("proceed", n)` answers the first n open questions (0: all), or
    goes on, or runs anew; `("go on",)` is `invoke(None)`; `("command", writes, targets)` invokes with a `Command`,
    which answers all open questions, too; `("update", writes, as_node)`; `("bulk", supersteps)`; `("fork", k, action)`
    does that at the k-th snapshot before the newest.
    """

    graph: Graph
    script: tuple[Any, ...] = ()


def every_graph(graph: Graph) -> Iterator[Graph]:
    """This graph and all below it."""
    yield graph
    for node in graph.nodes:
        if node.graph is not None:
            yield from every_graph(node.graph)


def every_node(program: Program) -> Iterator[Node]:
    return (node for graph in every_graph(program.graph) for node in graph.nodes)


# ---------------------------------------------------------------- state


def larger(left: Any, right: Any) -> Any:
    return max(left, right)


def united(left: set[str], right: set[str]) -> set[str]:
    return left | right


KEYS: dict[str, tuple[Any, Any, Callable[[Any], Any]]] = {
    # key: its type, what a schema object has by default, and the annotation, given a library's names
    "log": (list, [], lambda kit: operator.add),
    "last": (Any, None, lambda kit: None),
    "first": (Any, None, lambda kit: None),
    "total": (int, 0, lambda kit: operator.add),
    "most": (int, 0, lambda kit: larger),
    "names": (set, set(), lambda kit: united),
    "count": (int, 0, lambda kit: kit.channels.BinaryOperatorAggregate(int, operator.add)),
    "topic": (list, [], lambda kit: kit.channels.Topic(str)),
    "pile": (list, [], lambda kit: kit.channels.Topic(str, accumulate=True)),
    "spark": (Any, None, lambda kit: kit.channels.EphemeralValue),
    "flare": (Any, None, lambda kit: kit.channels.EphemeralValue(Any, guard=False)),
    "any": (Any, None, lambda kit: kit.channels.AnyValue),
    "hidden": (Any, None, lambda kit: kit.channels.UntrackedValue),
    "messages": (list, [], lambda kit: kit.add_messages),
}
REDUCED = ("total", "most", "names", "count", "topic", "pile", "flare", "any", "messages")
SINGLE = ("last", "first", "spark", "hidden")
OVERWRITABLE = ("total", "names", "count")


def schema(kit: Any, kind: str, keys: Iterable[str], name: str = "State", is_managed: bool = False) -> Any:
    """The state's class, or the bare annotation of a root channel."""
    if kind == "bare":
        return Annotated[list, operator.add]
    hints = {key: _hint(kit, key) for key in keys}
    if kind == "typed":
        if is_managed:
            hints |= {"is_last": kit.IsLastStep, "remaining": kit.RemainingSteps}
        return TypedDict(name, hints)  # type: ignore[operator]
    if kind == "pydantic":
        return create_model(name, **{key: (hint, KEYS[key][1]) for key, hint in hints.items()})
    made = [(key, hint, field(default_factory=lambda key=key: KEYS[key][1])) for key, hint in hints.items()]
    return make_dataclass(name, made)


def _hint(kit: Any, key: str) -> Any:
    kind, _, rule = KEYS[key]
    return kind if rule(kit) is None else Annotated[kind, rule(kit)]


def entries(state: Any) -> list[Any]:
    """The log of a state of any kind; empty for what a `Send` brought."""
    if isinstance(state, list):
        return state
    if isinstance(state, dict):
        return state.get("log") or []
    return getattr(state, "log", None) or []


def seen(state: Any) -> str:
    """What a node saw, short enough for the log."""
    if isinstance(state, list):
        return f"{len(state)} entries"
    if not isinstance(state, dict) and not is_dataclass(state) and not isinstance(state, BaseModel):
        return repr(state)
    found = state if isinstance(state, dict) else vars(state)
    return " ".join(f"{key}={_short(found[key])}" for key in sorted(found))


def _mark(state: Any) -> str:
    """What tells the tasks apart that `Send`s of one super-step made."""
    if isinstance(state, int):
        return f" ({state})"
    last = entries(state)[-1:]
    return f" ({last[0]})" if last and last[0].startswith("sent") else ""


def _short(value: Any) -> str:
    if isinstance(value, set):
        return "+".join(sorted(value))
    if isinstance(value, list):
        return (
            str(len(value)) if not all(isinstance(item, str) and len(item) < 4 for item in value) else ",".join(value)
        )
    return repr(value)


# ---------------------------------------------------------------- from data to a graph


class World:
    """What the nodes of one performance did: attempts by task, and the features that were really used."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.used: set[str] = set()
        self.ran: set[str] = set()


class Unwalked:
    """What a function captures and what is no part of its identity: whole libraries hang on it."""

    def __init__(self, *held: Any) -> None:
        self.held = held

    def __reduce__(self) -> Any:
        raise TypeError("this is no value")


class Maker(Unwalked):
    """Makes graphs of one library, for one way of running them."""

    def __init__(self, kit: Any, way: str, world: World) -> None:
        self.kit, self.is_awaited, self.world = kit, way == "awaited", world
        self.task = self._function(self._double, "double")
        self.task = kit.task(self.task)

        def flow(n: Any) -> Any:
            found = yield ("result", self.task(n))
            return found + 1

        self.flow = kit.entrypoint()(self._function(flow, "inner"))

    def _double(self, n: Any) -> Any:
        return n * 2
        yield

    # ---- functions

    def _function(self, body: Callable[..., Generator[Any, Any, Any]], name: str, hint: Any = None) -> Any:
        """A function, or a coroutine function, that runs a body which yields what it waits for."""

        def run(state: Any) -> Any:
            steps, got = body(state), None
            while True:
                try:
                    verb, *what = steps.send(got)
                except StopIteration as end:
                    return end.value
                got = what[0].result() if verb == "result" else what[0].invoke(what[1])

        async def arun(state: Any) -> Any:
            steps, got = body(state), None
            while True:
                try:
                    verb, *what = steps.send(got)
                except StopIteration as end:
                    return end.value
                got = await what[0] if verb == "result" else await what[0].ainvoke(what[1])

        made = arun if self.is_awaited else run
        made.__name__ = made.__qualname__ = name
        made.__annotations__ = {} if hint is None else {"state": hint}
        return made

    def _body(self, held: Unwalked) -> Callable[[Any], Any]:
        def body(state: Any) -> Generator[Any, Any, Any]:
            graph, node, state_class, called = held.held
            kit = self.kit
            self.world.ran.add(node.name)
            told = [seen(state)]
            for verb, *what in node.does:
                if verb == "say":
                    kit.get_stream_writer()({"from": node.name, "says": what[0]})
                elif verb == "ask":
                    told.append(f"answered {kit.interrupt(what[0] + _mark(state))!r}")
                elif verb == "fail":
                    self._fail(node, *what)
                elif verb == "task":
                    told.append(f"task {(yield ('result', self.task(what[0])))}")
                elif verb == "flow":
                    told.append(f"flow {(yield ('invoke', self.flow, what[0]))}")
                elif verb == "who":
                    told.append(f"for {kit.get_runtime().context['who']}")
                self.world.used.add(f"{verb} in a node")
            if called is not None:
                found = yield ("invoke", called, [] if graph.state == "bare" else {"log": []})
                told.append(f"subgraph {len(entries(found))}")
            return self._given(graph, node, state_class, f"{node.name}({'; '.join(told)})")

        return body

    def _fail(self, node: Node, times: int, error: str) -> None:
        task = f"{node.name} {self.kit.get_runtime().execution_info.task_id}"
        self.world.attempts[task] += 1
        if self.world.attempts[task] <= times:
            raise {"ConnectionError": ConnectionError, "ValueError": ValueError}[error](f"{node.name} is down")

    # ---- what a node returns

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple) and value[:1] == ("overwrite",):
            self.world.used.add("Overwrite")
            return self.kit.Overwrite(value[1])
        if isinstance(value, tuple) and value[:1] == ("message",):
            return [AIMessage(value[2], id=value[1])]
        return value

    def update(self, graph: Graph, entry: str, writes: Iterable[Any]) -> Any:
        if graph.state == "bare":
            return [entry]
        return {"log": [entry], **{key: self._value(value) for key, value in writes}}

    def target(self, target: Any) -> Any:
        if isinstance(target, tuple) and target[:1] == ("send",):
            return self.kit.Send(target[1], {"log": []} if target[2] == "state" else target[2])
        return target

    def _given(self, graph: Graph, node: Node, state_class: Any, entry: str) -> Any:
        command = self.kit.Command
        if node.parent is not None:
            update = {"log": [entry]} if graph.state != "bare" else [entry]
            return command(graph=command.PARENT, update=update, goto=node.parent or ())
        update = self.update(graph, entry, node.writes)
        goto = [self.target(target) for target in node.goto]
        self.world.used.add(f"a node that returns {node.gives}")
        if node.gives == "none":
            return None
        if node.gives == "list":
            return [update, command(goto=goto, update=self.update(graph, f"{node.name} again", ()))]
        if node.gives == "object" and not goto:
            return state_class(**update)
        if goto or node.gives == "command":
            return command(update=update, goto=goto)
        return update

    def _handler(self, graph: Graph, handler: Handler) -> Any:
        held = Unwalked(graph)

        def handle(state: Any, error: Any) -> Any:
            self.world.used.add("error_handler")
            update = self.update(*held.held, f"{error.node} handled {error.error!r}", ())
            return self.kit.Command(update=update, goto=handler.goto) if handler.goto else update

        async def ahandle(state: Any, error: Any) -> Any:
            return handle(state, error)

        made = ahandle if self.is_awaited else handle
        made.__annotations__ = {"error": self.kit.NodeError}
        return made

    # ---- the graph

    def build(self, graph: Graph, **compiled: Any) -> Any:
        """The compiled graph."""
        kit = self.kit
        state_class = schema(kit, graph.state, graph.keys, is_managed=graph.is_managed)
        builder = kit.StateGraph(
            state_class,
            context_schema=dict,
            input_schema=graph.takes and schema(kit, graph.state, graph.takes, "Takes"),
            output_schema=graph.gives and schema(kit, graph.state, graph.gives, "Gives"),
        )
        if graph.defaults:
            builder.set_node_defaults(**self._defaults(graph))
        actions = {node.name: self._action(graph, node, state_class) for node in graph.nodes}
        if graph.sequence:
            builder.add_sequence([(name, actions[name]) for name in graph.sequence])
        for node in graph.nodes:
            if node.name not in graph.sequence:
                self._add(builder, graph, node, actions[node.name])
        self._connect(builder, graph)
        return builder.compile(interrupt_before=_stops(graph.before), interrupt_after=_stops(graph.after), **compiled)

    def _defaults(self, graph: Graph) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "retry" in graph.defaults:
            found["retry_policy"] = self._retry(3)
        if "handler" in graph.defaults:
            found["error_handler"] = self._handler(graph, Handler())
        if "cache" in graph.defaults:
            found["cache_policy"] = self.kit.CachePolicy()
        return found

    def _retry(self, attempts: int) -> Any:
        return self.kit.RetryPolicy(
            initial_interval=0, jitter=False, max_attempts=attempts, retry_on=(ConnectionError, ValueError)
        )

    def _action(self, graph: Graph, node: Node, state_class: Any) -> Any:
        if node.graph is not None and not node.calls:
            return self.build(node.graph, checkpointer=node.kept)
        called = node.graph and self.build(node.graph, checkpointer=node.kept)
        hint = self._reads(graph, node) if node.infers else None
        return self._function(self._body(Unwalked(graph, node, state_class, called)), node.name, hint)

    def _reads(self, graph: Graph, node: Node) -> Any:
        return node.reads and schema(self.kit, graph.state, node.reads, "Reads")

    def _add(self, builder: Any, graph: Graph, node: Node, action: Any) -> None:
        more: dict[str, Any] = {"defer": True} if node.defer else {}
        if node.reads and not node.infers:
            more["input_schema"] = self._reads(graph, node)
        if node.retry:
            more["retry_policy"] = self._retry(node.retry)
        if node.cached:
            more["cache_policy"] = self.kit.CachePolicy()
        if node.timeout and self.is_awaited:
            more["timeout"] = self.kit.TimeoutPolicy(run_timeout=50.0)
        if node.handler:
            more["error_handler"] = self._handler(graph, node.handler)
        if node.metadata:
            more["metadata"] = {"kind": node.name}
        if node.destinations:
            more["destinations"] = tuple(t[1] if isinstance(t, tuple) else t for t in node.goto)
        builder.add_node(*(((node.name, action)) if node.named else (action,)), **more)

    def _connect(self, builder: Any, graph: Graph) -> None:
        kind, *targets = graph.entry
        if kind == "set":
            builder.set_entry_point(targets[0])
        elif kind == "conditional":
            builder.set_conditional_entry_point(self._path(Branch(START, (tuple(targets),))))
        elif kind == "mapped":
            branch = Branch(START, (targets[0],), map="dict")
            builder.set_conditional_entry_point(self._path(branch), _path_map(branch))
        else:
            for target in targets:
                builder.add_edge(START, target)
        for source, target in graph.edges:
            builder.add_edge(list(source) if isinstance(source, tuple) else source, target)
        for number, branch in enumerate(graph.branches):
            # LangGraph asks a path blockingly about a command that comes up from a subgraph, when awaited, too.
            source = next(node for node in graph.nodes if node.name == branch.source)
            path = self._path(branch, f"path_{number}", is_plain=_goes_up(source.graph))
            builder.add_conditional_edges(branch.source, path, *([_path_map(branch)] if branch.map else []))
        for name in graph.finish:
            builder.set_finish_point(name)

    def _path(self, branch: Branch, name: str = "path", is_plain: bool = False) -> Any:
        names = _names(branch)

        def named(target: Any) -> Any:
            if isinstance(target, tuple) and target[:1] == ("send",):
                return self.target(target)
            return f"to {names.index(target)}" if branch.map == "dict" else target

        def path(state: Any) -> Any:
            self.world.used.add(f"conditional edge, {'no' if branch.map is None else branch.map} path map")
            length = len(entries(state))
            option = branch.after if length >= branch.until else branch.options[length % len(branch.options)]
            if isinstance(option, tuple) and option[:1] != ("send",):
                return [named(target) for target in option]
            return named(option)

        async def apath(state: Any) -> Any:
            return path(state)

        made = apath if self.is_awaited and not is_plain else path
        made.__name__, made.__annotations__ = name, {}
        return made


def _stops(given: Any) -> Any:
    """What `interrupt_before` and `interrupt_after` take: a list, `"*"` or None."""
    return list(given) if isinstance(given, tuple) and given else given or None


def _path_map(branch: Branch) -> Any:
    names = _names(branch)
    return names if branch.map == "list" else {f"to {n}": name for n, name in enumerate(names)}


def _names(branch: Branch) -> list[str]:
    """The nodes a branch may name, each once, Sends left out."""
    flat: list[str] = []
    for option in (*branch.options, branch.after):
        several = option if isinstance(option, tuple) and option[:1] != ("send",) else (option,)
        flat += [target for target in several if isinstance(target, str)]
    return list(dict.fromkeys(flat))


# ---------------------------------------------------------------- performing a program

# LangGraph's waiting tasks hold pool threads: with few, nodes that call tasks would hang.
THREAD = {"configurable": {"thread_id": "t"}, "recursion_limit": 12, "max_concurrency": 64}
CONTEXT = {"who": "you"}
FURTHER = 3


@contextmanager
def saver_of(kit: Any, medium: str) -> Iterator[Any]:
    """A saver of one library, for blocking runs."""
    if medium == "memory":
        yield kit.InMemorySaver()
    elif kit.library == "langgraph":
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        yield TheirSqlite(connection)
        connection.close()
    else:
        with tempfile.TemporaryDirectory(prefix="flowfn-graphs-") as folder:
            saver = SqliteSaver(Path(folder) / "flows.db")
            yield saver
            saver.close()


@asynccontextmanager
async def asaver_of(kit: Any, medium: str) -> Any:
    """The same for awaited runs."""
    if medium == "sqlite" and kit.library == "langgraph":
        async with TheirAsyncSqlite.from_conn_string(":memory:") as saver:
            yield saver
    else:
        with saver_of(kit, medium) as saver:
            yield saver


@dataclass
class Performance:
    """What one library made of a program: a record of each action, and what was really used on the way."""

    actions: list[dict[str, Any]]
    used: set[str]
    steps: int


class _Saved:
    """A save that is over, for those who wait for it in either way."""

    def result(self) -> None:
        return None

    def __await__(self) -> Any:
        return iter(())


@contextmanager
def without_chance() -> Iterator[None]:
    """LangGraph without what would make its records chance, or end them.

    Its channels hand the saver, which works in the background, the very list and set that they go on filling; and with
    `durability="sync"` it waits for the save of a subgraph that keeps nothing, and fails.
    """
    with (
        patch.object(Topic, "checkpoint", lambda topic: list(topic.values)),
        patch.object(NamedBarrierValue, "checkpoint", lambda barrier: set(barrier.seen)),
        patch.object(PregelLoop, "_put_checkpoint_fut", _Saved(), create=True),
    ):
        yield


def perform(kit: Any, program: Program, way: str, medium: str) -> Performance:
    """Run the whole script on a new thread in one library."""
    with without_chance():
        return _perform(kit, program, way, medium)


def _perform(kit: Any, program: Program, way: str, medium: str) -> Performance:
    world = World()
    maker = Maker(kit, way, world)

    def begin(saver: Any) -> Script:
        cache = {"cache": kit.InMemoryCache()} if _caches(program) else {}
        return Script(kit, maker, program, maker.build(program.graph, checkpointer=saver, **cache))

    async def awaited() -> Script:
        async with asaver_of(kit, medium) as saver:
            script = begin(saver)
            await _adrive(script.perform())
            return script

    if way == "awaited":
        script = asyncio.run(awaited())
    else:
        with saver_of(kit, medium) as saver:
            script = begin(saver)
            _drive(script.perform())
    return Performance(script.records, world.used | _used(program, world, script.raw), _steps(script.raw))


def _caches(program: Program) -> bool:
    return any(node.cached for node in every_node(program)) or any(
        "cache" in g.defaults for g in every_graph(program.graph)
    )


Calls = Generator[tuple[str, tuple[Any, ...], dict[str, Any]], Any, Any]


def _drive(calls: Calls) -> None:
    """Blocking: what a script asks for is (method, arguments, keywords); an exception is an answer, too."""
    got: Any = None
    while True:
        try:
            method, args, more = calls.send(got)
        except StopIteration:
            return
        got = []
        try:
            found = method(*args, **more)
            if hasattr(found, "__next__"):
                for item in found:
                    got.append(item)
            else:
                got = found
        except (Exception, FlowStop) as error:
            got = Raised(got or [], error)


async def _adrive(calls: Calls) -> None:
    got: Any = None
    while True:
        try:
            method, args, more = calls.send(got)
        except StopIteration:
            return
        got = []
        try:
            found = getattr(method.__self__, f"a{method.__name__}")(*args, **more)
            if hasattr(found, "__anext__"):
                async for item in found:
                    got.append(item)
            else:
                got = await found
        except (Exception, FlowStop) as error:
            got = Raised(got or [], error)


@dataclass
class Raised:
    """What came before an exception, and the exception."""

    items: list[Any]
    error: BaseException


class Script:
    """Performs a program's actions on one thread and keeps a record of each."""

    def __init__(self, kit: Any, maker: Maker, program: Program, flow: Any) -> None:
        self.kit, self.maker, self.program, self.flow = kit, maker, program, flow
        self.records: list[dict[str, Any]] = []
        self.raw: list[Any] = []
        self.is_over = self._is_unfinished = False
        self._open: set[str] = set()
        self._shown = Canonical(program)

    def perform(self) -> Calls:
        """The script; then what is still open goes on to its end, in a few more actions."""
        for number, action in enumerate([*self.program.script, *[("proceed", 0)] * FURTHER]):
            if number >= len(self.program.script) and not self._is_unfinished:
                break
            record: dict[str, Any] = {"action": repr(action)}
            self.records.append(record)
            if action[0] not in ("proceed", "go on", "command"):
                self._shown.put_aside |= self._open
            yield from self._act(action, THREAD, record, number)
            yield from self._look(record)
            if self.is_over:
                return
        yield from self._look_below()

    # ---- actions

    def _act(self, action: Any, config: Any, record: dict[str, Any], number: int) -> Calls:
        verb, *what = action
        if verb == "run":
            yield from self._run(self._input(what[0], number), config, record, what[1])
        elif verb == "go on":
            now = yield self.flow.get_state, (config,), {}
            if config is THREAD and (isinstance(now, Raised) or now.interrupts):
                record["go on"] = "none: it would ask again"
                return
            yield from self._run(None, config, record)
        elif verb == "proceed":
            yield from self._proceed(what[0], config, record, number)
        elif verb == "command":
            now = yield self.flow.get_state, (config,), {}
            if isinstance(now, Raised) or now.interrupts or set(now.next) & set(what[1]):
                record["command"] = "none: it is due"
                return
            given = {} if what[0] is None else {"update": self._input(what[0], number)}
            given |= yield from self._answers(0, config, number)
            yield from self._run(self.kit.Command(goto=list(what[1]), **given), config, record)
        elif verb in ("update", "bulk") and (yield from self._is_half_done(config)):
            record[verb] = "none: the super-step is half done"
        elif verb == "update":
            values = self._values(what[0], what[1], number)
            found = yield self.flow.update_state, (config, values), _as_node(what[1])
            yield from self._changed(found, record, config)
        elif verb == "bulk":
            steps = [[self._update(*update, number) for update in step] for step in what[0]]
            found = yield self.flow.bulk_update_state, (config, steps), {}
            yield from self._changed(found, record, config)
        else:
            yield from self._fork(what[0], what[1], record, number)

    def _is_half_done(self, config: Any) -> Generator[Any, Any, bool]:
        now = yield self.flow.get_state, (config,), {}
        return isinstance(now, Raised) or any(task.result or task.error or task.interrupts for task in now.tasks)

    def _changed(self, found: Any, record: dict[str, Any], config: Any) -> Calls:
        record["config"] = self._shown.of(found.error if isinstance(found, Raised) else found)
        if not isinstance(found, Raised) and config is not THREAD:
            yield from self._run(None, {**THREAD, **found}, record)

    def _fork(self, k: int, action: Any, record: dict[str, Any], number: int) -> Calls:
        history = yield self.flow.get_state_history, (THREAD,), {}
        if isinstance(history, Raised) or len(history) < 2:
            record["fork"] = "nothing to fork from"
            return
        chosen = history[1 + k % (len(history) - 1)]
        record["fork"] = self._shown.of(chosen.config)
        self.raw.append(("fork", chosen, action))
        yield from self._act(action, {**THREAD, **chosen.config}, record, number)

    def _proceed(self, n: int, config: Any, record: dict[str, Any], number: int) -> Calls:
        now = yield self.flow.get_state, (config,), {}
        if isinstance(now, Raised):
            record["state before"] = self._shown.of(now.error)
        elif now.interrupts:
            given = yield from self._answers(n, config, number)
            yield from self._run(self.kit.Command(**given), config, record)
        elif now.next:
            yield from self._run(None, config, record)
        else:
            yield from self._run(self._input((), number), config, record)

    def _answers(self, n: int, config: Any, number: int) -> Generator[Any, Any, Any]:
        """A command's `resume`: one answer, or one for each of the first n open questions (0: all); or nothing."""
        now = yield self.flow.get_state, (config,), {}
        if isinstance(now, Raised) or not now.interrupts:
            return {}
        asked = sorted(now.interrupts, key=lambda asked: (_question(asked), self._shown.of(asked.id)))
        answers = {question.id: f"answer {number}.{k}" for k, question in enumerate(asked)}
        some = dict(list(answers.items())[: n or None])
        self.raw.append(("answered", len(some), len(answers)))
        return {"resume": next(iter(some.values())) if len(answers) == 1 and number % 2 else some}

    def _run(self, input: Any, config: Any, record: dict[str, Any], options: Any = ()) -> Calls:
        more = {name: value if name == "limit" else _stops(value) for name, value in options}
        if "limit" in more:
            config = {**config, "recursion_limit": more.pop("limit")}
        asked = {"stream_mode": MODES, "subgraphs": True, "durability": "sync", "context": CONTEXT, **more}
        found = yield self.flow.stream, (input, config), asked
        chunks = found.items if isinstance(found, Raised) else found
        self.raw.extend(("chunk", chunk) for chunk in chunks)
        conflicts = isinstance(found, Raised) and isinstance(found.error, self.kit.InvalidUpdateError)
        is_chance = isinstance(found, Raised) and (conflicts or _failed_beside_others(chunks))
        record["stream"] = self._shown.stream(chunks, ends=not is_chance)
        if isinstance(found, Raised):
            self.raw.append(("raised", found.error))
            record["raised"] = "one of them" if is_chance else self._shown.of(found.error)
            self.is_over = is_chance  # LangGraph cannot show the state of a super-step whose writes conflict

    def _input(self, writes: Any, number: int) -> Any:
        graph = self.program.graph
        keys = graph.takes or graph.keys
        update = self.maker.update(graph, f"input {number}", [(k, v) for k, v in writes if k in keys])
        return update

    def _values(self, writes: Any, as_node: Any, number: int) -> Any:
        if as_node in (END, "__copy__"):
            return None
        return self.maker.update(self.program.graph, f"edit {number}", writes)

    def _update(self, writes: Any, as_node: Any, number: int) -> Any:
        return self.kit.StateUpdate(self._values(writes, as_node, number), as_node)

    # ---- looking

    def _look(self, record: dict[str, Any]) -> Calls:
        now = yield self.flow.get_state, (THREAD,), {"subgraphs": True}
        if self.is_over:
            return
        self._is_unfinished = not isinstance(now, Raised) and bool(now.next)
        self._open = set() if isinstance(now, Raised) else {question.id for question in now.interrupts}
        record["state"] = self._shown.state(now)
        history = yield self.flow.get_state_history, (THREAD,), {}
        record["history"] = self._shown.history(history)
        self.raw.append(("history", history))

    def _look_below(self) -> Calls:
        """The histories of all subgraphs that streamed something."""
        spaces = dict.fromkeys(chunk[1][0] for chunk in self.raw if chunk[0] == "chunk" and chunk[1][0])
        found = {}
        called = {node.name for node in every_node(self.program) if node.calls}
        for space in sorted(spaces, key=self._shown.space):
            if called & {part.partition(":")[0] for part in space}:
                continue
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": "|".join(space)}}
            history = yield self.flow.get_state_history, (config,), {}
            found[self._shown.space(space)] = self._shown.history(history)
        if found:
            self.records.append({"action": "look into the subgraphs", "histories": found})


def _as_node(name: Any) -> dict[str, Any]:
    return {} if name is None else {"as_node": name}


# ---------------------------------------------------------------- what is compared

ON_PURPOSE = {
    "a finished task that answers from its pending writes does not claim to have started": "_without_replays",
    "the open questions of parallel tasks come out together, in one chunk": "_asked_at_once",
    "retries, cache hits, changed calls, commits and leases are told in `debug`, too": "_is_told_by_both",
    "super-steps inside functions have checkpoints of their own": "_is_told_by_both",
    "a snapshot's config addresses it and holds nothing else, no saver and no checkpoints of other runs": "LEAKED",
    "a question that new input, an edit or a fork put aside is no question any more": "put_aside",
    "a graph that remembers is addressed by the namespace that holds its state": "keepers",
    "a graph that remembers and that a node calls has a name of its own below the node's": "keepers",
    "the start of an error handler is told as that of any other task": "HANDLER",
    "a question of a graph that remembers is shown at the newest checkpoint alone": "_keepers",
    "questions of a graph that keeps nothing are answered by ids; LangGraph asks for ever": "none is generated",
    "in a graph that keeps nothing, no program that it calls keeps anything": "none is generated",
    "an answer is that of its question, whatever the order of a called graph's; LangGraph's go by count": (
        "none is generated"
    ),
    "a node that is tried again asks again; LangGraph gives the answer to its next question": "go on",
    "a `goto` at a node that is due is a new task of it, which asks anew": "command",
    "equal cached calls at one time run once, and one that asks is cached when it has been answered": (
        "none is generated"
    ),
    "a graph that a node calls is found by its namespace; LangGraph shows the outer graph's values there": "called",
    "a graph that remembers begins anew when its last call failed and another calls it": "none is generated",
    "a graph that remembers takes each call's input, in a run that goes on too": "none is generated",
    "a node that one of several edits of a super-step makes due is run, though another edit is of it": (
        "none is generated"
    ),
    "a graph's result is its state at the end; LangGraph's is that of its last `values` chunk": "none is generated",
    "a state shows what parallel nodes left in channels of one step, while others wait": "_state_now",
    "an answered question of a task that failed is not open, and its update of nothing is not told": "_once_answered",
    "a graph that remembers goes on from what it remembers last, when the one around it goes back": "none is generated",
    "the newest checkpoint, addressed by its id, is the thread as it is now": "no fork is made there",
    "tasks that a node has called keep their results when it is tried again": "none is generated",
    "the namespace of a second flow called in one task names the call": "none is generated",
    "when one of several parallel tasks fails, the others finish; in LangGraph it is chance": "_failed_beside_others",
}
"""Where flowfn differs from LangGraph, and what evens it out here; all else is equal."""


Spaces = dict[tuple[str, ...], list[list[Any]]]


class Canonical:
    """Makes plain, comparable values of what a script saw; ids get their names over the whole script."""

    def __init__(self, program: Program) -> None:
        self.put_aside: set[str] = set()
        self._named = _Plain()
        self._keepers = {*_keepers(program, calls=True), *_keepers(program, calls=False)}
        called, below = _keepers(program, calls=True), _keepers(program, calls=False)
        self._named.keepers = re.compile(
            rf"\b({'|'.join(called) or '$'})\|graph\b|\b({'|'.join([*called, *below]) or '$'}):(?:{ID.pattern})"
        )

    def of(self, value: Any) -> Any:
        return self._named.of(value)

    def state(self, now: Any) -> Any:
        """The state of the thread as it is now, or the error."""
        if isinstance(now, Raised):
            return self.of(now.error)
        now = _once_answered(now)
        if any(task.result for task in now.tasks) and isinstance(now.values, dict):
            now = now._replace(values={key: value for key, value in now.values.items() if key not in OF_ONE_STEP})
        return self.of(now)

    def history(self, found: Any) -> Any:
        """The snapshots, newest first, or the error."""
        if isinstance(found, Raised):
            return self.of(found.error)
        told = [snapshot for snapshot in found if not is_call_checkpoint(snapshot)]
        asking = [task for snapshot in told[1:] for task in snapshot.tasks if task.name in self._keepers]
        by_keepers = {question.id for task in asking for question in task.interrupts}
        return [self.of(_without(self.put_aside | by_keepers, _once_answered(snapshot))) for snapshot in told]

    def space(self, space: tuple[str, ...]) -> str:
        return str(self._named.of("|".join(space)))

    def stream(self, chunks: list[Any], ends: bool = True) -> dict[str, list[Any]]:
        """By namespace, outermost first, the list of super-steps, each a list of [mode, chunk].

        Where several tasks ran in one super-step, the order in which they ended is chance: they are sorted.
        `ends=False` leaves out the last super-step, and all subgraphs.
        """
        spaces = {space: _by_step(told) for space, told in _by_space(chunks).items()}
        if not ends:
            spaces = {(): spaces[()][:-1]} if () in spaces else {}
        self._name_tasks(spaces)
        self._name_questions(spaces)
        ordered = sorted(spaces, key=self._outermost_first)
        return {self.space(space): [self._step(step) for step in spaces[space]] for space in ordered}

    def _depth(self, space: tuple[str, ...]) -> int:
        return self._named.peek().of("|".join(space)).count("|") + bool(space)

    def _outermost_first(self, space: tuple[str, ...]) -> tuple[int, str]:
        return self._depth(space), self.space(space)

    def _name_tasks(self, spaces: Spaces) -> None:
        """Names for checkpoints and tasks: outermost first, in the order in which they were due."""
        for depth in sorted(set(map(self._depth, spaces))):
            for space in sorted((space for space in spaces if self._depth(space) == depth), key=self.space):
                for step in spaces[space]:
                    self.of([data for mode, data in step if mode == "checkpoints"])
                    starts = [data for mode, data in step if mode == "tasks" and "triggers" in data]
                    self.of(sorted(starts, key=self._key))

    def _name_questions(self, spaces: Spaces) -> None:
        """Names for questions: innermost first, where each is asked by one task."""
        for space in sorted(spaces, key=lambda space: (-self._depth(space), self.space(space))):
            for step in spaces[space]:
                ends = [data for mode, data in step if mode == "tasks" and "triggers" not in data]
                self.of(sorted(ends, key=lambda end: self._key(end["id"])))

    def _step(self, step: list[Any]) -> list[Any]:
        step = _asked_at_once(_without_nothing(_without_replays(step)))
        if _is_parallel(step):
            head = step[: step[0][0] == "checkpoints"]
            step = head + sorted(step[len(head) :], key=lambda item: (item[0], _order(item[1]), self._key(item[1])))
        return [[mode, self.of(data)] for mode, data in step]

    def _key(self, data: Any) -> str:
        return repr(self._named.peek().of(data))


def _is_parallel(step: list[Any]) -> bool:
    """Whether several tasks ran or were due in a super-step."""
    ids = {data["id"] for mode, data in step if mode == "tasks"}
    ids |= {task["id"] for mode, data in step if mode == "checkpoints" for task in data["tasks"]}
    return len(ids) > 1


def _without_replays(step: list[Any]) -> list[Any]:
    """A super-step without the starts of tasks that never ended in it."""
    ended = {data["id"] for mode, data in step if mode == "tasks" and "triggers" not in data}
    return [(mode, data) for mode, data in step if _started(mode, data) in (None, *ended)]


def _without(ids: set[str], snapshot: Any) -> Any:
    """A snapshot without some questions."""

    def left(asked: Any) -> Any:
        return tuple(question for question in asked if question.id not in ids)

    tasks = tuple(task._replace(interrupts=left(task.interrupts)) for task in snapshot.tasks)
    return snapshot._replace(interrupts=left(snapshot.interrupts), tasks=tasks)


def _once_answered(snapshot: Any) -> Any:
    """A snapshot without the questions of tasks that have failed after they were answered."""
    put = {question.id for task in snapshot.tasks if task.error for question in task.interrupts}
    tasks = tuple(task._replace(interrupts=()) if task.error else task for task in snapshot.tasks)
    return snapshot._replace(interrupts=tuple(q for q in snapshot.interrupts if q.id not in put), tasks=tasks)


def _without_nothing(step: list[Any]) -> list[Any]:
    """A super-step without updates of nothing by tasks that have failed."""
    failed = {data["name"] for mode, data in step if mode == "tasks" and "triggers" not in data and data["error"]}
    return [(mode, data) for mode, data in step if mode != "updates" or data not in [{name: None} for name in failed]]


def _asked_at_once(step: list[Any]) -> list[Any]:
    """A super-step with all its questions in its last chunk about questions, one in `updates` and one in `values`."""
    asked = [question for mode, data in step if _asks(mode, data) for question in data["__interrupt__"]]
    once = tuple({question.id: question for question in asked}.values())
    last = {mode: n for n, (mode, data) in enumerate(step) if _asks(mode, data) or _asks_in_values(mode, data)}
    told = [
        (mode, {**data, "__interrupt__": once} if n == last.get(mode) else data) for n, (mode, data) in enumerate(step)
    ]
    return [item for n, item in enumerate(told) if n in last.values() or not (_asks(*item) or _asks_in_values(*item))]


def _asks(mode: str, data: Any) -> bool:
    return mode == "updates" and "__interrupt__" in data


def _asks_in_values(mode: str, data: Any) -> bool:
    return mode == "values" and isinstance(data, dict) and "__interrupt__" in data


def _started(mode: str, data: Any) -> str | None:
    """The id of the task whose start a chunk tells."""
    told = data.get("payload", data) if mode == "debug" else data
    return told["id"] if mode in ("tasks", "debug") and "triggers" in told else None


def _failed_beside_others(chunks: list[Any]) -> bool:
    """Whether a run that failed had a node fail while others of its super-step ran."""
    last = [steps[-1] for steps in map(_by_step, _by_space(chunks).values())]
    ends = [data for step in last for mode, data in step if mode == "tasks" and "triggers" not in data]
    return any(end["error"] for end in ends) and any(map(_is_parallel, last))


def _order(data: Any) -> str:
    """Starts before results, in `tasks` and `debug`."""
    if not isinstance(data, dict):
        return ""
    return {"checkpoint": "0", "task": "1", "task_result": "2"}.get(
        str(data.get("type")), "1" if "triggers" in data else "2"
    )


def _by_space(chunks: list[Any]) -> dict[tuple[str, ...], list[Any]]:
    found: dict[tuple[str, ...], list[Any]] = {}
    for space, mode, data in chunks:
        if _is_told_by_both(mode, data):
            found.setdefault(space, []).append((mode, data))
    return found


def _is_told_by_both(mode: str, data: Any) -> bool:
    if is_call_checkpoint((mode, data)) or (mode == "debug" and data["type"] not in DEBUG):
        return False
    told = data["payload"] if mode == "debug" else data
    return mode not in ("tasks", "debug") or "triggers" not in told or not HANDLER.match(told["name"])


def _by_step(chunks: list[Any]) -> list[list[Any]]:
    found: list[list[Any]] = [[]]
    for mode, data in chunks:
        if mode == "checkpoints" and found[-1]:
            found.append([])
        found[-1].append((mode, data))
    return found


HANDLER = re.compile("__(default_)?error_handler__")
OF_ONE_STEP = {"spark", "flare", "any", "topic"}
LEAVES = {int, bool, type(None), float, set}
LEAKED = "__pregel_"  # LangGraph's own keys of `configurable`, objects of one process


class _Plain(Comparable):
    """Also takes apart what nodes return and take: commands, Sends, states that are objects."""

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            if len(value) < 32 and "|" not in value:
                return value
            return ID.sub(self._name, self.keepers.sub(_kept_name, value))
        if kind in LEAVES:
            return value
        if kind is dict:
            return {self.of(key): self._item(key, value[key]) for key in sorted(value) if not key.startswith(LEAKED)}
        if kind is list or kind is tuple:
            if value and all(map(_is_question, value)):
                value = sorted(value, key=lambda asked: (_question(asked), self.peek().of(_id(asked))))
            return kind([self.of(item) for item in value])
        return self._object(kind.__name__, value)

    def _item(self, key: str, value: Any) -> Any:
        if key == "error" and isinstance(value, str):
            return _stored_error(value)
        return self._entry(key, value)

    def _object(self, kind: str, value: Any) -> Any:
        if kind in ("Send", "Command", "Overwrite"):
            names = ("graph", "update", "resume", "goto", "node", "arg", "value")
            return {kind: {n: self.of(getattr(value, n)) for n in names if hasattr(value, n)}}
        if hasattr(value, "_asdict"):
            return {kind: self.of(value._asdict())}
        if kind in ("State", "Reads", "Takes", "Gives"):
            return {kind: self.of(dict(vars(value)))}
        return super().of(value)

    keepers: re.Pattern[str]

    def peek(self) -> _Plain:
        """Knows the names given so far, and gives no new ones."""
        found = _Peek()
        found._ids, found.keepers = self._ids, self.keepers
        return found


def _keepers(program: Program, calls: bool) -> list[str]:
    return [node.name for node in every_node(program) if node.kept and node.calls == calls]


def _kept_name(match: re.Match[str]) -> str:
    return match[1] or match[2]


def _stored_error(text: str) -> str:
    """An error as a snapshot shows it, `repr` or less; one of a library as its name alone."""
    name = text.partition("(")[0]
    is_own = not hasattr(flowfn.errors, name) and not hasattr(langgraph.errors, name)
    return text if is_own else SAME_ERRORS.get(name, name)


def _is_question(value: Any) -> bool:
    return type(value).__name__ == "Interrupt" or (type(value) is dict and "response_schema" in value)


def _question(interrupt: Any) -> str:
    """Orders questions: that of parallel ones is chance."""
    return str(interrupt["value"] if isinstance(interrupt, dict) else interrupt.value)


def _id(interrupt: Any) -> str:
    return str(interrupt["id"] if isinstance(interrupt, dict) else interrupt.id)


class _Peek(_Plain):
    def _name(self, match: Any) -> str:
        return self._ids.get(match.group().partition(".")[0], "?")


def _steps(raw: list[Any]) -> int:
    """How many super-steps of its nodes the whole graph ran."""
    sources = [
        chunk[2]["metadata"]["source"]
        for kind, chunk, *_ in raw
        if kind == "chunk" and chunk[:2] == ((), "checkpoints")
    ]
    return sources.count("loop") - sources.count("input")


WIDTH = 600


def first_differences(theirs: Performance, ours: Performance) -> list[str]:
    """For each action the first path that differs in each super-step and each snapshot; empty if all is equal."""
    found: list[str] = []
    for number, (their, our) in enumerate(itertools.zip_longest(theirs.actions, ours.actions, fillvalue={})):
        lines = list(_parts(their, our, f"[{number}]"))
        if lines:
            found += [f"action {number}, {their.get('action')}:", *lines]
    return found


def _parts(their: Any, our: Any, path: str) -> Iterator[str]:
    for part in dict.fromkeys([*their, *our]):
        one, other = their.get(part), our.get(part)
        if one == other:
            continue
        if part == "stream" and isinstance(one, dict) and isinstance(other, dict):
            for space in dict.fromkeys([*one, *other]):
                yield from _items(one.get(space, []), other.get(space, []), f"{path}.stream[{space!r}]")
        elif isinstance(one, list) and isinstance(other, list):
            yield from _items(one, other, f"{path}.{part}")
        else:
            yield from itertools.islice(differences(Pair(one, other), f"{path}.{part}"), 4)


def _items(their: list[Any], our: list[Any], path: str) -> Iterator[str]:
    for n, (one, other) in enumerate(itertools.zip_longest(their, our, fillvalue=[])):
        if one == other:
            continue
        if isinstance(one, list) and isinstance(other, list) and len(one) != len(other):
            yield from (f"  {path}[{n}]: only LangGraph has {item!r}"[:WIDTH] for item in one if item not in other)
            yield from (f"  {path}[{n}]: only flowfn has {item!r}"[:WIDTH] for item in other if item not in one)
        else:
            yield next(iter(differences(Pair(one, other), f"{path}[{n}]")))[:WIDTH]


# ---------------------------------------------------------------- which features were really used


def _used(program: Program, world: World, raw: list[Any]) -> set[str]:
    used = {name for graph in every_graph(program.graph) for name in _of_graph(graph, world.ran)}
    for kind, *what in raw:
        if kind == "chunk":
            used |= set(_of_chunk(*what[0]))
        elif kind == "answered":
            used.add("several answers at once" if what[0] > 1 else "one answer")
            if what[0] < what[1]:
                used.add("some answers of several")
        elif kind == "fork":
            used |= {"fork", f"fork, then {what[1][0]}"}
        elif kind == "raised":
            used.add("recursion limit" if isinstance(what[0], RecursionError) else "a run that fails")
        elif kind == "history" and not isinstance(what[0], Raised):
            used |= {f"source {snapshot.metadata['source']}" for snapshot in what[0]}
    used |= {f"action {action[0]}" for action in program.script}
    return used


def _of_graph(graph: Graph, ran: set[str]) -> Iterator[str]:
    nodes = [node for node in graph.nodes if node.name in ran or (node.graph and _any_ran(node.graph, ran))]
    if not nodes:
        return
    yield f"{graph.state} state"
    yield from (
        f"channel {key}"
        for key in graph.keys
        if graph.state != "bare" and any(key == k for n in nodes for k, _ in n.writes)
    )
    yield f"entry by {graph.entry[0]}"
    for name, given in (
        ("input_schema", graph.takes),
        ("output_schema", graph.gives),
        ("managed values", graph.is_managed),
        ("add_sequence", graph.sequence),
        ("set_finish_point", graph.finish),
        ("interrupt_before", graph.before),
        ("interrupt_after", graph.after),
        *((f"set_node_defaults {what}", what in graph.defaults) for what in ("retry", "handler", "cache")),
    ):
        if given:
            yield name
    for node in nodes:
        yield from _of_node(node)


def _any_ran(graph: Graph, ran: set[str]) -> bool:
    return any(node.name in ran for g in every_graph(graph) for node in g.nodes)


def _of_node(node: Node) -> Iterator[str]:
    if node.graph is not None:
        yield "a graph called in a node" if node.calls else f"subgraph, checkpointer {node.kept}"
    if any(isinstance(target, tuple) for target in node.goto):
        yield "goto a Send"
    if any(isinstance(target, str) for target in node.goto):
        yield "goto a name"
    for name, given in (
        ("goto PARENT", node.parent is not None),
        ("node input_schema", node.reads and not node.infers),
        ("node input_schema by annotation", node.reads and node.infers),
        ("name of the function", not node.named),
        ("defer", node.defer),
        ("retry_policy", node.retry),
        ("cache_policy", node.cached),
        ("timeout", node.timeout),
        ("node metadata", node.metadata),
        ("destinations", node.destinations),
    ):
        if given:
            yield name


def _of_chunk(space: tuple[str, ...], mode: str, data: Any) -> Iterator[str]:
    if mode == "tasks" and "triggers" in data:
        if any(trigger.startswith("join:") for trigger in data["triggers"]):
            yield "join"
        if tuple(data["triggers"]) == ("__pregel_push",):
            yield "a Send or call"
    if mode == "updates" and "__interrupt__" in data:
        yield "a question in a subgraph" if space else "a question or breakpoint"
    if mode == "updates" and "__metadata__" in data:
        yield "a cached node"
    if mode == "checkpoints" and len(data["next"]) > 1:
        yield "parallel nodes"


# ---------------------------------------------------------------- programs at random

THEMES: dict[str, dict[str, int]] = {
    # theme: percentages that differ from the usual ones
    "mixed": {},
    "sends": {"send": 60, "goto send": 40, "ask": 25},
    "questions": {"ask": 50, "parallel": 60, "subgraph": 30},
    "subgraphs": {"subgraph": 60, "ask": 30, "parent": 40},
    "loops": {"loop": 90, "join": 50, "parallel": 50},
    "failures": {"fail": 50, "retry": 60, "handler": 60, "defaults": 30},
    "edits": {"edit": 75},
    "breakpoints": {"before": 50, "after": 50, "parallel": 40},
    "schemas": {"schema": 70, "odd state": 80, "managed": 40, "reads": 50},
    "calls": {"task": 50, "flow": 40, "cached": 40, "say": 40},
}


class Dice:
    """Draws, with the percentages of a theme."""

    def __init__(self, draw: Any, theme: str) -> None:
        self.draw, self._theme = draw, THEMES[theme]

    def chance(self, what: str, percent: int) -> bool:
        percent = self._theme.get(what, percent)
        return bool(self.draw(st.integers(0, 99)) >= 100 - percent)

    def one(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def some(self, options: Iterable[Any], most: int) -> tuple[Any, ...]:
        options = list(options)
        return tuple(sorted(self.draw(st.sets(st.sampled_from(options), max_size=most)))) if options else ()


@st.composite
def programs(draw: Any, theme: str = "mixed") -> Program:
    """Programs of three super-steps and more, as a rule."""
    dice = Dice(draw, theme)
    graph = _a_graph(
        dice, "", "typed" if not dice.chance("odd state", 30) else dice.one("dataclass", "pydantic", "bare"), 0
    )
    return Program(_tame(graph), _a_script(dice, graph))


def _tame(graph: Graph, depth: int = 0) -> Graph:
    """A graph without what `ON_PURPOSE` says that none is generated of."""
    if graph.before or graph.after:
        graph = replace(graph, nodes=tuple(replace(n, kept=None) if n.kept else n for n in graph.nodes))
    sent = {option[1] for option in _flat(o for branch in graph.branches for o in branch.options) if _is_send(option)}
    sent |= {option[1] for node in graph.nodes for option in _flat(node.goto) if _is_send(option)}
    nodes = [_tame_node(node, depth, node.name in sent, graph.state) for node in graph.nodes]
    asks = any(_asks_in(node) for node in nodes)
    if asks or any(_fails(node) and node.handler is None for node in nodes):
        nodes = [replace(node, handler=None) for node in nodes]
    left_out = {"cache", "handler"} if asks else {"cache"} if sent else set()
    left_out |= {"handler", "retry"} if any(node.graph for node in nodes) else set()
    return replace(graph, nodes=tuple(nodes), defaults=tuple(w for w in graph.defaults if w not in left_out))


def _tame_node(node: Node, depth: int, is_sent: bool, state: str) -> Node:
    """A node that is tried again asks nothing; one that calls a graph leaves the one question to that."""
    below = node.graph and _tame(node.graph, depth + 1)
    if below is not None:
        node = replace(node, does=_without_asks(node.does), handler=None, kept=node.kept if depth == 0 else None)
        below = _asking_once(below, () if is_sent or node.kept is not None else ("ask",))
    if below is not None and node.kept is not None:
        below = _keeping_nothing(below) if node.kept is False else _never_failing(below)
    if any(what[0] == "fail" for what in node.does):
        node = replace(node, does=_without_asks(node.does))
    if depth:
        node = replace(node, writes=tuple(write for write in node.writes if write[0] not in OF_ONE_STEP))
    if is_sent or _asks_in(node):
        node = replace(node, cached=False)
    if state == "pydantic":
        node = replace(node, writes=tuple(write for write in node.writes if not _overwrites(write[1])))
    return replace(node, graph=below)


def _never_failing(graph: Graph) -> Graph:
    def tamed(node: Node) -> Node:
        below = node.graph and _never_failing(node.graph)
        return replace(node, does=tuple(what for what in node.does if what[0] != "fail"), graph=below)

    return replace(graph, nodes=tuple(map(tamed, graph.nodes)))


def _fails(node: Node) -> bool:
    times = max([what[1] for what in node.does if what[0] == "fail"], default=0)
    return times >= (node.retry or 1)


def _is_send(option: Any) -> bool:
    return isinstance(option, tuple) and option[:1] == ("send",)


def _overwrites(value: Any) -> bool:
    return isinstance(value, tuple) and value[:1] == ("overwrite",)


def _without_asks(does: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(what for what in does if what[0] != "ask")


def _asks_in(node: Node) -> bool:
    return node.does != _without_asks(node.does) or any(map(_asks_in, node.graph.nodes if node.graph else ()))


def _asking_once(graph: Graph, verbs: Sequence[str]) -> Graph:
    """A graph of which the first node that asks does so, once, and no other; none at all without `verbs`."""
    asking = next((node.name for node in graph.nodes if verbs and node.graph is None and _asks_in(node)), None)

    def tamed(node: Node) -> Node:
        first = [what for what in node.does if what[0] == "ask"][: node.name == asking]
        below = node.graph and replace(node.graph, nodes=tuple(map(tamed, node.graph.nodes)))
        return replace(node, does=(*first, *_without_asks(node.does)), graph=below)

    branches = tuple(branch for branch in graph.branches if not (asking and branch.until))
    return replace(graph, nodes=tuple(map(tamed, graph.nodes)), branches=branches)


def _keeping_nothing(graph: Graph) -> Graph:
    """A graph in which no program keeps anything: no graph, no flow."""
    return replace(
        graph,
        nodes=tuple(
            replace(node, graph=None, calls=False, does=tuple(what for what in node.does if what[0] != "flow"))
            for node in graph.nodes
        ),
    )


def _a_graph(dice: Dice, prefix: str, state: str, depth: int) -> Graph:
    names = [f"{prefix}{letter}" for letter in "abcde"[: dice.number(3, 5) if depth == 0 else dice.number(1, 3)]]
    keys = () if state == "bare" else ("log", *[key for key in (*REDUCED, *SINGLE) if dice.chance("key", 30)])
    made = _Making(dice, names, keys, state, depth)
    return made.graph()


class _Making:
    """One graph as it grows: first which nodes are graphs themselves, then how each node is reached, then the rest."""

    def __init__(self, dice: Dice, names: list[str], keys: tuple[str, ...], state: str, depth: int) -> None:
        self.dice, self.names, self.keys, self.state, self.depth = dice, names, keys, state, depth
        self.nodes = {name: Node(name) for name in names}
        self.edges: list[Any] = []
        self.options: dict[str, list[Any]] = {}
        self.goto: dict[str, list[Any]] = {}
        self.owner: dict[str, str] = {}
        self.sent: set[str] = set()

    def graph(self) -> Graph:
        dice = self.dice
        for name in self.names:
            if self.depth < 2 and dice.chance("subgraph", 15 if self.depth == 0 else 10):
                self._make_subgraph(name)
        for i in range(1, len(self.names)):
            self._reach(i)
        branches = self._branches()
        for name in self.names:
            if not self._is_graph(name):
                self._fill(name)
        takes = gives = None
        if self.keys and dice.chance("schema", 15):
            takes = ("log", *dice.some(self.keys[1:], 2))
        if self.keys and dice.chance("schema", 15):
            gives = ("log", *dice.some(self.keys[1:], 2))
        return Graph(
            nodes=tuple(self.nodes.values()),
            keys=self.keys,
            state=self.state,
            takes=takes,
            gives=gives,
            is_managed=self.state == "typed" and dice.chance("managed", 12),
            sequence=self._sequence(),
            edges=tuple(self.edges),
            branches=branches,
            entry=self._entry(),
            finish=self._ends(branches),
            defaults=self._defaults(),
            before=self._stops("before"),
            after=self._stops("after"),
        )

    def _is_graph(self, name: str) -> bool:
        node = self.nodes[name]
        return node.graph is not None and not node.calls

    def _make_subgraph(self, name: str) -> None:
        state = "bare" if self.state == "bare" else self.dice.one("typed", "typed", "dataclass", "pydantic")
        below = _a_graph(self.dice, name, state, self.depth + 1)
        calls = self.dice.chance("calls", 25)
        kept = self.dice.one(None, None, True, False)
        if not calls and self.dice.chance("parent", 25):
            last = below.nodes[-1]
            if last.graph is None and not last.goto and _runs_alone(below, last.name):
                target = self.dice.one("", *self.names[self.names.index(name) + 1 :])
                nodes = (*below.nodes[:-1], replace(last, parent=target, gives="dict"))
                below = replace(below, nodes=nodes)
        self.nodes[name] = Node(name, graph=below, calls=calls, kept=kept)

    # ---- how a node is reached

    def _reach(self, i: int) -> None:
        dice, target, near = self.dice, self.names[i], self.names[i - 1]
        if i >= 2 and dice.chance("join", 20):
            self.edges.append(((self.names[i - 2], near), target))
            return
        source = self.names[i - 2] if i >= 2 and dice.chance("parallel", 25) else near
        is_sendable = not (_keeps(self.nodes[target]) or _goes_up(self.nodes[target].graph))
        if is_sendable and dice.chance("send", 20):
            self.options.setdefault(source, []).append(self._sends(target))
            self.sent.add(target)
        elif is_sendable and not self._is_graph(source) and dice.chance("goto send", 12):
            self.goto.setdefault(source, []).extend(self._sends(target))
            self.sent.add(target)
        elif not self._is_graph(source) and dice.chance("goto", 20):
            self.goto.setdefault(source, []).append(target)
        elif dice.chance("branch", 25):
            self.options.setdefault(source, []).append(target)
        else:
            self.edges.append((source, target))

    def _sends(self, target: str) -> tuple[Any, ...]:
        number = self.dice.number(1, 3)
        if self.nodes[target].graph is not None or self.dice.chance("state sent", 40):
            args: list[Any] = [{"log": [f"sent {n}"]} for n in range(number)]
            if self.state == "bare":
                args = [[f"sent {n}"] for n in range(number)]
        else:
            args = list(range(number))
        return tuple(("send", target, arg) for arg in args)

    def _branches(self) -> tuple[Branch, ...]:
        dice, found = self.dice, []
        for source, options in self.options.items():
            flat = tuple(options)
            if len(flat) == 1 and dice.chance("more options", 30):
                flat = (*flat, END) if dice.chance("or end", 30) else (flat[0], flat[0])
            elif len(flat) > 1 and not any(isinstance(o, tuple) for o in flat) and dice.chance("all options", 50):
                flat = (flat,)
            has_sends = any(isinstance(option, tuple) and isinstance(option[0], tuple) for option in flat)
            found.append(Branch(source, flat, map=None if has_sends else dice.one(None, "dict", "list")))
        if dice.chance("loop", 30):
            later = dice.number(1, len(self.names) - 1) if len(self.names) > 1 else 0
            back = self.names[dice.number(0, later)]
            until = dice.number(3, 6)
            found.append(Branch(self.names[later], (back,), until, map=dice.one(None, "dict", "list")))
        return tuple(found)

    def _entry(self) -> tuple[str, ...]:
        how = self.dice.one("edge", "edge", "set", "conditional", "mapped")
        if how in ("edge", "conditional") and len(self.names) > 2 and self.dice.chance("parallel", 20):
            return (how, self.names[0], self.names[1])
        return (how, self.names[0])

    def _ends(self, branches: tuple[Branch, ...]) -> tuple[str, ...]:
        """Nodes with a finish point; some others get an edge to END, some nothing."""
        leaving = {s for edge in self.edges for s in (edge[0] if isinstance(edge[0], tuple) else edge[:1])}
        leaving |= {branch.source for branch in branches} | set(self.goto)
        finish = []
        for name in self.names:
            if name not in leaving:
                how = self.dice.one("edge", "finish", "nothing")
                if how == "finish":
                    finish.append(name)
                elif how == "edge":
                    self.edges.append((name, END))
        return tuple(finish)

    def _sequence(self) -> tuple[str, ...]:
        """The first nodes, if each has nothing but a function and leads to the next."""
        plain = []
        for name in self.names:
            node = self.nodes[name]
            options = (node.defer, node.reads, node.retry, node.cached, node.timeout, node.handler, node.metadata)
            if any(options) or node.destinations or (plain and (plain[-1], name) not in self.edges):
                break
            plain.append(name)
        if len(plain) < 2 or not self.dice.chance("sequence", 60):
            return ()
        self.edges = [edge for edge in self.edges if edge not in set(itertools.pairwise(plain))]
        return tuple(plain)

    def _defaults(self) -> tuple[str, ...]:
        kinds = ("retry", "handler", "cache") if self.state == "typed" else ("retry", "handler")
        return tuple(kind for kind in kinds if self.dice.chance("defaults", 9))

    def _stops(self, what: str) -> Any:
        if self.depth or not self.dice.chance(what, 10):
            return ()
        return self.dice.one("*", *map(tuple, (self.names[-1:], self.names[1:2], self.names)))

    # ---- what a node does

    def _fill(self, name: str) -> None:
        dice, node = self.dice, self.nodes[name]
        goto = tuple(self.goto.get(name, ()))
        reads = None
        if self.keys and dice.chance("reads", 12):
            reads = ("log", *dice.some(self.keys[1:], 2))
        fails = dice.chance("fail", 12)
        self.nodes[name] = replace(
            node,
            does=self._does(name, fails),
            writes=self._writes(name),
            goto=goto,
            gives=self._gives(node, goto),
            reads=reads,
            infers=dice.chance("reads", 40),
            named=not dice.chance("unnamed", 30),
            defer=dice.chance("defer", 10) and name != self.names[0],
            retry=3 if fails and name in self.sent else dice.number(2, 3) if fails and dice.chance("retry", 65) else 0,
            cached=self.state == "typed" and dice.chance("cached", 8),
            timeout=dice.chance("timeout", 10),
            handler=self._handler(name, fails),
            metadata=dice.chance("metadata", 10),
            destinations=bool(goto) and dice.chance("destinations", 40),
        )

    def _does(self, name: str, fails: bool) -> tuple[Any, ...]:
        dice, does = self.dice, []
        if dice.chance("say", 12):
            does.append(("say", "hello"))
        asks = dice.chance("ask", 15)
        if not (asks and name in self.sent) and not fails and dice.chance("task", 10):
            does.append(("task", dice.number(1, 3)))
        if asks:
            does += [("ask", f"{name}{n}?") for n in range(dice.number(1, 2))]
        if not self.nodes[name].calls and not fails and dice.chance("flow", 6):
            does.append(("flow", dice.number(1, 3)))
        if dice.chance("who", 8):
            does.append(("who",))
        if fails:
            does.append(("fail", dice.number(1, 2), dice.one("ConnectionError", "ValueError")))
        return tuple(does)

    def _writes(self, name: str) -> tuple[Any, ...]:
        found = []
        for key in self.keys[1:]:
            if key in SINGLE and (name in self.sent or self.owner.setdefault(key, name) != name):
                continue
            if self.dice.chance("write", 55):
                found.append((key, self._value(key, name)))
        return tuple(found)

    def _value(self, key: str, name: str) -> Any:
        number = self.dice.number(1, 4)
        if key in ("total", "most", "count"):
            value: Any = number
        elif key == "names":
            value = {name}
        elif key == "topic" or key == "pile":
            value = [name, "x"] if self.state != "typed" else self.dice.one(name, [name, "x"])
        elif key == "messages":
            value = ("message", f"m{number % 2}", f"from {name}")
        else:
            value = f"{name}{number}"
        if key in OVERWRITABLE and name not in self.sent and self.dice.chance("overwrite", 15):
            return ("overwrite", value)
        return value

    def _gives(self, node: Node, goto: tuple[Any, ...]) -> str:
        if node.parent is not None:
            return "dict"
        if goto:
            return self.dice.one("dict", "list")
        kinds = ["dict", "dict", "dict", "list", "command"]
        if self.state in ("dataclass", "pydantic"):
            kinds += ["object", "object"]
        if self.dice.chance("none", 10):
            return "none"
        return str(self.dice.one(*kinds))

    def _handler(self, name: str, fails: bool) -> Handler | None:
        if not fails or not self.dice.chance("handler", 35):
            return None
        later = self.names[self.names.index(name) + 1 :]
        return Handler(self.dice.one(None, *later))


def _keeps(node: Node) -> bool:
    """Whether a subgraph in it has one memory for all its calls, which parallel ones would share."""
    return bool(node.graph) and (bool(node.kept) or any(map(_keeps, node.graph.nodes)))


def _goes_up(graph: Graph | None) -> bool:
    return graph is not None and any(node.parent is not None for node in graph.nodes)


def _runs_alone(graph: Graph, name: str) -> bool:
    """Whether no `Send` and no second entry can make two of this node run at once."""
    sends = [t for node in graph.nodes for t in node.goto] + [o for branch in graph.branches for o in branch.options]
    return len(graph.entry) == 2 and not any(name == target[1] for target in _flat(sends) if isinstance(target, tuple))


def _flat(options: Iterable[Any]) -> Iterator[Any]:
    for option in options:
        if isinstance(option, tuple) and option[:1] != ("send",):
            yield from option
        else:
            yield option


# ---- scripts


def _a_script(dice: Dice, graph: Graph) -> tuple[Any, ...]:
    first = ("run", _some_writes(dice, graph), _options(dice, graph))
    return (first, *(_an_action(dice, graph) for _ in range(dice.number(1, 4))))


def _an_action(dice: Dice, graph: Graph) -> Any:
    if not dice.chance("edit", 50):
        return ("proceed", 1 if dice.chance("some answers", 35) else 0)
    verb = dice.one("update", "bulk", "bulk", "fork", "fork", "fork", "fork", "go on", "command", "command", "run")
    names = [node.name for node in graph.nodes]
    if verb == "update":
        return _an_update(dice, graph)
    if verb == "bulk":
        step = st.lists(st.sampled_from(names), min_size=1, max_size=1)
        steps = dice.draw(st.lists(step, min_size=1, max_size=2))
        return ("bulk", tuple(tuple((_some_writes(dice, graph), name) for name in names) for names in steps))
    if verb in ("fork", "command", "go on") and any(node.kept for node in every_node(Program(graph))):
        verb = "run"
    if verb == "fork":
        then = dice.one(("go on",), _an_update(dice, graph, is_past=True), ("run", _some_writes(dice, graph), ()))
        return ("fork", dice.number(0, 6), then)
    if verb == "command":
        goto = dice.some(names, 1)
        return ("command", _some_writes(dice, graph) if not goto or dice.chance("write", 50) else None, goto)
    return (verb,) if verb == "go on" else ("run", _some_writes(dice, graph), _options(dice, graph))


def _an_update(dice: Dice, graph: Graph, is_past: bool = False) -> Any:
    names = [node.name for node in graph.nodes]
    as_node = dice.one(None, *names, *names, END, "__copy__", *["__input__"][: not is_past])
    return ("update", _some_writes(dice, graph), as_node)


def _some_writes(dice: Dice, graph: Graph) -> tuple[Any, ...]:
    making = _Making(dice, ["in"], graph.keys, graph.state, 0)
    return making._writes("in")


def _options(dice: Dice, graph: Graph) -> tuple[Any, ...]:
    names = [node.name for node in graph.nodes]
    found: list[Any] = []
    if any(node.kept for node in every_node(Program(graph))):
        return ()
    if dice.chance("limit", 22):
        found.append(("limit", dice.number(1, 3)))
    if dice.chance("before", 5):
        found.append(("interrupt_before", dice.one("*", tuple(names[-1:]))))
    if dice.chance("after", 5):
        found.append(("interrupt_after", dice.one("*", tuple(names[:1]))))
    return tuple(found)
