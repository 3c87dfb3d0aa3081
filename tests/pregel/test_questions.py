"""An answer belongs to its question: it is used once, for what was shown, and nothing happens behind an open one."""

import asyncio
import dataclasses
import logging
import subprocess
import sys
import textwrap
from typing import Literal

import pytest

from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.errors import (
    AlreadyAnsweredError,
    AmbiguousAnswerError,
    AnswerRefusedError,
    NoSaverError,
    NothingToResumeError,
    UnknownQuestionError,
)

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
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, config=CONFIG):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


def asked(result):
    return {question.value: question.id for question in result["__interrupt__"]}


@task
def branch_of(x):
    RAN.append(("begun", x))
    answer = interrupt(f"{x}?")
    RAN.append(("answered", x))
    return [x, answer]


@task
def plain(x):
    RAN.append(("plain", x))
    return x


def one_question(saver, **more):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return [x, interrupt("sure?", **more)]

    return flow


@pytest.mark.parametrize("answer", [None, False, True, 0, "", "no", [], {}, {"a": 1}, {"q_1": 2}, (1,), b"x"], ids=repr)
def test_any_value_is_an_answer(answer, saver, call):
    flow = one_question(saver)
    call(flow, 1)
    assert call(flow, Command(resume=answer)) == [1, answer]


@pytest.mark.parametrize("answer", [None, False, {}], ids=repr)
def test_any_value_is_an_answer_under_an_id(answer, saver, call):
    flow = one_question(saver)
    id = asked(call(flow, 1))["sure?"]
    assert call(flow, Command(resume={id: answer})) == [1, answer]


def test_an_id_is_the_same_at_every_pause_and_another_one_in_another_run(saver, call):
    flow = one_question(saver)
    first = asked(call(flow, 1))
    assert asked(call(flow, None)) == first
    assert asked(call(flow, 2)) != first
    assert first["sure?"].startswith("q_")


def test_equal_questions_are_asked_one_by_one(saver, call):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return [interrupt("sure?") for _ in range(3)]

    ids = [asked(call(flow, 1))["sure?"]]
    ids.append(asked(call(flow, Command(resume="a")))["sure?"])
    ids.append(asked(call(flow, Command(resume="b")))["sure?"])
    assert len(set(ids)) == 3
    assert call(flow, Command(resume="c")) == ["a", "b", "c"]


def test_an_answer_is_not_spent_on_a_payload_that_changed_meanwhile(saver, call, caplog):
    # given
    amount = [100]

    @entrypoint(checkpointer=saver)
    def flow(x):
        return interrupt(f"pay {amount[0]}?")

    first = asked(call(flow, 1))
    amount[0] = 9000

    # when
    result = call(flow, Command(resume="yes"))

    # then
    assert list(asked(result)) == ["pay 9000?"]
    assert asked(result)["pay 9000?"] != first["pay 100?"]
    assert any("pay 100?" in r.getMessage() and "pay 9000?" in r.getMessage() for r in caplog.records)
    assert call(flow, Command(resume="no")) == "no"


def test_an_answer_waits_for_its_payload_to_come_back(saver, call):
    amount = [100]

    @entrypoint(checkpointer=saver)
    def flow(x):
        return interrupt(f"pay {amount[0]}?")

    call(flow, 1)
    amount[0] = 9000
    call(flow, Command(resume="yes to 100"))
    amount[0] = 100
    assert call(flow, None) == "yes to 100"


def test_a_key_ties_an_answer_to_a_name(saver, call):
    clock = [1]

    @entrypoint(checkpointer=saver)
    def flow(x):
        return interrupt(f"it is {clock[0]}, go?", key="go")

    call(flow, 1)
    clock[0] = 2
    assert call(flow, Command(resume="yes")) == "yes"


def parallel(saver):
    @entrypoint(checkpointer=saver)
    def flow(x):
        futures = [branch_of(i) for i in "abc"]
        other = plain(x)
        return [*[f.result() for f in futures], other.result()]

    return flow


def test_parallel_questions_come_out_in_one_pass(saver, call):
    flow = parallel(saver)
    result = call(flow, 1)
    assert set(asked(result)) == {"a?", "b?", "c?"}
    assert {q.value for q in flow.get_state(CONFIG).interrupts} == {"a?", "b?", "c?"}
    assert ("plain", 1) in RAN


def test_answering_one_of_several_runs_only_its_branch(saver, call):
    # given
    flow = parallel(saver)
    ids = asked(call(flow, 1))
    RAN.clear()

    # when
    result = call(flow, Command(resume={ids["b?"]: "B"}))

    # then
    assert set(asked(result)) == {"a?", "c?"}
    assert ("answered", "b") in RAN
    assert RAN.count(("answered", "b")) == 1
    assert ("plain", 1) not in RAN
    assert {x for what, x in RAN if what == "answered"} == {"b"}
    assert call(flow, Command(resume={ids["a?"]: "A", ids["c?"]: "C"})) == [["a", "A"], ["b", "B"], ["c", "C"], 1]
    assert RAN.count(("answered", "b")) == 1


def unchanged(flow):
    return [q.id for q in flow.get_state(CONFIG).interrupts], flow.get_state(CONFIG).config


def test_a_bare_answer_to_several_questions_is_an_error_that_lists_them(saver, call):
    flow = parallel(saver)
    call(flow, 1)
    before = unchanged(flow)
    with pytest.raises(AmbiguousAnswerError) as caught:
        call(flow, Command(resume="yes"))
    assert all(f"{x}?" in str(caught.value) for x in "abc")
    assert unchanged(flow) == before


def test_an_answer_where_nothing_waits_is_an_error(saver, call):
    flow = one_question(saver)
    with pytest.raises(NothingToResumeError):
        call(flow, Command(resume="yes"))
    assert flow.get_state(CONFIG).config["configurable"].get("checkpoint_id") is None
    call(flow, 1)
    call(flow, Command(resume="yes"))
    with pytest.raises(NothingToResumeError):
        call(flow, Command(resume="again"))
    assert call(flow, None) == [1, "yes"]


def test_an_answer_to_an_unknown_question_is_an_error(saver, call):
    flow = one_question(saver)
    call(flow, 1)
    before = unchanged(flow)
    with pytest.raises(UnknownQuestionError):
        call(flow, Command(resume={"q_" + "0" * 32: "yes"}))
    assert unchanged(flow) == before


def test_an_answer_to_a_question_of_another_thread_is_an_error(saver, call):
    flow = one_question(saver)
    id = asked(call(flow, 1))["sure?"]
    call(flow, 1, {"thread_id": "other"})
    with pytest.raises(UnknownQuestionError):
        call(flow, Command(resume={id: "yes"}), {"thread_id": "other"})
    assert unchanged(flow)[0] == [id]


def test_a_second_answer_is_an_error_and_the_first_stays(saver, call):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return [interrupt("one?"), interrupt("two?")]

    id = asked(call(flow, 1))["one?"]
    call(flow, Command(resume={id: "first"}))
    with pytest.raises(AlreadyAnsweredError):
        call(flow, Command(resume={id: "second"}))
    assert call(flow, Command(resume="two")) == ["first", "two"]


@dataclasses.dataclass
class Form:
    amount: int
    note: str = ""


def pydantic_form():
    from pydantic import BaseModel

    class Model(BaseModel):
        amount: int

    return Model


SCHEMAS = {
    "JSON schema": (lambda: {"type": "object", "required": ["a"]}, {"b": 1}, {"a": 1}, {"a": 1}),
    "bool": (lambda: bool, "yes", False, False),
    "literal": (lambda: Literal["a", "b"], "c", "b", "b"),
    "dataclass": (lambda: Form, {"amount": "many"}, {"amount": 3}, Form(3)),
    "pydantic": (pydantic_form, {"amount": "many"}, {"amount": 3}, None),
}


@pytest.mark.parametrize("way", ["command", "saver"])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_an_answer_its_schema_refuses_leaves_the_question_open(kind, way, saver, call):
    # given
    make, bad, good, expected = SCHEMAS[kind]
    schema = make()

    @entrypoint(checkpointer=saver)
    def flow(x):
        answer = interrupt("what?", response_schema=schema)
        return [type(answer).__name__, getattr(answer, "amount", answer)]

    id = asked(call(flow, 1))["what?"]
    before = unchanged(flow)

    # when
    with pytest.raises(AnswerRefusedError):
        saver.answer("t", {id: bad}) if way == "saver" else call(flow, Command(resume=bad))

    # then
    assert unchanged(flow) == before
    result = call(flow, Command(resume=good))
    if expected is None:
        assert result == ["Model", 3]
    else:
        assert result == [type(expected).__name__, getattr(expected, "amount", expected)]


@pytest.mark.parametrize("how", ["invoke", "resume", "run"])
def test_an_answer_recorded_by_another_saver_is_used_by_the_next_call(how, tmp_path):
    flow = one_question(SqliteSaver(tmp_path / "flows.db"))
    id = asked(flow.invoke(1, CONFIG))["sure?"]
    SqliteSaver(tmp_path / "flows.db").answer("t", {id: "yes"}, by="eve")
    go_on = {
        "invoke": lambda: flow.invoke(None, CONFIG),
        "resume": lambda: flow.thread("t").resume(),
        "run": lambda: flow.thread("t").run(1),
    }
    assert go_on[how]() == [1, "yes"]


@pytest.mark.timeout(20)
def test_an_answer_recorded_by_another_process_is_used_by_the_next_call(tmp_path):
    flow = one_question(SqliteSaver(tmp_path / "flows.db"))
    id = asked(flow.invoke(1, CONFIG))["sure?"]
    script = f"""
        from flowfn.checkpoint.sqlite import SqliteSaver
        SqliteSaver({str(tmp_path / "flows.db")!r}).answer("t", {{{id!r}: None}})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    assert flow.invoke(None, CONFIG) == [1, None]


def test_of_two_people_who_answer_one_is_told(saver):
    flow = one_question(saver)
    id = asked(flow.invoke(1, CONFIG))["sure?"]
    saver.answer("t", {id: "first"}, by="ann")
    with pytest.raises(AlreadyAnsweredError, match="ann"):
        saver.answer("t", {id: "second"}, by="bob")
    assert flow.invoke(None, CONFIG) == [1, "first"]


def test_a_new_input_abandons_the_open_question_and_says_so(saver, call, caplog):
    flow = one_question(saver)
    id = asked(call(flow, 1))["sure?"]
    result = call(flow, 2)
    assert asked(result)["sure?"] != id
    assert any("abandoned" in r.getMessage() and "sure?" in r.getMessage() for r in caplog.records)
    with pytest.raises((AlreadyAnsweredError, UnknownQuestionError)):
        call(flow, Command(resume={id: "yes"}))
    assert call(flow, Command(resume="yes")) == [2, "yes"]


def test_another_answer_from_history_forks_and_the_old_branch_stays(saver, call):
    # given
    @entrypoint(checkpointer=saver)
    def flow(x):
        first = plain(x).result()
        return [first, interrupt("sure?"), plain("after").result()]

    call(flow, 1)
    waiting = flow.get_state(CONFIG).config
    assert call(flow, Command(resume="yes")) == [1, "yes", "after"]
    finished = flow.get_state(CONFIG).config

    # when
    result = call(flow, Command(resume="no"), waiting)

    # then
    assert result == [1, "no", "after"]
    assert RAN.count(("plain", 1)) == 1
    assert flow.get_state(finished).values == [1, "yes", "after"]
    assert call(flow, None) == [1, "no", "after"]


def test_a_question_without_a_saver_is_an_error(call):
    flow = one_question(None)
    with pytest.raises(NoSaverError):
        call(flow, 1, None)


def test_a_refused_answer_warns_nobody_of_anything(saver, caplog):
    flow = one_question(saver, response_schema=bool)
    flow.invoke(1, CONFIG)
    with pytest.raises(AnswerRefusedError):
        flow.invoke(Command(resume="x"), CONFIG)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
