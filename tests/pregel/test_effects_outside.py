"""A task with an effect outside is not silently run again when nobody knows whether its effect took place."""

import asyncio
import os
import subprocess
import sys
import textwrap
import time

import pytest

from flowfn import Command, entrypoint, task
from flowfn.checkpoint import SqliteSaver
from flowfn.errors import AnswerRefusedError, EffectRefusedError, PolicyError, ReconcileError
from flowfn.types import DID_NOT_HAPPEN, Happened, RetryPolicy

CONFIG = {"thread_id": "t"}
RAN = []

SCRIPT = """
    import os, sys
    from flowfn import entrypoint, task
    from flowfn.types import *

    @task(effect="external")
    def pay(amount):
        open({paid!r}, "a").write(f"{{amount}} ")
        os.kill(os.getpid(), 9)

    @entrypoint(checkpointer={store!r}, name="shop:flow")
    def flow(x):
        return pay(x).result()

    flow.invoke({given}, {{"thread_id": "t"}})
"""


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, config=CONFIG):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


@pytest.fixture
def store(tmp_path):
    """The address of a store in which a payment was begun by a process that was killed at once."""
    address = f"sqlite:///{tmp_path}/flows.db"
    kill(tmp_path, address, 7)
    assert (tmp_path / "paid").read_text() == "7 "
    return address


def kill(tmp_path, address, given):
    """Run the flow in a process that is killed while it pays."""
    code = textwrap.dedent(SCRIPT.format(paid=str(tmp_path / "paid"), store=address, given=given))
    (tmp_path / "shop.py").write_text(code)
    killed = subprocess.run([sys.executable, str(tmp_path / "shop.py")], capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()


def flow_on(store, **options):
    def pay(amount):
        RAN.append(amount)
        return f"paid {amount}"

    pay.__module__, pay.__qualname__ = "shop", "pay"
    paid = task(effect="external", **options)(pay)

    @entrypoint(checkpointer=store, name="shop:flow")
    def flow(x):
        return paid(x).result()

    return flow


def test_a_person_is_asked_about_a_call_in_doubt(store, call):
    flow = flow_on(store)

    question = call(flow, None)["__interrupt__"][0]

    assert RAN == []
    assert question.value["task"] == "pay"
    assert "nobody knows" in question.value["reason"]
    assert call(flow, Command(resume={"result": "paid by hand"})) == "paid by hand"
    assert RAN == []


def test_on_the_word_of_a_person_it_runs_again(store, call):
    flow = flow_on(store)
    call(flow, None)
    assert call(flow, Command(resume="run")) == "paid 7"
    assert RAN == [7]


def test_an_answer_that_says_neither_is_refused(store, call):
    flow = flow_on(store)
    call(flow, None)
    with pytest.raises(AnswerRefusedError):
        call(flow, Command(resume="perhaps"))


def test_reconcile_finds_what_the_effect_came_to(store, call):
    flow = flow_on(store, reconcile=lambda amount: Happened(f"found {amount}"))
    assert call(flow, None) == "found 7"
    assert RAN == []


def test_reconcile_says_that_it_did_not_take_place(store, call):
    flow = flow_on(store, reconcile=lambda amount: DID_NOT_HAPPEN)
    assert call(flow, None) == "paid 7"


def test_where_reconcile_cannot_tell_a_person_is_asked(store, call):
    flow = flow_on(store, reconcile=lambda amount: None)
    assert "__interrupt__" in call(flow, None)
    assert RAN == []


def test_reconcile_must_say_one_of_these(store, call):
    flow = flow_on(store, reconcile=lambda amount: "paid")
    with pytest.raises(ReconcileError, match="'paid'"):
        call(flow, None)
    assert RAN == []


def test_it_runs_again_unasked_where_that_was_said(store, call):
    flow = flow_on(store, on_doubt="rerun")
    assert call(flow, None) == "paid 7"


def test_a_coroutine_has_a_coroutine_to_reconcile_it(store):
    async def pay(amount):
        RAN.append(amount)

    async def look_up(amount):
        await asyncio.sleep(0)
        return Happened(f"found {amount}")

    pay.__module__, pay.__qualname__ = "shop", "pay"
    paid = task(effect="external", reconcile=look_up)(pay)

    @entrypoint(checkpointer=store, name="shop:flow")
    async def flow(x):
        return await paid(x)

    assert asyncio.run(flow.ainvoke(None, CONFIG)) == "found 7"
    assert RAN == []


def test_a_finished_or_failed_effect_is_not_in_doubt(tmp_path, call):
    is_down = [True]

    @task(effect="external")
    def pay(amount):
        RAN.append(amount)
        if is_down:
            raise ConnectionError
        return f"paid {amount}"

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return [pay(x).result(), pay(x + 1).result()]

    with pytest.raises(ConnectionError):
        call(flow, 7)
    is_down.clear()
    assert call(flow, None) == ["paid 7", "paid 8"]
    assert RAN == [7, 7, 8]
    assert call(flow, None) == ["paid 7", "paid 8"]


def test_an_attempt_that_was_left_behind_leaves_its_effect_in_doubt(tmp_path):
    import threading

    goes_on = threading.Event()

    @task(effect="external", timeout=0.05, retry_policy=RetryPolicy(initial_interval=0))
    def pay(amount):
        RAN.append(amount)
        goes_on.wait(10)

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return pay(x).result()

    asked = flow.invoke(7, CONFIG)
    goes_on.set()
    assert "__interrupt__" in asked
    assert RAN == [7]


def test_an_attempt_that_was_left_behind_is_in_doubt_at_the_next_resume_too(tmp_path):
    @task(effect="external", timeout=0.05)
    def pay(amount):
        RAN.append(amount)
        time.sleep(0.1)

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return pay(x).result()

    with pytest.raises(TimeoutError):
        flow.invoke(7, CONFIG)

    assert "__interrupt__" in flow.invoke(None, CONFIG)

    assert RAN == [7]


def test_a_call_that_differs_from_the_record_asks_a_person_first(tmp_path, call):
    price, is_down = [7], [True]

    @task(effect="external")
    def pay(amount):
        RAN.append(amount)
        return amount

    @task
    def ship(amount):
        if is_down:
            raise ConnectionError
        return amount

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return ship(pay(price[0]).result()).result()

    with pytest.raises(ConnectionError):
        call(flow, 1)
    price[0] = 8
    is_down.clear()

    question = call(flow, None)["__interrupt__"][0]

    assert RAN == [7]
    assert "differs from what is on record" in question.value["reason"]
    with pytest.raises(EffectRefusedError):
        call(flow, Command(resume=False))
    assert RAN == [7]


def unreachable(amount):
    raise ConnectionError("the bank is down")


@pytest.mark.parametrize("retry_policy", [None, RetryPolicy(initial_interval=0)])
def test_a_call_stays_in_doubt_while_reconcile_fails(store, retry_policy):
    flow = flow_on(store, reconcile=unreachable, retry_policy=retry_policy)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            flow.invoke(None, CONFIG)
    assert RAN == []


def test_a_call_stays_in_doubt_when_reconcile_said_something_else(store):
    with pytest.raises(ReconcileError):
        flow_on(store, reconcile=lambda amount: "paid").invoke(None, CONFIG)
    assert "__interrupt__" in flow_on(store).invoke(None, CONFIG)
    assert RAN == []


def test_one_answer_is_for_one_attempt(store, tmp_path):
    flow = flow_on(store)
    flow.invoke(None, CONFIG)
    flow.thread("t").answer("run")
    kill(tmp_path, store, None)

    assert "__interrupt__" in flow.invoke(None, CONFIG)

    assert RAN == []


def test_reconcile_may_find_it_out_while_the_question_is_open(store):
    known = [None]
    flow = flow_on(store, reconcile=lambda amount: known[0])
    flow.invoke(None, CONFIG)
    known[0] = Happened("found")

    assert flow.invoke(None, CONFIG) == "found"

    assert flow.thread("t").questions() == []


def test_an_effect_that_has_begun_is_among_the_calls(store):
    (begun,) = flow_on(store).thread("t").calls()
    assert (begun.name, begun.status) == ("pay", "begun")


def test_reconcile_is_given_the_value_of_a_future(tmp_path):
    seen = []

    @task
    def price(x):
        return x

    def look(amount):
        seen.append(amount)
        return Happened("found")

    @task(effect="external", reconcile=look, timeout=0.05)
    def pay(amount):
        time.sleep(0.1)

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return pay(price(x)).result()

    with pytest.raises(TimeoutError):
        flow.invoke(7, CONFIG)

    assert flow.invoke(None, CONFIG) == "found"

    assert seen == [7]


def test_an_attempt_that_failed_says_that_nothing_happened_and_is_followed_by_another_one(tmp_path, call):
    @task(effect="external", retry_policy=RetryPolicy(initial_interval=0))
    def pay(amount):
        RAN.append(amount)
        if len(RAN) == 1:
            raise ConnectionError
        return f"paid {amount}"

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return pay(x).result()

    assert call(flow, 7) == "paid 7"
    assert RAN == [7, 7]


def test_who_has_refused_a_changed_call_is_asked_again(tmp_path):
    price, is_down = [7], [True]

    @task(effect="external")
    def pay(amount):
        RAN.append(amount)
        return amount

    @task
    def ship(amount):
        if is_down:
            raise ConnectionError
        return amount

    @entrypoint(checkpointer=f"sqlite:///{tmp_path}/flows.db")
    def flow(x):
        return ship(pay(price[0]).result()).result()

    with pytest.raises(ConnectionError):
        flow.invoke(1, CONFIG)
    price[0] = 8
    is_down.clear()
    flow.invoke(None, CONFIG)
    with pytest.raises(EffectRefusedError):
        flow.invoke(Command(resume=False), CONFIG)

    assert "__interrupt__" in flow.invoke(None, CONFIG)

    assert RAN == [7]


@pytest.mark.parametrize("option", [{"reconcile": unreachable}, {"on_doubt": "rerun"}])
def test_what_is_done_in_doubt_means_nothing_without_an_effect(option):
    with pytest.raises(PolicyError, match="effect="):
        task(**option)(unreachable)


def test_without_a_store_there_is_no_doubt():
    assert flow_on(None).invoke(7) == "paid 7"


def test_an_effect_is_external_or_there_is_none():
    with pytest.raises(PolicyError, match="external"):
        task(effect="internal")(os.getcwd)
    with pytest.raises(PolicyError, match="on_doubt"):
        task(effect="external", on_doubt="guess")(os.getcwd)


def test_the_intent_stands_in_the_store_before_the_effect(tmp_path):
    saver = SqliteSaver(tmp_path / "flows.db")
    stored = []

    @task(effect="external")
    def pay(amount):
        stored.append(saver.sql.run(_count(), write=False))
        return amount

    @entrypoint(checkpointer=saver)
    def flow(x):
        return pay(x).result()

    flow.invoke(7, CONFIG, durability="exit")
    assert stored == [1]


def _count():
    from flowfn.sql.base import Query

    rows = yield Query("SELECT count(*) FROM calls")
    return rows[0][0]
