"""The process that `test_stopped_scripts.py` stops: `python stopped_flow.py <shape> <folder> <n>`, a flow on SQLite.

Every attempt at a task appends `ran <task> <argument>` to `log` in the folder, and every result the flow sees `saw …`:
each in one write.
"""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

from flowfn import entrypoint, task
from flowfn.checkpoint.sqlite import SqliteSaver

shape, folder = sys.argv[1], Path(sys.argv[2])
log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
saver = SqliteSaver(folder / "flows.db")


def note(what, task, x):
    os.write(log, f"{what} {task} {x}\n".encode())


@task
def step(x: int) -> int:
    note("ran", "step", x)
    time.sleep(0.004)
    return x * 10


@task
async def astep(x: int) -> int:
    note("ran", "astep", x)
    await asyncio.sleep(0.004)
    return x * 10


@task
def whole(x: int) -> int:
    first = step(x).result()
    note("saw", "step", x)
    return first + step(x + 100).result()


@entrypoint(checkpointer=saver)
def sequence(n: int) -> int:
    total = 0
    for x in range(n):
        total += step(x).result()
        note("saw", "step", x)
    return total


@entrypoint(checkpointer=saver)
def fan_out(n: int) -> int:
    total = 0
    for x, value in enumerate(step.map(range(n))):
        note("saw", "step", x)
        total += value
    return total


@entrypoint(checkpointer=saver)
async def coroutines(n: int) -> int:
    total = 0
    for x in range(0, n, 4):
        for y, value in enumerate(await astep.map(range(x, min(n, x + 4)))):
            note("saw", "astep", x + y)
            total += value
    return total


@entrypoint(checkpointer=saver)
def nested(n: int) -> int:
    total = 0
    for x, future in enumerate([whole(x) for x in range(n)]):
        total += future.result()
        note("saw", "whole", x)
    return total


@entrypoint
def inner(n: int) -> int:
    total = 0
    for x in range(n):
        total += step(x).result()
        note("saw", "step", x)
    return total


@entrypoint(checkpointer=saver)
def nested_flow(n: int) -> int:
    return inner.invoke(n)


@task(inline=False)
def endless(x: int) -> None:
    note("ran", "endless", x)
    threading.Event().wait(60)


@entrypoint(checkpointer=saver)
def stubborn(n: int) -> int:
    """Neither its task nor its own code ever ends, the first time."""
    value = step(n).result()
    note("saw", "step", n)
    if not (folder / "let_go").exists():
        endless(n)
        while True:
            sum(range(1000))
    return value


@entrypoint(checkpointer=saver)
async def awaiting(n: int) -> int:
    """Never ends, the first time, but for its loop's waiting."""
    value = await astep(n)
    note("saw", "astep", n)
    if not (folder / "let_go").exists():
        await asyncio.sleep(60)
    return value


if __name__ == "__main__":
    if shape.startswith("async "):
        print(asyncio.run(globals()[shape.removeprefix("async ")].arun(int(sys.argv[3]))))
    else:
        globals()[shape].main(sys.argv[3:])
