"""How a work is measured: entrants take turns, A B C A B C …, and the median of their CPU time per unit counts.

CPU time, not time on the wall, because it varies less on a machine that others use too. It is that of all threads of
the process and of its finished children. Between two trials the garbage of the last one is collected, and what a trial
needs is prepared, off the clock.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

Trial = Callable[[], Any]
"""A prepared piece of work. Calling it is what the clock sees."""
Trials = Generator[Trial, None, None]
Prepare = Callable[[int], Trials]
"""Given the number of units, yields one prepared trial after another; what `next()` does is off the clock."""
Scale = Literal["quick", "normal", "full"]

WARM_UP = 20
"""Units that the trial before the first measured one has at most."""
LONG, FEW = 60.0, 3
"""A work that has taken so many seconds gets no more than so many rounds."""


@dataclass(frozen=True)
class Sizes:
    """How many units a trial has."""

    quick: int
    normal: int
    full: int

    def at(self, scale: Scale) -> int:
        return {"quick": self.quick, "normal": self.normal, "full": self.full}[scale]


def cpu() -> float:
    """Seconds of CPU that this process and its finished children have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cpu_per_unit(trial: Trial, n: int) -> float:
    """Run the trial; microseconds of CPU per unit."""
    before = cpu()
    trial()
    return (cpu() - before) / n * 1e6


def cpu_of_all(trial: Trial, n: int) -> float:
    """Run the trial; milliseconds of CPU for all its units together."""
    return cpu_per_unit(trial, n) * n / 1e3


def reported(trial: Trial, n: int) -> float:
    """Run the trial; the number it returns."""
    return float(trial())


@dataclass(frozen=True)
class Entrant:
    """One way to do a work.

    Args:
        prepare: makes its trials.
        sizes: units of its trials, where they differ from the work's.
    """

    prepare: Prepare
    sizes: Sizes | None = None


@dataclass(frozen=True)
class Work:
    """One row of the table.

    Args:
        name: what a unit is; `{n}` becomes the number of them.
        sizes: units in a trial.
        flowfn, langgraph, bare: who does it; None where that makes no sense. `bare` is the limit, or for a row that
            compares flowfn with itself, the other flowfn.
        faster: LangGraph's cost is to be at least so many times flowfn's.
        of_bare: flowfn's cost is to be at most so many times the bare one.
        at_most: flowfn's number is to be no larger.
        measure, unit: what the numbers are.
        once: whether every round would say the same, so that one is enough.
    """

    name: str
    sizes: Sizes
    flowfn: Entrant
    langgraph: Entrant | None = None
    bare: Entrant | None = None
    faster: float | None = None
    of_bare: float | None = None
    at_most: float | None = None
    measure: Callable[[Trial, int], float] = cpu_per_unit
    unit: str = "µs"
    once: bool = False

    def entrants(self) -> dict[str, Entrant]:
        """Who takes turns, in that order, by name."""
        entered = {"langgraph": self.langgraph, "flowfn": self.flowfn, "bare": self.bare}
        return {name: entrant for name, entrant in entered.items() if entrant is not None}

    def units(self, entrant: Entrant, scale: Scale) -> int:
        return (entrant.sizes or self.sizes).at(scale)

    def wanted(self) -> str:
        """The budget in words."""
        bars = [
            f"≥ {self.faster:g} ×" if self.faster is not None else "",
            f"≤ {self.of_bare:g} × bare" if self.of_bare is not None else "",
            f"≤ {self.at_most:g} {self.unit}".rstrip() if self.at_most is not None else "",
        ]
        return ", ".join(bar for bar in bars if bar)


@dataclass(frozen=True)
class Result:
    """What came out of a work: a median per entrant, or why there is none."""

    work: Work
    scale: Scale
    medians: dict[str, float]
    failed: str = ""

    def faster(self) -> float | None:
        """LangGraph's cost as a multiple of flowfn's."""
        return self._ratio("langgraph", "flowfn")

    def of_bare(self) -> float | None:
        """flowfn's cost as a multiple of the bare one."""
        return self._ratio("flowfn", "bare")

    def _ratio(self, above: str, below: str) -> float | None:
        if above not in self.medians or not self.medians.get(below):
            return None
        return self.medians[above] / self.medians[below]

    def verdict(self) -> str:
        """`ok`, `missed`, `failed`, or nothing where nothing was wanted."""
        if self.failed:
            return "failed"
        work, faster, of_bare = self.work, self.faster(), self.of_bare()
        met = [
            *([faster >= work.faster] if faster is not None and work.faster is not None else []),
            *([of_bare <= work.of_bare] if of_bare is not None and work.of_bare is not None else []),
            *([self.medians["flowfn"] <= work.at_most] if work.at_most is not None else []),
        ]
        return "" if not met else "ok" if all(met) else "missed"


def run(work: Work, scale: Scale, rounds: int) -> Result:
    """Measure one work. What an entrant raises becomes the result, so that the other rows go on."""
    try:
        return Result(work, scale, _medians(work, scale, 1 if work.once else rounds))
    except (Exception, asyncio.CancelledError) as error:
        traceback.print_exc()
        return Result(work, scale, {}, failed=f"{type(error).__name__}: {error}".splitlines()[0])


def _medians(work: Work, scale: Scale, rounds: int) -> dict[str, float]:
    entrants = work.entrants()
    units = {name: work.units(entrant, scale) for name, entrant in entrants.items()}
    if not work.once:
        for name, entrant in entrants.items():
            with closing(entrant.prepare(min(WARM_UP, units[name]))) as trials:
                next(trials)()
    prepared = {name: entrant.prepare(units[name]) for name, entrant in entrants.items()}
    numbers: dict[str, list[float]] = {name: [] for name in entrants}
    began = time.monotonic()
    try:
        for done in range(rounds):
            if done >= FEW and time.monotonic() - began > LONG:
                break
            for name, trials in prepared.items():
                trial = next(trials)
                gc.collect()
                numbers[name].append(work.measure(trial, units[name]))
                del trial
    finally:
        for trials in prepared.values():
            trials.close()
    return {name: statistics.median(values) for name, values in numbers.items()}


COLUMNS = ("work", "LangGraph", "flowfn", "bare", "LangGraph/flowfn", "wanted", "flowfn/bare", "")
WIDTHS = (58, 22, 12, 12, 16, 24, 11, 6)


def head() -> str:
    """The first two lines of the table."""
    return f"{_line(COLUMNS)}\n|{'|'.join('-' * (width + 2) for width in WIDTHS)}|"


def line(result: Result) -> str:
    """One row of the table."""
    work, scale = result.work, result.scale
    name = work.name.format(n=grouped(work.sizes.at(scale)))
    if result.failed:
        return f"{_line((name, '', '', '', '', work.wanted(), '', 'failed'))}\n  {result.failed}"
    cells = []
    for side in ("langgraph", "flowfn", "bare"):
        value = result.medians.get(side)
        cells.append("" if value is None else f"{_number(value)} {work.unit}".rstrip())
    if work.langgraph is not None and (n := work.units(work.langgraph, scale)) != work.sizes.at(scale):
        cells[0] += f" (at {grouped(n)})"
    faster, of_bare = result.faster(), result.of_bare()
    cells.append("" if faster is None else f"{_number(faster)} ×")
    cells.append(work.wanted())
    cells.append("" if of_bare is None else f"{of_bare:.2f}" if of_bare < 10 else _number(of_bare))
    return _line((name, *cells, result.verdict()))


def grouped(n: int) -> str:
    """10000 as `10 000`."""
    return f"{n:,}".replace(",", " ")


def _number(value: float) -> str:
    return grouped(round(value)) if value >= 100 else f"{value:.1f}" if value >= 1 or not value else f"{value:.2f}"


def _line(cells: tuple[str, ...]) -> str:
    padded = [
        cell.ljust(width) if at in (0, 5, 7) else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    ]
    return f"| {' | '.join(padded)} |"
