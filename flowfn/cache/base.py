"""The contract of a cache: encoded results under a task's name and a key."""

from __future__ import annotations

from abc import ABC, abstractmethod

from flowfn.serde.base import Serializer


class Cache(ABC):
    """Keeps encoded results; one object serves every worker and event loop.

    Args:
        serde: encodes values.
    """

    def __init__(self, serde: Serializer | None = None) -> None:
        self.serde = serde or Serializer()

    @abstractmethod
    def get(self, task: str, key: bytes) -> bytes | None:
        """The entry, or None when there is none or its time is over."""

    @abstractmethod
    def set(self, task: str, key: bytes, blob: bytes, ttl: float | None) -> None:
        """Keep an entry, for `ttl` seconds or for ever."""

    @abstractmethod
    def clear(self, task: str | None = None) -> None:
        """Forget the entries of one task, or all."""
