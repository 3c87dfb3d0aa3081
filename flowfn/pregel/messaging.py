"""A run's side of stream mode `messages`: which execution a message comes from, and when it begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowfn.pregel.calls import Call, NodeCall
from flowfn.stream.messages import MessageStream, Origin

if TYPE_CHECKING:
    from flowfn.pregel.frame import CallFrame
    from flowfn.pregel.run import Run


class Messaging:
    """Tells a watcher the messages of one run."""

    def __init__(self, run: Run, stream: MessageStream) -> None:
        self._run, self._stream = run, stream

    def begun(self, call: Call) -> None:
        """An attempt begins."""
        arguments: dict[Any, Any] = {**dict(enumerate(call.args)), **call.kwargs}
        given = call.args[0] if isinstance(call, NodeCall) else arguments
        self._stream.begun(self._origin(call), given)

    def ended(self, call: Call, value: Any) -> None:
        """An attempt has come to a value: of a graph's node the writes it stands for."""
        origin = self._origin(call)
        if not isinstance(call, NodeCall) or self._run.program.is_function:
            self._stream.ended(origin, value)
        elif not call.task.node.is_hidden:
            self._stream.wrote(origin, [value for _, value in call.task.node.writes(value)])

    def emit(self, frame: CallFrame, message: Any, metadata: Mapping[str, Any]) -> None:
        """The code inside a frame emits a message or a piece of one."""
        self._stream.emit(self._origin(frame.of), message, metadata)

    def handler(self, call: Call) -> Any | None:
        """What LangChain's models tell their tokens to, while this call is executed."""
        return self._stream.callback(self._origin(call))

    def _origin(self, call: Call) -> Origin:
        run = self._run
        ns = tuple(run.place.ns.split("|")) if run.place.ns else ()
        return Origin(ns, run.metadata_of(call), run.tags_of(call))
