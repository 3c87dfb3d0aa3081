"""A cache in memory: what goes when there is no room."""

from flowfn.cache import InMemoryCache
from flowfn.types import MISSING

TASK = "shop:tax"


def test_what_was_not_used_for_longest_goes_first():
    cache = InMemoryCache(size_limit=4000)
    for n in range(3):
        assert cache.keep(cache.ask(TASK, bytes([n])), b"x" * 900)
    assert cache.look(TASK, bytes([0])) is not MISSING
    assert cache.keep(cache.ask(TASK, bytes([3])), b"x" * 900)
    assert [cache.look(TASK, bytes([n])) is MISSING for n in range(4)] == [False, True, False, False]


def test_an_entry_that_is_replaced_or_cleared_takes_no_room():
    cache = InMemoryCache(size_limit=4000)
    for _ in range(10):
        cache.keep(cache.permit(TASK, b"a"), b"x" * 3000)
    assert cache.keep(cache.ask(TASK, b"b"), b"y" * 10)
    assert cache.look(TASK, b"a") is not MISSING
    cache.clear()
    for n in range(3):
        cache.keep(cache.ask(TASK, bytes([n])), b"x" * 900)
    assert cache.look(TASK, bytes([0])) is not MISSING
