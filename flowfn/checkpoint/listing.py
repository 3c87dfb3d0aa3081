"""Checkpoints listed, newest first: of one thread, or of all."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from flowfn.checkpoint.base import CheckpointTuple, Place
from flowfn.checkpoint.medium import After, Medium
from flowfn.checkpoint.rows import Page, StoredCheckpoint, address, matches
from flowfn.sql.base import Op

PAGE = 32
"""How many checkpoints a listing reads with their values in one transaction."""


class Listing(Medium):
    """`list` and its awaited twin."""

    async def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        listing = _Walk(self, config, filter, before, limit)
        while (op := listing.next_pages()) is not None:
            for found in listing.shown(await self._ado(op)):
                yield found

    def list(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        listing = _Walk(self, config, filter, before, limit)
        while (op := listing.next_pages()) is not None:
            yield from listing.shown(self._do(op))


class _Walk:
    """One walk through checkpoints, newest first: what to read next, and what of it to show.

    Rows without values are read in ever larger portions; what belongs to them is read a page at a time.
    """

    def __init__(
        self,
        saver: Medium,
        config: Mapping[str, Any] | None,
        filter: Mapping[str, Any] | None,
        before: Mapping[str, Any] | None,
        limit: int | None,
    ) -> None:
        self.saver, self.filter, self.left = saver, filter, limit
        named = address(config) if config else None
        self.thread = named.thread if named else None
        self.ns = named.ns if named else None
        self.wanted = named.checkpoint if named else None
        self.before = address(before).checkpoint if before else None
        self.after = After() if self.before is None else After(self.before)
        self.rows: deque[StoredCheckpoint] = deque()
        self.portion = PAGE
        self.is_done = False

    def next_pages(self) -> Op[list[Page]] | None:
        if self.left is not None and self.left <= 0:
            return None
        if self.thread is not None and self.wanted is not None:
            return None if self.is_done else self._page_wanted(Place(self.thread, self.ns or ""), self.wanted)
        return None if self.is_done and not self.rows else self._pages()

    def _page_wanted(self, place: Place, checkpoint: str) -> Op[list[Page]]:
        self.is_done = True
        page = yield from self.saver._page_of(place, checkpoint)
        return [] if page is None else [page]

    def _pages(self) -> Op[list[Page]]:
        if not self.rows:
            self.rows.extend((yield from self.saver._stored_after(self.thread, self.ns, self.after, self.portion)))
            self.is_done = len(self.rows) < self.portion
            self.portion = min(2 * self.portion, 64 * PAGE)
            if self.rows:
                last = self.rows[-1]
                self.after = After(last.id, last.place.thread, last.place.ns)
        pages: list[Page] = []
        while self.rows and len(pages) < PAGE:
            pages.append((yield from self.saver._page(self.rows.popleft())))
        return pages

    def shown(self, pages: Sequence[Page]) -> Iterator[CheckpointTuple]:
        for page in pages:
            for found in page.newest_first(self.saver.serde):
                if self.left == 0:
                    return
                if self._is_asked_for(found):
                    self.left = None if self.left is None else self.left - 1
                    yield found

    def _is_asked_for(self, found: CheckpointTuple) -> bool:
        id = found.checkpoint["id"]
        is_in_range = id == self.wanted if self.wanted is not None else self.before is None or id < self.before
        return is_in_range and matches(found, self.filter)
