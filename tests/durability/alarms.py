"""Flows that are interrupted at random moments, in whatever line of whatever code, and gone on with.

    python tests/durability/alarms.py --rounds 2000 --seed 7 [--by ctrl-c] [--shape race]

A round runs one short flow in this process and interrupts it: by an alarm, whose handler raises `KeyboardInterrupt`
between any two instructions of the main thread, or by SIGINT, as a terminal sends it. Then the same thread is gone on
with, undisturbed. Exits with 1 when something was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from crashing import DoomedSaver, Witness, finished
from shapes import FLOWS

from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.errors import FlowPaused

PATIENCE = 20.0
"""After so many seconds a round counts as hung, and the process ends with the stacks of its threads."""

PROMPT = 2.0
"""Within so many seconds an interrupted call is to end; one that has lost something to the interrupt waits for one."""

SPARED, MEANT = {"asyncio", "selectors", __name__}, {"flowfn", "crashing", "shapes"}
"""Whose lines are not interrupted, nor what they call, and whose are. Asyncio loses callbacks and tasks by it, whatever
runs on it."""


def is_meant(frame: FrameType | None) -> bool:
    """Whether the code that runs is to be interrupted there."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in SPARED or package in MEANT:
            return package in MEANT
        frame = frame.f_back
    return False


@contextmanager
def alarm(by: str, delay: float) -> Iterator[None]:
    """Interrupt the main thread after so many seconds, unless what is inside has ended before."""

    def ring(number: int, frame: FrameType | None) -> None:
        if not is_meant(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.0001)
        elif by == "ctrl-c":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, lambda number, frame: None)


class Going:
    """A thread of a flow that is taken on to its end, or as far as it comes.

    Attributes:
        result: of the flow, None before its end.
        seconds: how long it took.
        end: what ended it.
    """

    def __init__(self, shape: str, how: str, store: Any, by: str = "", delay: float = 0.0) -> None:
        make, inputs = FLOWS[shape]
        self.saver = DoomedSaver(store)
        self.see = Witness(self.saver)
        self.result, self.end = None, "its end"
        flow, began = make(self.see, how, self.saver), time.monotonic()
        try:
            with alarm(by, delay):
                self.result = finished(flow, how, inputs, saver=self.saver)
        except (KeyboardInterrupt, FlowPaused, asyncio.CancelledError) as interrupt:
            self.end = type(interrupt).__name__
        self.seconds = time.monotonic() - began


def complaints(first: Going, second: Going, calm: Going, is_ordered: bool) -> list[str]:
    """What is wrong with a thread that was interrupted and then gone on with."""
    told = []
    if first.end != calm.end and first.seconds > PROMPT + calm.seconds:
        told.append(f"the interrupted call took {first.seconds:.2f} s to end")
    if second.result != calm.result if is_ordered else sorted(second.result or []) != sorted(calm.result or []):
        told.append(f"it came to {second.result} by {second.end}, undisturbed to {calm.result} by {calm.end}")
    if again := set(second.see.ran) & set(first.see.saw):
        told.append(f"seen and run again: {again}")
    if again := set(second.see.ran) & set(first.saver.stored):
        told.append(f"stored and run again: {again}")
    return told


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--by", choices=["alarm", "ctrl-c"], default="alarm")
    parser.add_argument("--shape", choices=list(FLOWS))
    given = parser.parse_args(arguments)
    logging.disable()
    counts: Counter[str] = Counter()
    began, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="alarms-") as folder:
        for index in range(given.rounds):
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            chance = random.Random(f"{given.seed} {index}")
            shape, how = given.shape or chance.choice(list(FLOWS)), chance.choice(["sync", "async"])
            is_kept = chance.random() < 0.7
            stores = [SqliteSaver(Path(folder) / f"{index}-{i}.db") if is_kept else InMemorySaver() for i in (0, 1)]
            calm = Going(shape, how, stores[0])
            first = Going(shape, how, stores[1], given.by, chance.uniform(0, 1.1 * calm.seconds))
            second = Going(shape, how, stores[1])
            if second.end == FlowPaused.__name__:  # the signal was heard after the first had ended
                second = Going(shape, how, stores[1])
            told = complaints(first, second, calm, shape != "race")
            if told:
                wrong += 1
                print(f"round {index} ({shape}, {how}, {'sqlite' if is_kept else 'memory'}, ended by {first.end}):")
                print("\n".join(f"  {text}" for text in told), flush=True)
            counts[f"ended by {first.end}"] += 1
            counts["ended by a wait"] += first.end != calm.end and first.seconds > calm.seconds + 0.9
            counts["results seen"] += len(first.see.saw)
            counts["tasks run again, not seen before"] += len(set(first.see.ran) & set(second.see.ran))
            for store in stores:
                store.close()
    print(f"seed {given.seed}, by {given.by}: {time.monotonic() - began:.0f} s, {wrong} rounds wrong")
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    print(f"{threading.active_count():8} threads at the end")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
