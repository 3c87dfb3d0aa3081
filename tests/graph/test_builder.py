"""What cannot be built is refused by a sentence that names the node and the edge."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

from flowfn import END, START, Command, Send, StateGraph
from flowfn.errors import GraphError, InvalidUpdateError, NotATaskError, UnknownNodeError
from flowfn.graph import CompiledStateGraph


class State(TypedDict):
    n: int


class Other(TypedDict):
    n: Annotated[int, operator.add]


class Third(TypedDict):
    n: Annotated[int, lambda held, written: written]


def node(state: State) -> State:
    return state


def graph_of(*nodes: str) -> StateGraph[State]:
    graph = StateGraph(State)
    for name in nodes:
        graph.add_node(name, node)
    return graph


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda graph: graph.add_node("a", node), "a node `a` already"),
        (lambda graph: graph.add_node(END, node), "names an end"),
        (lambda graph: graph.add_node("x|y", node), r"`\|` is reserved"),
        (lambda graph: graph.add_node("x:y", node), "`:` is reserved"),
        (lambda graph: graph.add_node("x"), "`x` has nothing to run"),
        (lambda graph: graph.add_node("x", 5), "`x` cannot run a `int`"),
        (lambda graph: graph.add_node("x", graph_of("y")), "`x` is a graph that is not compiled"),
        (lambda graph: graph.add_edge(END, "a"), "edge to `a` starts at END"),
        (lambda graph: graph.add_edge("a", START), "edge from `a` goes to START"),
        (lambda graph: graph.add_edge(["a", "gone"], "a"), "edge to `a` names `gone`"),
        (lambda graph: graph.add_edge(["a"], "gone"), "edge from `a` names `gone`"),
        (lambda graph: graph.add_sequence([]), "at least one node"),
        (lambda graph: graph.compile(), "No edge leaves START"),
        (lambda graph: graph.add_edge(START, "gone").compile(), "edge from `__start__` names `gone`"),
        (lambda graph: graph.add_edge(START, "a").add_edge("gone", "a").compile(), "edge to `a` names `gone`"),
        (
            lambda graph: graph.add_conditional_edges(START, lambda state: "a", ["a", "gone"]).compile(),
            "conditional edge `<lambda>` of node `__start__` names `gone`",
        ),
        (
            lambda graph: graph.add_edge(START, "a").compile(interrupt_before=["gone"]),
            "`interrupt_before` or `interrupt_after` names `gone`",
        ),
        (
            lambda graph: graph.add_edge(START, "a").add_node("b", node, destinations=("gone",)).compile(),
            "`destinations` of node `b` names `gone`",
        ),
    ],
)
def test_a_graph_that_cannot_be_built(build: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(graph_of("a"))


def test_two_reducers_for_one_key() -> None:
    with pytest.raises(GraphError, match="Key `n` has another channel in schema `Third`"):
        StateGraph(Other, input_schema=Third)


def test_a_reducer_of_one_value() -> None:
    class Bad(TypedDict):
        n: Annotated[int, lambda held: held]

    with pytest.raises(GraphError, match="reducer of key `n`"):
        StateGraph(Bad)


def test_a_generator_is_no_node() -> None:
    def many(state: State) -> Any:
        yield state

    with pytest.raises(NotATaskError):
        StateGraph(State).add_node("many", many)


def test_two_conditional_edges_by_one_function() -> None:
    graph = graph_of("a").add_conditional_edges("a", node)
    with pytest.raises(GraphError, match="Node `a` has a conditional edge by a function `node` already"):
        graph.add_conditional_edges("a", node)


def one(action: Any) -> CompiledStateGraph:
    return StateGraph(State).add_node("a", action).add_edge(START, "a").compile()


@pytest.mark.parametrize(
    ("action", "kind", "says"),
    [
        (lambda state: 5, InvalidUpdateError, "Node `a` returned a `int`"),
        (lambda state: Command(goto="gone"), UnknownNodeError, "`goto` of node `a` names `gone`"),
        (lambda state: Command(goto=Send("gone", 1)), UnknownNodeError, "`goto` of node `a` names `gone`"),
    ],
)
def test_a_node_that_returns_what_it_may_not(action: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        one(action).invoke({"n": 1})


@pytest.mark.parametrize("said", ["gone", None, START, [Send("gone", 1)]])
def test_a_path_that_leads_nowhere(said: Any) -> None:
    graph = graph_of("a").add_edge(START, "a")

    def way(state: State) -> Any:
        return said

    graph.add_conditional_edges("a", way)
    with pytest.raises(UnknownNodeError, match="conditional edge `way` of node `a`"):
        graph.compile().invoke({"n": 1})


def test_an_input_that_is_no_state() -> None:
    with pytest.raises(InvalidUpdateError, match="Give a dict with keys of its input schema: 'n'"):
        one(node).invoke(7)


def test_breakpoints_of_a_call_are_checked_too() -> None:
    with pytest.raises(UnknownNodeError, match="`gone`"):
        one(node).invoke({"n": 1}, interrupt_after=["gone"])
