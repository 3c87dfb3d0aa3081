"""Where an attempt runs."""

from flowfn.executors.base import THREADS, Executor, executor_named
from flowfn.executors.processes import Processes

__all__ = ["THREADS", "Executor", "Processes", "executor_named"]
