"""A save that fails stops the run and says what was not stored; nothing else begins, and the next call goes on."""

import itertools

import pytest
from crashing import FailingSaver, Witness, finished
from shapes import FLOWS

from flowfn.checkpoint.base import SaveCall
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.errors import SaveFailedError, StoreError

FULL, DOWN = StoreError("flows.db", "could not grow: the disk is full."), OSError("the network is down")


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield store
    store.close()


class Trial:
    """One thread, taken on until it ends or a save fails.

    Attributes:
        ran, saw, stored: labels of bodies begun, of results seen, and of those stored.
        ran_since: of bodies begun since the save failed.
    """

    def __init__(self, name, how, store, thread, at=0, after=False, error=None):
        make, inputs = FLOWS[name]
        saver, self.result, self.error = FailingSaver(store, at, after, error), None, None
        see, begun = Witness(saver), []
        saver.when_failed = lambda: begun.extend(see.ran)
        try:
            self.result = finished(make(see, how, saver), how, inputs, saver=saver, thread=thread)
        except SaveFailedError as failure:
            self.error = failure
        self.failed, self.ran_since = saver.failed, see.ran[len(begun) :] if saver.failed else []
        self.ran, self.saw, self.stored = set(see.ran), set(see.saw), set(saver.stored)


@pytest.mark.parametrize(("store", "error"), [("sqlite", FULL), ("memory", DOWN)], indirect=["store"])
@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
def test_a_run_goes_on_from_any_save_that_failed(name, how, after, error, store):
    # given: what an undisturbed run comes to
    calm = Trial(name, how, store, "calm")

    for at in itertools.count(1):
        # when: that save fails, and the thread is gone on with
        first = Trial(name, how, store, f"t{at}", at, after, error)
        if first.failed is None:
            break
        second = Trial(name, how, store, f"t{at}")

        # then
        where = f"save {at} failed, {[type(save).__name__ for save in first.failed]}"
        assert first.error is not None, f"{where}: nobody was told"
        assert str(error) in str(first.error), where
        named = {f"`{save.row.name.rpartition('.')[2]}`" for save in first.failed if isinstance(save, SaveCall)}
        assert not named or any(name in first.error.what for name in named), f"{where}: {first.error}"
        assert not second.ran & first.saw, f"{where}: ran again although seen"
        assert not second.ran & first.stored, f"{where}: ran again although stored"
        same = sorted if name == "race" else list
        assert same(second.result) == same(calm.result), where
    assert at > 1


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
def test_nothing_begins_once_a_save_has_failed(name, how):
    for at in itertools.count(1):
        # when
        trial = Trial(name, how, InMemorySaver(), "t", at, False, DOWN)
        if trial.failed is None:
            break

        # then
        # One that another worker had claimed may begin before the run is told.
        assert len(trial.ran_since) <= 1, f"after save {at}"
