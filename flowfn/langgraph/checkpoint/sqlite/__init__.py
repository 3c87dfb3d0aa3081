"""Threads in a SQLite file."""

from flowfn.checkpoint.sqlite import SqliteSaver

__all__ = ["SqliteSaver"]
