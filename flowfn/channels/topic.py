"""A channel that collects every write."""

from __future__ import annotations

from collections.abc import Sequence
from types import GenericAlias
from typing import Any, Self

from flowfn.channels.base import Channel, V
from flowfn.channels.growing import Chain, GrowingList, Piece
from flowfn.errors import EmptyChannelError
from flowfn.types import MISSING


class Topic(Channel[list[V], V | list[V], list[V]]):
    """Lists the writes in order; a list that is written counts as its items.

    Args:
        typ: of one item.
        accumulate: keep the items of earlier super-steps; else each super-step starts with none.
    """

    __slots__ = ("accumulate", "values")

    def __init__(self, typ: Any, accumulate: bool = False) -> None:
        super().__init__(typ)
        self.accumulate = accumulate
        self.values = GrowingList([], True)

    @property
    def ValueType(self) -> Any:
        return GenericAlias(Sequence, (self.typ,))

    @property
    def UpdateType(self) -> Any:
        return self.typ | GenericAlias(list, (self.typ,))

    def get(self) -> list[V]:
        if not self.values:
            raise EmptyChannelError(self.key)
        return self.values.taken()

    def lent(self) -> list[V]:
        if not self.values:
            raise EmptyChannelError(self.key)
        return self.values.lent()

    def is_available(self) -> bool:
        return bool(self.values)

    def update(self, values: Sequence[V | list[V]]) -> bool:
        if not values and (self.accumulate or not self.values):
            return False
        new: list[V] = []
        for value in values:
            new += value if isinstance(value, list) else (value,)
        if self.accumulate:
            if new:
                self.values.extend(new)
            return bool(new)
        had_some = bool(self.values)
        self.values = GrowingList(new, True)
        return had_some or bool(new)

    def checkpoint(self) -> list[V]:
        return self.values.taken()

    def to_store(self, can_add: bool) -> Piece:
        return self.values.to_store(can_add and self.accumulate)

    def from_checkpoint(self, checkpoint: list[V] | Any) -> Self:
        return self._holding(GrowingList([] if checkpoint is MISSING else list(checkpoint), True))

    def restored(self, stored: list[V] | Chain | Any) -> Self:
        values = GrowingList.of_stored(stored)
        return super().restored(stored) if values is None else self._holding(values)

    def copy(self) -> Self:
        return self._holding(self.values.copy())

    def _holding(self, values: GrowingList) -> Self:
        twin = self.__new__(type(self))
        twin.typ = self.typ
        twin.key = self.key
        twin.accumulate = self.accumulate
        twin.values = values
        return twin

    def _rule(self) -> Any:
        return self.accumulate
