"""A channel that collects every write."""

from __future__ import annotations

from collections.abc import Sequence
from types import GenericAlias
from typing import Any, Self

from flowfn.channels.base import Channel, V
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
        self.values: list[V] = []

    @property
    def ValueType(self) -> Any:
        return GenericAlias(Sequence, (self.typ,))

    @property
    def UpdateType(self) -> Any:
        return self.typ | GenericAlias(list, (self.typ,))

    def get(self) -> list[V]:
        if not self.values:
            raise EmptyChannelError(self.key)
        return list(self.values)

    def is_available(self) -> bool:
        return bool(self.values)

    def update(self, values: Sequence[V | list[V]]) -> bool:
        new: list[V] = []
        for value in values:
            new += value if isinstance(value, list) else (value,)
        if self.accumulate:
            self.values += new
            return bool(new)
        had_some = bool(self.values)
        self.values = new
        return had_some or bool(new)

    def checkpoint(self) -> list[V]:
        return list(self.values)

    def from_checkpoint(self, checkpoint: list[V] | Any) -> Self:
        twin = type(self)(self.typ, self.accumulate)
        twin.key = self.key
        if checkpoint is not MISSING:
            twin.values = list(checkpoint)
        return twin

    def _rule(self) -> Any:
        return self.accumulate
