"""Whether to try again, and after how long. Knows no clock, and no chance of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flowfn.faults import asked_wait, is_final, members
from flowfn.types import RetryPolicy

JITTER = 0.5
"""How much of an interval chance may add to it."""


def next_wait(
    policies: Sequence[RetryPolicy], error: BaseException, attempt: int, *, random: float, now: float
) -> float | None:
    """Seconds until a failed task's next attempt, or None when there is none.

    Args:
        policies: the first that the error matches decides.
        error: how the attempt ended.
        attempt: its number; the first is 1, and those before a restart count.
        random: in [0, 1); spreads callers that failed together.
        now: seconds since 1970, for an error that asks to be left alone until a moment.
    """
    policy = _matching(policies, error)
    if policy is None or attempt >= policy.max_attempts:
        return None
    interval = interval_after(policy, attempt)
    return max(interval, asked_wait(error, now)) + (interval * JITTER * random if policy.jitter else 0.0)


def interval_after(policy: RetryPolicy, attempt: int) -> float:
    """The seconds after that many attempts, before chance or the error have their say."""
    try:
        growth = float(policy.backoff_factor ** (attempt - 1))
    except OverflowError:
        growth = sys.float_info.max
    return min(policy.max_interval, policy.initial_interval * growth)


def _matching(policies: Sequence[RetryPolicy], error: BaseException) -> RetryPolicy | None:
    """The first policy that would try again. A predicate that fails tries nothing again: the task's own error stands,
    with a note that says so."""
    if not isinstance(error, Exception) or is_final(error):
        return None
    for policy in policies:
        try:
            if _is_match(policy, error):
                return policy
        except Exception as bug:
            name = getattr(policy.retry_on, "__qualname__", repr(policy.retry_on))
            error.add_note(f"Not tried again: `retry_on={name}` raised {bug!r} when it was asked about this error.")
            return None
    return None


def _is_match(policy: RetryPolicy, error: Exception) -> bool:
    """A class matches a group that is one, or whose members all are; a predicate is asked about the group itself."""
    kinds = policy.retry_on
    if isinstance(kinds, type | tuple):
        return isinstance(error, kinds) or all(isinstance(one, kinds) for one in members(error))
    return bool(kinds(error))
