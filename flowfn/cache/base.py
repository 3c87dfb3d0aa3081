"""The contract of a cache: results that are kept over threads and runs, each under a task's name and a key.

A value is encoded when it is kept and decoded at every hit, so no caller can spoil it for the next one. What a medium
holds is never trusted: an entry that is damaged, or not signed by who may sign, is a miss and is logged. And a cache
never costs a result: where its medium fails, the task is computed.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from flowfn.cache.flights import Claim, Flights, Held, Medium
from flowfn.cache.keys import Entry, Parts, Why, explain, functions_of
from flowfn.identity import digest
from flowfn.serde.base import Cell, Serializer
from flowfn.types import MISSING

R = TypeVar("R")

Namespace: TypeAlias = tuple[str, ...]
FullKey: TypeAlias = tuple[Namespace, str]
"""An entry as LangGraph's cache interface names it."""

MOST_COMPARED = 1000
"""How many entries of a task, the newest, are looked at to explain a miss."""

_TRIES = 5
_QUIET = 60.0
"""Seconds in which one thing is said once."""

_logger = logging.getLogger("flowfn")


class Hit(NamedTuple):
    """The entry is there."""

    value: Any


class Row(NamedTuple):
    """An entry as its medium gets it.

    Attributes:
        blob: the value, encoded.
        about: the parts of its key, encoded; empty if they are not known.
        code, functions: digest of the code it depends on, and the parts of that, encoded, which many entries share.
    """

    blob: bytes
    about: bytes = b""
    code: bytes = b""
    functions: bytes = b""


class Described(NamedTuple):
    """What a medium knows of an entry without its value; see `Row` and `Entry`."""

    about: bytes
    stored: float
    until: float | None


class Cache(ABC):
    """Keeps results; one object serves every thread and event loop.

    A run uses `ask`, `tell` and `keep`. `get`, `set` and `clear` are those of LangGraph's `BaseCache`: a key is
    (namespace, name), and the namespace of a task is its name alone.

    Args:
        serde: encodes values.
        medium: where processes share their claims; None when there is one process.
    """

    is_instant = False
    """Whether nothing here ever takes a while, so that a coroutine need not have it done elsewhere."""

    def __init__(self, serde: Serializer, medium: Medium | None = None) -> None:
        self.serde = serde
        self._flights = Flights(medium)
        self._say = Sayings()
        _caches.add(self)

    # --- what a run asks

    def look(self, task: str, key: bytes) -> Any:
        """The entry's value, or MISSING."""
        self.open()
        value = self._value(task, self._place(key))
        return MISSING if value is _DAMAGED else value

    def ask(self, task: str, key: bytes) -> Hit | Claim | Held:
        """The entry, or the right to compute it, or who else has that right.

        Whoever gets a claim ends it by `keep` or its `release`. Whoever finds it held waits by `tell`, and asks again.
        """
        self.open()
        place = self._place(key)
        for _ in range(_TRIES):
            value = self._value(task, place)
            if value is not MISSING and value is not _DAMAGED:
                return Hit(value)
            claim = self._flights.begin(task, place)
            if isinstance(claim, Held):
                return claim
            taken = self._claimed(claim, may_replace=value is _DAMAGED)
            if taken is None:
                return claim
            claim.release()
            if isinstance(taken, Held):
                return taken
        return self._flights.permit(task, place)

    def permit(self, task: str, key: bytes) -> Claim:
        """The right to compute an entry anew, whether there is one or somebody else computes it."""
        self.open()
        return self._flights.permit(task, self._place(key))

    def tell(self, key: bytes, told: Callable[[], object]) -> None:
        """Call `told` once, from whatever thread, when nobody holds the key any more."""
        self._flights.tell(self._place(key), told)

    def keep(self, claim: Claim, value: Any, ttl: float | None = None, parts: Parts | None = None) -> bool:
        """Keep what was computed and end the claim; False, with the reason in the log, if it could not be kept.

        Args:
            ttl: seconds that the entry lives; None for ever.
            parts: of its key, for explanations.
        """
        try:
            row = self._row(claim.task, claim.key, value, parts)
            return claim.is_open and self._write(claim, row, ttl)
        except Exception as error:  # whatever its own classes raise when they are stored
            self._say("The result of task `%s` is not kept in the cache: %s", claim.task, error)
            return False
        finally:
            claim.release()

    # --- explanations

    def why(self, parts: Parts, key: bytes) -> Why:
        """Why a call of that key is answered, or is not."""
        is_hit = self.look(parts.task, key) is not MISSING
        return explain(parts, self.entries(parts.task), is_hit=is_hit, now=time.time())

    def entries(self, task: str, limit: int = MOST_COMPARED) -> list[Entry]:
        """What is known of a task's entries, the newest first; those whose time is over may be among them."""
        self.open()
        functions: dict[bytes, Mapping[str, bytes]] = {}
        found = []
        for described in self._described(task, limit):
            try:
                parts = Parts.unpacked(self.serde.loads(described.about))
                if parts.code not in functions:
                    functions[parts.code] = functions_of(self.serde.loads(self._functions(parts.code) or _NOTHING))
            except Exception:  # whatever damaged data raises; it is for information alone
                continue
            parts = replace(parts, functions=functions[parts.code])
            found.append(Entry(parts, described.stored, described.until))
        return found

    # --- LangGraph's interface

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """The values of those that are there."""
        self.open()
        found = {full: self._value(*self._named(full)) for full in keys}
        return {full: value for full, value in found.items() if value is not MISSING and value is not _DAMAGED}

    def set(self, pairs: Mapping[FullKey, tuple[Any, float | None]]) -> None:
        """Keep values, each for so many seconds or for ever."""
        self.open()
        for full, (value, ttl) in pairs.items():
            self.keep(self._flights.permit(*self._named(full)), value, ttl)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Forget the entries of those namespaces, or all; what is being computed for them is not kept either.

        Raises:
            CacheError: they could not be forgotten.
        """
        self.open()
        for task in [None] if namespaces is None else map(_tag, namespaces):
            self._flights.drop(task)
            self._clear(task)

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        return await self._away(lambda: self.get(keys))

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, float | None]]) -> None:
        await self._away(lambda: self.set(pairs))

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        await self._away(lambda: self.clear(namespaces))

    async def _away(self, work: Callable[[], R]) -> R:
        return work() if self.is_instant else await asyncio.to_thread(work)

    # --- what a medium does; once it is open, only `_clear` raises because the medium fails

    def open(self) -> None:  # noqa: B027  most have nothing to open
        """See that the cache can be used, instead of at its first use.

        Raises:
            CacheError: it cannot.
        """

    def close(self) -> None:  # noqa: B027
        """Give back files and connections. A closed cache opens them again when it is used."""

    @abstractmethod
    def _read(self, place: bytes) -> bytes | None:
        """The blob of an entry whose time is not over.

        Raises:
            UnreadableError: it is damaged.
        """

    @abstractmethod
    def _write(self, claim: Claim, row: Row, ttl: float | None) -> bool:
        """Put an entry in place, unless the claim has ended meanwhile; whether it is there. A lease ends with this."""

    @abstractmethod
    def _claimed(self, claim: Claim, *, may_replace: bool) -> Held | Literal[True] | None:
        """None when a claim of this process counts everywhere; who holds it else; True when there is an entry by now,
        which the claim may not replace."""

    @abstractmethod
    def _described(self, task: str, limit: int) -> Iterable[Described]:
        """Descriptions of a task's entries, the newest first."""

    @abstractmethod
    def _functions(self, code: bytes) -> bytes | None:
        """The parts of some code."""

    @abstractmethod
    def _clear(self, task: str | None) -> None:
        """Forget a task's entries, or all."""

    # --- values and names

    def _value(self, task: str, place: bytes) -> Any:
        """The value, MISSING, or _DAMAGED for one that cannot be read."""
        try:
            blob = self._read(place)
            return MISSING if blob is None else self.serde.loads(blob, _cell(task, place), "A cached result")
        except Exception as error:  # whatever its classes raise when they are made again
            self._say("An entry of task `%s` in the cache counts as none: %s", task, error)
            return _DAMAGED

    def _row(self, task: str, place: bytes, value: Any, parts: Parts | None) -> Row:
        blob = self.serde.dumps(value, f"The result of task `{task}`", _cell(task, place))
        if parts is None:
            return Row(blob)
        functions = self.serde.dumps(dict(parts.functions)) if parts.functions else b""
        return Row(blob, self.serde.dumps(parts.packed()), parts.code, functions)

    def _place(self, key: bytes) -> bytes:
        """What stands for a key in the medium; where values are secret, no argument can be guessed from it."""
        secret = self.serde.digest_key
        return blake2b(key, key=secret, digest_size=16).digest() if secret else key

    def _named(self, full: FullKey) -> tuple[str, bytes]:
        namespace, name = full
        tag = _tag(namespace)
        return tag, self._place(digest(b"named", tag.encode(), name.encode()))


class Sayings:
    """Warnings in the log, each once a minute if it is always the same one."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def __call__(self, message: str, *args: object) -> None:
        now, text = time.monotonic(), message % args
        if now - self._said.get(text, -_QUIET) >= _QUIET:
            self._said = {said: at for said, at in self._said.items() if now - at < _QUIET} | {text: now}
            _logger.warning(message, *args)


def known_caches() -> list[Cache]:
    """All caches of this process."""
    return list(_caches)


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()
_DAMAGED: Any = object()
_NOTHING = Serializer().dumps({})


def _cell(task: str, place: bytes) -> Cell:
    return "cache", task, place.hex()


def _tag(namespace: Namespace) -> str:
    return "\x1f".join(namespace)
