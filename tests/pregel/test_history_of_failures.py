"""Failures that were handled are history; those that ended a run are tried again."""

import asyncio
import threading

import pytest

from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver

CONFIG = {"thread_id": "t"}


class Declined(Exception):
    """With attributes that C code does not keep."""

    def __init__(self, amount, reason="no funds"):
        super().__init__(f"declined {amount}")
        self.amount, self.reason = amount, reason


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


class World:
    """What tasks do to the world, and what is broken in it."""

    def __init__(self):
        self.done, self.broken = [], set()
        self.lock = threading.Lock()

    def do(self, what):
        self.done.append(what)
        if what in self.broken:
            raise Declined(what)
        return what

    def since(self, mark):
        return self.done[mark:]


@pytest.fixture
def world():
    return World()


def fails(flow, given, error=Exception):
    with pytest.raises(error) as caught:
        flow.invoke(given, CONFIG)
    return caught.value


def test_ten_parallel_tasks_of_which_five_fail_need_one_resume(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(n):
        return [future.result() for future in map(do, range(n))]

    world.broken = {1, 3, 5, 7, 9}
    error = fails(flow, 10, Declined)
    first = list(world.done)

    # when
    world.broken.clear()
    result = flow.invoke(None, CONFIG)

    # then
    assert error.amount in (1, 3, 5, 7, 9)
    assert result == list(range(10))
    assert {0, 2, 4, 6, 8} & set(first) & set(world.since(len(first))) == set()


def test_ten_parallel_coroutines_of_which_five_fail_need_one_resume(saver, world):
    # given
    @task
    async def do(x):
        await asyncio.sleep(0.001)
        return world.do(x)

    @entrypoint(checkpointer=saver)
    async def flow(n):
        return [await future for future in [do(x) for x in range(n)]]

    world.broken = {1, 3, 5, 7, 9}
    with pytest.raises(Declined):
        asyncio.run(flow.ainvoke(10, CONFIG))
    mark = len(world.done)

    # when
    world.broken.clear()
    result = asyncio.run(flow.ainvoke(None, CONFIG))

    # then: all ten were running, so the five that could finish had finished
    assert mark == 10
    assert result == list(range(10))
    assert sorted(world.since(mark)) == [1, 3, 5, 7, 9]


def raise_itself(error):
    raise error


def raise_from(error):
    raise RuntimeError("wrapped") from error


def raise_from_from(error):
    try:
        raise ValueError("once") from error
    except ValueError as again:
        raise RuntimeError("twice") from again


def raise_in_group(error):
    raise ExceptionGroup("several", [ValueError("another"), error])


def raise_deep_in_group(error):
    raise RuntimeError("wrapped") from ExceptionGroup("outer", [ExceptionGroup("inner", [error])])


def raise_from_none(error):
    raise RuntimeError("instead") from None


def raise_without_from(error):
    raise RuntimeError("while handling")


@pytest.mark.parametrize("how", [raise_itself, raise_from, raise_from_from, raise_in_group, raise_deep_in_group])
def test_a_failure_in_the_chain_of_what_ended_the_run_is_tried_again(how, saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        before = do("before").result()
        try:
            return [before, do("charge").result()]
        except Declined as error:
            how(error)

    world.broken = {"charge"}
    fails(flow, 1)

    # when
    world.broken.clear()

    # then
    assert flow.invoke(None, CONFIG) == ["before", "charge"]
    assert world.done == ["before", "charge", "charge"]


@pytest.mark.parametrize("how", [raise_from_none, raise_without_from])
def test_a_failure_that_is_only_the_context_of_what_ended_the_run_is_tried_again_as_nothing_came_after(
    how, saver, world
):
    # given: the flow neither called, asked nor returned after it had looked at the failure
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            return do("charge").result()
        except Declined as error:
            how(error)

    world.broken = {"charge"}
    fails(flow, 1, RuntimeError)

    # when
    world.broken.clear()

    # then
    assert flow.invoke(None, CONFIG) == "charge"


@pytest.mark.parametrize("how", [raise_from_none, raise_without_from])
def test_a_handled_failure_that_is_only_the_context_of_what_ended_the_run_is_history(how, saver, world):
    # given: the flow made another call after it had looked at the failure
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            return do("charge").result()
        except Declined as error:
            other = do("other").result()
            if "end" in world.broken:
                how(error)
            return [error.amount, error.reason, other]

    world.broken = {"charge", "end"}
    fails(flow, 1, RuntimeError)

    # when
    world.broken.clear()

    # then
    assert flow.invoke(None, CONFIG) == ["charge", "no funds", "other"]
    assert world.done == ["charge", "other"]


def test_a_handled_failure_is_raised_again_at_a_replay_with_its_type_and_attributes(saver, world):
    # given
    seen = []

    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            do(17).result()
        except Declined as error:
            seen.append((type(error), error.amount, error.reason, error.args, str(error)))
            do("other way").result()
        return interrupt("sure?")

    world.broken = {17}
    flow.invoke(1, CONFIG)
    world.broken.clear()

    # when
    result = flow.invoke(Command(resume="yes"), CONFIG)

    # then
    assert result == "yes"
    assert seen == [(Declined, 17, "no funds", ("declined 17",), "declined 17")] * 2
    assert world.done == [17, "other way"]


def test_a_failure_handled_by_a_look_through_exception_is_history(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        error = do("charge").exception()
        return [error.amount, interrupt("sure?")]

    world.broken = {"charge"}
    flow.invoke(1, CONFIG)
    world.broken.clear()

    # when
    result = flow.invoke(Command(resume="yes"), CONFIG)

    # then
    assert result == ["charge", "yes"]
    assert world.done == ["charge"]


def test_a_handled_failure_stays_when_another_one_ends_the_run(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            do("card").result()
        except Declined:
            return do("transfer").result()

    world.broken = {"card", "transfer"}
    fails(flow, 1, Declined)
    world.broken.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert result == "transfer"
    assert world.done == ["card", "transfer", "transfer"]


def test_a_handled_failure_that_is_raised_later_after_all_is_tried_again(saver, world):
    # given: it is in the chain of what ended the run, whatever was done between
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        error = do("card").exception()
        do("note").result()
        if error is not None:
            raise RuntimeError("could not charge") from error
        return "charged"

    world.broken = {"card"}
    fails(flow, 1, RuntimeError)
    world.broken.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert result == "charged"
    assert world.done == ["card", "note", "card"]


def test_a_failure_nobody_looked_at_fails_the_run_and_is_named(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        do("forgotten")
        return "finished"

    world.broken = {"forgotten"}

    # when
    error = fails(flow, 1, Declined)
    world.broken.clear()

    # then
    assert "do" in "".join(error.__notes__)
    assert flow.invoke(None, CONFIG) == "finished"
    assert world.done == ["forgotten", "forgotten"]


def test_a_failure_nobody_looked_at_inside_a_task_is_tried_again(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @task
    def whole(x):
        do(x)
        return "whole"

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole("forgotten").result()

    world.broken = {"forgotten"}

    # when
    error = fails(flow, 1, Declined)
    world.broken.clear()

    # then
    assert error.amount == "forgotten"
    assert flow.invoke(None, CONFIG) == "whole"
    assert world.done == ["forgotten", "forgotten"]
