"""Tasks of one name are told apart by what they captured."""

from functools import partial

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver

CONFIG = {"thread_id": "t"}


RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


class Stop(Exception):
    """What keeps a run unfinished."""


# ---------------------------------------------------------------- which task


def multiplier(n):
    @task
    def times(x):
        RAN.append((n, x))
        return n * x

    return times


class Adder:
    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        return self.n + x


@pytest.mark.parametrize(
    "make",
    [
        multiplier,
        lambda n: task(partial(lambda n, x: n * x, n)),
        lambda n: task(Adder(n)),
        lambda n: task(partial(pow, n)),
    ],
    ids=["closure", "partial of a lambda", "callable object", "partial of a builtin"],
)
def test_tasks_of_one_factory_are_told_apart(make):
    # given
    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        one, two = make(2), make(3)
        got = [t(5).result() for t in ([one, two] if fails else [two, one])]
        if fails:
            seen.append(got)
            raise Stop
        return got

    seen = []
    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == seen[0][::-1]
    assert seen[0][0] != seen[0][1]


def test_lambdas_are_told_apart_by_their_code():
    # given
    up, down = task(lambda x: x + 1), task(lambda x: x - 1)
    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        got = [t(5).result() for t in ([up, down] if fails else [down, up])]
        if fails:
            raise Stop
        return got

    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == [4, 6]
