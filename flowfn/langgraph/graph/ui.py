"""Components of a page in the state of a graph."""

from flowfn.messages import (
    AnyUIMessage,
    RemoveUIMessage,
    UIMessage,
    delete_ui_message,
    push_ui_message,
    ui_message_reducer,
)

__all__ = [
    "AnyUIMessage",
    "RemoveUIMessage",
    "UIMessage",
    "delete_ui_message",
    "push_ui_message",
    "ui_message_reducer",
]
