"""What a loop may ask for. One frozen class each; `drivers.py` does what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from flowfn.checkpoint.records import (
    Place,
    Save,
)
from flowfn.pregel.calls import Call


class Load(NamedTuple):
    """Answered with a thread's `Memory`."""

    place: Place
    checkpoint: str | None = None


class Store(NamedTuple):
    """Store all of it, or raise."""

    saves: Sequence[Save]


class OpenQuestions(NamedTuple):
    """Answered with the thread's open questions, of all its namespaces, oldest first."""

    thread: str


class OneQuestion(NamedTuple):
    """Answered with one question, in whatever state, or None."""

    thread: str
    id: str


class RecordAnswers(NamedTuple):
    """Record answers by compare-and-set, or raise."""

    thread: str
    answers: Mapping[str, Any]


class Execute(NamedTuple):
    """Run these nodes and everything they call; answered when nothing of the run is open any more."""

    calls: Sequence[Call]


ALL = 1 << 31
"""More than a thread ever asks."""

Effect: TypeAlias = Load | Store | OpenQuestions | OneQuestion | RecordAnswers | Execute
