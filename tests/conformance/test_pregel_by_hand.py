"""Programs built by hand of nodes and channels: equal values, streams and states after every super-step."""

import asyncio
import operator

import pytest

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)
MODES = ["values", "updates", "tasks", "checkpoints", "debug", "custom"]
each_mode = pytest.mark.parametrize("mode", MODES)
kept = pytest.mark.parametrize("is_kept", [True, False], ids=["saver", "memoryless"])


def saver(kit, is_kept):
    return {"checkpointer": kit.InMemorySaver()} if is_kept else {}


def chain(kit, is_kept=True, **options):
    """a → one → b → two → c."""
    last = kit.channels.LastValue
    return kit.Pregel(
        nodes={
            "one": kit.NodeBuilder().subscribe_only("a").do(lambda x: x + 1).write_to("b"),
            "two": kit.NodeBuilder().subscribe_only("b").do(lambda x: x * 10).write_to("c"),
        },
        channels={"a": kit.channels.EphemeralValue(int), "b": last(int), "c": last(int)},
        input_channels="a",
        output_channels="c",
        **saver(kit, is_kept),
        **options,
    )


def loop(kit, is_kept=True):
    """A value that doubles until it is large."""
    return kit.Pregel(
        nodes={
            "grow": kit.NodeBuilder()
            .subscribe_only("value")
            .do(lambda x: x * 2 if x < 10 else None)
            .write_to(kit.write("value", skip_none=True))
        },
        channels={"value": kit.channels.LastValue(int)},
        input_channels="value",
        output_channels="value",
        **saver(kit, is_kept),
    )


def meeting(kit, is_kept=True):
    """Two nodes write to a reducer, a topic and a total in one step; a third reads all in the next."""
    channels = kit.channels
    return kit.Pregel(
        nodes={
            "left": kit.NodeBuilder().subscribe_only("in").do(lambda x: x + 1).write_to("sum", "all", left=lambda x: x),
            "right": kit.NodeBuilder().subscribe_only("in").do(lambda x: x + 2).write_to("sum", "all"),
            "join": kit.NodeBuilder()
            .subscribe_to("left")
            .read_from("sum", "all")
            .do(lambda seen: [seen["left"], seen["sum"], list(seen["all"])])
            .write_to("out"),
        },
        channels={
            "in": channels.EphemeralValue(int),
            "sum": channels.BinaryOperatorAggregate(int, operator.add),
            "all": channels.Topic(int, accumulate=True),
            "left": channels.LastValue(int),
            "out": channels.LastValue(list),
        },
        input_channels="in",
        output_channels=["out", "sum"],
        stream_channels=["out", "sum", "all", "left"],
        **saver(kit, is_kept),
    )


def failing(kit, runs, fail):
    """Three nodes of one step, of which `bad` fails while `fail` holds something; then `join`."""

    def note(name):
        def run(x):
            runs.append(name)
            if name == "bad" and fail:
                raise ConnectionError("down")
            return [name]

        return run

    def note_join(count):
        runs.append("join")
        return count

    channels = kit.channels
    nodes = {n: kit.NodeBuilder().subscribe_only("in").do(note(n)).write_to("out") for n in ("bad", "fine", "good")}
    nodes["join"] = kit.NodeBuilder().subscribe_only("out").do(len).do(note_join).write_to("count")
    return kit.Pregel(
        nodes=nodes,
        channels={
            "in": channels.EphemeralValue(int),
            "out": channels.BinaryOperatorAggregate(list, operator.add),
            "count": channels.LastValue(int),
        },
        input_channels="in",
        output_channels=["out", "count"],
        checkpointer=kit.InMemorySaver(),
    )


# ---------------------------------------------------------------- values


@kept
@pytest.mark.parametrize("build", [chain, loop, meeting])
def test_invoke_gives_the_output_channels(same, build, is_kept):
    def program(kit):
        flow = build(kit, is_kept)
        return [kit.invoke(flow, 1), kit.invoke(flow, 2)]

    same(program)


@kept
def test_several_input_channels_take_a_dict(same, is_kept):
    def program(kit):
        flow = kit.Pregel(
            nodes={
                "add": kit.NodeBuilder().subscribe_to("a", "b").do(lambda x: sorted(x.items())).write_to("c"),
            },
            channels={n: kit.channels.LastValue(object) for n in "abc"},
            input_channels=["a", "b"],
            output_channels=["a", "c"],
            **saver(kit, is_kept),
        )
        return [kit.invoke(flow, {"a": 1, "b": 2}), kit.invoke(flow, {"b": 3}), kit.invoke(flow, {"a": 1, "x": 1})]

    same(program)


def test_input_for_no_channel_is_an_error(same):
    def program(kit):
        flow = kit.Pregel(
            nodes={"one": kit.NodeBuilder().subscribe_only("a").write_to("b")},
            channels={n: kit.channels.LastValue(object) for n in "ab"},
            input_channels=["a"],
            output_channels="b",
        )
        return kit.attempt(flow, {"x": 1})

    same(program)


def test_a_program_whose_output_nobody_wrote_gives_none(same):
    def program(kit):
        flow = kit.Pregel(
            nodes={"one": kit.NodeBuilder().subscribe_only("a").do(lambda x: None).write_to(kit.write("b", True))},
            channels={"a": kit.channels.LastValue(int), "b": kit.channels.LastValue(int)},
            input_channels="a",
            output_channels="b",
        )
        return kit.invoke(flow, 1)

    same(program)


def test_output_keys_show_other_channels(same):
    def program(kit):
        flow = chain(kit)
        return [kit.invoke(flow, 1, output_keys="b"), kit.invoke(flow, 1, output_keys=["b", "c"])]

    assert same(program) == [2, {"b": 2, "c": 20}]


def test_nodes_write_mapped_and_constant_values(same):
    def program(kit):
        flow = kit.Pregel(
            nodes={
                "one": kit.NodeBuilder()
                .subscribe_only("a")
                .do(lambda x: {"n": x})
                .write_to("b", c=lambda found: found["n"] * 2, d="constant")
            },
            channels={n: kit.channels.LastValue(object) for n in "abcd"},
            input_channels="a",
            output_channels=["b", "c", "d"],
        )
        return kit.invoke(flow, 1)

    assert same(program) == {"b": {"n": 1}, "c": 2, "d": "constant"}


def test_functions_of_a_node_are_chained(same):
    def program(kit):
        flow = kit.Pregel(
            nodes={"one": kit.NodeBuilder().subscribe_only("a").do(lambda x: x + 1).do(lambda x: x * 10).write_to("b")},
            channels={n: kit.channels.LastValue(object) for n in "ab"},
            input_channels="a",
            output_channels="b",
        )
        return kit.invoke(flow, 1)

    assert same(program) == 20


def test_a_topic_is_cleared_every_step(same):
    def program(kit):
        channels = kit.channels
        flow = kit.Pregel(
            nodes={
                "one": kit.NodeBuilder().subscribe_only("in").do(lambda x: [x, x + 1]).write_to("topic"),
                "two": kit.NodeBuilder().subscribe_only("topic").do(list).write_to("seen"),
                "three": kit.NodeBuilder().subscribe_only("seen").do(lambda x: x[:1]).write_to("topic"),
                "stop": kit.NodeBuilder().subscribe_only("topic").do(len).write_to("count"),
            },
            channels={
                "in": channels.EphemeralValue(int),
                "topic": channels.Topic(int),
                "seen": channels.LastValue(list),
                "count": channels.LastValue(int),
            },
            input_channels="in",
            output_channels=["seen", "count"],
        )
        found = kit.stream(flow, 1, {"recursion_limit": 5, "configurable": {"thread_id": "t"}}, stream_mode="values")
        return found

    same(program)


def test_two_writes_to_a_last_value_in_one_step_are_an_invalid_update(same):
    def program(kit):
        node = kit.NodeBuilder
        flow = kit.Pregel(
            nodes={n: node().subscribe_only("a").write_to("b") for n in ("one", "two")},
            channels={n: kit.channels.LastValue(object) for n in "ab"},
            input_channels="a",
            output_channels="b",
        )
        with pytest.raises(kit.InvalidUpdateError):
            kit.invoke(flow, 1)

    same(program)


def test_a_recursion_limit_counts_super_steps(same):
    def program(kit):
        config = {"configurable": {"thread_id": "t"}}
        found = []
        for limit in (1, 2, 3, 10):
            try:
                found.append(kit.invoke(chain(kit), 1, {**config, "recursion_limit": limit}))
            except RecursionError as error:
                found.append(isinstance(error, kit.GraphRecursionError))
        return found

    same(program)


def test_what_a_recursion_limit_leaves_can_go_on(same):
    def program(kit):
        flow = loop(kit)
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": 2}
        return [kit.attempt(flow, 1, config), kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_a_recursion_limit_below_one_is_a_value_error(same):
    def program(kit):
        with pytest.raises(ValueError):
            kit.invoke(chain(kit), 1, {"configurable": {"thread_id": "t"}, "recursion_limit": 0})

    same(program)


# ---------------------------------------------------------------- streams


@each_mode
@kept
@pytest.mark.parametrize("build", [chain, loop])
def test_every_mode_streams_alike(same, build, is_kept, mode):
    same(lambda kit: kit.stream(build(kit, is_kept), 1, stream_mode=mode))


@pytest.mark.parametrize("mode", ["values", "updates", "checkpoints"])
@kept
def test_nodes_that_meet_stream_alike(same, is_kept, mode):
    def program(kit):
        found = kit.stream(meeting(kit, is_kept), 1, stream_mode=mode)
        return sorted(found, key=str) if mode == "updates" else found

    same(program)


@each_mode
def test_v2_streams_alike(same, mode):
    same(lambda kit: kit.stream(chain(kit), 1, stream_mode=mode, version="v2"))


def test_the_default_mode_is_values(same):
    same(lambda kit: kit.stream(chain(kit), 1))


def test_the_default_mode_can_be_chosen(same):
    same(lambda kit: kit.stream(chain(kit, stream_mode="updates"), 1))


def test_output_keys_narrow_a_stream(same):
    def program(kit):
        flow = chain(kit)
        return [kit.stream(flow, 1, stream_mode=m, output_keys=k) for m in ("values", "updates") for k in ("b", ["c"])]

    same(program)


def test_nodes_write_to_the_custom_stream(same):
    def program(kit):
        def talk(x):
            kit.get_stream_writer()({"saw": x})
            return x

        flow = kit.Pregel(
            nodes={"one": kit.NodeBuilder().subscribe_only("a").do(talk).write_to("b")},
            channels={n: kit.channels.LastValue(object) for n in "ab"},
            input_channels="a",
            output_channels="b",
        )
        return [kit.stream(flow, 1, stream_mode="custom"), kit.stream(flow, 1, stream_mode=["custom", "values"])]

    assert same(program)[0] == [{"saw": 1}]


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("build", [chain, loop, meeting])
def test_the_state_after_a_run(same, build):
    def program(kit):
        flow = build(kit)
        kit.invoke(flow, 1)
        return kit.state(flow)

    same(program)


@pytest.mark.parametrize("build", [chain, loop, meeting])
def test_the_history_has_a_checkpoint_for_every_super_step(same, build):
    def program(kit):
        flow = build(kit)
        kit.invoke(flow, 1)
        kit.invoke(flow, 3)
        return kit.history(flow)

    same(program)


def test_values_next_and_metadata_of_every_super_step(same):
    def program(kit):
        flow = meeting(kit)
        kit.invoke(flow, 1)
        return [[one.values, one.next, one.metadata, [t.name for t in one.tasks]] for one in kit.history(flow)]

    same(program)


def test_the_state_of_a_new_thread(same):
    same(lambda kit: kit.state(chain(kit)))


@pytest.mark.parametrize("filter", [{"source": "loop"}, {"source": "input"}, {"step": 0}, {"step": 7}])
def test_the_history_can_be_filtered(same, filter):
    def program(kit):
        flow = loop(kit)
        kit.invoke(flow, 1)
        return [[one.values, one.metadata] for one in kit.history(flow, filter=filter)]

    same(program)


def test_every_checkpoint_can_be_addressed(same):
    def program(kit):
        flow = loop(kit)
        kit.invoke(flow, 1)
        return [[one.values, one.next] for one in (kit.state(flow, each.config) for each in kit.history(flow))]

    same(program)


def test_a_run_goes_on_from_any_checkpoint(same):
    def program(kit):
        flow = loop(kit)
        kit.invoke(flow, 1)
        third = kit.history(flow)[2]
        return [
            kit.invoke(flow, None, third.config),
            [[one.values, one.next, one.metadata["source"], one.metadata["step"]] for one in kit.history(flow)],
        ]

    same(program)


def test_a_new_input_at_an_old_checkpoint_starts_from_its_state(same):
    def program(kit):
        flow = meeting(kit)
        for n in (1, 2):
            kit.invoke(flow, n)
        old = next(one for one in kit.history(flow) if not one.next and one.values["sum"] == 5)
        return [kit.invoke(flow, 10, old.config), [[one.values, one.metadata] for one in kit.history(flow)]]

    same(program)


# ---------------------------------------------------------------- updates by hand


def test_an_update_as_a_node_makes_the_next_one_due(same):
    def program(kit):
        flow = chain(kit)
        kit.invoke(flow, 1)
        config = kit.update(flow, 5, as_node="one")
        return [config, kit.state(flow), kit.invoke(flow, None), kit.state(flow)]

    assert same(program)[2] == 50


def test_an_update_as_the_last_node(same):
    def program(kit):
        flow = chain(kit)
        kit.invoke(flow, 1)
        kit.update(flow, 5, as_node="two")
        return [kit.state(flow), kit.invoke(flow, None)]

    same(program)


def test_an_update_without_a_node_is_the_last_ones(same):
    def program(kit):
        flow = chain(kit)
        kit.invoke(flow, 1)
        kit.update(flow, 5)
        return [kit.state(flow), kit.history(flow)]

    same(program)


def test_an_update_of_a_new_thread_as_a_node(same):
    def program(kit):
        flow = chain(kit)
        kit.update(flow, 5, as_node="one")
        return [kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


def test_an_update_whose_node_is_ambiguous_is_refused(same):
    def program(kit):
        flow = failing(kit, [], [])
        try:
            kit.update(flow, ["x"])
        except Exception as error:
            return isinstance(error, kit.InvalidUpdateError)

    same(program)


def test_updates_go_through_reducers(same):
    def program(kit):
        flow = failing(kit, [], [])
        kit.invoke(flow, 1)
        kit.update(flow, ["by hand"], as_node="fine")
        return [kit.state(flow), kit.invoke(flow, None)]

    same(program)


def test_an_update_as_nobody_is_an_invalid_update(same):
    def program(kit):
        flow = chain(kit)
        kit.invoke(flow, 1)
        with pytest.raises((kit.InvalidUpdateError, ValueError)):
            kit.update(flow, 5, as_node="nobody")

    same(program)


def test_bulk_updates(same):
    def program(kit):
        from langgraph.types import StateUpdate

        flow = chain(kit)
        steps = [[StateUpdate(1, "one")], [StateUpdate(2, "two")]]
        flow.bulk_update_state({"configurable": {"thread_id": "t"}}, steps)
        return kit.history(flow)

    same(program)


# ---------------------------------------------------------------- failures


def test_siblings_of_a_failed_node_do_not_run_again(both):
    """LangGraph now and then loses a sibling's writes when the failure comes first, and runs it again."""

    def program(kit):
        runs, fail = [], [True]
        flow = failing(kit, runs, fail)
        broken = kit.attempt(flow, 1)
        fail.clear()
        return [broken, kit.invoke(flow, None), sorted(runs)]

    pair = both(program)

    assert pair.ours[:2] == pair.theirs[:2]
    assert pair.ours[2] == ["bad", "bad", "fine", "good", "join"]


def test_the_state_of_a_failed_step_shows_what_is_left(same):
    def program(kit):
        flow = failing(kit, [], [True])
        kit.attempt(flow, 1)
        state = kit.state(flow)
        return [state.values, state.next, [(t.name, t.error, t.result) for t in state.tasks], state.metadata]

    same(program)


def test_the_record_of_a_failed_step(same):
    def program(kit):
        flow = failing(kit, [], [True])
        kit.attempt(flow, 1)
        return [[one.values, one.next, [(t.name, t.error) for t in one.tasks]] for one in kit.history(flow)]

    same(program)


def test_a_failed_step_of_one_node_goes_on(same):
    def program(kit):
        fail = [True]

        def flaky(x):
            if fail:
                fail.clear()
                raise LookupError(x)
            return x

        flow = kit.Pregel(
            nodes={
                "one": kit.NodeBuilder().subscribe_only("a").do(lambda x: x + 1).write_to("b"),
                "two": kit.NodeBuilder().subscribe_only("b").do(flaky).write_to("c"),
            },
            channels={n: kit.channels.LastValue(object) for n in "abc"},
            input_channels="a",
            output_channels="c",
            checkpointer=kit.InMemorySaver(),
        )
        return [kit.attempt(flow, 1), kit.state(flow), kit.invoke(flow, None), kit.history(flow)]

    same(program)


# ---------------------------------------------------------------- questions, tasks, configs


def asking(kit):
    def ask(x):
        return [x, kit.interrupt({"x": x})]

    return kit.Pregel(
        nodes={
            "one": kit.NodeBuilder().subscribe_only("a").do(lambda x: x + 1).write_to("b"),
            "two": kit.NodeBuilder().subscribe_only("b").do(ask).write_to("c"),
        },
        channels={n: kit.channels.LastValue(object) for n in "abc"},
        input_channels="a",
        output_channels=["b", "c"],
        checkpointer=kit.InMemorySaver(),
    )


def test_a_node_asks_and_goes_on(same):
    def program(kit):
        flow = asking(kit)
        return [kit.invoke(flow, 1), kit.state(flow), kit.invoke(flow, kit.Command(resume="yes")), kit.state(flow)]

    same(program)


@pytest.mark.parametrize("mode", ["values", "updates", "tasks", "checkpoints"])
def test_the_question_of_a_node_streams_alike(same, mode):
    def program(kit):
        flow = asking(kit)
        return [
            kit.stream(flow, 1, stream_mode=mode),
            kit.stream(flow, kit.Command(resume="yes"), stream_mode=mode),
        ]

    same(program)


def test_nodes_may_call_tasks(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        flow = kit.Pregel(
            nodes={"one": kit.NodeBuilder().subscribe_only("a").do(lambda x: double(x).result() + 1).write_to("b")},
            channels={n: kit.channels.LastValue(object) for n in "ab"},
            input_channels="a",
            output_channels="b",
            checkpointer=kit.InMemorySaver(),
        )
        return [kit.invoke(flow, 1), kit.stream(flow, 1, stream_mode="updates"), kit.history(flow)]

    assert same(program)[0] == 3


def test_a_bound_config_is_used(same):
    def program(kit):
        flow = chain(kit).with_config({"configurable": {"thread_id": "bound"}}, recursion_limit=10)
        return [kit.invoke(flow, 1, {}), kit.state(flow, {"configurable": {}}).values]

    same(program)


@awaited
def test_async_nodes(same):
    def program(kit):
        async def slow(x):
            await asyncio.sleep(0)
            return x + 1

        flow = kit.Pregel(
            nodes={
                "one": kit.NodeBuilder().subscribe_only("a").do(slow).write_to("b"),
                "two": kit.NodeBuilder().subscribe_only("b").do(lambda x: x * 10).write_to("c"),
            },
            channels={n: kit.channels.LastValue(object) for n in "abc"},
            input_channels="a",
            output_channels="c",
            checkpointer=kit.InMemorySaver(),
        )
        return [kit.invoke(flow, 1), kit.history(flow), kit.stream(flow, 2, stream_mode="tasks")]

    assert same(program)[0] == 20


def test_the_metadata_of_a_node_is_seen_in_its_tasks(same):
    def program(kit):
        flow = kit.Pregel(
            nodes={"one": kit.NodeBuilder().subscribe_only("a").meta("tag", team="x").write_to("b")},
            channels={n: kit.channels.LastValue(object) for n in "ab"},
            input_channels="a",
            output_channels="b",
        )
        return kit.stream(flow, 1, stream_mode="tasks")

    same(program)
