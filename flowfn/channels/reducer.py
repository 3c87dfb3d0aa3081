"""A channel that joins each write to its value with a function of two arguments, the reducer."""

from __future__ import annotations

import collections.abc
import operator as operators
from collections.abc import Callable, Sequence
from typing import Any, NotRequired, Required, Self

from flowfn.channels.base import Channel, V
from flowfn.channels.growing import Chain, GrowingList, Piece
from flowfn.errors import EmptyChannelError, InvalidUpdateError
from flowfn.types import MISSING, Overwrite

OVERWRITE = "__overwrite__"

_ADDS: tuple[Any, ...] = (operators.add, operators.iadd)
"""By which lists grow at their end."""

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

    A list to which lists are added grows in place, and only what was added to it is stored.

    Args:
        typ: what is held; a protocol such as `Sequence` starts as its plain builtin.
        operator: the reducer; may return its first argument changed in place only if nothing else holds it.
    """

    __slots__ = ("growing", "operator", "value")

    is_steady = True

    value: V | Any
    growing: GrowingList | None
    """Holds the value in place of `value`, while that is a list to which lists are added."""

    def __init__(self, typ: Any, operator: Callable[[V, Any], V]) -> None:
        super().__init__(typ)
        self.operator = operator
        self._take(start_of(typ))

    def get(self) -> V:
        if self.growing is not None:
            items: Any = self.growing.items
            return items  # type: ignore[no-any-return]
        if self.value is MISSING:
            raise EmptyChannelError(self.key)
        return self.value

    def lent(self) -> V:
        if self.growing is not None:
            items: Any = self.growing.lent()
            return items  # type: ignore[no-any-return]
        return super().lent()

    def is_available(self) -> bool:
        return self.growing is not None or self.value is not MISSING

    def update(self, values: Sequence[V]) -> bool:
        overwritten = False
        for value in values:
            replacement = replacement_of(value)
            if replacement is not MISSING:
                if overwritten:
                    raise InvalidUpdateError(f"Channel `{self.key}` takes one Overwrite a super-step, but got another.")
                self._take(replacement, is_own=False)
                overwritten = True
            elif not overwritten:
                self._join(value)
        return bool(values)

    def checkpoint(self) -> V | Any:
        return self.value if self.growing is None else self.growing.taken()

    def to_store(self, can_add: bool) -> Piece:
        return Piece(self.value) if self.growing is None else self.growing.to_store(can_add)

    def from_checkpoint(self, checkpoint: V | Any) -> Self:
        return self._holding(start_of(self.typ) if checkpoint is MISSING else checkpoint, is_own=checkpoint is MISSING)

    def restored(self, stored: V | Chain | Any) -> Self:
        if self.operator in _ADDS:
            growing = GrowingList.of_stored(stored)
            if growing is not None:
                twin = self._holding(MISSING)
                twin.growing = growing
                return twin
        return super().restored(stored)

    def copy(self) -> Self:
        twin = self._holding(self.value)
        if self.growing is not None:
            twin.growing = self.growing.copy()
        return twin

    def _join(self, write: Any) -> None:
        if self.growing is not None:
            if type(write) is list:
                self.growing.extend(write)
            else:
                self._take(self.operator(self.growing.taken(), write))  # type: ignore[arg-type]
        elif self.value is MISSING:
            self._take(write, is_own=False)
        else:
            self._take(self.operator(self.value, write))

    def _take(self, value: Any, *, is_own: bool = True) -> None:
        """Hold another value.

        Args:
            is_own: whether nobody else holds it.
        """
        self.growing, self.value = None, value
        if type(value) is list and self.operator in _ADDS:
            self.growing, self.value = GrowingList(value if is_own else value.copy(), True), MISSING

    def _holding(self, value: V | Any, *, is_own: bool = True) -> Self:
        twin = self.__new__(type(self))
        twin.typ = self.typ
        twin.key = self.key
        twin.operator = self.operator
        twin._take(value, is_own=is_own)
        return twin

    def _rule(self) -> Any:
        # A lambda is a new object each time its schema is read, and has no name to be known by: any two count as equal.
        return "<lambda>" if getattr(self.operator, "__name__", "") == "<lambda>" else self.operator


def concrete(typ: Any) -> Any:
    """The class that a type stands for: without its arguments, a protocol such as `Sequence` as its plain builtin."""
    while hasattr(typ, "__origin__"):
        typ = typ.__args__[0] if typ.__origin__ in (Required, NotRequired) else typ.__origin__
    return CONCRETE.get(typ, typ)


def start_of(typ: Any) -> Any:
    """An empty value of the type, or `MISSING` where it cannot be made from nothing."""
    try:
        return concrete(typ)()
    except Exception:
        return MISSING


def replacement_of(value: Any) -> Any:
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
