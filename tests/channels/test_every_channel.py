"""What holds for every channel, whatever its rule."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flowfn.channels import (
    AnyValue,
    BinaryOperatorAggregate,
    Channel,
    DeltaChannel,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    Topic,
    UntrackedValue,
)
from flowfn.errors import EmptyChannelError
from flowfn.types import MISSING, Overwrite

Make = Callable[[], Channel[Any, Any, Any]]


class NoEmpty:
    """A type of which no value can be made from nothing."""

    def __init__(self, needed: Any) -> None: ...


def extended(held: list[Any], writes: Sequence[Any]) -> list[Any]:
    return [*held, *writes]


MAKERS: dict[str, tuple[Make, list[Any]]] = {
    "LastValue": (lambda: LastValue(int), [1]),
    "AnyValue": (lambda: AnyValue(int), [1, 1]),
    "EphemeralValue": (lambda: EphemeralValue(int), [1]),
    "UntrackedValue": (lambda: UntrackedValue(int), [1]),
    "LastValueAfterFinish": (lambda: LastValueAfterFinish(int), [1]),
    "BinaryOperatorAggregate": (lambda: BinaryOperatorAggregate(int | None, operator.add), [1, 2]),
    "Topic": (lambda: Topic(int), [1, [2, 3]]),
    "accumulating Topic": (lambda: Topic(int, accumulate=True), [1]),
    "growing list": (lambda: BinaryOperatorAggregate(list[int] | None, operator.add), [[1], [2, 3]]),
    "DeltaChannel": (lambda: DeltaChannel(extended, NoEmpty), [Overwrite([1])]),
    "NamedBarrierValue": (lambda: NamedBarrierValue(str, {"a", "b"}), ["a", "b"]),
    "NamedBarrierValueAfterFinish": (lambda: NamedBarrierValueAfterFinish(str, {"a", "b"}), ["a", "b"]),
}
every_channel = pytest.mark.parametrize(("make", "writes"), MAKERS.values(), ids=MAKERS)


@every_channel
def test_a_new_channel_is_empty_and_its_error_names_it(make: Make, writes: list[Any]) -> None:
    channel = make()
    channel.key = "price"
    with pytest.raises(EmptyChannelError, match="`price`"):
        channel.get()
    assert not channel.is_available()
    for other in (channel.copy(), channel.restored(channel.to_store(False).value)):
        assert not other.is_available()
        assert other.update(writes)


@every_channel
def test_a_written_channel_has_a_value(make: Make, writes: list[Any]) -> None:
    channel = make()
    assert channel.update(writes)
    channel.finish()
    assert channel.is_available()
    channel.get()


@every_channel
def test_no_write_to_an_empty_channel_changes_nothing(make: Make, writes: list[Any]) -> None:
    channel = make()
    assert not channel.update([])
    assert not channel.finish()
    assert not channel.consume()
    assert not channel.is_available()


@every_channel
def test_a_copy_goes_its_own_way(make: Make, writes: list[Any]) -> None:
    channel = make()
    channel.key = "price"
    channel.update(writes[:1])
    before = channel.checkpoint()
    twin = channel.copy()
    twin.update(writes[-1:])
    twin.finish()
    twin.consume()
    assert (channel.checkpoint(), twin.key, type(twin)) == (before, "price", type(channel))


@every_channel
@pytest.mark.parametrize("finished", [True, False])
def test_a_channel_goes_on_from_its_checkpoint(make: Make, writes: list[Any], finished: bool) -> None:
    channel = make()
    channel.update(writes)
    if finished:
        channel.finish()
    again = channel.from_checkpoint(channel.checkpoint())
    if isinstance(channel, UntrackedValue):
        assert not again.is_available()
    else:
        assert again.is_available() == channel.is_available()
        assert again.checkpoint() == channel.checkpoint()


@every_channel
def test_from_no_checkpoint_comes_an_empty_channel(make: Make, writes: list[Any]) -> None:
    channel = make()
    channel.key = "price"
    channel.update(writes)
    again = channel.from_checkpoint(MISSING)
    assert (again.is_available(), again.key, again) == (False, "price", channel)


@every_channel
def test_what_was_stored_does_not_change_with_the_channel(make: Make, writes: list[Any]) -> None:
    channel = make()
    channel.update(writes[:1])
    stored = channel.checkpoint()
    shown = repr(stored)
    channel.update(writes[-1:])
    channel.from_checkpoint(stored).update(writes[-1:])
    assert repr(stored) == shown


@every_channel
def test_a_channel_goes_on_from_what_it_stores(make: Make, writes: list[Any]) -> None:
    channel = make()
    channel.key = "price"
    channel.update(writes)
    again = channel.restored(channel.to_store(False).value)
    assert (again.key, again) == ("price", channel)
    if not isinstance(channel, UntrackedValue):
        assert again.checkpoint() == channel.checkpoint()


@every_channel
def test_what_is_lent_is_nobody_elses(make: Make, writes: list[Any]) -> None:
    channel = make()
    if not isinstance(channel, (NamedBarrierValue, NamedBarrierValueAfterFinish)):
        nested: Any = [{"a": [1]}]
        writes = [Overwrite(nested) if isinstance(channel, (BinaryOperatorAggregate, DeltaChannel)) else nested]
    channel.update(writes)
    channel.finish()
    shown = repr(channel.checkpoint())
    for value in (channel.lent(), channel.copy().lent()):
        spoil(value)
    assert repr(channel.checkpoint()) == shown


def spoil(value: Any) -> None:
    """Change every container in a value."""
    if isinstance(value, dict):
        for each in value.values():
            spoil(each)
        value["spoilt"] = True
    elif isinstance(value, list):
        for each in value:
            spoil(each)
        value.append("spoilt")


def test_channels_are_equal_when_their_rules_are() -> None:
    rules: list[Make] = [make for name, (make, _) in MAKERS.items() if name != "growing list"]
    rules += [lambda: EphemeralValue(int, guard=False), lambda: NamedBarrierValue(str, {"a"})]
    equal = {(i, j) for i, one in enumerate(rules) for j, other in enumerate(rules) if one() == other()}
    assert equal == {(i, i) for i in range(len(rules))}
