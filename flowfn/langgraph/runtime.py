"""What a running function is told about its run."""

from flowfn.context import ExecutionInfo, RunControl, Runtime, get_runtime

__all__ = ["ExecutionInfo", "RunControl", "Runtime", "get_runtime"]
