"""What need not be done again: results kept over runs and threads."""

from flowfn.cache.base import Cache
from flowfn.cache.memory import InMemoryCache

__all__ = ["Cache", "InMemoryCache"]
