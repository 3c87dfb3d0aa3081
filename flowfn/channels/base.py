"""The contract of a channel: a named value with a rule for joining the writes of one super-step.

A channel sees values only, never who wrote them; who is to blame for a broken rule is told in `pregel/update.py`.
The life of one super-step, in this order: `consume` if a node it triggers ran, `update` with its writes, `finish` if no
node is due after it. Each says whether the channel changed, which is what moves it to a new version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

from flowfn.channels.growing import Chain, Piece
from flowfn.channels.lending import lent
from flowfn.serde.typed import ATOMS

V = TypeVar("V")
U = TypeVar("U")
C = TypeVar("C")


class Channel(ABC, Generic[V, U, C]):
    """What every channel does, for values `V`, writes `U` and checkpoints `C`.

    Attributes:
        typ: the declared type; nothing is checked against it.
        key: the channel's name, for error messages only.
    """

    __slots__ = ("key", "typ")

    guard: bool = False
    """Whether a second write in one super-step is an error."""

    is_steady: bool = False
    """Whether a super-step without a write never changes it, so that it need not be told of one."""

    def __init__(self, typ: Any, key: str = "") -> None:
        self.typ = typ
        self.key = key

    @property
    def ValueType(self) -> Any:
        """The type of what `get` gives."""
        return self.typ

    @property
    def UpdateType(self) -> Any:
        """The type of one write."""
        return self.typ

    @abstractmethod
    def get(self) -> V:
        """The current value, to be looked at only: it may change with the channel.

        Raises:
            EmptyChannelError: there is none.
        """

    def lent(self) -> V:
        """The current value for somebody who may keep or change it: nobody else sees that. See `lending`.

        Raises:
            EmptyChannelError: there is none.
        """
        value = self.get()
        return value if type(value) in ATOMS else lent(value)

    @abstractmethod
    def is_available(self) -> bool:
        """Whether `get` has a value to give."""

    @abstractmethod
    def update(self, values: Sequence[U]) -> bool:
        """Join one super-step's writes, in the order given; none means that a super-step passed without any.

        Returns:
            Whether the channel changed.
        Raises:
            InvalidUpdateError: the writes break the channel's rule.
        """

    def consume(self) -> bool:
        """A node that this channel triggers has run. Returns whether the channel changed."""
        return False

    def finish(self) -> bool:
        """No node is due any more. Returns whether the channel changed, which may make one due again."""
        return False

    @abstractmethod
    def checkpoint(self) -> C | Any:
        """What to store of the channel, its own from now on; `MISSING` for nothing."""

    @abstractmethod
    def from_checkpoint(self, checkpoint: C | Any) -> Self:
        """A new channel of the same rule and name that goes on from a stored state, or empty from `MISSING`."""

    def to_store(self, can_add: bool) -> Piece:
        """What to store of the channel now; from then on it counts as stored, under a version of its own.

        Args:
            can_add: whether what it gave last, or was restored from, is stored, so that a piece may be added to that.
        """
        return Piece(self.checkpoint())

    def restored(self, stored: C | Chain | Any) -> Self:
        """A new channel of the same rule and name that goes on from what a saver has loaded."""
        if type(stored) is not Chain:
            return self.from_checkpoint(stored)
        if stored.kind == "items":
            return self.from_checkpoint(stored.joined())
        # Stored by a channel that joins writes otherwise: they are made once more.
        twin = self.from_checkpoint(stored.whole)
        for steps in stored.added:
            for writes in steps:
                twin.update(writes)
        return twin

    def copy(self) -> Self:
        """A new channel in the same state. The value itself is shared, not copied."""
        return self.from_checkpoint(self.checkpoint())

    def __eq__(self, other: object) -> bool:
        """Whether the other joins writes by the same rule, whatever either holds."""
        return isinstance(other, Channel) and type(other) is type(self) and self._rule() == other._rule()

    def _rule(self) -> Any:
        """What tells two channels of one class apart."""
        return None
