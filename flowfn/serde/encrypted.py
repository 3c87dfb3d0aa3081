"""Values that only the holder of a key can read, or could have written.

Behind the header and the key's id come a nonce of twelve random bytes and the blob of another serializer, encrypted by
AES-GCM and bound to its cell. The tier, which stands in clear elsewhere, is part of what is encrypted; in its place
stands X. What this serializer could decrypt is as good as signed, since nobody else can have written it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from flowfn.errors import (
    BadSignatureError,
    MissingPackageError,
    NoKeyError,
    NotEncryptedError,
    UnknownKeyError,
    UnreadableError,
)
from flowfn.serde.base import Serializer
from flowfn.serde.keys import Key, Keyring, keyring_in
from flowfn.serde.preview import kind_name
from flowfn.serde.signed import ENCRYPTED, FORMAT, Cell, bound

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "FLOWFN_ENCRYPTION_KEY"

_HEAD = bytes((FORMAT | ENCRYPTED, ord("X")))
_NONCE, _START, _OVERHEAD = 6, 18, 34


class EncryptedSerializer(Serializer):
    """Values to encrypted bytes and back.

    What is stored in clear beside values, previews and hashes of arguments, tells no more of them than their types; so
    do names of threads, tasks and channels, which are no secrets. Change the key before four thousand million values
    have been encrypted with it.

    Args:
        keys: the first encrypts, all decrypt; by default the secrets in `FLOWFN_ENCRYPTION_KEY`.
        inner: makes the bytes that are encrypted.
    Raises:
        MissingPackageError: `cryptography` is not installed.
        NoKeyError: no keys are given, and the variable holds none.
    """

    def __init__(self, keys: Keyring | None = None, *, inner: Serializer | None = None) -> None:
        ring = _environment_keyring() if keys is None else Keyring((keys.first, *keys.keys[1:]))
        inner = Serializer() if inner is None else inner
        super().__init__(allow_pickle=inner.allow_pickle, keys=ring)
        self._first, self._oldest = ring.first, ring.keys[-1]
        self._ciphers = {key.id: _cipher(key) for key in ring.keys}
        # Pickles within are signed with keys of our own, so that the inner serializer knows what to trust.
        own = Keyring([Key(key.derived(b"flowfn inner")) for key in ring.keys])
        self.inner = inner.signed_by(own) if inner.keys is None else inner

    def dumps(self, value: object, what: str = "The value", cell: Cell = ()) -> bytes:
        return self._encrypted(self.inner.dumps(value, what, cell), cell)

    def loads(self, blob: bytes, cell: Cell = (), what: str = "A stored value") -> Any:
        """The value of the blob.

        Raises:
            NotEncryptedError: it is in clear.
            UnknownKeyError: it was encrypted with a key that is not here.
            BadSignatureError: it was changed, or stood elsewhere.
            UnreadableError: it is damaged, or what it holds cannot be read.
        """
        return self.inner.loads(self._decrypted(blob, cell, what), cell, what)

    def signed_by(self, keys: Keyring | None) -> Self:
        """This serializer: what it encrypts needs no signature."""
        return self

    def signed_anew(self, blob: bytes, old: Cell, new: Cell) -> bytes:
        """The blob encrypted for another cell, without loading it; one that cannot be decrypted comes back as it is."""
        try:
            plain = self._decrypted(blob, old, "A stored value")
        except UnreadableError:
            return blob
        return self._encrypted(self.inner.signed_anew(plain, old, new), new)

    def trusted(self, blob: bytes, cell: Cell = ()) -> bytes:
        """The blob encrypted for that cell, if it was in clear, on the word of its owner, without loading it."""
        return blob if _is_encrypted(blob) else self._encrypted(self.inner.trusted(blob, cell), cell)

    def preview(self, value: object, limit: int = 60) -> str:
        """What the value is, and nothing of what is in it: "a str"."""
        kind = kind_name(value)
        text = f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
        return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"

    @property
    def digest_key(self) -> bytes:
        """What keys the hashes of values that are stored beside them.

        It is of the oldest key, so that a new one in front of it changes no hash: a run that has begun finds its calls.
        """
        return self._oldest.derived(b"flowfn digest")

    def _encrypted(self, plain: bytes, cell: Cell) -> bytes:
        head, nonce = _HEAD + self._first.id, os.urandom(12)
        return b"".join((head, nonce, self._ciphers[self._first.id].encrypt(nonce, plain, bound(cell, head))))

    def _decrypted(self, blob: bytes, cell: Cell, what: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        if not _is_encrypted(blob):
            raise NotEncryptedError(what)
        head, nonce = bytes(blob[:_NONCE]), bytes(blob[_NONCE:_START])
        id = head[2:]
        if id not in self._ciphers:
            raise UnknownKeyError(what, [id], list(self._ciphers), is_encrypted=True)
        try:
            return self._ciphers[id].decrypt(nonce, memoryview(blob)[_START:], bound(cell, head))
        except InvalidTag:
            raise BadSignatureError(what, id, is_encrypted=True) from None


def _is_encrypted(blob: bytes) -> bool:
    return len(blob) >= _OVERHEAD and blob[:2] == _HEAD


def _environment_keyring() -> Keyring:
    secrets = os.environ.get(VARIABLE)
    if not secrets:
        raise NoKeyError(f"`{VARIABLE}` is not set", "An `EncryptedSerializer` without keys", VARIABLE)
    return keyring_in(secrets, f"`{VARIABLE}`", VARIABLE)


def _cipher(key: Key) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingPackageError("An `EncryptedSerializer`", "cryptography", "crypto") from error
    return AESGCM(key.derived(b"flowfn encrypt"))
