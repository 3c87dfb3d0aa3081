"""A tag that only the holder of a key can make: what is stored is what was written, and stands where it was put.

A signed blob has the bit `SIGNED` in its first byte; behind the header of two bytes come the id of the key, the
payload, and the tag. The tag is over the payload and all that could give it another meaning: the cell, which is where
the blob stands, the header and the key's id.
"""

from __future__ import annotations

import hmac
from enum import Enum
from typing import TypeAlias

import ormsgpack

from flowfn.serde.keys import Key, Keyring

Cell: TypeAlias = tuple[str | bytes | int, ...]
"""Where a blob stands: ("call", thread, namespace, run, key). Encoded only when it is needed."""

FORMAT = 0x10
SIGNED, ENCRYPTED, COMPRESSED, LATER = 1, 2, 4, 8
"""What was done to the payload, as bits of the first byte; the upper four tell the format."""

_START, _TAG = 6, 16


class Standing(Enum):
    """What a signature is worth to a reader."""

    GOOD = "made with a key of the reader, of this payload, for this cell"
    FOREIGN = "made with another key"
    BAD = "made with a key of the reader, but of something else, or for elsewhere"


def bound(cell: Cell, head: bytes) -> bytes:
    """Cell and head as bytes; no two pairs share them, whatever follows."""
    return ormsgpack.packb([list(cell), head])


def key_id_of(blob: bytes) -> bytes | None:
    """The id of the key that a blob was signed or encrypted with; None if it was neither."""
    first = blob[0] if len(blob) >= _START else 0
    if first & 0xF0 != FORMAT or not first & (SIGNED | ENCRYPTED):
        return None
    return bytes(blob[2:_START])


def is_signed(blob: bytes) -> bool:
    """Whether it is a blob that was signed, and no more was done to it."""
    return len(blob) >= _START + _TAG and blob[0] == FORMAT | SIGNED


def signed(blob: bytes, key: Key, cell: Cell) -> bytes:
    """A plain blob, signed for that cell."""
    head, payload = bytes((blob[0] | SIGNED, blob[1])) + key.id, memoryview(blob)[2:]
    return b"".join((head, payload, _tag(head, payload, key, cell)))


def unsigned(blob: bytes) -> bytes:
    """The plain blob within a signed one, whoever signed it."""
    return b"".join((bytes((blob[0] & ~SIGNED, blob[1])), memoryview(blob)[_START:-_TAG]))


def standing(blob: bytes, keys: Keyring, cell: Cell) -> Standing:
    """What a signed blob's signature is worth."""
    head = bytes(blob[:_START])
    key = keys.get(head[2:])
    if key is None:
        return Standing.FOREIGN
    tag = _tag(head, memoryview(blob)[_START:-_TAG], key, cell)
    return Standing.GOOD if hmac.compare_digest(tag, blob[-_TAG:]) else Standing.BAD


def _tag(head: bytes, payload: memoryview, key: Key, cell: Cell) -> bytes:
    return hmac.digest(key.signing, b"".join((bound(cell, head), payload)), "sha256")[:_TAG]
