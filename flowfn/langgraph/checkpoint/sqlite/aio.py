"""Threads in a SQLite file, awaited: the one saver does both."""

from flowfn.checkpoint.sqlite import SqliteSaver as AsyncSqliteSaver

__all__ = ["AsyncSqliteSaver"]
