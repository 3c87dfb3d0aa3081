"""Graphs inside graphs: values, streams, states and questions of every level, equal on both libraries."""

import operator
from typing import Annotated

import pytest
from typing_extensions import TypedDict

MODES = ["values", "updates", "tasks", "checkpoints", "debug", "custom"]
each_mode = pytest.mark.parametrize("mode", MODES)
each_version = pytest.mark.parametrize("version", ["v1", "v2"])


class Log(TypedDict):
    log: Annotated[list, operator.add]


class Text(TypedDict):
    text: str


class Both(TypedDict):
    log: Annotated[list, operator.add]
    text: str


def say(word):
    return lambda state: {"log": [word]}


def child(kit, prefix="c", **options):
    """one → two, each adds its word to `text`."""
    nodes = {
        "one": lambda state: {"text": state["text"] + f" {prefix}1"},
        "two": lambda state: {"text": state["text"] + f" {prefix}2"},
    }
    return kit.graph(Text, nodes, "start one two", **options)


def family(kit, **options):
    """before → sub → after; the child shares `text` with its parent."""
    nodes = {
        "before": lambda state: {"text": state["text"] + " before"},
        "sub": child(kit),
        "after": lambda state: {"text": state["text"] + " after", "log": ["after"]},
    }
    return kit.graph(Both, nodes, "start before sub after", **options)


def three_levels(kit, leaf, **options):
    """top → middle → leaf, where the leaf is a node function."""
    bottom = kit.graph(Text, {"leaf": leaf}, "start leaf")
    middle = kit.graph(Text, {"bottom": bottom}, "start bottom")
    return kit.graph(Text, {"middle": middle}, "start middle", **options)


def asker(kit, name="ask", question="?"):
    def ask(state):
        return {"log": [f"{name} {kit.interrupt(question)}"]}

    return ask


def asking_family(kit, **options):
    """first → sub (hello → ask) → last, with a question in the child."""
    sub = kit.graph(Log, {"hello": say("hello"), "ask": asker(kit)}, "start hello ask")
    return kit.graph(
        Log,
        {"first": say("first"), "sub": sub, "last": say("last")},
        "start first sub last",
        checkpointer=kit.InMemorySaver(),
        **options,
    )


# ---------------------------------------------------------------- a graph as a node


def test_a_child_shares_the_keys_it_knows(same):
    def program(kit):
        flow = family(kit, checkpointer=kit.InMemorySaver())
        return [kit.invoke(flow, {"text": "in"}), kit.state(flow), kit.history(flow)]

    assert same(program)[0] == {"log": ["after"], "text": "in before c1 c2 after"}


def test_a_child_without_a_saver_gives_the_same(same):
    same(lambda kit: kit.invoke(family(kit), {"text": "in"}))


def test_a_child_gives_its_whole_state_to_a_reducer(same):
    """A reducer of the parent gets what the child began with a second time."""

    def program(kit):
        sub = kit.graph(Log, {"a": say("a")}, "start a")
        flow = kit.graph(Log, {"first": say("first"), "sub": sub}, "start first sub", checkpointer=kit.InMemorySaver())
        return [kit.invoke(flow, {"log": ["in"]}), kit.history(flow)]

    assert same(program)[0] == {"log": ["in", "first", "in", "first", "a"]}


def test_a_child_with_schemas_of_its_own(same):
    class Given(TypedDict):
        text: str

    class Found(TypedDict):
        log: list

    def program(kit):
        builder = kit.StateGraph(Both, input_schema=Given, output_schema=Found)
        builder.add_node("work", lambda state: {"log": [state["text"].upper()], "text": "private"})
        builder.add_edge(kit.START, "work")
        flow = kit.graph(Both, {"sub": builder.compile()}, "start sub", checkpointer=kit.InMemorySaver())
        return [
            kit.stream(flow, {"text": "in", "log": ["kept"]}, stream_mode=["updates", "values"], subgraphs=True),
            kit.state(flow),
        ]

    assert same(program)[-1]["StateSnapshot"]["values"] == {"log": ["kept", "IN"], "text": "in"}


def test_a_child_that_shares_no_key_is_a_step_without_news(same):
    class Other(TypedDict):
        other: int

    def program(kit):
        sub = kit.graph(Other, {"work": lambda state: {"other": 1}}, "start work")
        flow = kit.graph(Text, {"sub": sub}, "start sub")
        return kit.stream(flow, {"text": "in"}, stream_mode=["values", "updates"], subgraphs=True)

    same(program)


def test_a_child_called_inside_a_node(same):
    def program(kit):
        sub = child(kit)
        flow = kit.graph(
            Both,
            {"call": lambda state: {"log": [sub.invoke({"text": state["text"]})["text"]]}},
            "start call",
            checkpointer=kit.InMemorySaver(),
        )
        return [
            kit.stream(flow, {"text": "in"}, stream_mode=["values", "updates"], subgraphs=True),
            kit.stream(flow, {"text": "in"}, stream_mode="updates"),
            kit.state(flow),
        ]

    same(program)


def test_two_children_called_inside_one_node(same):
    def program(kit):
        one, two = child(kit, "a"), child(kit, "b")

        def call(state):
            return {"log": [one.invoke({"text": "x"})["text"], two.invoke({"text": "y"})["text"]]}

        flow = kit.graph(Both, {"call": call}, "start call")
        return kit.invoke(flow, {"text": "in"})

    assert same(program)["log"] == ["x a1 a2", "y b1 b2"]


def test_three_levels(same):
    def program(kit):
        flow = three_levels(kit, lambda state: {"text": state["text"] + "!"}, checkpointer=kit.InMemorySaver())
        return [
            kit.stream(flow, {"text": "in"}, stream_mode="values", subgraphs=True),
            kit.stream(flow, {"text": "in"}, stream_mode="tasks", subgraphs=True),
            kit.history(flow),
        ]

    same(program)


def test_two_children_in_parallel(same):
    def program(kit):
        flow = kit.graph(
            Both,
            {
                "left": kit.graph(Log, {"a": say("a")}, "start a"),
                "right": kit.graph(Log, {"b": say("b")}, "start b"),
                "join": say("join"),
            },
            "start left join",
            "start right join",
            checkpointer=kit.InMemorySaver(),
        )
        return [kit.invoke(flow, {"text": "in"}), kit.history(flow)]

    assert same(program)[0]["log"] == ["a", "b", "join"]


def by_graph(chunks):
    """Chunks of each namespace, by the names in it."""
    found = {}
    for ns, *chunk in chunks:
        found.setdefault(tuple(name.partition(":")[0] for name in ns), []).append([ns, *chunk])
    return found


@each_mode
def test_children_in_parallel_stream_alike(same, mode):
    def program(kit):
        nodes = {name: kit.graph(Log, {"say": say(name)}, "start say") for name in ("left", "right")}
        flow = kit.graph(Log, nodes, "start left", "start right", checkpointer=kit.InMemorySaver())
        found = by_graph(kit.stream(flow, {"log": []}, stream_mode=mode, subgraphs=True))
        return {name: chunks for name, chunks in found.items() if name}

    same(program)


def looping(kit, sub):
    def more(state):
        return "sub" if len(state["log"]) < 3 else kit.END

    return kit.graph(
        Both,
        {"sub": sub, "count": lambda state: {"log": [state["text"]]}},
        "start sub count",
        branches={"count": more},
        checkpointer=kit.InMemorySaver(),
    )


def test_a_child_in_a_loop(same):
    def program(kit):
        flow = looping(kit, child(kit))
        return [
            kit.stream(flow, {"text": "in"}, stream_mode=["updates"], subgraphs=True),
            kit.history(flow),
        ]

    same(program)


def test_send_to_a_child(same):
    def program(kit):
        flow = kit.graph(
            Both,
            {"plan": lambda state: {"log": ["plan"]}, "sub": kit.graph(Log, {"a": say("a")}, "start a")},
            "start plan",
            branches={"plan": lambda state: [kit.Send("sub", {"log": [n]}) for n in (1, 2)]},
            checkpointer=kit.InMemorySaver(),
        )
        return [kit.invoke(flow, {"text": "in"}), kit.history(flow)]

    assert same(program)[0]["log"] == ["plan", 1, "a", 2, "a"]


# ---------------------------------------------------------------- streams


@each_mode
@each_version
@pytest.mark.parametrize("subgraphs", [True, False])
def test_families_stream_alike(same, mode, version, subgraphs):
    def program(kit):
        flow = family(kit, checkpointer=kit.InMemorySaver())
        return kit.stream(flow, {"text": "in"}, stream_mode=mode, version=version, subgraphs=subgraphs)

    same(program)


@each_mode
def test_families_without_a_saver_stream_alike(same, mode):
    same(lambda kit: kit.stream(family(kit), {"text": "in"}, stream_mode=mode, subgraphs=True))


@pytest.mark.parametrize("subgraphs", [True, False])
@each_version
def test_a_child_writes_to_the_custom_stream(same, subgraphs, version):
    def program(kit):
        def talk(state):
            kit.get_stream_writer()("deep")

        flow = three_levels(kit, talk)
        return kit.stream(flow, {"text": "in"}, stream_mode="custom", subgraphs=subgraphs, version=version)

    same(program)


@each_mode
@each_version
def test_a_question_in_a_child_streams_alike(same, mode, version):
    def program(kit):
        flow = asking_family(kit)
        options = {"stream_mode": mode, "version": version, "subgraphs": True}
        return [kit.stream(flow, {"log": []}, **options), kit.stream(flow, kit.Command(resume="yes"), **options)]

    same(program)


@each_mode
def test_a_failing_child_streams_alike(same, mode):
    def program(kit):
        def fail(state):
            raise LookupError("deep")

        flow = three_levels(kit, fail, checkpointer=kit.InMemorySaver())
        return kit.stream(flow, {"text": "in"}, stream_mode=mode, subgraphs=True)

    same(program)


# ---------------------------------------------------------------- what a child remembers


class Count(TypedDict):
    total: Annotated[int, operator.add]
    seen: Annotated[list, operator.add]


def remembering(kit, checkpointer):
    """A child that counts its runs, called by a node of its parent."""
    sub = kit.graph(Count, {"add": lambda state: {"total": 1}}, "start add", checkpointer=checkpointer)

    def call(state):
        return {"seen": [sub.invoke({"total": 0})["total"]]}

    return kit.graph(Count, {"call": call}, "start call", checkpointer=kit.InMemorySaver())


@pytest.mark.parametrize("checkpointer", [None, True, False])
def test_a_child_remembers_earlier_runs_only_with_true(same, checkpointer):
    def program(kit):
        flow = remembering(kit, checkpointer)
        return [kit.invoke(flow, {"total": 0})["seen"] for _ in range(3)]

    assert same(program)[-1] == ([1, 2, 3] if checkpointer else [1, 1, 1])


def test_threads_of_a_remembering_child_are_its_parents(same):
    def program(kit):
        flow = remembering(kit, True)
        configs = [{"configurable": {"thread_id": name}} for name in "aba"]
        return [kit.invoke(flow, {"total": 0}, config)["seen"] for config in configs]

    assert same(program) == [[1], [1], [1, 2]]


@pytest.mark.parametrize("checkpointer", [None, True, False])
def test_a_node_that_is_a_graph_remembers_only_with_true(same, checkpointer):
    class Parent(TypedDict):
        total: int

    def program(kit):
        sub = kit.graph(Count, {"add": lambda state: {"total": 1}}, "start add", checkpointer=checkpointer)
        flow = kit.graph(Parent, {"sub": sub}, "start sub", checkpointer=kit.InMemorySaver())
        return [kit.invoke(flow, {"total": 0}) for _ in range(3)] + [kit.history(flow)]

    assert same(program)[2] == {"total": 3 if checkpointer else 1}


def test_a_remembering_child_in_a_loop(same):
    def program(kit):
        sub = kit.graph(Count, {"add": lambda state: {"total": 1}}, "start add", checkpointer=True)

        class Parent(TypedDict):
            total: int
            log: Annotated[list, operator.add]

        flow = kit.graph(
            Parent,
            {"sub": sub, "note": lambda state: {"log": [state["total"]], "total": 0}},
            "start sub note",
            branches={"note": lambda state: "sub" if len(state["log"]) < 3 else kit.END},
            checkpointer=kit.InMemorySaver(),
        )
        return [kit.invoke(flow, {"total": 0}), kit.stream(flow, {"total": 0}, stream_mode="updates", subgraphs=True)]

    same(program)


def test_a_child_that_never_saves_asks_from_its_beginning(same):
    def program(kit):
        runs = []

        def hello(state):
            runs.append("hello")

        sub = kit.graph(Log, {"hello": hello, "ask": asker(kit)}, "start hello ask", checkpointer=False)
        flow = kit.graph(Log, {"sub": sub}, "start sub", checkpointer=kit.InMemorySaver())
        return [kit.attempt(flow, {"log": []}), kit.attempt(flow, kit.Command(resume="yes")), runs]

    assert same(program)[1:] == [{"log": ["ask yes"]}, ["hello", "hello"]]


def test_a_root_graph_cannot_be_told_to_use_its_parents_saver(same):
    def program(kit):
        with pytest.raises((RuntimeError, ValueError)):
            kit.invoke(child(kit, checkpointer=True), {"text": "in"})

    same(program)


# ---------------------------------------------------------------- states of children


def test_the_state_of_a_due_child_is_named_by_its_config(same):
    def program(kit):
        flow = asking_family(kit)
        kit.invoke(flow, {"log": []})
        state = kit.state(flow)
        where = state.tasks[0].state
        return [state, where, kit.state(flow, where), kit.history(flow, where)]

    same(program)


def test_the_states_of_children_on_request(same):
    def program(kit):
        flow = asking_family(kit)
        kit.invoke(flow, {"log": []})
        asked = kit.state(flow, subgraphs=True)
        kit.invoke(flow, kit.Command(resume="yes"))
        return [asked, kit.state(flow, subgraphs=True)]

    same(program)


def test_the_states_of_every_level_on_request(same):
    def program(kit):
        def ask(state):
            return {"text": kit.interrupt("deep?")}

        flow = three_levels(kit, ask, checkpointer=kit.InMemorySaver())
        kit.invoke(flow, {"text": "in"})
        whole = kit.state(flow, subgraphs=True)
        middle = whole.tasks[0].state
        inner = [kit.state(flow, one.config) for one in (middle, middle.tasks[0].state)]
        return [whole, [(one.values, one.next, one.metadata, one.parent_config, one.tasks) for one in inner]]

    same(program)


def test_the_checkpoints_of_a_child_name_their_parents(same):
    def program(kit):
        def ask(state):
            return {"text": kit.interrupt("deep?")}

        flow = three_levels(kit, ask, checkpointer=kit.InMemorySaver())
        kit.invoke(flow, {"text": "in"})
        middle = kit.state(flow).tasks[0].state
        bottom = kit.state(flow, middle).tasks[0].state
        return [[(one.config, one.metadata) for one in kit.history(flow, where)] for where in (middle, bottom)]

    same(program)


def test_a_finished_child_leaves_a_history_under_its_namespace(same):
    def program(kit):
        flow = family(kit, checkpointer=kit.InMemorySaver())
        chunks = kit.stream(flow, {"text": "in"}, stream_mode="updates", subgraphs=True)
        ns = next(ns for ns, _ in chunks if ns)[0]
        return kit.history(flow, {"configurable": {"thread_id": "t", "checkpoint_ns": ns}})

    same(program)


def test_the_state_of_a_child_that_remembers(same):
    def program(kit):
        sub = kit.graph(Log, {"ask": asker(kit)}, "start ask", checkpointer=True)
        flow = kit.graph(Log, {"sub": sub}, "start sub", checkpointer=kit.InMemorySaver())
        kit.invoke(flow, {"log": []})
        asked = kit.state(flow, subgraphs=True)
        kit.invoke(flow, kit.Command(resume="yes"))
        return [asked, kit.state(flow, {"configurable": {"thread_id": "t", "checkpoint_ns": "sub"}})]

    same(program)


def test_an_update_of_a_childs_state_is_seen_when_it_goes_on(same):
    def program(kit):
        flow = asking_family(kit)
        kit.invoke(flow, {"log": []})
        where = kit.state(flow).tasks[0].state
        updated = kit.update(flow, {"log": ["by hand"]}, where)
        return [updated, kit.state(flow, where), kit.state(flow), kit.invoke(flow, kit.Command(resume="yes"))]

    same(program)


def test_an_update_of_a_childs_state_may_answer_for_its_node(same):
    def program(kit):
        flow = asking_family(kit)
        kit.invoke(flow, {"log": []})
        where = kit.state(flow).tasks[0].state
        kit.update(flow, {"log": ["for ask"]}, where, as_node="ask")
        return [kit.state(flow, subgraphs=True), kit.invoke(flow, None), kit.state(flow)]

    same(program)


def test_an_update_of_the_parent_may_stand_for_the_child(same):
    def program(kit):
        flow = asking_family(kit)
        kit.invoke(flow, {"log": []})
        kit.update(flow, {"log": ["for sub"]}, as_node="sub")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    assert same(program)[1] == {"log": ["first", "for sub", "last"]}


def paused_in_a_child(kit, checkpointer=None):
    """A family whose child waits with a question, and where the child keeps its state."""
    sub = kit.graph(Log, {"one": say("one"), "ask": asker(kit)}, "start one ask", checkpointer=checkpointer)
    nodes = {"first": say("first"), "sub": sub, "last": say("last")}
    flow = kit.graph(Log, nodes, "start first sub last", checkpointer=kit.InMemorySaver())
    kit.invoke(flow, {"log": []})
    place = kit.state(flow, subgraphs=True).tasks[0].state.config["configurable"]["checkpoint_ns"]
    return flow, {"configurable": {"thread_id": "t", "checkpoint_ns": place}}


@pytest.mark.parametrize("due", ["__start__", "one", "ask"])
@pytest.mark.parametrize("is_answered", [False, True])
def test_a_run_from_a_checkpoint_of_a_child_is_one_of_its_parent(same, due, is_answered):
    def program(kit):
        flow, where = paused_in_a_child(kit)
        old = next(one for one in kit.history(flow, where) if one.next == (due,))
        if is_answered:
            kit.invoke(flow, kit.Command(resume="yes"))
        return [
            kit.invoke(flow, None, old.config),
            kit.invoke(flow, kit.Command(resume="other")),
            [(one.values, one.next) for one in kit.history(flow)],
        ]

    assert same(program)[1]["log"] == ["first", "first", "one", "ask other", "last"]


@pytest.mark.parametrize("due", ["one", "ask"])
def test_a_run_from_a_checkpoint_of_a_remembering_child_goes_on_there(same, due):
    def program(kit):
        flow, where = paused_in_a_child(kit, checkpointer=True)
        kit.invoke(flow, kit.Command(resume="yes"))
        old = next(one for one in kit.history(flow, where) if one.next == (due,))
        updates = kit.stream(flow, None, old.config, stream_mode="updates", subgraphs=True)
        return [updates, kit.invoke(flow, kit.Command(resume="other"))]

    same(program)


def test_a_fork_of_a_child_is_kept_when_its_parent_goes_on(both):
    """LangGraph forks the parent, too, which gives the child a new place, and forgets the edit."""

    def program(kit):
        flow, where = paused_in_a_child(kit)
        old = next(one for one in kit.history(flow, where) if one.next == ("one",))
        fork = kit.update(flow, {"log": ["fork"]}, old.config)
        kit.invoke(flow, None, fork)
        return kit.invoke(flow, kit.Command(resume="yes"))["log"]

    pair = both(program)
    assert pair.theirs == ["first", "first", "one", "ask yes", "last"]
    assert pair.ours == ["first", "first", "fork", "one", "ask yes", "last"]


def test_a_fork_of_a_remembering_child_is_kept_when_its_parent_goes_on(same):
    def program(kit):
        flow, where = paused_in_a_child(kit, checkpointer=True)
        old = next(one for one in kit.history(flow, where) if one.next == ("one",))
        fork = kit.update(flow, {"log": ["fork"]}, old.config)
        return [kit.attempt(flow, None, fork), kit.attempt(flow, kit.Command(resume="yes"))]

    same(program)


# ---------------------------------------------------------------- questions and failures inside


def test_an_answer_reaches_a_child(same):
    def program(kit):
        flow = asking_family(kit)
        return [kit.invoke(flow, {"log": []}), kit.invoke(flow, kit.Command(resume="yes"))]

    assert same(program)[1]["log"] == ["first", "first", "hello", "ask yes", "last"]


def test_an_answer_reaches_through_three_levels(same):
    def program(kit):
        runs = []

        def ask(state):
            runs.append("ask")
            return {"text": kit.interrupt("first") + kit.interrupt("second")}

        flow = three_levels(kit, ask, checkpointer=kit.InMemorySaver())
        return [
            kit.invoke(flow, {"text": "in"}),
            kit.invoke(flow, kit.Command(resume="a")),
            kit.invoke(flow, kit.Command(resume="b")),
            runs,
        ]

    assert same(program)[2:] == [{"text": "ab"}, ["ask"] * 3]


def test_an_answer_reaches_a_child_called_inside_a_node(same):
    def program(kit):
        runs = []

        def work(state):
            runs.append("work")
            return {"log": ["work"]}

        sub = kit.graph(Log, {"work": work, "ask": asker(kit)}, "start work ask")

        def call(state):
            runs.append("call")
            return {"log": sub.invoke({"log": []})["log"]}

        flow = kit.graph(Log, {"call": call}, "start call", checkpointer=kit.InMemorySaver())
        return [kit.invoke(flow, {"log": []}), kit.invoke(flow, kit.Command(resume="yes")), runs]

    assert same(program)[1:] == [{"log": ["work", "ask yes"]}, ["call", "work", "call"]]


def test_questions_of_two_children_are_answered_by_id(same):
    def program(kit):
        nodes = {n: kit.graph(Log, {"ask": asker(kit, n, f"{n}?")}, "start ask") for n in ("left", "right")}
        flow = kit.graph(Log, nodes, "start left", "start right", checkpointer=kit.InMemorySaver())
        asked = kit.invoke(flow, {"log": []})
        questions = sorted(asked["__interrupt__"], key=lambda one: one.value)
        answers = {one.id: f"yes to {one.value}" for one in questions}
        return [questions, kit.invoke(flow, kit.Command(resume=answers)), kit.state(flow)]

    assert same(program)[1] == {"log": ["left yes to left?", "right yes to right?"]}


def test_questions_of_two_children_are_answered_one_by_one(same):
    def program(kit):
        nodes = {n: kit.graph(Log, {"ask": asker(kit, n, f"{n}?")}, "start ask") for n in ("left", "right")}
        flow = kit.graph(Log, nodes, "start left", "start right", checkpointer=kit.InMemorySaver())
        asked = kit.invoke(flow, {"log": []})
        left, right = sorted(asked["__interrupt__"], key=lambda one: one.value)
        half = kit.invoke(flow, kit.Command(resume={right.id: "first"}))
        return [half, kit.state(flow), kit.invoke(flow, kit.Command(resume={left.id: "then"}))]

    assert same(program)[2] == {"log": ["left then", "right first"]}


def test_questions_of_children_sent_to(same):
    def program(kit):
        def ask(state):
            return {"log": [kit.interrupt(state["log"][0])]}

        flow = kit.graph(
            Log,
            {"plan": say("plan"), "sub": kit.graph(Log, {"ask": ask}, "start ask")},
            "start plan",
            branches={"plan": lambda state: [kit.Send("sub", {"log": [n]}) for n in (1, 2)]},
            checkpointer=kit.InMemorySaver(),
        )
        asked = kit.invoke(flow, {"log": []})["__interrupt__"]
        answers = {one.id: one.value * 10 for one in asked}
        return [sorted(one.value for one in asked), kit.invoke(flow, kit.Command(resume=answers))]

    assert same(program) == [[1, 2], {"log": ["plan", 1, 10, 2, 20]}]


def test_a_child_may_pause_before_a_node(same):
    def program(kit):
        nodes = {"one": say("one"), "two": say("two")}
        sub = kit.graph(Log, nodes, "start one two", interrupt_before=["two"])
        flow = kit.graph(Log, {"sub": sub}, "start sub", checkpointer=kit.InMemorySaver())
        return [
            kit.stream(flow, {"log": []}, stream_mode=["values", "updates"], subgraphs=True),
            kit.state(flow, subgraphs=True),
            kit.stream(flow, None, stream_mode=["values", "updates"], subgraphs=True),
        ]

    same(program)


def test_a_failed_child_goes_on_where_it_failed(same):
    def program(kit):
        runs, fail = [], [True]

        def fine(state):
            runs.append("fine")
            return {"log": ["fine"]}

        def flaky(state):
            runs.append("flaky")
            if fail:
                raise LookupError("flaky")
            return {"log": ["flaky"]}

        sub = kit.graph(Log, {"fine": fine, "flaky": flaky}, "start fine flaky")
        flow = kit.graph(Log, {"first": say("first"), "sub": sub}, "start first sub", checkpointer=kit.InMemorySaver())
        failed = kit.attempt(flow, {"log": []})
        state = kit.state(flow, subgraphs=True)
        fail.clear()
        return [failed, state, kit.invoke(flow, None), runs]

    assert same(program)[3] == ["fine", "flaky", "flaky"]


def test_the_question_of_a_child_is_asked_again_by_a_replay_of_its_parent(same):
    def program(kit):
        flow = asking_family(kit)
        kit.invoke(flow, {"log": []})
        kit.invoke(flow, kit.Command(resume="yes"))
        old = next(one for one in kit.history(flow) if one.next == ("sub",))
        return [
            kit.invoke(flow, None, old.config),
            kit.invoke(flow, kit.Command(resume="other")),
            [(one.next, one.metadata["source"], one.values) for one in kit.history(flow)],
        ]

    same(program)


# ---------------------------------------------------------------- leaving a child


def test_a_child_may_send_its_parent_on(same):
    def program(kit):
        def leave(state):
            return kit.Command(graph=kit.Command.PARENT, goto="there", update={"log": ["leave"]})

        sub = kit.graph(Log, {"leave": leave, "never": say("never")}, "start leave never")
        flow = kit.graph(
            Log,
            {"sub": sub, "there": say("there"), "other": say("other")},
            "start sub",
            checkpointer=kit.InMemorySaver(),
        )
        return [
            kit.stream(flow, {"log": ["in"]}, stream_mode=["updates", "values"], subgraphs=True),
            kit.history(flow),
        ]

    same(program)


def test_a_command_for_a_parent_that_is_not_there(same):
    def program(kit):
        flow = kit.graph(Log, {"a": lambda state: kit.Command(graph=kit.Command.PARENT, goto="b")}, "start a")
        found = kit.attempt(flow, {"log": []})
        return found[0] == "raised" and isinstance(found[1], kit.ParentCommand)

    assert same(program) is True


# ---------------------------------------------------------------- which graphs there are


@pytest.mark.parametrize("recurse", [False, True])
@pytest.mark.parametrize("namespace", [None, "middle", "middle|bottom", "nowhere"])
def test_the_graphs_inside(same, recurse, namespace):
    def program(kit):
        flow = three_levels(kit, lambda state: None)
        return sorted(name for name, _ in flow.get_subgraphs(namespace=namespace, recurse=recurse))

    same(program)


def test_the_graph_that_a_node_calls_is_inside_too(same):
    def program(kit):
        sub = child(kit)
        flow = kit.graph(Text, {"call": lambda state: sub.invoke(state)}, "start call")
        return [name for name, _ in flow.get_subgraphs()]

    assert same(program) == ["call"]


# ---------------------------------------------------------------- graphs and functions


def test_a_function_inside_a_node(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint()
        def inner(n):
            return double(n).result() + 1

        flow = kit.graph(
            Log, {"call": lambda state: {"log": [inner.invoke(3)]}}, "start call", checkpointer=kit.InMemorySaver()
        )
        return [
            kit.stream(flow, {"log": []}, stream_mode=["values", "updates"]),
            kit.stream(flow, {"log": []}, stream_mode="updates", subgraphs=True),
        ]

    same(program)


def test_a_graph_inside_a_task(same):
    def program(kit):
        sub = child(kit)

        @kit.task
        def call(text):
            return sub.invoke({"text": text})["text"]

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(text):
            return call(text).result() + " end"

        return [
            kit.stream(flow, "in", stream_mode="updates"),
            kit.stream(flow, "in", stream_mode="updates", subgraphs=True),
        ]

    same(program)


def test_a_graph_inside_a_function_asks(same):
    def program(kit):
        sub = kit.graph(Log, {"hello": say("hello"), "ask": asker(kit)}, "start hello ask")

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(word):
            return [word, *sub.invoke({"log": []})["log"]]

        return [
            kit.stream(flow, "in", stream_mode="updates", subgraphs=True),
            kit.stream(flow, kit.Command(resume="yes"), stream_mode="updates", subgraphs=True),
        ]

    same(program)


def test_a_function_as_a_node(same):
    def program(kit):
        @kit.entrypoint()
        def inner(state):
            return {"log": [len(state["log"])]}

        flow = kit.graph(Log, {"inner": inner, "last": say("last")}, "start inner last")
        return kit.stream(flow, {"log": ["in"]}, stream_mode=["values", "updates"], subgraphs=True)

    same(program)


def test_tasks_inside_a_node_of_a_child_do_not_run_again(same):
    def program(kit):
        runs = []

        @kit.task
        def once(n):
            runs.append(n)
            return n

        def ask(state):
            return {"log": [once(1).result(), kit.interrupt("?")]}

        sub = kit.graph(Log, {"ask": ask}, "start ask")
        flow = kit.graph(Log, {"sub": sub}, "start sub", checkpointer=kit.InMemorySaver())
        kit.invoke(flow, {"log": []})
        return [kit.invoke(flow, kit.Command(resume="yes")), runs]

    assert same(program) == [{"log": [1, "yes"]}, [1]]
