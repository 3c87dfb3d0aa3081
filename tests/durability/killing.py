"""Flows whose processes are killed at random moments, again and again, until they come to their end all the same.

    python tests/durability/killing.py --rounds 200 --seed 7 [--durability async] [--shape race] [--kills 6]

A round (`rounds.py`) takes one thread of one flow (`shapes.py`) through as many processes as it needs (`lives.py`).
Each is killed by SIGKILL at a random moment of its life, and what it left is audited (`audit.py`). Exits with 1 when
something was wrong, and tells the round to look at again: `--seed 7 --only 34`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import rounds
from audit import Audit
from lives import INPUTS, Line, Log, Plan, lines_of, lived


class TellsLog(logging.Handler):
    """Puts warnings into the log of a life."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.note("told", record.getMessage())


class Round(rounds.Round):
    """One thread of one flow."""

    def new_audit(self, calm: Round | None) -> Audit:
        return Audit(self.folder, self.plan, calm.audit if calm else None)

    def lived(self, life: int) -> int:
        logging.getLogger("flowfn").addHandler(TellsLog(Log(self.folder / "log", life, 0)))
        return lived(self.plan, self.folder, life)

    def told(self) -> Sequence[Line]:
        return lines_of(self.folder)


def plan_of(chance: random.Random, durability: str, shape: str) -> Plan:
    """A plan by chance."""
    how, asks = chance.choice(["sync", "async"]), shape.startswith("questions")
    doors = ["invoke", "invoke", "stream", *(["handle"] if shape != "graph" else [])]
    return Plan(
        shape=shape,
        how=how,
        via=chance.choice(doors),
        answers=chance.choice(["command", "outside", "meanwhile"]) if asks else "command",
        concurrency=chance.choice([None, None, 1, 2, 4]),
        pace=chance.choice([0.0, 0.0005, 0.002]),
        disk=chance.choice([0.0, 0.0, 0.0015]),
        durability=durability,
    )


if __name__ == "__main__":
    raise SystemExit(rounds.main(None, __doc__, INPUTS, plan_of, Round))
