"""`DeltaChannel` beside LangGraph's: equal values after every step, and again after a restart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.channels import DeltaChannel as TheirDeltaChannel
from langgraph.errors import InvalidUpdateError as TheirInvalidUpdateError
from langgraph.types import Overwrite as TheirOverwrite

from flowfn.channels import DeltaChannel
from flowfn.channels.growing import Chain
from flowfn.errors import InvalidUpdateError
from flowfn.types import MISSING, Overwrite


def extended(held: list[int], writes: list[Any]) -> list[int]:
    return held + [item for write in writes for item in (write if isinstance(write, list) else [write])]


def merged(held: dict[str, int], writes: list[Any]) -> dict[str, int]:
    return {key: value for part in (held, *writes) for key, value in part.items()}


NUMBERS = st.integers(0, 9)
LISTS = st.lists(NUMBERS, max_size=3)
DICTS = st.dictionaries(st.sampled_from("abc"), NUMBERS, max_size=2)


def steps_of(values: st.SearchStrategy[Any], wholes: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    """Writes of super-steps; an Overwrite is ("overwrite", value)."""
    overwrites = st.tuples(st.just("overwrite"), st.none() | wholes)
    step = st.lists(values, max_size=3) | st.lists(values | overwrites, max_size=3)
    return st.lists(step, max_size=12)


KINDS = st.sampled_from([(extended, list, NUMBERS | LISTS, LISTS), (merged, dict, DICTS, DICTS)])


@given(st.data())
def test_values_are_equal_after_every_step_and_after_a_restart(data: st.DataObject) -> None:
    reducer, typ, values, wholes = data.draw(KINDS)
    ours: Any = DeltaChannel(reducer, typ, snapshot_frequency=3)
    theirs: Any = TheirDeltaChannel(reducer, typ, snapshot_frequency=3)
    stored: Any = MISSING
    for step in data.draw(steps_of(values, wholes)):
        try:
            moved = theirs.update([TheirOverwrite(w[1]) if isinstance(w, tuple) else w for w in step])
        except TheirInvalidUpdateError:
            try:
                ours.update([Overwrite(w[1]) if isinstance(w, tuple) else w for w in step])
            except InvalidUpdateError:
                return
            raise AssertionError("LangGraph refuses this step") from None
        assert ours.update([Overwrite(w[1]) if isinstance(w, tuple) else w for w in step]) == moved
        assert (ours.is_available(), theirs.is_available()) == (theirs.is_available(),) * 2
        if not ours.is_available():
            continue
        assert ours.get() == theirs.get()
        piece = ours.to_store(stored is not MISSING)
        if piece.kind == "whole":
            stored = piece.value
        else:
            whole, _, added = stored if isinstance(stored, Chain) else (stored, "", [])
            stored = Chain(whole, piece.kind, [*added, piece.value])
        assert ours.restored(stored).get() == theirs.get()
