"""One process asks and ends, another one answers, a third goes on."""

from __future__ import annotations

import pytest

from flowfn.checkpoint import SqliteSaver
from flowfn.errors import AlreadyAnsweredError, AnswerRefusedError

THREAD = "2026-11"


def open_questions(saver: SqliteSaver) -> dict[str, str]:
    """Who wants money → id of the question."""
    names = {}
    for thread, row in saver.questions():
        assert thread == THREAD
        names[next(name for name in ("Ada", "Ben", "Cleo") if name in row.preview)] = row.id
    return names


def test_what_was_approved_goes_on_and_nothing_is_paid_twice(run, database):
    # given: a process that asked and ended
    asked = run("approve_expenses.py")
    assert asked.count("paid: ") == 1
    assert "waits: Ben" in asked
    assert "waits: Cleo" in asked

    # when: this process, which knows nothing of the flow, answers one question
    saver = SqliteSaver(database)
    ids = open_questions(saver)
    assert ids.keys() == {"Ben", "Cleo"}
    saver.answer(THREAD, {ids["Ben"]: True}, by="ada")

    # then: the next process pays Ben, and only Ben
    went_on = run("approve_expenses.py")
    assert [line.split(",")[0] for line in went_on.splitlines()[:2]] == ["paid: Ben", "waits: Cleo"]
    assert open_questions(saver).keys() == {"Cleo"}

    # when
    saver.answer(THREAD, {ids["Cleo"]: {"approved": False, "note": "buy a used one"}}, by="ada")

    # then
    finished = run("approve_expenses.py")
    assert finished.splitlines() == [
        "Ada, 18.50 for lunch: paid",
        "Ben, 640.00 for chairs: paid",
        "Cleo, 1200.00 for a laptop: refused",
    ]
    assert run("approve_expenses.py") == finished


def test_an_answer_that_does_not_count_changes_nothing(run, database):
    # given
    run("approve_expenses.py")
    saver = SqliteSaver(database)
    ids = open_questions(saver)

    # when: somebody answers in words, and two people answer the same question
    with pytest.raises(AnswerRefusedError):
        saver.answer(THREAD, {ids["Ben"]: "no"}, by="ada")
    saver.answer(THREAD, {ids["Cleo"]: False}, by="ada")
    with pytest.raises(AlreadyAnsweredError) as told:
        saver.answer(THREAD, {ids["Cleo"]: True}, by="eve")

    # then
    assert told.value.by == "ada"
    assert open_questions(saver).keys() == {"Ben"}
    assert "paid" not in run("approve_expenses.py")
