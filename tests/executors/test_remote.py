"""An attempt far from its run: it gets what travelled with it, may ask, and gives its outcome as bytes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import json
import logging
import threading
from typing import Literal

import pytest

from flowfn import (
    approve,
    branch,
    get_config,
    get_previous,
    get_runtime,
    get_store,
    get_stream_writer,
    interrupt,
    record,
    schema,
)
from flowfn.checkpoint.records import question_id
from flowfn.context import ExecutionInfo, FlowFilter
from flowfn.errors import (
    AmbiguousCallError,
    AnswerRefusedError,
    Asked,
    EndedFrameError,
    NoSaverError,
    RemoteCallError,
    StayedBehindError,
    UnfitWorkerError,
    UnsendableError,
    UnstorableResultError,
)
from flowfn.executors import payload
from flowfn.executors.payload import Answer, Errand, Outcome, outcome_in
from flowfn.executors.remote import run_payload
from flowfn.identity import digest, question_base
from flowfn.serde import Serializer
from flowfn.serde.keys import Keyring
from tests.executors import shop

INFO = ExecutionInfo("task-id", "thread-1", "run-1", "", 2)
PATH = b"p" * 16
PLAIN = Serializer()


def errand(fn, *args, config=None, context=None, previous=None, has_store=True, **facts) -> Errand:
    kwargs = facts.pop("kwargs", {})
    work = payload.work("work", fn, args, kwargs)
    around = payload.surroundings(config or {}, context, previous, has_store)
    return Errand(INFO, "work", PATH, work, around, code=payload.code_of(fn), **facts)


def run(fn, *args, **facts) -> Outcome:
    return outcome_in(run_payload(errand(fn, *args, **facts).packed()))


def value(fn, *args, **facts):
    outcome = run(fn, *args, **facts)
    if outcome.kind == "failure":
        raise PLAIN.loads(outcome.blob)
    assert outcome.kind == "value"
    return PLAIN.loads(outcome.blob)


def answered(*answers: tuple[bytes, object]) -> dict[bytes, Answer]:
    return {base: Answer(question_id("run-1", base), PLAIN.dumps(given), "eve", "ok") for base, given in answers}


def base(shown, key=None, allowed=None, path=PATH) -> bytes:
    return question_base(path, shown, key, allowed)


# ---------------------------------------------------------------- values and failures


def test_a_value_comes_back_encoded_as_it_is_stored():
    outcome = run(lambda x: {"x": (x, 1.5)}, 3)

    assert outcome.blob == PLAIN.dumps({"x": (3, 1.5)})
    assert outcome.started <= outcome.ended
    assert outcome.worker.startswith("process ")


def test_a_value_that_has_to_be_signed_can_be_signed_anew_without_loading_it():
    keyed = Serializer(keys=Keyring.of("a secret of some length"))

    for given in ([1, "a"], shop.Order(3), shop.Till(1)):
        blob = run(lambda x: x, given).blob
        signed = keyed.trusted(blob, ("call", "t"))

        assert type(keyed.loads(signed, ("call", "t"))) is type(given)
        assert type(PLAIN.loads(blob)) is type(given)
        assert (signed == blob) == (type(given) is list)


def test_a_coroutine_function_is_run_to_its_end():
    assert value(shop.doubled_later.func, 4, is_async=True) == 8


def test_an_exception_keeps_its_type_cause_and_where_it_was_raised():
    with pytest.raises(shop.Odd) as caught:
        value(shop.fails, 7)

    assert caught.value.number == 7
    assert type(caught.value.__cause__) is ValueError
    (note,) = caught.value.__notes__
    assert note.startswith("Raised in process ")
    assert "in fails" in note
    assert "invalid literal" in note
    assert "run_payload" not in note
    assert "remote.py" not in note


def test_the_lines_of_the_event_loop_are_left_out_of_a_traceback():
    async def fails():
        await asyncio.sleep(0)
        raise shop.Odd(3)

    with pytest.raises(shop.Odd) as caught:
        value(fails, is_async=True)

    assert "asyncio" not in caught.value.__notes__[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
def test_an_exit_is_a_failure_like_another_and_leaves_the_worker_alive(error):
    def leaves():
        raise error

    with pytest.raises(type(error)):
        value(leaves)


def test_a_value_that_cannot_be_stored_is_a_failure_that_names_the_path():
    with pytest.raises(UnstorableResultError, match=r"The result of task `work` cannot be stored: .*\['a'\]\[0\]"):
        value(lambda: {"a": [threading.Lock()]})


def test_a_store_without_pickles_gets_none():
    with pytest.raises(UnstorableResultError, match="allow_pickle=False"):
        value(shop.Till, 1, allow_pickle=False)

    assert value(shop.Order, 1, allow_pickle=False) == shop.Order(1)


def test_variables_set_by_one_attempt_are_not_seen_by_the_next():
    mark = contextvars.ContextVar("mark", default=0)

    def look():
        seen = mark.get()
        mark.set(1)
        return seen

    errands = [run_payload(_errand_of(look)) for _ in range(2)]

    assert [PLAIN.loads(outcome_in(reply).blob) for reply in errands] == [0, 0]


def _errand_of(fn) -> bytes:
    """An errand whose function does not travel, for what only this process has."""
    _errand_of.fn = fn
    return errand(_call_it).packed()


def _call_it():
    return _errand_of.fn()


# ---------------------------------------------------------------- what does not travel


def test_an_argument_that_cannot_travel_is_named_at_the_call():
    def take(order, /, items, *rest, note=None):
        return None

    lock = threading.Lock()
    for args, kwargs, path in [
        ((lock, 1), {}, "Argument `order` of task `work`"),
        ((1, {"a": lock}), {}, r"Argument `items` of task `work`\['a'\]"),
        ((1, 2, lock), {}, "Argument `2` of task `work`"),
        ((1,), {"items": 1, "note": [lock]}, r"Argument `note` of task `work`\[0\]"),
    ]:
        with pytest.raises(UnsendableError, match=f"{path} is a `_thread.lock`, which cannot be sent"):
            payload.work("work", take, args, kwargs)

    with pytest.raises(UnsendableError, match="Task `work` closure `lock` is a"):
        payload.work("work", lambda: lock, (), {})


def test_a_parameter_for_the_store_or_the_stream_is_refused():
    payload.refuse_injected("work", {"config": "config", "runtime": "runtime", "before": "previous"})

    for kind in ("store", "writer"):
        with pytest.raises(StayedBehindError, match=f"`{kind}`, a parameter of task `work`, stayed in the process"):
            payload.refuse_injected("work", {kind: kind})


def test_config_context_previous_and_ids_travel():
    def look(x, config, runtime):
        from flowfn.context import CURRENT

        return [
            x,
            config,
            runtime.context,
            get_previous(),
            get_config() == config,
            get_runtime().task_id,
            runtime.execution_info,
            CURRENT.get().frame.has_previous,
        ]

    around = {"config": {"configurable": {"user": "eve"}}, "context": shop.Order(1), "previous": [1]}
    seen = value(look, 5, injected={"config": "config", "runtime": "runtime"}, has_previous=True, **around)

    assert seen == [5, around["config"], shop.Order(1), [1], True, "task-id", INFO, True]


def test_what_could_not_travel_says_so_when_it_is_used():
    def look():
        runtime = get_runtime()
        use = [lambda: runtime.context.user, lambda: runtime.context["user"], lambda: bool(runtime.context)]
        use += [lambda: runtime.store.get("a"), lambda: get_store()["a"], lambda: get_stream_writer()(1)]
        return [_said(one) for one in use]

    said = value(look, context={"lock": threading.Lock()})

    assert all(
        "`context` stayed in the process that runs the flow: it['lock'] is a `_thread.lock`" in s for s in said[:3]
    )
    assert all("`store` stayed in the process" in s for s in said[3:5])
    assert "The stream writer stayed in the process" in said[5]


def _said(use) -> str:
    try:
        return repr(use())
    except StayedBehindError as error:
        return str(error)


def test_a_flow_without_a_store_has_none_elsewhere_either():
    assert value(lambda: get_runtime().store is None, has_store=False) is True


def test_log_records_carry_the_ids_also_when_the_context_did_not_travel():
    def look():
        entry = logging.LogRecord("x", 20, "f", 1, "m", (), None)
        FlowFilter().filter(entry)
        return entry.flow_thread, entry.flow_run, entry.flow_task

    assert value(look, context=threading.Lock()) == ("thread-1", "run-1", "task-id")


def test_calls_and_records_are_refused_with_what_to_do():
    inner = shop.double

    with pytest.raises(RemoteCallError, match=r"Task `double` was called by an attempt at task `work` that runs in"):
        value(lambda: inner(1))
    with pytest.raises(RemoteCallError, match="`record` was called by"):
        value(lambda: record(len, "a"))


# ---------------------------------------------------------------- questions


def test_a_question_without_an_answer_ends_the_attempt_and_goes_back():
    def ask():
        try:
            interrupt({"amount": 3}, response_schema=Literal["yes", "no"])
        except Exception:
            pytest.fail("a stop is no exception")

    outcome = run(ask)

    (question,) = outcome.questions
    assert outcome.kind == "asked"
    assert PLAIN.loads(question.value) == {"amount": 3}
    assert question.base == base({"amount": 3}, allowed=question.schema)
    assert schema.check("yes", json.loads(question.schema)) is None
    assert question.key is None


def test_answers_that_came_along_are_given_until_one_is_missing():
    def ask():
        first = approve("pay?", title="Bill")
        second = interrupt("how much?", key="amount")
        return [bool(first), first.by, first.note, second, interrupt("sure?"), interrupt("sure?")]

    shown = {"title": "Bill", "payload": "pay?"}
    questions = run(lambda: approve("pay?", title="Bill")).questions
    known = [(questions[0].base, True), (base(None, "amount"), 7), (base("sure?"), "a")]
    again = (digest(base("sure?"), b"1"), "b")

    stopped = run(ask, answers=answered(*known))
    done = run(ask, answers=answered(*known, again))

    assert PLAIN.loads(questions[0].value) == shown
    assert [q.base for q in stopped.questions] == [again[0]]
    assert list(stopped.used) == [one for one, _ in known]
    assert PLAIN.loads(done.blob) == [True, "eve", "ok", 7, "a", "b"]
    assert list(done.used) == [one for one, _ in [*known, again]]


def test_once_stopped_an_attempt_stays_stopped_whatever_it_catches():
    def ask():
        seen = []
        for act in (
            lambda: interrupt("a?"),
            lambda: interrupt("b?"),
            lambda: shop.double(1),
            lambda: get_stream_writer()(1),
        ):
            try:
                act()
            except BaseException as stop:
                seen.append((type(stop), stop.question))
        assert seen == [(Asked, question_id("run-1", base("a?")))] * 4
        return "went on"

    outcome = run(ask)

    assert outcome.kind == "asked"
    assert [q.base for q in outcome.questions] == [base("a?")]


def test_branches_give_equal_questions_of_racing_coroutines_names_of_their_own():
    async def ask(name):
        with branch(name):
            return interrupt("sure?")

    async def both():
        return await asyncio.gather(ask("a"), ask("b"))

    bases = [base("sure?", path=digest(PATH, b"branch", name)) for name in (b"a", b"b")]

    assert value(both, is_async=True, answers=answered((bases[0], 1), (bases[1], 2))) == [1, 2]


def test_equal_questions_of_racing_coroutines_are_refused():
    async def ask():
        await asyncio.sleep(0)
        return interrupt("sure?")

    async def both():
        return await asyncio.gather(ask(), ask())

    with pytest.raises(AmbiguousCallError):
        value(both, is_async=True, answers=answered((base("sure?"), 1)))


def test_an_answer_that_does_not_fit_is_refused():
    with pytest.raises(AnswerRefusedError):
        allowed = run(lambda: interrupt("n?", response_schema=int)).questions[0].schema
        value(lambda: interrupt("n?", response_schema=int), answers=answered((base("n?", allowed=allowed), "text")))


def test_the_names_of_questions_are_hashed_with_the_secret_of_the_store():
    (question,) = run(lambda: interrupt("a?"), secret=b"secret").questions

    assert question.base == question_base(PATH, "a?", None, None, b"secret")


def test_a_heartbeat_in_a_process_that_is_no_worker_is_heard_by_nobody():
    assert value(lambda: get_runtime().heartbeat()) is None


def test_nobody_asks_where_nothing_could_go_on():
    with pytest.raises(NoSaverError):
        value(lambda: interrupt("a?"), may_ask=False)


def test_a_question_that_cannot_be_stored_is_a_failure():
    with pytest.raises(UnstorableResultError, match="The question of `work`"):
        value(_ask_with_a_lock)


def _ask_with_a_lock():
    interrupt({"lock": threading.Lock()})


def test_code_that_an_attempt_has_left_behind_cannot_ask():
    left: list[concurrent.futures.Future] = []

    def leave_behind():
        context = contextvars.copy_context()
        left.append(context)
        return 1

    run_payload(_errand_of(leave_behind))

    with pytest.raises(EndedFrameError, match="`interrupt` was called by code that `work` left behind"):
        left[0].run(interrupt, "a?")


# ---------------------------------------------------------------- workers that do not fit


def test_a_worker_of_another_python_or_format_says_so():
    head, _, data = errand(len, "abc").packed().partition(b"\n")
    other = head.replace(b"Python 3", b"Python 2") + b"\n" + data

    outcome = outcome_in(run_payload(other))

    assert outcome.kind == "unfit"
    error = PLAIN.loads(outcome.blob)
    assert isinstance(error, UnfitWorkerError)
    assert "Python 2" in str(error)
    assert "Workers need the same Python, flowfn and modules" in str(error)


def test_a_worker_that_cannot_load_what_it_needs_says_what(monkeypatch, tmp_path):
    (tmp_path / "flowfn_test_gone.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import flowfn_test_gone

    sent = errand(flowfn_test_gone.f).packed()
    monkeypatch.undo()
    monkeypatch.delitem(__import__("sys").modules, "flowfn_test_gone")

    outcome = outcome_in(run_payload(sent))

    assert outcome.kind == "unfit"
    assert "task `work`: it cannot load it: ModuleNotFoundError" in str(PLAIN.loads(outcome.blob))


def test_a_worker_that_has_other_code_under_the_name_says_so(monkeypatch, tmp_path):
    (tmp_path / "flowfn_test_code.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import flowfn_test_code

    sent = errand(flowfn_test_code.f).packed()
    exec("def f():\n    return 2\n", vars(flowfn_test_code))

    outcome = outcome_in(run_payload(sent))

    assert outcome.kind == "unfit"
    assert "it has another version of `flowfn_test_code.f`" in str(PLAIN.loads(outcome.blob))


@pytest.mark.parametrize("reply", [None, "text", b"", b"other bytes"])
def test_a_reply_that_is_none_is_refused(reply):
    with pytest.raises(UnfitWorkerError, match="The executor cannot run an attempt: it gave"):
        outcome_in(reply)
