"""What one thread remembers: the contract, and one file for each medium."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from flowfn.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, Saver, Trusted
from flowfn.checkpoint.memory import InMemorySaver, MemorySaver
from flowfn.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from flowfn.checkpoint.sqlite import SqliteSaver

__all__ = [
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointTuple",
    "InMemorySaver",
    "MemorySaver",
    "Saver",
    "SqliteSaver",
    "Trusted",
    "open_saver",
    "trust",
]


def __getattr__(name: str) -> Any:
    if name == "SqliteSaver":
        from flowfn.checkpoint.sqlite import SqliteSaver

        return SqliteSaver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_saver(address: str) -> Saver:
    """The saver that an address names: `memory://`, `sqlite:///flows.db`, or a plain path to a SQLite file.

    Raises:
        ConfigError: the address is of another kind.
    """
    kind, separator, _ = str(address).partition("://")
    if separator and kind == "memory":
        return InMemorySaver()
    if separator and kind != "sqlite":
        raise ConfigError(
            f"`{address}` names no kind of database that flowfn can use. Use `memory://`, `sqlite:///flows.db` (a "
            f"relative path), `sqlite:////var/flows.db` (an absolute one), or a plain path."
        )
    from flowfn.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(address)


def trust(path: str | os.PathLike[str]) -> Trusted:
    """Vouch for a whole database file: see `Saver.trust`.

    Args:
        path: of a file that is there, or its address, `sqlite:///flows.db`.
    Raises:
        StoreError: it is not there, or cannot be written.
        NoKeyError: there is no key to sign with.
    """
    from flowfn.checkpoint.sqlite import SqliteSaver

    with SqliteSaver(path) as saver:
        if not os.path.exists(saver.path):
            raise StoreError(saver.path, "is not there. Name the file that a flow has been run with.")
        return saver.trust()
