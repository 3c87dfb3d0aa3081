"""Flows whose processes are killed at random moments, again and again, until they come to their end all the same.

    python tests/durability/killing.py --rounds 200 --seed 7 [--durability async] [--shape race] [--kills 6]

A round takes one thread of one flow (`shapes.py`) through as many processes as it needs (`lives.py`). Each is killed by
SIGKILL at a random moment of its life, and what it left is audited (`audit.py`). Exits with 1 when something was wrong,
and tells the round to look at again: `--seed 7 --only 34`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from audit import Audit
from lives import BROKEN, DONE, INPUTS, WAITS, Log, Plan, lines_of, lived

from flowfn.checkpoint.sqlite import SqliteSaver

PATIENCE = 20.0
"""After so many seconds a life counts as hung."""

KILLED = -signal.SIGKILL


class TellsLog(logging.Handler):
    """Puts warnings into the log of a life."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.note("told", record.getMessage())


def begun(plan: Plan, folder: Path, life: int) -> int:
    """Start a process that lives one life; gives its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _live(plan, folder, life)
    return pid


def _live(plan: Plan, folder: Path, life: int) -> NoReturn:
    code = BROKEN
    try:
        with open(folder / "stderr", "a") as stderr:
            os.dup2(stderr.fileno(), 2)
        faulthandler.enable()
        faulthandler.dump_traceback_later(PATIENCE - 1)
        logging.getLogger("flowfn").addHandler(TellsLog(Log(folder / "log", life, 0)))
        code = lived(plan, folder, life)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Round:
    """One thread of one flow, taken through as many processes as it needs.

    Args:
        calm: the same without kills, once it has come to its end; None for a round without kills.

    Attributes:
        audit: of what its processes did.
        seconds: how long they took.
    """

    def __init__(self, plan: Plan, folder: Path, chance: random.Random, calm: Round | None = None) -> None:
        self.plan, self.folder, self._chance, self._calm = plan, folder, chance, calm
        self.audit = Audit(folder, plan, calm.audit if calm else None)
        self.seconds = 0.0

    def come_to_end(self, kills: int = 0) -> None:
        """Live until the flow has come to its end or something is wrong; the first so many lives are to be killed."""
        self.folder.mkdir(parents=True)
        counts, began = self.audit.counts, time.monotonic()
        for life in range(100):
            end = self._life(life, self._moment() if counts["kills"] < kills else None)
            counts["processes"] += 1
            counts["kills"] += end == KILLED
            self.audit.look()
            if end == DONE:
                self.audit.finish()
            elif end == WAITS:
                self._answer()
            elif end != KILLED:
                self.audit.complain(f"life {life} ended with {end}:\n{(self.folder / 'stderr').read_text()}")
            if end == DONE or self.audit.complaints:
                break
        else:
            self.audit.complain("it never comes to its end")
        self.seconds = time.monotonic() - began
        counts["rounds"] += 1
        counts["rounds gone on with"] += counts["kills"] > 0

    def _moment(self) -> float:
        """After how many seconds a life is to be killed: anywhere in what is left to do, often very early or late."""
        assert self._calm is not None
        steps = len(set(lines_of(self.folder))) / len(lines_of(self._calm.folder))
        left = self._calm.seconds * max(0.2, 1 - steps)
        kind = self._chance.random()
        if kind < 0.15:
            return self._chance.uniform(0, 0.1) * left
        if kind < 0.3:
            return self._chance.uniform(0.9, 1.1) * left
        return self._chance.uniform(0, 1) * left

    def _life(self, life: int, delay: float | None) -> int:
        """Live one life, killed after so many seconds; gives how it ended: what its process exited with."""
        pid, began = begun(self.plan, self.folder, life), time.monotonic()
        until = PATIENCE if delay is None else delay
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            left = began + until - time.monotonic()
            if left <= 0:
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                if delay is None:
                    self.audit.complain(f"life {life} hung:\n{(self.folder / 'stderr').read_text()}")
                return os.waitstatus_to_exitcode(status)
            if self.plan.answers == "meanwhile" and (self.folder / "flows.db").exists():
                self._answer()
            time.sleep(min(left, 0.001))

    def _answer(self) -> None:
        """Answer some of the open questions from this process."""
        saver = SqliteSaver(self.folder / "flows.db")
        try:
            rows = [row for _, row in saver.questions("t")]
            for row in self._chance.sample(rows, self._chance.randint(1, len(rows))) if rows else ():
                answer = f"{self._chance.getrandbits(32):08x}"
                label = saver.serde.loads(row.payload)
                saver.answer("t", {row.id: answer})
                self.audit.answered(label, answer)
        finally:
            saver.close()


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--durability", choices=["sync", "async", "exit"], default="sync")
    parser.add_argument("--shape", choices=list(INPUTS))
    parser.add_argument("--kills", type=int, default=6, help="at most so many a round")
    parser.add_argument("--brisk", action="store_true", help="neither tasks nor disk take more time than they need")
    parser.add_argument("--only", type=int, help="this round alone")
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    began, wrong = time.monotonic(), 0
    folder = Path(tempfile.mkdtemp(prefix="killing-"))
    for index in range(given.rounds) if given.only is None else [given.only]:
        chance = random.Random(f"{given.seed} {index}")
        plan = plan_of(chance, given.durability, given.shape or list(INPUTS)[index % len(INPUTS)])
        if given.brisk:
            plan = replace(plan, pace=0.0, disk=0.0)
        here = folder / str(index)
        calm = Round(plan, here / "calm", chance)
        calm.come_to_end()
        one = calm
        if not calm.audit.complaints:
            one = Round(plan, here / "killed", chance, calm)
            one.come_to_end(kills=chance.randint(1, given.kills))
        counts += one.audit.counts
        if one.audit.complaints:
            wrong += 1
            print(f"round {index} ({plan}), kept in {here}:")
            print("\n".join(f"  {text}" for text in one.audit.complaints), flush=True)
        else:
            shutil.rmtree(here)
    print(f"seed {given.seed}, durability {given.durability}: {time.monotonic() - began:.0f} s, {wrong} rounds wrong")
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
