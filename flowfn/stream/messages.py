"""What stream mode `messages` shows: pieces of messages as they come, and whole ones in what a node or task returned.

A `MessageStream` belongs to one watcher and remembers by their ids which messages it has shown: one whose pieces were
shown is not shown again whole, nor is one that a node was given and hands back. The runtime tells it when an execution
begins and ends, and what that emits. LangChain's models tell it by themselves, through a callback that exists only in a
program which has imported LangChain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from flowfn.types import Command

if TYPE_CHECKING:
    from flowfn.stream.parts import Namespace

NOSTREAM = "nostream"
ROLES = frozenset({"user", "human", "assistant", "ai", "tool", "system", "developer", "function", "remove"})
WHOLE = {"ls_integration": "langgraph"}
"""What is said of a message that was found in a return value, beside whose it is."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The execution of a node or task that messages come from.

    Attributes:
        ns: the namespace of its graph, as for `updates`.
        metadata: what is said of each of its messages, see `metadata_of`.
        tags: of the run and the node; `nostream` keeps the tokens of models from the watcher.
    """

    ns: Namespace
    metadata: Mapping[str, Any]
    tags: Sequence[str] = ()


def metadata_of(
    given: Mapping[str, Any],
    *,
    step: int,
    node: str,
    triggers: Sequence[str],
    path: Sequence[Any],
    checkpoint_ns: str,
) -> dict[str, Any]:
    """What is said of a message, with LangGraph's keys.

    Args:
        given: the metadata of the run's config (its `thread_id` included) and the node's own.
        step: the super-step.
        node: the name of the node or task, which `triggers` made due.
        path: where it stands: `("__pregel_pull", node)`, `("__pregel_push", 2, False)` for the third `Send`,
            `("__pregel_push", path of the caller, 0, True)` for a caller's first task.
        checkpoint_ns: its own: `node:id`, after that of its graph and its callers.
    """
    return {
        **given,
        "langgraph_step": step,
        "langgraph_node": node,
        "langgraph_triggers": tuple(triggers),
        "langgraph_path": tuple(path),
        "langgraph_checkpoint_ns": checkpoint_ns,
    }


class MessageStream:
    """The messages that one watcher sees.

    Args:
        tell: takes a namespace and what is seen there, a pair of message and metadata; in any worker.
        subgraphs: whether the watcher sees what happens in graphs inside `root`.
        root: the namespace that is watched.
    """

    def __init__(self, tell: Callable[[Namespace, Any], None], subgraphs: bool, root: Namespace = ()) -> None:
        self._tell, self._subgraphs, self._root = tell, subgraphs, root
        self._seen: set[Any] = set()
        self._lock = Lock()

    def is_shown(self, origin: Origin) -> bool:
        return self._subgraphs or origin.ns == self._root

    def begun(self, origin: Origin, given: Any) -> None:
        """An execution begins: the messages it was given count as seen.

        Args:
            given: the state that a node reads, or a task's arguments as a dict.
        """
        if self.is_shown(origin):
            with self._lock:
                self._seen.update(_key(one) for value in _values(given) for one in _each(value))

    def emit(self, origin: Origin, message: Any, metadata: Mapping[str, Any]) -> None:
        """A message or a piece of one is to be seen now, whether or not it was before."""
        if self.is_shown(origin):
            with self._lock:
                self._seen.add(_key(message))
            self._tell(origin.ns, (message, {**origin.metadata, **metadata}))

    def ended(self, origin: Origin, returned: Any) -> None:
        """An execution has ended: the messages in what it returned are seen, those that were not yet."""
        for message in messages_in(returned):
            self.whole(origin, identified(message), WHOLE)

    def wrote(self, origin: Origin, values: Iterable[Any]) -> None:
        """The same for a node whose result has been read as values for keys of the state."""
        for value in values:
            for message in _each(value):
                self.whole(origin, identified(message), WHOLE)

    def whole(self, origin: Origin, message: Any, metadata: Mapping[str, Any]) -> None:
        """A message is there as a whole: it is seen, if it was not yet."""
        with self._lock:
            key = _key(message)
            is_new = self.is_shown(origin) and (key is None or key not in self._seen)
            if is_new:
                self._seen.add(key)
        if is_new:
            self._tell(origin.ns, (message, {**origin.metadata, **metadata}))

    def callback(self, origin: Origin) -> Any | None:
        """What LangChain's models tell their tokens to, a callback handler; None where LangChain is not imported.

        There is one, too, for what is not shown: a model that is asked for tokens gives its answers other ids.
        """
        return _handler_class()(self, origin) if "langchain_core" in sys.modules else None


def _key(message: Any) -> str | int | None:
    """What a message is remembered by; None for one that cannot be."""
    id = id_of(message)
    return id if isinstance(id, str | int) else None


# ---------------------------------------------------------------- what a message is


def kind_of(message: Any) -> str | None:
    """Whose message it is: its `role`, or `type`."""
    if isinstance(message, dict):
        kind = message.get("role", message.get("type"))
    else:
        kind = getattr(message, "role", getattr(message, "type", None))
    return kind if isinstance(kind, str) else None


def id_of(message: Any) -> Any:
    """The message's id, or None."""
    return message.get("id") if isinstance(message, dict) else getattr(message, "id", None)


def identified(message: Any) -> Any:
    """The message, or a copy of it with an id where it has none."""
    if id_of(message) is not None:
        return message
    id = str(uuid4())
    if isinstance(message, dict):
        return {**message, "id": id}
    if hasattr(message, "model_copy"):
        return message.model_copy(update={"id": id})
    if is_dataclass(message) and not isinstance(message, type):
        return replace(message, id=id)
    twin = copy(message)
    setattr(twin, "id", id)  # noqa: B010  of whatever class it is
    return twin


def is_message(value: Any) -> bool:
    """Whether a value is a message, wherever it is found: a dict of a known role, or an object with role and id."""
    kind = kind_of(value)
    if kind is None:
        return False
    if isinstance(value, dict):
        return kind in ROLES and ("content" in value or "id" in value)
    return hasattr(value, "content") and hasattr(value, "id")


# ---------------------------------------------------------------- messages in values


def messages_in(returned: Any) -> Iterator[Any]:
    """The messages in what a node or task returned.

    They are the value itself or an item of it, a value of the state it is, or an item of such a value; and the same in
    the update of a `Command`, and of each one in a list. What lies deeper is no message of the conversation.
    """
    if isinstance(returned, Command):
        yield from messages_in(returned.update)
    elif is_message(returned):
        yield returned
    elif isinstance(returned, list | tuple):
        is_several = any(isinstance(one, Command) for one in returned)
        for one in returned:
            yield from messages_in(one) if is_several else _each(one)
    else:
        for value in _values(returned):
            yield from _each(value)


def _each(value: Any) -> Iterator[Any]:
    """The value, if it is a message, or those of its items that are."""
    if is_message(value):
        yield value
    elif isinstance(value, list | tuple):
        yield from filter(is_message, value)


def _values(state: Any) -> Sequence[Any]:
    """The values of a state: a dict, a dataclass, a pydantic model."""
    if isinstance(state, Mapping):
        return list(state.values())
    if is_dataclass(state) and not isinstance(state, type):
        return [getattr(state, field.name) for field in fields(state)]
    names = getattr(type(state), "model_fields", None)
    return [getattr(state, name) for name in names] if isinstance(names, Mapping) else ()


# ---------------------------------------------------------------- LangChain


def with_callback(callbacks: Any, handler: Any | None) -> Any:
    """A config's `callbacks`, None or a list or LangChain's manager of them, for one execution.

    Its handler, if it has one, takes the place of that of the execution around it, which would show what is said here
    as its own.
    """
    if callbacks is None or isinstance(callbacks, list | tuple):
        kept = [one for one in callbacks or () if not _is_ours(one)]
        return [*kept, handler] if handler is not None else kept
    manager = callbacks.copy()
    for one in filter(_is_ours, list(manager.handlers)):
        manager.remove_handler(one)
    if handler is not None:
        manager.add_handler(handler, inherit=True)
    return manager


def _is_ours(handler: Any) -> bool:
    return getattr(handler, "is_of_flowfn", False) is True


def set_for_langchain(config: Mapping[str, Any]) -> None:
    """Have LangChain's models use this config, callbacks and all, in this context, where they are given none."""
    library = sys.modules.get("langchain_core.runnables.config")
    if library is not None:
        library.var_child_runnable_config.set(config)


@cache
def _handler_class() -> Any:
    base = import_module("langchain_core.callbacks").BaseCallbackHandler
    outputs = import_module("langchain_core.outputs")
    try:
        # Marks a handler for which a model makes tokens, though it was asked for the whole.
        streaming = import_module("langchain_core.tracers._streaming")._StreamingCallbackHandler
    except (ImportError, AttributeError):
        streaming = object

    class TokenHandler(base, streaming):  # type: ignore[misc, valid-type]
        """Shows what LangChain's models say inside one execution."""

        run_inline = True
        is_of_flowfn = True

        def __init__(self, stream: MessageStream, origin: Origin) -> None:
            self._stream, self._origin = stream, origin
            self._runs: dict[Any, Mapping[str, Any]] = {}

        def on_chat_model_start(
            self, serialized: Any, messages: Any, *, run_id: Any, tags: Any = None, metadata: Any = None, **more: Any
        ) -> None:
            every = dict.fromkeys([*self._origin.tags, *(tags or ())])
            if NOSTREAM in every:
                return
            about = {key: value for key, value in (metadata or {}).items() if not key.startswith("langgraph_")}
            if "checkpoint_ns" in about:
                about["checkpoint_ns"] = self._origin.metadata.get("langgraph_checkpoint_ns")
            shown = [tag for tag in every if not tag.startswith("seq:step")]
            self._runs[run_id] = {**about, **({"tags": shown} if shown else {})}

        def on_llm_new_token(self, token: str, *, chunk: Any = None, run_id: Any, **more: Any) -> None:
            about = self._runs.get(run_id)
            if about is not None and isinstance(chunk, outputs.ChatGenerationChunk):
                self._stream.emit(self._origin, chunk.message, about)

        def on_llm_end(self, response: Any, *, run_id: Any, **more: Any) -> None:
            about = self._runs.pop(run_id, None)
            if about is not None and response.generations and response.generations[0]:
                said = response.generations[0][0]
                if isinstance(said, outputs.ChatGeneration):
                    self._stream.whole(self._origin, said.message, about)

        def on_llm_error(self, error: BaseException, *, run_id: Any, **more: Any) -> None:
            self._runs.pop(run_id, None)

        def tap_output_iter(self, run_id: Any, output: Any) -> Any:
            return output

        def tap_output_aiter(self, run_id: Any, output: Any) -> Any:
            return output

    return TokenHandler
