"""A task's future: waited for in every way there is, and never taken for its value."""

import asyncio
import concurrent.futures
import copy
import pickle
import threading
import time

import pytest

from flowfn import MapFuture, TaskFuture, entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import FutureUsedAsValueError, UnfinishedInCoroutineError

CONFIG = {"thread_id": "t"}


@task
def quick(x):
    return x


@task
def slow(x):
    time.sleep(0.03)
    return x


@task
async def aslow(x):
    await asyncio.sleep(0.02)
    return x


@task
async def aquick(x):
    return x


@task
def fail(x):
    raise ValueError(x)


def inside(body, saver=None, **more):
    """What `body` gives inside a flow."""
    return entrypoint(checkpointer=saver)(lambda x: body()).invoke(1, {**CONFIG, **more})


def ainside(body, saver=None):
    async def flow(x):
        return await body()

    return asyncio.run(entrypoint(checkpointer=saver)(flow).ainvoke(1, CONFIG))


# ---------------------------------------------------------------- one future


def test_a_result_that_takes_too_long_times_out_and_the_task_goes_on():
    def body():
        future = slow(1)
        with pytest.raises(TimeoutError):
            future.result(timeout=0.001)
        with pytest.raises(TimeoutError):
            future.exception(0)
        return future.result(timeout=5)

    assert inside(body) == 1


def test_an_exception_is_given_and_the_same_one_is_raised():
    def body():
        future = fail(1)
        error = future.exception()
        with pytest.raises(ValueError) as caught:
            future.result()
        assert caught.value is error
        return error.args, quick(2).exception()

    assert inside(body) == ((1,), None)


def test_done_and_running_say_how_far_a_task_is():
    gate = threading.Event()

    @task(inline=False)
    def waits(x):
        began.set()
        gate.wait(5)
        return x

    began = threading.Event()

    def body():
        future = waits(1)
        began.wait(5)
        states = [(future.done(), future.running(), future.cancelled())]
        gate.set()
        future.result()
        return [*states, (future.done(), future.running(), future.cancelled())]

    assert inside(body) == [(False, True, False), (True, False, False)]


def test_a_task_nobody_has_begun_can_be_cancelled():
    gate = threading.Event()
    ran = []

    @task(inline=False)
    def waits(x):
        ran.append(x)
        gate.wait(5)
        return x

    def body():
        first, second = waits(1), waits(2)
        while 1 not in ran:
            time.sleep(0.001)
        cancelled = second.cancel()
        gate.set()
        with pytest.raises(concurrent.futures.CancelledError):
            second.result()
        return first.result(), cancelled, second.cancelled(), second.done(), first.cancel()

    assert inside(body, max_concurrency=1) == (1, True, True, True, False)
    assert ran == [1]


def test_a_running_coroutine_can_be_cancelled():
    @task
    async def waits(x):
        began.set()
        await asyncio.sleep(30)

    began = threading.Event()

    def body():
        future = waits(1)
        began.wait(5)
        future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result()
        return future.cancelled()

    assert inside(body) is True


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_callback_is_called_once_with_its_future(when):
    called, gate = [], threading.Event()

    def body():
        future = slow(1)
        if when == "after":
            future.result()
        future.add_done_callback(lambda f: (called.append(f), gate.set()))
        value = future.result()
        gate.wait(5)
        return value, called == [future]

    assert inside(body) == (1, True)


@pytest.mark.parametrize("make", [slow, aslow])
def test_a_callback_may_look_at_the_result(make):
    seen, gate = [], threading.Event()

    def told(future):
        try:
            seen.append(future.result())
        except BaseException as error:
            seen.append(error)
        gate.set()

    def body():
        future = make(1)
        future.add_done_callback(told)
        future.result()
        gate.wait(5)

    inside(body)
    assert seen == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("make", [quick, slow, aslow])
def test_a_callback_that_raises_harms_nobody(make):
    def told(future):
        raise ValueError("from the callback")

    def body():
        future = make(1)
        future.add_done_callback(told)
        return future.result(timeout=0.5)

    assert inside(body, InMemorySaver()) == 1


async def test_a_callback_in_a_coroutine_is_called_in_its_loop():
    called = asyncio.Event()
    where = []

    @entrypoint
    async def flow(x):
        future = slow(1)
        future.add_done_callback(lambda f: (where.append(threading.current_thread()), called.set()))
        value = await future
        await called.wait()
        return value

    assert await flow.ainvoke(1) == 1
    assert where == [threading.current_thread()]


async def test_a_result_of_an_unfinished_task_in_a_coroutine_is_an_error_that_says_await():
    @entrypoint
    async def flow(x):
        future = aslow(1)
        with pytest.raises(UnfinishedInCoroutineError, match="await"):
            future.result()
        value = await future
        return value, future.result()

    assert await flow.ainvoke(1) == (1, 1)


# ---------------------------------------------------------------- never its value

USES = {
    "truth": bool,
    "not": lambda f: not f,
    "iteration": list,
    "unpacking": lambda f: [*f],
    "length": len,
    "index": lambda f: f[0],
    "membership": lambda f: 1 in f,
    "format": lambda f: f"{f}",
    "format spec": lambda f: f"{f:>5}",
    "str": str,
    "percent": lambda f: "%s" % f,  # noqa: UP031
    "join": lambda f: ",".join([f]),
    "add": lambda f: f + 1,
    "radd": lambda f: 1 + f,
    "less": lambda f: f < 1,
    "int": int,
    "float": float,
    "range": range,
    "attribute": lambda f: f.amount,
    "call": lambda f: f(),
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("done", [False, True])
def test_a_future_never_passes_for_its_value(use, done):
    def body():
        future = quick(5)
        if done:
            future.result()
        with pytest.raises((TypeError, AttributeError)) as caught:
            USES[use](future)
        return future.result(), caught.value

    value, error = inside(body)
    assert value == 5
    if use in {"truth", "not", "iteration", "unpacking", "length", "index", "membership", "format", "str", "percent"}:
        assert isinstance(error, FutureUsedAsValueError)
        assert ".result()" in str(error)


def test_a_future_equals_only_itself():
    def body():
        one, two = quick(5), quick(5)
        with pytest.raises(FutureUsedAsValueError, match="result"):
            one == 5  # noqa: B015
        with pytest.raises(FutureUsedAsValueError):
            one + 1
        return one == one, one == two, len({one, two}), copy.copy(one) is one, copy.deepcopy([one])[0] is one

    assert inside(body) == (True, False, 2, True, True)


def test_the_repr_of_a_future_names_its_task_and_not_its_value():
    def body():
        future = quick(12345)
        future.result()
        return repr(future)

    assert inside(body) == "<TaskFuture of `quick`: finished>"


# ---------------------------------------------------------------- many


def test_a_map_gives_results_in_order_in_every_way():
    def body():
        return [
            quick.map(range(3)).result(),
            list(quick.map(range(3))),
            quick.starmap([(0,), (1,)]).result(),
            quick.map([]).result(),
        ]

    assert inside(body) == [[0, 1, 2], [0, 1, 2], [0, 1], []]


def test_an_awaited_map_gives_results_in_order_in_every_way():
    async def body():
        return [
            await aquick.map(range(3)),
            [x async for x in aslow.map(range(3))],
            [x async for x in aslow.map(range(5), in_flight=2)],
            await slow.map(range(3), in_flight=1),
        ]

    assert ainside(body) == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 2]]


def test_a_map_collects_failures_in_their_places():
    @task
    def odd(x):
        if x % 2:
            raise ValueError(x)
        return x

    got = inside(lambda: [repr(v) for v in odd.map(range(4), on_error="collect").result()], InMemorySaver())
    assert got == ["0", "ValueError(1)", "2", "ValueError(3)"]


def test_a_map_holds_only_so_many_in_flight():
    taken, handed = [], []

    def items():
        for i in range(10):
            taken.append(i)
            yield i

    def body():
        for value in quick.map(items(), in_flight=3):
            handed.append(value)
            assert len(taken) - len(handed) <= 3
        return len(taken)

    assert inside(body) == 10


def test_a_map_takes_fixed_arguments_and_its_future_is_an_argument():
    @task
    def power(x, n, m=1):
        return x**n * m

    @task
    def total(xs):
        return sum(xs)

    def body():
        many = power.map([1, 2, 3], n=2, m=10)
        assert isinstance(many, MapFuture)
        assert all(isinstance(f, TaskFuture) for f in many.futures)
        return total(many).result(), total(many.later).result()

    assert inside(body) == (140, 140)


@pytest.mark.parametrize("bad", [{"on_error": "ignore"}, {"in_flight": 0}])
def test_a_map_refuses_options_it_does_not_know(bad):
    def body():
        with pytest.raises(ValueError):
            quick.map([1], **bad)

    inside(body)
