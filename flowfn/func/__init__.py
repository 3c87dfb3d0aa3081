"""A flow written as a function."""

from flowfn.func.entrypoint import Flow, entrypoint
from flowfn.func.task import Task, task

__all__ = ["Flow", "Task", "entrypoint", "task"]
