"""Values that users pass and receive."""

from flowfn.context import interrupt
from flowfn.types import (
    CachePolicy,
    Command,
    Durability,
    GraphOutput,
    Interrupt,
    Overwrite,
    PregelTask,
    RetryPolicy,
    Send,
    StateSnapshot,
    StateUpdate,
    StreamMode,
    StreamWriter,
    TimeoutPolicy,
)

__all__ = [
    "CachePolicy",
    "Command",
    "Durability",
    "GraphOutput",
    "Interrupt",
    "Overwrite",
    "PregelTask",
    "RetryPolicy",
    "Send",
    "StateSnapshot",
    "StateUpdate",
    "StreamMode",
    "StreamWriter",
    "TimeoutPolicy",
    "interrupt",
]
