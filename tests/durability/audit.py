"""What must be true of a thread whose processes are killed: the log, and what the store holds after each of them.

The log says what happened in the world; the store is read from a copy of its files, so that looking mends nothing that
the next process has to mend by itself.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from crashing import CONFIG, Witness
from lives import Line, Plan, flow_of_plan, lines_of, named

from flowfn.checkpoint.sqlite import SqliteSaver


class Stored(NamedTuple):
    """What the store of a thread holds.

    Attributes:
        results: (label, mark) of everything that a body has returned or raised.
        calls: number → payload, of the rows of calls.
        questions: label → (id, state, answer).
        history: ids of its checkpoints, super-steps inside functions included, oldest first.
    """

    results: set[tuple[str, str]]
    calls: dict[int, bytes]
    questions: dict[str, tuple[str, str, Any]]
    history: list[str]


def stored_in(folder: Path, plan: Plan) -> Stored | None:
    """What the store of a round holds, None when there is none yet.

    Raises:
        AssertionError: it is damaged, or its history cannot be read.
    """
    if not (folder / "flows.db").exists():
        return None
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for suffix in ("", "-wal"):
        if (folder / f"flows.db{suffix}").exists():
            shutil.copy(folder / f"flows.db{suffix}", copy)
    saver = SqliteSaver(copy / "flows.db")
    try:
        snapshots = list(flow_of_plan(plan, Witness(saver), saver).get_state_history(CONFIG))
        history = [snapshot.config["configurable"]["checkpoint_id"] for snapshot in reversed(snapshots)]
        check_history([dict(snapshot.metadata or {}) for snapshot in reversed(snapshots)])
        with closing(sqlite3.connect(copy / "flows.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return Stored(
                {named(value) for sql in RESULTS for row in connection.execute(sql) for value in _values(saver, *row)},
                dict(connection.execute("SELECT id, payload FROM calls")),
                _questions(saver, connection),
                history,
            )
    finally:
        saver.close()


RESULTS = (
    "SELECT payload, 'call', thread, ns, runs.name, key FROM calls JOIN runs ON runs.id = calls.id >> 32",
    "SELECT payload, 'write', thread, ns, checkpoint, task, slot, channel FROM writes",
    "SELECT payload, 'value', thread, ns, channel, version FROM channel_values",
)
"""Everything that bodies have given, each with its cell."""


def _values(saver: SqliteSaver, blob: bytes, *cell: Any) -> Iterator[list[Any]]:
    """What bodies returned, in a stored value: itself, or inside a list of several."""
    value = saver.serde.loads(blob, cell)
    if isinstance(value, BaseException):
        value = list(value.args)
    if isinstance(value, list):
        for one in value if value and isinstance(value[0], list) else [value]:
            if len(one) == 3:
                yield one


def _questions(saver: SqliteSaver, connection: sqlite3.Connection) -> dict[str, tuple[str, str, Any]]:
    rows = connection.execute("SELECT id, payload, state, answer FROM questions WHERE state != 'abandoned'").fetchall()
    questions: dict[str, tuple[str, str, Any]] = {}
    for id, payload, state, answer in rows:
        label = saver.serde.loads(payload)
        assert label not in questions, f"`{label}` is there twice"
        questions[label] = (id, state, answer and saver.serde.loads(answer))
    return questions


def check_history(metadata: list[dict[str, Any]]) -> None:
    """Every checkpoint follows on the one before."""
    call_step = -1
    for each in metadata:
        call_step = call_step + 1 if each["source"] == "call" else -1
        assert each["source"] in ("input", "loop", "call"), each
        assert each.get("call_step", -1) == call_step, metadata


class Audit:
    """Follows one round from life to life.

    Args:
        folder: with the log and the store.
        calm: of the same plan without kills, at its end; None for such a round itself.

    Attributes:
        complaints: what is wrong.
        counts: what happened, by name.
    """

    def __init__(self, folder: Path, plan: Plan, calm: Audit | None) -> None:
        self.folder, self.plan = folder, plan
        self.complaints: list[str] = []
        self.counts: Counter[str] = Counter()
        self._calm = calm
        self._is_sync = plan.durability == "sync"
        self._read = 0
        self._ran: dict[str, list[str]] = {}
        self._ended: set[tuple[str, str]] = set()
        self._saw: dict[str, str] = {}
        self._given: dict[str, set[str]] = {}
        self._recorded: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._best: dict[str, list[tuple[str, str]]] = {}
        self._now: dict[str, list[tuple[str, str]]] = {}
        self._kept: set[tuple[str, str]] = set()
        self._stored = Stored(set(), {}, {}, [])

    def answered(self, question: str, answer: str) -> None:
        """An answer given from outside is on record."""
        self._given.setdefault(question, set()).add(answer)
        self._recorded[question] = answer

    def look(self) -> None:
        """A life has ended: read on in the log, and look at the store."""
        for line in lines_of(self.folder)[self._read :]:
            self._read += 1
            getattr(self, f"_{line.what}_line")(line)
        for by in list(self._now):
            self._close(by)
        try:
            self._look_at_store()
        except Exception as error:
            self.complain(f"the store cannot be read: {error!r}")

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    # --- the log

    def _ran_line(self, line: Line) -> None:
        label = line.label
        self._close(label)
        before = self._ran.setdefault(label, [])
        if label.split()[0] in ("flow", "outer"):
            before.append(line.mark)
            return
        if label in self._saw:
            if self._is_sync:
                self.complain(f"`{label}` ran again in life {line.life} after its result had been seen")
            self.counts["seen, lost and run again"] += 1
            del self._saw[label]
        elif before:
            has_ended = (label, before[-1]) in self._ended
            how = "finished, not yet seen" if has_ended else "asked" if label.startswith("asking") else "cut off"
            self.counts[f"run again: {how}"] += 1
        if any(kept == label for kept, _ in self._kept):
            self.complain(f"`{label}` ran again in life {line.life} although its result was stored")
        self.counts["tasks run"] += 1
        before.append(line.mark)

    def _ended_line(self, line: Line) -> None:
        self._ended.add((line.label, line.mark))

    def _saw_line(self, line: Line) -> None:
        if line.mark not in self._made(line.label):
            self.complain(f"`{line.by}` saw {line.mark} for `{line.label}`, which nothing gave")
        if line.label in self._recorded and self._recorded[line.label] != line.mark:
            self.complain(f"`{line.label}` was answered {self._recorded[line.label]}, the flow saw {line.mark}")
        if self._saw.setdefault(line.label, line.mark) != line.mark:
            self.complain(f"`{line.by}` saw {self._saw[line.label]} for `{line.label}`, and later {line.mark}")
        self._now.setdefault(line.by, []).append((line.label, line.mark))
        self.counts["results and answers seen"] += 1

    def _made(self, label: str) -> set[str]:
        """Marks of all that may be seen under that label."""
        return self._given.get(label, set()) | set(self._ran.get(label, ()))

    def _asked_line(self, line: Line) -> None:
        id = self._ids.setdefault(line.label, line.mark)
        if id != line.mark:
            self.complain(f"`{line.label}` was asked as {id} and as {line.mark}")
        stored = self._stored.questions.get(line.label)
        if stored is not None and stored[1] == "answered":
            self.complain(f"`{line.label}` was asked again in life {line.life} after it had been answered")
        self.counts["questions shown"] += 1

    def _gave_line(self, line: Line) -> None:
        self._given.setdefault(line.label, set()).add(line.mark)

    def _told_line(self, line: Line) -> None:
        self.complain(f"life {line.life} warned: {line.label}")  # of a changed call, or a result nobody asked for

    def _done_line(self, line: Line) -> None:
        for value in self._result_of(line):
            label, mark = named(value)
            if self._saw.get(label, mark) != mark or mark not in self._made(label):
                self.complain(f"the result holds {mark} for `{label}`, the flow had seen {self._saw.get(label)}")

    def _close(self, by: str) -> None:
        """One execution of a body is over: as far as it came it saw what the one before had seen."""
        now, best = self._now.pop(by, []), self._best.get(by, [])
        common = min(len(now), len(best))
        if self._is_sync and now[:common] != best[:common]:
            self.complain(f"`{by}` saw {best} and then, replayed, {now}")
        if len(now) >= len(best) or now != best[:common]:
            self._best[by] = now

    # --- the store

    def _look_at_store(self) -> None:
        stored = stored_in(self.folder, self.plan)
        if stored is None:
            return
        before, self._stored = self._stored, stored
        gone = {id for id, payload in before.calls.items() if stored.calls.get(id) != payload}
        if gone:
            self.complain(f"rows of calls are gone or changed: {sorted(gone)}")
        if stored.history[: len(before.history)] != before.history:
            self.complain(f"the history was {before.history} and is {stored.history}")
        for label, (id, state, answer) in before.questions.items():
            if state == "answered" and stored.questions.get(label) != (id, state, answer):
                self.complain(f"the answer to `{label}` was {answer}; now there is {stored.questions.get(label)}")
        for label, answer in self._recorded.items():
            if stored.questions.get(label, ("", "", None))[1:] != ("answered", answer):
                self.complain(f"the answer {answer} to `{label}` is lost: {stored.questions.get(label)}")
        for label in self._ids.keys() - stored.questions.keys():
            self.complain(f"`{label}` was shown and is not stored")
        self._kept |= stored.results
        unsaved = {pair for pair in self._saw.items() if pair not in self._kept and pair[0] not in self._given}
        if unsaved and self._is_sync:
            self.complain(f"seen and not stored: {sorted(unsaved)}")
        self.counts["seen, not stored at the kill"] += len(unsaved)
        self._check_prefix()

    def _check_prefix(self) -> None:
        """What is stored was stored in order: with a result also all that was seen on the way to it, and with the end
        of an invocation all that was seen in it."""
        lines = lines_of(self.folder)
        life = [line for line in lines if line.life == lines[-1].life] if lines else []
        callers = {line.label: line.by for line in lines_of((self._calm or self).folder) if line.what == "saw"}
        seen: dict[str, set[tuple[str, str]]] = {}
        for line in life:
            if line.what == "saw" and line.label not in self._given:
                seen.setdefault(line.by, set()).add((line.label, line.mark))
            needed: set[tuple[str, str]] = set()
            if line.what in ("ran", "ended") and (line.label, line.mark) in self._kept:
                needed = seen.get(callers.get(line.label, "") if line.what == "ran" else line.label, set())
            elif line.what in ("asked", "done"):
                needed = set().union(*seen.values())
            if not needed <= self._kept:
                lost = needed - self._kept
                self.complain(f"`{line.what} {line.label}` is stored, and {lost}, seen before it, is not")

    # --- the end

    def result_labels(self) -> list[str]:
        """Labels of what the flow has come to."""
        done = [line for line in lines_of(self.folder) if line.what == "done"]
        return [named(value)[0] for value in self._result_of(done[-1])]

    def _result_of(self, line: Line) -> list[list[Any]]:
        value = json.loads(line.label)
        if isinstance(value, list) and all(isinstance(one, list) and len(one) == 3 for one in value):
            return value
        self.complain(f"the flow came to {value}")
        return []

    def finish(self) -> None:
        """The thread has come to its end: its result is that of the undisturbed round."""
        done = [line for line in lines_of(self.folder) if line.what == "done"]
        labels = self.result_labels()
        expected = labels if self._calm is None else self._calm.result_labels()
        same = sorted(labels) == sorted(expected) if self.plan.shape == "race" else labels == expected
        if not same:
            self.complain(f"the result is {labels}, that of an undisturbed run {expected}")
        if len({line.label for line in done}) > 1:
            self.complain(f"the thread came to several results: {done}")
        still_open = [label for label, (_, state, _) in self._stored.questions.items() if state == "open"]
        if still_open:
            self.complain(f"questions are still open at the end: {still_open}")
        self.counts["results stored"] += len(self._stored.calls)
