"""Which of an attempt's limits ends it, and when. Knows no clock."""

from __future__ import annotations

from typing import Literal, NamedTuple

from flowfn.types import TimeoutPolicy


class Limit(NamedTuple):
    """A limit that an attempt meets next.

    Attributes:
        kind: `"run"`, how long it may take; `"idle"`, how long without a sign of progress.
        seconds: as its policy says.
        at: the moment, on the clock of the moments that were given.
    """

    kind: Literal["run", "idle"]
    seconds: float
    at: float


def next_limit(policy: TimeoutPolicy, started: float, refreshed: float) -> Limit:
    """The limit that ends an attempt unless it ends, or shows a sign, before.

    Args:
        policy: of the attempt; sets at least one limit.
        started: when the attempt began.
        refreshed: when it last showed a sign that counts; at first, when it began.
    """
    limits = []
    if policy.run_timeout is not None:
        limits.append(Limit("run", policy.run_timeout, started + policy.run_timeout))
    if policy.idle_timeout is not None:
        limits.append(Limit("idle", policy.idle_timeout, refreshed + policy.idle_timeout))
    return min(limits, key=lambda limit: limit.at)


def is_refreshed_by(policy: TimeoutPolicy, sign: Literal["progress", "heartbeat"]) -> bool:
    """Whether a sign counts: a heartbeat always does, progress (a write, a chunk, a call) by `refresh_on="auto"`."""
    return policy.idle_timeout is not None and (sign == "heartbeat" or policy.refresh_on == "auto")
