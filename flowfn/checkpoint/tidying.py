"""Threads copied, and made smaller: what of one can go, and how the rest goes on reading as before.

What goes is decided for a whole thread by plain functions: `losses` says what each namespace loses, a namespace inside
a run that goes being lost with it. A checkpoint stores only the values that it changed, so those that stay take over
the values they need from those that go, and get the nearest checkpoint that stays as their parent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, TypeAlias

from flowfn.checkpoint.base import Place, RunRow, split_call_checkpoint_id, thread_name
from flowfn.checkpoint.medium import Cut, Home, Medium, Outline
from flowfn.checkpoint.rows import lineage, unpacked
from flowfn.errors import ConfigError, ThreadExistsError, UnknownThreadError
from flowfn.sql.base import Op

Strategy: TypeAlias = Literal["keep_latest", "delete"]


class Space(NamedTuple):
    """One namespace, as far as it matters for what can go.

    Attributes:
        runs: newest first.
        parents: of its newest checkpoint's metadata: surrounding namespace → checkpoint.
    """

    place: Place
    outlines: Sequence[Outline]
    runs: Sequence[RunRow]
    parents: Mapping[str, str]


class Loss(NamedTuple):
    """The runs and checkpoints that a namespace loses."""

    runs: frozenset[str] = frozenset()
    checkpoints: frozenset[str] = frozenset()


Own: TypeAlias = Callable[[Space, bool], Loss]
"""What a namespace loses that goes with no other, and that may be inside a run that stays."""


def losses(spaces: Sequence[Space], own: Own) -> dict[str, Loss]:
    """What each namespace loses.

    Args:
        spaces: of one thread, outer ones first.
    """
    known = {space.place.ns: space for space in spaces}
    lost: dict[str, Loss] = {}
    for space in spaces:
        ns, run = _run_around(space, known)
        goes_with_run = run is not None and run in lost[ns].runs
        lost[space.place.ns] = _everything(space) if goes_with_run else own(space, run is not None)
    return lost


def _run_around(space: Space, known: Mapping[str, Space]) -> tuple[str, str | None]:
    """The surrounding namespace, and the run there that a nested flow belongs to; None when it stands by itself."""
    ns = max(space.parents, key=len, default="")
    outer = known.get(ns)
    if not space.parents or outer is None or ns >= space.place.ns:
        return ns, None
    runs = {outline.id: outline.run for outline in outer.outlines}
    run = runs.get(space.parents[ns])
    return ns, run if any(row.id == run for row in outer.runs) else None


def _everything(space: Space) -> Loss:
    return Loss(frozenset(run.id for run in space.runs), frozenset(outline.id for outline in space.outlines))


def _all_but(space: Space, runs: Collection[str], checkpoint: str | None) -> Loss:
    gone = frozenset(row.id for row in space.outlines if row.run not in runs and row.id != checkpoint)
    return Loss(frozenset(run.id for run in space.runs if run.id not in runs), gone)


def _finished(space: Space, is_inside: bool) -> Loss:
    if is_inside:
        return Loss()
    return _all_but(space, {run.id for run in space.runs if run.status != "finished"}, None)


def _finished_but_newest(space: Space, is_inside: bool) -> Loss:
    if is_inside:
        return Loss()
    stay = {run.id for run in space.runs if run.status != "finished"} | {run.id for run in space.runs[:1]}
    return _all_but(space, stay, max((outline.id for outline in space.outlines), default=None))


_STRATEGIES: dict[str, Own] = {"keep_latest": _finished_but_newest, "delete": _finished}


def _named_runs(runs: Collection[str]) -> Own:
    return lambda space, is_inside: Loss(
        frozenset(run.id for run in space.runs if run.id in runs),
        frozenset(outline.id for outline in space.outlines if outline.run in runs),
    )


def nearest(at: str | None, parents: Mapping[str, str | None], gone: Collection[str]) -> str | None:
    """The first of a checkpoint and its ancestors that stays."""
    seen: set[str] = set()
    while at is not None and at not in seen:
        seen.add(at)
        base = _base(at, parents)
        if base not in gone:
            return at
        at = parents.get(base)
    return None


def _base(at: str, parents: Mapping[str, str | None]) -> str:
    """The stored checkpoint behind the id of a super-step inside a function."""
    inside = None if at in parents else split_call_checkpoint_id(at)
    return inside[0] if inside else at


Owners: TypeAlias = dict[tuple[str, Any], dict[str, Any]]
"""(channel, version) → the checkpoint that stored it → the version that its row builds on, None for a whole value."""


def _needed(channel: str, version: Any, inherited: Any, owners: Owners, line: Set[str]) -> Iterator[tuple[Any, str]]:
    """The rows that make up a version of a channel: (version, the checkpoint that stored it).

    Args:
        inherited: the version down to which a checkpoint above has them.
        line: of the checkpoint that needs them.
    """
    followed: set[Any] = set()
    while version is not None and version != inherited and version not in followed:
        followed.add(version)
        stored = owners.get((channel, version), {})
        owner = max(stored if len(stored) < 2 else stored.keys() & line, default=None)
        if owner is None:
            return
        yield version, owner
        version = stored[owner]


class Tidying(Medium):
    """`copy_thread`, `delete_for_runs`, `prune`, and their awaited twins."""

    # --- operations

    def _spaces(self, thread: str) -> Op[list[Space]]:
        spaces = []
        for ns in (yield from self._namespaces(thread)):
            place = Place(thread, ns)
            outlines = yield from self._outlines(place)
            runs = yield from self._runs(place, sys.maxsize)
            newest = yield from self._stored(place, None)
            parents = {} if newest is None else unpacked(newest, self.serde).metadata.get("parents", {})
            spaces.append(Space(place, outlines, runs, parents or {}))
        return spaces

    def _lose(self, thread: str, own: Own) -> Op[None]:
        """Forget what `own` says of each namespace, and what stands inside of it."""
        spaces = yield from self._spaces(thread)
        lost = losses(spaces, own)
        if all(lost[space.place.ns] == _everything(space) for space in spaces):
            yield from self._delete(thread)
            return
        for space in spaces:
            if any(lost[space.place.ns]):
                yield from self._lose_of(space, lost[space.place.ns])
        if "" in lost and lost[""].runs:
            (*_, row) = [None, *(yield from self._runs(Place(thread), 1))]
            yield from self._stand_at(thread, row)

    def _lose_of(self, space: Space, loss: Loss) -> Op[None]:
        gone, place = loss.checkpoints, space.place
        parents = {outline.id: outline.parent for outline in space.outlines}
        moved: dict[str, str | None] = {}
        heirs: list[tuple[str, str | None]] = []
        for outline in space.outlines:
            if outline.id not in gone:
                above = nearest(outline.parent, parents, gone)
                if above != outline.parent:
                    moved[outline.id] = above
                above = None if above is None else _base(above, parents)
                if outline.id in moved or above not in parents:
                    heirs.append((outline.id, above if above in parents else None))
        owners: Owners = {}
        for channel, version, checkpoint, prev in (yield from self._value_keys(place)) if gone else ():
            owners.setdefault((channel, version), {})[checkpoint] = prev
        homes: list[Home] = []
        for id, above in heirs if gone else ():
            versions = yield from self._versions(place, id)
            inherited = {} if above is None else (yield from self._versions(place, above))
            line = lineage(id, parents)
            for channel, version in versions.items():
                for needed, owner in _needed(channel, version, inherited.get(channel), owners, line):
                    if owner in gone:
                        homes.append(Home(channel, needed, owner, id))
        values = [(*key, each) for key, each_of in owners.items() for each in each_of if each in gone]
        yield from self._cut(place, Cut(loss.runs, gone, moved, homes, values))

    def _versions(self, place: Place, checkpoint: str) -> Op[dict[str, Any]]:
        stored = yield from self._stored(place, checkpoint)
        return {} if stored is None else unpacked(stored, self.serde).versions

    def _lose_runs(self, runs: Collection[str], thread: str | None) -> Op[None]:
        threads = set() if thread is None else {thread}
        for run in runs if thread is None else ():
            threads.update((yield from self._threads_with(run)))
        for each in sorted(threads):
            yield from self._lose(each, _named_runs(runs))

    def _copy_thread(self, source: str, target: str) -> Op[None]:
        row = yield from self._thread(target)
        if row is not None or (yield from self._namespaces(target)):
            raise ThreadExistsError(source, target)
        if not (yield from self._namespaces(source)):
            raise UnknownThreadError(source)
        yield from self._copy(source, target)

    # --- the contract

    def copy_thread(self, source: str, target: str) -> None:
        self._do(self._copy_thread(thread_name(source), thread_name(target)), write=True)

    def delete_for_runs(self, run_ids: Sequence[str], *, thread: str | None = None) -> None:
        self._do(self._lose_runs(_each(run_ids), None if thread is None else thread_name(thread)), write=True)

    def prune(self, thread_ids: Sequence[str], *, strategy: Strategy = "keep_latest") -> None:
        own = _named(strategy)
        for thread in _each(thread_ids):
            self._do(self._lose(thread, own), write=True)

    async def acopy_thread(self, source: str, target: str) -> None:
        await self._ado(self._copy_thread(thread_name(source), thread_name(target)), write=True)

    async def adelete_for_runs(self, run_ids: Sequence[str], *, thread: str | None = None) -> None:
        await self._ado(self._lose_runs(_each(run_ids), None if thread is None else thread_name(thread)), write=True)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: Strategy = "keep_latest") -> None:
        own = _named(strategy)
        for thread in _each(thread_ids):
            await self._ado(self._lose(thread, own), write=True)


def _named(strategy: str) -> Own:
    if strategy not in _STRATEGIES:
        raise ConfigError(f"`strategy` is {strategy!r}; it can be 'keep_latest' or 'delete'.")
    return _STRATEGIES[strategy]


def _each(ids: Iterable[str]) -> list[str]:
    """The names, each once; a single text is one name, not its letters."""
    return list(dict.fromkeys(map(thread_name, [ids] if isinstance(ids, str) else ids)))
