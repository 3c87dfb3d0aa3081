"""A flow written as a graph."""

from flowfn.graph import END, START, StateGraph
from flowfn.messages import MessagesState, add_messages

__all__ = ["END", "START", "MessagesState", "StateGraph", "add_messages"]
