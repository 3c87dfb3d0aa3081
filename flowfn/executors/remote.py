"""An attempt in another process than its run: what its code may ask for there, and how it is run.

It may ask questions. The answers that exist came with it; at a question without one it stops, as everywhere, and the
question goes back with the outcome. Calls, records, the store and the stream need the run, which is not here.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import Any, NoReturn

from flowfn.checkpoint.records import question_id
from flowfn.context import CURRENT, INJECTED, At, Frame, Runtime, Spot
from flowfn.errors import (
    AmbiguousCallError,
    AnswerRefusedError,
    Asked,
    EndedFrameError,
    FlowError,
    NoSaverError,
    RemoteCallError,
    StayedBehindError,
    UnfitWorkerError,
    UnstorableError,
    UnstorableResultError,
)
from flowfn.executors import travel
from flowfn.executors.payload import Errand, Kind, Outcome, Question, code_of, errand_in, here, serializer
from flowfn.executors.processes import show_sign
from flowfn.futures import TaskFuture
from flowfn.identity import digest, question_base
from flowfn.schema import converted, schema_of
from flowfn.serde.base import Serializer
from flowfn.serde.typed import decode

OURS = ("flowfn.executors.", "asyncio.")
"""Modules whose lines at the top of a traceback tell nobody anything."""


def run_payload(payload: bytes) -> bytes:
    """Run an errand in this process; gives its outcome, whatever it is.

    Args:
        payload: what `Errand.packed` gave.
    Returns:
        What `payload.outcome_in` reads.
    """
    started = time()
    try:
        errand = errand_in(payload)
        fn, args, kwargs = _unpacked(errand)
    except FlowError as error:
        return _outcome("unfit", serializer(True).dumps(error), started)
    return contextvars.copy_context().run(_attempt, RemoteFrame(errand), fn, args, kwargs, started)


def _outcome(kind: Kind, blob: bytes, started: float, frame: RemoteFrame | None = None) -> bytes:
    asked, used = (frame.asked, frame.used) if frame is not None else ((), ())
    return Outcome(asked, kind, blob, list(used), started, time(), here()).packed()


def _unpacked(errand: Errand) -> Any:
    """Function, arguments and keyword arguments.

    Raises:
        UnfitWorkerError: this process lacks what they need, or has another version of it.
    """
    try:
        fn, args, kwargs = travel.unpacked(errand.work)
    except (Exception, SystemExit) as error:  # a module may do with its import what it likes
        raise UnfitWorkerError(here(), errand.task, f"it cannot load it: {type(error).__name__}: {error}") from error
    if errand.code and errand.code != code_of(fn):
        why = f"it has another version of `{fn.__module__}.{fn.__qualname__}`"
        raise UnfitWorkerError(here(), errand.task, why)
    return fn, args, kwargs


def _attempt(frame: RemoteFrame, fn: Callable[..., Any], args: Any, kwargs: Any, started: float) -> bytes:
    CURRENT.set(frame)
    errand = frame.errand
    kind: Kind = "value"
    outcome: Any
    try:
        brought = {name: INJECTED[what](frame) for name, what in errand.injected.items()}
        outcome = fn(*args, **kwargs, **brought)
        if errand.is_async:
            outcome = asyncio.run(outcome)
    except BaseException as error:
        kind, outcome = "failure", error
    frame.ended = True
    if frame.stop is not None:
        return _outcome("asked", b"", started, frame)
    if isinstance(outcome, BaseException) and kind == "failure":
        _note_traceback(outcome)
    try:
        blob = _encoded(kind, outcome, errand)
    except UnstorableResultError as error:
        kind, blob = "failure", serializer(errand.allow_pickle).dumps(error)
    return _outcome(kind, blob, started, frame)


def _encoded(kind: Kind, outcome: object, errand: Errand) -> bytes:
    what = f"What task `{errand.task}` raised" if kind == "failure" else f"The result of task `{errand.task}`"
    try:
        return serializer(errand.allow_pickle).dumps(outcome, what)
    except UnstorableError as error:
        raise UnstorableResultError(what, error) from None


def _note_traceback(error: BaseException) -> None:
    """Note on an error where it was raised, since its traceback does not travel."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next and trace.tb_frame.f_globals.get("__name__", "").startswith(OURS):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(error.with_traceback(trace)))
    with suppress(Exception):  # a class may do with notes what it likes
        error.add_note(f"Raised in {here()}:\n{text.rstrip()}")


class RemoteFrame(Frame):
    """An attempt as its code sees it, in another process than its run.

    Attributes:
        asked: its questions that have no answer.
        used: the bases of the answers it has used.
        stop: the stop that has reached it; everything it asks for raises it again.
        ended: whether its function has come to its end.
    """

    stop: Asked | None = None
    ended = False

    def __init__(self, errand: Errand) -> None:
        self.errand, self.path, self.has_previous = errand, errand.path, errand.has_previous
        self.asked: list[Question] = []
        self.used: dict[bytes, None] = {}
        self._met: dict[bytes, tuple[int, Any]] = {}
        self._around: dict[str, bytes | str] = decode(errand.around)
        self._brought: dict[str, Any] = {}

    def call(self, spot: Spot, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture[Any]:
        self.refuse_call(f"Task `{callee.name}` was called")

    def record(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.refuse_call("`record` was called")

    def refuse_call(self, what: str) -> NoReturn:
        """Refuse what only the run itself could do and remember."""
        self._check(what)
        raise RemoteCallError(what, self.errand.task)

    def write(self, chunk: Any) -> None:
        self._check("The stream was written to")
        raise StayedBehindError("The stream writer")

    def ask(self, value: Any, key: str | None, response_schema: Any) -> tuple[Any, str | None, str | None]:
        self._check("`interrupt` was called")
        if not self.errand.may_ask:
            raise NoSaverError("A question (`interrupt`)")
        allowed = None if response_schema is None else json.dumps(schema_of(response_schema), sort_keys=True)
        base = self._base(question_base(self._spot.path, value, key, allowed, self.errand.secret))
        answer = self.errand.answers.get(base)
        if answer is None:
            self._stop_at(Question(base, self._shown(value), key, allowed))
        self.used[base] = None
        given = Serializer().loads(answer.value)
        if response_schema is not None:
            try:
                given = converted(given, response_schema)
            except ValueError as error:
                raise AnswerRefusedError(answer.question, str(error)) from None
        return given, answer.by, answer.note

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._bring("config")
        return config

    @property
    def runtime(self) -> Runtime[Any]:
        return Runtime(
            context=self._bring("context"),
            store=self._bring("store"),
            stream_writer=self.write,
            previous=self._bring("previous"),
            execution_info=self.errand.info,
            heartbeat=show_sign,
        )

    def _bring(self, name: str) -> Any:
        """What came along under that name, a stand-in for what did not; unpacked when it is first asked for."""
        if name not in self._brought:
            packed = self._around.get(name, "")
            self._brought[name] = (
                StayedBehind(f"`{name}`", packed) if isinstance(packed, str) else travel.unpacked(packed)
            )
        return self._brought[name]

    # --- questions

    @property
    def _spot(self) -> Spot:
        spot = CURRENT.get()
        return spot if isinstance(spot, At) and spot.frame is self else self

    def _check(self, what: str) -> None:
        if self.stop is not None:
            raise self.stop
        if self.ended:
            raise EndedFrameError(self.errand.task, what)

    def _base(self, base: bytes) -> bytes:
        """What names the question: equal ones of one attempt are told apart by their order, if they have one."""
        count, owner = self._met.get(base, (0, _line()))
        if owner is not _line():
            raise AmbiguousCallError("interrupt", "two coroutines or threads make equal calls at once")
        self._met[base] = count + 1, owner
        return digest(base, b"%d" % count) if count else base

    def _shown(self, value: Any) -> bytes:
        what = f"The question of `{self.errand.task}`"
        try:
            return serializer(self.errand.allow_pickle).dumps(value, what)
        except UnstorableError as error:
            raise UnstorableResultError(what, error) from None

    def _stop_at(self, question: Question) -> NoReturn:
        self.asked.append(question)
        self.stop = Asked(question_id(self.errand.info.run_id, question.base))
        raise self.stop


class StayedBehind:
    """Stands for something that did not travel; whoever uses it is told so.

    Args:
        what: what it is, as a sentence begins.
        why: what kept it.
    """

    def __init__(self, what: str, why: str = "") -> None:
        object.__setattr__(self, "_facts", (what, why))

    def _used(self, *args: Any) -> NoReturn:
        what, why = object.__getattribute__(self, "_facts")
        raise StayedBehindError(what, why)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name) if name.startswith("__") else StayedBehind._used(self)

    __setattr__ = __call__ = __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = __bool__ = _used


def _line() -> Any:
    """The running asyncio task, or else the thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.current_thread()
