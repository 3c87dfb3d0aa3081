"""What every cache promises."""

import asyncio
import gc
import logging
import threading
import time

import pytest

from flowfn.cache import DiskCache, InMemoryCache, open_cache
from flowfn.cache.base import Hit, Row
from flowfn.cache.disk import LEAST
from flowfn.cache.flights import Claim, Held
from flowfn.cache.keys import Subject
from flowfn.errors import ConfigError, PolicyError
from flowfn.identity import packed_arguments
from flowfn.serde.base import Serializer
from flowfn.types import MISSING

CACHES = {
    "memory": lambda folder, **options: InMemoryCache(**options),
    "disk": lambda folder, **options: DiskCache(folder / "cache", **options),
}
TASK = "shop:tax"
SUBJECT = Subject(TASK, b"", ("x", "rate"), code=b"c" * 16, functions={"shop:tax": b"t" * 8, "shop:net": b"n" * 8})


@pytest.fixture(params=CACHES)
def make(request, tmp_path):
    """Makes caches of one kind, all of the disk in one folder."""
    made = []

    def make(**options):
        made.append(CACHES[request.param](tmp_path, **options))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def cache(make):
    return make()


@pytest.fixture(params=["blocking", "awaited"])
def named(request, cache):
    """The cache by LangGraph's interface: (get, set, clear)."""
    if request.param == "blocking":
        return cache.get, cache.set, cache.clear
    return tuple(lambda *args, way=way: asyncio.run(way(*args)) for way in (cache.aget, cache.aset, cache.aclear))


@pytest.fixture
def clock(monkeypatch):
    """The time, which moves when it is told to."""

    class Clock:
        now = 1_800_000_000.0

    monkeypatch.setattr(time, "time", lambda: Clock.now)
    return Clock


def key(x, rate="de"):
    return SUBJECT.key(packed_arguments((x, rate))[0])


def parts(x, rate="de", subject=SUBJECT):
    return subject.parts(packed_arguments((x, rate))[0], [repr(x), repr(rate)])


def kept(cache, value, *args, task=TASK, ttl=None):
    claim = cache.ask(task, key(*args))
    assert isinstance(claim, Claim)
    return cache.keep(claim, value, ttl, parts(*args))


# ---------------------------------------------------------------- entries


@pytest.mark.parametrize("value", [None, False, 0, "", b"", [], {"a": (1, {2})}, b"x" * 100_000, MISSING.__class__])
def test_what_is_kept_is_found_with_its_type(cache, value):
    assert kept(cache, value, 1)
    assert cache.look(TASK, key(1)) == value
    found = cache.ask(TASK, key(1))
    assert (type(found), type(found.value), found.value) == (Hit, type(value), value)


def test_what_was_never_kept_is_missing(cache):
    assert cache.look(TASK, key(1)) is MISSING
    assert isinstance(cache.ask(TASK, key(1)), Claim)


def test_a_caller_cannot_spoil_an_entry(cache):
    value = {"list": [1]}
    kept(cache, value, 1)
    value["list"].append(2)
    cache.look(TASK, key(1))["list"].append(3)
    assert cache.look(TASK, key(1)) == {"list": [1]}


def test_an_entry_counts_until_its_time_is_over(cache, clock):
    kept(cache, "short", 1, ttl=60.0)
    kept(cache, "long", 2)
    clock.now += 59
    assert [cache.look(TASK, key(n)) for n in (1, 2)] == ["short", "long"]
    clock.now += 1
    assert [cache.look(TASK, key(n)) for n in (1, 2)] == [MISSING, "long"]
    assert kept(cache, "anew", 1, ttl=60.0)
    assert cache.look(TASK, key(1)) == "anew"


def test_the_entries_of_one_task_are_forgotten_alone(cache):
    kept(cache, 1, 1)
    kept(cache, 2, 2, task="shop:other")
    cache.clear([(TASK,)])
    assert [cache.look(TASK, key(1)), cache.look("shop:other", key(2))] == [MISSING, 2]
    cache.clear()
    assert cache.look("shop:other", key(2)) is MISSING


def test_a_damaged_entry_is_a_miss_that_is_logged_and_replaced(cache, caplog):
    kept(cache, 1, 1)
    cache._write(cache.permit(TASK, key(1)), Row(b"\x00nonsense"), None)
    assert cache.look(TASK, key(1)) is MISSING
    assert "counts as none" in caplog.text
    assert TASK in caplog.text
    claim = cache.ask(TASK, key(1))
    assert isinstance(cache.ask(TASK, key(1)), Held)
    assert cache.keep(claim, 2)
    assert cache.look(TASK, key(1)) == 2


def test_a_result_that_cannot_be_kept_costs_nothing_and_is_logged(cache, caplog):
    told = []
    claim = cache.ask(TASK, key(1))
    cache.tell(key(1), lambda: told.append(True))
    assert cache.keep(claim, threading.Lock()) is False
    assert cache.keep(cache.permit(TASK, key(2)), Unruly()) is False
    assert "The result of task `shop:tax`" in caplog.text
    assert told == [True]
    assert cache.look(TASK, key(1)) is MISSING


def test_a_warning_is_not_repeated_all_the_time(cache, caplog):
    for n in range(10):
        cache.keep(cache.permit(TASK, key(n)), threading.Lock())
    assert len(caplog.records) == 1


def test_beyond_its_size_a_cache_makes_room_and_says_so(make, caplog):
    caplog.set_level(logging.WARNING)
    cache = make(size_limit=LEAST)
    for n in range(8):
        assert kept(cache, bytes([n]) * (LEAST // 4), n)
    assert cache.look(TASK, key(7)) is not MISSING
    assert cache.look(TASK, key(0)) is MISSING
    assert [record.levelname for record in caplog.records if "makes room" in record.message] == ["WARNING"]


def test_a_result_larger_than_the_cache_is_not_kept(make, caplog):
    cache = make(size_limit=LEAST)
    kept(cache, "small", 1)
    assert kept(cache, b"x" * LEAST, 2) is False
    assert [cache.look(TASK, key(n)) for n in (1, 2)] == ["small", MISSING]
    assert "larger than" in caplog.text


def test_a_size_that_is_none_is_refused(make):
    for size in (0, -1, 1.5, True, "1G"):
        with pytest.raises(PolicyError, match="size_limit"):
            make(size_limit=size)


class Secretive(Serializer):
    """Values that are secret, so that hashes beside them are keyed."""

    digest_key = b"secret"


def test_where_values_are_secret_nobody_can_guess_arguments_from_keys(make):
    cache = make(serde=Secretive())
    kept(cache, "found", 1)
    assert cache.look(TASK, key(1)) == "found"
    assert cache._read(key(1)) is None


# ---------------------------------------------------------------- one computes


def test_of_those_who_ask_at_once_one_computes(cache):
    claim = cache.ask(TASK, key(1))
    held = cache.ask(TASK, key(1))
    assert isinstance(claim, Claim)
    assert isinstance(held, Held)
    assert held.by.is_dead() is False
    assert isinstance(cache.ask(TASK, key(2)), Claim)


def test_those_who_wait_are_told_when_the_entry_is_there(cache):
    found = []
    claim = cache.ask(TASK, key(1))
    for _ in range(3):
        cache.tell(key(1), lambda: found.append(cache.ask(TASK, key(1))))
    assert found == []
    cache.keep(claim, "value")
    assert found == [Hit("value")] * 3


def test_when_the_one_gives_up_the_next_computes(cache):
    told = []
    claim = cache.ask(TASK, key(1))
    cache.tell(key(1), lambda: told.append(1))
    claim.release()
    claim.release()
    assert told == [1]
    assert isinstance(cache.ask(TASK, key(1)), Claim)


def test_whoever_waits_for_nothing_is_told_at_once(cache):
    told = threading.Event()
    cache.tell(key(1), told.set)
    assert told.wait(5)


def test_a_claim_that_nobody_has_any_more_has_ended(cache):
    told = threading.Event()
    claim = cache.ask(TASK, key(1))
    cache.tell(key(1), told.set)
    del claim
    gc.collect()
    assert told.wait(5)
    assert isinstance(cache.ask(TASK, key(1)), Claim)


def test_a_result_is_not_kept_without_a_claim(cache):
    claim = cache.ask(TASK, key(1))
    claim.release()
    assert cache.keep(claim, "late") is False
    assert cache.look(TASK, key(1)) is MISSING


def test_a_claim_that_ends_while_its_value_is_on_the_way_keeps_nothing(cache):
    claim = cache.ask(TASK, key(1))
    claim.release()
    assert cache._write(claim, Row(Serializer().dumps("late")), None) is False
    assert cache.look(TASK, key(1)) is MISSING


def test_whoever_fails_when_told_keeps_nobody_from_being_told(cache, caplog):
    told = []
    claim = cache.ask(TASK, key(1))
    cache.tell(key(1), lambda: 1 / 0)
    cache.tell(key(1), lambda: told.append(1))
    assert cache.keep(claim, "value")
    assert told == [1]
    assert "ZeroDivisionError" in caplog.text


class Unruly:
    def __reduce__(self):
        raise RuntimeError("not me")


def test_an_entry_can_be_computed_anew_at_any_time(cache):
    kept(cache, "old", 1)
    permit = cache.permit(TASK, key(1))
    assert cache.look(TASK, key(1)) == "old"
    assert cache.keep(permit, "new")
    assert cache.look(TASK, key(1)) == "new"


def test_whoever_computes_anew_leaves_the_claim_of_another_alone(cache):
    claim = cache.ask(TASK, key(1))
    assert cache.keep(cache.permit(TASK, key(1)), "anew")
    assert isinstance(cache.ask(TASK, key(1)), Hit)
    assert cache.keep(claim, "first")


@pytest.mark.parametrize("namespaces", [None, [(TASK,)]])
def test_what_is_computed_while_the_cache_is_cleared_is_not_kept(cache, namespaces):
    told = []
    claim = cache.ask(TASK, key(1))
    other = cache.ask("shop:other", key(2))
    cache.tell(key(1), lambda: told.append(1))
    cache.clear(namespaces)
    assert told == [1]
    assert cache.keep(claim, "of before") is False
    assert cache.look(TASK, key(1)) is MISSING
    assert cache.keep(other, "another") is (namespaces is not None)


def test_many_threads_compute_each_value_once(cache):
    computed, wrong = [], []

    def get(n):
        while True:
            found = cache.ask(TASK, key(n))
            if isinstance(found, Hit):
                return found.value
            if isinstance(found, Claim):
                computed.append(n)
                cache.keep(found, n * 10)
                return n * 10
            told = threading.Event()
            cache.tell(key(n), told.set)
            assert told.wait(20)

    def work():
        for n in range(30):
            if get(n) != n * 10:
                wrong.append(n)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(computed) == list(range(30))
    assert wrong == []


# ---------------------------------------------------------------- why


def test_a_hit_is_explained(cache, clock):
    kept(cache, "value", 1, ttl=3600)
    why = cache.why(parts(1), key(1))
    assert (why.hit, why.differs) == (True, ())
    assert why.nearest.parts == parts(1)
    assert str(why) == (
        "Hit: task `shop:tax` was stored 2027-01-15 08:00:00 UTC, and counts until 2027-01-15 09:00:00 UTC."
    )


def test_a_miss_names_what_differs_from_the_nearest_entry(cache, clock):
    kept(cache, "far", 7, "x")
    kept(cache, "near", 1, "y")
    why = cache.why(parts(1, "z"), key(1, "z"))
    assert (why.hit, why.differs) == (False, ("argument `rate`",))
    assert str(why) == (
        "Miss: the nearest of 2 entries of task `shop:tax`, stored 2027-01-15 08:00:00 UTC, differs in argument `rate` "
        "('z', there 'y')."
    )


def test_a_miss_for_changed_code_names_the_function_that_changed(cache):
    kept(cache, "value", 1)
    edited = Subject(TASK, b"", ("x", "rate"), code=b"d" * 16, functions={"shop:tax": b"t" * 8, "shop:net": b"m" * 8})
    why = cache.why(parts(1, subject=edited), edited.key(packed_arguments((1, "de"))[0]))
    assert why.differs == ("the code of `shop:net`",)


def test_a_miss_for_an_entry_whose_time_is_over_says_so(cache, clock):
    kept(cache, "value", 1, ttl=60.0)
    clock.now += 90
    why = cache.why(parts(1), key(1))
    assert (why.hit, why.differs) == (False, ())
    assert str(why).endswith("has an entry for these arguments, but its time was over 2027-01-15 08:01:00 UTC.")


def test_a_miss_where_nothing_is_kept_says_so(cache):
    kept(cache, "value", 2, task="shop:other")
    assert str(cache.why(parts(1), key(1))) == "Miss: the cache has no entry of task `shop:tax`."


def test_entries_are_described_without_their_values(cache, clock):
    kept(cache, b"x" * 100_000, 1)
    clock.now += 1
    kept(cache, 2, 2, ttl=5)
    cache.set({((TASK,), "by hand"): (3, None)})
    assert cache.entries(TASK) == [
        (parts(2), clock.now, clock.now + 5),
        (parts(1), clock.now - 1, None),
    ]
    assert len(cache.entries(TASK, limit=1)) <= 1


# ---------------------------------------------------------------- LangGraph's interface


def test_values_are_kept_and_found_by_namespace_and_key(named):
    get, set, _ = named
    here, there, nowhere = (("a", "b"), "k"), (("a",), "k"), (("c",), "k")
    set({here: ({"x": (1,)}, None), there: (None, 60)})
    assert get([here, there, nowhere]) == {here: {"x": (1,)}, there: None}
    assert get([]) == {}


def test_namespaces_are_cleared_alone_or_together(named):
    get, set, clear = named
    keys = [(("a",), "k"), (("b",), "k"), (("a", "b"), "k")]
    set({key: (key[0], None) for key in keys})
    clear([("a",)])
    assert get(keys).keys() == {*keys[1:]}
    clear()
    assert get(keys) == {}


def test_the_namespace_of_a_task_is_its_name(cache):
    kept(cache, 1, 1)
    cache.set({((TASK,), "by hand"): (2, None)})
    cache.clear([(TASK,)])
    assert (cache.look(TASK, key(1)), cache.get([((TASK,), "by hand")])) == (MISSING, {})


# ---------------------------------------------------------------- addresses


def test_a_cache_is_named_by_a_folder_or_an_address(tmp_path):
    cache = InMemoryCache()
    assert open_cache(cache) is cache
    assert isinstance(open_cache("memory://"), InMemoryCache)
    assert open_cache(tmp_path / "c").folder == open_cache(str(tmp_path / "c")).folder == tmp_path / "c"
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("address", ["redis://host", 7, b"c", True])
def test_what_names_no_cache_is_refused(address):
    with pytest.raises(ConfigError, match="cache"):
        open_cache(address)
