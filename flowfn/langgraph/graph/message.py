"""Messages in the state of a graph."""

from flowfn.messages import REMOVE_ALL_MESSAGES, MessagesState, add_messages, push_message

__all__ = ["REMOVE_ALL_MESSAGES", "MessagesState", "add_messages", "push_message"]
