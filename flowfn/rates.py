"""When the next attempt of a task with a rate may start, so that no `per` seconds see more than `count` of them.

What has to be remembered is a short value that whoever keeps it swaps in one compare-and-set: an attempt that has to
wait has its place from then on, and nobody asks again. Knows no clock; processes that share a state share one clock.

A state lists the latest starts, as (moment, how many) in the order of moments. Up to 64 starts stand alone, which is
exact; more are kept in as many groups, each counted as of its last start, so that a larger rate errs by at most a 64th,
and to the safe side. Token buckets and GCRA need but one number, and let almost twice the rate through after a rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from flowfn.amounts import whole
from flowfn.types import Rate

State: TypeAlias = Sequence[Sequence[Any]]
"""Plain data: pairs of a moment and a number. Empty at first."""

GROUPS = 64


class Turn(NamedTuple):
    """A place in the line.

    Attributes:
        wait: seconds until the attempt may start.
        state: what to keep instead of the state that was read.
    """

    wait: float
    state: tuple[tuple[float, int], ...]


def next_turn(rate: Rate, state: State, now: float) -> Turn:
    """Take the next place for one attempt.

    Args:
        state: as kept by the turn before, whichever its rate was.
        now: seconds on the clock of all who share the state.
    """
    starts = [(float(moment), int(count)) for moment, count in state if moment + rate.per > now]
    start = max(now, starts[-1][0]) if starts else now  # nobody overtakes
    known = sum(count for _, count in starts)
    while known >= rate.count:
        moment, count = starts.pop(0)
        start, known = max(start, moment + rate.per), known - count
    return Turn(start - now, (*starts[:-1], *_joined(starts[-1:], start, -(-rate.count // GROUPS))))


def _joined(last: list[tuple[float, int]], start: float, size: int) -> list[tuple[float, int]]:
    """The last group with one more start in it, or a new one beside it when it has its size."""
    if last and last[0][1] < size:
        return [(start, last[0][1] + 1)]
    return [*last, (start, 1)]


def running_limit(given: Any) -> int | None:
    """What `max_running=` means: how many attempts may run at once, None for any number.

    Raises:
        PolicyError: not a whole number of at least 1.
    """
    return None if given is None else whole(given, "max_running")
