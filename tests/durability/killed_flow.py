"""The process that `test_kill.py` kills: `python killed_flow.py <shape> <folder>` runs one flow on SQLite.

Every attempt at a task appends `ran <task> <argument>` to `log`, and every result the flow sees `saw …`: each in one
write, so that what was there before the kill stays. The result is printed at the end.
"""

import os
import sys
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
def step(x):
    note("ran", "step", x)
    time.sleep(0.003)
    return x * 10


@task
async def astep(x):
    note("ran", "astep", x)
    return x * 10


@task
def whole(x):
    note("ran", "whole", x)
    first = step(x).result()
    note("saw", "step", x)
    return first + step(x + 100).result()


@entrypoint(checkpointer=saver)
def sequence(n):
    total = 0
    for x in range(n):
        total += step(x).result()
        note("saw", "step", x)
    return total


@entrypoint(checkpointer=saver)
def fan_out(n):
    total = 0
    for x, value in enumerate(step.map(range(n))):
        note("saw", "step", x)
        total += value
    return total


@entrypoint(checkpointer=saver)
async def awaited(n):
    total = 0
    for x, value in enumerate(await astep.map(range(n))):
        note("saw", "astep", x)
        total += value
    for x in range(n, 2 * n):
        total += await astep(x)
        note("saw", "astep", x)
    return total


@entrypoint(checkpointer=saver)
def nested(n):
    futures = [whole(x) for x in range(n)]
    total = 0
    for x, future in enumerate(futures):
        total += future.result()
        note("saw", "whole", x)
    return total


@entrypoint
def inner(n):
    total = 0
    for x in range(n):
        total += step(x).result()
        note("saw", "step", x)
    return total


@entrypoint(checkpointer=saver)
def nested_flow(n):
    return inner.invoke(n)


if __name__ == "__main__":
    flow = globals()[shape]
    config = {"thread_id": "t"}
    value = flow.invoke(None if saver.runs("t") else 12, config)
    print(value)
