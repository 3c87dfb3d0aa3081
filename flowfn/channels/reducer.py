"""A channel that joins each write to its value with a function of two arguments, the reducer."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Sequence
from typing import Any, NotRequired, Required, Self

from flowfn.channels.base import Channel, V
from flowfn.errors import EmptyChannelError, InvalidUpdateError
from flowfn.types import MISSING, Overwrite

OVERWRITE = "__overwrite__"

CONCRETE: dict[Any, type] = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


class BinaryOperatorAggregate(Channel[V, V, V]):
    """Holds `operator(value, write)`, applied write by write; starts from `typ()`, or from the first write.

    `Overwrite(v)`, also spelled `{"__overwrite__": v}` or `{"type": "__overwrite__", "value": v}`, replaces the value;
    ordinary writes that come after it in the same super-step are dropped.

    Args:
        typ: what is held; a protocol such as `Sequence` starts as its plain builtin.
        operator: the reducer; may return its first argument changed in place only if nothing else holds it.
    """

    __slots__ = ("operator", "value")

    value: V | Any

    def __init__(self, typ: Any, operator: Callable[[V, Any], V]) -> None:
        super().__init__(typ)
        self.operator = operator
        self.value = _start(typ)

    def get(self) -> V:
        if self.value is MISSING:
            raise EmptyChannelError(self.key)
        return self.value

    def is_available(self) -> bool:
        return self.value is not MISSING

    def update(self, values: Sequence[V]) -> bool:
        overwritten = False
        for value in values:
            replacement = _replacement(value)
            if replacement is not MISSING:
                if overwritten:
                    raise InvalidUpdateError(f"Channel `{self.key}` takes one Overwrite a super-step, but got another.")
                self.value, overwritten = replacement, True
            elif not overwritten:
                self.value = value if self.value is MISSING else self.operator(self.value, value)
        return bool(values)

    def checkpoint(self) -> V | Any:
        return self.value

    def from_checkpoint(self, checkpoint: V | Any) -> Self:
        return self._holding(_start(self.typ) if checkpoint is MISSING else checkpoint)

    def copy(self) -> Self:
        return self._holding(self.value)

    def _holding(self, value: V | Any) -> Self:
        twin = self.__new__(type(self))
        twin.typ = self.typ
        twin.key = self.key
        twin.operator = self.operator
        twin.value = value
        return twin

    def _rule(self) -> Any:
        # A lambda is a new object each time its schema is read, and has no name to be known by: any two count as equal.
        return "<lambda>" if getattr(self.operator, "__name__", "") == "<lambda>" else self.operator


def _start(typ: Any) -> Any:
    """An empty value of the type, or `MISSING` where it cannot be made from nothing."""
    while hasattr(typ, "__origin__"):
        typ = typ.__args__[0] if typ.__origin__ in (Required, NotRequired) else typ.__origin__
    try:
        make: Any = CONCRETE.get(typ, typ)
        return make()
    except Exception:
        return MISSING


def _replacement(value: Any) -> Any:
    """What a write puts in the place of the value, or `MISSING` for an ordinary write."""
    if isinstance(value, Overwrite):
        return value.value
    if isinstance(value, dict):
        if len(value) == 1 and OVERWRITE in value:
            return value[OVERWRITE]
        # Left of an `Overwrite` that went through JSON.
        if value.get("type") == OVERWRITE and "value" in value:
            return value["value"]
    return MISSING
