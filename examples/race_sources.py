"""Ask two sources at once, take the answer that comes first, and cancel the other one.

Which one won is remembered: the second time the same run gives the same answer, and asks nobody.

    $ python examples/race_sources.py
    asking north for rates
    asking south for rates
    north was cancelled
    first: south, 1.09
    and again, from the database: south, 1.09

Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB says.
"""

import asyncio
from uuid import uuid4

from flowfn import entrypoint, task, wait

# Stand-ins for two servers: how long each takes, and what it says.
SOURCES = {"north": (30.0, 1.08), "south": (0.05, 1.09)}


@task
async def ask(source: str, what: str) -> tuple[str, float]:
    print(f"asking {source} for {what}")
    seconds, value = SOURCES[source]
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print(f"{source} was cancelled")
        raise
    return source, value


@entrypoint
async def fastest(what: str) -> tuple[str, float]:
    asked = [ask(source, what) for source in SOURCES]
    [first], others = await wait(asked, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    return await first


async def main() -> None:
    thread = fastest.thread(f"rates-{uuid4()}")
    source, rate = await thread.arun("rates")
    print(f"first: {source}, {rate}")
    source, rate = await thread.arun("rates")
    print(f"and again, from the database: {source}, {rate}")


if __name__ == "__main__":
    asyncio.run(main())
