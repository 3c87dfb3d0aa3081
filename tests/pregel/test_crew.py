"""Whoever waits, works: every mix of functions and coroutines comes to its end under any limit, at any depth."""

import asyncio
import concurrent.futures
import contextlib
import threading
import time

import pytest

import flowfn
from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint.memory import InMemorySaver

CONFIG = {"thread_id": "t"}


@task
def inc(x):
    return x + 1


@task
async def ainc(x):
    await asyncio.sleep(0)
    return x + 1


def run(flow, how, value=1, **config):
    config = {**CONFIG, **config}
    if how == "invoke":
        return flow.invoke(value, config)
    return asyncio.run(flow.ainvoke(value, config))


# ---------------------------------------------------------------- every mix


@pytest.mark.timeout(10)
@pytest.mark.parametrize("limit", [None, 1, 2])
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("tasks", ["functions", "coroutines", "both"])
@pytest.mark.parametrize("body", ["function", "coroutine"])
def test_every_mix_of_functions_and_coroutines_comes_to_its_result(body, tasks, how, limit):
    # given
    kinds = {"functions": [inc, inc], "coroutines": [ainc, ainc], "both": [inc, ainc]}[tasks]

    if body == "function":

        @entrypoint(checkpointer=InMemorySaver())
        def flow(x):
            one = [kinds[i % 2](i) for i in range(6)]
            return [kinds[0](sum(f.result() for f in one)).result(), kinds[1](one[0]).result()]
    else:

        @entrypoint(checkpointer=InMemorySaver())
        async def flow(x):
            one = [kinds[i % 2](i) for i in range(6)]
            return [await kinds[0](sum([await f for f in one])), await kinds[1](one[0])]

    # when, then
    assert run(flow, how, max_concurrency=limit) == [22, 2]


def waits_by_result(futures):
    return [f.result() for f in futures]


def waits_by_stdlib(futures):
    concurrent.futures.wait(futures)
    return [f.result() for f in futures]


def waits_by_stdlib_as_completed(futures):
    return sorted(f.result() for f in concurrent.futures.as_completed(futures))


def waits_by_flowfn(futures):
    flowfn.wait(futures)
    return [f.result() for f in futures]


def waits_by_as_completed(futures):
    return sorted(f.result() for f in flowfn.as_completed(futures))


def waits_with_timeout(futures):
    return [f.result(timeout=30) for f in futures]


def waits_by_exception(futures):
    assert [f.exception() for f in futures] == [None] * len(futures)
    return [f.result() for f in futures]


WAITS = [
    waits_by_result,
    waits_by_stdlib,
    waits_by_stdlib_as_completed,
    waits_by_flowfn,
    waits_by_as_completed,
    waits_with_timeout,
    waits_by_exception,
]


async def awaits_one_by_one(futures):
    return [await f for f in futures]


async def awaits_gather(futures):
    return await asyncio.gather(*futures)


async def awaits_wait(futures):
    await asyncio.wait(futures)
    return [f.result() for f in futures]


async def awaits_flowfn(futures):
    await flowfn.wait(futures)
    return [f.result() for f in futures]


async def awaits_as_completed(futures):
    return sorted([f.result() async for f in flowfn.as_completed(futures)])


async def awaits_group(futures):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(f.coroutine()) for f in futures]
    return [t.result() for t in tasks]


AWAITS = [awaits_one_by_one, awaits_gather, awaits_wait, awaits_flowfn, awaits_as_completed, awaits_group]


class Gauge:
    """How many attempts run their own code at once."""

    def __init__(self):
        self.now, self.most, self.lock = 0, 0, threading.Lock()

    @contextlib.contextmanager
    def working(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        yield
        with self.lock:
            self.now -= 1


PAIR = []
"""A function and a coroutine that call each other, found here so that neither captures the other."""


def one_of_the_pair(depth, kinds):
    return PAIR[{"functions": 0, "coroutines": 1, "both": depth % 2}[kinds]]


def tree(gauge, wait, await_, alternates, deepest):
    """A task that calls two of its kind a level, `deepest` levels down; every second one may be a coroutine."""

    @task
    def node(depth, path):
        with gauge.working():
            time.sleep(0.0003)
        if depth == deepest:
            return 1
        total = sum(wait([one_of_the_pair(depth, alternates)(depth + 1, f"{path}{i}") for i in range(2)]))
        with gauge.working():
            return total

    @task
    async def anode(depth, path):
        with gauge.working():
            time.sleep(0.0003)
        if depth == deepest:
            return 1
        total = sum(await await_([one_of_the_pair(depth, alternates)(depth + 1, f"{path}{i}") for i in range(2)]))
        with gauge.working():
            return total

    PAIR[:] = node, anode
    return one_of_the_pair(1, alternates)


TWINS = [(w, AWAITS[i % len(AWAITS)]) for i, w in enumerate(WAITS)]


def run_tree(wait, await_, kinds, limit, how, gauge):
    root = tree(gauge, wait, await_, kinds, deepest=5)

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return sum(wait([root(1, "a"), root(1, "b")]))

    return run(flow, how, max_concurrency=limit)


@pytest.mark.timeout(15)
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("kinds", ["functions", "coroutines", "both"])
@pytest.mark.parametrize(("wait", "await_"), TWINS)
def test_any_limit_works_at_any_depth(wait, await_, kinds, limit, how):
    assert run_tree(wait, await_, kinds, limit, how, Gauge()) == 2 * 2**4


@pytest.mark.timeout(15)
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("kinds", ["functions", "coroutines", "both"])
@pytest.mark.parametrize(("wait", "await_"), TWINS)
def test_a_limit_holds_at_any_depth(wait, await_, kinds, limit, how):
    # given
    gauge = Gauge()

    # when
    run_tree(wait, await_, kinds, limit, how, gauge)

    # then
    assert gauge.most <= limit


@pytest.mark.timeout(15)
@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("kinds", ["functions", "coroutines", "both"])
@pytest.mark.parametrize("await_", AWAITS)
def test_any_limit_works_and_holds_under_a_flow_that_is_a_coroutine(await_, kinds, limit):
    # given
    gauge = Gauge()
    root = tree(gauge, waits_by_result, await_, kinds, deepest=4)

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        return sum(await await_([root(1, "a"), root(1, "b")]))

    # when
    result = run(flow, "ainvoke", max_concurrency=limit)

    # then
    assert result == 2 * 2**3
    assert gauge.most <= limit


def test_a_coroutine_that_a_function_waits_for_is_never_run_as_a_function():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        one = [(inc, ainc)[i % 2](i) for i in range(6)]
        return [f.result() for f in one]

    # when, then
    for i in range(300):
        assert flow.invoke(1, {"thread_id": str(i)}) == [1, 2, 3, 4, 5, 6]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("limit", [1, 3, None])
@pytest.mark.parametrize("kind", ["functions", "coroutines"])
def test_a_limit_bounds_the_attempts_and_is_used_up(kind, limit):
    # given
    gauge = Gauge()

    @task
    def work(x):
        with gauge.working():
            time.sleep(0.005)
        return x

    @task
    async def awork(x):
        with gauge.working():
            await asyncio.sleep(0.005)
        return x

    @entrypoint
    def flow(x):
        return (work if kind == "functions" else awork).map(range(12)).result()

    # when
    assert run(flow, "invoke", max_concurrency=limit) == list(range(12))

    # then
    assert gauge.most == limit if limit else gauge.most > 2


# ---------------------------------------------------------------- many and deep


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["functions", "coroutines"])
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_five_thousand_parallel_tasks_that_each_call_one(kind, how):
    # given
    @task
    def outer(x):
        return inc(x).result()

    @task
    async def aouter(x):
        return await ainc(x)

    @entrypoint
    def flow(n):
        return sum((outer if kind == "functions" else aouter).map(range(n)))

    # when, then
    assert run(flow, how, 5000) == sum(range(1, 5001))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("saver", [None, InMemorySaver], ids=["nothing kept", "memory"])
@pytest.mark.parametrize(
    "kind",
    ["functions", "coroutines", "both"],
)
def test_a_thousand_nested_levels(kind, saver):
    # given
    @task
    def down(n):
        return n if n >= 1000 else one_of_the_pair(n, kind)(n + 1).result()

    @task
    async def adown(n):
        return n if n >= 1000 else await one_of_the_pair(n, kind)(n + 1)

    PAIR[:] = down, adown

    @entrypoint(checkpointer=saver and saver())
    def flow(n):
        return one_of_the_pair(n, kind)(n).result()

    # when, then
    assert run(flow, "invoke", 0) == 1000


@task
def asks_deep_down(n):
    return interrupt("deep?") if n == 100 else asks_deep_down(n + 1).result()


@pytest.mark.timeout(20)
def test_a_task_that_asks_deep_down_holds_no_worker():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(n):
        return asks_deep_down(n).result()

    # when
    result = run(flow, "invoke", 0, max_concurrency=1)

    # then
    assert result["__interrupt__"][0].value == "deep?"
    assert flow.invoke(Command(resume="yes"), CONFIG) == "yes"
