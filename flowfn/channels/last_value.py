"""Channels that hold one value: how many writes a super-step they take, and how long they keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from flowfn.channels.base import Channel, V
from flowfn.errors import EmptyChannelError, InvalidUpdateError
from flowfn.types import MISSING


class _OneValue(Channel[V, V, V]):
    """Takes the last write of a super-step, or with `guard` the only one, and keeps it."""

    __slots__ = ("guard", "value")

    guard: bool
    value: V | Any

    def __init__(self, typ: Any, key: str = "", *, guard: bool) -> None:
        self.typ = typ
        self.key = key
        self.guard = guard
        self.value = MISSING

    def get(self) -> V:
        if self.value is MISSING:
            raise EmptyChannelError(self.key)
        return self.value

    def is_available(self) -> bool:
        return self.value is not MISSING

    def update(self, values: Sequence[V]) -> bool:
        if not values:
            return False
        if len(values) > 1 and self.guard:
            raise InvalidUpdateError(f"Channel `{self.key}` takes one value a super-step, but got {len(values)}.")
        self.value = values[-1]
        return True

    def checkpoint(self) -> V | Any:
        return self.value

    def from_checkpoint(self, checkpoint: V | Any) -> Self:
        return self._holding(checkpoint)

    def copy(self) -> Self:
        return self._holding(self.value)

    def _holding(self, value: V | Any) -> Self:
        twin = self.__new__(type(self))
        twin.typ = self.typ
        twin.key = self.key
        twin.guard = self.guard
        twin.value = value
        return twin

    def _rule(self) -> Any:
        return self.guard


class LastValue(_OneValue[V]):
    """Keeps its value until the next write; takes one write a super-step."""

    __slots__ = ()

    is_steady = True

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key, guard=True)


class UntrackedValue(_OneValue[V]):
    """Keeps its value until the next write, and out of every checkpoint.

    Args:
        guard: refuse a second write in one super-step; else the last one wins.
    """

    __slots__ = ()

    is_steady = True

    def __init__(self, typ: Any, guard: bool = True) -> None:
        super().__init__(typ, guard=guard)

    def checkpoint(self) -> Any:
        return MISSING

    def from_checkpoint(self, checkpoint: Any) -> Self:
        return self._holding(MISSING)


class _OneStepValue(_OneValue[V]):
    """Is empty again after a super-step without a write."""

    __slots__ = ()

    def update(self, values: Sequence[V]) -> bool:
        if values:
            return super().update(values)
        had_one = self.value is not MISSING
        self.value = MISSING
        return had_one


class EphemeralValue(_OneStepValue[V]):
    """Shows its value in the one super-step after the write.

    Args:
        guard: refuse a second write in one super-step; else the last one wins.
    """

    __slots__ = ()

    def __init__(self, typ: Any, guard: bool = True) -> None:
        super().__init__(typ, guard=guard)


class AnyValue(_OneStepValue[V]):
    """Shows its value in the one super-step after the write; of several writes, taken to be equal, the last counts."""

    __slots__ = ()

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key, guard=False)


class LastValueAfterFinish(Channel[V, V, tuple[V, bool]]):
    """Holds the last write back until no node is due, then shows it until a node has taken it."""

    __slots__ = ("finished", "value")

    value: V | Any
    finished: bool

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.value = MISSING
        self.finished = False

    def get(self) -> V:
        if not self.finished:
            raise EmptyChannelError(self.key)
        return self.value

    def is_available(self) -> bool:
        return self.finished

    def update(self, values: Sequence[V]) -> bool:
        if not values:
            return False
        self.value = values[-1]
        self.finished = False
        return True

    def consume(self) -> bool:
        if not self.finished:
            return False
        self.value = MISSING
        self.finished = False
        return True

    def finish(self) -> bool:
        if self.finished or self.value is MISSING:
            return False
        self.finished = True
        return True

    def checkpoint(self) -> tuple[V, bool] | Any:
        return MISSING if self.value is MISSING else (self.value, self.finished)

    def from_checkpoint(self, checkpoint: tuple[V, bool] | Any) -> Self:
        twin = type(self)(self.typ, self.key)
        if checkpoint is not MISSING:
            twin.value, twin.finished = checkpoint
        return twin
