"""What this process holds: the threads that its runs record on, whose leases are renewed for as long as they do."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import Any

from flowfn.checkpoint.base import Saver
from flowfn.errors import ThreadBusyError
from flowfn.executors import threads
from flowfn.owners import Owner
from flowfn.pregel.lagging import LaggingSaver
from flowfn.types import OnBusy

logger = logging.getLogger("flowfn")

BEATS = 3
"""How often a lease is renewed within its time."""

_held: dict[str, tuple[Saver, str]] = {}
"""Owner → what it holds, or is about to: saver and thread."""
_lock = threading.Lock()
_is_beating = False


class Holding:
    """While it is entered, a run may hold the thread by the name that this gives, and its lease is renewed.

    However the block ends, a Ctrl-C too, what lags behind the run is stored if it can be.

    Args:
        lag: what may lag behind.
    """

    __slots__ = ("_lag", "_name", "_owner", "_saver", "_thread")

    def __init__(self, saver: Saver, thread: str, lag: LaggingSaver | None) -> None:
        self._saver, self._thread, self._lag = saver, thread, lag

    def __enter__(self) -> str:
        self._owner = Owner.me()
        self._owner.arrive()
        self._name = str(self._owner)
        _held[self._name] = self._saver, self._thread
        _beat_in(self._saver.lease_seconds / BEATS)
        return self._name

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        try:
            if error is not None and self._lag is not None:
                with suppress(Exception):
                    self._lag.catch_up()
        finally:
            _held.pop(self._name, None)
            self._owner.leave()


class Patience:
    """What a run does that finds its thread, or its whole flow, busy."""

    def __init__(self, on_busy: OnBusy) -> None:
        self._on_busy = on_busy
        self._seconds = 0.02

    def is_over(self, busy: ThreadBusyError) -> bool:
        """Whether the run is left out; else it is to `wait` and try again.

        Raises:
            ThreadBusyError: neither.
        """
        if self._on_busy == "raise":
            raise busy
        if self._on_busy == "skip":
            logger.info("A run is left out. %s", busy, extra={"flow_thread": busy.thread})
        return self._on_busy == "skip"

    def wait(self) -> None:
        threading.Event().wait(self._longer())

    async def await_(self) -> None:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=self._longer())

    def _longer(self) -> float:
        self._seconds = min(1.0, 1.5 * self._seconds)
        return self._seconds


def _beat_in(seconds: float) -> None:
    global _is_beating
    if _is_beating:
        return
    with _lock:
        begins, _is_beating = not _is_beating, True
    if begins:
        threads.later(seconds, lambda: threads.workers.submit(_beat))


def _beat() -> None:
    """Renew what is held, and come again in time for the next."""
    global _is_beating
    with _lock:
        _is_beating = False
    held = list(_held.items())
    if held:
        _beat_in(min(saver.lease_seconds for _, (saver, _) in held) / BEATS)
    for owner, (saver, thread) in held:
        try:
            saver.renew(thread, owner)
        except Exception as error:
            logger.warning("The lease on thread `%s` could not be renewed: %s", thread, error)
