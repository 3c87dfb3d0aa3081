from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfn.amounts import LONGEST, seconds, whole
from flowfn.errors import ConfigError, PolicyError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (3600, 3600.0),
        (2.5, 2.5),
        (Fraction(1, 4), 0.25),
        (np.int64(3), 3.0),
        (np.float32(0.5), 0.5),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        ("500ms", 0.5),
        ("2.5s", 2.5),
        ("90m", 5400.0),
        ("1h30m", 5400.0),
        (" 1h 30 m ", 5400.0),
        ("1d", 86400.0),
        ("2w", 1209600.0),
    ],
)
def test_a_duration_is_read_into_seconds(written, meant):
    value = seconds(written, "timeout")

    assert (value, type(value)) == (meant, float)


@pytest.mark.parametrize(
    "written",
    [
        0,
        -1,
        float("nan"),
        float("inf"),
        10**400,
        timedelta(0),
        timedelta(days=-1),
        timedelta.max,
        True,
        None,
        Decimal(1),
        "",
        " ",
        "5",
        "s",
        "5 parsecs",
        "-5s",
        "1H",
        "1e3s",
        "0s",
        "٣s",
        "1h,30m",
        [1],
    ],
)
def test_what_is_no_duration_is_refused_by_field_and_value(written):
    with pytest.raises(PolicyError) as refused:
        seconds(written, "timeout")

    assert str(refused.value).startswith(f"`timeout` cannot be {written!r}. Give a duration above 0")
    assert isinstance(refused.value, ConfigError)
    assert refused.value.field == "timeout"


def test_no_time_at_all_can_be_allowed():
    assert seconds(0, "initial_interval", may_be_zero=True) == 0.0
    assert seconds("0s", "initial_interval", may_be_zero=True) == 0.0
    with pytest.raises(PolicyError, match="of at least 0"):
        seconds(-0.1, "initial_interval", may_be_zero=True)


def test_a_hundred_years_are_the_longest_duration():
    assert seconds(LONGEST, "ttl") == LONGEST
    with pytest.raises(PolicyError, match="`ttl`"):
        seconds(LONGEST * 1.01, "ttl")


@given(st.text(alphabet="0123456789.mshdw \n", max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        value = seconds(text, "timeout")
    except PolicyError:
        return

    assert 0.0 < value <= LONGEST


@pytest.mark.parametrize(("written", "meant"), [(1, 1), (np.int32(7), 7), (10**9, 10**9)])
def test_a_whole_number_is_read(written, meant):
    value = whole(written, "max_running")

    assert (value, type(value)) == (meant, int)


@pytest.mark.parametrize("written", [0, -1, 2.0, "3", True, None])
def test_what_is_no_whole_number_is_refused_by_field_and_value(written):
    with pytest.raises(PolicyError) as refused:
        whole(written, "max_running")

    assert str(refused.value) == f"`max_running` cannot be {written!r}. Give a whole number of at least 1."
