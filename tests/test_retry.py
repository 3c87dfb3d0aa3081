from __future__ import annotations

import asyncio
import concurrent.futures
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfn.errors import Asked, Paused
from flowfn.retry import JITTER, interval_after, next_wait
from flowfn.types import RetryPolicy

NOW = 1_700_000_000.0


def wait(
    policies: RetryPolicy | list[RetryPolicy], error: BaseException, attempt: int = 1, random: float = 0.0
) -> float | None:
    given = policies if isinstance(policies, list) else [policies]
    return next_wait(given, error, attempt, random=random, now=NOW)


class Busy(Exception):
    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after


# ---------------------------------------------------------------- how often


def test_the_first_attempt_counts():
    policy = RetryPolicy(max_attempts=3)

    assert [wait(policy, TimeoutError(), attempt) is None for attempt in (1, 2, 3, 4)] == [False, False, True, True]


def test_one_attempt_is_no_retry():
    assert wait(RetryPolicy(max_attempts=1), TimeoutError()) is None


def test_without_a_policy_nothing_is_tried_again():
    assert wait([], TimeoutError()) is None


# ---------------------------------------------------------------- which errors


def test_the_first_policy_that_matches_decides():
    policies = [
        RetryPolicy(initial_interval=1, max_attempts=2, retry_on=TimeoutError),
        RetryPolicy(initial_interval=9, max_attempts=5, retry_on=(TimeoutError, KeyError)),
    ]

    assert wait(policies, TimeoutError()) == 1.0
    assert wait(policies, KeyError()) == 9.0
    assert wait(policies, TimeoutError(), 2) is None, "the second policy is no second chance"
    assert wait(policies, KeyError(), 2) == 18.0
    assert wait(policies, ValueError()) is None


@pytest.mark.parametrize(
    "retry_on",
    [
        ConnectionError,
        [KeyError, ConnectionError],
        {ConnectionError},
        lambda error: "reset" in str(error),
        MagicMock(side_effect=lambda error: "reset" in str(error)),
    ],
    ids=["class", "list", "set", "predicate", "callable object that can be iterated"],
)
def test_classes_and_predicates_say_which_errors(retry_on):
    policy = RetryPolicy(retry_on=retry_on)

    assert wait(policy, ConnectionResetError("reset by peer")) is not None
    assert wait(policy, TypeError("no")) is None


def test_no_class_at_all_matches_no_error():
    assert wait(RetryPolicy(retry_on=()), ConnectionError()) is None


@pytest.mark.parametrize(
    "final",
    [Asked("q_1"), Paused(), asyncio.CancelledError(), concurrent.futures.CancelledError(), KeyboardInterrupt()],
    ids=repr,
)
def test_questions_stops_and_cancellations_are_never_retried(final):
    asked: list[BaseException] = []
    anything = [RetryPolicy(retry_on=Exception), RetryPolicy(retry_on=lambda error: asked.append(error) or True)]

    assert wait(anything, final) is None
    assert wait(anything, BaseExceptionGroup("g", [TimeoutError(), final])) is None
    assert asked == []


def test_a_group_matches_a_class_when_each_member_does():
    policy = RetryPolicy(retry_on=OSError)

    assert wait(policy, ExceptionGroup("g", [TimeoutError(), ExceptionGroup("in", [OSError()])])) is not None
    assert wait(policy, ExceptionGroup("g", [TimeoutError(), ValueError()])) is None
    assert wait(RetryPolicy(retry_on=ExceptionGroup), ExceptionGroup("g", [ValueError()])) is not None


def test_a_predicate_is_asked_about_the_group_itself():
    group, asked = ExceptionGroup("g", [TimeoutError()]), []

    wait(RetryPolicy(retry_on=lambda error: asked.append(error) or True), group)

    assert asked == [group]


def test_a_predicate_that_fails_leaves_the_error_of_the_task_with_a_note():
    def is_busy(error: Any) -> bool:
        return bool(error.status == "busy")

    error = TimeoutError()

    assert wait([RetryPolicy(retry_on=is_busy), RetryPolicy()], error) is None
    (note,) = error.__notes__
    assert note.startswith("Not tried again: `retry_on=")
    assert "is_busy` raised AttributeError(" in note


def test_a_stop_in_a_predicate_goes_through():
    def interrupted(error: Exception) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait(RetryPolicy(retry_on=interrupted), TimeoutError())


# ---------------------------------------------------------------- how long


def test_the_interval_grows_up_to_its_maximum():
    policy = RetryPolicy(initial_interval=0.5, backoff_factor=3, max_interval=10, max_attempts=99, jitter=False)

    assert [wait(policy, TimeoutError(), attempt) for attempt in (1, 2, 3, 4, 50)] == [0.5, 1.5, 4.5, 10.0, 10.0]


@pytest.mark.parametrize(
    ("policy", "interval"),
    [
        (RetryPolicy(max_attempts=10_000), 128.0),
        (RetryPolicy(initial_interval=0, max_attempts=10_000), 0.0),
        (RetryPolicy(initial_interval=1e-300, backoff_factor=1e300, max_attempts=10_000), 128.0),
        (RetryPolicy(backoff_factor=1, max_attempts=10_000), 0.5),
        (RetryPolicy(backoff_factor=0.5, max_attempts=10_000), 0.0),
    ],
)
def test_the_five_thousandth_attempt_has_an_interval_too(policy, interval):
    assert interval_after(policy, 5_000) == interval


@given(
    st.floats(0, 1e6),
    st.floats(1e-3, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 10**6),
    st.floats(0, 1, exclude_max=True),
)
def test_any_wait_lies_between_its_interval_and_one_and_a_half_of_it(initial, factor, longest, attempt, random):
    policy = RetryPolicy(initial, factor, longest, max_attempts=attempt + 1)
    interval = interval_after(policy, attempt)

    found = wait(policy, TimeoutError(), attempt, random)

    assert interval <= longest
    assert found is not None
    assert interval <= found <= interval * (1 + JITTER)


def test_jitter_is_in_proportion_and_can_be_left_out():
    brief, long = RetryPolicy(initial_interval=0.01), RetryPolicy(initial_interval=100)

    assert wait(brief, TimeoutError(), random=0.5) == pytest.approx(0.0125)
    assert wait(long, TimeoutError(), random=0.5) == pytest.approx(125)
    assert wait(RetryPolicy(initial_interval=100, jitter=False), TimeoutError(), random=0.5) == 100.0


def test_what_the_error_asks_for_is_the_least_wait():
    policy = RetryPolicy(initial_interval=1, max_interval=5, retry_on=Busy)

    assert wait(policy, Busy(60)) == 60.0, "also beyond the longest interval"
    assert wait(policy, Busy(60), random=0.5) == 60.25, "callers that were told the same are spread"
    assert wait(policy, Busy(0.1)) == 1.0
    assert wait(policy, Busy(float("nan"))) == 1.0


def test_an_error_that_asks_for_time_is_not_retried_for_that():
    assert wait(RetryPolicy(retry_on=TimeoutError), Busy(60)) is None
    assert wait(RetryPolicy(max_attempts=2, retry_on=Busy), Busy(60), 2) is None


def test_a_dated_header_is_counted_from_now():
    class Refused(Exception):
        response = SimpleNamespace(status_code=503, headers={"Retry-After": "Tue, 14 Nov 2023 22:14:20 GMT"})

    assert wait(RetryPolicy(), Refused()) == 60.0
