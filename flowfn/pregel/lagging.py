"""Durability: how far the store may lag behind a run.

With "sync" a run writes to its saver itself. Else a `LaggingSaver` stands between the two. It takes every save at once,
and the store catches up in the same order: all the time with "async", and when the run stops with "exit". So what a
crash leaves is always how the run stood at some earlier moment; and a run that has stopped, for whatever reason, is
stored whole before anybody is told. That a run takes its thread is never put off.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from flowfn.checkpoint.base import Saver
from flowfn.checkpoint.records import (
    Memory,
    Place,
    QuestionRow,
    Save,
    SaveCall,
    SaveQuestion,
    SaveRun,
    TakeLease,
    short_title,
)
from flowfn.errors import ConfigError
from flowfn.executors import threads
from flowfn.types import DURABILITIES, Durability


class LaggingSaver:
    """What a run that need not wait for its store asks of it. `store` is the saver behind it.

    Once a save has failed, nothing more is stored, since what comes after it would leave a gap; every later save
    raises that failure.

    Args:
        saver: catches up.
        waits: whether it does so only when the run stops.
    """

    is_instant = True

    def __init__(self, saver: Saver, waits: bool) -> None:
        self.store = self._saver = saver
        self._waits = waits
        self.serde = saver.serde
        self._queue: list[Save] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """Held while the store catches up, so that what was taken first is stored first."""
        self._is_followed = False
        self._failure: Exception | None = None

    # --- what is written

    def save(self, saves: Sequence[Save]) -> None:
        if type(saves[0]) is TakeLease:
            self._saver.save(saves[:1])
            saves = saves[1:]
        self._take(saves)
        if _stops_run(saves):
            self.catch_up()

    def save_now(self, saves: Sequence[Save]) -> bool:
        if type(saves[0]) is TakeLease or _stops_run(saves):
            return False
        self._take(saves)
        return True

    async def asave(self, saves: Sequence[Save]) -> None:
        if type(saves[0]) is TakeLease:
            await self._saver.asave(saves[:1])
            saves = saves[1:]
        self._take(saves)
        if _stops_run(saves):
            await threads.aon_worker(self.catch_up)

    def _take(self, saves: Sequence[Save]) -> None:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._queue += saves
            is_first = not self._waits and not self._is_followed
            self._is_followed |= is_first
        if is_first:
            threads.workers.submit(self._follow)

    def _follow(self) -> None:
        """Catch up until there is nothing more to store."""
        while True:
            with suppress(Exception):  # kept, for whoever saves next
                self.catch_up()
            with self._lock:
                if not self._queue or self._failure is not None:
                    self._is_followed = False
                    return

    def catch_up(self) -> None:
        """Return when all that was taken is stored.

        Raises:
            Exception: the save that failed, now or before.
        """
        with self._turn:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                batch, self._queue = self._queue, []
            if not batch:
                return
            try:
                self._saver.save(batch)
            except BaseException as error:
                error.add_note(f"Not stored: {', '.join(_titles(batch))}.")
                self._failure = error if isinstance(error, Exception) else RuntimeError("a save was interrupted")
                raise

    # --- what is read

    def load(self, place: Place, checkpoint: str | None = None) -> Memory:
        if self._owes(place):
            self.catch_up()
        return self._saver.load(place, checkpoint)

    async def aload(self, place: Place, checkpoint: str | None = None) -> Memory:
        if self._owes(place):
            await threads.aon_worker(self.catch_up)
        return await self._saver.aload(place, checkpoint)

    def _owes(self, place: Place) -> bool:
        """Whether the store does not yet know all of a namespace."""
        with self._lock:
            return any(save.place == place for save in self._queue)

    def question(self, thread: str, id: str) -> QuestionRow | None:
        return self._saver.question(thread, id)

    async def aquestion(self, thread: str, id: str) -> QuestionRow | None:
        return await self._saver.aquestion(thread, id)

    def questions(self, thread: str, *, limit: int) -> list[tuple[str, QuestionRow]]:
        return self._saver.questions(thread, limit=limit)

    async def aquestions(self, thread: str, *, limit: int) -> list[tuple[str, QuestionRow]]:
        return await self._saver.aquestions(thread, limit=limit)

    def answer(self, thread: str, answers: Mapping[str, Any]) -> None:
        self._saver.answer(thread, answers)

    async def aanswer(self, thread: str, answers: Mapping[str, Any]) -> None:
        await self._saver.aanswer(thread, answers)


RunSaver: TypeAlias = Saver | LaggingSaver


def lagging(saver: Saver | None, durability: Durability) -> RunSaver | None:
    """What a run of that durability writes to.

    Raises:
        ConfigError: there is no such durability.
    """
    if durability not in DURABILITIES:
        raise ConfigError(f"`durability` is {durability!r}; it can be 'sync', 'async' or 'exit'.")
    return saver if saver is None or durability == "sync" else LaggingSaver(saver, durability == "exit")


def _stops_run(saves: Sequence[Save]) -> bool:
    """Whether the outermost run of a thread stops with these."""
    return any(type(save) is SaveRun and not save.place.ns and save.row.status != "running" for save in saves)


def _titles(saves: Sequence[Save]) -> list[str]:
    """What is in these saves, in a person's words."""
    tasks = dict.fromkeys(short_title(save.row.name) for save in saves if type(save) is SaveCall)
    questions = dict.fromkeys(save.row.id for save in saves if type(save) is SaveQuestion)
    titles = [f"results of `{task}`" for task in tasks] + [f"question {id}" for id in questions]
    return titles or ["the state of the run"]
