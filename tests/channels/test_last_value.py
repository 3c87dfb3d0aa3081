from __future__ import annotations

from typing import Any

import pytest

from flowfn.channels import AnyValue, EphemeralValue, LastValue, LastValueAfterFinish, UntrackedValue
from flowfn.errors import InvalidUpdateError
from flowfn.types import MISSING


@pytest.mark.parametrize("channel", [LastValue(int), UntrackedValue(int)])
def test_a_value_is_kept_over_steps_without_a_write(channel: LastValue[int]) -> None:
    channel.update([1])
    assert not channel.update([])
    assert channel.get() == 1


@pytest.mark.parametrize("channel", [AnyValue(int), EphemeralValue(int)])
def test_a_one_step_value_is_gone_after_a_step_without_a_write(channel: AnyValue[int]) -> None:
    channel.update([1])
    assert channel.update([])
    assert not channel.is_available()


@pytest.mark.parametrize("channel", [LastValue(int), UntrackedValue(int), EphemeralValue(int)])
def test_a_second_write_is_refused_and_changes_nothing(channel: LastValue[int]) -> None:
    channel.key = "price"
    channel.update([1])
    with pytest.raises(InvalidUpdateError, match="`price` takes one value a super-step, but got 2"):
        channel.update([2, 3])
    assert channel.get() == 1


@pytest.mark.parametrize("channel", [AnyValue(int), EphemeralValue(int, guard=False), UntrackedValue(int, guard=False)])
def test_without_guard_the_last_write_wins(channel: AnyValue[int]) -> None:
    channel.update([1, 2])
    assert channel.get() == 2


@pytest.mark.parametrize("value", [None, False, [], {}])
def test_any_value_is_a_value(value: Any) -> None:
    channel: LastValue[Any] = LastValue(object)
    channel.update([value])
    assert channel.is_available()
    assert channel.get() == value


def test_an_untracked_value_is_copied_but_never_stored() -> None:
    channel: UntrackedValue[int] = UntrackedValue(int)
    channel.update([1])
    assert channel.checkpoint() is MISSING
    assert channel.copy().get() == 1


def test_a_value_after_finish_is_held_back_until_then() -> None:
    channel: LastValueAfterFinish[int] = LastValueAfterFinish(int)
    channel.update([1, 2])
    assert not channel.is_available()
    assert channel.finish()
    assert channel.get() == 2


def test_a_value_after_finish_is_told_once() -> None:
    channel: LastValueAfterFinish[int] = LastValueAfterFinish(int)
    channel.update([1])
    channel.finish()
    assert not channel.finish()
    assert channel.consume()
    assert not channel.is_available()
    assert not channel.finish()


def test_a_value_after_finish_that_is_written_again_waits_again() -> None:
    channel: LastValueAfterFinish[int] = LastValueAfterFinish(int)
    channel.update([1])
    channel.finish()
    channel.update([2])
    assert not channel.is_available()
    assert not channel.consume()
