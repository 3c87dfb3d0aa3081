"""The runtime, and how its nodes are put together by hand."""

from flowfn.pregel.node import NodeBuilder
from flowfn.pregel.program import Pregel

__all__ = ["NodeBuilder", "Pregel"]
