"""What is stored of a channel that grows: what was added since it was last stored, and now and then the whole.

The whole is stored again once as much was added to it as it had held. So a channel that grows by one item a super-step
is stored in a constant number of bytes a super-step, on the average, and read in time that is linear in its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from flowfn.channels.lending import all_atoms, lent

Kind: TypeAlias = Literal["whole", "items", "steps"]
"""A whole value; items added to a list; or the writes of super-steps, which only the channel itself can join."""


class Piece(NamedTuple):
    """What a channel wants stored; its value is `MISSING` when there is nothing."""

    value: Any
    kind: Kind = "whole"


class Chain(NamedTuple):
    """A value as it is stored in several pieces.

    Attributes:
        whole: the value at first.
        kind: of what was added, "items" or "steps".
        added: the pieces, oldest first: items each, or super-steps, each the list of its writes.
    """

    whole: Any
    kind: Kind
    added: Sequence[list[Any]]

    def joined(self) -> list[Any]:
        """The list that items were added to."""
        return [*self.whole, *(item for items in self.added for item in items)]


class Tally:
    """How much of a channel is stored, and in which way.

    Attributes:
        whole: weight of the newest whole value, in items; None when what is stored cannot be added to.
        added: weight of what was added to it since.
        pieces: how many pieces that are.
    """

    __slots__ = ("added", "pieces", "whole")

    def __init__(self, whole: int | None = None, added: int = 0, pieces: int = 0) -> None:
        self.whole, self.added, self.pieces = whole, added, pieces

    def copy(self) -> Tally:
        return Tally(self.whole, self.added, self.pieces)

    def begin(self, whole: int) -> None:
        self.whole, self.added, self.pieces = whole, 0, 0

    def add(self, weight: int, pieces: int = 1, fewest: int = 0) -> bool:
        """Count a piece that is to be added; False, and nothing counted, when the whole is to be stored.

        Args:
            weight: items in it. One without any counts as one, since it has to be read, too.
            pieces: how many it counts as.
            fewest: how many have to be added before the whole is stored again.
        """
        if self.whole is None:
            return False
        added, count = self.added + max(weight, 1), self.pieces + pieces
        if added >= self.whole and count >= fewest:
            return False
        self.added, self.pieces = added, count
        return True


class GrowingList:
    """A list that grows in place, and copies of it as of one moment, which share its items.

    Only its owner adds to it. A copy keeps what it adds first apart, as it may well be looked at once and thrown away,
    and becomes the owner of a list of its own when it adds more.

    Args:
        items: what it begins with.
        is_own: whether nobody else holds that list.
        tally: how much of it is stored.
    """

    __slots__ = ("_are_atoms", "_is_own", "_items", "_kept", "_size", "_tail", "tally")

    def __init__(self, items: list[Any], is_own: bool, tally: Tally | None = None) -> None:
        self._items, self._is_own, self._size = items, is_own, len(items)
        self._tail: Sequence[Any] = ()
        self._are_atoms: bool | None = None if items else True
        self._kept = self._size
        self.tally = tally or Tally()

    @classmethod
    def of_stored(cls, stored: Any) -> Self | None:
        """The list that a saver has loaded, None if that is none."""
        if type(stored) is list:
            return cls(stored, True, Tally(len(stored)))
        if type(stored) is not Chain or stored.kind != "items":
            return None
        weights = [max(len(items), 1) for items in stored.added]
        return cls(stored.joined(), True, Tally(len(stored.whole), sum(weights), len(weights)))

    def __len__(self) -> int:
        return self._size + len(self._tail)

    @property
    def items(self) -> list[Any]:
        """The list; to be looked at only."""
        return self._items if len(self._items) == self._size and not self._tail else self.taken()

    def taken(self) -> list[Any]:
        """A list of the same items."""
        items = self._items[: self._size]
        items += self._tail
        return items

    def lent(self) -> list[Any]:
        """A list of the same items, which nobody else sees: see `lending`."""
        items = self.taken()
        if self._are_atoms is None:
            self._are_atoms = all_atoms(items)
        return items if self._are_atoms else list(map(lent, items))

    def extend(self, items: list[Any]) -> None:
        if self._are_atoms:
            self._are_atoms = all_atoms(items)
        if not self._is_own and not self._tail:
            self._tail = tuple(items)
            return
        self._own()
        self._items += items
        self._size = len(self._items)

    def copy(self) -> Self:
        twin = self.__new__(type(self))
        twin._items, twin._size, twin._tail, twin._is_own = self._items, self._size, self._tail, False
        twin._are_atoms, twin._kept, twin.tally = self._are_atoms, self._kept, self.tally.copy()
        return twin

    def to_store(self, can_add: bool) -> Piece:
        """See `Channel.to_store`."""
        self._own()
        kept, self._kept = self._kept, self._size
        if can_add and self.tally.add(self._size - kept):
            return Piece(self._items[kept : self._size], "items")
        self.tally.begin(self._size)
        return Piece(self.taken())

    def _own(self) -> None:
        if not self._is_own:
            self._items, self._tail, self._is_own = self.taken(), (), True
            self._size = len(self._items)
