"""One value, one blob: a header of two bytes, then the payload.

The first byte is the format (upper four bits) and what was done to the payload (lower four: signed, encrypted,
compressed; whatever such a step needs, a key id or a tag, follows the header). The second is the tier: N for None, B
for bytes as they are, M for plain data with its types, P for a pickle, C for a pickle with code. It stands outside the
payload, so that a reader who takes no pickles refuses before parsing.
"""

from __future__ import annotations

from typing import Any

from flowfn.errors import FlowError, UnreadableError, UnstorableError
from flowfn.serde.paths import culprit
from flowfn.serde.pickled import cloudpickled, pickle_refusal, pickled, unpickled
from flowfn.serde.preview import kind_name, preview
from flowfn.serde.typed import DROPPING, ROOT, refusal

__all__ = ["Serializer", "preview"]

FORMAT = 0x10
STEPS = {1: "signed", 2: "encrypted", 4: "compressed", 8: "changed in a way of a later version"}
"""What a bit of the first byte says was done to the payload."""

_NONE, _BYTES, _TYPED, _PICKLE, _CODE = (bytes((FORMAT, ord(tier))) for tier in "NBMPC")
_NO_PICKLES = "it would have to be pickled, which this serializer does not do (`allow_pickle=False`)"
_LARGE = 1 << 16
_pack, _unpack = ROOT.pack, ROOT.unpack


class Serializer:
    """Values to bytes and back, every type kept.

    Args:
        allow_pickle: False refuses, at save and at load, what is not plain data to the last leaf.
    """

    def __init__(self, *, allow_pickle: bool = True) -> None:
        self.allow_pickle = allow_pickle

    def dumps(self, value: object, what: str = "The value") -> bytes:
        """The value's blob.

        Args:
            what: what errors call the value.
        Raises:
            UnstorableError: some part of it cannot be stored; names the path to that part.
        """
        if value is None:
            return _NONE
        if type(value) is bytes:
            return _BYTES + value
        try:
            return _TYPED + _pack(value)
        except Exception:
            return self._pickled(value, what) if self.allow_pickle else self._dropped(value, what)

    def _pickled(self, value: object, what: str) -> bytes:
        try:
            return pickled(value, _PICKLE)
        except Exception:
            pass
        for drops in (False, True):
            try:
                return cloudpickled(value, _CODE, drops=drops)
            except Exception:
                pass
        path, leaf = culprit(value, what, pickle_refusal)
        raise UnstorableError(path, kind_name(leaf), pickle_refusal(leaf) or "")

    def _dropped(self, value: object, what: str) -> bytes:
        try:
            return _TYPED + DROPPING.pack(value)
        except Exception as error:
            path, leaf = culprit(value, what, refusal)
            raise UnstorableError(path, kind_name(leaf), refusal(leaf) or _NO_PICKLES) from error

    def loads(self, blob: bytes) -> Any:
        """The value of the blob.

        Raises:
            MissingClassError: a class that it needs is not there any more.
            UnreadableError: the blob is damaged, of a later format, or a pickle that is not allowed.
        """
        head = blob[:2]
        if head == _TYPED:
            try:
                return _unpack(blob[2:] if len(blob) < _LARGE else memoryview(blob)[2:])
            except FlowError:
                raise
            except Exception as error:
                raise UnreadableError("A stored value", f"{type(error).__name__}: {error}") from error
        if head == _NONE and len(blob) == 2:
            return None
        if head == _BYTES:
            return bytes(blob[2:])
        if head in (_PICKLE, _CODE):
            if not self.allow_pickle:
                why = "it is a pickle, and this serializer reads none (`allow_pickle=False`)."
                raise UnreadableError("A stored value", why)
            return unpickled(blob, 2)
        raise UnreadableError("A stored value", _misfit(bytes(head)))


def _misfit(head: bytes) -> str:
    if len(head) < 2 or head[0] & 0xF0 != FORMAT:
        return "these bytes are damaged, or were written by another version of flowfn."
    done = [word for bit, word in STEPS.items() if head[0] & bit]
    return f"it is {' and '.join(done)}, which this serializer cannot undo." if done else "these bytes are damaged."
