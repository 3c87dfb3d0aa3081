"""flowfn: decorate plain functions, get flows that survive."""

from flowfn.checkpoint import trust
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
from flowfn.errors import FlowError, FlowPaused, FlowWaiting
from flowfn.func import Flow, Task, entrypoint, task
from flowfn.futures import MapFuture, TaskFuture
from flowfn.pregel.handle import Thread
from flowfn.pregel.node import Node, NodeBuilder
from flowfn.pregel.program import Pregel
from flowfn.serde import EncryptedSerializer, Keyring, Serializer, default_keyring, register
from flowfn.types import (
    DID_NOT_HAPPEN,
    CachePolicy,
    CallInfo,
    Command,
    Config,
    Happened,
    Interrupt,
    Overwrite,
    Rate,
    RetryPolicy,
    Send,
    StateSnapshot,
    StateUpdate,
    StreamWriter,
    TimeoutPolicy,
    Verdict,
)
from flowfn.waiting import as_completed, wait

__all__ = [
    "CachePolicy",
    "CallInfo",
    "Command",
    "Config",
    "DID_NOT_HAPPEN",
    "EncryptedSerializer",
    "Flow",
    "FlowError",
    "FlowFilter",
    "FlowPaused",
    "FlowWaiting",
    "Happened",
    "Interrupt",
    "Keyring",
    "MapFuture",
    "Node",
    "NodeBuilder",
    "Overwrite",
    "Pregel",
    "Rate",
    "RetryPolicy",
    "Runtime",
    "Send",
    "Serializer",
    "StateSnapshot",
    "StateUpdate",
    "StreamWriter",
    "Task",
    "TaskFuture",
    "Thread",
    "TimeoutPolicy",
    "Verdict",
    "approve",
    "as_completed",
    "branch",
    "default_keyring",
    "entrypoint",
    "get_config",
    "get_previous",
    "get_runtime",
    "get_store",
    "get_stream_writer",
    "interrupt",
    "record",
    "register",
    "task",
    "trust",
    "wait",
]
