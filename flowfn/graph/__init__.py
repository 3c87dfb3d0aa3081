"""A flow written as a graph: nodes that share a state, and edges between them."""

from flowfn.graph.builder import StateGraph
from flowfn.graph.compile import CompiledStateGraph
from flowfn.graph.managed import IsLastStep, RemainingSteps
from flowfn.graph.names import END, START
from flowfn.messages import MessagesState, add_messages

__all__ = [
    "END",
    "START",
    "CompiledStateGraph",
    "IsLastStep",
    "MessagesState",
    "RemainingSteps",
    "StateGraph",
    "add_messages",
]
