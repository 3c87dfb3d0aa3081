"""Names that a graph gives to its ends and to the channels that make its nodes due; LangGraph's."""

from __future__ import annotations

from collections.abc import Sequence

START, END = "__start__", "__end__"

SEPARATORS = ("|", ":")
"""Stand in namespaces and channel names, so no node may have them in its name."""


def branch_to(node: str) -> str:
    """The channel that is written to make a node due."""
    return f"branch:to:{node}"


def join_of(sources: Sequence[str], node: str) -> str:
    """The channel that makes a node due once all of these have run."""
    return f"join:{'+'.join(sources)}:{node}"


DEFAULT_HANDLER = "__default_error_handler__"
"""The node that runs when one has failed for good that has no handler of its own."""


def handler_of(node: str) -> str:
    """The node that runs when that one has failed for good."""
    return f"__error_handler__{node}"
