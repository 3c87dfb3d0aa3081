"""Graphs as they are steered: sends, commands, limits, pauses, questions, failures and drains."""

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest

from tests.conformance.graph_runs import State, asked, graph_of, line, note, run, runs, saved

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)
THREAD = {"configurable": {"thread_id": "t"}}


class Item(TypedDict):
    n: int
    tag: str


class Thing:
    def __init__(self, n):
        self.n = n


def limited(limit):
    return {**THREAD, "recursion_limit": limit}


# ---------------------------------------------------------------- sends


def mapping(kit, sends, work=None, **node):
    """plan → what `sends` says → fin."""
    graph = graph_of(kit, "plan", "fin")
    graph.add_node("work", work or (lambda item: {"log": [item["n"] * 10]}), **node)
    graph.add_edge(kit.START, "plan")
    graph.add_conditional_edges("plan", sends)
    graph.add_edge("work", "fin")
    return saved(kit, graph)


@pytest.mark.parametrize("count", [1, 3, 300])
def test_a_map_reduce_by_sends(same, count):
    def program(kit):
        flow = mapping(kit, lambda s: [kit.Send("work", {"n": i}) for i in range(count)])
        if count < 10:
            return runs(kit, flow, {"n": 1}, {"n": 2})
        return [kit.invoke(flow, {"n": 1}), kit.state(flow).values, [found.next for found in kit.history(flow)]]

    same(program)


def test_what_sends_write_is_joined_in_the_order_of_sends(same):
    def program(kit):
        graph = graph_of(kit, "plan", "p", "q")
        graph.add_node("work", lambda item: {"log": [item["n"]]})
        graph.add_node("a_work", lambda item: {"log": [item["n"]]})
        graph.add_edge(kit.START, "plan").add_edge("plan", "q").add_edge("plan", "p")
        order = [("work", 3), ("a_work", 1), ("work", 2), ("work", 11)]
        graph.add_conditional_edges("plan", lambda s: [kit.Send(name, {"n": n}) for name, n in order])
        return run(kit, saved(kit, graph), {"n": 1})

    assert same(program)["values"][-1]["log"] == ["plan", "p", "q", 3, 1, 2, 11]


def test_more_than_ten_sends_are_joined_in_the_order_of_numbers(same):
    def program(kit):
        return kit.invoke(mapping(kit, lambda s: [kit.Send("work", {"n": n}) for n in range(25)]), {"n": 1})["log"]

    assert same(program) == ["plan", *range(0, 250, 10), "fin"]


def test_sends_of_two_nodes_are_joined_by_sender(same):
    def program(kit):
        graph = graph_of(kit, "z", "a")
        graph.add_node("work", lambda item: {"log": [item["n"]]})
        graph.add_edge(kit.START, "z").add_edge(kit.START, "a")
        graph.add_conditional_edges("z", lambda s: [kit.Send("work", {"n": n}) for n in (1, 2)])
        graph.add_conditional_edges("a", lambda s: [kit.Send("work", {"n": n}) for n in (3, 4)])
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_sent_node_sends_on(same):
    def program(kit):
        def split(item):
            way = item.get("way", "")
            return [kit.Send("work", {"n": item["n"] - k, "way": f"{way}{k}"}) for k in (1, 2) if item["n"] > k]

        graph = graph_of(kit, "plan")
        graph.add_node("work", lambda item: kit.Command(update={"log": [item["way"]]}, goto=split(item)))
        graph.add_edge(kit.START, "plan")
        graph.add_conditional_edges("plan", split)
        return run(kit, saved(kit, graph), {"n": 5})

    same(program)


def test_a_path_after_a_sent_node_sees_the_state_and_not_what_was_sent(same):
    def program(kit):
        graph = graph_of(kit, "plan", "end")
        graph.add_node("work", lambda item: {"log": [item["n"]]})
        graph.add_edge(kit.START, "plan")
        graph.add_conditional_edges("plan", lambda s: [kit.Send("work", {"n": n}) for n in (7, 8)])
        graph.add_conditional_edges("work", lambda s: kit.Send("end", {}) if s["n"] == 1 else kit.END)
        return kit.invoke(saved(kit, graph), {"n": 1})

    assert same(program)["log"] == ["plan", 7, 8, "end", "end"]


@pytest.mark.parametrize(
    "arg",
    [Thing(4), [1, 2], "text", 5, None, {"unknown": 1}],
    ids=["object", "list", "text", "number", "none", "dict"],
)
def test_a_send_carries_any_argument(same, arg):
    def program(kit):
        def work(given):
            return {"log": [given.n if isinstance(given, Thing) else given]}

        graph = graph_of(kit, "plan")
        graph.add_node("work", work)
        graph.add_edge(kit.START, "plan")
        graph.add_conditional_edges("plan", lambda s: [kit.Send("work", arg)])
        return kit.attempt(graph.compile(), {"n": 1})

    same(program)


def test_a_sent_argument_is_given_as_it_is_whatever_the_schema_reads(same):
    def program(kit):
        def work(item):
            return {"log": [sorted(item)]}

        return run(kit, mapping(kit, lambda s: [kit.Send("work", {"n": 1, "x": 2})], work, input_schema=Item), {"n": 1})

    same(program)


def test_a_send_to_a_node_with_a_class_as_schema(same):
    from pydantic import BaseModel

    class Work(BaseModel):
        n: int
        tag: str = "none"

    def program(kit):
        def work(item):
            return {"log": [type(item).__name__, item["n"] if isinstance(item, dict) else item.n]}

        sends = [lambda s: [kit.Send("work", {"n": 1})], lambda s: [kit.Send("work", Work(n=2))]]
        return [kit.invoke(mapping(kit, send, work, input_schema=Work), {"n": 1}) for send in sends]

    same(program)


@pytest.mark.parametrize("target", ["unknown", "__start__", "__end__"])
def test_a_send_to_no_node(same, target):
    def program(kit):
        return run(kit, mapping(kit, lambda s: [kit.Send(target, {"n": 1})]), {"n": 1})

    same(program)


def test_sent_nodes_and_a_node_by_its_edge_run_in_one_step(same):
    def program(kit):
        graph = graph_of(kit, "plan")
        graph.add_node("work", lambda item: {"log": [[item["n"], len(item.get("log", []))]]})
        graph.add_edge(kit.START, "plan").add_edge("plan", "work")
        graph.add_conditional_edges("plan", lambda s: [kit.Send("work", {"n": 7}), kit.Send("work", {"n": 8})])
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_failed_send_alone_runs_again(both):
    def program(kit):
        tries = []

        def work(item):
            tries.append(item["n"])
            if item["n"] == 1 and tries.count(1) == 1:
                raise KeyError("one")
            return {"log": [item["n"]]}

        flow = mapping(kit, lambda s: [kit.Send("work", {"n": n}) for n in range(3)], work)
        return [kit.attempt(flow, {"n": 1}), kit.invoke(flow, None), tries.count(1)]

    pair = both(program)
    assert pair.ours == pair.theirs


# ---------------------------------------------------------------- commands


COMMANDS = {
    "name": lambda kit: {"goto": "b"},
    "names": lambda kit: {"goto": ["c", "b"]},
    "tuple": lambda kit: {"goto": ("b", "c")},
    "end": lambda kit: {"goto": kit.END},
    "name-and-end": lambda kit: {"goto": ["b", kit.END]},
    "send": lambda kit: {"goto": kit.Send("b", {"n": 9})},
    "sends": lambda kit: {"goto": [kit.Send("b", {"n": 9}), kit.Send("b", {"n": 8}), "c"]},
    "update": lambda kit: {"update": {"n": 5, "log": ["u"]}},
    "update-and-goto": lambda kit: {"update": {"n": 5, "log": ["u"]}, "goto": "c"},
    "pairs": lambda kit: {"update": [("log", ["p"]), ("log", ["q"])], "goto": "c"},
    "self": lambda kit: {"update": {"log": ["again"]}, "goto": "a"},
    "unknown": lambda kit: {"goto": "nowhere"},
    "start": lambda kit: {"goto": kit.START},
    "unknown-key": lambda kit: {"update": {"zzz": 1}, "goto": "b"},
    "nothing": lambda kit: {},
    "resume": lambda kit: {"resume": "x", "goto": "b"},
}


@pytest.mark.parametrize("has_edge", [True, False], ids=["edge", "no-edge"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_node_returns_a_command(same, command, has_edge):
    def program(kit):
        graph = kit.StateGraph(State)

        def first(state):
            return None if len(state["log"]) > 2 else kit.Command(**COMMANDS[command](kit))

        graph.add_node("a", first, destinations=("b", "c"))
        for name in "bcz":
            graph.add_node(name, lambda s, name=name: {"log": [[name, s["n"]]]})
        graph.add_edge(kit.START, "a")
        if has_edge:
            graph.add_edge("a", "z")
        return run(kit, saved(kit, graph), {"n": 1, "log": []})

    same(program)


def test_a_loop_by_commands(same):
    def program(kit):
        def count(state):
            if state["n"] == 0:
                return kit.Command(goto=kit.END, update={"log": ["done"]})
            return kit.Command(goto="count", update={"n": state["n"] - 1, "log": [state["n"]]})

        return runs(kit, line(kit, State, count), {"n": 3}, {"n": 1})

    same(program)


def test_two_nodes_go_to_one_node(same):
    def program(kit):
        graph = graph_of(kit, "join")
        for name in "ab":
            graph.add_node(name, lambda s, name=name: kit.Command(goto="join", update={"log": [name]}))
            graph.add_edge(kit.START, name)
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def asking(kit):
    """a asks, b tells."""

    def a(state):
        return {"log": [["a", state["n"], kit.interrupt("well?")]]}

    return line(kit, State, a, ("b", lambda s: {"log": [["b", s["n"]]]}))


INPUTS = {
    "update": lambda kit: {"update": {"n": 4, "log": ["in"]}},
    "goto": lambda kit: {"goto": "b"},
    "goto-list": lambda kit: {"goto": ["b", "a"]},
    "goto-send": lambda kit: {"goto": kit.Send("b", {"n": 12})},
    "goto-and-update": lambda kit: {"goto": "b", "update": {"n": 4}},
    "goto-unknown": lambda kit: {"goto": "nowhere"},
    "goto-end": lambda kit: {"goto": kit.END},
    "resume": lambda kit: {"resume": "yes"},
    "resume-and-update": lambda kit: {"resume": "yes", "update": {"n": 6}},
    "resume-and-goto": lambda kit: {"resume": "yes", "goto": "b"},
    "all": lambda kit: {"resume": "yes", "goto": "b", "update": {"n": 6, "log": ["u"]}},
}


@pytest.mark.parametrize("input", INPUTS)
def test_a_command_is_the_input_of_a_thread_with_a_question(same, input):
    def program(kit):
        flow = asking(kit)
        return [run(kit, flow, {"n": 1}), run(kit, flow, kit.Command(**INPUTS[input](kit)))]

    same(program)


@pytest.mark.parametrize("input", [name for name in INPUTS if not name.startswith(("resume", "all"))])
def test_a_command_is_the_input_of_a_finished_thread(same, input):
    def program(kit):
        flow = line(kit, State, ("a", note("a")), ("b", lambda s: {"log": [["b", s["n"]]]}))
        return [run(kit, flow, {"n": 1}), run(kit, flow, kit.Command(**INPUTS[input](kit)))]

    same(program)


@pytest.mark.parametrize("input", ["update", "goto", "goto-and-update", "goto-send"])
def test_a_command_is_the_first_input_of_a_thread(same, input):
    def program(kit):
        flow = line(kit, State, ("a", note("a")), ("b", lambda s: {"log": [["b", s.get("n")]]}))
        return run(kit, flow, kit.Command(**INPUTS[input](kit)))

    same(program)


def test_a_node_whose_state_is_a_bare_value_returns_a_command(same):
    def program(kit):
        flow = line(
            kit,
            Annotated[list, operator.add],
            ("a", lambda s: kit.Command(update=["a"], goto="c")),
            ("b", lambda s: ["b"]),
            ("c", lambda s: kit.Command(goto="__end__")),
        )
        return run(kit, flow, ["in"])

    same(program)


# ---------------------------------------------------------------- commands for the parent


def family(kit, command, as_node, has_reducer=True):
    """A graph whose inner graph's node gives `command`; the outer one has `next` and `other`."""

    class Inner(TypedDict):
        n: int
        log: Annotated[list, operator.add] if has_reducer else list
        mine: str

    inner = kit.StateGraph(Inner)
    inner.add_node("first", lambda s: {"mine": "set", **({"log": ["first"]} if has_reducer else {})})
    inner.add_node("ask", lambda s: command)
    inner.add_node("never", lambda s: {"mine": "never"})
    inner.add_edge(kit.START, "first").add_edge("first", "ask").add_edge("ask", "never")
    inner = inner.compile()
    outer = graph_of(kit, "next", "other")
    if as_node:
        outer.add_node("sub", inner)
    elif kit._is_awaited:

        async def sub(state):
            return await inner.ainvoke({"n": state["n"], "log": []})

        outer.add_node("sub", sub)
    else:
        outer.add_node("sub", lambda s: inner.invoke({"n": s["n"], "log": []}))
    outer.add_edge(kit.START, "sub").add_edge("sub", "other")
    return saved(kit, outer)


PARENTAL = {
    "goto": lambda kit: {"goto": "next"},
    "goto-and-update": lambda kit: {"goto": "next", "update": {"log": ["from below"]}},
    "update": lambda kit: {"update": {"log": ["from below"], "n": 9}},
    "several": lambda kit: {"goto": ["next", "other"], "update": {"n": 3}},
    "send": lambda kit: {"goto": kit.Send("next", {"n": 3})},
    "end": lambda kit: {"goto": kit.END, "update": {"log": ["over"]}},
    "unknown-key": lambda kit: {"goto": "next", "update": {"mine": "x"}},
    "unknown-node": lambda kit: {"goto": "never"},
}


@pytest.mark.parametrize("as_node", [True, False], ids=["node", "called"])
@pytest.mark.parametrize("command", PARENTAL)
def test_a_command_for_the_parent(same, command, as_node):
    def program(kit):
        made = kit.Command(graph=kit.Command.PARENT, **PARENTAL[command](kit))
        flow = family(kit, made, as_node)
        if as_node:
            return run(kit, flow, {"n": 1, "log": ["in"]})
        return [kit.stream(flow, {"n": 1, "log": ["in"]}, stream_mode=["values", "updates"]), kit.state(flow)]

    same(program)


def test_a_command_for_the_parent_through_two_graphs(same):
    def program(kit):
        up = kit.Command(graph=kit.Command.PARENT, goto="mid", update={"log": ["up"]})
        low = line(kit, State, ("low", lambda s: up)).builder.compile()
        middle = graph_of(kit, "mid").add_node("low", low).add_edge(kit.START, "low").compile()
        return run(kit, line(kit, State, ("top", middle), ("end", note("end"))), {"n": 1})

    same(program)


def test_a_command_for_a_parent_that_does_not_exist(same):
    def program(kit):
        flow = line(kit, State, ("a", lambda s: kit.Command(graph=kit.Command.PARENT, goto="b")), ("b", note("b")))
        return [kit.attempt(flow, {"n": 1}), kit.state(flow).next]

    same(program)


def test_a_list_with_a_command_for_the_parent(same):
    def program(kit):
        mixed = [kit.Command(update={"log": ["own"]}), kit.Command(graph=kit.Command.PARENT, goto="next")]
        return run(kit, family(kit, mixed, True), {"n": 1, "log": ["in"]})

    same(program)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_line_of_n_nodes_needs_a_limit_of_n_and_what_is_past_it_is_an_error(same, limit):
    def program(kit):
        flow = line(kit, State, *((name, note(name)) for name in "abc"))
        return run(kit, flow, {"n": 1}, config=limited(limit))

    same(program)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(same, limit):
    def program(kit):
        found = kit.attempt(line(kit, State, ("a", note("a"))), {"n": 1}, limited(limit))
        return isinstance(found[1], ValueError)

    assert same(program) is True


def test_a_run_past_its_limit_goes_on_in_the_next_one(same):
    def program(kit):
        flow = line(kit, State, *((name, note(name)) for name in "abcd"))
        return [run(kit, flow, {"n": 1}, config=limited(2)), run(kit, flow, None, config=limited(3))]

    same(program)


def test_a_loop_without_end_is_an_error(same):
    def program(kit):
        graph = graph_of(kit, "a", "b").add_edge(kit.START, "a").add_edge("a", "b").add_edge("b", "a")
        return run(kit, saved(kit, graph), {"n": 1}, config=limited(6))

    same(program)


def test_an_inner_graph_has_the_limit_of_its_run(same):
    def program(kit):
        sub = line(kit, State, *((name, note(name)) for name in "abcd")).builder.compile()
        found = []
        for limit in (2, 4, 5, 6):
            found.append(kit.attempt(line(kit, State, ("sub", sub)), {"n": 1}, limited(limit)))
        return found

    same(program)


@pytest.mark.parametrize("limit", [2, 3, 4, 6])
def test_nodes_know_how_many_steps_remain(same, limit):
    def program(kit):
        class Counted(TypedDict):
            log: Annotated[list, operator.add]
            last: kit.IsLastStep
            left: kit.RemainingSteps

        def look(state):
            return {"log": [[state["last"], state["left"]]]}

        graph = kit.StateGraph(Counted)
        graph.add_node("a", look).add_node("b", look).add_node("c", look)
        graph.add_edge(kit.START, "a").add_edge("a", "b").add_edge("b", "c")
        return run(kit, saved(kit, graph), {"log": []}, config=limited(limit))

    same(program)


def test_a_loop_ends_itself_at_its_last_step(same):
    def program(kit):
        class Counted(TypedDict):
            log: Annotated[list, operator.add]
            left: kit.RemainingSteps

        graph = kit.StateGraph(Counted)
        graph.add_node("a", lambda s: {"log": [s["left"]]})
        graph.add_edge(kit.START, "a")
        graph.add_conditional_edges("a", lambda s: kit.END if s["left"] <= 2 else "a")
        flow = saved(kit, graph)
        return [run(kit, flow, {"log": []}, config=limited(5)), run(kit, flow, {"log": ["again"]}, config=limited(7))]

    same(program)


# ---------------------------------------------------------------- breakpoints


def three(kit, **compiled):
    return line(kit, State, *((name, note(name)) for name in "abc"), **compiled)


STOPS = {
    "before-one": {"interrupt_before": ["b"]},
    "after-one": {"interrupt_after": ["b"]},
    "before-first": {"interrupt_before": ["a"]},
    "after-last": {"interrupt_after": ["c"]},
    "before-two": {"interrupt_before": ["b", "c"]},
    "both": {"interrupt_before": ["b"], "interrupt_after": ["a"]},
    "before-all": {"interrupt_before": "*"},
    "after-all": {"interrupt_after": "*"},
}


@pytest.mark.parametrize("place", ["compile", "invoke"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_run_stops_at_a_node_and_goes_on(same, stop, place):
    def program(kit):
        flow = three(kit, **(STOPS[stop] if place == "compile" else {}))
        more = STOPS[stop] if place == "invoke" else {}
        found = [run(kit, flow, {"n": 1}, **more)]
        for _ in range(7):
            if not kit.state(flow).next:
                break
            found.append(run(kit, flow, None, **more))
        return found

    same(program)


def test_invoke_gives_what_is_there_at_a_stop(same):
    def program(kit):
        flow = three(kit, interrupt_before=["b"], interrupt_after=["b"])
        return [kit.invoke(flow, given) for given in ({"n": 1}, None, None, {"n": 2}, None, None)]

    same(program)


def test_stops_said_at_invoke_replace_those_said_at_compile(same):
    def program(kit):
        flow = three(kit, interrupt_before=["b"])
        return [
            kit.invoke(flow, {"n": 1}, interrupt_before=["c"]),
            kit.state(flow).next,
            kit.invoke(flow, {"n": 1}, interrupt_before=[]),
            kit.state(flow).next,
            kit.invoke(flow, {"n": 1}, interrupt_after=["a"], interrupt_before=[]),
            kit.state(flow).next,
        ]

    same(program)


def test_a_stop_before_one_of_two_nodes_at_once(same):
    def program(kit):
        graph = graph_of(kit, "a", "b", "c").add_edge(kit.START, "a").add_edge(kit.START, "b").add_edge("a", "c")
        found = []
        for stop in ({"interrupt_before": ["a"]}, {"interrupt_after": ["b"]}, {"interrupt_before": ["c"]}):
            flow = saved(kit, graph, **stop)
            found.append(runs(kit, flow, {"n": 1}, None))
        return found

    same(program)


def test_a_stop_in_a_loop(same):
    def program(kit):
        graph = graph_of(kit, "a", "b").add_edge(kit.START, "a").add_edge("a", "b")
        graph.add_conditional_edges("b", lambda s: "a" if len(s["log"]) < 6 else kit.END)
        found = []
        for stop in ({"interrupt_before": ["b"]}, {"interrupt_after": ["a"]}, {"interrupt_after": ["b"]}):
            found.append(runs(kit, saved(kit, graph, **stop), {"n": 1}, None, None, None))
        return found

    same(program)


def test_a_stop_before_what_was_sent(same):
    def program(kit):
        graph = graph_of(kit, "plan")
        graph.add_node("work", lambda item: {"log": [item["n"]]})
        graph.add_edge(kit.START, "plan")
        graph.add_conditional_edges("plan", lambda s: [kit.Send("work", {"n": n}) for n in (1, 2)])
        return runs(kit, saved(kit, graph, interrupt_before=["work"]), {"n": 1}, None)

    same(program)


def test_an_update_at_a_stop_is_seen_by_what_follows(same):
    def program(kit):
        graph = kit.StateGraph(State)
        graph.add_sequence([(name, lambda s, name=name: {"log": [[name, s["n"]]]}) for name in "abc"])
        graph.add_edge(kit.START, "a")
        flow = saved(kit, graph, interrupt_before=["b"])
        kit.invoke(flow, {"n": 1})
        kit.update(flow, {"n": 2, "log": ["update"]})
        between = kit.state(flow)
        return [between, run(kit, flow, None)]

    same(program)


@pytest.mark.parametrize("node", ["a", "b", "c", "__start__"])
def test_an_update_as_another_node_moves_the_thread(same, node):
    def program(kit):
        flow = three(kit, interrupt_before=["b"])
        kit.invoke(flow, {"n": 1})
        told = asked(lambda: kit.update(flow, {"log": ["as"]}, as_node=node))
        return ["raised" if isinstance(told, tuple) else "told", kit.state(flow), run(kit, flow, None)]

    same(program)


def test_a_new_input_at_a_stop_starts_over(same):
    def program(kit):
        flow = three(kit, interrupt_before=["c"])
        return runs(kit, flow, {"n": 1}, {"n": 2}, None)

    same(program)


def test_a_stop_goes_on_with_a_command_too(same):
    def program(kit):
        flow = three(kit, interrupt_before=["b"])
        return [
            run(kit, flow, {"n": 1}),
            run(kit, flow, kit.Command(update={"log": ["more"]})),
            run(kit, flow, {"n": 2}),
            run(kit, flow, kit.Command(goto="c")),
        ]

    same(program)


def test_a_stop_without_a_saver(same):
    def program(kit):
        graph = graph_of(kit, "a", "b").add_edge(kit.START, "a").add_edge("a", "b")
        return kit.attempt(graph.compile(interrupt_before=["b"]), {"n": 1}, {})

    same(program)


# ---------------------------------------------------------------- questions


def test_a_node_asks_and_runs_again_with_the_answer(same):
    def program(kit):
        flow = asking(kit)
        return [*runs(kit, flow, {"n": 1}, kit.Command(resume={"any": ["thing"]})), *runs(kit, flow, {"n": 2})]

    same(program)


def test_invoke_shows_a_question_with_the_state(same):
    def program(kit):
        flow = asking(kit)
        return [kit.invoke(flow, {"n": 1}), kit.invoke(flow, kit.Command(resume="yes"))]

    same(program)


def test_a_node_asks_several_times(same):
    def program(kit):
        ran = []

        def ask(state):
            ran.append("ask")
            return {"log": [kit.interrupt(f"question {i}") for i in range(3)]}

        flow = line(kit, State, ask, ("end", note("end")))
        found = [run(kit, flow, {"n": 1}), *(run(kit, flow, kit.Command(resume=i)) for i in range(3))]
        return [found, ran]

    same(program)


def test_a_question_in_every_turn_of_a_loop(same):
    def program(kit):
        graph = graph_of(kit, "rest")
        graph.add_node("ask", lambda s: {"log": [kit.interrupt(len(s["log"]))]})
        graph.add_edge(kit.START, "ask").add_edge("ask", "rest")
        graph.add_conditional_edges("rest", lambda s: "ask" if "stop" not in s["log"] else kit.END)
        flow = saved(kit, graph)
        return [run(kit, flow, {"n": 1}), *(run(kit, flow, kit.Command(resume=word)) for word in ("go", "go", "stop"))]

    same(program)


def parallel(kit, ran, *names):
    """Nodes at once, of which those called `ask…` ask; then `end`."""
    graph = graph_of(kit, "end")
    for name in names:

        def node(state, name=name):
            ran.append(name)
            return {"log": [[name, kit.interrupt(name)] if name.startswith("ask") else name]}

        graph.add_node(name, node)
        graph.add_edge(kit.START, name).add_edge(name, "end")
    return saved(kit, graph)


def test_a_finished_sibling_does_not_run_again(same):
    def program(kit):
        ran = []
        flow = parallel(kit, ran, "ask", "fine", "good")
        return [run(kit, flow, {"n": 1}), run(kit, flow, kit.Command(resume="yes")), sorted(ran)]

    assert same(program)[-1] == ["ask", "ask", "fine", "good"]


def test_questions_of_parallel_nodes_are_answered_by_id(same):
    def program(kit):
        ran = []
        flow = parallel(kit, ran, "ask1", "ask2", "fine")
        kit.invoke(flow, {"n": 1})
        questions = kit.state(flow).interrupts
        answers = {one.id: f"answer to {one.value}" for one in questions}
        given = kit.invoke(flow, kit.Command(resume=answers))
        return [sorted(one.value for one in questions), given, kit.state(flow), sorted(ran)]

    same(program)


def test_all_questions_of_a_step_are_shown_at_once(both):
    def program(kit):
        return kit.invoke(parallel(kit, [], "ask1", "ask2", "fine"), {"n": 1})["__interrupt__"]

    assert sorted(one["Interrupt"] for one in both(program).ours) == ["ask1", "ask2"]


def test_one_of_two_parallel_questions_is_answered(same):
    def program(kit):
        ran = []
        flow = parallel(kit, ran, "ask1", "ask2")
        kit.invoke(flow, {"n": 1})
        found = []
        while questions := kit.state(flow).interrupts:
            found.append(sorted(one.value for one in questions))
            found.append(kit.invoke(flow, kit.Command(resume={questions[0].id: "yes"})))
        return found

    same(program)


def test_one_answer_for_two_questions_is_refused(same):
    def program(kit):
        flow = parallel(kit, [], "ask1", "ask2")
        kit.invoke(flow, {"n": 1})
        found = kit.attempt(flow, kit.Command(resume="yes"))
        return [found[0], isinstance(found[1], RuntimeError), sorted(one.value for one in kit.state(flow).interrupts)]

    same(program)


def test_questions_of_sent_nodes(same):
    def program(kit):
        work = lambda item: {"log": [kit.interrupt(item["n"])]}  # noqa: E731
        flow = mapping(kit, lambda s: [kit.Send("work", {"n": n}) for n in (1, 2, 3)], work)
        kit.invoke(flow, {"n": 1})
        answers = {one.id: one.value * 100 for one in kit.state(flow).interrupts}
        return [len(answers), kit.invoke(flow, kit.Command(resume=answers)), kit.state(flow)]

    same(program)


def test_a_question_and_a_failure_in_one_step(same):
    def program(kit):
        fails = [True]

        def bad(state):
            if fails:
                raise KeyError("bad")
            return {"log": ["bad"]}

        graph = graph_of(kit, "end")
        graph.add_node("ask", lambda s: {"log": [kit.interrupt("well?")]})
        graph.add_node("bad", bad)
        for name in ("ask", "bad"):
            graph.add_edge(kit.START, name).add_edge(name, "end")
        flow = saved(kit, graph)
        first = kit.attempt(flow, {"n": 1})
        fails.clear()
        return [first, kit.invoke(flow, kit.Command(resume="yes"))]

    same(program)


def test_a_question_in_an_inner_graph(same):
    def program(kit):
        ran = []

        def before(state):
            ran.append("before")
            return {"log": ["before"]}

        sub = line(kit, State, before, ("ask", lambda s: {"log": [kit.interrupt("inside?")]})).builder.compile()
        flow = line(kit, State, ("top", note("top")), ("sub", sub), ("end", note("end")))
        return [kit.invoke(flow, {"n": 1}), kit.state(flow).next, kit.invoke(flow, kit.Command(resume="yes")), ran]

    same(program)


def test_a_new_input_drops_an_open_question(same):
    def program(kit):
        flow = asking(kit)
        return runs(kit, flow, {"n": 1}, {"n": 2}, kit.Command(resume="yes"))

    same(program)


# ---------------------------------------------------------------- failures, retries


def test_a_failed_node_runs_again_and_the_siblings_that_finished_do_not(both):
    def program(kit):
        ran, fails = [], [True]

        def node(name):
            def act(state):
                ran.append(name)
                if name == "bad" and fails:
                    raise KeyError("bad")
                return {"log": [name]}

            return act

        graph = graph_of(kit, "end")
        for name in ("bad", "fine", "good"):
            graph.add_node(name, node(name))
            graph.add_edge(kit.START, name).add_edge(name, "end")
        flow = saved(kit, graph)
        first = kit.attempt(flow, {"n": 1})
        done = kit.state(flow).values["log"]
        fails.clear()
        given = [kit.invoke(flow, None), kit.state(flow).values, kit.state(flow).next]
        return {"given": [first, *given], "done": done, "ran": ran}

    pair = both(program)
    assert pair.ours["given"] == pair.theirs["given"]
    for one in (pair.ours, pair.theirs):
        assert one["ran"].count("bad") == 2
        assert all(one["ran"].count(name) == 1 for name in one["done"])


def test_a_failed_line_goes_on_where_it_failed(same):
    def program(kit):
        fails = [1, 2]

        def bad(state):
            if fails:
                raise KeyError(fails.pop())
            return {"log": ["bad"]}

        flow = line(kit, State, ("a", note("a")), bad, ("c", note("c")))
        return runs(kit, flow, {"n": 1}, None, None)

    same(program)


def test_a_new_input_after_a_failure_starts_over(same):
    def program(kit):
        fails = [1]

        def bad(state):
            if fails:
                raise KeyError(fails.pop())
            return {"log": [state["n"]]}

        return runs(kit, line(kit, State, ("a", note("a")), bad), {"n": 1}, {"n": 2})

    same(program)


def flaky(kit, times, error=ConnectionError, tries=None):
    """A node that fails so often, and counts its tries."""
    tries = [] if tries is None else tries

    def node(state):
        tries.append(len(tries) + 1)
        if len(tries) <= times:
            raise error(f"try {len(tries)}")
        return {"log": [f"try {len(tries)}"]}

    return node


def quick(kit, **said):
    return kit.RetryPolicy(initial_interval=0.0, jitter=False, **said)


@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_node_is_tried_again(same, times):
    def program(kit):
        graph = kit.StateGraph(State)
        graph.add_node("a", flaky(kit, times), retry_policy=quick(kit, max_attempts=3)).add_edge(kit.START, "a")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_the_first_policy_that_fits_the_error_is_taken(same):
    def program(kit):
        found = []
        for error in (KeyError, OSError, ValueError):
            tries = []
            policies = [quick(kit, max_attempts=2, retry_on=KeyError), quick(kit, max_attempts=4, retry_on=(OSError,))]
            graph = kit.StateGraph(State)
            graph.add_node("a", flaky(kit, 9, error, tries), retry_policy=policies).add_edge(kit.START, "a")
            found.append([kit.attempt(saved(kit, graph), {"n": 1}), len(tries)])
        return found

    same(program)


def test_a_node_knows_which_try_it_is(same):
    def program(kit):
        seen = []

        def act(state, runtime):
            seen.append(runtime.execution_info.node_attempt)
            if len(seen) < 3:
                raise ConnectionError
            return {"log": [list(seen)]}

        graph = kit.StateGraph(State)
        graph.add_node("a", act, retry_policy=quick(kit, max_attempts=5)).add_edge(kit.START, "a")
        return kit.invoke(saved(kit, graph), {"n": 1})

    same(program)


@awaited
def test_an_async_node_has_a_timeout(both):
    def program(kit):
        async def slow(state):
            await asyncio.sleep(30)

        graph = kit.StateGraph(State).add_node("slow", slow, timeout=0.02).add_edge(kit.START, "slow")
        return kit.attempt(saved(kit, graph), {"n": 1})

    pair = both(program)
    assert pair.theirs == ("raised", {"error": "NodeTimeoutError"})
    assert pair.ours == ("raised", {"error": "TaskTimeoutError"})


@awaited
def test_a_timeout_is_tried_again(same):
    def program(kit):
        tries = []

        async def slow(state):
            tries.append(1)
            if len(tries) < 3:
                await asyncio.sleep(30)
            return {"log": [len(tries)]}

        graph = kit.StateGraph(State)
        graph.add_node(
            "slow", slow, timeout=kit.TimeoutPolicy(run_timeout=0.02), retry_policy=quick(kit, max_attempts=3)
        )
        graph.add_edge(kit.START, "slow")
        return kit.invoke(saved(kit, graph), {"n": 1})

    same(program)


# ---------------------------------------------------------------- error handlers


def handled(kit, handler, times=9, **node):
    """a fails; what its handler gives takes the place; then b."""
    graph = graph_of(kit, "b", "c")
    graph.add_node("a", flaky(kit, times), error_handler=handler, **node)
    graph.add_edge(kit.START, "a").add_edge("a", "b")
    return saved(kit, graph)


def handlers(kit):
    def tell(state, error: kit.NodeError):
        return {"log": [error.node, type(error.error).__name__, str(error.error), state["n"]]}

    def state_only(state):
        return {"log": ["handled"]}

    def go(state, error: kit.NodeError):
        return kit.Command(update={"log": ["going"]}, goto="c")

    def stop(state, error: kit.NodeError):
        return kit.Command(goto=kit.END)

    def nothing(state, error: kit.NodeError):
        return None

    def fail(state, error: kit.NodeError):
        raise ArithmeticError("the handler")

    def raise_same(state, error: kit.NodeError):
        raise error.error

    def bad_return(state, error: kit.NodeError):
        return 5

    def asks(state, error: kit.NodeError):
        return {"log": [kit.interrupt("what now?")]}

    def with_more(state, error: kit.NodeError, config: kit.Config, runtime: kit.Runtime):
        return {"log": [config["configurable"]["thread_id"], runtime.context]}

    return {name: made for name, made in locals().items() if name != "kit"}


HANDLERS = [
    "tell",
    "state_only",
    "go",
    "stop",
    "nothing",
    "fail",
    "raise_same",
    "bad_return",
    "with_more",
]


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_takes_the_place_of_a_failed_node(same, handler):
    def program(kit):
        return run(kit, handled(kit, handlers(kit)[handler]), {"n": 1})

    same(program)


def test_a_handler_that_asks(same):
    def program(kit):
        flow = handled(kit, handlers(kit)["asks"])
        return [kit.invoke(flow, {"n": 1}), kit.invoke(flow, kit.Command(resume="go on"))]

    same(program)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_handler_runs_after_the_last_try(same, times):
    def program(kit):
        flow = handled(kit, handlers(kit)["tell"], times, retry_policy=quick(kit, max_attempts=2))
        return run(kit, flow, {"n": 1})

    same(program)


def test_a_handler_by_default(same):
    def program(kit):
        found = []
        for own in (None, lambda s: {"log": ["own"]}):
            graph = graph_of(kit, "b")
            graph.set_node_defaults(error_handler=handlers(kit)["tell"])
            graph.add_node("a", flaky(kit, 9), **({"error_handler": own} if own else {}))
            graph.add_edge(kit.START, "a").add_edge("a", "b")
            found.append(run(kit, saved(kit, graph), {"n": 1}))
        return found

    same(program)


def test_a_handler_of_one_of_two_failed_nodes(same):
    def program(kit):
        graph = graph_of(kit, "end", "fine")
        graph.add_node("bad", flaky(kit, 9), error_handler=handlers(kit)["tell"])
        graph.add_edge(kit.START, "bad").add_edge("bad", "end").add_edge(kit.START, "fine")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_handler_of_a_sent_node_sees_what_was_sent(same):
    def program(kit):
        def work(item):
            if item["n"] == 2:
                raise KeyError("two")
            return {"log": [item["n"]]}

        def handle(item, error: kit.NodeError):
            return {"log": [["handled", sorted(item)]]}

        flow = mapping(kit, lambda s: [kit.Send("work", {"n": n}) for n in (1, 2, 3)], work, error_handler=handle)
        return kit.invoke(flow, {"n": 7})

    same(program)


def test_a_question_is_no_failure_for_a_handler(same):
    def program(kit):
        graph = graph_of(kit, "b")
        graph.add_node("a", lambda s: {"log": [kit.interrupt("well?")]}, error_handler=handlers(kit)["tell"])
        graph.add_edge(kit.START, "a").add_edge("a", "b")
        flow = saved(kit, graph)
        return [kit.invoke(flow, {"n": 1}), kit.invoke(flow, kit.Command(resume="yes"))]

    same(program)


# ---------------------------------------------------------------- caches


def test_a_cached_node_does_not_run_again(same):
    def program(kit):
        ran = []

        def slow(state):
            ran.append(state["n"])
            return {"log": [state["n"] * 10]}

        graph = kit.StateGraph(State).add_node("slow", slow, cache_policy=kit.CachePolicy(), input_schema=Item)
        graph.add_edge(kit.START, "slow")
        flow = graph.compile(cache=kit.InMemoryCache())
        found = [kit.stream(flow, {"n": n}, stream_mode="updates") for n in (1, 1, 2, 1)]
        return [found, kit.invoke(flow, {"n": 2}), ran]

    assert same(program)[-1] == [1, 2]


def test_a_cache_key_of_its_own(same):
    def program(kit):
        ran = []

        def slow(state):
            ran.append(state["n"])
            return kit.Command(update={"log": [state["n"]]}, goto="b")

        policy = kit.CachePolicy(key_func=lambda state: str(state["n"] % 2))
        graph = graph_of(kit, "b").add_node("slow", slow, cache_policy=policy).add_edge(kit.START, "slow")
        flow = saved(kit, graph, cache=kit.InMemoryCache())
        return [[kit.stream(flow, {"n": n}, stream_mode="updates") for n in (1, 3, 2)], ran]

    same(program)


def test_a_failed_node_is_not_cached(same):
    def program(kit):
        graph = kit.StateGraph(State)
        graph.add_node("a", flaky(kit, 1), cache_policy=kit.CachePolicy(key_func=lambda s: "one")).add_edge(
            kit.START, "a"
        )
        flow = saved(kit, graph, cache=kit.InMemoryCache())
        return [kit.attempt(flow, {"n": 1}), kit.invoke(flow, {"n": 1}), kit.invoke(flow, {"n": 1})]

    same(program)


# ---------------------------------------------------------------- drains


def drained(kit, flow, input, **more):
    """What a run gives or how it was drained, and what the thread is then."""
    try:
        given = kit.invoke(flow, input, **more)
    except kit.GraphDrained as stop:
        given = ["drained", stop.reason]
    return [given, kit.state(flow), kit.history(flow)]


def test_a_drain_stops_at_the_next_step_and_the_thread_goes_on(same):
    def program(kit):
        control = kit.RunControl()

        def b(state):
            control.request_drain("enough")
            return {"log": ["b"]}

        flow = line(kit, State, ("a", note("a")), b, ("c", note("c")), ("d", note("d")))
        first = drained(kit, flow, {"n": 1}, control=control)
        return [first, control.drain_requested, control.drain_reason, run(kit, flow, None)]

    same(program)


def test_a_drain_in_the_last_step_stops_nothing(same):
    def program(kit):
        control = kit.RunControl()

        def b(state):
            control.request_drain()
            return {"log": ["b"]}

        return drained(kit, line(kit, State, ("a", note("a")), b), {"n": 1}, control=control)

    same(program)


def test_a_drain_asked_before_the_run(same):
    def program(kit):
        control = kit.RunControl()
        control.request_drain("early")
        flow = line(kit, State, ("a", note("a")), ("b", note("b")))
        return [drained(kit, flow, {"n": 1}, control=control), run(kit, flow, None)]

    same(program)


def test_a_drain_asked_by_the_runtime_of_a_node(same):
    def program(kit):
        def a(state, runtime):
            if runtime.control is not None:
                runtime.control.request_drain("from inside")
            return {"log": ["a"]}

        flow = line(kit, State, a, ("b", note("b")))
        return [drained(kit, flow, {"n": 1}, control=kit.RunControl()), kit.invoke(flow, None)]

    same(program)


def test_a_drain_lets_the_siblings_of_its_step_finish(same):
    def program(kit):
        control = kit.RunControl()

        def a(state):
            control.request_drain("now")
            return {"log": ["a"]}

        graph = graph_of(kit, "b", "end").add_node("a", a)
        for name in "ab":
            graph.add_edge(kit.START, name).add_edge(name, "end")
        flow = saved(kit, graph)
        return [drained(kit, flow, {"n": 1}, control=control), run(kit, flow, None)]

    same(program)


# ---------------------------------------------------------------- tasks and flows inside nodes


def test_a_node_calls_tasks(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        def a(state):
            return {"log": [one.result() for one in [double(state["n"]), double(10)]]}

        async def a_awaited(state):
            return {"log": list(await asyncio.gather(double(state["n"]), double(10)))}

        flow = line(kit, State, ("a", a_awaited if kit._is_awaited else a), ("b", note("b")))
        return [kit.invoke(flow, {"n": 4}), kit.state(flow).values, kit.state(flow).next]

    same(program)


def test_a_task_of_a_node_that_asks_runs_once(same):
    def program(kit):
        ran = []

        @kit.task
        def work(n):
            ran.append(n)
            return n * 2

        def a(state):
            return {"log": [work(3).result(), kit.interrupt("well?")]}

        async def a_awaited(state):
            return {"log": [await work(3), kit.interrupt("well?")]}

        flow = line(kit, State, ("a", a_awaited if kit._is_awaited else a))
        return [kit.invoke(flow, {"n": 1}), kit.invoke(flow, kit.Command(resume="yes")), ran]

    assert same(program)[-1] == [3]


def test_a_flow_is_a_node(same):
    def program(kit):
        @kit.entrypoint()
        def flow(state):
            return {"log": ["flow", state["n"]]}

        graph = kit.StateGraph(State).add_node("flow", flow).add_edge(kit.START, "flow")
        return kit.invoke(saved(kit, graph), {"n": 1})

    same(program)


def test_a_flow_is_called_in_a_node(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n):
            return n * 2

        flow_node = line(kit, State, ("a", lambda s: {"log": [flow.invoke(s["n"])]}))
        return kit.invoke(flow_node, {"n": 4})

    same(program)


def test_a_graph_is_called_in_a_flow(same):
    def program(kit):
        inner = graph_of(kit, "x").add_edge(kit.START, "x").compile()

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return inner.invoke({"n": n, "log": []})

        return [kit.invoke(flow, 3), kit.state(flow).values]

    same(program)


def test_what_a_node_is_given_may_be_anything(same):
    def program(kit):
        class Held(TypedDict):
            value: Any
            log: Annotated[list, operator.add]

        flow = line(
            kit, Held, ("a", lambda s: {"value": {"deep": [1, {"x": None}]}}), ("b", lambda s: {"log": [s["value"]]})
        )
        return run(kit, flow, {"value": "text"})

    same(program)
