"""Who computes an entry, so that equal calls at the same time compute once.

Whoever finds no entry claims its key. A claim ends when its holder keeps a value, gives it back, or is gone; then those
who wait are told, and ask again. Inside a process a claim is an object, and who waits for it leaves a callback. Between
processes it is a lease in the medium that they share, which its process renews, and a dead process loses at once; who
waits for one is told by a worker that looks from time to time. Nobody who waits holds a worker of its own.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from flowfn.owners import Owner

LEASE = 30.0
"""Seconds for which a claim counts unless it is renewed."""

_RENEWAL = LEASE / 3
_QUICKEST, _SLOWEST = 0.005, 0.1
"""Seconds between two looks at claims of other processes, at first and after a while."""

_logger = logging.getLogger("flowfn")


class Held(NamedTuple):
    """Somebody else computes the entry.

    Attributes:
        by: who.
        until: when the claim lapses unless it is renewed, seconds since 1970; None inside this process.
    """

    by: Owner
    until: float | None

    def is_over(self) -> bool:
        """Whether its holder is gone, or has not renewed it in time."""
        return self.until is not None and (self.until <= time.time() or self.by.is_dead() is True)


class Medium(Protocol):
    """Where processes share their claims."""

    def holder(self, key: bytes) -> Held | None:
        """Whose claim on the key stands."""
        ...

    def renew(self, key: bytes, owner: Owner) -> None:
        """Let that owner's claim, if it stands, count for another LEASE."""
        ...

    def give_back(self, key: bytes, owner: Owner) -> None:
        """End that owner's claim, if it stands."""
        ...


class Claim:
    """The right to compute one entry and to keep it. It ends by itself when nobody has it any more.

    Attributes:
        task, key: of the entry.
        owner: who has it.
        renewed: when it was begun or renewed last, on the monotonic clock.
        waiters: who is to be told when it ends.
        is_open: whether it has not ended.
        is_leased: whether it stands in the medium, where other processes see it.
    """

    is_open = True
    is_leased = False

    def __init__(self, flights: Flights, task: str, key: bytes) -> None:
        self.task, self.key = task, key
        self.owner = Owner.me()
        self.renewed = time.monotonic()
        self.waiters: list[Callable[[], object]] = []
        self._flights = flights

    def release(self) -> None:
        """Give the key back, with or without an entry; those who wait are told. Only the first time counts."""
        self._flights.end(self)

    def __del__(self) -> None:
        if self.is_open and _keeper is not None:  # modules go first when Python ends
            _keeper.do(self.release)  # elsewhere: any lock may be held here


class Flights:
    """The claims of one cache in this process.

    Args:
        medium: where other processes see them; None when there are no others.
    """

    def __init__(self, medium: Medium | None) -> None:
        self._medium = medium
        self._lock = threading.Lock()
        self._mine: weakref.WeakValueDictionary[bytes, Claim] = weakref.WeakValueDictionary()
        _all.add(self)

    def begin(self, task: str, key: bytes) -> Claim | Held:
        """Claim the key in this process; other processes are yet to be asked."""
        with self._lock:
            held = self._mine.get(key)
            claim = self._mine[key] = held or Claim(self, task, key)
        if held is not None:
            return Held(held.owner, None)
        if self._medium is not None:
            _keeper.look_after(self)
        return claim

    def permit(self, task: str, key: bytes) -> Claim:
        """The right to compute an entry no matter who else does."""
        return Claim(self, task, key)

    def end(self, claim: Claim) -> None:
        """End a claim and tell those who wait for it."""
        with self._lock:
            if not claim.is_open:
                return
            claim.is_open = False
            if self._mine.get(claim.key) is claim:
                del self._mine[claim.key]
            waiters, claim.waiters = claim.waiters, []
        if self._medium is not None and claim.is_leased:
            self._medium.give_back(claim.key, claim.owner)
        for told in waiters:
            _try(told)

    def tell(self, key: bytes, told: Callable[[], object]) -> None:
        """Call `told` once, from whatever thread, when no claim on the key stands; at once if none does."""
        with self._lock:
            held = self._mine.get(key)
            if held is not None:
                held.waiters.append(told)
                return
        if self._medium is None:
            told()
        else:
            _keeper.watch(_Watch(self._medium, key, told))

    def drop(self, task: str | None) -> None:
        """End the claims on a task's entries, or on all: what is computed for them is not kept."""
        with self._lock:
            mine = [claim for claim in self._mine.values() if task is None or claim.task == task]
        for claim in mine:
            self.end(claim)

    def renew(self) -> None:
        """Renew in the medium what has been claimed for a while."""
        with self._lock:
            mine = list(self._mine.values())
        now = time.monotonic()
        for claim in mine:
            if self._medium is not None and claim.is_leased and now - claim.renewed >= _RENEWAL / 2:
                self._medium.renew(claim.key, claim.owner)
                claim.renewed = now

    def forget(self) -> None:
        """A forked child has none of its parent's claims."""
        self._lock = threading.Lock()
        for claim in list(self._mine.values()):
            claim.is_open, claim.waiters = False, []
        self._mine = weakref.WeakValueDictionary()


class _Watch(NamedTuple):
    medium: Medium
    key: bytes
    told: Callable[[], object]


class _Keeper:
    """The worker that renews this process's claims and looks at those of others; begun when first needed."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._kept: weakref.WeakSet[Flights] = weakref.WeakSet()
        self._watched: list[_Watch] = []
        self._beginning = threading.Lock()

    def do(self, job: Callable[[], object]) -> None:
        """Do a job soon. May be called at any moment, by a destructor too."""
        self._jobs.put(job)
        self._begin()

    def look_after(self, flights: Flights) -> None:
        """Renew the claims of a cache, when it has any, from now on."""
        if flights not in self._kept:
            self._kept.add(flights)
            self._begin()

    def watch(self, watch: _Watch) -> None:
        """Tell somebody when another process's claim does not stand any more."""
        self.do(lambda: self._watched.append(watch))

    def _begin(self) -> None:
        if self._beginning.acquire(blocking=False):  # for good: one worker is enough
            try:
                threading.Thread(target=self._run, name="flowfn-cache", daemon=True).start()
            except RuntimeError:  # Python ends, and nobody waits any more
                pass

    def _run(self) -> None:
        pause, renewal = _QUICKEST, time.monotonic() + _RENEWAL
        while True:
            left = max(0.0, renewal - time.monotonic())
            try:
                job = self._jobs.get(timeout=min(pause, left) if self._watched else left)
            except Empty:
                pause = min(_SLOWEST, pause * 1.25)
            else:
                pause = _QUICKEST
                _try(job)
                del job
            self._look()
            if time.monotonic() >= renewal:
                renewal = time.monotonic() + _RENEWAL
                for flights in list(self._kept):
                    _try(flights.renew)

    def _look(self) -> None:
        standing: dict[tuple[int, bytes], bool] = {}
        watched, self._watched = self._watched, []
        for watch in watched:
            place = id(watch.medium), watch.key
            if place not in standing:
                standing[place] = _stands(watch)
            if standing[place]:
                self._watched.append(watch)
            else:
                _try(watch.told)


def _stands(watch: _Watch) -> bool:
    try:
        held = watch.medium.holder(watch.key)
    except Exception:  # whoever is told asks again, and is told what is wrong
        return False
    return held is not None and not held.is_over()


def _try(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception:
        _logger.exception("A cache could not do what it has to do from time to time")


_keeper = _Keeper()
_all: weakref.WeakSet[Flights] = weakref.WeakSet()


def _after_fork() -> None:
    global _keeper
    _keeper = _Keeper()
    for flights in list(_all):
        flights.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
