"""Pictures of flows: those of LangGraph for the same graph, letter by letter, and drawings that hold any name."""

from __future__ import annotations

import itertools
import random
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.channels import EphemeralValue as TheirEphemeral
from langgraph.graph import StateGraph as TheirGraph
from langgraph.pregel import NodeBuilder as TheirBuilder
from langgraph.pregel import Pregel as TheirPregel
from langgraph.types import Command

from flowfn import Command as Command_
from flowfn import entrypoint, interrupt, record, task
from flowfn.cache import InMemoryCache
from flowfn.channels import EphemeralValue
from flowfn.checkpoint import InMemorySaver
from flowfn.pregel import snapshot
from flowfn.pregel.draw import END, START, Drawn, DrawnNode, draw_run, picture_of
from flowfn.pregel.node import NodeBuilder
from flowfn.pregel.picture import Edge, Node, NodeStyles, Picture
from flowfn.pregel.program import Pregel
from flowfn.types import CachePolicy, RetryPolicy


class State(TypedDict):
    x: int


def same(state: State) -> State:
    return state


def drawn_of(graph: TheirGraph[Any], **stops: Any) -> Any:
    """What there is to draw of one of LangGraph's graphs, as a program of ours would say it."""
    nodes = {}
    for name, spec in graph.nodes.items():
        inner = getattr(spec.runnable, "builder", None)
        nodes[name] = DrawnNode(
            name, spec.metadata or {}, spec.defer, inner and drawn_of(inner), spec.ends if spec.ends else None
        )
    branches = [(at, name, one.ends) for at, named in graph.branches.items() for name, one in named.items()]
    joins = [*graph.waiting_edges]
    return SimpleNamespace(drawn=Drawn(nodes, [*graph.edges], joins, branches, **stops))


def assert_same_picture(graph: TheirGraph[Any], xray: bool | int = False, **stops: Any) -> Picture:
    theirs = graph.compile(**stops).get_graph(xray=xray)
    ours = picture_of(drawn_of(graph, **stops), xray)
    assert ours.to_json() == theirs.to_json()
    assert ours.draw_mermaid() == theirs.draw_mermaid()
    assert ours.draw_mermaid(with_styles=False) == theirs.draw_mermaid(with_styles=False)
    assert [tuple(edge) for edge in ours.edges] == [tuple(edge) for edge in theirs.edges]
    assert list(ours.nodes) == list(theirs.nodes)
    return ours


def graph_of(names: str, *edges: str, late: str = "", **metadata: Any) -> TheirGraph[Any]:
    """A graph with nodes of one letter; `ab` is an edge, `^` the start and `$` the end."""
    graph: TheirGraph[Any] = TheirGraph(State)
    for name in names:
        graph.add_node(name, same, defer=name in late, metadata=metadata.get(name))
    for source, target in edges:
        graph.add_edge(at(source), at(target))
    return graph


def at(letter: str) -> str:
    return {"^": START, "$": END}.get(letter, letter)


# ---------------------------------------------------------------- as LangGraph draws it


@pytest.mark.parametrize(
    ("names", "edges", "late"),
    [
        ("a", "^a a$", ""),
        ("abc", "^a ab bc c$", ""),
        ("abcd", "^a ab ac bd cd d$", "d"),
        ("abcde", "^a ab bc cd ae ec", "d"),
        ("ab", "^a ab ba", ""),
        ("a", "^a aa", ""),
        ("abc", "^a ab ba bc", ""),
        ("ab", "^a ^b a$ b$", ""),
        ("abc", "^a ab a$ bc ac", "c"),
        ("Zab", "^Z Za ab", "b"),
    ],
)
def test_edges_are_drawn_as_langgraph_does(names: str, edges: str, late: str) -> None:
    assert_same_picture(graph_of(names, *edges.split(), late=late))


def test_conditional_edges_say_why() -> None:
    graph = graph_of("abc", "^a", "bc")
    graph.add_conditional_edges(
        "a", same, {"more": "b", "long enough to be broken into two or three lines": "c", 1: END}
    )
    picture = assert_same_picture(graph)
    assert picture.draw_mermaid(wrap_label_n_words=3) == graph.compile().get_graph().draw_mermaid(wrap_label_n_words=3)


def test_a_path_that_says_its_ends_by_type_has_edges_and_another_has_none() -> None:
    def typed(state: State) -> Literal["b", "__end__"]:
        return "b"

    graph = graph_of("abc", "^a", "bc")
    graph.add_conditional_edges("a", typed)
    graph.add_conditional_edges("b", lambda state: "a")
    assert_same_picture(graph)


def test_a_node_that_goes_by_itself_shows_where_to() -> None:
    def by_type(state: State) -> Command[Literal["b", "__end__"]]:
        return Command(goto="b")

    graph = graph_of("bc", "bc")
    graph.add_node("a", by_type)
    graph.add_node("d", same, destinations={"b": "back", "c": "on"})
    graph.add_edge(START, "a")
    graph.add_edge("a", "d")
    assert_same_picture(graph)


def test_joins_wait_for_their_sources() -> None:
    graph = graph_of("abcdef", "^a", "^b", "bc", "df", late="f")
    graph.add_edge(["a", "c"], "d")
    graph.add_edge(["c", "d"], "e")
    graph.add_edge(["a", "e"], "f")
    assert_same_picture(graph)


def test_metadata_and_breakpoints_are_shown() -> None:
    graph = graph_of("abc", "^a", "ab", "bc", a={"k": [1, "z"], "deep": {"x": 1}, "<i>": 'a "b" (c)'})
    assert_same_picture(graph, interrupt_before=["a", "b"], interrupt_after=["a", "c"])
    assert_same_picture(graph, interrupt_before="*")


def nested(depth: int) -> TheirGraph[Any]:
    graph = graph_of("ab", "^a", "ab")
    if depth:
        graph.add_node(f"in{depth}", nested(depth - 1).compile())
        graph.add_edge("b", f"in{depth}")
        graph.add_conditional_edges(f"in{depth}", same, {"again": "a", "done": END})
    return graph


@pytest.mark.parametrize("xray", [False, True, 1, 2, 3])
def test_programs_inside_are_opened_as_deep_as_asked(xray: bool | int) -> None:
    assert_same_picture(nested(3), xray)


def test_a_program_with_loops_inside_keeps_its_ends() -> None:
    inner = graph_of("pq", "^p", "^q", "pp", "q$", "pq")
    graph = graph_of("ab", "^a")
    graph.add_node("s", inner.compile())
    graph.add_edge("a", "s")
    graph.add_edge("s", "b")
    assert_same_picture(graph, True)


NAMES = "abcdef"


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> TheirGraph[Any]:
    names = NAMES[: draw(st.integers(1, 6))]
    letters = st.sampled_from(names)
    late = draw(st.sets(letters, max_size=2))
    graph = graph_of(names, late="".join(late))
    if depth and draw(st.booleans()):
        graph.add_node("sub", draw(graphs(depth - 1)).compile())
        names += "s"
        letters = st.sampled_from(names)
    full = {"s": "sub"}
    graph.add_edge(START, full.get(*[draw(letters)] * 2))
    for source, target in draw(st.lists(st.tuples(letters, st.sampled_from([*names, "$"])), max_size=8, unique=True)):
        graph.add_edge(full.get(source, source), at(full.get(target, target)))
    for sources, target in draw(
        st.lists(st.tuples(st.lists(letters, min_size=1, max_size=3, unique=True), letters), max_size=2)
    ):
        graph.add_edge([full.get(one, one) for one in sources], full.get(target, target))
    for number, source in enumerate(draw(st.lists(letters, max_size=3))):
        ends = draw(st.lists(st.sampled_from([*names, "$"]), min_size=1, max_size=3, unique=True))
        path_map = {f"{number} {end}": at(full.get(end, end)) for end in ends}
        graph.add_conditional_edges(full.get(source, source), _path(number), path_map)
    return graph


def _path(number: int) -> Any:
    def path(state: State) -> str:
        return ""

    path.__name__ = f"path{number}"
    return path


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans())
def test_any_graph_is_drawn_as_langgraph_does(graph: TheirGraph[Any], xray: bool) -> None:
    assert_same_picture(graph, xray)


def test_options_of_mermaid_are_langgraphs() -> None:
    graph = graph_of("ab", "^a", "ab")
    theirs, ours = graph.compile().get_graph(), picture_of(drawn_of(graph))
    head = {"config": {"theme": "neutral", "flowchart": {"z": True}, "themeVariables": {"primaryColor": "#e2e2e2"}}}
    head["title"] = "It's: yes"  # type: ignore[assignment]
    from langchain_core.runnables.graph import CurveStyle
    from langchain_core.runnables.graph import NodeStyles as TheirStyles

    expected = theirs.draw_mermaid(
        curve_style=CurveStyle.STEP, node_colors=TheirStyles(last="fill:red"), frontmatter_config=head
    )
    assert (
        ours.draw_mermaid(curve_style="step", node_colors=NodeStyles(last="fill:red"), frontmatter_config=head)
        == expected
    )
    assert (
        ours.draw_mermaid(
            curve_style=CurveStyle.STEP, node_colors=TheirStyles(last="fill:red"), frontmatter_config=head
        )
        == expected
    )


def test_a_program_made_by_hand_is_drawn_by_its_channels() -> None:
    def built(builder: Any, program: Any, channel: Any) -> Any:
        one = builder().subscribe_only("i").do(same).write_to("m")
        two = builder().subscribe_only("m").do(same).write_to("o", "i")
        return program(
            nodes={"one": one, "two": two},
            channels={name: channel(int) for name in "imo"},
            input_channels="i",
            output_channels="o",
        )

    ours = picture_of(built(NodeBuilder, Pregel, EphemeralValue))
    theirs = built(TheirBuilder, TheirPregel, TheirEphemeral).get_graph()
    assert ours.to_json() == theirs.to_json()
    assert ours.draw_mermaid() == theirs.draw_mermaid()


def test_a_function_stands_between_start_and_end() -> None:
    @entrypoint()
    def flow(x: int) -> int:
        return x

    assert picture_of(flow).edges == [Edge(START, "flow"), Edge("flow", END, None, True)]


# ---------------------------------------------------------------- drawings hold

ODD = ['<b>&"x"</b>', "]]>", "a|b", "%% x\n\tevil --> z;", "\x00\x1b[2J", "é 漢", "`m`", "{}()[]", "end", "\\"]


def odd_picture() -> Picture:
    nodes = [Node(name, name, metadata={name: name}) for name in ODD]
    edges = [Edge(one, other, one) for one, other in itertools.pairwise(ODD)]
    return Picture({node.id: node for node in nodes}, edges)


def test_odd_names_cannot_leave_their_place() -> None:
    picture = odd_picture()
    mermaid = picture.draw_mermaid(with_styles=False).splitlines()
    assert len(mermaid) == 1 + len(picture.edges)
    assert all(line.count(";\n") == 0 and "<b>" not in line and '"' not in line for line in mermaid)
    root = ET.fromstring(picture.draw_svg())
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == ODD[0]
    assert titles[1] == ODD[1]
    assert all(char.isprintable() or char == "\n" for char in picture.draw_ascii())


def test_a_node_called_end_does_not_end_a_cluster() -> None:
    picture = Picture({id: Node(id, id) for id in ("a", "end")}, [Edge("a", "end")])
    assert "\ta --> \\65nd;\n" in picture.draw_mermaid()


def test_clusters_of_one_name_are_two() -> None:
    ids = ("x:s:a", "x:s:b", "y:s:a", "y:s:b")
    picture = Picture({id: Node(id, id[-1]) for id in ids}, [Edge(*ids[:2]), Edge(*ids[2:])])
    lines = [line.strip() for line in picture.draw_mermaid().splitlines() if "subgraph" in line]
    assert lines == ["subgraph x", "subgraph s", "subgraph y", 'subgraph y\\3as["s"]']
    assert len(boxes(picture.draw_svg(), "c")) == 4


def random_picture(size: int, seed: int) -> Picture:
    chance = random.Random(seed)
    ids = [f"{'c' * (n % 3)}{':d' if n % 6 == 1 else ''}{':' if n % 3 else ''}n{n}" for n in range(size)]
    edges = [Edge(chance.choice(ids), chance.choice(ids), None, chance.random() < 0.3) for _ in range(size * 3 // 2)]
    return Picture({id: Node(id, id) for id in ids}, edges)


def boxes(svg: str, kind: str) -> list[tuple[float, float, float, float]]:
    found = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    sides = [
        [float(one.attrib[key]) for key in ("x", "y", "width", "height")] for one in found if one.get("class") == kind
    ]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


@pytest.mark.parametrize(("size", "seed"), [(1, 0), (2, 1), (7, 2), (20, 3), (60, 4), (300, 5)])
def test_boxes_do_not_overlap_and_stay_inside(size: int, seed: int) -> None:
    svg = random_picture(size, seed).draw_svg()
    found = boxes(svg, "n")
    root = ET.fromstring(svg)
    assert len(found) == size
    for left, top, right, bottom in found:
        assert min(left, top) >= 0
        assert right <= float(root.attrib["width"])
        assert bottom <= float(root.attrib["height"])
    for one, other in itertools.combinations(found, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for frame, box in itertools.product(boxes(svg, "c"), found):
        outside = frame[2] <= box[0] or box[2] <= frame[0] or frame[3] <= box[1] or box[3] <= frame[1]
        assert outside or (frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3])


@pytest.mark.parametrize(("size", "seed"), [(1, 0), (5, 1), (40, 2), (300, 3)])
def test_ascii_shows_each_node_once(size: int, seed: int) -> None:
    picture = random_picture(size, seed)
    text = picture.draw_ascii()
    for node in picture.nodes.values():
        assert text.count(f"| {node.id.ljust(len(node.id) | 1)} |") == 1


def test_ascii_of_a_chain() -> None:
    picture = picture_of(drawn_of(graph_of("a", "^a", "aa")))
    assert picture.draw_ascii().splitlines() == CHAIN


CHAIN = """\
+-----------+
| __start__ |
+-----------+
      |
      v
    +---+
    | a |--+
    +---+<-+
      :
      v
 +---------+
 | __end__ |
 +---------+
""".splitlines()


def test_an_empty_picture_is_drawn() -> None:
    assert Picture().draw_ascii() == ""
    assert ET.fromstring(Picture().draw_svg()).tag.endswith("svg")
    assert Picture().to_json() == {"nodes": [], "edges": []}


# ---------------------------------------------------------------- what a run did


@task
def leaf(x: int) -> int:
    return x


@task
def twice(x: int) -> int:
    return leaf(x).result() + leaf(x + 100).result()


@task
def broken(x: int) -> int:
    raise ValueError(x)


def picture_of_run(flow: Any, thread: str) -> Picture:
    handle = flow.thread(thread)
    return snapshot.run(draw_run(handle._place), handle._saver)


def test_a_run_is_drawn_in_super_steps_with_its_calls_and_questions() -> None:
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x: int) -> Any:
        first, second = leaf(1), twice(2)
        first.result(), second.result()
        record(int)
        try:
            broken(7).result()
        except ValueError:
            pass
        return interrupt("go <on>?")

    config = {"configurable": {"thread_id": "t"}}
    flow.invoke(1, config)
    waiting = picture_of_run(flow, "t")
    flow.invoke(Command_(resume=True), config)
    done = picture_of_run(flow, "t")

    def question(picture: Picture) -> Node:
        return next(node for node in picture.nodes.values() if node.kind == "question")

    assert question(waiting).metadata == {"question": "open"}
    assert question(done).metadata == {"question": "answered"}
    assert (waiting.nodes[END].metadata or {})["status"] == "waiting"
    assert (done.nodes[END].metadata or {})["status"] == "finished"
    assert [node.kind for node in done.nodes.values()].count("failed") == 1
    assert [node.kind for node in done.nodes.values()].count("recorded") == 1
    names = {id: node.name.partition("(")[0] for id, node in done.nodes.items()}
    led = [(names[edge.source], names[edge.target]) for edge in done.edges]
    assert led.count(("twice", "leaf")) == 2
    assert {(START, "twice"), (START, "leaf")} <= set(led)
    assert (question(done).name, END) in [(names[edge.source], names[edge.target]) for edge in done.edges]
    ET.fromstring(done.draw_svg())
    assert "go #60;on#62;?" in done.draw_mermaid()


def test_a_task_that_asked_stands_where_it_asked() -> None:
    @task
    def asks(x: int) -> Any:
        return interrupt({"pay": x})

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x: int) -> int:
        leaf(x).result()
        first, second = asks(1), asks(2)
        return int(first.result() + second.result())

    config = {"configurable": {"thread_id": "t"}}
    flow.invoke(1, config)
    one, _ = flow.thread("t").questions()
    flow.invoke(Command_(resume={one.id: 5}), config)
    picture = picture_of_run(flow, "t")
    places = {node.name.partition("(")[0]: node.cluster for node in picture.nodes.values()}
    assert places == {
        START: "",
        "leaf": "super-step 0",
        "asks": "super-step 1",
        "{'pay': 1}": "super-step 1",
        "{'pay': 2}": "super-step 1",
        END: "",
    }


def test_tasks_show_how_they_went() -> None:
    tried = []

    @task(retry_policy=RetryPolicy(max_attempts=2, initial_interval=0, retry_on=OSError))
    def flaky() -> int:
        tried.append(1)
        if len(tried) < 2:
            raise OSError
        return 1

    @task(cache_policy=CachePolicy())
    def kept(x: int) -> int:
        return x

    @entrypoint(checkpointer=InMemorySaver(), cache=InMemoryCache())
    def flow(x: int) -> int:
        return int(flaky().result() + kept(x).result())

    flow.invoke(1, {"configurable": {"thread_id": "first"}})
    retried = picture_of_run(flow, "first")
    flow.invoke(1, {"configurable": {"thread_id": "second"}})
    cached = picture_of_run(flow, "second")
    assert [node.metadata for node in retried.nodes.values() if node.kind] == [{"status": "retried", "attempts": 2}]
    assert [node.metadata for node in cached.nodes.values() if node.kind] == [{"status": "cached"}]
    assert ":::retried" in retried.draw_mermaid()


def test_many_calls_meet_at_a_barrier() -> None:
    @entrypoint(checkpointer=InMemorySaver())
    def flow(n: int) -> int:
        return sum(leaf.map(range(n)).result()) + sum(leaf.map(range(n, 2 * n)).result())

    flow.invoke(20, {"configurable": {"thread_id": "t"}})
    picture = picture_of_run(flow, "t")
    assert [node.kind for node in picture.nodes.values()].count("barrier") == 1
    assert len(picture.edges) == 20 * 4
    assert '((" ")):::barrier' in picture.draw_mermaid()


def test_a_thread_without_runs_has_only_a_start() -> None:
    @entrypoint(checkpointer=InMemorySaver())
    def flow(n: int) -> int:
        return n

    assert list(picture_of_run(flow, "t").nodes) == [START]
