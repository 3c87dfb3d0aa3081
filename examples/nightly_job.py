"""A nightly job as a command. Stop it with Ctrl-C or SIGTERM, and the same command goes on with what is left.

What runs when it is told to stop is let finish and stored, so nothing is done twice. A second Ctrl-C stops it at once.

    $ python examples/nightly_job.py 2026-11-30
    read the till of Oslo
    read the till of Lima
    read the till of Quito
    read the till of Bern
    30 Nov: 2,509 sold in 4 shops
    $ python examples/nightly_job.py 2026-11-30 --dry-run --shops Oslo Bern
    read the till of Oslo
    read the till of Bern
    30 Nov: 1,373 sold in 2 shops (nothing was sent)
    $ python examples/nightly_job.py yesterday
    usage: nightly_job.py …
    …
    nightly_job.py: error: argument DAY: 'yesterday' is no date: …

`python examples/nightly_job.py --help` tells its arguments and exit codes: 75, for example, says that it was paused.

Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB says.
"""

import hashlib
import time
from datetime import date

from flowfn import entrypoint, task

SHOPS = ("Oslo", "Lima", "Quito", "Bern")


@task
def sold_in(shop: str, day: date) -> int:
    print(f"read the till of {shop}", flush=True)
    time.sleep(0.2)  # a slow till
    return int.from_bytes(hashlib.sha256(f"{shop} {day}".encode()).digest()[:2]) % 1000


@task
def send(report: str) -> None:
    time.sleep(0.1)  # a slow mailbox


@entrypoint
def nightly(day: date, *, shops: tuple[str, ...] = SHOPS, dry_run: bool = False) -> str:
    """Add up what the shops have sold on a day, and send the report."""
    sold = [sold_in(shop, day).result() for shop in shops]
    report = f"{day:%d %b}: {sum(sold):,} sold in {len(shops)} shops"
    if dry_run:
        return f"{report} (nothing was sent)"
    send(report).result()
    return report


if __name__ == "__main__":
    nightly.main()
