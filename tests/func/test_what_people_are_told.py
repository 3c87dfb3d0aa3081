"""A replay that differs from what was recorded is told, and a faithful one is not."""

import logging

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


@task
def work(x, y=0):
    RAN.append((x, y))
    return f"{x}/{y}/{len(RAN)}"


def edited(before, after, caplog=None):
    """The results of a script that fails at its end, then is edited and goes on: (recorded, after the edit)."""
    saver, recorded = InMemorySaver(), []

    def first(x):
        recorded.append(before())
        raise Stop

    def second(x):
        return after()

    first.__qualname__ = second.__qualname__ = "flow"
    with pytest.raises(Stop):
        entrypoint(checkpointer=saver, name="flow")(first).invoke(1, CONFIG)
    RAN.append("edit")
    if caplog is not None:
        caplog.clear()
    return recorded[0], entrypoint(checkpointer=saver, name="flow")(second).invoke(None, CONFIG)


def values(*xs):
    return lambda: {x: work(x).result() for x in xs}


# ---------------------------------------------------------------- what people are told


def warnings_in(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_changed_call_is_logged_with_the_parameter_that_differs(caplog):
    # given, when
    edited(lambda: work("a", y=1).result(), lambda: work("a", y=2).result(), caplog)

    # then
    told = [text for text in warnings_in(caplog) if "not on record" in text]
    assert len(told) == 1
    assert "`work`" in told[0]
    assert "`y`" in told[0]
    assert "`x`" not in told[0]
    assert "record(" in told[0]


def test_outcomes_that_no_call_asked_for_are_reported_at_the_end(caplog):
    # given, when
    edited(values("a", "b"), values("a"), caplog)

    # then
    told = [text for text in warnings_in(caplog) if "were not asked for" in text]
    assert len(told) == 1
    assert "'b'" in told[0]


def test_a_faithful_replay_says_nothing(caplog):
    # given, when
    edited(values("a", "b"), values("a", "b"), caplog)

    # then
    assert [text for text in warnings_in(caplog) if "code" not in text] == []


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_going_on_after_a_failure_in_a_fan_out_tells_of_no_changed_call(limit, caplog):
    # given
    broken = [True]

    @task
    def item(x):
        if x == 2 and broken:
            raise Stop
        return x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        first = item("first").result()
        return [first, *[future.result() for future in map(item, range(8))]]

    with pytest.raises(Stop):
        flow.invoke(1, {**CONFIG, "max_concurrency": limit})
    broken.clear()
    caplog.clear()

    # when
    assert flow.invoke(None, CONFIG) == ["first", *range(8)]

    # then
    assert warnings_in(caplog) == []
