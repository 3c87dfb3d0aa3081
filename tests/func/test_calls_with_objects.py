"""Calls whose arguments hold objects without an identity are refused, not guessed."""

import threading

import pytest

from flowfn import entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import AmbiguousCallError

CONFIG = {"thread_id": "t"}


RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


class Stop(Exception):
    """What keeps a run unfinished."""


# ---------------------------------------------------------------- what a digest leaves out


def test_reversing_a_list_of_objects_without_identity_never_swaps_results():
    # given
    locks = [threading.Lock(), threading.Lock()]

    @task
    def use(lock):
        return locks.index(lock)

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return [use(lock).result() for lock in locks]

    # when
    with pytest.raises(AmbiguousCallError) as caught:
        flow.invoke(1, CONFIG)

    # then
    assert "key=" in str(caught.value)
    assert "lock" in str(caught.value)


@pytest.mark.parametrize("wrap", [lambda lock: [lock], lambda lock: {"lock": lock}, lambda lock: (1, (lock,))])
def test_objects_without_identity_inside_containers_are_refused_as_well(wrap):
    # given
    @task
    def use(lock):
        return 1

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return [use(wrap(threading.Lock())).result() for _ in range(2)]

    # when, then
    with pytest.raises(AmbiguousCallError):
        flow.invoke(1, CONFIG)


def test_one_object_without_identity_may_be_passed_again_and_again():
    # given
    lock = threading.Lock()

    @task
    def use(lock, x):
        return x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return [use(lock, i).result() for i in (1, 2, 2)]

    # when, then
    assert flow.invoke(1, CONFIG) == [1, 2, 2]


def test_the_rest_of_an_argument_that_holds_such_an_object_still_counts():
    # given
    @task
    def use(job):
        RAN.append(job["name"])
        return job["name"]

    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        names = ["a", "b"] if fails else ["b", "a"]
        got = [use({"name": name, "lock": threading.Lock()}).result() for name in names]
        if fails:
            raise Stop
        return got

    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == ["b", "a"]
    assert RAN == ["a", "b"]


@pytest.mark.parametrize("way", ["decorator", "with_options"])
def test_a_key_replaces_the_digest_of_the_arguments(way):
    # given
    def use(lock, name):
        RAN.append(name)
        return name

    def by_name(lock, name):
        return name

    keyed = task(key=by_name)(use) if way == "decorator" else task(use).with_options(key=by_name)
    fails = [True]

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        names = ["a", "b"] if fails else ["b", "a"]
        got = [keyed(threading.Lock(), name).result() for name in names]
        if fails:
            raise Stop
        return got

    with pytest.raises(Stop):
        flow.invoke(1, CONFIG)
    fails.clear()

    # when, then
    assert flow.invoke(None, CONFIG) == ["b", "a"]
    assert RAN == ["a", "b"]
