"""The command: `python -m benchmarks [--quick | --full] [--rounds N] [name …]` prints the table."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version

from benchmarks.harness import Scale, Work, head, line, run
from benchmarks.works import all_works

ROUNDS: dict[Scale, int] = {"quick": 1, "normal": 5, "full": 5}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the works whose names have one of the given words in them, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="LangGraph, flowfn and the bare limit.")
    parser.add_argument("names", nargs="*", help="only rows with one of these words in their name")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: shows that it works")
    parser.add_argument("--full", action="store_true", help="LangGraph at 10 000, flowfn at 100 000")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    options = parser.parse_args(arguments)
    scale: Scale = "quick" if options.quick else "full" if options.full else "normal"
    works = [work for work in all_works() if is_chosen(work, scale, options.names)]
    if options.list:
        print("\n".join(work.name.format(n=work.sizes.at(scale)) for work in works))
        return
    began = time.monotonic()
    print(machine(), head(), sep="\n\n", flush=True)
    verdicts = []
    for work in works:
        result = run(work, scale, options.rounds or ROUNDS[scale])
        verdicts.append(result.verdict())
        print(line(result), flush=True)
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("ok", "missed", "failed"))
    print(f"\n{counts}; {time.monotonic() - began:.0f} s, load {load()}")


def is_chosen(work: Work, scale: Scale, names: Sequence[str]) -> bool:
    name = work.name.format(n=work.sizes.at(scale)).lower()
    return not names or any(word.lower() in name for word in names)


def machine() -> str:
    """Where and on what the numbers were taken."""
    return (
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"LangGraph {version('langgraph')}, flowfn {version('flowfn')}, load {load()}"
    )


def load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


if __name__ == "__main__":
    main()
