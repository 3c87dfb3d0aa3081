"""Threads in memory."""

from flowfn.checkpoint import InMemorySaver, MemorySaver

__all__ = ["InMemorySaver", "MemorySaver"]
