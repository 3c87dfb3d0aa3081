"""Equal calls at the same time compute once, whoever is killed."""

import threading
import time
from dataclasses import replace

import pytest

from flowfn.cache import DiskCache, InMemoryCache
from flowfn.cache import flights as room
from flowfn.cache.base import Hit
from flowfn.cache.flights import LEASE, Claim, Held
from flowfn.owners import Owner
from tests.cache.processes import Child

KEY = b"k" * 16
TASK = "shop:tax"


@pytest.fixture
def cache(tmp_path):
    cache = DiskCache(tmp_path / "cache")
    yield cache
    cache.close()


def value_of(cache, compute):
    """The value, computed here if nobody else does."""
    while True:
        found = cache.ask(TASK, KEY)
        if isinstance(found, Hit):
            return found.value
        if isinstance(found, Claim):
            value = compute()
            assert cache.keep(found, value)
            return value
        told = threading.Event()
        cache.tell(KEY, told.set)
        assert told.wait(20)


def lease(cache, owner, until):
    """Let it look as if that owner had a claim."""
    row = (KEY, TASK, str(owner), until)
    cache.open()
    cache._store.write(lambda folder: folder._sql("INSERT OR REPLACE INTO Claims VALUES (?, ?, ?, ?)", row).rowcount)


def test_of_six_processes_that_ask_at_once_one_computes(tmp_path):
    def work(tell, wait):
        computed = []

        def compute():
            computed.append(1)
            time.sleep(0.05)
            return "value"

        tell("ready")
        wait()
        return [value_of(DiskCache(tmp_path / "cache"), compute), len(computed)]

    children = [Child(work) for _ in range(6)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.go()
    results = [child.result() for child in children]
    assert [value for value, _ in results] == ["value"] * 6
    assert sum(computed for _, computed in results) == 1


def test_when_the_one_that_computes_is_killed_exactly_one_other_takes_over_at_once(tmp_path):
    def dies(tell, wait):
        def compute():
            tell("computing")
            wait()

        value_of(DiskCache(tmp_path / "cache"), compute)

    def waits(tell, wait):
        cache, computed = DiskCache(tmp_path / "cache"), []
        tell(isinstance(cache.ask(TASK, KEY), Held))
        return [value_of(cache, lambda: computed.append(1) or "value"), len(computed)]

    first = Child(dies)
    assert first.hear() == "computing"
    others = [Child(waits) for _ in range(4)]
    assert [other.hear() for other in others] == [True] * 4
    began = time.monotonic()
    first.kill()
    results = [other.result() for other in others]
    first.close()
    assert [value for value, _ in results] == ["value"] * 4
    assert sum(computed for _, computed in results) == 1
    assert time.monotonic() - began < LEASE / 2


def test_a_claim_of_another_machine_counts_until_it_lapses(cache):
    elsewhere = replace(Owner.me(), machine="elsewhere")
    lease(cache, elsewhere, time.time() + 60)
    assert cache.ask(TASK, KEY).by == elsewhere
    lease(cache, elsewhere, time.time() - 1)
    assert isinstance(cache.ask(TASK, KEY), Claim)


def test_a_claim_of_a_dead_process_counts_for_nothing(cache):
    child = Child(lambda tell, wait: str(Owner.me()))
    dead = Owner.parsed(child.result())
    lease(cache, dead, time.time() + 60)
    assert isinstance(cache.ask(TASK, KEY), Claim)


def test_a_claim_that_makes_no_sense_counts_for_nothing(cache):
    lease(cache, "nobody at all", time.time() + 60)
    assert isinstance(cache.ask(TASK, KEY), Claim)
    cache.clear()
    lease(cache, Owner.me(), "soon")
    assert isinstance(cache.ask(TASK, KEY), Claim)


def test_whoever_waits_for_another_process_is_told_when_its_claim_lapses(cache, monkeypatch):
    later = time.time() + 60
    lease(cache, replace(Owner.me(), machine="elsewhere"), later)
    assert isinstance(cache.ask(TASK, KEY), Held)
    told = [threading.Event() for _ in range(3)]
    for event in told:
        cache.tell(KEY, event.set)
    assert not told[0].wait(0.05)
    monkeypatch.setattr(time, "time", lambda: later)
    assert all(event.wait(10) for event in told)


def test_a_claim_is_renewed_while_it_is_held(cache, monkeypatch):
    claim = cache.ask(TASK, KEY)
    before = cache._flights._medium.holder(KEY).until
    cache._flights.renew()
    assert cache._flights._medium.holder(KEY).until == before
    claim.renewed -= LEASE / 2
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7)
    cache._flights.renew()
    assert cache._flights._medium.holder(KEY) == Held(claim.owner, now + 7 + LEASE)


def test_the_keeper_renews_by_itself(cache, monkeypatch):
    monkeypatch.setattr(room, "_RENEWAL", 0.02)
    monkeypatch.setattr(room, "_keeper", room._Keeper())
    claim = cache.ask(TASK, KEY)
    before = cache._flights._medium.holder(KEY).until
    give_up = time.monotonic() + 10
    while cache._flights._medium.holder(KEY).until == before:
        assert time.monotonic() < give_up
        time.sleep(0.005)
    claim.release()


def test_a_late_holder_does_not_replace_what_came_after_it(cache):
    late = cache.ask(TASK, KEY)
    lease(cache, late.owner, time.time() - 1)
    other = DiskCache(cache.folder)
    assert value_of(other, lambda: "of the next") == "of the next"
    assert cache.keep(late, "late") is False
    assert cache.look(TASK, KEY) == "of the next"
    other.close()


def test_two_caches_of_one_process_share_claims_through_their_folder(cache):
    other = DiskCache(cache.folder)
    claim = cache.ask(TASK, KEY)
    assert other.ask(TASK, KEY) == Held(claim.owner, pytest.approx(time.time() + LEASE, abs=5))
    told = threading.Event()
    other.tell(KEY, told.set)
    assert not told.is_set()
    cache.keep(claim, "value")
    assert told.wait(10)
    assert other.look(TASK, KEY) == "value"
    other.close()


def test_a_claim_of_another_process_that_clears_is_not_kept(cache):
    claim = cache.ask(TASK, KEY)
    Child(lambda tell, wait: DiskCache(cache.folder).clear([(TASK,)])).result()
    assert cache.keep(claim, "of before") is False
    assert cache.look(TASK, KEY) == cache.look(TASK, b"never")


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_forked_child_has_none_of_its_parents_claims(kind, tmp_path):
    cache = InMemoryCache() if kind == "memory" else DiskCache(tmp_path / "cache")
    claim = cache.ask(TASK, KEY)
    told = []
    cache.tell(KEY, lambda: told.append(1))

    def work(tell, wait):
        claim.release()
        found = cache.ask(TASK, KEY)
        return [type(found).__name__, len(told), cache.keep(claim, "of the child")]

    expected = ["Claim" if kind == "memory" else "Held", 0, False]
    assert Child(work).result() == expected
    assert told == []
    assert cache.keep(claim, "of the parent")
    assert cache.look(TASK, KEY) == "of the parent"


def test_a_job_that_fails_does_not_end_the_keeper(cache, caplog):
    done = threading.Event()
    room._keeper.do(lambda: 1 / 0)
    room._keeper.do(done.set)
    assert done.wait(10)
    assert "ZeroDivisionError" in caplog.text
