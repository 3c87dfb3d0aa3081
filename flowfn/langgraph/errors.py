"""Errors, and the stops that end a run which can go on.

`GraphBubbleUp` and what stands for it are no `Exception` here: no `except Exception` swallows them.
"""

from flowfn.errors import Asked as GraphInterrupt
from flowfn.errors import EmptyChannelError, EmptyInputError, GraphDrained, InvalidUpdateError, ParentCommand
from flowfn.errors import FlowStop as GraphBubbleUp
from flowfn.errors import RecursionLimitError as GraphRecursionError
from flowfn.errors import TaskTimeoutError as NodeTimeoutError
from flowfn.types import NodeError

__all__ = [
    "EmptyChannelError",
    "EmptyInputError",
    "GraphBubbleUp",
    "GraphDrained",
    "GraphInterrupt",
    "GraphRecursionError",
    "InvalidUpdateError",
    "NodeError",
    "NodeTimeoutError",
    "ParentCommand",
]
