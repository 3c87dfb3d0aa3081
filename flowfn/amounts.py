"""Durations and counts as users write them, read into seconds and whole numbers."""

from __future__ import annotations

import re
from datetime import timedelta
from numbers import Real
from operator import index
from typing import Any, TypeAlias

from flowfn.errors import PolicyError

Duration: TypeAlias = float | timedelta | str
"""Seconds, a timedelta, or text such as `"500ms"`, `"90m"`, `"1h30m"`, `"1d"`."""

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
LONGEST = 100 * 365.25 * UNITS["d"]

_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})\s*", re.ASCII)
_TEXT = re.compile(rf"\s*(?:{_PART.pattern})+", re.ASCII)


def seconds(given: Duration, field: str, *, may_be_zero: bool = False) -> float:
    """A duration in seconds.

    Args:
        given: as the user wrote it.
        field: what the user calls it.
        may_be_zero: whether no time at all can be meant.
    Raises:
        PolicyError: not a duration, negative, or above a hundred years, which no clock can wait for.
    """
    value = _seconds(given)
    if value is None or not 0.0 <= value <= LONGEST or (value == 0.0 and not may_be_zero):
        least = "of at least 0" if may_be_zero else "above 0"
        raise PolicyError(
            field, given, f'a duration {least}: seconds, a timedelta, or text such as "500ms", "90m", "1h30m" or "1d"'
        )
    return value


def _seconds(given: Any) -> float | None:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if not isinstance(given, str):
        return number(given)
    if _TEXT.fullmatch(given) is None:
        return None
    return sum(float(amount) * UNITS[unit] for amount, unit in _PART.findall(given))


def number(given: Any) -> float | None:
    """A real number as a float, infinite where a float cannot hold it; None for anything else."""
    if isinstance(given, bool) or not isinstance(given, Real):
        return None
    try:
        return float(given)
    except OverflowError:
        return float("inf")


def whole(given: Any, field: str) -> int:
    """A whole number of at least 1.

    Raises:
        PolicyError: anything else.
    """
    try:
        value = 0 if isinstance(given, bool) else index(given)
    except TypeError:
        value = 0
    if value < 1:
        raise PolicyError(field, given, "a whole number of at least 1")
    return value
