"""A channel that joins all writes of a super-step at once, and of which only the writes are stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Sized
from typing import Any, Self

from flowfn.channels.base import Channel, V
from flowfn.channels.growing import Chain, Piece, Tally
from flowfn.channels.reducer import concrete, replacement_of, start_of
from flowfn.errors import EmptyChannelError, InvalidUpdateError, PolicyError
from flowfn.types import MISSING


class DeltaChannel(Channel[V, Any, V]):
    """Holds `reducer(value, writes)`, called once a super-step with the list of its writes; starts from `typ()`.

    A checkpoint stores the writes of its super-step; a value that was stored is found again by calling the reducer once
    for each of these. So it has to give the same for the same writes, wherever and whenever it runs.

    `Overwrite(v)` replaces the value, None by an empty one; every other write of that super-step is dropped.

    Args:
        reducer: what it gives is held from then on; it may change its first argument in place.
        typ: what is held, a list by default; in `Annotated[T, DeltaChannel(…)]` it is T.
        snapshot_frequency: the whole value is stored again after so many super-steps with writes, at the earliest; and
            then as soon as these hold as many items as it does.
    Raises:
        PolicyError: `snapshot_frequency` is below 1.
    """

    __slots__ = ("reducer", "snapshot_frequency", "steps", "tally", "value")

    is_steady = True

    value: V | Any
    steps: list[list[Any]] | None
    """The writes since something was last stored that they can be added to; None when nothing was."""

    def __init__(
        self, reducer: Callable[[Any, Sequence[Any]], Any], typ: Any = None, *, snapshot_frequency: int = 100
    ) -> None:
        if not snapshot_frequency > 0:
            raise PolicyError("snapshot_frequency", snapshot_frequency, "a number of super-steps, 1 or more")
        super().__init__(typ)
        self.reducer = reducer
        self.snapshot_frequency = snapshot_frequency
        self.value = MISSING
        self.steps = None
        self.tally = Tally()

    @property
    def ValueType(self) -> Any:
        return concrete(self.typ or list)

    @property
    def UpdateType(self) -> Any:
        return self.ValueType

    def get(self) -> V:
        if self.value is MISSING:
            raise EmptyChannelError(self.key)
        return self.value

    def is_available(self) -> bool:
        return self.value is not MISSING

    def update(self, values: Sequence[Any]) -> bool:
        if not values:
            return False
        replacements = [found for found in map(replacement_of, values) if found is not MISSING]
        if len(replacements) > 1:
            raise InvalidUpdateError(f"Channel `{self.key}` takes one Overwrite a super-step, but got another.")
        if replacements:
            self.value = self._start() if replacements[0] is None else copy.copy(replacements[0])
            self.steps = None
            return True
        self._join(values)
        if self.steps is not None:
            self.steps.append(list(values))
        return True

    def checkpoint(self) -> V | Any:
        return _copied(self.value)

    def to_store(self, can_add: bool) -> Piece:
        if self.value is MISSING:
            return Piece(MISSING)
        steps, self.steps = self.steps, []
        if can_add and steps and self.tally.add(_weight_of(steps), len(steps), self.snapshot_frequency):
            return Piece(steps, "steps")
        self.tally.begin(_weight(self.value))
        return Piece(self.checkpoint())

    def from_checkpoint(self, checkpoint: V | Any) -> Self:
        """See `Channel`; None, too, stands for an empty value of the type, where there is one."""
        return self._holding(self._start() if checkpoint is MISSING or checkpoint is None else copy.copy(checkpoint))

    def restored(self, stored: V | Chain | Any) -> Self:
        if type(stored) is not Chain or stored.kind != "steps":
            whole = stored.joined() if type(stored) is Chain else stored
            return self._following(whole, Tally(_weight(whole)))
        weights = [_weight_of(steps) for steps in stored.added]
        tally = Tally(_weight(stored.whole), sum(weights), sum(map(len, stored.added)))
        twin = self._following(stored.whole, tally)
        for steps in stored.added:
            for writes in steps:
                twin._join(writes)
        return twin

    def copy(self) -> Self:
        twin = self._holding(_copied(self.value))
        twin.steps = None if self.steps is None else list(self.steps)
        twin.tally = self.tally.copy()
        return twin

    def _join(self, writes: Sequence[Any]) -> None:
        value = self._start() if self.value is MISSING else self.value
        if value is MISSING:
            raise InvalidUpdateError(
                f"Channel `{self.key}` has nothing to begin with: no empty value can be made of its type. Write "
                f"`Overwrite(value)` first, or name a type that can be called without arguments."
            )
        self.value = self.reducer(value, list(writes))

    def _start(self) -> Any:
        return start_of(self.typ or list)

    def _following(self, whole: Any, tally: Tally) -> Self:
        """A channel that goes on from a stored value, which is its own."""
        if whole is MISSING or whole is None:
            return self.from_checkpoint(whole)
        twin = self._holding(whole)
        twin.steps, twin.tally = [], tally
        return twin

    def _holding(self, value: V | Any) -> Self:
        twin = type(self)(self.reducer, self.typ, snapshot_frequency=self.snapshot_frequency)
        twin.key = self.key
        twin.value = value
        return twin

    def _rule(self) -> Any:
        name = getattr(self.reducer, "__name__", "")
        return "<lambda>" if name == "<lambda>" else self.reducer, self.snapshot_frequency


def _copied(value: Any) -> Any:
    """The value for a channel of its own, whose reducer may change it in place."""
    return value if value is MISSING else copy.copy(value)


def _weight(value: Any) -> int:
    """How many items are in a value."""
    return len(value) if isinstance(value, Sized) and not isinstance(value, (str, bytes)) else 1


def _weight_of(steps: Sequence[Sequence[Any]]) -> int:
    """How many items are in the writes of super-steps; each counts as one at least."""
    return sum(max(sum(map(_weight, writes)), 1) for writes in steps)
