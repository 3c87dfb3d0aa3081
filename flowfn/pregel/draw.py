"""A flow, or what a run did, as a picture.

A graph is drawn as it would run if every function said everything it may say: what each node writes makes others due,
super-step by super-step, and each time a node becomes due there are edges to it from those that wrote. So a picture
shows what can be reached, as LangGraph's does, with its rules for the end: what nothing follows leads there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flowfn.checkpoint.records import (
    CACHED,
    FAILED,
    FORGOTTEN,
    INTENT,
    RECORDED,
    UNCLEAR,
    CallRow,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    short_title,
    task_id,
)
from flowfn.pregel.node import Write
from flowfn.pregel.picture import Edge, Node, Picture
from flowfn.pregel.snapshot import Need, Reading

if TYPE_CHECKING:
    from flowfn.pregel.program import Pregel

START, END = "__start__", "__end__"

LEAST_STEPS = 251
"""Super-steps that are walked at least, as many as LangGraph walks: a loop without a way out shows where it stopped."""

PREVIEW = 40
"""Letters of arguments and questions that are shown."""

FUNCTION_ORIGIN = ("langgraph", "_internal", "_runnable", "RunnableCallable")
GRAPH_ORIGIN = ("langgraph", "graph", "state", "CompiledStateGraph")
PREGEL_ORIGIN = ("langgraph", "pregel", "main", "Pregel")

Breakpoints = Sequence[str] | Literal["*"]


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node of a graph, for its picture.

    Attributes:
        name: unique in the graph.
        metadata: as the node was added with.
        defer: whether it waits until nothing else is due.
        subgraph: the program that it is.
        ends: where it may go by itself: names, or name → label.
    """

    name: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    defer: bool = False
    subgraph: Pregel | None = None
    ends: Sequence[str] | Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What there is to draw of a graph.

    Attributes:
        nodes: name → node, in the order added, without start and end.
        edges: (source, target).
        joins: (sources, target) of edges that wait for all of their sources.
        branches: (source, name of the path function, what it may say → the node that is meant, None for unknown).
        interrupt_before, interrupt_after: nodes at which runs stop.
    """

    nodes: Mapping[str, DrawnNode]
    edges: Sequence[tuple[str, str]] = ()
    joins: Sequence[tuple[tuple[str, ...], str]] = ()
    branches: Sequence[tuple[str, str, Mapping[Any, str] | None]] = ()
    interrupt_before: Breakpoints = ()
    interrupt_after: Breakpoints = ()


def picture_of(program: Any, xray: bool | int = False) -> Picture:
    """A program as a picture.

    Args:
        program: a graph, which says what to draw as `drawn`, or any other `Pregel`: a function, or one made by hand.
        xray: whether programs inside it are opened: True for all, or down to that depth.
    """
    drawn: Drawn | None = getattr(program, "drawn", None)
    picture = _of_pregel(program) if drawn is None else _of_graph(drawn)
    for name, inner in _inner_programs(program, drawn) if xray else ():
        deeper = xray if isinstance(xray, bool) or xray <= 0 else xray - 1
        picture = _opened(picture, name, picture_of(inner, deeper))
    return picture


def _inner_programs(program: Any, drawn: Drawn | None) -> Iterator[tuple[str, Any]]:
    """The programs that nodes are, by name."""
    if drawn is None:
        inner = {name: node.inner for name, node in program.nodes.items()}
    else:
        inner = {name: node.subgraph for name, node in drawn.nodes.items()}
    yield from ((name, program) for name, program in inner.items() if program is not None)


# ---------------------------------------------------------------- what leads where


class Signal(NamedTuple):
    """A write to a channel, as it is drawn; `label` is what a path function says to cause it."""

    channel: str
    conditional: bool = False
    label: str | None = None


@dataclass
class _Wiring:
    """Which nodes channels make due.

    Attributes:
        triggers: node → channels that make it due.
        writes: node → channels that it always writes.
        says: node → what its functions may write.
        barriers: channel → the nodes that must all have written it.
        late: channels that make nodes due only when nothing else does.
        first: nodes that are due at the beginning.
    """

    triggers: dict[str, tuple[str, ...]]
    writes: dict[str, list[str]] = field(default_factory=dict)
    says: dict[str, list[Signal]] = field(default_factory=dict)
    barriers: dict[str, set[str]] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    first: tuple[str, ...] = ()


class _Walk:
    """All super-steps that can be, and the edges that are met.

    Attributes:
        edges: those found.
        last: the nodes of the last super-step.
    """

    def __init__(self, wiring: _Wiring) -> None:
        self._wiring = wiring
        self.edges: set[Edge] = set()
        self.last: tuple[str, ...] = ()
        self._signals: dict[str, set[Signal]] = {}
        self._arrived: dict[str, set[str]] = {channel: set() for channel in wiring.barriers}
        self._held: set[str] = set()
        self._heard: set[str] = set()
        due = wiring.first
        for _ in range(max(LEAST_STEPS, len(wiring.triggers) + 2)):
            if not due:
                break
            due = self._step(due)

    def _step(self, due: tuple[str, ...]) -> tuple[str, ...]:
        """Run these nodes; gives those that are due then."""
        self.last = due
        fresh = {node: self._run(node) for node in due}
        self._signals.update({node: set(signals) for node, signals in fresh.items()})
        sources: dict[str, list[tuple[str, Signal]]] = {}
        for source, signals in self._signals.items():
            for signal in signals:
                sources.setdefault(signal.channel, []).append((source, signal))
        moved = self._moved
        following = tuple(node for node, known in self._wiring.triggers.items() if not moved.isdisjoint(known))
        for node in following:
            self._lead_to(node, sources, fresh)
        return following

    def _run(self, node: str) -> set[Signal]:
        """What a node writes; what its functions may say is written once, the first time."""
        said = self._wiring.says.get(node, [])
        new = [] if node in self._heard else said
        self._heard.add(node)
        self.edges.update(Edge(node, END, signal.label, True) for signal in new if signal.channel == END)
        labels = {signal.channel: signal.label for signal in new if signal.channel != END}
        written = [*self._wiring.writes.get(node, ()), *labels]
        self._write(node, written)
        signals = {Signal(channel, channel in labels, labels.get(channel)) for channel in written}
        return signals | {signal for signal in said if signal.channel != END}

    def _write(self, node: str, channels: Sequence[str]) -> None:
        for channel in channels:
            if channel in self._arrived:
                self._arrived[channel].add(node)
            else:
                self._held.add(channel)

    @property
    def _moved(self) -> set[str]:
        """The channels that make nodes due now; those that come late only where there are no others."""
        late, listened = self._wiring.late, {channel for known in self._wiring.triggers.values() for channel in known}
        full = {channel for channel, sources in self._wiring.barriers.items() if self._arrived[channel] >= sources}
        ready = (self._held | full) & listened
        moved = ready - late or ready
        self._held = self._held & late - moved
        for channel in full & moved:
            self._arrived[channel] = set()
        return moved

    def _lead_to(
        self, node: str, sources: Mapping[str, Sequence[tuple[str, Signal]]], fresh: Mapping[str, set[Signal]]
    ) -> None:
        is_from_now = False
        for trigger in self._wiring.triggers[node]:
            for source, signal in sources.get(trigger, ()):
                self.edges.add(Edge(source, node, signal.label, signal.conditional))
                if signal in fresh.get(source, ()):
                    is_from_now = True
                else:
                    self._signals[source].discard(signal)
        if not is_from_now:
            self.edges.update(Edge(source, node, None, True) for source in self.last)


def _order_of(edge: Edge) -> tuple[str, str, bool, str]:
    return (edge.source, edge.target, edge.conditional, edge.data or "")


def _connect(picture: Picture, walk: _Walk) -> Picture:
    """Add the edges that were found, and those to the end."""
    for edge in sorted(walk.edges, key=_order_of):
        _lead(picture, edge._replace(data=edge.data if edge.data != edge.target else None))
    sources = {edge.source for edge in walk.edges}
    targets = {edge.target for edge in walk.edges}
    last = sorted(targets - sources - {END})
    for node in last:
        _lead(picture, Edge(node, END))
    if not last and END not in targets and len(walk.last) == 1:
        _lead(picture, Edge(walk.last[0], END, None, True))
    return picture


def _lead(picture: Picture, edge: Edge) -> None:
    if edge.target == END:
        picture.nodes.setdefault(END, Node(END, END))
    picture.add_edge(edge)


# ---------------------------------------------------------------- graphs


def _of_graph(drawn: Drawn) -> Picture:
    picture = Picture({START: Node(START, START, origin=FUNCTION_ORIGIN)})
    for name, node in drawn.nodes.items():
        metadata = dict(node.metadata or {})
        if node.defer:
            metadata["defer"] = True
        stops = [
            when
            for when, names in (("before", drawn.interrupt_before), ("after", drawn.interrupt_after))
            if names != "*" and name in names
        ]
        if stops:
            metadata["__interrupt"] = ",".join(stops)
        picture.nodes[name] = Node(name, name, node, metadata or None, "", _origin_of(node.subgraph))
    return _connect(picture, _Walk(_wiring_of(drawn)))


def _origin_of(program: Any) -> tuple[str, ...]:
    if program is None:
        return FUNCTION_ORIGIN
    return PREGEL_ORIGIN if getattr(program, "drawn", None) is None else GRAPH_ORIGIN


def _wiring_of(drawn: Drawn) -> _Wiring:
    joins = {f"join:{'+'.join(sources)}:{end}": (sources, end) for sources, end in drawn.joins if end != END}
    triggers: dict[str, tuple[str, ...]] = {START: (START,)}
    for name in drawn.nodes:
        triggers[name] = (f"to:{name}", *(join for join, (_, end) in joins.items() if end == name))
    wiring = _Wiring(triggers, first=(START,))
    wiring.barriers = {join: set(sources) for join, (sources, _) in joins.items()}
    wiring.late = {channel for name, node in drawn.nodes.items() if node.defer for channel in triggers[name]}
    for source, end in drawn.edges:
        if end != END:
            wiring.writes.setdefault(source, []).append(f"to:{end}")
    for join, (sources, _) in joins.items():
        for source in sources:
            wiring.writes.setdefault(source, []).append(join)
    for name, node in drawn.nodes.items():
        named = node.ends.items() if isinstance(node.ends, Mapping) else [(end, None) for end in node.ends or ()]
        wiring.says.setdefault(name, []).extend(_said(end, label) for end, label in named)
    for source, _, ends in drawn.branches:
        wiring.says.setdefault(source, []).extend(_said(end, str(label)) for label, end in (ends or {}).items())
    return wiring


def _said(end: str, label: str | None) -> Signal:
    return Signal(END if end == END else f"to:{end}", True, label)


def _opened(picture: Picture, name: str, inner: Picture) -> Picture:
    """The picture with that of a program inside it in the place of its node, without start and end of that."""
    if len(inner.nodes) < 2 or name not in picture.nodes or not inner.first_node() or not inner.last_node():
        return picture
    inner = _trimmed(_trimmed(inner, is_first=True), is_first=False)
    first, last = inner.first_node(), inner.last_node()
    if first is None or last is None:
        return picture
    nodes = {id: node for id, node in picture.nodes.items() if id != name}
    nodes |= {f"{name}:{id}": node._replace(id=f"{name}:{id}") for id, node in inner.nodes.items()}
    source, target = f"{name}:{last.id}", f"{name}:{first.id}"
    edges = [
        edge._replace(
            source=source if edge.source == name else edge.source, target=target if edge.target == name else edge.target
        )
        for edge in picture.edges
    ]
    edges += [edge._replace(source=f"{name}:{edge.source}", target=f"{name}:{edge.target}") for edge in inner.edges]
    return Picture(nodes, edges)


def _trimmed(picture: Picture, is_first: bool) -> Picture:
    """The picture without its first or last node, if another one is first or last then, with one edge between."""
    end = picture.first_node() if is_first else picture.last_node()
    if end is None:
        return picture
    rest = picture.without(end.id)
    beyond = rest.first_node() if is_first else rest.last_node()
    count = sum(end.id == (edge.source if is_first else edge.target) for edge in picture.edges)
    return rest if beyond is not None and count == 1 else picture


# ---------------------------------------------------------------- functions, and programs made by hand


def _of_pregel(program: Pregel) -> Picture:
    picture = Picture()
    for name, node in program.nodes.items():
        picture.nodes[name] = Node(name, name, node, dict(node.metadata) or None, "", _origin_of(node.inner))
    given = program.input_channels
    entered = {given} if isinstance(given, str) else set(given)
    triggers = {name: node.triggers for name, node in program.nodes.items()}
    first = tuple(name for name, known in triggers.items() if not entered.isdisjoint(known))
    writes = {
        name: [writer.channel for writer in node.writers if isinstance(writer, Write)]
        for name, node in program.nodes.items()
    }
    picture.nodes.setdefault(START, Node(START, START))
    for name in first:
        picture.add_edge(Edge(START, name))
    return _connect(picture, _Walk(_Wiring(triggers, writes, first=first)))


# ---------------------------------------------------------------- what a run did


def draw_run(place: Place, run: str | None = None) -> Reading[Picture]:
    """What a run of a thread did, by default the newest.

    Args:
        place: the thread.
        run: id of the run.
    """
    rows: list[RunRow] = yield Need("runs", (place.thread,), {} if run else {"limit": 1})
    found = next((row for row in rows if run in (None, row.id)), None)
    if found is None:
        return Picture({START: Node(START, START)})
    calls: list[CallRow] = yield Need("calls", (place, found.id))
    memory: Memory = yield Need("load", (place, found.id))
    questions = [question for question in memory.questions if question.run == found.id]
    return run_picture(found, calls, questions)


def run_picture(run: RunRow, calls: Sequence[CallRow], questions: Sequence[QuestionRow] = ()) -> Picture:
    """What a run did: each super-step a cluster with its calls, questions and calls of calls, between start and end.

    Args:
        run: the run.
        calls: its calls, in the order stored.
        questions: those that it asked.
    """
    picture = Picture({START: Node(START, START)})
    clear = {row.key for row in calls if not row.flags & (INTENT | UNCLEAR)}
    latest = {row.key: row for row in calls if not (row.flags & INTENT and row.key in clear)}
    steps_of = _steps_of(latest, questions)
    ids = {key: _id_of(steps_of[key], short_title(row.name), task_id(run.id, key)) for key, row in latest.items()}
    steps: dict[int, list[str]] = {}
    inner: list[Edge] = []
    for key, row in latest.items():
        picture.nodes[ids[key]] = _node_of_call(ids[key], row)
        _put(steps, inner, steps_of[key], ids.get(row.caller), ids[key])
    for question in questions:
        step = steps_of.get(question.caller, question.step)
        id = _id_of(step, "question", question.id.removeprefix("q_"))
        picture.nodes[id] = _node_of_question(id, question)
        _put(steps, inner, step, ids.get(question.caller), id)
    before = [START]
    for step in sorted(steps):
        _bring(picture, before, steps[step], f"before {step}")
        before = steps[step]
    status = {"status": run.status, **({"error": _short(run.error)} if run.error else {})}
    picture.nodes[END] = Node(END, END, run, status)
    _bring(picture, before, [END], "before end")
    picture.edges += inner
    return picture


def _steps_of(calls: Mapping[bytes, CallRow], questions: Sequence[QuestionRow]) -> dict[bytes, int]:
    """Call key → the super-step in which the flow made the call, or that above it.

    A call that asked is stored when it ends, under the super-step of that time: it began where its question stands.
    """
    tops = {key: _top_of(key, calls) for key in calls}
    began = {top: calls[top].step for top in tops.values()}
    for question in questions:
        top = tops.get(question.caller)
        if top is not None:
            began[top] = min(began[top], question.step)
    return {key: began[top] for key, top in tops.items()}


def _top_of(key: bytes, calls: Mapping[bytes, CallRow]) -> bytes:
    """The call of the flow itself that a call was made in, as far up as calls are known."""
    while calls[key].caller in calls:
        key = calls[key].caller
    return key


def _put(steps: dict[int, list[str]], inner: list[Edge], step: int, caller: str | None, id: str) -> None:
    """Under its caller, or else among what the flow itself did in a super-step."""
    if caller is None:
        steps.setdefault(step, []).append(id)
    else:
        inner.append(Edge(caller, id))


def _bring(picture: Picture, before: Sequence[str], after: Sequence[str], between: str) -> None:
    """Edges from each to each, through a barrier where both are several."""
    if len(before) > 1 and len(after) > 1:
        picture.nodes[between] = Node(between, "", None, None, "barrier")
        _bring(picture, before, [between], "")
        before = [between]
    picture.edges += [Edge(source, target) for source in before for target in after]


def _id_of(step: int, name: str, hash: str) -> str:
    return f"super-step {step}:{name.replace(':', '.')} {hash[:8]}"


def _node_of_call(id: str, row: CallRow) -> Node:
    flags, kind = row.flags, ""
    if flags & INTENT:
        kind = "begun"
    elif flags & (FAILED | FORGOTTEN):
        kind = "failed"
    elif flags & CACHED:
        kind = "cached"
    elif flags & RECORDED:
        kind = "recorded"
    elif row.attempt > 1:
        kind = "retried"
    shown: dict[str, Any] = {"status": kind} if kind else {}
    if row.attempt > 1:
        shown["attempts"] = row.attempt
    arguments = _short(row.arguments)
    name = short_title(row.name)
    named = f"{name}{arguments}" if arguments.startswith("(") else f"{name}({arguments})"
    return Node(id, named, row, shown or None, kind)


def _node_of_question(id: str, row: QuestionRow) -> Node:
    shown = {"question": row.state, **({"by": row.by} if row.by else {})}
    return Node(id, _short(row.preview), row, shown, "question")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else f"{line[: PREVIEW - 1]}…"
