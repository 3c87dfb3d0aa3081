"""Payloads that get a new signature without being loaded: copied to another cell, or vouched for by their owner."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from flowfn.checkpoint import cells
from flowfn.checkpoint.records import Place, QuestionRow, Trusted, question_id, short_title
from flowfn.errors import NoKeyError, listed
from flowfn.serde.base import Serializer
from flowfn.serde.signed import FORMAT, Cell

logger = logging.getLogger("flowfn")

PLAIN = bytes((FORMAT,))
"""What a payload begins with that nothing was done to; one that was signed or encrypted sorts behind it."""


class Spot(NamedTuple):
    """Where a payload stands.

    Attributes:
        kind: result, channel value, write, question, answer or checkpoint.
        what: what errors call it.
        task: the task whose result it is, empty for any other kind.
    """

    kind: str
    what: str
    cell: Cell
    task: str = ""


Sign: TypeAlias = Callable[[bytes, Spot], bytes]
"""A payload and where it stands → the payload signed for that place, or as it was."""


def call_spot(place: Place, run: str, key: bytes, name: str, flags: int) -> Spot:
    return Spot("result", cells.call_title(name, flags), cells.call(place, run, key), short_title(name))


def value_spot(place: Place, channel: str, version: Any, prev: Any = None) -> Spot:
    return Spot("channel value", cells.value_title(channel), cells.value(place, channel, version, prev))


def write_spot(place: Place, checkpoint: str, task: str, slot: int, channel: str) -> Spot:
    return Spot("write", cells.write_title(channel), cells.write(place, checkpoint, task, slot, channel))


def question_spot(thread: str, id: str) -> Spot:
    return Spot("question", cells.question_title(id), cells.question(thread, id))


def answer_spot(thread: str, id: str) -> Spot:
    return Spot("answer", cells.answer_title(id), cells.answer(thread, id))


def checkpoint_spot(place: Place, id: str) -> Spot:
    return Spot("checkpoint", cells.checkpoint_title(id), cells.checkpoint(place, id))


# ---------------------------------------------------------------- copies


def moved_from(source: str, serde: Serializer) -> Sign:
    """What takes a payload over from the same place in thread `source`."""
    return lambda blob, spot: _anew(serde, blob, cells.in_thread(spot.cell, source), spot)


def forked_from(run: str, serde: Serializer) -> Sign:
    """What takes a call's outcome over from another run of the same thread and namespace."""
    return lambda blob, spot: _anew(serde, blob, (*spot.cell[:3], run, spot.cell[4]), spot)


def forked_question(row: QuestionRow, thread: str, run: str, serde: Serializer) -> QuestionRow:
    """A question with its answer as a fork has it, which has not used it."""
    id = question_id(run, row.base)
    payload = _anew(serde, row.payload, cells.question(thread, row.id), question_spot(thread, id))
    answer = row.answer
    if answer is not None:
        answer = _anew(serde, answer, cells.answer(thread, row.id), answer_spot(thread, id))
    return row._replace(id=id, run=run, payload=payload, answer=answer, used=0)


def _anew(serde: Serializer, blob: bytes, old: Cell, spot: Spot) -> bytes:
    return blob if blob[:1] <= PLAIN else serde.signed_anew(blob, old, spot.cell)


# ---------------------------------------------------------------- keys, and trust


def tell_missing_keys(path: str, ids: Sequence[bytes], serde: Serializer) -> None:
    """Warn of keys that have signed in a database and are not here.

    Args:
        ids: of the keys that have signed there.
    """
    try:
        missing = [id.hex() for id in ids if not serde.has_key(id)]
    except NoKeyError as error:
        logger.warning("The database `%s` holds values that were signed. %s", path, error)
        return
    if missing:
        logger.warning(
            "The database `%s` holds values that were signed or encrypted with a key that is not here (%s), and what "
            "needs that key, pickles above all, cannot be read. Add its secret behind your own, in `FLOWFN_KEY` or in "
            "the key file (`FLOWFN_ENCRYPTION_KEY` for what is encrypted); or, if all that is stored there comes from "
            "you, sign it anew: `flowfn.trust(%r)`.",
            path,
            listed(missing),
            path,
        )


class Vouching:
    """Signs each payload for the place where it stands, whoever made it, and counts what it signed."""

    def __init__(self, serde: Serializer) -> None:
        self.serde = serde
        self.payloads: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()

    def __call__(self, blob: bytes, spot: Spot) -> bytes:
        new = self.serde.trusted(blob, spot.cell)
        if new != blob:
            self.payloads[spot.kind] += 1
            if spot.task:
                self.tasks[spot.task] += 1
        return new

    def report(self) -> Trusted:
        return Trusted(dict(self.payloads), dict(self.tasks))
