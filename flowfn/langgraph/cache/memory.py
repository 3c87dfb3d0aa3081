"""Results in memory."""

from flowfn.cache import InMemoryCache

__all__ = ["InMemoryCache"]
