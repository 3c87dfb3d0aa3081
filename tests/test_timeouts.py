from __future__ import annotations

import pickle

import pytest

from flowfn.errors import TaskTimeoutError
from flowfn.serde.base import Serializer
from flowfn.timeouts import Limit, is_refreshed_by, next_limit
from flowfn.types import TimeoutPolicy


def test_signs_of_progress_never_move_the_limit_of_the_run():
    policy = TimeoutPolicy(run_timeout=10)

    assert next_limit(policy, started=100, refreshed=100) == Limit("run", 10.0, 110.0)
    assert next_limit(policy, started=100, refreshed=109) == Limit("run", 10.0, 110.0)


def test_a_sign_of_progress_moves_the_idle_limit():
    policy = TimeoutPolicy(idle_timeout=3)

    assert next_limit(policy, started=100, refreshed=100) == Limit("idle", 3.0, 103.0)
    assert next_limit(policy, started=100, refreshed=102) == Limit("idle", 3.0, 105.0)


def test_the_limit_that_is_met_first_counts():
    policy = TimeoutPolicy(run_timeout=10, idle_timeout=3)

    assert next_limit(policy, 100, 100).kind == "idle"
    assert next_limit(policy, 100, 108).kind == "run"


@pytest.mark.parametrize(
    ("policy", "progress", "heartbeat"),
    [
        (TimeoutPolicy(idle_timeout=3), True, True),
        (TimeoutPolicy(idle_timeout=3, refresh_on="heartbeat"), False, True),
        (TimeoutPolicy(run_timeout=3), False, False),
    ],
    ids=["auto", "heartbeat", "no idle limit"],
)
def test_which_signs_count(policy, progress, heartbeat):
    assert is_refreshed_by(policy, "progress") is progress
    assert is_refreshed_by(policy, "heartbeat") is heartbeat


# ---------------------------------------------------------------- the error


def test_a_timeout_names_the_task_the_limit_and_the_seconds():
    run = TaskTimeoutError("fetch", 5.02, kind="run", run_timeout=5.0, idle_timeout=2.0)
    idle = TaskTimeoutError("fetch", 5.02, kind="idle", run_timeout=9.0, idle_timeout=2.0)

    assert (run.node, run.kind, run.timeout, run.elapsed) == ("fetch", "run", 5.0, 5.02)
    assert "Task `fetch` was ended 5.020 seconds after its attempt began: an attempt may take 5.0" in str(run)
    assert (idle.kind, idle.timeout, idle.run_timeout) == ("idle", 2.0, 9.0)
    assert "no sign of progress for 2.0" in str(idle)


def test_a_timeout_is_caught_as_the_builtin():
    with pytest.raises(TimeoutError):
        raise TaskTimeoutError("fetch", 5.02, kind="run", run_timeout=5.0)


@pytest.mark.parametrize(
    "copied",
    [lambda error: pickle.loads(pickle.dumps(error)), lambda error: Serializer().loads(Serializer().dumps(error))],
)
def test_a_timeout_keeps_its_facts_and_its_sentence_in_the_store(copied):
    error = TaskTimeoutError("fetch", 5.02, kind="idle", idle_timeout=2.0)

    again = copied(error)

    assert type(again) is TaskTimeoutError
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)
