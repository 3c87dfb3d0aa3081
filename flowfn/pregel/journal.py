"""What a run remembers of its calls: recorded outcomes, questions, and the super-steps inside a function.

Plain bookkeeping under the run's lock; it never waits, and knows no worker, event loop or clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowfn.checkpoint.records import (
    FORGOTTEN,
    INTENT,
    RETRIED,
    UNCLEAR,
    CallRow,
    QuestionRow,
)
from flowfn.pregel.callee import Callee


class CallSteps:
    """Numbers of the super-steps inside a function.

    A call joins the open one. It is sealed when the first of its results is delivered, and the next call opens the next
    one. It commits when it is sealed, all its calls have an outcome and every earlier one has committed.

    Attributes:
        open: number of the super-step that calls join.
        is_sealed: whether it takes no more calls.
        committed: how many are known to have committed.
    """

    __slots__ = ("_has_begun", "_outstanding", "committed", "is_sealed", "open")

    def __init__(self, recorded: int = 0, undecided: Iterable[int] = ()) -> None:
        """
        Args:
            recorded: how many super-steps earlier attempts have begun; calls of this attempt come after them.
            undecided: the super-step of each question that is still open.
        """
        self._outstanding: dict[int, int] = {}
        self.open, self.is_sealed = (recorded - 1, True) if recorded else (0, False)
        self._has_begun = recorded > 0
        self.committed = 0
        for step in undecided:
            self.begin(step)
        self.commit()

    def join(self) -> int:
        """The number of the super-step that a new call belongs to."""
        if self.is_sealed:
            self.open += 1
            self.is_sealed = False
        step = self.open
        self._outstanding[step] = self._outstanding.get(step, 0) + 1
        self._has_begun = True
        return step

    def begin(self, step: int) -> None:
        """One more call of that super-step has no outcome yet."""
        self._outstanding[step] = self._outstanding.get(step, 0) + 1
        self._has_begun = True

    def settle(self, step: int) -> Sequence[int]:
        """One of its calls has its outcome; gives the super-steps that have committed."""
        left = self._outstanding[step] - 1
        if left:
            self._outstanding[step] = left
            return ()
        del self._outstanding[step]
        return self.commit()

    def commit(self) -> Sequence[int]:
        """Note which super-steps have committed; gives them."""
        before, ready = self.committed, self.open + self.is_sealed
        while self.committed < ready and self.committed not in self._outstanding:
            self.committed += 1
        return () if before == self.committed else range(before, self.committed)

    def close(self) -> Sequence[int]:
        """The function has ended, and no call will join any more."""
        self.is_sealed = self._has_begun
        return self.commit()


class Journal:
    """A run's memory: what was recorded before this attempt, and the numbers that new records get.

    Attributes:
        steps: the super-steps inside the function.
        stored: number of the call stored last.
        intents: key → the intent of a call whose outcome nobody knows, see `doubt.py`.
        refused: keys of calls that a person did not let run.
        restored: keys of nodes that had finished, so that nobody asks for their calls.
        retried: numbers of the attempts that count for retry policies.
        questions: base → question, of this run; `unused` are those whose answers nobody has asked for so far.
    """

    def __init__(
        self,
        calls: Sequence[CallRow] = (),
        questions: Sequence[QuestionRow] = (),
        committed: int = 0,
        counts_steps: bool = True,
    ) -> None:
        self.stored = 0
        self.questions: dict[bytes, QuestionRow] = {}
        self.unused: dict[bytes, QuestionRow] = {}
        self._recorded: dict[bytes, tuple[CallRow, dict[bytes, CallRow]]] = {}
        self._tried: dict[bytes, tuple[int, int]] = {}
        self.retried: list[int] = []
        self.restored: set[bytes] = set()
        self.intents: dict[bytes, CallRow] = {}
        self.refused: set[bytes] = set()
        self._unclaimed: dict[tuple[bytes, str], dict[bytes, CallRow]] = {}
        self._known = committed
        if not calls and not questions:
            self.steps = CallSteps()
            return
        outcomes = [row for row in calls if not row.flags & INTENT]
        for row in calls:
            self.note_effect(row)
        for row in outcomes:
            if row.flags & FORGOTTEN:
                failed = self._tried.get(row.key, (0, 0))[1] + 1 if row.flags & RETRIED else 0
                self._tried[row.key] = row.attempt, failed
                if failed:
                    self.retried.append(row.seq)
            else:
                group = self._unclaimed.setdefault((row.caller, row.name), {})
                group[row.key] = row
                self._recorded[row.key] = row, group
        self._known = max([committed, *[row.committed for row in outcomes]])
        self.questions = {row.base: row for row in questions}
        self.unused = {row.base: row for row in questions if row.state == "answered" and not row.used}
        begun = max([row.step for row in outcomes] + [row.step for row in questions], default=-1) + 1
        self.steps = CallSteps(begun if counts_steps else 0, [row.step for row in questions if row.state == "open"])

    def note_effect(self, row: CallRow) -> None:
        """What a row says about the effect outside of its call."""
        if row.flags & INTENT:
            self.intents[row.key] = row
            self.refused.discard(row.key)
        elif not row.flags & UNCLEAR:
            self.intents.pop(row.key, None)
            self.refused.discard(row.key)
        elif row.key not in self.intents:
            self.refused.add(row.key)

    def claim(self, key: bytes) -> CallRow | None:
        """The outcome recorded under that key, which from now on counts as asked for."""
        found = self._recorded.get(key)
        if found is None:
            return None
        row, group = found
        group.pop(key, None)
        return row

    def forget(self, key: bytes) -> None:
        """An outcome that does not stand any more."""
        self._recorded.pop(key, None)

    def tried(self, key: bytes) -> tuple[int, int]:
        """How many attempts of a call are on record, and how many of them count for its retry policy."""
        return self._tried.get(key, (0, 0))

    def unclaimed_like(self, key: bytes, caller: bytes, callee: Callee) -> list[CallRow]:
        """If this call is a changed one, the outcomes of its task and caller that no call has asked for.

        Only super-steps that had committed count: of one that had not, a call may just have been unfinished. So is one
        whose failure was forgotten.
        """
        if key in self._tried:
            return []
        rows = self._unclaimed.get((caller, callee.title), {}).values()
        return [row for row in rows if row.step < self._known]

    def unclaimed(self) -> list[CallRow]:
        """Outcomes that no call has asked for, in the order stored; those made inside a call that answered from the
        store were not to be asked for."""
        rows = sorted((row for rows in self._unclaimed.values() for row in rows.values()), key=lambda row: -row.seq)
        left: dict[bytes, CallRow] = {}
        answered = self._recorded.keys() - {row.key for row in rows}
        covered = answered | self.restored
        for row in rows:  # a task's own row comes after those of its calls
            if row.caller in covered:
                covered.add(row.key)
            else:
                left[row.key] = row
        return list(reversed(left.values()))

    def next_number(self) -> int:
        """The number of the next call to be stored."""
        self.stored += 1
        return self.stored
