"""A run that dies at any of its writes goes on, and no result that was stored or seen is computed again."""

import itertools

import pytest
from crashing import Crash, DoomedSaver, Witness, finished
from shapes import FLOWS

from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield store
    store.close()


class Life:
    """One process that takes a thread on until it ends or dies.

    Attributes:
        is_dead: whether it died.
        result: what the thread came to, None for a dead one.
        ran, saw, stored: labels of bodies begun, of results seen, and of those stored.
    """

    def __init__(self, name, how, store, thread, at=0, after=False, error=Crash):
        make, inputs = FLOWS[name]
        saver, self.result = DoomedSaver(store, at, after, error), None
        see = Witness(saver)
        try:
            self.result = finished(make(see, how, saver), how, inputs, saver=saver, thread=thread)
        except BaseException:
            if not saver.is_dead:
                raise
        self.is_dead, self.writes = saver.is_dead, saver.writes
        self.ran, self.saw, self.stored = set(see.ran), set(see.saw), set(saver.stored)


def same(name):
    """What comes first in a race may come second in another one."""
    return sorted if name == "race" else list


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the crash ends workers as well
@pytest.mark.parametrize("error", [Crash, OSError])
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.timeout(20)
def test_a_run_goes_on_from_any_write_and_repeats_nothing_that_was_stored(name, how, after, error, store):
    # given: what an undisturbed run does
    calm = Life(name, how, store, "calm")

    for at in itertools.count(1):
        # when: the process dies at this write, and another one goes on
        dead = Life(name, how, store, f"t{at}", at, after, error)
        next = Life(name, how, store, f"t{at}")
        if not dead.is_dead:
            assert same(name)(dead.result) == same(name)(calm.result)
            break

        # then
        where = f"died at write {at} of about {calm.writes}"
        assert not next.ran & dead.stored, f"{where}: ran again although stored"
        assert dead.saw <= dead.stored, f"{where}: seen before stored"
        assert same(name)(next.result) == same(name)(calm.result), where
        assert dead.ran | next.ran == calm.ran, where


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.timeout(20)
def test_a_run_that_dies_again_and_again_comes_to_its_end(name, how, store):
    # given
    calm, stored = Life(name, how, store, "calm"), set()

    # when: every process dies at its third write
    for _ in range(60):
        life = Life(name, how, store, "t", 3, True)

        # then
        assert not life.ran & stored
        stored |= life.stored
        if not life.is_dead:
            break
    assert same(name)(life.result) == same(name)(calm.result)
