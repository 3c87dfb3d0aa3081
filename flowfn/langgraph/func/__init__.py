"""A flow written as a function."""

from flowfn.func import entrypoint, task

__all__ = ["entrypoint", "task"]
