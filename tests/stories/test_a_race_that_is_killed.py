"""Two sources race; the process is killed after the flow has seen who won."""

from __future__ import annotations

RACE = """
import asyncio, sys
from flowfn import entrypoint, task, wait

DELAYS = dict(zip(["north", "south"], map(float, sys.argv[1:3])))

@task
async def ask(source: str) -> str:
    await asyncio.sleep(DELAYS[source])
    return source

@task
async def deliver(winner: str) -> str:
    if sys.argv[3] == "hang":
        print("delivering", winner)
        await asyncio.Event().wait()
    return f"delivered {winner}"

@entrypoint
async def race(day: str) -> str:
    [first], others = await wait([ask("north"), ask("south")], return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    return await deliver(await first)

if __name__ == "__main__":
    print(asyncio.run(race.thread("t").arun("monday")))
"""


def test_the_winner_stays_the_winner(start, run, tmp_path):
    # given: south won, and the process was killed while it delivered
    (tmp_path / "race.py").write_text(RACE, "utf-8")
    process = start("race.py", "600", "0", "hang")
    assert process.stdout.readline() == "delivering south\n"
    process.kill()
    process.communicate()

    # when: the next process goes on where north would be faster
    printed = run("race.py", "0", "0.2", "go")

    # then
    assert printed == "delivered south\n"


def test_the_example_gives_the_same_winner_twice(run):
    printed = run("race_sources.py").splitlines()

    assert printed.count("asking north for rates") == printed.count("asking south for rates") == 1
    assert printed[-2:] == ["first: south, 1.09", "and again, from the database: south, 1.09"]
