"""What a channel holds, for somebody who may keep or change it: nobody else sees what becomes of it."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from flowfn.errors import UnstorableError
from flowfn.futures import TaskFuture
from flowfn.serde.typed import ATOMS, copied

V = TypeVar("V")

_SHARED: tuple[type, ...] = (TaskFuture, type, frozenset)
"""What changes in nobody's hand, or stands for something that has to stay itself."""


def lent(value: V) -> V:
    """A deep copy as far as the value is plain data: containers are copied, and what cannot be is shared.

    Something that contains itself is shared whole.
    """
    try:
        copy: V = _lent(value)
    except RecursionError:
        return value
    return copy


def all_atoms(values: list[Any]) -> bool:
    """Whether a copy of the list alone is a deep copy of it."""
    return ATOMS.issuperset(map(type, values))


def _lent(value: Any) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    copy = _COPIES.get(kind)
    if copy is not None:
        return copy(value)
    if isinstance(value, _SHARED):
        return value
    try:
        return copied(value)
    except UnstorableError:
        return value


def _list(value: list[Any]) -> list[Any]:
    return [each if type(each) in ATOMS else _lent(each) for each in value]


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: each if type(each) in ATOMS else _lent(each) for key, each in value.items()}


def _ordered(value: OrderedDict[Any, Any]) -> OrderedDict[Any, Any]:
    return OrderedDict((key, _lent(each)) for key, each in value.items())


def _defaultdict(value: defaultdict[Any, Any]) -> defaultdict[Any, Any]:
    return defaultdict(value.default_factory, _dict(value))


_COPIES: dict[type, Callable[[Any], Any]] = {
    list: _list,
    dict: _dict,
    tuple: lambda value: tuple(map(_lent, value)),
    set: set.copy,
    bytearray: bytearray.copy,
    deque: lambda value: deque(map(_lent, value), value.maxlen),
    OrderedDict: _ordered,
    defaultdict: _defaultdict,
    Counter: lambda value: Counter(_dict(value)),
}
