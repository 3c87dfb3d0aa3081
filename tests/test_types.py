from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Any

import pytest

from flowfn.errors import ConfigError, PolicyError
from flowfn.faults import default_retry_on
from flowfn.types import CachePolicy, Rate, RetryPolicy, TimeoutPolicy
from tests.shown import shown


async def awaited(*args: Any) -> bool:
    return True


# ---------------------------------------------------------------- what a user writes


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, None),
        (3, (RetryPolicy(max_attempts=3),)),
        (RetryPolicy(), (RetryPolicy(),)),
        ([RetryPolicy(), RetryPolicy(2.0)], (RetryPolicy(), RetryPolicy(2.0))),
        ((), ()),
    ],
    ids=shown,
)
def test_what_retry_policy_stands_for(written, meant):
    assert RetryPolicy.coerce(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, None),
        (2.5, TimeoutPolicy(run_timeout=2.5)),
        (timedelta(minutes=1), TimeoutPolicy(run_timeout=60)),
        ("1h30m", TimeoutPolicy(run_timeout=5400)),
        (
            TimeoutPolicy(idle_timeout="5s", refresh_on="heartbeat"),
            TimeoutPolicy(idle_timeout=5, refresh_on="heartbeat"),
        ),
        (TimeoutPolicy(), None),
    ],
    ids=shown,
)
def test_what_timeout_stands_for(written, meant):
    assert TimeoutPolicy.coerce(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, None),
        (False, None),
        (True, CachePolicy()),
        (3600, CachePolicy(ttl=3600)),
        (1, CachePolicy(ttl=1)),
        (timedelta(days=1), CachePolicy(ttl=86400)),
        ("1d", CachePolicy(ttl=86400)),
        (CachePolicy(version=2), CachePolicy(version="2")),
    ],
    ids=shown,
)
def test_what_cache_policy_stands_for(written, meant):
    assert CachePolicy.coerce(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, None),
        ("5/s", Rate(5, per=1)),
        ("100/m", Rate(100, per=60)),
        ("10/3s", Rate(10, per=3)),
        ("1000/h", Rate(1000, per=3600)),
        (" 2 / 1.5 d ", Rate(2, per=129600)),
        ("1/500ms", Rate(1, per=0.5)),
        (Rate(5), Rate(5, per=1.0)),
        (Rate(5, "1m"), Rate(5, per=60)),
    ],
    ids=shown,
)
def test_what_rate_stands_for(written, meant):
    assert Rate.coerce(written) == meant


# ---------------------------------------------------------------- what cannot be meant


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RetryPolicy.coerce(0), "`retry_policy` cannot be 0."),
        (lambda: RetryPolicy.coerce(True), "`retry_policy` cannot be True."),
        (lambda: RetryPolicy.coerce("3"), "`retry_policy` cannot be '3'."),
        (lambda: RetryPolicy.coerce(""), "`retry_policy` cannot be ''."),
        (lambda: RetryPolicy.coerce(2.5), "`retry_policy` cannot be 2.5."),
        (lambda: RetryPolicy.coerce([3]), r"`retry_policy` cannot be \[3\]."),
        (lambda: RetryPolicy.coerce(RetryPolicy()._replace(max_attempts=0)), "`max_attempts` cannot be 0."),
        (lambda: RetryPolicy(max_attempts=2.0), "`max_attempts` cannot be 2.0."),
        (lambda: RetryPolicy(initial_interval=-1), "`initial_interval` cannot be -1."),
        (lambda: RetryPolicy(max_interval="soon"), "`max_interval` cannot be 'soon'."),
        (lambda: RetryPolicy(backoff_factor=0), "`backoff_factor` cannot be 0."),
        (lambda: RetryPolicy(backoff_factor=float("nan")), "`backoff_factor` cannot be nan."),
        (lambda: RetryPolicy(jitter=0.1), "`jitter` cannot be 0.1."),
        (
            lambda: RetryPolicy(retry_on=KeyboardInterrupt),
            "`retry_on` cannot be .*KeyboardInterrupt.*never tried again",
        ),
        (lambda: RetryPolicy(retry_on=str), "`retry_on` cannot be <class 'str'>."),
        (lambda: RetryPolicy(retry_on=[ValueError, "KeyError"]), r"`retry_on` cannot be \["),
        (lambda: RetryPolicy(retry_on=""), "`retry_on` cannot be ''."),
        (lambda: RetryPolicy(retry_on="ValueError"), "`retry_on` cannot be 'ValueError'."),
        (lambda: RetryPolicy(retry_on=awaited), "`retry_on` cannot be <function awaited"),
        (lambda: TimeoutPolicy.coerce(0), "`timeout` cannot be 0."),
        (lambda: TimeoutPolicy.coerce(False), "`timeout` cannot be False."),
        (lambda: TimeoutPolicy(run_timeout=-1), "`run_timeout` cannot be -1."),
        (lambda: TimeoutPolicy(idle_timeout="5"), "`idle_timeout` cannot be '5'."),
        (lambda: TimeoutPolicy(idle_timeout=1, refresh_on="never"), "`refresh_on` cannot be 'never'."),
        (lambda: CachePolicy.coerce(0), "`cache_policy` cannot be 0."),
        (lambda: CachePolicy.coerce("a day"), "`cache_policy` cannot be 'a day'."),
        (lambda: CachePolicy(ttl=0), "`ttl` cannot be 0."),
        (lambda: CachePolicy(key_func="id"), "`key_func` cannot be 'id'."),
        (lambda: CachePolicy(key_func=awaited), "`key_func` cannot be <function awaited"),
        (lambda: CachePolicy(version=True), "`version` cannot be True."),
        (lambda: CachePolicy(version=""), "`version` cannot be ''."),
        (lambda: Rate.coerce("5"), "`rate` cannot be '5'."),
        (lambda: Rate.coerce("5/parsec"), "`rate` cannot be '5/parsec'."),
        (lambda: Rate.coerce("0.5/s"), "`rate` cannot be '0.5/s'."),
        (lambda: Rate.coerce("9" * 5000 + "/s"), "`rate` cannot be '999"),
        (lambda: Rate.coerce(5), "`rate` cannot be 5."),
        (lambda: Rate.coerce("0/s"), "`count` cannot be 0."),
        (lambda: Rate(5, per=0), "`per` cannot be 0."),
        (lambda: Rate(2.5), "`count` cannot be 2.5."),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field_and_value_where_it_is_written(make, said):
    with pytest.raises(PolicyError, match=f"^{said}") as refused:
        make()

    assert isinstance(refused.value, ConfigError)


# ---------------------------------------------------------------- the values


def test_the_fields_of_a_retry_policy_by_place():
    policy = RetryPolicy("1s", 3, timedelta(minutes=1), 5, False, [KeyError])

    assert tuple(policy) == (1.0, 3.0, 60.0, 5, False, (KeyError,))
    assert RetryPolicy() == (0.5, 2.0, 128.0, 3, True, default_retry_on)


@pytest.mark.parametrize(
    "policy",
    [RetryPolicy(retry_on=(KeyError,)), TimeoutPolicy(run_timeout=1), CachePolicy(str, "1d", 2), Rate(5, per="1m")],
    ids=lambda policy: type(policy).__name__,
)
def test_a_policy_can_be_hashed_pickled_and_copied(policy):
    again = pickle.loads(pickle.dumps(policy))

    assert (again, type(again), hash(again)) == (policy, type(policy), hash(policy))


@pytest.mark.parametrize(
    ("policy", "field"), [(TimeoutPolicy(run_timeout=1), "run_timeout"), (CachePolicy(), "ttl"), (Rate(5), "per")]
)
def test_a_policy_is_frozen(policy, field):
    with pytest.raises(FrozenInstanceError):
        setattr(policy, field, 3)


def test_a_policy_with_one_field_replaced_is_checked_too():
    assert replace(TimeoutPolicy(run_timeout=9), idle_timeout="2s") == TimeoutPolicy(run_timeout=9, idle_timeout=2)
    assert RetryPolicy()._replace(max_attempts=5) == RetryPolicy(max_attempts=5)
    with pytest.raises(PolicyError, match="`ttl`"):
        replace(CachePolicy(), ttl=-1)
