"""A run that is cancelled or closed early goes on, and flows live in any surroundings: loops, forks, threads."""

import asyncio
import concurrent.futures
import contextvars
import os
import threading

import pytest

from flowfn import branch, entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import ForkedProcessError

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


# ---------------------------------------------------------------- stopping early


async def test_a_cancelled_ainvoke_can_be_gone_on_with():
    # given
    ran, gate = [], asyncio.Event()

    @task
    async def work(x):
        ran.append(x)
        if x == 1 and not gate.is_set():
            began.set()
            await gate.wait()
        return x

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(n):
        return [await work(i) for i in range(n)]

    began = asyncio.Event()
    call = asyncio.create_task(flow.ainvoke(3, CONFIG))
    await began.wait()

    # when
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()

    # then
    assert await flow.ainvoke(None, CONFIG) == [0, 1, 2]
    assert ran == [0, 1, 1, 2]


async def test_a_cancelled_ainvoke_keeps_what_functions_were_doing():
    # given
    ran, began, gate = [], threading.Event(), threading.Event()

    @task
    def work(x):
        ran.append(x)
        began.set()
        gate.wait(5)
        return x

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(n):
        return await work(n)

    call = asyncio.create_task(flow.ainvoke(3, CONFIG))
    await asyncio.to_thread(began.wait, 5)

    # when
    call.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await call

    # then
    assert await flow.ainvoke(None, CONFIG) == 3
    assert ran == [3]


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_stream_that_is_closed_early_can_be_gone_on_with(how):
    # given
    ran = []

    @task
    def work(x):
        ran.append(x)
        return x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(n):
        return [work(i).result() for i in range(n)]

    # when
    if how == "stream":
        chunks = flow.stream(50, CONFIG)
        next(chunks)
        chunks.close()
    else:

        async def begin():
            chunks = flow.astream(50, CONFIG)
            await anext(chunks)
            await chunks.aclose()

        asyncio.run(begin())

    # then
    assert flow.invoke(None, CONFIG) == list(range(50))
    assert ran == list(range(50))


# ---------------------------------------------------------------- surroundings

VAR = contextvars.ContextVar("var", default="unset")


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_context_variables_travel_with_the_call_and_do_not_leak_back(kind, how):
    # given
    def read(x):
        seen = VAR.get()
        VAR.set("changed in the task")
        return seen

    async def aread(x):
        return read(x)

    reads = task(read if kind == "function" else aread)

    @entrypoint
    def flow(x):
        outer = VAR.get()
        VAR.set("one")
        first = reads(1)
        VAR.set("two")
        second = reads(2)
        return [outer, first.result(), second.result(), VAR.get()]

    VAR.set("outside")

    # when, then
    assert run(flow, how) == ["outside", "one", "two", "two"]
    assert VAR.get() == "outside"


def test_every_call_may_bring_an_event_loop_of_its_own():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        return await ainc(await inc(x))

    # when, then
    assert [asyncio.run(flow.ainvoke(i, CONFIG)) for i in range(3)] == [2, 3, 4]


@pytest.mark.parametrize("body", ["function", "coroutine"])
async def test_invoke_works_while_an_event_loop_runs_in_this_thread(body):
    # given: as in a notebook
    if body == "function":

        @entrypoint
        def flow(x):
            return [inc(x).result(), ainc(x).result()]
    else:

        @entrypoint
        async def flow(x):
            return [await inc(x), await ainc(x)]

    # when, then
    assert flow.invoke(1) == [2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_in_a_forked_child_is_refused():
    # given
    @entrypoint
    def flow(x):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                inc(1)
            except ForkedProcessError:
                os.write(writer, b"refused")
            except BaseException as error:
                os.write(writer, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        told = os.read(reader, 1000).decode()
        os.close(reader)
        return told, inc(x).result()

    # when, then
    assert flow.invoke(1) == ("refused", 2)


@pytest.mark.timeout(10)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_may_run_flows_of_its_own():
    # given
    @entrypoint
    def flow(x):
        return [inc(x).result(), ainc(x).result(), *inc.map(range(5))]

    flow.invoke(1)

    # when
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, repr(flow.invoke(1)).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)

    # then
    assert told == repr(flow.invoke(1))


def test_threads_that_the_flow_starts_may_call_with_a_copied_context():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        def work(i):
            with branch(f"worker {i}"):
                return inc(0).result() + i

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, work, i) for i in range(3)]
            return [job.result() for job in jobs]

    # when, then
    assert run(flow, "invoke", max_concurrency=1) == [1, 2, 3]


async def test_to_thread_inside_a_coroutine_flow_may_call():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        return await asyncio.to_thread(lambda: inc(x).result())

    # when, then
    assert await asyncio.wait_for(flow.ainvoke(1, {**CONFIG, "max_concurrency": 1}), 5) == 2
