"""The batch of expenses, played on a stage."""

from dataclasses import replace

import pytest

from examples.approve_expenses import NOVEMBER, pay, settle, settle_all
from flowfn.errors import UnansweredError
from flowfn.testing import call

LUNCH, CHAIRS, LAPTOP = NOVEMBER


@pytest.fixture(autouse=True)
def _no_bank(stage):
    stage.replace(pay, lambda expense: None)


def test_small_expenses_are_paid_unasked(stage):
    assert settle_all.run([LUNCH]) == [f"{LUNCH}: paid"]
    assert stage.calls(pay) == [call(LUNCH)]
    assert stage.questions == []


def test_large_ones_are_paid_as_approved(stage):
    less = replace(CHAIRS, amount=500.0)
    stage.answer(
        {"approved": True, "payload": less}, task=settle, where=lambda asked: asked["payload"].who == CHAIRS.who
    )
    stage.answer(False)

    assert settle_all.run(NOVEMBER) == [f"{LUNCH}: paid", f"{less}: paid", f"{LAPTOP}: refused"]
    assert sorted(made.args[0].amount for made in stage.calls(pay)) == [18.5, 500.0]


def test_nothing_large_is_paid_before_it_is_approved(stage):
    with pytest.raises(UnansweredError, match=r"May Cleo have 1200\.00"):
        settle_all.run([LAPTOP])
    assert stage.calls(pay) == []
