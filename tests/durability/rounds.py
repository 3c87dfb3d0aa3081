"""One thread taken through as many processes as it needs, each killed at a random moment, until it comes to its end.

What it runs says `killing.py` of flows and `killing_graphs.py` of graphs.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from lives import BROKEN, DONE, WAITS, Plan

from flowfn.checkpoint.sqlite import SqliteSaver

PATIENCE = 20.0
"""After so many seconds a life counts as hung."""

KILLED = -signal.SIGKILL


class Round(ABC):
    """One thread, taken through as many processes as it needs.

    Args:
        calm: the same without kills, once it has come to its end; None for a round without kills.

    Attributes:
        audit: of what its processes did.
        seconds: how long they took.
    """

    def __init__(self, plan: Plan, folder: Path, chance: random.Random, calm: Round | None = None) -> None:
        self.plan, self.folder, self._chance, self._calm = plan, folder, chance, calm
        self.audit = self.new_audit(calm)
        self.seconds = 0.0

    @abstractmethod
    def new_audit(self, calm: Any) -> Any:
        """What follows the round from life to life, beside the same one without kills."""

    @abstractmethod
    def lived(self, life: int) -> int:
        """Take the thread on in this process; gives how the life ended."""

    @abstractmethod
    def told(self) -> Sequence[Hashable]:
        """What the log tells so far; what is told again counts once."""

    def come_to_end(self, kills: int = 0) -> None:
        """Live until the thread has come to its end or something is wrong; the first so many lives are to be killed."""
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
        left = self._calm.seconds * max(0.2, 1 - len(set(self.told())) / len(self._calm.told()))
        kind = self._chance.random()
        if kind < 0.15:
            return self._chance.uniform(0, 0.1) * left
        if kind < 0.3:
            return self._chance.uniform(0.9, 1.1) * left
        return self._chance.uniform(0, 1) * left

    def _life(self, life: int, delay: float | None) -> int:
        """Live one life, killed after so many seconds; gives how it ended: what its process exited with."""
        pid, began = self._begun(life), time.monotonic()
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

    def _begun(self, life: int) -> int:
        """Start a process that lives one life; gives its id."""
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._live(life)
        return pid

    def _live(self, life: int) -> NoReturn:
        code = BROKEN
        try:
            with open(self.folder / "stderr", "a") as stderr:
                os.dup2(stderr.fileno(), 2)
            faulthandler.enable()
            faulthandler.dump_traceback_later(PATIENCE - 1)
            code = self.lived(life)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _answer(self) -> None:
        """Answer some of the open questions from this process."""
        with closing(SqliteSaver(self.folder / "flows.db")) as saver:
            rows = [row for _, row in saver.questions("t")]
            for row in self._chance.sample(rows, self._chance.randint(1, len(rows))) if rows else ():
                answer = f"{self._chance.getrandbits(32):08x}"
                label = saver.serde.loads(row.payload)
                saver.answer("t", {row.id: answer})
                self.audit.answered(label, answer)


def main(
    arguments: list[str] | None,
    description: str | None,
    shapes: Collection[str],
    plan_of: Callable[[random.Random, str, str], Plan],
    round_of: type[Round],
) -> int:
    """What the command line of a harness asks for; gives its exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--durability", choices=["sync", "async", "exit"], default="sync")
    parser.add_argument("--shape", choices=list(shapes))
    parser.add_argument("--kills", type=int, default=6, help="at most so many a round")
    parser.add_argument("--brisk", action="store_true", help="neither tasks nor disk take more time than they need")
    parser.add_argument("--only", type=int, help="this round alone")
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    began, wrong = time.monotonic(), 0
    folder = Path(tempfile.mkdtemp(prefix="killing-"))
    for index in range(given.rounds) if given.only is None else [given.only]:
        chance = random.Random(f"{given.seed} {index}")
        plan = plan_of(chance, given.durability, given.shape or list(shapes)[index % len(shapes)])
        if given.brisk:
            plan = replace(plan, pace=0.0, disk=0.0)
        here = folder / str(index)
        calm = round_of(plan, here / "calm", chance)
        calm.come_to_end()
        one = calm
        if not calm.audit.complaints:
            one = round_of(plan, here / "killed", chance, calm)
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
