"""Results on their way into the store. What finishes while a commit is under way shares the next one.

Whoever reports first becomes the one who commits, takes along all that others report meanwhile, and tells each when
its own is durable. No lock is held over the disk.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeAlias

from flowfn.checkpoint.base import Saver
from flowfn.checkpoint.records import (
    Save,
)
from flowfn.executors import threads

if TYPE_CHECKING:
    from flowfn.pregel.calls import Call

Batch: TypeAlias = list[tuple[Save, "Call"]]
"""Saves, each with the call that is settled by it."""


class Saving:
    """The queue of saves of a run and the runs nested in it.

    Attributes:
        is_instant: whether a save takes no time, so that there is nothing to share.

    Args:
        saver: where to.
        loop: the event loop that saves by itself as long as nobody else writes; None where there is none.
        lock: the runs' lock.
    """

    def __init__(self, saver: Saver, loop: asyncio.AbstractEventLoop | None, lock: threading.Lock) -> None:
        self._saver, self._loop, self._lock = saver, loop, lock
        self.is_instant = saver.is_instant
        self._queue: Batch = []
        self._is_busy = False

    def add(self, save: Save, call: Call) -> Batch | None:
        """Queue a save; the lock is held. Gives the batch that the caller is to `begin` once it has let go of it."""
        if self._is_busy:
            self._queue.append((save, call))
            return None
        self._is_busy = True
        return [(save, call)]

    def begin(self, batch: Batch) -> None:
        """Commit: on the event loop at its next turn, so that its neighbours share the commit, else here."""
        if self._loop is not None and asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(self._commit_in_loop, batch)
            return
        more = self._commit(batch)
        if more is not None:
            # This worker has its own affairs.
            threads.workers.submit(lambda: self._commit_all(more))

    def _commit_in_loop(self, batch: Batch) -> None:
        with self._lock:
            batch += self._queue
            self._queue = []
        try:
            is_saved = self._saver.save_now([save for save, _ in batch])
        except BaseException as error:
            self._tell(batch, error)
        else:
            if not is_saved:
                threads.workers.submit(lambda: self._commit_all(batch))
                return
            self._tell(batch, None)
        more = self._next()
        if more is not None:
            assert self._loop is not None
            self._loop.call_soon(self._commit_in_loop, more)

    def _commit_all(self, batch: Batch | None) -> None:
        while batch is not None:
            batch = self._commit(batch)

    def _commit(self, batch: Batch) -> Batch | None:
        """Commit one batch, tell its calls, and give the next one."""
        try:
            self._saver.save([save for save, _ in batch])
        except BaseException as error:
            self._tell(batch, error)
            if not isinstance(error, Exception):  # an interrupt of the program: it goes on to whoever is on this stack
                more = self._next()
                if more is not None:
                    threads.workers.submit(lambda: self._commit_all(more))
                raise
        else:
            self._tell(batch, None)
        return self._next()

    def _next(self) -> Batch | None:
        """What was queued meanwhile, None when that is nothing and nobody commits any more."""
        if self._lock.locked():
            threads.let_pass(self._lock)
        with self._lock:
            batch, self._queue = self._queue, []
            self._is_busy = bool(batch)
        return batch or None

    def _tell(self, batch: Batch, error: BaseException | None) -> None:
        for _, call in batch:
            call.run.saved(call, error)
