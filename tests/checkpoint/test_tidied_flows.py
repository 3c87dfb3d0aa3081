"""Flows go on after their threads were copied, pruned, or rid of runs."""

import pytest

import flowfn
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.checkpoint.base import Place


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    return InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")


@pytest.fixture
def ran():
    return []


@pytest.fixture
def order(saver, ran):
    """A flow that charges, asks inside a nested flow, ships, and counts its runs."""

    @flowfn.task
    def charge(amount):
        ran.append(f"charge {amount}")
        return amount

    @flowfn.task
    def ship(amount):
        ran.append(f"ship {amount}")
        return f"sent {amount}"

    @flowfn.entrypoint(name="confirm")
    def confirm(amount):
        charge(-amount).result()
        return flowfn.interrupt({"ship?": amount})

    @flowfn.entrypoint(name="order", checkpointer=saver)
    def order(amount, *, previous=None):
        charge(amount).result()
        answer = confirm.invoke(amount) if amount < 100 else "yes"
        shipped = ship(amount).result() if answer == "yes" else "kept"
        return flowfn.entrypoint.final(value=shipped, save=(previous or 0) + 1)

    return order


def state_of(saver, thread):
    return [(run.id, run.status) for run in saver.runs(thread)], [row.id for _, row in saver.questions(thread)]


def test_both_copies_of_a_waiting_thread_are_answered_and_go_on(order, saver, ran):
    order.invoke(7, {"thread_id": "t"})
    saver.copy_thread("t", "u")
    assert state_of(saver, "u") == state_of(saver, "t")
    assert ran == ["charge 7", "charge -7"]

    order.thread("u").answer("no")
    assert order.thread("u").resume() == "kept"
    assert order.thread("t").status() == "waiting"
    order.thread("t").answer("yes")
    assert order.thread("t").resume() == "sent 7"
    assert ran == ["charge 7", "charge -7", "ship 7"]
    assert order.thread("u").state().values == "kept"


@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
def test_a_waiting_run_goes_on_after_pruning_and_no_task_runs_again(order, saver, ran, strategy):
    for amount in (200, 300):
        order.invoke(amount, {"thread_id": "t"})
    order.invoke(7, {"thread_id": "t"})
    del ran[:]

    saver.prune(["t"], strategy=strategy)

    assert len(saver.runs("t")) == 1
    order.thread("t").answer("yes")
    assert order.thread("t").resume() == "sent 7"
    assert ran == ["ship 7"]
    assert order.invoke(400, {"thread_id": "t"}) == "sent 400"
    assert saver.load(Place("t")).checkpoint.checkpoint["channel_values"]["__previous__"] == 4


def test_flows_nested_in_forgotten_runs_are_forgotten_with_them(order, saver, ran):
    for amount in (5, 6):
        order.invoke(amount, {"thread_id": "t"})
        order.thread("t").answer("yes")
        order.thread("t").resume()
    spaces = {each.config["configurable"]["checkpoint_ns"] for each in saver.list({"thread_id": "t"})}
    assert len(spaces) == 3

    saver.prune(["t"])
    left = {each.config["configurable"]["checkpoint_ns"] for each in saver.list({"thread_id": "t"})}
    assert "" in left
    assert len(left) == 2
    saver.delete_for_runs([saver.runs("t")[0].id])
    assert list(saver.list({"thread_id": "t"})) == []
    assert saver.threads() == []


def test_a_thread_without_its_last_run_is_where_it_was_before(order, saver, ran):
    order.invoke(200, {"thread_id": "t"})
    order.invoke(7, {"thread_id": "t"})
    saver.delete_for_runs([saver.runs("t")[0].id])
    assert saver.questions() == []
    assert order.thread("t").status() == "finished"
    assert order.get_state({"thread_id": "t"}).values == "sent 200"
    assert order.invoke(300, {"thread_id": "t"}) == "sent 300"
    assert saver.load(Place("t")).checkpoint.checkpoint["channel_values"]["__previous__"] == 2


def test_history_can_be_walked_and_forked_after_pruning(order, saver, ran):
    order.invoke(200, {"thread_id": "t"})
    order.invoke(300, {"thread_id": "t"})
    saver.prune(["t"])
    history = list(order.get_state_history({"thread_id": "t"}))
    assert history[0].values == "sent 300"
    assert history[-1].parent_config is None
    assert order.invoke(None, history[-1].config) == "sent 300"
    assert [row.status for row in saver.runs("t")] == ["finished", "finished"]
