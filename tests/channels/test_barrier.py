from __future__ import annotations

import pytest

from flowfn.channels import NamedBarrierValue, NamedBarrierValueAfterFinish
from flowfn.errors import InvalidUpdateError


def test_it_opens_when_all_names_were_written_over_any_number_of_steps() -> None:
    channel = NamedBarrierValue(str, {"a", "b"})
    assert channel.update(["a"])
    assert not channel.is_available()
    assert not channel.update([])
    assert channel.update(["b"])
    assert channel.is_available()
    assert channel.get() is None


def test_a_name_written_twice_changes_nothing() -> None:
    channel = NamedBarrierValue(str, {"a", "b"})
    channel.update(["a", "a"])
    assert not channel.update(["a"])


def test_it_closes_when_a_node_has_passed() -> None:
    channel = NamedBarrierValue(str, {"a"})
    channel.update(["a"])
    assert channel.consume()
    assert not channel.is_available()
    assert not channel.consume()


@pytest.mark.parametrize("kind", [NamedBarrierValue, NamedBarrierValueAfterFinish])
def test_an_unknown_name_is_refused_and_nothing_ticked_off(kind: type[NamedBarrierValue]) -> None:
    channel = kind(str, {"a", "b"})
    channel.key = "join"
    with pytest.raises(InvalidUpdateError, match="`join` waits for `a` and `b`; it does not know `c`"):
        channel.update(["a", "c"])
    assert channel.seen == set()


def test_after_finish_it_opens_only_when_no_node_is_due() -> None:
    channel = NamedBarrierValueAfterFinish(str, {"a", "b"})
    channel.update(["a"])
    assert not channel.finish()
    channel.update(["b"])
    assert not channel.is_available()
    assert channel.finish()
    assert channel.is_available()
    assert not channel.finish()


def test_after_finish_it_closes_when_a_node_has_passed() -> None:
    channel = NamedBarrierValueAfterFinish(str, {"a"})
    channel.update(["a"])
    assert not channel.consume()
    channel.finish()
    assert channel.consume()
    assert not channel.finish()
