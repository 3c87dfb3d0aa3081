"""A branch from a thread's past: what it shares, and what somebody put in the place of what was recorded."""

import asyncio

import pytest

from flowfn import CachePolicy, Command, approve, entrypoint, interrupt, task
from flowfn.cache import InMemoryCache
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import AnswerRefusedError, EmptyInputError, UnknownCallError, UnknownQuestionError

CONFIG = {"thread_id": "t"}
RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


@pytest.fixture(params=["sync", "async"])
def fork(request):
    """`fork` or `afork`."""

    def fork(flow, *args, **kwargs):
        return flow.fork(*args, **kwargs) if request.param == "sync" else asyncio.run(flow.afork(*args, **kwargs))

    return fork


@task
def fetch(x):
    RAN.append(("fetch", x))
    return x * 10


@task
def parse(text):
    RAN.append(("parse", text))
    return text + 1


@task
def notify(who):
    RAN.append(("notify", who))
    return who


def priced(saver):
    @entrypoint(checkpointer=saver)
    def flow(x):
        page = fetch(x)
        total = parse(page)
        notify("ann").result()
        return total.result()

    return flow


def point(flow, **wanted):
    """The newest snapshot with that metadata."""
    return next(s for s in flow.get_state_history(CONFIG) if wanted.items() <= s.metadata.items())


def test_a_replaced_result_takes_with_it_what_was_computed_from_its_future(saver, fork):
    flow = priced(saver)
    assert flow.invoke(1, CONFIG) == 11
    RAN.clear()

    config = fork(flow, CONFIG, results={"fetch": 70})

    assert RAN == []
    assert flow.invoke(None, config) == 71
    assert RAN == [("parse", 70)]


def test_what_was_given_the_value_itself_is_another_call(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return [parse(fetch(x).result()).result(), notify("ann").result()]

    flow.invoke(1, CONFIG)
    RAN.clear()
    assert flow.invoke(None, fork(flow, CONFIG, results={"fetch": 70})) == [71, "ann"]
    assert RAN == [("parse", 70)]


def test_the_old_branch_stays_as_it_was(saver, fork):
    flow = priced(saver)
    flow.invoke(1, CONFIG)
    before = flow.get_state(CONFIG)

    flow.invoke(None, fork(flow, CONFIG, results={"fetch": 70}))

    assert flow.get_state(before.config).values == before.values == 11
    assert flow.get_state(CONFIG).values == 71
    assert [s.metadata["source"] for s in flow.get_state_history(CONFIG)].count("fork") == 1


def test_calls_after_the_snapshot_run_again_and_those_before_it_do_not(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        first = fetch(x).result()
        second = fetch(x + 1).result()
        return first + second

    flow.invoke(1, CONFIG)
    RAN.clear()
    flow.invoke(None, fork(flow, point(flow, source="call", call_step=0)))
    assert RAN == [("fetch", 2)]


def test_one_of_several_calls_of_a_task_is_named_by_its_id(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return [fetch(x).result(), fetch(x + 1).result()]

    flow.invoke(1, CONFIG)
    second = flow.thread("t").calls()[1].id

    with pytest.raises(UnknownCallError, match="2 recorded calls of that name"):
        fork(flow, CONFIG, results={"fetch": 0})
    assert flow.invoke(None, fork(flow, CONFIG, results={second: 0})) == [10, 0]


def test_a_result_for_no_call_is_refused_and_changes_nothing(saver, fork):
    flow = priced(saver)
    flow.invoke(1, CONFIG)
    before = len(list(flow.get_state_history(CONFIG)))
    with pytest.raises(UnknownCallError, match="no such call on record"):
        fork(flow, CONFIG, results={"fetched": 1})
    assert len(list(flow.get_state_history(CONFIG))) == before


def test_a_failure_can_be_replaced_by_a_value(saver, fork):
    @task
    def broken(x):
        raise LookupError(x)

    @entrypoint(checkpointer=saver)
    def flow(x):
        try:
            return broken(x).result()
        except LookupError:
            return notify("ann").result()

    assert flow.invoke(1, CONFIG) == "ann"
    assert flow.invoke(None, fork(flow, CONFIG, results={"broken": 5})) == 5


def test_another_answer_to_an_old_question(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        fetched = fetch(x).result()
        verdict = approve({"pay": fetched})
        return notify("yes" if verdict else "no").result()

    asked = flow.invoke(1, CONFIG)["__interrupt__"][0]
    assert flow.invoke(Command(resume=True), CONFIG) == "yes"
    RAN.clear()

    config = fork(flow, CONFIG, answers={asked.id: False})

    assert flow.invoke(None, config) == "no"
    assert RAN == [("notify", "no")]


def test_an_answer_that_its_schema_refuses_begins_no_branch(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return interrupt("how many?", response_schema=int)

    asked = flow.invoke(1, CONFIG)["__interrupt__"][0]
    flow.invoke(Command(resume=3), CONFIG)

    with pytest.raises(AnswerRefusedError):
        fork(flow, CONFIG, answers={asked.id: "many"})
    with pytest.raises(UnknownQuestionError):
        fork(flow, CONFIG, answers={"q_" + "0" * 32: 1})
    assert flow.get_state(CONFIG).values == 3


def test_a_fork_of_now_shares_what_the_open_super_step_has_finished(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        done = fetch(x)
        answer = interrupt("go on?")
        return [done.result(), answer]

    flow.invoke(1, CONFIG)
    RAN.clear()

    asked = flow.invoke(None, fork(flow, CONFIG))["__interrupt__"][0]

    assert RAN == []
    assert [row.id for _, row in saver.questions()] == [asked.id]
    assert flow.invoke(Command(resume="yes"), CONFIG) == [10, "yes"]


def test_a_branch_and_the_branch_it_left_do_not_read_each_others_values(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x, *, previous=None):
        return [*(previous or []), fetch(x).result()]

    flow.invoke(1, CONFIG)
    first = flow.get_state(CONFIG)
    flow.invoke(2, CONFIG)
    second = flow.get_state(CONFIG)

    flow.invoke(None, fork(flow, second, results={"fetch": 0}))
    flow.invoke(3, CONFIG)

    assert flow.get_state(CONFIG).values == [10, 0, 30]
    assert flow.get_state(second.config).values == [10, 20]
    assert flow.get_state(first.config).values == [10]


def test_what_was_computed_from_a_replaced_result_is_never_cached(saver, fork):
    is_down = [True]

    @task(cache_policy=CachePolicy())
    def total(x):
        RAN.append(("total", x))
        part = fetch(x).result()
        if is_down:
            raise ConnectionError
        return part + 1

    @entrypoint(checkpointer=saver, cache=InMemoryCache())
    def flow(x):
        return total(x).result()

    with pytest.raises(ConnectionError):
        flow.invoke(1, CONFIG)
    is_down.clear()
    assert flow.invoke(None, fork(flow, CONFIG, results={"fetch": 70})) == 71
    assert flow.invoke(1, {"thread_id": "u"}) == 11


def test_a_branch_of_now_on_a_finished_thread_takes_results_too(saver, fork):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return fetch(x).result()

    flow.invoke(1, CONFIG)
    fork(flow, CONFIG)

    assert flow.invoke(None, fork(flow, CONFIG, results={"fetch": 5})) == 5


def test_a_replaced_result_takes_with_it_the_task_that_had_called_for_it(saver, fork):
    @task
    def outer(x):
        return fetch(x).result() + 1

    @entrypoint(checkpointer=saver)
    def flow(x):
        return outer(x).result()

    flow.invoke(1, CONFIG)

    assert flow.invoke(None, fork(flow, CONFIG, results={"fetch": 50})) == 51


def test_a_thread_that_is_new_has_nothing_to_branch_from(saver, fork):
    with pytest.raises(EmptyInputError):
        fork(priced(saver), CONFIG)


def test_a_thread_handle_branches_and_goes_on(saver):
    flow = priced(saver)
    thread = flow.thread("t")
    assert thread.run(1) == 11
    thread.fork(results={"fetch": 70})
    assert thread.resume() == 71
    thread.fork(thread.history()[-1])
    assert thread.resume() == 11


def test_an_effect_outside_that_had_begun_behind_the_point_is_in_doubt_on_the_branch(saver, fork):
    @task(effect="external")
    def pay(x):
        RAN.append(("pay", x))
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        return pay(fetch(x).result()).result()

    assert flow.invoke(1, CONFIG) == 10
    asked = flow.invoke(None, fork(flow, point(flow, source="call", call_step=0)))
    assert asked["__interrupt__"][0].value["task"] == "pay"
    assert RAN == [("fetch", 1), ("pay", 10)]
    assert flow.invoke(Command(resume={"result": 10}), CONFIG) == 10
