from __future__ import annotations

import pickle

import pytest

from flowfn.errors import NoThreadError, PolicyError, StoreError, TaskTimeoutError


@pytest.mark.parametrize(
    "error",
    [
        PolicyError("timeout", 0, "a duration"),
        NoThreadError("bill"),
        StoreError("flows.db", "is full."),
        TaskTimeoutError("fetch", 5.02, kind="run", run_timeout=5.0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_sentence_and_facts_when_it_is_pickled(error):
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)
