"""An approval is true only when approved, and holds what was approved."""

import asyncio

import pytest

from flowfn import Command, approve, entrypoint
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.errors import (
    AnswerRefusedError,
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


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, (True, {"pay": 1}, None)),
        (False, (False, {"pay": 1}, None)),
        ({"approved": True, "payload": {"pay": 2}, "note": "less"}, (True, {"pay": 2}, "less")),
        ({"approved": False, "note": "no"}, (False, {"pay": 1}, "no")),
    ],
)
def test_a_verdict_is_true_only_when_approved_and_holds_what_was_approved(answer, expected, saver, call):
    @entrypoint(checkpointer=saver)
    def flow(x):
        verdict = approve({"pay": 1}, title="payment")
        return bool(verdict), verdict.payload, verdict.note

    call(flow, 1)
    assert call(flow, Command(resume=answer)) == expected


@pytest.mark.parametrize("answer", ["no", "yes", None, {"payload": 1}, 1])
def test_an_approval_takes_no_other_answer(answer, saver, call):
    @entrypoint(checkpointer=saver)
    def flow(x):
        return bool(approve("x"))

    call(flow, 1)
    with pytest.raises(AnswerRefusedError):
        call(flow, Command(resume=answer))


def test_a_verdict_says_who_gave_it(saver):
    @entrypoint(checkpointer=saver)
    def flow(x):
        verdict = approve("x")
        return verdict.by, verdict.note

    id = asked(flow.invoke(1, CONFIG))["x"]
    saver.answer("t", {id: True}, by="ann", note="fine")
    assert flow.invoke(None, CONFIG) == ("ann", "fine")
