"""Messages: how a list of them takes new ones, and how running code shows one before it returns.

A message is whatever the program's model takes for one: a dict with `role` (or `type`) and `content`, or an object with
an `id`. It is kept as it was given; only a string and a pair `(role, content)` become dicts. What a message is merged,
replaced and removed by is its id; one without gets an id, on a copy.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, overload
from uuid import uuid4

from flowfn.channels.reducer import OVERWRITE
from flowfn.context import spot_for
from flowfn.errors import ConfigError, MessageWithoutIdError, NotAMessageError, UnknownMessageError
from flowfn.stream.messages import NOSTREAM, id_of, identified, kind_of
from flowfn.types import Overwrite

Messages: TypeAlias = Any
"""One message or a list of them."""
Format: TypeAlias = Literal["langchain-openai"] | None

REMOVE_ALL_MESSAGES = "__remove_all__"
"""The id to remove that stands for every message."""


@dataclass(frozen=True, slots=True)
class RemoveMessage:
    """Among new messages: remove the one with this id, or with `REMOVE_ALL_MESSAGES` all that come before."""

    id: str
    type: ClassVar[str] = "remove"
    content: ClassVar[str] = ""


@overload
def add_messages(left: Messages, right: Messages, *, format: Format = None) -> list[Any]: ...
@overload
def add_messages(*, format: Format = None) -> Callable[[Messages, Messages], list[Any]]: ...
def add_messages(left: Messages = None, right: Messages = None, *, format: Format = None) -> Any:
    """A list of messages with new ones merged in: the reducer of a conversation.

    A new message takes the place of the one with its id, else the end of the list. `RemoveMessage` removes; so does any
    dict or object whose `type` (or `role`) is `remove`. Nothing that is passed in is changed.

    Args:
        left, right: the messages so far, and the new ones; a list, or one message. Without them, the result is the
            reducer itself with that format: `Annotated[list, add_messages(format="langchain-openai")]`.
        format: `langchain-openai` gives LangChain's objects, with contents as OpenAI takes them.
    Raises:
        NotAMessageError: a value is no message.
        UnknownMessageError: there is no message with the id to remove.
        ConfigError: the format does not exist, or needs a library that is not installed.
    """
    formatted = _formatter(format)
    if left is None and right is None:
        return functools.partial(add_messages, format=format)
    old, new = _listed(left), with_ids(_listed(right))
    if not _is_settled(old):
        old = with_ids(old)
    clear = max((at for at, message in enumerate(new) if id_of(message) == REMOVE_ALL_MESSAGES), default=None)
    if clear is not None:
        old, new = [], new[clear + 1 :]
    return formatted(_merged(old, new, "remove"))


def with_ids(value: Messages) -> Messages:
    """One message or a list of them, in the same shape, with an id for each that has none.

    A message in a list that is stored without one would get another id at every reading; so a program gives ids when a
    node writes, before the write is stored or shown. The value itself comes back where nothing is missing.
    """
    if isinstance(value, Overwrite):
        return Overwrite(with_ids(value.value)) if isinstance(value.value, list) else value
    if isinstance(value, dict) and (OVERWRITE in value or value.get("type") == OVERWRITE):
        return value
    if not isinstance(value, list):
        return identified(_whole(_message(value)))
    given = [identified(_whole(_message(one))) for one in value]
    return value if all(map(_is, given, value)) else given


add_messages.prepared = with_ids  # type: ignore[attr-defined]


class MessagesState(TypedDict):
    """The state of a graph that is a conversation; to be extended by other keys."""

    messages: Annotated[list[Any], add_messages]


# ---------------------------------------------------------------- shown before the node returns


def push_message(message: Any, *, state_key: str | None = "messages") -> Any:
    """Show a message in the `messages` stream now, and write it to the state.

    Args:
        message: with an id, by which it is not shown again when the node returns it.
        state_key: the channel it is written to; None to show it only.
    Returns:
        The message, as it was shown.
    Raises:
        MessageWithoutIdError: it has no id.
    """
    frame = spot_for("`push_message` was called").frame
    message = _message(message)
    if id_of(message) is None:
        raise MessageWithoutIdError(message)
    if state_key is not None:
        frame.push(state_key, message)
    frame.emit_message(message, {})
    return message


def emit_message(chunk: Any, **metadata: Any) -> None:
    """Show a piece of a message in the `messages` stream: for models that are no LangChain objects.

    Args:
        chunk: a string, which is shown as the content of an assistant's message, or anything else as it is. Pieces that
            have the id of the message they belong to stand for it: it is not shown again when a node returns it whole.
        metadata: more about it, beside the node, the step and so on. `tags=["nostream"]` keeps it out of the stream, as
            this tag on the whole run does.
    """
    frame = spot_for("`emit_message` was called").frame
    tags = [*(frame.config.get("tags") or ()), *(metadata.pop("tags", None) or ())]
    if NOSTREAM in tags:
        return
    shown = {"role": "assistant", "content": chunk} if isinstance(chunk, str) else chunk
    frame.emit_message(shown, {**metadata, "tags": tags} if tags else metadata)


# ---------------------------------------------------------------- components of a page


class UIMessage(TypedDict):
    """A component that a page is to show: which one, and its properties."""

    type: Literal["ui"]
    id: str
    name: str
    props: dict[str, Any]
    metadata: dict[str, Any]


class RemoveUIMessage(TypedDict):
    """A component that a page is to show no more."""

    type: Literal["remove-ui"]
    id: str


AnyUIMessage: TypeAlias = UIMessage | RemoveUIMessage


def push_ui_message(
    name: str,
    props: dict[str, Any],
    *,
    id: str | None = None,
    metadata: dict[str, Any] | None = None,
    message: Any = None,
    state_key: str | None = "ui",
    merge: bool = False,
) -> UIMessage:
    """Show a component on the page that watches the `custom` stream, and write it to the state.

    Args:
        name, props: the component, and what it is given.
        id: that of a component to replace; a new one without.
        metadata: more about it, beside `merge`, `run_id`, `tags` and `name` of the run.
        message: the message that it belongs to, told as `message_id`.
        state_key: the channel it is written to; None to show it only.
        merge: add the properties to those of the component that is there.
    """
    frame = spot_for("`push_ui_message` was called").frame
    config = frame.config
    tags = config.get("tags") or None
    about = {"merge": merge, "run_id": config.get("run_id"), "tags": tags, "name": config.get("run_name")}
    belongs = None if message is None else id_of(message)
    shown: UIMessage = {
        "type": "ui",
        "id": id or str(uuid4()),
        "name": name,
        "props": props,
        "metadata": {**about, **(metadata or {}), **({"message_id": belongs} if belongs else {})},
    }
    _show(shown, state_key)
    return shown


def delete_ui_message(id: str, *, state_key: str | None = "ui") -> RemoveUIMessage:
    """Take a component from the page, and from the state."""
    removal: RemoveUIMessage = {"type": "remove-ui", "id": id}
    _show(removal, state_key)
    return removal


def _show(shown: AnyUIMessage, state_key: str | None) -> None:
    frame = spot_for("A message for the page was pushed").frame
    if state_key is not None:
        frame.push(state_key, shown)
    frame.write(shown)


def ui_message_reducer(
    left: list[AnyUIMessage] | AnyUIMessage, right: list[AnyUIMessage] | AnyUIMessage
) -> list[AnyUIMessage]:
    """The components on a page with new ones merged in: by id, those with `merge` property by property.

    Raises:
        UnknownMessageError: there is no component with the id to remove.
    """
    return _merged(_listed(left), _listed(right), "remove-ui", _with_props)


def _with_props(old: Any, new: Any) -> Any:
    is_added = new.get("metadata", {}).get("merge", False)
    return {**new, "props": {**old["props"], **new["props"]}} if is_added else new


# ---------------------------------------------------------------- merging


def _merged(
    old: Sequence[Any], new: Sequence[Any], removal: str, joined: Callable[[Any, Any], Any] = lambda old, new: new
) -> list[Any]:
    """Both lists as one, by id; `joined` gives what stands for an old message and a new one of the same id."""
    merged = list(old)
    places = {id_of(message): at for at, message in enumerate(merged)}
    removed: set[Any] = set()
    for message in new:
        id = id_of(message)
        at = places.get(id)
        if kind_of(message) == removal:
            if at is None:
                raise UnknownMessageError(id)
            removed.add(id)
        elif at is None:
            places[id] = len(merged)
            merged.append(message)
        else:
            removed.discard(id)
            merged[at] = joined(merged[at], message)
    return [message for message in merged if id_of(message) not in removed] if removed else merged


def _listed(value: Any) -> list[Any]:
    if value is None:
        raise NotAMessageError(value)
    return value if isinstance(value, list) else [value]


def _is(one: object, other: object) -> bool:
    return one is other


# ---------------------------------------------------------------- one message


def _message(value: Any) -> Any:
    """The message that a value stands for.

    Raises:
        NotAMessageError: it stands for none.
    """
    if isinstance(value, str):
        return {"role": "user", "content": value}
    if isinstance(value, dict):
        is_message = kind_of(value) is not None and ("content" in value or "id" in value or "tool_calls" in value)
    elif isinstance(value, tuple | list):
        if len(value) == 2 and isinstance(value[0], str):
            return {"role": value[0], "content": value[1]}
        is_message = False
    else:
        is_message = hasattr(value, "id")
    if not is_message:
        raise NotAMessageError(value)
    return value


def _whole(message: Any) -> Any:
    """What LangChain makes of one of its chunks when nothing more comes; any other message as it is."""
    if not _is_chunk(type(message)):
        return message
    return sys.modules["langchain_core.messages"].message_chunk_to_message(message)


def _is_chunk(kind: type) -> bool:
    library = sys.modules.get("langchain_core.messages")
    return library is not None and issubclass(kind, library.BaseMessageChunk)


def _is_settled(messages: list[Any]) -> bool:
    """Whether the list is one that has come out of here, as a long history always is: all have ids, none is a chunk."""
    return None not in map(id_of, messages) and not any(map(_is_chunk, set(map(type, messages))))


def _formatter(format: str | None) -> Callable[[list[Any]], list[Any]]:
    if format is None:
        return lambda messages: messages
    if format != "langchain-openai":
        raise ConfigError(f"Format `{format}` of messages does not exist. It can be 'langchain-openai' or None.")
    try:
        library = import_module("langchain_core.messages")
    except ImportError:
        raise ConfigError("`format='langchain-openai'` gives LangChain's objects: install `langchain-core`.") from None
    return lambda messages: library.convert_to_messages(library.convert_to_openai_messages(messages, include_id=True))
