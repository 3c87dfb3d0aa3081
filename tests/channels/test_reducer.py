from __future__ import annotations

import functools
import operator
import typing
from collections import defaultdict
from collections.abc import Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from typing import Annotated, Any, NotRequired, Required

import pytest

from flowfn.channels import BinaryOperatorAggregate
from flowfn.errors import InvalidUpdateError
from flowfn.types import MISSING, Overwrite


class NeedsArguments:
    def __init__(self, needed: int) -> None: ...


def test_writes_are_joined_in_order() -> None:
    channel = BinaryOperatorAggregate(str, operator.add)
    channel.update(["a", "b"])
    channel.update(["c"])
    assert channel.get() == "abc"


@pytest.mark.parametrize(
    ("typ", "start"),
    [
        (int, 0),
        (list[int], []),
        (dict, {}),
        (Sequence, []),
        (Sequence[int], []),
        (MutableSequence[int], []),
        (typing.Sequence[int], []),
        (Set[int], set()),
        (MutableSet, set()),
        (Mapping[str, int], {}),
        (MutableMapping, {}),
        (Annotated[list[int], "note"], []),
        (Required[list[int]], []),
        (NotRequired[Annotated[set[int], "note"]], set()),
        (defaultdict, defaultdict()),
    ],
)
def test_a_channel_starts_from_an_empty_value_of_its_type(typ: Any, start: Any) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(typ, operator.add)
    assert channel.get() == start
    assert type(channel.get()) is type(start)


@pytest.mark.parametrize("typ", [NeedsArguments, int | None, Any, typing.Union[int, str]])  # noqa: UP007
def test_without_an_empty_value_it_starts_from_the_first_write(typ: Any) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(typ, operator.add)
    assert not channel.is_available()
    channel.update([1, 2])
    assert channel.get() == 3


def test_each_channel_starts_from_a_value_of_its_own() -> None:
    first: BinaryOperatorAggregate[list[int]] = BinaryOperatorAggregate(list, operator.iadd)
    second = first.from_checkpoint(MISSING)
    second.update([[1]])
    assert first.get() == []


@pytest.mark.parametrize("spelling", [Overwrite(7), {"__overwrite__": 7}, {"type": "__overwrite__", "value": 7}])
def test_an_overwrite_replaces_what_was_and_drops_what_follows(spelling: Any) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(int, operator.add)
    channel.update([1])
    channel.update([2, spelling, 3])
    assert channel.get() == 7


def test_a_step_after_an_overwrite_joins_again() -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(int, operator.add)
    channel.update([Overwrite(5)])
    channel.update([1])
    assert channel.get() == 6


def test_an_overwrite_may_be_the_first_write() -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(NeedsArguments, operator.add)
    channel.update([Overwrite(5), 1])
    assert channel.get() == 5


@pytest.mark.parametrize("data", [{"__overwrite__": 7, "more": 1}, {"type": "other", "value": 7}, {"value": 7}])
def test_a_dict_that_only_looks_like_an_overwrite_is_joined(data: dict[str, Any]) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(dict, operator.or_)
    channel.update([{"kept": 1}])
    channel.update([data])
    assert channel.get() == {"kept": 1, **data}


def test_a_second_overwrite_in_one_step_is_refused() -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(int, operator.add)
    with pytest.raises(InvalidUpdateError, match="one Overwrite a super-step"):
        channel.update([Overwrite(1), Overwrite(1)])


def test_reducers_are_equal_by_function_and_lambdas_among_themselves() -> None:
    def of(reducer: Any) -> BinaryOperatorAggregate[int]:
        return BinaryOperatorAggregate(int, reducer)

    assert of(operator.add) == of(operator.add)
    assert of(operator.add) != of(operator.sub)
    assert of(lambda a, b: a + b) == of(lambda a, b: a + b)
    assert of(functools.partial(operator.add)) != of(operator.add)
