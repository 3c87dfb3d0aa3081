"""Results on their way into the store. What finishes while a commit is under way shares the next one.

Whoever reports first becomes the one who commits, takes along all that others report meanwhile, and tells each when
its own is durable. No lock is held over the disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from flowfn.checkpoint.records import (
    Save,
)
from flowfn.executors import threads
from flowfn.pregel.lagging import RunSaver

if TYPE_CHECKING:
    from flowfn.pregel.calls import Call

Batch: TypeAlias = list[tuple[Sequence[Save], "Call"]]
"""Saves, each time with the call that is settled by them."""


class Saving:
    """The queue of saves of a run and the runs nested in it.

    Attributes:
        is_instant: whether a save takes no time, so that there is nothing to share.

    Args:
        saver: where to.
        loop: the event loop that saves by itself as long as nobody else writes; None where there is none.
        lock: the runs' lock.
    """

    def __init__(self, saver: RunSaver, loop: asyncio.AbstractEventLoop | None, lock: threading.Lock) -> None:
        self._saver, self._loop, self._lock = saver, loop, lock
        self.is_instant = saver.is_instant
        self._queue: Batch = []
        self._is_busy = False
        self._batch: Batch = []
        self._committer = 0

    def add(self, saves: Sequence[Save], call: Call) -> Batch | None:
        """Queue the saves of a call; the lock is held. Gives the batch that the caller is to `begin` once it is not."""
        if self._is_busy:
            self._queue.append((saves, call))
            return None
        self._is_busy, self._committer = True, threading.get_ident()
        self._batch = [(saves, call)]
        return self._batch

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
            is_saved = self._saver.save_now([save for saves, _ in batch for save in saves])
        except BaseException as error:
            self._tell(batch, error)
            if not isinstance(error, Exception):
                self._hand_over()
                raise
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
        self._committer, self._batch = threading.get_ident(), batch
        try:
            self._saver.save([save for saves, _ in batch for save in saves])
        except BaseException as error:
            self._tell(batch, error)
            if not isinstance(error, Exception):  # an interrupt of the program: it goes on to whoever is on this stack
                self._hand_over()
                raise
        else:
            self._tell(batch, None)
        return self._next()

    def _hand_over(self) -> None:
        """This thread has its own affairs: another one commits what was queued meanwhile."""
        more = self._next()
        if more is not None:
            threads.workers.submit(lambda: self._commit_all(more))

    def crash(self, error: BaseException) -> None:
        """An interrupt has unwound this thread's stack: what it was committing is in doubt, and others go on."""
        with self._lock:
            if not self._is_busy or self._committer != threading.get_ident():
                return
            batch, self._queue = self._queue, []
            self._is_busy = bool(batch)
        self._tell(self._batch, error)
        if batch:
            threads.workers.submit(lambda: self._commit_all(batch))

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
