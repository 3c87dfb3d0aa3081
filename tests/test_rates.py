from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfn.errors import PolicyError
from flowfn.rates import GROUPS, State, next_turn, running_limit
from flowfn.serde.base import Serializer
from flowfn.types import Rate


def starts(rate: Rate, arrivals: list[float], state: State = ()) -> list[float]:
    """When attempts that arrive at these moments start."""
    found = []
    for now in arrivals:
        turn = next_turn(rate, state, now)
        assert turn.wait >= 0
        state = turn.state
        found.append(now + turn.wait)
    return found


def test_as_many_as_the_rate_says_start_at_once_and_the_next_ones_wait():
    assert starts(Rate(3, per=1), [10.0] * 8) == [10.0, 10.0, 10.0, 11.0, 11.0, 11.0, 12.0, 12.0]


def test_a_rest_does_not_let_more_through():
    assert starts(Rate(2, per=1), [0.0, 100.0, 100.0, 100.0]) == [0.0, 100.0, 100.0, 101.0]


def test_the_window_moves_with_the_starts():
    assert starts(Rate(2, per=1), [0.0, 0.9, 1.0, 1.0]) == [0.0, 0.9, 1.0, 1.9]


@given(
    st.integers(1, 2 * GROUPS),
    st.floats(0.01, 100),
    st.lists(st.one_of(st.just(0.0), st.floats(0, 20)), max_size=6 * GROUPS),
)
def test_no_window_sees_more_starts_than_the_rate_allows(count, per, gaps):
    rate = Rate(count, per=per)

    found = starts(rate, list(accumulate(gaps)))

    assert found == sorted(found), "in the order of arrival"
    for first, over in zip(found, found[count:], strict=False):
        assert over - first >= per * (1 - 1e-9)


@pytest.mark.parametrize("count", [1, 5, GROUPS, 1_000, 4_321])
def test_a_line_that_is_never_empty_moves_at_the_full_rate(count):
    found = starts(Rate(count, per=60), [0.0] * (3 * count + 1))

    assert found[-1] == 180.0


@pytest.mark.parametrize("count", [5, GROUPS, 1_000])
def test_steady_arrivals_at_the_rate_hardly_wait(count):
    arrivals = [place * 60 / count for place in range(4 * count)]

    found = starts(Rate(count, per=60), arrivals)

    assert found[-1] <= arrivals[-1] * (1 + 1 / GROUPS) + 1e-6


def test_the_state_stays_short_and_is_plain_data():
    state: State = ()
    for _ in range(3_000):
        state = next_turn(Rate(1_000, per="1h"), state, 0.0).state

    assert len(state) <= GROUPS + 1
    assert next_turn(Rate(5), json.loads(json.dumps(state)), 0.0) == next_turn(Rate(5), state, 0.0)
    assert Serializer().loads(Serializer().dumps(state)) == state


def test_a_changed_rate_goes_on_from_the_state_it_finds():
    full = next_turn(Rate(3), next_turn(Rate(3), next_turn(Rate(3), (), 0.0).state, 0.2).state, 0.4).state

    assert next_turn(Rate(4), full, 0.5).wait == 0.0
    assert next_turn(Rate(3), full, 0.5).wait == pytest.approx(0.5)
    assert next_turn(Rate(2), full, 0.5).wait == pytest.approx(0.7)
    assert next_turn(Rate(1), full, 0.5).wait == pytest.approx(0.9)


def test_a_clock_that_goes_back_lets_no_more_through():
    assert starts(Rate(2, per=10), [5.0, 4.0, 4.5, 3.0, 16.0]) == [5.0, 5.0, 15.0, 15.0, 25.0]


@pytest.mark.parametrize("written", [0, -1, 1.5, "4", True])
def test_a_number_of_running_attempts_is_at_least_one(written):
    with pytest.raises(PolicyError, match="`max_running`"):
        running_limit(written)


def test_without_a_number_any_number_may_run():
    assert (running_limit(None), running_limit(4)) == (None, 4)
