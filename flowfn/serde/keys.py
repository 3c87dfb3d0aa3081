"""Which secrets sign what is stored: those of `FLOWFN_KEY`, else one in a file of the user's own.

A secret is text, and written alike in both: several are separated by commas, blanks or lines, the first one signs, and
all are good for reading. So a new one is put in front of the old ones, and the content of a key file can be the value
of `FLOWFN_KEY` on another machine. Stores that several machines share want `FLOWFN_KEY` on each of them.

The file lies in the user's state directory, never beside the data: a key that lies there protects nothing. It is made
by whoever first signs. Of several who do so at once one wins, and nobody ever sees half a key.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_IMODE
from typing import Any, TypeAlias

from flowfn.errors import NoKeyError, ShortSecretError

SHORTEST = 16
"""Characters of a secret, at least."""

_POSIX = hasattr(os, "geteuid")


class Key:
    """A secret, known by the four bytes of its id. It is never shown and never stored."""

    __slots__ = ("_root", "id", "signing")

    def __init__(self, root: bytes) -> None:
        self._root = root
        self.id = blake2b(key=root, digest_size=4, person=b"flowfn key id").digest()
        self.signing = self.derived(b"flowfn sign")

    @classmethod
    def of(cls, secret: str | bytes) -> Key:
        """The key made of this secret; the blanks around a text are no part of it.

        Raises:
            ShortSecretError: it is too short.
        """
        data = secret.strip() if isinstance(secret, str) else secret
        if len(data) < SHORTEST:
            raise ShortSecretError(len(data), SHORTEST)
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        return cls(blake2b(data, digest_size=32, person=b"flowfn secret").digest())

    def derived(self, purpose: bytes) -> bytes:
        """32 secret bytes for one purpose, of which the key cannot be told; the purpose has at most 16 bytes."""
        return blake2b(key=self._root, digest_size=32, person=purpose).digest()

    def __repr__(self) -> str:
        return f"Key({self.id.hex()})"

    def __reduce__(self) -> Any:
        raise TypeError("a key is not stored or sent; name its secret where it is needed, as in `FLOWFN_KEY`")


class Keyring:
    """Keys, of which the first one signs and all are good for reading; see `Keyring.of`."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = tuple(keys)

    @classmethod
    def of(cls, secret: str | bytes, *older: str | bytes) -> Keyring:
        """The keys made of these secrets, the one that signs first.

        Args:
            secret: at least 16 characters or bytes nobody can guess: `secrets.token_urlsafe(32)`.
            older: those that signed before it.
        Raises:
            ShortSecretError: one is too short.
        """
        return cls([Key.of(one) for one in (secret, *older)])

    @property
    def keys(self) -> tuple[Key, ...]:
        """All of them."""
        return self._keys

    @property
    def first(self) -> Key:
        """The one that signs.

        Raises:
            NoKeyError: there is none, and none could be made.
        """
        return self.keys[0]

    def get(self, id: bytes) -> Key | None:
        """The key of that id, if it is here."""
        for key in self.keys:
            if key.id == id:
                return key
        return None

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of all."""
        return tuple(key.id for key in self.keys)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(id.hex() for id in self.ids)})"


def keyring_in(text: str, where: str, variable: str = "FLOWFN_KEY") -> Keyring:
    """The keys of the secrets in a text.

    Args:
        where: what errors call the text.
        variable: what they advise to set.
    Raises:
        NoKeyError: it holds no secret, or something that is none.
    """
    secrets = text.replace(",", " ").split()
    if not secrets:
        raise NoKeyError(f"{where} holds no secret", variable=variable)
    if not all(map(str.isprintable, secrets)):
        raise NoKeyError(f"{where} holds something else than secrets", variable=variable)
    try:
        return Keyring.of(*secrets)
    except ShortSecretError as error:
        why = f"{where} holds a secret of {error.length} characters, where {SHORTEST} are the least"
        raise NoKeyError(f"{why} (blanks and commas separate secrets)", variable=variable) from None


# ---------------------------------------------------------------- the keys of this environment

_Settings: TypeAlias = tuple[str | None, ...]


def default_keyring() -> Keyring:
    """The keys of `FLOWFN_KEY`, else those of the user's key file, which is made when first something is signed.

    Nothing is read or made before a key is needed. Later changes of the environment count; those of the file count
    when a key is missing.
    """
    return _DEFAULT


class _DefaultKeyring(Keyring):
    """Without a lock, so that a fork at any moment is harmless: whoever reads at once with another reads the same."""

    def __init__(self) -> None:
        super().__init__(())
        self._read: tuple[_Settings, tuple[Key, ...]] | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        settings, read = _settings(), self._read
        if read is None or read[0] != settings:
            read = self._read = settings, _environment_keys()
        return read[1]

    @property
    def first(self) -> Key:
        keys = self.keys
        if not keys:
            _make(key_file())
            self._read = None
            keys = self.keys
        if not keys:
            raise NoKeyError(f"the key file `{key_file()}` was made, and is not there")
        return keys[0]

    def get(self, id: bytes) -> Key | None:
        known = super().get(id)
        if known is None:
            self._read = None
            known = super().get(id)
        return known

    def __repr__(self) -> str:
        return "default_keyring()"

    def __reduce__(self) -> Any:
        return default_keyring, ()


_DEFAULT = _DefaultKeyring()


def _settings() -> _Settings:
    """All of the environment that says which keys there are."""
    get = os.environ.get
    secrets = get("FLOWFN_KEY")
    if secrets:
        return (secrets,)
    return None, get("XDG_STATE_HOME"), get("LOCALAPPDATA" if sys.platform == "win32" else "HOME")


def _environment_keys() -> tuple[Key, ...]:
    secrets = os.environ.get("FLOWFN_KEY")
    if secrets:
        return keyring_in(secrets, "`FLOWFN_KEY`").keys
    folder = _state_folder()
    return () if folder is None else _file_keys(folder / "key")


# ---------------------------------------------------------------- the key file


def key_file() -> Path:
    """Where the user's key file is, or would be.

    Raises:
        NoKeyError: the user has no directory for it.
    """
    folder = _state_folder()
    if folder is None:
        raise NoKeyError("the user has no home directory, where a key file could be")
    return folder / "key"


def _state_folder() -> Path | None:
    named = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):  # The specification has others ignored.
        base = named
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Application Support")
    else:
        base = os.path.expanduser("~/.local/state")
    return Path(base, "flowfn") if os.path.isabs(base) else None


def _file_keys(path: Path) -> tuple[Key, ...]:
    """The keys of the file; none if it is not there."""
    try:
        data = _data(path)
        tries = 20
        while not data and tries:
            time.sleep(0.01)  # Where nothing can be linked, the file is empty for a moment while it is made.
            data, tries = _data(path), tries - 1
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise NoKeyError(f"the key file `{path}` cannot be read: {error.strerror or error}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return keyring_in(text, f"the key file `{path}`").keys


def _data(path: Path) -> bytes:
    with open(path, "rb") as file:
        if _POSIX:
            _refuse_shared(path, os.fstat(file.fileno()))
        return file.read()


def _refuse_shared(path: Path, found: os.stat_result) -> None:
    mode = S_IMODE(found.st_mode)
    if found.st_uid not in (0, os.geteuid()):
        raise NoKeyError(f"the key file `{path}` belongs to another user (number {found.st_uid}), who could change it")
    if mode & 0o077:
        raise NoKeyError(
            f"the key file `{path}` is open to other users (mode {mode:o}). Close it, `chmod 600 {path}`, and if one "
            f"of them may have read it, put a new secret on its first line"
        )


def _make(path: Path) -> None:
    """Put a new secret there, unless somebody else has by now."""
    import secrets

    secret = f"{secrets.token_urlsafe(32)}\n".encode()
    draft = path.with_name(f"key.{secrets.token_hex(8)}")
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            _write(draft, secret)
            _publish(draft, path, secret)
        finally:
            draft.unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as error:
        raise NoKeyError(f"the key file `{path}` cannot be made: {error.strerror or error}") from error


def _publish(draft: Path, path: Path, secret: bytes) -> None:
    """Make the draft the key file, whole at once, unless there is one."""
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # A file system without links.
        try:
            _write(path, secret)
        except FileExistsError:
            pass


def _write(path: Path, secret: bytes) -> None:
    """Write a file that was not there, for the user alone."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:
        file.write(secret)
        file.flush()
        # Before anything is signed: what a lost key has signed cannot be read.
        os.fsync(handle)


def _sync(folder: Path) -> None:
    """Make the name of a new file as durable as its content, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
