"""A recorded result answers only the call it was recorded for, whatever was edited or raced meanwhile."""

import asyncio
import threading

import pytest

from flowfn import Runtime, branch, entrypoint, record, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import AmbiguousCallError

CONFIG = {"thread_id": "t"}
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


class Stop(Exception):
    """What keeps a run unfinished."""


@task
def work(x, y=0):
    RAN.append((x, y))
    return f"{x}/{y}/{len(RAN)}"


@task
async def poll(x):
    RAN.append(x)
    number = len(RAN)
    await asyncio.sleep(0)
    return number


def tick(step=1):
    RAN.append(step)
    return sum(RAN)


def edited(before, after, caplog=None):
    """The results of a script that fails at its end, then is edited and goes on: (recorded, after the edit)."""
    saver, recorded = InMemorySaver(), []

    def first(x):
        recorded.append(before())
        raise Stop

    def second(x):
        return after()

    first.__qualname__ = second.__qualname__ = "flow"
    with pytest.raises(Stop):
        entrypoint(checkpointer=saver, name="flow")(first).invoke(1, CONFIG)
    RAN.append("edit")
    if caplog is not None:
        caplog.clear()
    return recorded[0], entrypoint(checkpointer=saver, name="flow")(second).invoke(None, CONFIG)


def values(*xs):
    return lambda: {x: work(x).result() for x in xs}


def ran_after_the_edit():
    return RAN[RAN.index("edit") + 1 :]


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ("abc", "xabc", "x"),
        ("abc", "axbxc", "xx"),
        ("abc", "ac", ""),
        ("abc", "c", ""),
        ("abc", "cba", ""),
        ("abc", "bdca", "d"),
    ],
)
def test_an_edit_never_hands_a_call_the_result_of_another_one(before, after, runs):
    # given, when
    recorded, now = edited(values(*before), values(*after))

    # then
    assert {x: now[x] for x in now if x in recorded} == {x: recorded[x] for x in now if x in recorded}
    assert [x for x, _ in ran_after_the_edit()] == list(runs)


def test_parallel_calls_in_another_order_get_their_own_results():
    # given, when
    recorded, now = edited(
        lambda: [f.result() for f in map(work, "abc")], lambda: [f.result() for f in map(work, "cab")]
    )

    # then
    assert now == [recorded[2], recorded[0], recorded[1]]
    assert ran_after_the_edit() == []


def test_equal_calls_are_numbered():
    # given, when
    recorded, now = edited(
        lambda: [work("a").result() for _ in range(3)], lambda: [work("a").result() for _ in range(4)]
    )

    # then
    assert len(set(recorded)) == 3
    assert now[:3] == recorded
    assert ran_after_the_edit() == [("a", 0)]


@pytest.mark.parametrize(
    "again",
    [
        lambda: work(x="a").result(),
        lambda: work("a", 0).result(),
        lambda: work(y=0, x="a").result(),
    ],
)
def test_one_call_written_in_several_ways_is_one_call(again):
    # given, when
    recorded, now = edited(lambda: work("a").result(), again)

    # then
    assert now == recorded


@pytest.mark.parametrize(
    ("one", "same"),
    [({1, 2, 3}, {3, 2, 1}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (frozenset("xyz"), frozenset("zyx"))],
)
def test_the_order_of_sets_and_dicts_is_no_part_of_a_call(one, same):
    # given, when
    recorded, now = edited(lambda: work(one).result(), lambda: work(same).result())

    # then
    assert now == recorded


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (1, True),
        (1, 1.0),
        (1, "1"),
        ("a", b"a"),
        ([1], (1,)),
        ([], ()),
        (None, False),
        (0.0, -0.0),
        ({1}, [1]),
        ({}, []),
    ],
)
def test_calls_whose_arguments_differ_in_type_are_other_calls(one, another):
    # given, when
    edited(lambda: work(one).result(), lambda: work(another).result())

    # then
    assert ran_after_the_edit() == [(another, 0)]


# ---------------------------------------------------------------- racing


async def polls(name, times):
    return [await poll(name) for _ in range(times)]


async def test_racing_coroutines_that_make_equal_calls_are_refused():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        return await asyncio.gather(polls("x", 2), polls("x", 2))

    # when
    with pytest.raises(AmbiguousCallError) as caught:
        await flow.ainvoke(1, CONFIG)

    # then
    assert "poll" in str(caught.value)
    assert "branch" in str(caught.value)


async def test_coroutines_that_make_equal_calls_one_after_the_other_are_not_refused():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        first = await asyncio.create_task(polls("x", 2))
        second = await asyncio.create_task(polls("x", 2))
        third = await polls("x", 1)
        return first + second + third

    # when, then
    assert await flow.ainvoke(1, CONFIG) == [1, 2, 3, 4, 5]


async def test_racing_coroutines_with_other_arguments_are_not_refused():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        return await asyncio.gather(polls("x", 3), polls("y", 3))

    # when, then
    assert [len(part) for part in await flow.ainvoke(1, CONFIG)] == [3, 3]


async def test_equal_calls_gathered_by_one_coroutine_are_not_refused():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        return sorted(await asyncio.gather(poll("x"), poll("x"), poll("x")))

    # when, then
    assert await flow.ainvoke(1, CONFIG) == [1, 2, 3]


async def test_branches_tell_racing_coroutines_apart():
    # given
    async def within(name):
        with branch(name):
            return await polls("x", 2)

    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        got = await asyncio.gather(*[within(name) for name in ("ab" if fails else "ba")])
        if fails:
            seen.append(got)
            raise Stop
        return got

    seen = []
    with pytest.raises(Stop):
        await flow.ainvoke(1, CONFIG)
    fails.clear()

    # when
    now = await flow.ainvoke(None, CONFIG)

    # then
    assert now == seen[0][::-1]
    assert len(RAN) == 4


async def test_interchangeable_tasks_may_race():
    # given
    @task(interchangeable=True)
    async def ping(x):
        RAN.append(x)
        return len(RAN)

    async def pings():
        return [await ping("x"), await ping("x")]

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        one, other = await asyncio.gather(pings(), pings())
        return sorted(one + other)

    # when, then
    assert await flow.ainvoke(1, CONFIG) == [1, 2, 3, 4]


def test_racing_threads_that_make_equal_calls_are_refused():
    # given
    from contextvars import copy_context

    errors, barrier = [], threading.Barrier(2)

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        def calls():
            barrier.wait(5)
            try:
                futures.append(work("x"))
            except AmbiguousCallError as error:
                errors.append(error)
            barrier.wait(5)

        futures = []
        threads = [threading.Thread(target=copy_context().run, args=(calls,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(futures)

    # when
    assert flow.invoke(1, CONFIG) == 1

    # then
    assert len(errors) == 1


# ---------------------------------------------------------------- records and ids


def test_a_recorded_call_gives_every_replay_the_same():
    # given
    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        got = [record(tick), record(tick), record(tick, step=10), record(lambda: tick())]
        if fails:
            seen.append(got)
            raise Stop
        return got

    seen = []
    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == seen[0] == [1, 2, 12, 13]


def test_a_task_id_stays_over_a_resume_and_differs_in_a_new_run():
    # given
    ids, fails = [], [True]

    @task
    def charge(x, runtime: Runtime):
        ids.append((x, runtime.execution_info.task_id))
        if fails and x == 2:
            raise Stop
        return x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return [charge(i).result() for i in (1, 2)]

    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when
    flow.invoke(None, CONFIG)
    flow.invoke(1, CONFIG)

    # then
    (one, first), (two, failed), (again, resumed), (_, new_one), (_, new_two) = ids
    assert (one, two, again) == (1, 2, 2)
    assert failed == resumed
    assert len({first, failed, new_one, new_two}) == 4
