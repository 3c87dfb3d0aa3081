"""The contract of caches."""

from flowfn.cache import Cache as BaseCache

__all__ = ["BaseCache"]
