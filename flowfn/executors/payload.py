"""What travels: to another process an errand, one attempt at one task; back from there its outcome. Both as bytes.

A payload begins with a line that says who wrote it, so that a worker of another Python, or of another version of this
format, can say so instead of failing somewhere. The outcome's value is encoded as it is stored. What has to be signed
before it is stored carries the signature of the worker, which is worth nothing but marks it: `Serializer.trusted` of
whoever records it makes it a good one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from inspect import Parameter, signature
from types import CodeType, MethodType
from typing import Any, Literal, NamedTuple, TypeAlias

from flowfn.context import ExecutionInfo
from flowfn.errors import StayedBehindError, UnfitWorkerError, UnsendableError
from flowfn.executors import travel
from flowfn.identity import code_digest
from flowfn.serde.base import Serializer
from flowfn.serde.keys import Key, Keyring
from flowfn.serde.preview import kind_name
from flowfn.serde.typed import decode, encode

FORMAT = 1
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SENT = f"flowfn payload {FORMAT} for Python {_PYTHON}\n".encode()
_BACK = f"flowfn outcome {FORMAT}\n".encode()

Kind: TypeAlias = Literal["value", "failure", "asked", "unfit"]


class Answer(NamedTuple):
    """An answer on record: to which question, encoded by a serializer without keys, from whom, and what they said."""

    question: str
    value: bytes
    by: str | None = None
    note: str | None = None


class Question(NamedTuple):
    """A question that an attempt asked.

    Attributes:
        base: names it, see `identity.question_base`.
        value: what is shown, encoded.
        key: the name it was tied to, or None.
        schema: JSON schema of an answer as JSON text, or None.
    """

    base: bytes
    value: bytes
    key: str | None
    schema: str | None


class Errand(NamedTuple):
    """One attempt at one task, as it travels.

    Attributes:
        info: what the code may know of its execution.
        task: its name, for messages.
        path: the key of the call, which the keys of its questions start with.
        work: function and arguments, see `work`.
        around: what else the code may ask for, see `surroundings`.
        is_async: whether the function gives a coroutine.
        injected: parameters that the runtime brings: name → kind, a key of `context.INJECTED`.
        code: digest of the function's code where only its name travels, else empty.
        allow_pickle: whether the store takes pickles.
        may_ask: whether there is a store, so that questions make sense.
        has_previous: whether a run of the thread has finished before this one.
        secret: what the names of questions are hashed with, see `identity.digest`.
        answers: the answers there are to questions of this task: base → answer.
    """

    info: ExecutionInfo
    task: str
    path: bytes
    work: bytes
    around: bytes
    is_async: bool = False
    injected: Mapping[str, str] = {}
    code: bytes = b""
    allow_pickle: bool = True
    may_ask: bool = True
    has_previous: bool = False
    secret: bytes = b""
    answers: Mapping[bytes, Answer] = {}

    def packed(self) -> bytes:
        """The payload that `run_payload` takes."""
        plain: list[Any] = [*self]
        info = self.info
        plain[0] = [info.task_id, info.thread_id, info.run_id, info.checkpoint_ns, info.node_attempt]
        plain[-1] = [[base, *answer] for base, answer in self.answers.items()]
        return _SENT + encode(plain)


class Outcome(NamedTuple):
    """What became of an attempt.

    Attributes:
        questions: those it asked that have no answer.
        kind: a value; a failure, any exception; asked, when it has come to a question; unfit, when this worker could
            not begin it but another one may.
        blob: the encoded value, or the encoded exception.
        used: the bases of the answers that it used.
        started, ended: seconds since 1970, UTC.
        worker: where it ran, for people.
    """

    questions: Sequence[Question]
    kind: Kind
    blob: bytes
    used: Sequence[bytes]
    started: float
    ended: float
    worker: str

    def packed(self) -> bytes:
        """The reply to a payload."""
        return _BACK + encode([[list(question) for question in self.questions], *self[1:]])


def errand_in(payload: bytes) -> Errand:
    """The errand of a payload.

    Raises:
        UnfitWorkerError: it was written by another Python, or in another format.
    """
    head, newline, data = payload.partition(b"\n")
    if head + newline != _SENT:
        said = head[:80].decode(errors="replace")
        raise UnfitWorkerError(here(), "", f"it got `{said}` and reads only `{_SENT.decode().strip()}`")
    plain = decode(data)
    plain[0] = ExecutionInfo(*plain[0])
    plain[-1] = {base: Answer(*answer) for base, *answer in plain[-1]}
    return Errand(*plain)


def outcome_in(reply: object) -> Outcome:
    """The outcome of a reply.

    Raises:
        UnfitWorkerError: it is none.
    """
    if not isinstance(reply, bytes) or not reply.startswith(_BACK):
        raise UnfitWorkerError("The executor", "", f"it gave {reply!r:.80} instead of what `run_payload` returns")
    questions, *rest = decode(reply[len(_BACK) :])
    return Outcome([Question(*question) for question in questions], *rest)


# ---------------------------------------------------------------- what is packed at the call


def work(task: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """Function and arguments, packed.

    Raises:
        UnsendableError: one of them cannot travel; names the argument and the path inside it.
    """
    try:
        return travel.packed((fn, args, kwargs))
    except Exception as error:
        for what, part in _parts(task, fn, args, kwargs):
            if travel.refusal(part) is not None:
                path, leaf = travel.to_blame(part, what)
                raise UnsendableError(path, kind_name(leaf), travel.refusal(leaf) or "") from None
        raise UnsendableError(f"What task `{task}` was called with", "tuple", str(error)) from error


def _parts(
    task: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """The function and each argument, with what errors call it."""
    try:
        names = [p.name for p in signature(fn).parameters.values() if p.kind <= Parameter.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):  # some builtins do not say
        names = []
    named = [*zip(names, args, strict=False), *((str(i), arg) for i, arg in enumerate(args) if i >= len(names))]
    return [
        (f"Task `{task}`", fn),
        *((f"Argument `{name}` of task `{task}`", part) for name, part in [*named, *kwargs.items()]),
    ]


def refuse_injected(task: str, injected: Mapping[str, str]) -> None:
    """Refuse what cannot be brought to a function in another process.

    Raises:
        StayedBehindError: it has a parameter for the store or a stream writer.
    """
    for name, kind in injected.items():
        if kind in ("store", "writer"):
            raise StayedBehindError(f"`{name}`, a parameter of task `{task}`,")


def surroundings(config: object, context: object, previous: object, has_store: bool) -> bytes:
    """What else the code may ask for, packed. What cannot travel leaves word why, for the code that asks for it."""
    things = {"config": config, "context": context, "previous": previous}
    return encode({name: _packed_or_not(thing) for name, thing in things.items()} | {"store": _store(has_store)})


def _store(is_there: bool) -> bytes | str:
    return "" if is_there else travel.packed(None)


def _packed_or_not(thing: object) -> bytes | str:
    try:
        return travel.packed(thing)
    except Exception:
        path, leaf = travel.to_blame(thing, "it")
        return f"{path} is a `{kind_name(leaf)}`: {travel.refusal(leaf)}"


def code_of(fn: object) -> bytes:
    """A digest of the code that the other side has to have; empty when the code travels, or there is none to read."""
    plain = fn.__func__ if isinstance(fn, MethodType) else fn
    return _digest(plain.__code__) if travel.is_by_name(plain) else b""  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _digest(code: CodeType) -> bytes:
    return code_digest(code)


# ---------------------------------------------------------------- values in a worker


@cache
def serializer(allow_pickle: bool) -> Serializer:
    """What encodes in a worker."""
    return Serializer(allow_pickle=allow_pickle, keys=Keyring([Key(os.urandom(32))]))


def here() -> str:
    """This process, for people."""
    return f"process {os.getpid()} on {_host()}"


@cache
def _host() -> str:
    import socket  # here, since only a worker needs it

    return socket.gethostname()
