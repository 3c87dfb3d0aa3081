"""What a thread of a functional flow shows of itself, and how it is edited: equal on both libraries."""

import pytest

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)


def counting(kit):
    """A flow of one task that adds its input to what was there."""

    @kit.task
    def add(a, b):
        return a + b

    @kit.entrypoint(checkpointer=kit.InMemorySaver())
    def flow(n, *, previous=None):
        return add(previous or 0, n).result()

    return flow


def asking_first(kit):
    """A flow that asks before it does anything, then runs a task and asks again."""

    @kit.task
    def note(answer):
        return f"noted {answer}"

    @kit.entrypoint(checkpointer=kit.InMemorySaver())
    def flow(n):
        first = kit.interrupt({"n": n})
        return [note(first).result(), kit.interrupt("sure?")]

    return flow


def failing(kit):
    fail = [True]

    @kit.task
    def fine(n):
        return n

    @kit.task
    def broken(n):
        if fail:
            fail.clear()
            raise LookupError("gone", n)
        return -n

    @kit.entrypoint(checkpointer=kit.InMemorySaver())
    def flow(n):
        return [fine(n).result(), broken(n).result()]

    return flow


# ---------------------------------------------------------------- get_state


def test_a_new_thread_has_an_empty_state(same):
    same(lambda kit: kit.state(counting(kit)))


def test_a_finished_thread(same):
    def program(kit):
        flow = counting(kit)
        kit.invoke(flow, 1)
        one = kit.state(flow)
        kit.invoke(flow, 2)
        return [one, kit.state(flow)]

    assert same(program)[1]["StateSnapshot"]["values"] == 3


def test_a_thread_that_waits_for_its_first_question(same):
    def program(kit):
        flow = asking_first(kit)
        kit.invoke(flow, 1)
        return kit.state(flow)

    state = same(program)["StateSnapshot"]
    assert state["next"] == ("flow",)
    assert state["interrupts"] == ({"Interrupt": {"n": 1}, "id": "#2", "schema": None},)


def test_a_thread_that_waits_for_its_second_question(same):
    def program(kit):
        flow = asking_first(kit)
        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="a"))
        return kit.state(flow)

    same(program)


def test_a_thread_whose_questions_are_answered(same):
    def program(kit):
        flow = asking_first(kit)
        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="a"))
        kit.invoke(flow, kit.Command(resume="b"))
        return kit.state(flow)

    same(program)


def test_a_thread_that_waits_inside_a_task(same):
    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ask(n).result()

        kit.invoke(flow, 1)
        return kit.state(flow)

    same(program)


def test_a_failed_thread(same):
    def program(kit):
        flow = failing(kit)
        kit.attempt(flow, 1)
        return kit.state(flow)

    same(program)


def test_a_thread_that_failed_and_went_on(same):
    def program(kit):
        flow = failing(kit)
        kit.attempt(flow, 1)
        kit.invoke(flow, None)
        return kit.state(flow)

    same(program)


def test_a_state_is_addressed_by_its_checkpoint(same):
    def program(kit):
        flow = counting(kit)
        for n in (1, 2):
            kit.invoke(flow, n)
        return [kit.state(flow, one.config) for one in kit.history(flow) if one.metadata["source"] != "call"]

    same(program)


def test_get_state_without_a_checkpointer_is_a_value_error(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n):
            return n

        for look in (kit.state, kit.history):
            with pytest.raises(ValueError):
                look(flow)

    same(program)


def test_get_state_without_a_thread_is_an_error(same):
    def program(kit):
        for config in ({}, {"configurable": {}}):
            with pytest.raises((KeyError, ValueError)):
                kit.state(counting(kit), config)

    same(program)


def test_metadata_of_a_checkpoint_has_what_the_config_said(same):
    def program(kit):
        flow = counting(kit)
        config = {"configurable": {"thread_id": "t", "user": "ada"}, "metadata": {"team": "x", "n": 3}, "tags": ["a"]}
        kit.invoke(flow, 1, config)
        return [one.metadata for one in kit.history(flow) if one.metadata["source"] != "call"]

    same(program)


# ---------------------------------------------------------------- history


def test_the_history_has_input_and_result_of_each_run(same):
    def program(kit):
        flow = counting(kit)
        for n in (1, 2, 3):
            kit.invoke(flow, n)
        return kit.history(flow)

    assert len(same(program)) == 6


def test_the_history_of_flows_without_tasks(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return [n, previous]

        for n in (1, 2):
            kit.invoke(flow, n)
        return kit.history(flow)

    same(program)


def test_the_history_of_a_waiting_thread(same):
    def program(kit):
        flow = asking_first(kit)
        kit.invoke(flow, 1)
        return kit.history(flow)

    same(program)


def test_the_history_of_a_thread_with_answered_questions(same):
    def program(kit):
        flow = asking_first(kit)
        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="a"))
        kit.invoke(flow, kit.Command(resume="b"))
        return kit.history(flow)

    same(program)


def test_the_history_of_a_failed_thread(same):
    def program(kit):
        flow = failing(kit)
        kit.attempt(flow, 1)
        return kit.history(flow)

    same(program)


def test_the_history_can_be_filtered(same):
    def program(kit):
        flow = counting(kit)
        for n in (1, 2, 3):
            kit.invoke(flow, n)
        found = [kit.history(flow, filter=wanted) for wanted in ({"source": "input"}, {"source": "loop"}, {"step": 2})]
        return [[one for one in each if one.metadata["source"] != "call"] for each in found]

    same(program)


def test_the_history_can_begin_before_a_checkpoint(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return n

        for n in (1, 2, 3):
            kit.invoke(flow, n)
        third = kit.history(flow)[2]
        return [kit.history(flow, before=third.config), kit.history(flow, limit=2), kit.history(flow, limit=0)]

    same(program)


def test_the_history_of_a_flow_without_checkpoints_inside_can_be_limited(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return n

        for n in (1, 2, 3):
            kit.invoke(flow, n)
        return kit.history(flow, limit=3)

    assert len(same(program)) == 3


def test_super_steps_inside_a_function_have_checkpoints_in_flowfn_only(both):
    """On purpose: `source: "call"` checkpoints inside functional flows."""

    def program(kit):
        flow = counting(kit)
        kit.invoke(flow, 1)
        return [one.metadata["source"] for one in kit.history(flow)]

    pair = both(program)
    assert pair.theirs == ["loop", "input"]
    assert pair.ours == ["loop", "call", "input"]


def test_threads_have_histories_of_their_own(same):
    def program(kit):
        flow = counting(kit)
        kit.invoke(flow, 1, {"configurable": {"thread_id": "a"}})
        return [kit.history(flow, {"configurable": {"thread_id": t}}) for t in ("a", "b")]

    same(program)


# ---------------------------------------------------------------- update_state


def test_an_update_sets_the_value_and_previous(same):
    def program(kit):
        flow = counting(kit)
        kit.invoke(flow, 1)
        config = kit.update(flow, 10)
        return [config, kit.state(flow), kit.invoke(flow, 5), kit.history(flow)]

    assert same(program)[2] == 15


def test_an_update_of_a_new_thread_sets_previous(same):
    def program(kit):
        flow = counting(kit)
        kit.update(flow, 10)
        return [kit.state(flow), kit.invoke(flow, 5)]

    assert same(program)[1] == 15


def test_an_update_as_the_entrypoint(same):
    def program(kit):
        flow = counting(kit)
        kit.update(flow, 10, as_node="flow")
        return [kit.state(flow), kit.history(flow)]

    same(program)


def test_an_update_as_an_unknown_node_is_an_error(same):
    def program(kit):
        flow = counting(kit)
        kit.invoke(flow, 1)
        try:
            kit.update(flow, 10, as_node="nobody")
        except Exception:
            return "refused"

    assert same(program) == "refused"


@pytest.mark.parametrize("value", [None, 0, "", {}, []])
def test_an_update_may_be_falsy(same, value):
    def program(kit):
        flow = counting(kit)
        kit.invoke(flow, 1)
        kit.update(flow, value)
        return [kit.state(flow)]

    same(program)


def test_an_update_of_a_waiting_thread(same):
    def program(kit):
        flow = asking_first(kit)
        kit.invoke(flow, 1)
        kit.update(flow, "done by hand")
        return [kit.state(flow), kit.attempt(flow, None)]

    same(program)


def test_an_update_at_an_old_checkpoint_forks_there(same):
    def program(kit):
        flow = counting(kit)
        for n in (1, 2):
            kit.invoke(flow, n)
        first = next(one for one in kit.history(flow) if one.metadata == {"source": "loop", "step": 0, "parents": {}})
        config = kit.update(flow, 100, first.config)
        return [kit.state(flow), kit.invoke(flow, 1, config), kit.invoke(flow, 1), kit.history(flow)]

    same(program)


def test_an_updated_final_saves_and_returns_different_values(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return kit.entrypoint.final(value=[n, previous], save=n)

        kit.invoke(flow, 1)
        kit.update(flow, kit.entrypoint.final(value="shown", save="kept"))
        return [kit.state(flow).values, kit.invoke(flow, 2)]

    same(program)


def test_bulk_updates_write_one_super_step_after_another(same):
    def program(kit):
        from langgraph.types import StateUpdate

        flow = counting(kit)
        flow.bulk_update_state({"configurable": {"thread_id": "t"}}, [[StateUpdate(1)], [StateUpdate(2)]])
        return kit.history(flow)

    same(program)


# ---------------------------------------------------------------- from the past


def test_a_run_from_an_old_checkpoint_with_new_input(same):
    def program(kit):
        flow = counting(kit)
        for n in (1, 2):
            kit.invoke(flow, n)
        first = next(one for one in kit.history(flow) if one.metadata["source"] == "loop" and one.values == 1)
        return [kit.invoke(flow, 10, first.config), kit.history(flow)]

    assert same(program)[0] == 11


def test_a_run_replayed_from_an_old_checkpoint(same):
    def program(kit):
        runs = []

        @kit.task
        def step(n):
            runs.append(n)
            return n

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return step(n).result()

        kit.invoke(flow, 1)
        first = kit.history(flow)[-1]
        return [kit.invoke(flow, None, first.config), kit.history(flow)]

    same(program)


def test_a_finished_checkpoint_has_nothing_to_go_on_with(same):
    def program(kit):
        flow = counting(kit)
        for n in (1, 2):
            kit.invoke(flow, n)
        first = next(one for one in kit.history(flow) if one.metadata["source"] == "loop" and one.values == 1)
        return [kit.invoke(flow, None, first.config), kit.state(flow).values]

    same(program)


# ---------------------------------------------------------------- with_config


def test_a_bound_config_is_under_the_one_of_the_call(same):
    def program(kit):
        flow = counting(kit).with_config({"configurable": {"thread_id": "bound"}, "metadata": {"team": "x"}})
        return [
            kit.invoke(flow, 1, {}),
            kit.state(flow, {"configurable": {}}),
            kit.invoke(flow, 2, {"configurable": {"thread_id": "other"}}),
            kit.invoke(flow, 3, {}),
        ]

    same(program)
