"""How a channel's value is stored: whole, or as what was added to it since an older version of it.

A row that holds an addition is a `Delta`: `[kind, addition]`, in a cell that names both versions. What it builds on may
be one, too. Rows of one version may stand in several branches of a thread; whoever looks one up takes that of its own
line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from flowfn.channels import Channel
from flowfn.channels.growing import Chain
from flowfn.checkpoint import cells
from flowfn.checkpoint.records import Delta, Place
from flowfn.errors import UnreadableError
from flowfn.serde.base import Serializer
from flowfn.types import MISSING


class Link(NamedTuple):
    """One row of a value that is stored as a chain of rows.

    Attributes:
        prev: the version that it builds on, None for a whole value.
    """

    version: Any
    prev: Any
    payload: bytes


Rows: TypeAlias = bytes | Sequence[Link]
"""A channel's value as it is stored: the payload of a whole one, or a chain of rows, newest first."""


def row_of(
    channel: Channel[Any, Any, Any],
    place: Place,
    name: str,
    version: Any,
    prev: Any,
    dumps: Callable[[Any, str, cells.Cell], bytes],
    title: Callable[[str], str],
) -> bytes | Delta | None:
    """What to store of a channel that has moved, which counts as stored from then on; None for nothing.

    Args:
        prev: its version as of the checkpoint that this one follows, None if it had none.
        dumps: encodes a value, given what it is called and its cell.
        title: what a channel's value is called.
    """
    piece = channel.to_store(prev is not None)
    if piece.value is MISSING:
        return None
    if piece.kind == "whole":
        return dumps(piece.value, title(name), cells.value(place, name, version))
    return Delta(prev, dumps([piece.kind, piece.value], title(name), cells.value(place, name, version, prev)))


def rows_of(version: Any, row_at: Callable[[Any], bytes | Delta | None]) -> Rows | None:
    """What a version is stored as, as far as it is there; None if nothing is.

    Args:
        row_at: gives the row of a version.
    """
    row = row_at(version)
    if not isinstance(row, Delta):
        return row
    chain: dict[Any, Link] = {}
    while row is not None and version not in chain:
        prev, payload = row if isinstance(row, Delta) else (None, row)
        chain[version] = Link(version, prev, payload)
        version, row = prev, None if prev is None else row_at(prev)
    return list(chain.values())


def chain_of(place: Place, channel: str, links: Sequence[Link], serde: Serializer) -> Chain:
    """A channel's value and what was added to it.

    Raises:
        UnreadableError: a row cannot be read, or one that another builds on is missing.
    """
    what, loads = cells.value_title(channel), serde.loads
    prev = links[-1].prev
    if prev is not None:
        raise UnreadableError(
            what,
            f"it is stored as what was added to its version {prev!r}, which is not there. Take the database from a "
            f"backup, or go on from an earlier checkpoint.",
        )
    whole, *pieces = [
        loads(payload, cells.value(place, channel, version, prev), what) for version, prev, payload in reversed(links)
    ]
    kind = pieces[0][0] if _is_piece(pieces[0]) else None
    if kind is None or not all(_is_piece(piece) and piece[0] == kind for piece in pieces):
        raise UnreadableError(what, _MISFIT)
    if kind == "items" and type(whole) is not list:
        raise UnreadableError(what, _MISFIT)
    return Chain(whole, kind, [piece[1] for piece in pieces])


_MISFIT = "what is stored there does not fit together. Take the database from a backup."


def joined(value: Any) -> Any:
    """The value as whoever has no channel for it gets it: whole, unless only its channel can join what was added."""
    return value.joined() if type(value) is Chain and value.kind == "items" else value


def _is_piece(piece: Any) -> bool:
    if type(piece) is not list or len(piece) != 2 or type(piece[1]) is not list:
        return False
    return piece[0] == "items" or (piece[0] == "steps" and all(type(step) is list for step in piece[1]))
