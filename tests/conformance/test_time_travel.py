"""A graph's past, looked at, run again and edited: states, histories and answers are equal on both libraries."""

import operator
from typing import Annotated

import pytest
from typing_extensions import TypedDict

NODES = ["a", "b", "c"]


class Log(TypedDict):
    log: Annotated[list, operator.add]
    last: str


def step(name, runs=None):
    def run(state):
        if runs is not None:
            runs.append(name)
        return {"log": [name], "last": name}

    return run


def line(kit, runs=None, **options):
    """a → b → c."""
    options = {"checkpointer": kit.InMemorySaver(), **options}
    return kit.graph(Log, {name: step(name, runs) for name in NODES}, "start a b c end", **options)


def diamond(kit, runs=None, fail=()):
    """a → (b, c) → d; c raises while `fail` has something, once the writes of b are kept."""

    def node(name):
        def run(state):
            if name == "c" and fail:
                kit.wait_for(flow, "b")
                raise LookupError("c")
            if runs is not None:
                runs.append(name)
            return {"log": [name]}

        return run

    flow = kit.graph(
        Log, {name: node(name) for name in "abcd"}, "start a b d", "a c d", checkpointer=kit.InMemorySaver()
    )
    return flow


def asking(kit, runs=None):
    """first → ask → done."""

    def ask(state):
        if runs is not None:
            runs.append("ask")
        return {"log": [kit.interrupt({"after": state["last"]})]}

    nodes = {"first": step("first", runs), "ask": ask, "done": step("done", runs)}
    return kit.graph(Log, nodes, "start first ask done", checkpointer=kit.InMemorySaver())


def choosing(kit):
    """choose → left or right, by what `last` says; right → end."""
    return kit.graph(
        Log,
        {"choose": step("left"), "left": step("in left"), "right": step("in right")},
        "start choose",
        branches={"choose": lambda state: state["last"]},
        checkpointer=kit.InMemorySaver(),
    )


def told(states):
    """Of each checkpoint, what it holds, what is due, and how it came to be."""
    return [(one.values, one.next, one.metadata, [task.name for task in one.tasks]) for one in states]


def done(states):
    """Of each checkpoint, what became of what was due."""
    return [[(task.name, task.error, task.result) for task in one.tasks] for one in states]


def at(kit, flow, *due):
    """The newest checkpoint at which these nodes are due."""
    return next(one for one in kit.history(flow) if one.next == due)


# ---------------------------------------------------------------- looking


def test_the_history_of_two_runs(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, {"log": ["again"]})
        return kit.history(flow)

    assert len(same(program)) == 10


def test_nodes_due_and_done_at_every_checkpoint(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        return [one.next for one in kit.history(flow)]

    assert same(program) == [(), ("c",), ("b",), ("a",), ("__start__",)]


@pytest.mark.parametrize("filter", [{"source": "loop"}, {"source": "input"}, {"source": "update"}, {"step": 1}])
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_the_history_is_filtered_and_limited(same, filter, limit):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["by hand"]})
        kit.invoke(flow, {"log": ["again"]})
        return told(kit.history(flow, filter=filter, limit=limit))

    same(program)


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_the_history_begins_before_a_checkpoint(same, limit):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        return [told(kit.history(flow, before=one.config, limit=limit)) for one in kit.history(flow)]

    same(program)


def test_each_old_checkpoint_shows_its_state(same):
    def program(kit):
        flow = diamond(kit)
        kit.invoke(flow, {"log": ["in"]})
        return [kit.state(flow, one.config) for one in kit.history(flow)]

    same(program)


def test_a_state_needs_a_saver(same):
    def program(kit):
        with pytest.raises(ValueError):
            kit.state(line(kit, checkpointer=None))

    same(program)


def test_the_state_of_a_new_thread(same):
    same(lambda kit: [kit.state(line(kit)), kit.history(line(kit))])


# ---------------------------------------------------------------- running again


@pytest.mark.parametrize("index", range(5))
def test_a_run_goes_on_from_any_checkpoint(same, index):
    def program(kit):
        runs = []
        flow = line(kit, runs)
        kit.invoke(flow, {"log": ["in"]})
        old = kit.history(flow)[index]
        runs.clear()
        return [kit.stream(flow, None, old.config, stream_mode=["values", "updates"]), runs, kit.history(flow)]

    assert same(program)[1] == NODES[max(0, len(NODES) - index) :]


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("mode", ["tasks", "checkpoints", "debug"])
def test_a_replay_streams_alike(same, index, mode):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        return kit.stream(flow, None, kit.history(flow)[index].config, stream_mode=mode)

    same(program)


def test_a_replay_of_parallel_nodes_runs_them_again(same):
    def program(kit):
        runs = []
        flow = diamond(kit, runs)
        kit.invoke(flow, {"log": ["in"]})
        old = at(kit, flow, "b", "c")
        runs.clear()
        return [kit.invoke(flow, None, old.config), sorted(runs), told(kit.history(flow))]

    assert same(program)[1] == ["b", "c", "d"]


def test_a_replay_of_a_replay(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        for _ in range(2):
            kit.invoke(flow, None, at(kit, flow, "c").config)
        return kit.history(flow)

    same(program)


def test_a_new_input_at_an_old_checkpoint_starts_from_its_state(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        old = at(kit, flow, "b")
        return [kit.invoke(flow, {"log": ["new"]}, old.config), kit.history(flow)]

    assert same(program)[0]["log"] == ["in", "a", "new", "a", "b", "c"]


def test_a_new_input_after_a_fork(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        fork = kit.update(flow, {"log": ["fork"]}, at(kit, flow, "b").config)
        return [kit.invoke(flow, {"log": ["new"]}), kit.state(flow, fork), kit.history(flow)]

    assert same(program)[0]["log"] == ["in", "a", "fork", "new", "a", "b", "c"]


def test_a_command_at_an_old_checkpoint_sends_on_beside_what_is_due(same):
    def program(kit):
        nodes = {name: lambda state, name=name: {"log": [name]} for name in NODES}
        flow = kit.graph(Log, nodes, "start a b c", checkpointer=kit.InMemorySaver())
        kit.invoke(flow, {"log": ["in"]})
        old = at(kit, flow, "b")
        command = kit.Command(update={"log": ["told"]}, goto="c")
        return [kit.invoke(flow, command, old.config), kit.history(flow)]

    assert same(program)[0]["log"] == ["in", "a", "told", "b", "c", "c"]


def test_a_run_from_a_checkpoint_that_is_not_there(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        nowhere = {"configurable": {"thread_id": "t", "checkpoint_id": "1f000000-0000-6000-8000-000000000000"}}
        return kit.attempt(flow, None, nowhere)[0] == "raised"

    assert same(program) is True


# ---------------------------------------------------------------- forks by update


@pytest.mark.parametrize("index", range(5))
def test_a_fork_at_any_checkpoint_goes_on_from_there(same, index):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        fork = kit.update(flow, {"log": ["fork"]}, kit.history(flow)[index].config)
        return [fork, kit.state(flow), kit.invoke(flow, None, fork), told(kit.history(flow))]

    same(program)


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("node", NODES)
def test_a_fork_as_any_node(same, index, node):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        fork = kit.update(flow, {"log": ["fork"]}, kit.history(flow)[index].config, as_node=node)
        return [kit.state(flow), kit.invoke(flow, None, fork), told(kit.history(flow))]

    same(program)


def test_the_first_branch_can_still_be_read(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        end = kit.state(flow)
        kit.update(flow, {"log": ["fork"]}, at(kit, flow, "b").config)
        return [kit.state(flow, end.config), kit.state(flow)]

    same(program)


def test_a_forked_checkpoint_still_shows_what_its_tasks_wrote(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        old = at(kit, flow, "b")
        kit.update(flow, {"log": ["fork"]}, old.config, as_node="b")
        return [done(kit.history(flow)), done([kit.state(flow, old.config)])]

    same(program)


# ---------------------------------------------------------------- updates by hand


@pytest.mark.parametrize("node", [*NODES, None])
def test_an_update_of_a_finished_thread(same, node):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["by hand"], "last": "hand"}, as_node=node)
        return [kit.state(flow), kit.stream(flow, None, stream_mode="updates"), kit.state(flow)]

    same(program)


@pytest.mark.parametrize("node", [*NODES, "__start__"])
def test_an_update_of_a_new_thread(same, node):
    def program(kit):
        flow = line(kit)
        kit.update(flow, {"log": ["by hand"]}, as_node=node)
        return [kit.state(flow), kit.attempt(flow, None), kit.history(flow)]

    same(program)


def test_an_update_of_a_new_thread_whose_node_is_not_told(same):
    """Of a thread that nobody ran, no node was the last."""

    def program(kit):
        flow = line(kit)
        try:
            kit.update(flow, {"log": ["by hand"]})
        except Exception as error:
            return isinstance(error, kit.InvalidUpdateError)
        return [kit.state(flow), kit.attempt(flow, None), kit.history(flow)]

    same(program)


def test_an_update_of_a_graph_of_one_node_needs_no_name(same):
    def program(kit):
        flow = kit.graph(Log, {"only": step("only")}, "start only", checkpointer=kit.InMemorySaver())
        kit.update(flow, {"log": ["by hand"]})
        return [kit.state(flow), kit.attempt(flow, None), kit.history(flow)]

    same(program)


@pytest.mark.parametrize("is_paused", [True, False])
def test_an_update_as_end_clears_what_is_due(same, is_paused):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        if not is_paused:
            kit.invoke(flow, kit.Command(resume="yes"))
        kit.update(flow, None, as_node=kit.END)
        return [kit.state(flow), kit.invoke(flow, None), told(kit.history(flow))]

    same(program)


def test_an_update_as_end_at_an_old_checkpoint(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, None, at(kit, flow, "b").config, as_node=kit.END)
        return [kit.state(flow), kit.history(flow)]

    same(program)


def test_an_update_as_end_takes_no_values(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        with pytest.raises((kit.InvalidUpdateError, ValueError)):
            kit.update(flow, {"log": ["x"]}, as_node=kit.END)

    same(program)


@pytest.mark.parametrize("is_new", [True, False])
def test_an_update_as_input_starts_anew(same, is_new):
    def program(kit):
        flow = line(kit)
        if not is_new:
            kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["by hand"]}, as_node="__input__")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_an_update_as_input_that_is_none(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        try:
            kit.update(flow, None, as_node="__input__")
        except (kit.InvalidUpdateError, ValueError):
            return "refused"
        return [kit.state(flow), kit.attempt(flow, None)]

    same(program)


@pytest.mark.parametrize("due", [(), ("b",), ("__start__",)])
def test_a_copy_of_a_checkpoint_goes_on(same, due):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        copy = kit.update(flow, None, at(kit, flow, *due).config, as_node="__copy__")
        return [copy, kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_a_copy_with_values_for_its_tasks(same):
    """Values of a copy are updates, as (values, node) pairs, of the checkpoint it copies."""

    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, [({"log": ["copied"]}, "a")], at(kit, flow, "b").config, as_node="__copy__")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_a_copy_of_an_open_question_asks_it_again(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, None, as_node="__copy__")
        return [
            told([kit.state(flow)]),
            kit.invoke(flow, None),
            kit.invoke(flow, kit.Command(resume="yes")),
        ]

    same(program)


def test_an_update_as_nobody_is_refused(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        with pytest.raises((kit.InvalidUpdateError, ValueError)):
            kit.update(flow, {"log": ["x"]}, as_node="nobody")

    same(program)


def test_an_update_after_parallel_nodes_must_say_whose_it_is(same):
    def program(kit):
        flow = kit.graph(
            Log,
            {n: lambda state: {"log": ["x"]} for n in "ab"},
            "start a",
            "start b",
            checkpointer=kit.InMemorySaver(),
        )
        kit.invoke(flow, {"log": []})
        with pytest.raises(kit.InvalidUpdateError):
            kit.update(flow, {"log": ["by hand"]})
        kit.update(flow, {"log": ["by hand"]}, as_node="a")
        return kit.state(flow)

    same(program)


def test_an_update_as_one_of_nodes_that_meet(same):
    """An edge from each: either update makes the meeting due."""

    def program(kit):
        flow = diamond(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["for b"]}, as_node="b")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_an_update_as_one_of_nodes_that_wait_for_each_other(same):
    def program(kit):
        builder = kit.StateGraph(Log)
        for name in "abc":
            builder.add_node(name, step(name) if name == "c" else lambda state: {"log": ["x"]})
        builder.add_edge(kit.START, "a")
        builder.add_edge(kit.START, "b")
        builder.add_edge(["a", "b"], "c")
        flow = builder.compile(checkpointer=kit.InMemorySaver())
        found = []
        for node in "ab":
            kit.update(flow, {"log": [node]}, as_node=node)
            found.append(kit.state(flow).next)
        return [found, kit.invoke(flow, None), kit.history(flow)]

    assert same(program)[0] == [(), ("c",)]


def test_the_path_of_an_updated_node_is_chosen_anew(same):
    def program(kit):
        flow = choosing(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"last": "right"}, as_node="choose")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    assert same(program)[0]["StateSnapshot"]["next"] == ("right",)


def test_an_update_at_the_checkpoint_before_a_choice(same):
    def program(kit):
        flow = choosing(kit)
        kit.invoke(flow, {"log": ["in"]})
        old = at(kit, flow, "choose")
        fork = kit.update(flow, {"last": "right"}, old.config, as_node="choose")
        return [kit.invoke(flow, None, fork), told(kit.history(flow))]

    assert same(program)[0]["last"] == "in right"


def test_the_path_of_an_updated_node_may_send(same):
    def program(kit):
        flow = kit.graph(
            Log,
            {"plan": step("plan"), "work": lambda arg: {"log": [arg]}},
            "start plan",
            branches={"plan": lambda state: [kit.Send("work", n) for n in state["log"][-2:]]},
            checkpointer=kit.InMemorySaver(),
        )
        kit.update(flow, {"log": [1, 2]}, as_node="plan")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    assert same(program)[1]["log"] == [1, 2, 1, 2]


def test_an_update_overwrites_a_reducer(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": kit.Overwrite(["only"])}, as_node="b")
        return [kit.state(flow), kit.invoke(flow, None)]

    assert same(program)[1]["log"] == ["only", "c"]


@pytest.mark.parametrize("node", ["a", "c"])
def test_an_update_may_be_a_command(same, node):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, kit.Command(update={"log": ["told"]}, goto="c"), as_node=node)
        return [kit.state(flow), kit.attempt(flow, None), kit.history(flow)]

    same(program)


def test_an_update_of_nothing_moves_the_thread_on(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, None, at(kit, flow, "b").config, as_node="b")
        return [kit.state(flow), kit.invoke(flow, None), told(kit.history(flow))]

    same(program)


def test_an_update_of_none_as_nobody(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        return [kit.update(flow, None), kit.state(flow), kit.history(flow)]

    same(program)


@pytest.mark.parametrize("values", [{"nothing": 1}, 7, [("log", ["x"])]])
def test_updates_of_another_shape(same, values):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        try:
            kit.update(flow, values, as_node="a")
        except Exception as error:
            return isinstance(error, kit.InvalidUpdateError)
        return kit.state(flow)

    same(program)


def test_an_update_while_a_breakpoint_waits(same):
    def program(kit):
        flow = line(kit, interrupt_before=["b"])
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["by hand"]})
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_an_update_for_the_node_that_a_breakpoint_waits_before(same):
    def program(kit):
        flow = line(kit, interrupt_before=["b"])
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["for b"]}, as_node="b")
        return [kit.state(flow), kit.invoke(flow, None)]

    assert same(program)[1]["log"] == ["in", "a", "for b", "c"]


def test_updates_keep_the_metadata_of_their_config(same):
    def program(kit):
        flow = line(kit)
        config = {"configurable": {"thread_id": "t"}, "metadata": {"who": "me"}}
        kit.invoke(flow, {"log": ["in"]}, config)
        kit.update(flow, {"log": ["by hand"]}, config)
        return [one.metadata for one in kit.history(flow)]

    same(program)


# ---------------------------------------------------------------- many updates


def test_super_steps_by_hand(same):
    def program(kit):
        flow = diamond(kit)
        update = kit.StateUpdate
        steps = [
            [update({"log": ["in"]}, "__input__")],
            [update({"log": ["a"]}, "a")],
            [update({"log": ["c"]}, "c"), update({"log": ["b"]}, "b")],
        ]
        config = kit.bulk_update(flow, steps)
        return [config, kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_super_steps_by_hand_on_an_old_checkpoint(same):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        steps = [[kit.StateUpdate({"log": [name]}, name)] for name in "ab"]
        kit.bulk_update(flow, steps, at(kit, flow, "a").config)
        return [kit.state(flow), kit.invoke(flow, None), told(kit.history(flow))]

    same(program)


def test_two_updates_of_one_node_in_one_step(same):
    def program(kit):
        flow = line(kit)
        update = kit.StateUpdate
        try:
            kit.bulk_update(flow, [[update({"log": [1]}, "a"), update({"log": [2]}, "a")]])
        except Exception as error:
            return isinstance(error, kit.InvalidUpdateError)
        return [kit.state(flow), kit.invoke(flow, None)]

    same(program)


@pytest.mark.parametrize("special", ["__input__", "__end__", "__copy__"])
def test_a_special_update_stands_alone(same, special):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": ["in"]})
        update = kit.StateUpdate
        values = {"log": ["x"]} if special == "__input__" else None
        try:
            kit.bulk_update(flow, [[update(values, special), update({"log": ["y"]}, "a")]])
        except Exception as error:
            return isinstance(error, kit.InvalidUpdateError)
        return kit.state(flow)

    same(program)


@pytest.mark.parametrize("steps", [[], [[]]])
def test_updates_of_no_step_are_refused(same, steps):
    def program(kit):
        with pytest.raises(ValueError):
            kit.bulk_update(line(kit), steps)

    same(program)


def test_a_refused_step_leaves_the_ones_before_it(same):
    def program(kit):
        flow = line(kit)
        steps = [[kit.StateUpdate({"log": ["a"]}, "a")], [kit.StateUpdate({"log": ["x"]}, "nobody")]]
        with pytest.raises((kit.InvalidUpdateError, ValueError)):
            kit.bulk_update(flow, steps)
        return told(kit.history(flow))

    same(program)


# ---------------------------------------------------------------- questions and time


def test_a_replay_asks_again_and_takes_another_answer(same):
    def program(kit):
        runs = []
        flow = asking(kit, runs)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume="yes"))
        old = at(kit, flow, "ask")
        return [
            kit.invoke(flow, None, old.config),
            told([kit.state(flow)]),
            kit.invoke(flow, kit.Command(resume="no")),
            runs,
            told(kit.history(flow)),
        ]

    assert same(program)[2]["log"] == ["in", "first", "no", "done"]


def test_a_replay_from_before_a_question_asks_it_again(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume="yes"))
        return [
            kit.invoke(flow, None, at(kit, flow, "first").config),
            kit.invoke(flow, kit.Command(resume="no")),
        ]

    assert same(program)[1]["log"] == ["in", "first", "no", "done"]


def test_a_fork_before_a_question_asks_it_again(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume="yes"))
        fork = kit.update(flow, {"last": "edited"}, at(kit, flow, "ask").config)
        return [
            kit.invoke(flow, None, fork),
            told([kit.state(flow)]),
            kit.invoke(flow, kit.Command(resume="no")),
            told(kit.history(flow)),
        ]

    assert same(program)[0]["__interrupt__"][0]["Interrupt"] == {"after": "edited"}


def test_another_answer_to_an_old_question(both):
    """LangGraph keeps the first answer; in flowfn an answer at an old checkpoint is an answer to its question."""

    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume="yes"))
        return kit.invoke(flow, kit.Command(resume="no"), at(kit, flow, "ask").config)["log"]

    pair = both(program)
    assert pair.theirs == ["in", "first", "yes", "done"]
    assert pair.ours == ["in", "first", "no", "done"]


def test_an_update_of_a_paused_thread_asks_anew(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"last": "edited"})
        return [
            kit.state(flow),
            kit.invoke(flow, None),
            kit.invoke(flow, kit.Command(resume="yes")),
            told(kit.history(flow)),
        ]

    same(program)


def test_the_question_of_a_replay_is_open(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume="yes"))
        kit.invoke(flow, None, at(kit, flow, "ask").config)
        state = kit.state(flow)
        return [state.next, state.interrupts, done([state])]

    assert same(program)[0] == ("ask",)


def test_an_old_checkpoint_shows_the_question_that_was_answered(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume="yes"))
        return [(one.interrupts, done([one])) for one in kit.history(flow)]

    same(program)


def test_an_answer_to_an_updated_thread(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"last": "edited"})
        return kit.invoke(flow, kit.Command(resume="yes"))

    same(program)


def test_an_update_may_stand_for_the_answer(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        kit.update(flow, {"log": ["for ask"]}, as_node="ask")
        return [kit.state(flow), kit.invoke(flow, None), told(kit.history(flow))]

    assert same(program)[1]["log"] == ["in", "first", "for ask", "done"]


def test_a_new_input_on_a_thread_that_waits(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": ["in"]})
        return [
            kit.invoke(flow, {"log": ["new"]}),
            kit.invoke(flow, kit.Command(resume="yes")),
            told(kit.history(flow)),
        ]

    same(program)


def test_a_second_question_of_a_node_in_a_fork(same):
    def program(kit):
        def ask(state):
            return {"log": [kit.interrupt("first"), kit.interrupt("second")]}

        flow = kit.graph(Log, {"ask": ask, "done": step("done")}, "start ask done", checkpointer=kit.InMemorySaver())
        kit.invoke(flow, {"log": ["in"]})
        kit.invoke(flow, kit.Command(resume=1))
        kit.invoke(flow, kit.Command(resume=2))
        return [
            kit.invoke(flow, None, at(kit, flow, "ask").config),
            kit.invoke(flow, kit.Command(resume=3)),
            kit.invoke(flow, kit.Command(resume=4)),
        ]

    assert same(program)[2]["log"] == ["in", 3, 4, "done"]


# ---------------------------------------------------------------- steps that failed half


def test_a_half_failed_step_shows_what_is_written(same):
    def program(kit):
        fail = {"c"}
        flow = diamond(kit, fail=fail)
        failed = kit.attempt(flow, {"log": ["in"]})
        state = kit.state(flow)
        return [
            failed,
            (state.values, state.next, state.metadata),
            sorted((t.name, t.error, t.result) for t in state.tasks),
        ]

    assert same(program)[1][0] == {"log": ["in", "a", "b"]}


def test_a_half_failed_step_by_its_checkpoint_shows_its_record_only(same):
    def program(kit):
        flow = diamond(kit, fail={"c"})
        kit.attempt(flow, {"log": ["in"]})
        record = kit.state(flow, kit.state(flow).config)
        return [told([record, *kit.history(flow)]), done([record, *kit.history(flow)])]

    same(program)


def test_a_half_failed_step_goes_on(same):
    def program(kit):
        runs, fail = [], {"c"}
        flow = diamond(kit, runs, fail)
        kit.attempt(flow, {"log": ["in"]})
        fail.clear()
        return [kit.invoke(flow, None), runs, told(kit.history(flow))]

    assert same(program)[:2] == [{"log": ["in", "a", "b", "c", "d"]}, ["a", "b", "c", "d"]]


def test_an_old_checkpoint_shows_the_failure_that_was_mended(same):
    def program(kit):
        fail = {"c"}
        flow = diamond(kit, fail=fail)
        kit.attempt(flow, {"log": ["in"]})
        fail.clear()
        kit.invoke(flow, None)
        return done(kit.history(flow))

    same(program)


def test_a_half_failed_step_can_be_replayed_from_its_checkpoint(same):
    def program(kit):
        fail = {"c"}
        flow = diamond(kit, fail=fail)
        kit.attempt(flow, {"log": ["in"]})
        fail.clear()
        old = kit.state(flow).config
        return [kit.invoke(flow, None, old), told(kit.history(flow))]

    same(program)


def test_an_update_of_a_half_failed_thread_keeps_what_its_siblings_wrote(same):
    def program(kit):
        fail = {"c"}
        flow = diamond(kit, fail=fail)
        kit.attempt(flow, {"log": ["in"]})
        fail.clear()
        kit.update(flow, {"log": ["for c"]}, as_node="c")
        return [kit.state(flow), kit.invoke(flow, None), told(kit.history(flow))]

    same(program)


def test_a_failed_node_can_be_skipped_by_an_update(same):
    def program(kit):
        def fail(state):
            raise LookupError("b")

        flow = kit.graph(
            Log,
            {"a": step("a"), "b": fail, "c": step("c")},
            "start a b c",
            checkpointer=kit.InMemorySaver(),
        )
        kit.attempt(flow, {"log": ["in"]})
        broken = kit.state(flow)
        kit.update(flow, {"log": ["for b"]}, as_node="b")
        return [broken, kit.state(flow), kit.invoke(flow, None), told(kit.history(flow))]

    assert same(program)[2]["log"] == ["in", "a", "for b", "c"]


def test_a_new_input_after_a_failure_starts_over(same):
    def program(kit):
        fail = {"b"}
        flow = kit.graph(
            Log,
            {"a": step("a"), "b": lambda state: {}[fail.pop()] if fail else {"log": ["b"]}},
            "start a b",
            checkpointer=kit.InMemorySaver(),
        )
        kit.attempt(flow, {"log": ["in"]})
        return [kit.invoke(flow, {"log": ["new"]}), told(kit.history(flow))]

    assert same(program)[0]["log"] == ["in", "a", "new", "a", "b"]


def test_a_thread_can_be_looked_at_after_an_invalid_update(both):
    """LangGraph joins what the nodes wrote to show it, and raises once more."""

    def program(kit):
        nodes = {name: lambda state, name=name: {"last": name} for name in "ab"}
        flow = kit.graph(Log, nodes, "start a", "start b", checkpointer=kit.InMemorySaver())
        kit.attempt(flow, {"log": ["in"]})
        try:
            state = kit.state(flow)
        except kit.InvalidUpdateError:
            return "raised"
        return [state.values, state.next]

    pair = both(program)
    assert pair.theirs == "raised"
    assert pair.ours == [{"log": ["in"]}, ("a", "b")]
