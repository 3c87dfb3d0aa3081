"""Graphs whose processes are killed at random moments, again and again, until they come to their end all the same.

    python tests/durability/killing_graphs.py --rounds 200 --seed 7 [--durability async] [--shape sends] [--kills 6]

A round (`rounds.py`) takes one thread of one graph (`graph_shapes.py`) through as many processes as it needs. Each is
killed by SIGKILL at a random moment of its life; then its log and its store are looked at. Exits with 1 when something
was wrong, and tells the round to look at again: `--seed 7 --only 34`.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lives
import rounds
from audit import RESULTS
from crashing import CONFIG
from graph_shapes import GRAPHS, Told, Writes, answers_in, end_of, entries_in
from lives import DONE, WAITS, SlowSaver

from flowfn import Command
from flowfn.checkpoint import SqliteSaver


@dataclass(frozen=True)
class Plan(lives.Plan):
    """What a round runs: a graph. Nobody answers its questions while it runs."""

    def graph(self, see: Told, saver: Any) -> Any:
        make, _, _ = GRAPHS[self.shape]
        return make(see, self.how, saver)

    @property
    def input(self) -> dict[str, Any]:
        return {"left": GRAPHS[self.shape][2]}


def plan_of(chance: random.Random, durability: str, shape: str) -> Plan:
    """A plan by chance."""
    return Plan(
        shape=shape,
        how=chance.choice(["sync", "async"]),
        via=chance.choice(["invoke", "invoke", "stream"]),
        answers=chance.choice(["command", "outside"]),
        concurrency=chance.choice([None, None, 1, 2, 4]),
        pace=chance.choice([0.0, 0.0005, 0.002]),
        disk=chance.choice([0.0, 0.0, 0.0015]),
        durability=durability,
    )


# ---------------------------------------------------------------- one life


def lived(plan: Plan, folder: Path, life: int) -> int:
    """Take the thread on, from wherever it stands, until it ends or waits for another process; gives which."""
    saver, see = SlowSaver(folder / "flows.db", plan.disk), Writes(folder / "log", life, plan.pace)
    graph = plan.graph(see, saver)
    state = ran(plan, graph, None if saver.runs("t") else plan.input)
    while "__interrupt__" in state or saver.runs("t")[0].status == "paused":
        asked = state.get("__interrupt__", ())
        for question in asked:
            see.note("asked", question.value, question.id)
        if asked and plan.answers == "outside":
            return WAITS
        answers = {question.id: secrets.token_hex(4) for question in asked}
        for question in asked:
            see.note("gave", question.value, answers[question.id])
        state = ran(plan, graph, Command(resume=answers) if asked else None)
    see.note("done", json.dumps(state))
    return DONE


def ran(plan: Plan, graph: Any, input: Any) -> dict[str, Any]:
    """Run the graph on; gives what it came to, with `__interrupt__` if it waits."""
    config = {**CONFIG, "max_concurrency": plan.concurrency}
    options = {} if plan.durability == "sync" else {"durability": plan.durability}
    if plan.via == "invoke":
        if plan.how == "sync":
            return dict(graph.invoke(input, config, **options))
        return dict(asyncio.run(graph.ainvoke(input, config, **options)))

    async def chunks() -> list[dict[str, Any]]:
        return [chunk async for chunk in graph.astream(input, config, stream_mode="values", **options)]

    if plan.how == "sync":
        states = list(graph.stream(input, config, stream_mode="values", **options))
    else:
        states = asyncio.run(chunks())
    asked = [question for state in states for question in state.get("__interrupt__", ())]
    return {"__interrupt__": asked} if asked else states[-1] if states else dict(graph.get_state(config).values)


# ---------------------------------------------------------------- what it left


class Line(NamedTuple):
    """One line of the log.

    Attributes:
        what: `began` a body, `ended` it has come to its end, `saw` it has seen what calls gave it, `asked` a question,
            `gave` an answer, `done` the graph came to an end.
        label, mark: of the body; of a question its text and id, or the answer.
        seen: entries that the body was given.
    """

    life: int
    what: str
    label: str
    mark: str
    seen: list[list[str]]


def lines_of(folder: Path) -> list[Line]:
    path = folder / "log"
    return [Line(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


class Stored(NamedTuple):
    """What the store of a thread holds.

    Attributes:
        entries: of everything that nodes and tasks have given.
        checkpoints: (namespace, id, parent, step), in the order stored.
        questions: id → (question, answer), of those that were answered.
        state: of the thread, as `get_state` gives it.
    """

    entries: set[tuple[str, str]]
    checkpoints: list[tuple[str, str, str | None, int]]
    answers: dict[str, tuple[str, str]]
    state: dict[str, Any]


def stored_in(folder: Path, plan: Plan) -> Stored:
    """What the store of a round holds, read from a copy, so that looking mends nothing.

    Raises:
        AssertionError: it is damaged.
    """
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path in folder.glob("flows.db*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, copy)
    with closing(SqliteSaver(copy / "flows.db")) as saver:
        graph = plan.graph(Told(), saver)
        list(graph.get_state_history(CONFIG))
        state = dict(graph.get_state(CONFIG).values)
        with closing(sqlite3.connect(copy / "flows.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            values = [saver.serde.loads(row[0], row[1:]) for sql in RESULTS for row in connection.execute(sql)]
            rows = connection.execute("SELECT id, payload, answer FROM questions WHERE state = 'answered'").fetchall()
            return Stored(
                entries_in(values),
                connection.execute("SELECT ns, id, parent, step FROM checkpoints ORDER BY seq").fetchall(),
                {id: (saver.serde.loads(question), saver.serde.loads(answer)) for id, question, answer in rows},
                state,
            )


class Audit:
    """Follows one round from life to life.

    Args:
        folder: with the log and the store.
        calm: what the graph comes to when nobody disturbs it; None in such a round.

    Attributes:
        complaints: what is wrong.
        counts: what happened, by name.
        end: what the graph came to.
    """

    def __init__(self, folder: Path, plan: Plan, calm: dict[str, Any] | None) -> None:
        self.folder, self.plan, self._calm = folder, plan, calm
        self.complaints: list[str] = []
        self.counts: Counter[str] = Counter()
        self.end: dict[str, Any] = {}
        self._is_sync = plan.durability == "sync"
        self._read = 0
        self._began: dict[str, list[str]] = {}
        self._saw: dict[str, str] = {}
        self._stored = Stored(set(), [], {}, {})
        self._given: dict[str, set[str]] = {}

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    def look(self) -> None:
        """A life has ended: read on in the log, and look at the store."""
        for line in lines_of(self.folder)[self._read :]:
            self._read += 1
            self._look_at(line)
        if not (self.folder / "flows.db").exists():
            return
        try:
            stored = stored_in(self.folder, self.plan)
        except Exception as error:
            self.complain(f"the store cannot be read: {error!r}")
        else:
            self._look_at_store(stored)

    def _look_at(self, line: Line) -> None:
        if line.what == "began":
            self._look_at_begin(line)
        if line.what in ("began", "saw"):
            for label, mark in line.seen:
                if mark not in self._began.get(label, ()):
                    self.complain(f"`{line.label}` saw {mark} of `{label}`, which no body gave")
                if self._saw.setdefault(label, mark) != mark and self._is_sync:
                    self.complain(f"`{line.label}` saw {mark} of `{label}`, {self._saw[label]} was seen before")
                self._saw[label] = mark
            self.counts["entries seen"] += len(line.seen)
        if line.what == "asked":
            if line.mark in self._stored.answers:
                self.complain(f"`{line.label}` was asked in life {line.life} after it had been answered")
            self.counts["questions shown"] += 1
        if line.what == "gave":
            self.answered(line.label, line.mark)
        if line.what == "done":
            self._look_at_end(json.loads(line.label))

    def _look_at_begin(self, line: Line) -> None:
        before = self._began.setdefault(line.label, [])
        if line.label in self._saw:
            if self._is_sync:
                self.complain(f"`{line.label}` ran again in life {line.life} after it had been seen")
            del self._saw[line.label]
        if any(label == line.label for label, _ in self._stored.entries):
            self.complain(f"`{line.label}` ran again in life {line.life} although it was stored")
        self.counts["bodies run" if not before else "bodies run again"] += 1
        before.append(line.mark)

    def answered(self, question: str, answer: str) -> None:
        """Somebody gave an answer; it may have been stored before its giver was killed."""
        self._given.setdefault(question, set()).add(answer)

    def _look_at_end(self, state: dict[str, Any]) -> None:
        self.end = end_of(state)
        if self._calm is not None and self.end != self._calm:
            self.complain(f"the graph came to {self.end}, undisturbed to {self._calm}")
        for label, mark in entries_in(state):
            if self._saw.get(label, mark) != mark or mark not in self._began.get(label, ()):
                self.complain(f"the end holds {mark} for `{label}`, {self._saw.get(label)} was seen")
        for question, answer in answers_in(state).items():
            if answer not in self._given.get(question, ()):
                self.complain(f"`{question}` was answered {answer}, which nobody gave")

    def _look_at_store(self, stored: Stored) -> None:
        before, self._stored = self._stored, stored
        if lost := before.entries - stored.entries:
            self.complain(f"stored before, and gone: {sorted(lost)}")
        if stored.checkpoints[: len(before.checkpoints)] != before.checkpoints:
            self.complain(f"checkpoints changed: {before.checkpoints} to {stored.checkpoints}")
        if before.answers.items() - stored.answers.items():
            self.complain(f"answers changed: {before.answers} to {stored.answers}")
        unsaved = set(self._saw.items()) - stored.entries
        if unsaved and self._is_sync:
            self.complain(f"seen and not stored: {sorted(unsaved)}")
        self.counts["seen, not stored at the kill"] += len(unsaved)
        self._check_chains(stored)

    def _check_chains(self, stored: Stored) -> None:
        """In each namespace every checkpoint follows on the one before, one step on."""
        newest: dict[str, tuple[str, int]] = {}
        for ns, id, parent, step in stored.checkpoints:
            before = newest.get(ns)
            follows = parent is None if before is None else (parent, step) == (before[0], before[1] + 1)
            if not follows:
                self.complain(f"checkpoint {id} of step {step} in `{ns}` follows {parent} on {before}")
            newest[ns] = id, step
        self.counts["checkpoints"] += len(stored.checkpoints)

    def finish(self) -> None:
        """The thread has come to its end, and its store says the same."""
        if end_of(self._stored.state) != self.end:
            self.complain(f"the graph came to {self.end}, and {end_of(self._stored.state)} is stored")
        for question, answer in self._stored.answers.values():
            if answers_in(self._stored.state).get(question) != answer:
                self.complain(f"`{question}` was answered {answer}, the end has {answers_in(self._stored.state)}")


# ---------------------------------------------------------------- one round


class Round(rounds.Round):
    """One thread of one graph."""

    def new_audit(self, calm: Round | None) -> Audit:
        return Audit(self.folder, self.plan, calm.audit.end if calm else None)

    def lived(self, life: int) -> int:
        return lived(self.plan, self.folder, life)

    def told(self) -> Sequence[str]:
        return list({line.label for line in lines_of(self.folder)})


if __name__ == "__main__":
    raise SystemExit(rounds.main(None, __doc__, GRAPHS, plan_of, Round))
