"""One value, one blob: a header of two bytes, then the payload.

The first byte is the format (upper four bits) and what was done to the payload (lower four: signed, encrypted,
compressed; whatever such a step needs, a key id or a tag, follows the header). The second is the tier: N for None, B
for bytes as they are, M for plain data with its types, P for a pickle, C for a pickle with code. It stands outside the
payload, so that a reader who takes no pickles refuses before parsing.

A serializer with keys signs what could do harm in another's hand: pickles, since loading one can run any code, and
plain data that names a class of the program, since reading it may import a module. The rest needs no signature, and
gets none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

from ormsgpack import packb

from flowfn.errors import (
    BadSignatureError,
    NoKeyError,
    UnknownKeyError,
    UnreadableError,
    UnsignedPickleError,
    UnstorableError,
)
from flowfn.serde.classes import NAMERS, Absent, bring_in, find, gone, put_back, raise_unreadable, took_note
from flowfn.serde.keys import Keyring
from flowfn.serde.paths import culprit
from flowfn.serde.pickled import cloudpickled, pickle_refusal, pickled, unpickled
from flowfn.serde.preview import kind_name, preview
from flowfn.serde.signed import (
    COMPRESSED,
    ENCRYPTED,
    FORMAT,
    LATER,
    SIGNED,
    Cell,
    Standing,
    is_signed,
    signed,
    standing,
    unsigned,
)
from flowfn.serde.typed import DROPPING, ROOT, is_of_a_kind, refusal

__all__ = ["Cell", "Serializer", "preview"]

STEPS = {
    SIGNED: "signed",
    ENCRYPTED: "encrypted",
    COMPRESSED: "compressed",
    LATER: "changed in a way of a later version",
}
"""What a bit of the first byte says was done to the payload."""

_NONE, _BYTES, _TYPED, _PICKLE, _CODE = (bytes((FORMAT, ord(tier))) for tier in "NBMPC")
_PICKLES = {_PICKLE: "a pickle", _CODE: "a pickle with code"}
_SIGNABLE = frozenset((_TYPED, _PICKLE, _CODE))
_NO_PICKLES = "it would have to be pickled, which this serializer does not do (`allow_pickle=False`)"
_DAMAGED = "these bytes are damaged. Take them from a backup."
_LARGE = 1 << 16
_QUICK = frozenset((int, str, float, bool))
"""Nearly all of what tasks give, packed in one step."""
_pack, _unpack = ROOT.pack, ROOT.unpack


class Serializer:
    """Values to bytes and back, every type kept.

    Without keys it signs nothing and trusts what it reads, which is right for what never leaves the process. With keys
    it loads no pickle that was not signed with one of them, and signed for the cell it stands in.

    Args:
        allow_pickle: False refuses, at save and at load, what is not plain data to the last leaf.
        keys: the first signs, all are good for reading; `default_keyring()` for those of the environment.
    """

    def __init__(self, *, allow_pickle: bool = True, keys: Keyring | None = None) -> None:
        self.allow_pickle, self.keys = allow_pickle, keys

    # --- values

    def dumps(self, value: object, what: str = "The value", cell: Cell = ()) -> bytes:
        """The value's blob.

        Args:
            what: what errors call the value.
            cell: where the blob will stand; a signed one is refused anywhere else.
        Raises:
            UnstorableError: some part of it cannot be stored; names the path to that part.
            NoKeyError: it has to be signed, and there is no key.
        """
        if value is None:
            return _NONE
        if type(value) in _QUICK:
            try:
                return _TYPED + packb(value)
            except Exception:  # a large int, or a text with lone surrogates
                pass
        if type(value) is bytes:
            return _BYTES + value
        noted = NAMERS and took_note()  # Of a pack around this one, perhaps: what it stores has this stored.
        try:
            blob = _pack(value, _TYPED)
        except Exception:
            blob = self._otherwise(value, what, cell)
        if NAMERS or noted:
            names_class = took_note()
            put_back(bool(noted))
            return self._signed(blob, what, cell) if names_class else blob
        return blob

    def loads(self, blob: bytes, cell: Cell = (), what: str = "A stored value") -> Any:
        """The value of the blob.

        Args:
            cell: where the blob stands.
            what: what errors call the value.
        Raises:
            MissingClassError: a class that it needs is not there any more.
            UnsignedPickleError, UnknownKeyError, BadSignatureError: there are keys, and none of them vouches for it.
            NoKeyError: there is a key file that cannot be used.
            UnreadableError: the blob is damaged, of a later format, or a pickle that is not allowed.
        """
        head = blob[:2]
        if head == _TYPED:
            try:
                return _unpack(blob[2:] if len(blob) < _LARGE else memoryview(blob)[2:])
            except Exception as error:
                raise_unreadable(error, what)
        if head == _NONE and len(blob) == 2:
            return None
        if head == _BYTES:
            return bytes(blob[2:])
        if head in _PICKLES:
            self._check_pickle(head, what)
            if self.keys is not None:
                raise UnsignedPickleError(what, _PICKLES[head])
            return unpickled(blob, 2, what)
        if is_signed(blob):
            return self._signed_value(blob, cell, what)
        raise UnreadableError(what, _misfit(bytes(head)))

    # --- signatures

    def signed_by(self, keys: Keyring | None) -> Self:
        """The same serializer with these keys."""
        other = copy.copy(self)
        other.keys = keys
        return other

    def has_key(self, id: bytes) -> bool:
        """Whether what was signed with the key of that id can be read."""
        return self.keys is not None and self.keys.get(id) is not None

    def signed_anew(self, blob: bytes, old: Cell, new: Cell) -> bytes:
        """The blob for another cell, without loading it.

        One that needs no signature comes back as it is; so does one that these keys do not vouch for, so that it is
        refused in its new cell as in the old one.
        """
        if self.keys is None or not is_signed(blob) or self._standing(blob, old, "A stored value") is not Standing.GOOD:
            return blob
        return self._signed(unsigned(blob), "A stored value", new)

    def trusted(self, blob: bytes, cell: Cell = ()) -> bytes:
        """The blob signed for that cell on the word of its owner, whoever signed it before, without loading it."""
        if self.keys is not None and is_signed(blob):
            if self._standing(blob, cell, "A stored value") is Standing.GOOD:
                return blob
            return self._signed(unsigned(blob), "A stored value", cell)
        return self._signed(blob, "A stored value", cell) if blob[:2] in _PICKLES else blob

    # --- what stands in clear beside values

    preview: Callable[..., str] = staticmethod(preview)
    """What lists and pages may show of a value: one line of at most `limit` characters, by default 60."""

    @property
    def digest_key(self) -> bytes:
        """What keys the hashes of values that are stored beside them; empty if they may be guessed."""
        return b""

    # --- how

    def _otherwise(self, value: object, what: str, cell: Cell) -> bytes:
        """The blob of what is not plain data; signed if it is a pickle."""
        took_note()  # Of what was packed before the trouble.
        return self._signed(self._pickled(value, what), what, cell) if self.allow_pickle else self._dropped(value, what)

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
            path, leaf = culprit(value, what, refusal, is_of_a_kind)
            raise UnstorableError(path, kind_name(leaf), refusal(leaf) or _NO_PICKLES) from error

    def _signed(self, blob: bytes, what: str, cell: Cell) -> bytes:
        if self.keys is None:
            return blob
        try:
            return signed(blob, self.keys.first, cell)
        except NoKeyError as error:
            raise NoKeyError(error.why, what) from error.__cause__

    def _standing(self, blob: bytes, cell: Cell, what: str) -> Standing:
        assert self.keys is not None
        try:
            return standing(blob, self.keys, cell)
        except NoKeyError as error:
            raise NoKeyError(error.why, what) from error.__cause__

    def _signed_value(self, blob: bytes, cell: Cell, what: str) -> Any:
        plain = unsigned(blob)
        head = plain[:2]
        if head not in _SIGNABLE:
            raise UnreadableError(what, _DAMAGED)
        self._check_pickle(head, what)
        found = None if self.keys is None else self._standing(blob, cell, what)
        if found is Standing.BAD:
            raise BadSignatureError(what, blob[2:6])
        if head == _TYPED:  # A foreign signature is worth as much as none.
            return _typed(plain, what, may_import=found is Standing.GOOD)
        if self.keys is not None and found is Standing.FOREIGN:
            raise UnknownKeyError(what, [blob[2:6]], self.keys.ids)
        return unpickled(plain, 2, what)

    def _check_pickle(self, head: bytes, what: str) -> None:
        if head in _PICKLES and not self.allow_pickle:
            why = f"it is {_PICKLES[head]}, and this serializer reads none (`allow_pickle=False`)."
            raise UnreadableError(what, why)


def _typed(blob: bytes, what: str, may_import: bool) -> Any:
    """The value of a blob of plain data; a module that it names is imported when it is missed, if that is allowed."""
    try:
        while True:
            try:
                return _unpack(memoryview(blob)[2:])
            except Absent as error:
                if not may_import:
                    raise
                home = bring_in(error.name)
                if find(error.name) is None:
                    raise gone(error.name, home) from None
    except Exception as error:
        raise_unreadable(error, what)


def _misfit(head: bytes) -> str:
    if len(head) < 2 or head[0] & 0xF0 != FORMAT:
        return "these bytes are damaged, or were written by another version of flowfn."
    done = [word for bit, word in STEPS.items() if head[0] & bit]
    if not done or done == ["signed"]:
        return _DAMAGED
    advice = " Use the `EncryptedSerializer` it was written with." if head[0] & ENCRYPTED else ""
    return f"it is {' and '.join(done)}, which this serializer cannot undo.{advice}"
