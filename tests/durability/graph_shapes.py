"""Graphs of every shape, of functions and of coroutines, whose nodes and tasks tell a witness what runs and is seen.

Each execution of a body makes an entry, `[label, mark]`, whose mark no other execution has; it is what the body gives,
so that the state of a graph says which executions it was made of.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypedDict

from crashing import Calling, task_of, written

from flowfn import END, START, Command, Send, StateGraph, interrupt

MARK = "#"
"""What marks begin with."""
LOGS = ("log", "inner")
"""Keys of the state that hold entries, and texts with answers."""


class Refused(ValueError):
    pass


# ---------------------------------------------------------------- who is told


class Told:
    """Is told of what runs; the base of those who keep it.

    Args:
        pace: how many seconds a body takes at most.
    """

    def __init__(self, pace: float = 0.0) -> None:
        self._pace = pace

    def __flow_key__(self) -> str:
        return "told"

    def note(self, what: str, label: str, mark: str = "", seen: Any = ()) -> None:
        raise NotImplementedError

    def begin(self, label: str, given: Any = None) -> list[str]:
        """A body begins, which sees the entries in what it is given; gives its own entry."""
        entry = [label, f"{MARK}{secrets.token_hex(4)}"]
        self.note("began", *entry, sorted(entries_in(given)))
        return entry

    def see(self, value: Any, entry: list[str]) -> Any:
        """A body, that of the entry, sees the entries in what a call has given it; gives it back."""
        self.note("saw", *entry, sorted(entries_in(value)))
        return value

    def work(self, entry: list[str]) -> Working:
        """What a body then does; waited for as a future is."""
        return Working(random.random() * self._pace, lambda: self.note("ended", *entry))


class Working:
    def __init__(self, seconds: float, told: Any) -> None:
        self._seconds, self._told = seconds, told

    def result(self) -> None:
        if self._seconds:
            time.sleep(self._seconds)
        self._told()

    def __await__(self) -> Iterator[Any]:
        yield from asyncio.sleep(self._seconds).__await__()
        self._told()


class Remembers(Told):
    """Keeps what it is told until the process dies, which its saver knows.

    Attributes:
        began: labels of bodies, in order.
        saw: entries that other bodies have seen.
    """

    def __init__(self, saver: Any) -> None:
        super().__init__()
        self._saver, self._lock = saver, threading.Lock()
        self.began: list[str] = []
        self.saw: set[tuple[str, str]] = set()

    def note(self, what: str, label: str, mark: str = "", seen: Any = ()) -> None:
        with self._lock:
            if self._saver.is_dead:
                return
            if what == "began":
                self.began.append(label)
            self.saw.update(seen)


class Writes(Told):
    """Appends what it is told to a file, where it outlives the process: a line a write."""

    def __init__(self, path: Any, life: int, pace: float) -> None:
        super().__init__(pace)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._life = life

    def note(self, what: str, label: str, mark: str = "", seen: Any = ()) -> None:
        os.write(self._file, json.dumps([self._life, what, label, mark, list(seen)]).encode() + b"\n")


def entries_in(value: Any) -> set[tuple[str, str]]:
    """The entries anywhere inside a value."""
    if isinstance(value, BaseException):
        return entries_in(list(value.args))
    if isinstance(value, Mapping):
        return entries_in(list(value.values()))
    if is_dataclass(value) and not isinstance(value, type):
        return entries_in([getattr(value, field.name) for field in fields(value)])
    if not isinstance(value, list | tuple):
        return set()
    if len(value) == 2 and isinstance(value[1], str) and value[1].startswith(MARK):
        return {(value[0], value[1])}
    return {entry for one in value for entry in entries_in(one)}


# ---------------------------------------------------------------- the graphs


class State(TypedDict, total=False):
    """
    Attributes:
        left: how often something is still to be done.
        log: entries of the bodies that have run.
        total: of what they counted.
        inner: what a graph inside has come to.
    """

    left: int
    log: Annotated[list[Any], operator.add]
    total: Annotated[int, operator.add]
    inner: list[Any]


class Inner(TypedDict, total=False):
    left: int
    inner: Annotated[list[Any], operator.add]


class Logged(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    total: Annotated[int, operator.add]


class Nodes:
    """Nodes for these graphs, each as a function or a coroutine."""

    def __init__(self, see: Told, how: str) -> None:
        self.see, self.how = see, how

        def fetch(x: Any) -> Any:
            entry = see.begin(f"fetch {x}")
            yield see.work(entry)
            return entry

        self.fetch = task_of(fetch, how)

    def __flow_key__(self) -> str:
        return "nodes"

    def plain(self, name: str, key: str = "log", down: int = 0, goto: Any = None) -> Any:
        """Adds its entry to a key; counts `left` down if told to; goes to where a function of the state says."""

        def node(state: Any) -> Any:
            entry = self.see.begin(f"{name} {state.get('left', '')}".rstrip(), state)
            yield self.see.work(entry)
            update: dict[str, Any] = {key: [entry], **({"left": state["left"] - down} if down else {})}
            if key == "log":
                update["total"] = 1
            return update if goto is None else Command(update=update, goto=goto(state))

        return written(node, self.how)

    def calling(self, name: str, several: bool) -> Any:
        """Calls tasks, one after another or all at once."""

        def node(state: Any) -> Any:
            entry, values = self.see.begin(name, state), []
            arguments = [f"{name} {i}" for i in range(state["left"])]
            if several:
                for future in [self.fetch(argument) for argument in arguments]:
                    values.append(self.see.see((yield future), entry))
            else:
                for argument in arguments:
                    values.append(self.see.see((yield self.fetch(argument)), entry))
            yield self.see.work(entry)
            return {"log": [*values, entry], "total": len(values)}

        return written(node, self.how)

    def asking(self, name: str, key: str = "log", has_task: bool = False) -> Any:
        """Asks once a round, and logs the answer."""

        def node(state: Any) -> Any:
            label = f"{name} {state.get('left', '')}".rstrip()
            entry, values = self.see.begin(label, state), []
            if has_task:
                values.append(self.see.see((yield self.fetch(f"before {label}")), entry))
            answer = interrupt(f"{label}?")
            yield self.see.work(entry)
            return {key: [*values, entry, f"{label}? {answer}"]}

        return written(node, self.how)


def graph_of(schema: Any, nodes: Mapping[str, Any], *edges: tuple[Any, str]) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(schema)
    for name, node in nodes.items():
        graph.add_node(name, node)
    for start, end in edges:
        graph.add_edge(start, end)
    return graph


def chain(see: Told, how: str, saver: Any) -> Any:
    n = Nodes(see, how)
    graph = graph_of(State, {name: n.plain(name) for name in "abcde"}, (START, "a"))
    for pair in ("ab", "bc", "cd", "de"):
        graph.add_edge(*pair)
    return graph.compile(checkpointer=saver)


def loop(see: Told, how: str, saver: Any) -> Any:
    n = Nodes(see, how)
    graph = graph_of(State, {"turn": n.plain("turn", down=1), "last": n.plain("last")}, (START, "turn"))
    graph.add_conditional_edges("turn", lambda state: "turn" if state["left"] else "last")
    return graph.compile(checkpointer=saver)


def joined(see: Told, how: str, saver: Any) -> Any:
    """Three nodes at once and one that waits for all of them, again and again."""
    n = Nodes(see, how)
    sides = ["one", "two", "three"]
    nodes = {"fork": n.plain("fork"), **{name: n.plain(name) for name in sides}, "join": n.plain("join", down=1)}
    graph = graph_of(State, nodes, (START, "fork"), *(("fork", name) for name in sides), (sides, "join"))
    graph.add_conditional_edges("join", lambda state: "fork" if state["left"] else END)
    return graph.compile(checkpointer=saver)


def uneven(see: Told, how: str, saver: Any) -> Any:
    """Branches of unequal length, and a deferred node behind both."""
    n = Nodes(see, how)
    graph = graph_of(State, {name: n.plain(name) for name in ("short", "long", "longer", "longest")}, (START, "short"))
    graph.add_node("after", n.plain("after"), defer=True)
    for start, end in ((START, "long"), ("long", "longer"), ("longer", "longest"), ("longest", "after")):
        graph.add_edge(start, end)
    graph.add_edge("short", "after")
    return graph.compile(checkpointer=saver)


def sends(see: Told, how: str, saver: Any) -> Any:
    n = Nodes(see, how)
    graph = graph_of(State, {"plan": n.plain("plan"), "each": n.plain("each"), "sum": n.plain("sum")}, (START, "plan"))
    graph.add_conditional_edges("plan", lambda state: [Send("each", {"left": i}) for i in range(state["left"])])
    graph.add_edge("each", "sum")
    return graph.compile(checkpointer=saver)


def conditional(see: Told, how: str, saver: Any) -> Any:
    """Where it goes depends on the state: to one node, to two of them, or on."""
    n = Nodes(see, how)

    def way(state: Any) -> Any:
        if not state["left"]:
            return "over"
        return ["odd", "even"] if state["left"] % 3 == 0 else "odd" if state["left"] % 2 else "even"

    nodes = {"turn": n.plain("turn", down=1), **{name: n.plain(name) for name in ("odd", "even", "over")}}
    graph = graph_of(State, nodes, (START, "turn"), ("odd", "turn"), ("even", "turn"))
    graph.add_conditional_edges("turn", way)
    return graph.compile(checkpointer=saver)


def commands(see: Told, how: str, saver: Any) -> Any:
    """Nodes that say themselves what comes next, also by Sends beside a node."""
    n = Nodes(see, how)

    def way(state: Any) -> Any:
        return [Send("each", {"left": 10 * state["left"] + i}) for i in range(2)] + ["on"]

    graph = graph_of(State, {"go": n.plain("go", goto=way), "each": n.plain("each")}, (START, "go"))
    graph.add_node("on", n.plain("on", down=1, goto=lambda state: "go" if state["left"] > 1 else END))
    return graph.compile(checkpointer=saver)


def inner_graph(see: Told, how: str, asks: bool = False) -> StateGraph[Any, Any, Any, Any]:
    n = Nodes(see, how)
    second = n.asking("inner two", "inner") if asks else n.plain("inner two", "inner")
    nodes = {"one": n.plain("inner one", "inner"), "two": second, "last": n.plain("inner last", "inner")}
    return graph_of(Inner, nodes, (START, "one"), (START, "two"), (["one", "two"], "last"))


def subgraph(see: Told, how: str, saver: Any) -> Any:
    """A graph as node, with another node beside it."""
    n = Nodes(see, how)
    nodes = {"before": n.plain("before"), "inside": inner_graph(see, how).compile(), "beside": n.plain("beside")}
    edges = [(START, "before"), ("before", "inside"), ("before", "beside"), (["inside", "beside"], "after")]
    return graph_of(State, {**nodes, "after": n.plain("after")}, *edges).compile(checkpointer=saver)


def called_graph(see: Told, how: str, saver: Any) -> Any:
    """A node that calls a graph in its body."""
    n, inside = Nodes(see, how), Calling(inner_graph(see, how).compile(name="inside"))

    def around(state: Any) -> Any:
        entry = see.begin("around", state)
        result = see.see((yield inside({"left": state["left"]})), entry)
        yield see.work(entry)
        return {"log": [*result["inner"], entry]}

    nodes = {"around": written(around, how), "after": n.plain("after")}
    return graph_of(State, nodes, (START, "around"), ("around", "after")).compile(checkpointer=saver)


def tasks_in_nodes(see: Told, how: str, saver: Any) -> Any:
    """Tasks in a node, in two nodes at once, and in one behind them."""
    n = Nodes(see, how)
    nodes = {
        "in turn": n.calling("in turn", several=False),
        "at once": n.calling("at once", several=True),
        "behind": n.calling("behind", several=True),
    }
    edges = [(START, "in turn"), (START, "at once"), (["in turn", "at once"], "behind")]
    return graph_of(State, nodes, *edges).compile(checkpointer=saver)


def handled(see: Told, how: str, saver: Any) -> Any:
    """A node that fails and has a handler, another one beside it; again and again."""
    n = Nodes(see, how)

    def charge(state: Any) -> Any:
        entry = see.begin(f"charge {state['left']}", state)
        yield see.work(entry)
        raise Refused(entry)

    def refund(state: Any, error: Any) -> Any:
        entry = see.begin(f"refund {state['left']}", error.error)
        return {"log": [entry, *error.error.args]}

    graph = StateGraph(State)
    graph.add_node("charge", written(charge, how), error_handler=refund)
    graph.add_node("beside", n.plain("beside")).add_node("after", n.plain("after", down=1))
    for start, end in ((START, "charge"), (START, "beside")):
        graph.add_edge(start, end)
    graph.add_edge(["beside"], "after").add_conditional_edges(
        "after", lambda state: ["charge", "beside"] if state["left"] else END
    )
    return graph.compile(checkpointer=saver)


def questions(see: Told, how: str, saver: Any) -> Any:
    """A question after a task, with a node beside it, once a round."""
    n = Nodes(see, how)
    nodes = {"ask": n.asking("ask", has_task=True), "beside": n.plain("beside"), "join": n.plain("join", down=1)}
    graph = graph_of(State, nodes, (START, "ask"), (START, "beside"), (["ask", "beside"], "join"))
    graph.add_conditional_edges("join", lambda state: ["ask", "beside"] if state["left"] else END)
    return graph.compile(checkpointer=saver)


def questions_inside(see: Told, how: str, saver: Any) -> Any:
    """A question in a graph inside, one beside it."""
    n = Nodes(see, how)
    nodes = {"inside": inner_graph(see, how, asks=True).compile(), "ask": n.asking("ask"), "after": n.plain("after")}
    edges = [(START, "inside"), (START, "ask"), (["inside", "ask"], "after")]
    return graph_of(State, nodes, *edges).compile(checkpointer=saver)


def graphs_in_graphs(see: Told, how: str, saver: Any) -> Any:
    """A graph in a graph, and that one sent to several times at once."""
    n = Nodes(see, how)

    def whole(state: Any) -> Any:
        return {"log": state["inner"], "total": 1}

    middle = graph_of(Inner, {"deep": inner_graph(see, how).compile(), "end": n.plain("middle", "inner")})
    middle.add_edge(START, "deep").add_edge("deep", "end")
    sent = StateGraph(Inner, output_schema=Logged)
    sent.add_node("middle", middle.compile()).add_node("whole", whole).add_edge(START, "middle")
    sent.add_edge("middle", "whole")
    graph = graph_of(State, {"sent": sent.compile(), "after": n.plain("after")}, ("sent", "after"))
    graph.add_conditional_edges(START, lambda state: [Send("sent", {"left": i}) for i in range(state["left"])])
    return graph.compile(checkpointer=saver)


def sends_that_ask(see: Told, how: str, saver: Any) -> Any:
    n = Nodes(see, how)
    graph = graph_of(State, {"ask": n.asking("ask", has_task=True), "after": n.plain("after")}, ("ask", "after"))
    graph.add_conditional_edges(START, lambda state: [Send("ask", {"left": i}) for i in range(state["left"])])
    return graph.compile(checkpointer=saver)


def breakpoints(see: Told, how: str, saver: Any) -> Any:
    """Stops before one node and after another one, each time."""
    n = Nodes(see, how)
    graph = graph_of(State, {"turn": n.plain("turn", down=1), "side": n.plain("side")}, (START, "turn"))
    graph.add_edge("side", "turn")
    graph.add_conditional_edges("turn", lambda state: "side" if state["left"] else END)
    return graph.compile(checkpointer=saver, interrupt_before=["side"], interrupt_after=["turn"])


GRAPHS = {
    "chain": (chain, 1, 1),
    "loop": (loop, 3, 15),
    "joined": (joined, 2, 6),
    "uneven": (uneven, 1, 1),
    "sends": (sends, 4, 30),
    "conditional": (conditional, 4, 10),
    "commands": (commands, 2, 6),
    "subgraph": (subgraph, 1, 1),
    "called graph": (called_graph, 1, 1),
    "tasks in nodes": (tasks_in_nodes, 2, 10),
    "handled": (handled, 2, 5),
    "questions": (questions, 2, 4),
    "questions inside": (questions_inside, 1, 1),
    "graphs in graphs": (graphs_in_graphs, 2, 3),
    "sends that ask": (sends_that_ask, 2, 6),
    "breakpoints": (breakpoints, 2, 5),
}
"""Name → what makes the graph; how large it is to be stopped everywhere, and how large to be killed at random."""


def end_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a graph has come to, without marks and answers, which differ from run to run."""
    logs = {key: [one[0] if isinstance(one, list) else "answer" for one in state.get(key, ())] for key in LOGS}
    return {"left": state.get("left"), "total": state.get("total"), **logs}


def answers_in(state: Mapping[str, Any]) -> dict[str, str]:
    """Question → the answer that a graph has come to."""
    texts = [one for key in LOGS for one in state.get(key, ()) if isinstance(one, str)]
    return {question + "?": answer for question, answer in (text.split("? ") for text in texts)}
