"""A saver over rows: what each method of the contract reads and decides, written once for every medium.

A method is an operation, a generator that runs in one transaction. It is put together from a few smaller ones that the
medium provides (`_stored`, `_values`, `_run`, …), and is run blocking by `_do` or awaited by `_ado`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flowfn.checkpoint import cells
from flowfn.checkpoint.base import (
    CallRow,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Lease,
    Memory,
    Place,
    QuestionRow,
    RunRow,
    Save,
    SaveCheckpoint,
    ThreadRow,
    Trusted,
    thread_name,
)
from flowfn.checkpoint.leases import is_held, standing
from flowfn.checkpoint.listing import Listing
from flowfn.checkpoint.medium import Gate
from flowfn.checkpoint.rows import (
    Address,
    StoredWrite,
    address,
    check_answers,
    config_of,
    numbered,
    remembered,
    unpacked,
)
from flowfn.checkpoint.signing import Vouching
from flowfn.checkpoint.tidying import Tidying
from flowfn.errors import ConfigError, UnknownCheckpointError
from flowfn.rates import Turn, next_turn
from flowfn.sql.base import Op
from flowfn.types import Rate, Status


class RowSaver(Listing, Tidying):
    """The contract in terms of rows; a medium provides the abstract operations."""

    # --- operations

    def _load(self, place: Place, checkpoint: str | None) -> Op[Memory]:
        thread = yield from self._thread(place.thread)
        stored = yield from self._stored(place, checkpoint)
        if stored is None:
            if checkpoint is not None:
                raise UnknownCheckpointError(place.thread, checkpoint)
            return Memory(thread, None, None, (), ())
        found = unpacked(stored, self.serde)
        values = yield from self._values(found)
        writes = yield from self._writes(place, stored.id)
        run = None if found.run is None else (yield from self._run(place, found.run))
        shown = remembered(found, values, writes, self.serde)
        return Memory(thread, shown, *(run or (None, (), ())))

    def _get_tuple(self, named: Address) -> Op[CheckpointTuple | None]:
        page = yield from self._page_of(named.place, named.checkpoint)
        if page is None:
            return None
        if named.checkpoint is None:
            return page.newest(self.serde)
        if named.checkpoint == page.found.stored.id:
            return page.shown(self.serde)
        return page.inside(named.checkpoint, self.serde)

    def _answer(
        self, thread: str, answers: Mapping[str, Any], blobs: Mapping[str, bytes], by: str | None, note: str | None
    ) -> Op[None]:
        found: dict[str, QuestionRow] = {}
        for id in answers:
            row = yield from self._question(thread, id)
            if row is not None:
                found[id] = row
        open_rows = [] if len(found) == len(answers) else (yield from self._open(thread, 100))
        check_answers(thread, answers, found, [row.id for _, row in open_rows])
        yield from self._record(thread, blobs, by, note)

    def _admit(self, task: str, slot: str, owner: str, rate: Rate | None, most: int | None) -> Op[float | None]:
        gate, now = (yield from self._gates(task)).get(task, Gate()), time.time()
        slots = {other: lease for other, lease in gate.slots.items() if is_held(lease, now)}
        if most is not None and len(slots) >= most:
            return None
        turn = Turn(0.0, ()) if rate is None else next_turn(rate, gate.turns, now)
        if most is not None:
            slots[slot] = Lease(owner, now, now + turn.wait + self.lease_seconds)
        yield from self._set_gate(task, Gate(turn.state, slots))
        return turn.wait

    def _leave(self, task: str, slot: str) -> Op[None]:
        gate = (yield from self._gates(task)).get(task, Gate())
        slots = {other: lease for other, lease in gate.slots.items() if other != slot}
        yield from self._set_gate(task, gate._replace(slots=slots))

    def _renewed(self, thread: str, owner: str) -> Op[None]:
        yield from self._prolong(thread, owner)
        until = time.time() + self.lease_seconds
        for task, gate in (yield from self._gates(None)).items():
            mine = {slot: lease._replace(until=until) for slot, lease in gate.slots.items() if lease.owner == owner}
            if mine:
                yield from self._set_gate(task, gate._replace(slots={**gate.slots, **mine}))

    def _standing(self, status: Status | None, flow: str | None, limit: int) -> Op[list[ThreadRow]]:
        """Threads with their status as of now: the store does not know who was killed."""
        is_hidden = status in ("running", "killed")
        rows = yield from self._threads("running" if is_hidden else status, flow, sys.maxsize if is_hidden else limit)
        now = time.time()
        shown = [row._replace(status=standing(row, now)) if row.status == "running" else row for row in rows]
        return [row for row in shown if not is_hidden or row.status == status][:limit]

    def _encoded(self, thread: str, answers: Mapping[str, Any]) -> dict[str, bytes]:
        dumps = self.serde.dumps
        return {id: dumps(value, cells.answer_title(id), cells.answer(thread, id)) for id, value in answers.items()}

    def _put(
        self, config: Mapping[str, Any], checkpoint: Checkpoint, metadata: CheckpointMetadata, new: Mapping[str, int]
    ) -> SaveCheckpoint:
        named, values, versions = address(config), checkpoint["channel_values"], checkpoint["channel_versions"]
        blobs = {
            name: self.serde.dumps(
                values[name], cells.value_title(name), cells.value(named.place, name, versions[name])
            )
            for name in new
            if name in values
        }
        return SaveCheckpoint(named.place, checkpoint, metadata, named.checkpoint, blobs)

    def _put_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Op[None]:
        named = address(config)
        if named.checkpoint is None:
            raise ConfigError("Pending writes belong to a checkpoint; pass the config that `put` gave.")
        rows = []
        for slot, channel, value in numbered(writes):
            cell = cells.write(named.place, named.checkpoint, task_id, slot, channel)
            payload = self.serde.dumps(value, cells.write_title(channel), cell)
            rows.append(StoredWrite(task_id, slot, channel, payload, task_path))
        return self._write(named.place, named.checkpoint, rows)

    def _trust(self) -> Op[Trusted]:
        vouching = Vouching(self.serde)
        yield from self._sign_anew(vouching)
        return vouching.report()

    # --- the contract, blocking

    def load(self, place: Place, checkpoint: str | None = None) -> Memory:
        return self._do(self._load(place, checkpoint))

    def save(self, saves: Sequence[Save]) -> None:
        self._do(self._save(saves), write=True)

    def renew(self, thread: str, owner: str) -> None:
        self._do(self._renewed(thread_name(thread), owner), write=True)

    def admit(self, task: str, slot: str, owner: str, rate: Rate | None, most: int | None) -> float | None:
        return self._do(self._admit(task, slot, owner, rate, most), write=True)

    def leave(self, task: str, slot: str) -> None:
        self._do(self._leave(task, slot), write=True)

    def thread(self, thread: str) -> ThreadRow | None:
        return self._do(self._thread(thread_name(thread)))

    def question(self, thread: str, id: str) -> QuestionRow | None:
        return self._do(self._question(thread_name(thread), id))

    def answer(
        self, thread: str, answers: Mapping[str, Any], *, by: str | None = None, note: str | None = None
    ) -> None:
        name = thread_name(thread)
        self._do(self._answer(name, answers, self._encoded(name, answers), by, note), write=True)

    def questions(self, thread: str | None = None, *, limit: int = 1000) -> list[tuple[str, QuestionRow]]:
        return self._do(self._open(None if thread is None else thread_name(thread), limit))

    def asked(self, thread: str) -> list[QuestionRow]:
        return self._do(self._asked(thread_name(thread)))

    def threads(self, status: Status | None = None, *, flow: str | None = None, limit: int = 1000) -> list[ThreadRow]:
        return self._do(self._standing(status, flow, limit))

    def runs(self, thread: str, ns: str = "", *, limit: int = 1000) -> list[RunRow]:
        return self._do(self._runs(Place(thread_name(thread), ns), limit))

    def calls(self, place: Place, run: str) -> list[CallRow]:
        return self._do(self._calls(place, run))

    def delete_thread(self, thread: str) -> None:
        self._do(self._delete(thread_name(thread)), write=True)

    def get_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        return self._do(self._get_tuple(address(config)))

    def put(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, int],
    ) -> dict[str, Any]:
        save = self._put(config, checkpoint, metadata, new_versions)
        self._do(self._save([save]), write=True)
        return config_of(save.place, checkpoint["id"])

    def put_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._do(self._put_writes(config, writes, task_id, task_path), write=True)

    def trust(self) -> Trusted:
        return self._do(self._trust(), write=True)

    # --- the contract, awaited

    async def aload(self, place: Place, checkpoint: str | None = None) -> Memory:
        return await self._ado(self._load(place, checkpoint))

    async def asave(self, saves: Sequence[Save]) -> None:
        await self._ado(self._save(saves), write=True)

    async def athread(self, thread: str) -> ThreadRow | None:
        return await self._ado(self._thread(thread_name(thread)))

    async def aquestion(self, thread: str, id: str) -> QuestionRow | None:
        return await self._ado(self._question(thread_name(thread), id))

    async def aanswer(
        self, thread: str, answers: Mapping[str, Any], *, by: str | None = None, note: str | None = None
    ) -> None:
        name = thread_name(thread)
        await self._ado(self._answer(name, answers, self._encoded(name, answers), by, note), write=True)

    async def aquestions(self, thread: str | None = None, *, limit: int = 1000) -> list[tuple[str, QuestionRow]]:
        return await self._ado(self._open(None if thread is None else thread_name(thread), limit))

    async def aasked(self, thread: str) -> list[QuestionRow]:
        return await self._ado(self._asked(thread_name(thread)))

    async def athreads(
        self, status: Status | None = None, *, flow: str | None = None, limit: int = 1000
    ) -> list[ThreadRow]:
        return await self._ado(self._standing(status, flow, limit))

    async def aruns(self, thread: str, ns: str = "", *, limit: int = 1000) -> list[RunRow]:
        return await self._ado(self._runs(Place(thread_name(thread), ns), limit))

    async def acalls(self, place: Place, run: str) -> list[CallRow]:
        return await self._ado(self._calls(place, run))

    async def adelete_thread(self, thread: str) -> None:
        await self._ado(self._delete(thread_name(thread)), write=True)

    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        return await self._ado(self._get_tuple(address(config)))

    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, int],
    ) -> dict[str, Any]:
        save = self._put(config, checkpoint, metadata, new_versions)
        await self._ado(self._save([save]), write=True)
        return config_of(save.place, checkpoint["id"])

    async def aput_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._ado(self._put_writes(config, writes, task_id, task_path), write=True)

    async def atrust(self) -> Trusted:
        return await self._ado(self._trust(), write=True)
