"""What every saver promises, blocking and awaited, of questions and answers."""

import pytest

from flowfn.checkpoint.base import (
    AbandonQuestions,
    Place,
    SaveQuestion,
    UseAnswer,
)
from flowfn.errors import (
    AlreadyAnsweredError,
    AnswerRefusedError,
    UnknownQuestionError,
)
from tests.contracts.saving import NEXT, PLACE, RUN, question, start


def test_open_questions_come_oldest_first_over_all_threads(saver):
    for thread, asked in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        start(saver, Place(thread))
        saver.save([SaveQuestion(Place(thread), question(asked=asked, base=thread.encode() * 16))])
    assert [(thread, row.asked) for thread, row in saver.questions()] == [("b", 1.0), ("c", 2.0), ("a", 3.0)]
    assert [thread for thread, _ in saver.questions(limit=2)] == ["b", "c"]
    assert [thread for thread, _ in saver.questions("c")] == ["c"]
    assert saver.questions("nobody") == []


def test_all_questions_of_a_thread_come_in_the_order_asked(saver):
    inner = PLACE._replace(ns="review:1")
    start(saver)
    start(saver, inner)
    start(saver, Place("other"))
    first, second, third = (question(asked=n, base=bytes([n]) * 16) for n in (1, 2, 3))
    saver.save([SaveQuestion(PLACE, first)])
    saver.save([SaveQuestion(inner, second._replace(ns=inner.ns)), SaveQuestion(PLACE, third)])
    saver.save([SaveQuestion(Place("other"), question())])
    saver.answer("t", {first.id: "yes"})

    assert [(row.ns, row.id, row.state) for row in saver.asked("t")] == [
        ("", first.id, "answered"),
        (inner.ns, second.id, "open"),
        ("", third.id, "open"),
    ]
    assert saver.asked("nobody") == []


def test_an_answer_is_kept_with_who_gave_it(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    saver.answer("t", {question().id: {"yes": True}}, by="kim", note="looks fine")

    row = saver.question("t", question().id)

    assert (row.state, saver.serde.loads(row.answer), row.by, row.note) == (
        "answered",
        {"yes": True},
        "kim",
        "looks fine",
    )
    assert row.answered > 1e9
    assert saver.questions() == []
    assert list(saver.load(PLACE).questions) == [row]


def test_none_is_an_answer(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    saver.answer("t", {question().id: None})
    row = saver.question("t", question().id)
    assert (row.state, saver.serde.loads(row.answer)) == ("answered", None)


def test_a_second_answer_is_refused_and_changes_nothing(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    saver.answer("t", {question().id: 1}, by="kim")
    with pytest.raises(AlreadyAnsweredError) as caught:
        saver.answer("t", {question().id: 2}, by="lee")
    assert caught.value.by == "kim"
    assert saver.serde.loads(saver.question("t", question().id).answer) == 1


def test_answers_are_recorded_all_or_none(saver):
    start(saver)
    other = question(base=b"c" * 16, schema={"type": "boolean"})
    saver.save([SaveQuestion(PLACE, question()), SaveQuestion(PLACE, other)])
    with pytest.raises(UnknownQuestionError) as unknown:
        saver.answer("t", {question().id: 1, "q_none": 2})
    with pytest.raises(AnswerRefusedError):
        saver.answer("t", {question().id: 1, other.id: "yes"})
    assert unknown.value.unknown == ["q_none"]
    assert unknown.value.open == [question().id, other.id]
    assert len(saver.questions()) == 2


def test_another_threads_question_is_unknown(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    with pytest.raises(UnknownQuestionError):
        saver.answer("u", {question().id: 1})
    assert saver.question("u", question().id) is None


def test_a_question_that_is_there_keeps_its_answer(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    saver.answer("t", {question().id: 1})
    saver.save([SaveQuestion(PLACE, question(preview="again"))])
    row = saver.question("t", question().id)
    assert (row.state, row.preview) == ("answered", "'ok?'")


def test_the_first_use_of_an_answer_is_kept(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    saver.answer("t", {question().id: 1})
    saver.save([UseAnswer(PLACE, question().id, 2)])
    saver.save([UseAnswer(PLACE, question().id, 3)])
    assert saver.question("t", question().id).used == 2


def test_abandoned_questions_leave_the_inbox_and_take_no_answer(saver):
    start(saver)
    start(saver, run=NEXT)
    mine, others, inner = question(), question(run=NEXT), question(run=NEXT, ns="task:1", base=b"i" * 16)
    saver.save([SaveQuestion(PLACE, mine), SaveQuestion(PLACE, others), SaveQuestion(Place("t", "task:1"), inner)])

    saver.save([AbandonQuestions(PLACE, RUN)])
    assert [row.id for _, row in saver.questions()] == [others.id, inner.id]
    assert [row.state for row in saver.load(PLACE, RUN).questions] == ["abandoned"]
    with pytest.raises(AlreadyAnsweredError) as caught:
        saver.answer("t", {mine.id: 1})
    assert caught.value.state == "abandoned"

    saver.save([AbandonQuestions(PLACE)])
    assert saver.questions() == []
    assert saver.question("t", inner.id).state == "abandoned"


def test_an_answered_question_is_not_abandoned(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question())])
    saver.answer("t", {question().id: 1})
    saver.save([AbandonQuestions(PLACE)])
    assert saver.question("t", question().id).state == "answered"
