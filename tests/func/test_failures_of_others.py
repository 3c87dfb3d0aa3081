"""What a failure does to the siblings and the callers of the task that failed."""

import asyncio
import threading

import pytest

from flowfn import entrypoint, task
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


def test_siblings_that_run_when_one_fails_are_let_finish_and_stored(saver, world):
    # given
    gate = threading.Event()

    @task
    def fail(x):
        gate.wait(5)
        return world.do("fail")

    @task
    async def slow(x):
        gate.set()
        await asyncio.sleep(0.05)
        return world.do("slow")

    @entrypoint(checkpointer=saver)
    def flow(x):
        one, two = slow(x), fail(x)
        return [two.result(), one.result()]

    world.broken = {"fail"}
    fails(flow, 1, Declined)
    mark = len(world.done)
    world.broken.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert result == ["fail", "slow"]
    assert world.done[:mark] == ["fail", "slow"]
    assert world.since(mark) == ["fail"]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_calls_not_begun_when_a_sibling_fails_do_not_start(how, saver, world):
    # given: one place, so that the others have not begun
    @task
    def do(x):
        return world.do(x)

    @task
    async def ado(x):
        return world.do(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        return [future.result() for future in map(do if how == "sync" else ado, range(5))]

    world.broken = {0}

    # when
    with pytest.raises(Declined):
        flow.invoke(1, {**CONFIG, "max_concurrency": 1})
    mark = len(world.done)
    world.broken.clear()

    # then
    assert mark < 5
    assert flow.invoke(None, CONFIG) == list(range(5))
    assert sorted(world.done) == [0, *range(5)]


@pytest.mark.parametrize("wraps", [False, True])
def test_a_failed_task_whose_sub_task_failed_keeps_the_siblings_that_finished(wraps, saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @task
    def whole(x):
        done = do("part").result()
        try:
            return [done, do("broken part").result()]
        except Declined as error:
            if wraps:
                raise RuntimeError("whole failed") from error
            raise

    @entrypoint(checkpointer=saver)
    def flow(x):
        return [do("first").result(), whole(x).result()]

    world.broken = {"broken part"}
    fails(flow, 1, RuntimeError if wraps else Declined)
    world.broken.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert result == ["first", ["part", "broken part"]]
    assert world.done == ["first", "part", "broken part", "broken part"]


def test_a_failed_task_that_was_handled_stays_failed_with_its_sub_tasks(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @task
    def whole(x):
        return do("broken part").result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            return whole(x).result()
        except Declined:
            return do("instead").result()

    world.broken = {"broken part", "instead"}
    fails(flow, 1, Declined)
    world.broken.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert result == "instead"
    assert world.done == ["broken part", "instead", "instead"]


def test_a_sub_failure_that_a_task_handled_is_history_when_the_task_fails_otherwise(saver, world):
    # given
    @task
    def do(x):
        return world.do(x)

    @task
    def whole(x):
        try:
            do("card").result()
        except Declined:
            return do("transfer").result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole(x).result()

    world.broken = {"card", "transfer"}
    fails(flow, 1, Declined)
    world.broken.clear()

    # when
    result = flow.invoke(None, CONFIG)

    # then
    assert result == "transfer"
    assert world.done == ["card", "transfer", "transfer"]
