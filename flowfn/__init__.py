"""flowfn: decorate plain functions, get flows that survive."""

from flowfn.context import (
    FlowFilter,
    Runtime,
    approve,
    branch,
    get_config,
    get_previous,
    get_runtime,
    get_store,
    get_stream_writer,
    interrupt,
    record,
)
from flowfn.errors import FlowError, FlowWaiting
from flowfn.func import Flow, Task, entrypoint, task
from flowfn.futures import MapFuture, TaskFuture
from flowfn.pregel.handle import Thread
from flowfn.pregel.node import Node, NodeBuilder
from flowfn.pregel.program import Pregel
from flowfn.types import (
    CachePolicy,
    CallInfo,
    Command,
    Config,
    Interrupt,
    Overwrite,
    Send,
    StateSnapshot,
    StateUpdate,
    StreamWriter,
    Verdict,
)
from flowfn.waiting import as_completed, wait

__all__ = [
    "CachePolicy",
    "CallInfo",
    "Command",
    "Config",
    "Flow",
    "FlowError",
    "FlowFilter",
    "FlowWaiting",
    "Interrupt",
    "MapFuture",
    "Node",
    "NodeBuilder",
    "Overwrite",
    "Pregel",
    "Runtime",
    "Send",
    "StateSnapshot",
    "StateUpdate",
    "StreamWriter",
    "Task",
    "TaskFuture",
    "Thread",
    "Verdict",
    "approve",
    "as_completed",
    "branch",
    "entrypoint",
    "get_config",
    "get_previous",
    "get_runtime",
    "get_store",
    "get_stream_writer",
    "interrupt",
    "record",
    "task",
    "wait",
]
