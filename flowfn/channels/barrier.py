"""Channels that become available when every one of a set of names was written: how a node waits for several others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import Any, Self

from flowfn.channels.base import C, Channel
from flowfn.errors import EmptyChannelError, InvalidUpdateError, listed
from flowfn.types import MISSING


class _Barrier(Channel[None, Hashable, C]):
    """Ticks names off; its value is None."""

    __slots__ = ("names", "seen")

    is_steady = True

    def __init__(self, typ: Any, names: Set[Any]) -> None:
        super().__init__(typ)
        self.names = names
        self.seen: set[Hashable] = set()

    def get(self) -> None:
        if not self.is_available():
            raise EmptyChannelError(self.key)

    def update(self, values: Sequence[Hashable]) -> bool:
        for name in values:
            if name not in self.names:
                waits = listed(sorted(map(str, self.names)))
                raise InvalidUpdateError(f"Channel `{self.key}` waits for {waits}; it does not know `{name}`.")
        before = len(self.seen)
        self.seen.update(values)
        return len(self.seen) > before

    def _rule(self) -> Any:
        return self.names


class NamedBarrierValue(_Barrier[set[Hashable]]):
    """Available once all names were written, until a node that waits for it has run."""

    __slots__ = ()

    def is_available(self) -> bool:
        return self.seen == self.names

    def consume(self) -> bool:
        if not self.is_available():
            return False
        self.seen = set()
        return True

    def checkpoint(self) -> set[Hashable]:
        return set(self.seen)

    def from_checkpoint(self, checkpoint: set[Hashable] | Any) -> Self:
        twin = type(self)(self.typ, self.names)
        twin.key = self.key
        if checkpoint is not MISSING:
            twin.seen = set(checkpoint)
        return twin


class NamedBarrierValueAfterFinish(_Barrier[tuple[set[Hashable], bool]]):
    """Available once all names were written and no other node is due, until a node that waits for it has run."""

    __slots__ = ("finished",)

    def __init__(self, typ: Any, names: Set[Any]) -> None:
        super().__init__(typ, names)
        self.finished = False

    def is_available(self) -> bool:
        return self.finished and self.seen == self.names

    def consume(self) -> bool:
        if not self.is_available():
            return False
        self.seen = set()
        self.finished = False
        return True

    def finish(self) -> bool:
        if self.finished or self.seen != self.names:
            return False
        self.finished = True
        return True

    def checkpoint(self) -> tuple[set[Hashable], bool]:
        return set(self.seen), self.finished

    def from_checkpoint(self, checkpoint: tuple[set[Hashable], bool] | Any) -> Self:
        twin = type(self)(self.typ, self.names)
        twin.key = self.key
        if checkpoint is not MISSING:
            seen, twin.finished = checkpoint
            twin.seen = set(seen)
        return twin
