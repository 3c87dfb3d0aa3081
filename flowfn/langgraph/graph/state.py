"""The graph, and what it is compiled to."""

from flowfn.graph import CompiledStateGraph, StateGraph

__all__ = ["CompiledStateGraph", "StateGraph"]
