"""Count on from day to day: each run sees what the one before has saved.

    $ python examples/day_counter.py 12
    day 1: 12 visitors, 12 since the beginning
    $ python examples/day_counter.py 30
    day 2: 30 visitors, 42 since the beginning

Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB says.
"""

import sys
from typing import NamedTuple

from flowfn import entrypoint, task


class Tally(NamedTuple):
    days: int = 0
    visitors: int = 0


@task
def checked(visitors: int) -> int:
    if visitors < 0:
        raise ValueError(f"{visitors} visitors")
    return visitors


@entrypoint
def count_day(visitors: int, *, previous: Tally | None = None) -> entrypoint.final[str, Tally]:
    before = Tally() if previous is None else previous
    today = checked(visitors).result()
    tally = Tally(before.days + 1, before.visitors + today)
    line = f"day {tally.days}: {today} visitors, {tally.visitors} since the beginning"
    return entrypoint.final(value=line, save=tally)


def main(visitors: str = "1") -> None:
    counter = count_day.thread("front-door")
    # A new run each day; `run` would give the stored line when two days in a row have as many visitors.
    print(counter.start(int(visitors)).result())


if __name__ == "__main__":
    main(*sys.argv[1:])
