"""A failed call is tried again as its policy says; what had finished inside it stays, and a kill forgets no attempt."""

import asyncio
import logging
import threading
import time

import pytest

from flowfn import Command, entrypoint, interrupt, record, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import SaveFailedError
from flowfn.types import RetryPolicy
from tests.durability.crashing import DoomedSaver

CONFIG = {"thread_id": "t"}
AT_ONCE = RetryPolicy(initial_interval=0, max_attempts=3, retry_on=Exception)
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.fixture(params=["none", "memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "none":
        yield None
        return
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, config=CONFIG):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


def flaky(failures, name="flaky"):
    """A function that fails so many times before it gives its argument."""

    def body(x):
        RAN.append((name, x))
        if sum(ran == (name, x) for ran in RAN) <= failures:
            raise ConnectionError(f"{name} {len(RAN)}")
        return x

    body.__qualname__ = body.__name__ = name
    return body


def test_a_task_is_tried_until_it_gives_a_value(saver, call):
    fetch = task(retry_policy=AT_ONCE)(flaky(2))

    @entrypoint(checkpointer=saver)
    def flow(x):
        return fetch(x).result()

    assert call(flow, 7) == 7
    assert len(RAN) == 3


def test_a_coroutine_is_tried_again_too(saver, call):
    @task(retry_policy=AT_ONCE)
    async def fetch(x):
        RAN.append(x)
        await asyncio.sleep(0)
        if len(RAN) < 3:
            raise ConnectionError
        return x

    @entrypoint(checkpointer=saver)
    async def flow(x):
        return await fetch(x)

    assert asyncio.run(flow.ainvoke(7, CONFIG)) == 7
    assert RAN == [7, 7, 7]


def test_the_last_failure_reaches_the_caller(saver, call):
    fetch = task(retry_policy=AT_ONCE)(flaky(9))

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            fetch(x).result()
        except ConnectionError as error:
            return str(error)

    assert call(flow, 7) == "flaky 3"


def test_one_place_is_enough_for_tasks_that_are_tried_again(saver, call):
    fetch = task(retry_policy=AT_ONCE)(flaky(2))

    @entrypoint(checkpointer=saver)
    def flow(n):
        return sorted(future.result() for future in [fetch(i) for i in range(n)])

    assert call(flow, 4, {**CONFIG, "max_concurrency": 1}) == [0, 1, 2, 3]


def test_a_call_that_rests_holds_no_worker(saver):
    fetch = task(retry_policy=RetryPolicy(initial_interval=0.2, jitter=False, retry_on=Exception))(flaky(1))
    quick = task(flaky(0, "quick"))

    @entrypoint(checkpointer=saver)
    def flow(x):
        slow = fetch(x)
        first = quick(1)
        first.result()
        RAN.append("quick is done")
        return slow.result()

    flow.invoke(7, {**CONFIG, "max_concurrency": 1})
    assert RAN.index("quick is done") < len(RAN) - 1


def test_all_attempts_share_the_calls_inside(saver, call):
    part = task(flaky(0, "part"))

    @task(retry_policy=AT_ONCE)
    def whole(x):
        RAN.append("whole")
        first = part(x).result()
        today = record(lambda: RAN.append("recorded") or len(RAN))
        if RAN.count("whole") < 3:
            raise ConnectionError
        return [first, today]

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole(x).result()

    assert call(flow, 7)[0] == 7
    assert RAN.count(("part", 7)) == 1
    assert RAN.count("recorded") == 1


def test_a_failure_inside_that_ended_the_attempt_is_tried_again_with_it(saver, call):
    part = task(flaky(1, "part"))

    @task(retry_policy=AT_ONCE)
    def whole(x):
        return part(x).result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole(x).result()

    assert call(flow, 7) == 7
    assert RAN == [("part", 7), ("part", 7)]


def test_a_failure_inside_that_was_handled_is_not_tried_again(saver, call):
    part, other = task(flaky(9, "part")), task(flaky(0, "other"))

    @task(retry_policy=AT_ONCE)
    def whole(x):
        try:
            part(x).result()
        except ConnectionError:
            other(x).result()
        RAN.append("whole")
        if RAN.count("whole") < 2:
            raise TimeoutError
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole(x).result()

    assert call(flow, 7) == 7
    assert RAN == [("part", 7), ("other", 7), "whole", "whole"]


def test_what_finished_two_levels_below_stays(saver, call):
    leaf = task(flaky(0, "leaf"))

    @task
    def middle(x):
        value = leaf(x).result()
        RAN.append("middle")
        if RAN.count("middle") < 2:
            raise ConnectionError
        return value

    @task(retry_policy=AT_ONCE)
    def whole(x):
        return middle(x).result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole(x).result()

    assert call(flow, 7) == 7
    assert RAN == [("leaf", 7), "middle", "middle"]


def test_a_call_that_still_runs_goes_on_in_the_next_attempt(saver):
    goes_on = threading.Event()

    @task
    def slow(x):
        RAN.append("slow")
        assert goes_on.wait(10)
        return x

    @task(retry_policy=AT_ONCE)
    def whole(x):
        future = slow(x)
        while "slow" not in RAN:
            time.sleep(0.001)
        RAN.append("whole")
        if RAN.count("whole") < 2:
            raise ConnectionError
        goes_on.set()
        return future.result()

    @entrypoint(checkpointer=saver)
    def flow(x):
        return whole(x).result()

    assert flow.invoke(7, CONFIG) == 7
    assert RAN == ["slow", "whole", "whole"]


def test_an_attempt_gets_its_arguments_and_results_as_they_were(call, tmp_path):
    @task
    def items():
        return [1]

    @task(retry_policy=AT_ONCE)
    def spoil(given):
        own = items().result()
        RAN.append((list(given), list(own)))
        given.append("spoiled")
        own.append("spoiled")
        if len(RAN) < 3:
            raise ConnectionError
        return given

    @entrypoint(checkpointer=SqliteSaver(tmp_path / "flows.db"))
    def flow(x):
        return spoil([x]).result()

    call(flow, 7)
    assert RAN == [([7], [1])] * 3


def test_a_flow_is_run_again_and_keeps_its_finished_tasks(saver, call):
    part = task(flaky(0, "part"))

    @entrypoint(checkpointer=saver, retry_policy=AT_ONCE)
    def flow(x):
        value = part(x).result()
        RAN.append("flow")
        if RAN.count("flow") < 3:
            raise ConnectionError
        return value

    assert call(flow, 7) == 7
    assert RAN == [("part", 7), "flow", "flow", "flow"]


def test_a_question_is_never_tried_again(call):
    @task(retry_policy=RetryPolicy(initial_interval=0, retry_on=Exception))
    def ask(x):
        RAN.append("ask")
        return interrupt("go on?")

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return ask(x).result()

    call(flow, 7)
    assert RAN == ["ask"]
    assert call(flow, Command(resume="yes")) == "yes"


def test_each_attempt_stands_in_the_history_and_in_the_log(call, caplog):
    fetch = task(retry_policy=AT_ONCE)(flaky(2))

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return fetch(x).result()

    with caplog.at_level(logging.WARNING, "flowfn"):
        call(flow, 7)
    infos = flow.thread("t").calls()
    assert [(info.attempt, info.status) for info in infos] == [(1, "failed"), (2, "failed"), (3, "finished")]
    assert "Attempt 1 of task `flaky` failed; it is tried again in 0 s" in caplog.text
    assert flow.get_state(CONFIG).metadata["source"] == "loop"


def test_a_stream_tells_of_each_failed_attempt():
    fetch = task(retry_policy=AT_ONCE)(flaky(2))

    @entrypoint
    def flow(x):
        return fetch(x).result()

    events = list(flow.stream(7, stream_mode="debug"))
    assert [event["payload"]["attempt"] for event in events if event["type"] == "retry"] == [1, 2]
    assert [event["payload"]["name"] for event in events if event["type"] == "task"].count("flaky") == 1


@pytest.mark.parametrize("kills", [1, 2])
def test_attempts_before_a_kill_count(tmp_path, call, kills):
    inner = SqliteSaver(tmp_path / "flows.db")
    fetch = task(retry_policy=AT_ONCE)(flaky(9))

    def flow_on(saver):
        @entrypoint(checkpointer=saver, name="flow")
        def flow(x):
            return fetch(x).result()

        return flow

    # Writes: the run, then one for each attempt.
    with pytest.raises(SaveFailedError):
        call(flow_on(DoomedSaver(inner, at=1 + kills, after=True, error=OSError)), 7)
    before = len(RAN)
    with pytest.raises(ConnectionError):
        call(flow_on(inner), None)
    assert before == kills
    assert len(RAN) == 3


@pytest.mark.parametrize("saver", ["memory", "sqlite"], indirect=True)
def test_a_run_that_ended_by_an_exception_begins_with_a_fresh_budget(saver, call):
    fetch = task(retry_policy=AT_ONCE)(flaky(4))

    @entrypoint(checkpointer=saver)
    def flow(x):
        return fetch(x).result()

    with pytest.raises(ConnectionError):
        call(flow, 7)
    assert len(RAN) == 3
    assert call(flow, None) == 7
    assert len(RAN) == 5


def test_cancelling_ends_a_call_that_rests(saver):
    fetch = task(retry_policy=RetryPolicy(initial_interval=60, retry_on=Exception))(flaky(9))

    @entrypoint(checkpointer=saver)
    def flow(x):
        future = fetch(x)
        while not RAN:
            time.sleep(0.001)
        time.sleep(0.05)
        return [future.cancel(), future.cancelled()]

    started = time.monotonic()
    assert flow.invoke(7, CONFIG) == [True, True]
    assert time.monotonic() - started < 10


def test_three_attempts_are_written_as_a_number(call):
    assert task(retry_policy=3)(flaky(0))._callee().retry == (RetryPolicy(max_attempts=3),)
