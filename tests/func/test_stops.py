"""A stop stops: once a question has reached a frame, nothing the frame does starts anything."""

import asyncio
import contextlib

import pytest

from flowfn import Command, as_completed, entrypoint, get_stream_writer, interrupt, record, task, wait
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import FlowStop

CONFIG = {"thread_id": "t"}
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@task
def work(x):
    RAN.append(x)
    return x


@task
async def awork(x):
    RAN.append(x)
    return x


@task
def asks(x):
    RAN.append("asks")
    answer = interrupt(f"{x}?")
    RAN.append("answered")
    return answer


def asked(result):
    return [question.value for question in result["__interrupt__"]]


def swallow_bare():
    try:
        interrupt("sure?")
    except:  # noqa: E722
        pass


def swallow_base():
    try:
        interrupt("sure?")
    except BaseException:
        pass


def swallow_suppress():
    with contextlib.suppress(BaseException):
        interrupt("sure?")


def swallow_finally():
    for _ in range(1):
        try:
            interrupt("sure?")
        finally:
            break  # noqa: B012  what people write


def swallow_of_a_task():
    with contextlib.suppress(BaseException):
        asks("sure").result()


def swallow_by_exception():
    with contextlib.suppress(BaseException):
        asks("sure").exception()


def swallow_by_as_completed():
    with contextlib.suppress(BaseException):
        for future in as_completed([asks("sure")]):
            future.result()


def swallow_by_group():
    try:
        interrupt("sure?")
    except* BaseException:
        pass


SWALLOWS = [
    swallow_bare,
    swallow_base,
    swallow_suppress,
    swallow_finally,
    swallow_of_a_task,
    swallow_by_exception,
    swallow_by_as_completed,
    swallow_by_group,
]
ACTS = {
    "a call": lambda: work(1),
    "a mapped call": lambda: work.map([1, 2]),
    "a question": lambda: interrupt("another?"),
    "a recorded call": lambda: record(lambda: RAN.append(1)),
    "a stream write": lambda: get_stream_writer()("chunk"),
}


@pytest.mark.parametrize("swallow", SWALLOWS)
@pytest.mark.parametrize("act", ACTS)
def test_a_swallowed_stop_is_raised_by_whatever_the_flow_does_next(swallow, act):
    # given
    raised = []

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        swallow()
        try:
            ACTS[act]()
        except BaseException as error:
            raised.append(error)
        return "finished"

    # when
    result = flow.invoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert isinstance(raised[0], FlowStop)
    assert [x for x in RAN if x != "asks"] == []


@pytest.mark.parametrize("swallow", SWALLOWS)
def test_a_flow_that_swallows_its_question_has_not_finished(swallow):
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        swallow()
        return "finished"

    # when
    result = flow.invoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert flow.get_state(CONFIG).next == ("flow",)
    assert flow.invoke(Command(resume="yes"), CONFIG) == "finished"


@pytest.mark.parametrize("swallow", SWALLOWS)
def test_a_task_that_swallows_its_question_has_no_result(swallow):
    # given
    @task
    def swallows(x):
        swallow()
        with contextlib.suppress(BaseException):
            work(x)
        return "finished"

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return swallows(x).result()

    # when
    result = flow.invoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert 1 not in RAN
    assert flow.invoke(Command(resume="yes"), CONFIG) == "finished"
    assert RAN[-1] == 1


def test_no_task_runs_in_a_finally_at_a_pause():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        try:
            return interrupt("sure?")
        finally:
            work("cleanup")

    # when
    result = flow.invoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert RAN == []
    assert flow.invoke(Command(resume="yes"), CONFIG) == "yes"
    assert RAN == ["cleanup"]


def test_plain_code_in_a_finally_runs_at_every_pause():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        try:
            return interrupt("sure?")
        finally:
            RAN.append("plain")

    # when
    flow.invoke(1, CONFIG)
    flow.invoke(None, CONFIG)
    flow.invoke(Command(resume="yes"), CONFIG)

    # then
    assert RAN == ["plain"] * 3


async def test_gather_with_return_exceptions_does_not_swallow_a_question():
    # given
    async def ask():
        return interrupt("sure?")

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        await asyncio.gather(ask(), return_exceptions=True)
        with contextlib.suppress(BaseException):
            await awork(1)
        return "finished"

    # when
    result = await flow.ainvoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert RAN == []


@pytest.mark.parametrize("width", [1, 3])
async def test_gather_over_asking_tasks_does_not_swallow_their_questions(width):
    # given
    @task
    async def aasks(x):
        return interrupt(f"{x}?")

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        got = await asyncio.gather(*[aasks(i) for i in range(width)], return_exceptions=True)
        with contextlib.suppress(BaseException):
            await awork(1)
        return got

    # when
    result = await flow.ainvoke(1, CONFIG)

    # then
    assert sorted(asked(result)) == [f"{i}?" for i in range(width)]
    assert RAN == []
    answers = {q.id: q.value for q in result["__interrupt__"]}
    assert await flow.ainvoke(Command(resume=answers), CONFIG) == [f"{i}?" for i in range(width)]


async def test_a_shielded_or_timed_wait_does_not_swallow_a_question():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        with contextlib.suppress(BaseException):
            await asyncio.wait_for(asks("sure"), 5)
        with contextlib.suppress(BaseException):
            await awork(1)
        return "finished"

    # when
    result = await flow.ainvoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert RAN == ["asks"]


async def test_a_task_group_with_an_asking_child_stops():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x):
        async with asyncio.TaskGroup() as group:
            group.create_task(asks("sure").coroutine())
            other = group.create_task(awork(1).coroutine())
        return other.result()

    # when
    result = await flow.ainvoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert await flow.ainvoke(Command(resume="yes"), CONFIG) == 1
    assert RAN.count(1) == 1


def test_an_exception_of_an_asking_task_is_raised_and_not_returned():
    # given
    seen = []

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        try:
            seen.append(asks("sure").exception())
        except BaseException as error:
            seen.append(error)
            raise

    # when
    flow.invoke(1, CONFIG)

    # then
    assert len(seen) == 1
    assert isinstance(seen[0], FlowStop)


def test_waiting_for_an_asking_task_hands_it_out_and_stops_at_the_look():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        done, rest = wait([asks("sure"), work(2)])
        assert rest == []
        return sorted(str(future.result()) for future in done)

    # when
    result = flow.invoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert flow.invoke(Command(resume="yes"), CONFIG) == ["2", "yes"]


def test_a_question_that_nobody_looks_at_still_keeps_the_run_open():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        asks("sure")
        return "finished"

    # when
    result = flow.invoke(1, CONFIG)

    # then
    assert asked(result) == ["sure?"]
    assert flow.get_state(CONFIG).next == ("flow",)
    assert flow.invoke(Command(resume="yes"), CONFIG) == "finished"


def test_a_flow_that_fails_while_a_task_asks_fails_and_keeps_the_question():
    # given
    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        future = asks("sure")
        wait([future])
        if fails:
            raise ValueError("on its own account")
        return future.result()

    # when
    with pytest.raises(ValueError):
        flow.invoke(1, CONFIG)
    fails.clear()

    # then
    assert asked(flow.invoke(None, CONFIG)) == ["sure?"]
    assert flow.invoke(Command(resume="yes"), CONFIG) == "yes"


def test_a_stream_write_after_a_stop_writes_nothing():
    # given
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        write = get_stream_writer()
        write("before")
        with contextlib.suppress(BaseException):
            interrupt("sure?")
        write("after")
        return "finished"

    # when
    chunks = list(flow.stream(1, CONFIG, stream_mode="custom"))

    # then
    assert chunks == ["before"]
