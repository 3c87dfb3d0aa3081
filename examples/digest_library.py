"""Digest some hundreds of real files in parallel, in a script that may be killed at any moment and run again.

The files are the modules of Python's own standard library. Run it, stop it with Ctrl-C (or kill -9) half-way, and run
it again: it goes on with the files that are left.

    $ python examples/digest_library.py
    …
    400 files, … lines, … definitions: 400 digested now, 0 found in the database
    …

After a kill half-way, the last line of the next run says something like `181 digested now, 219 found in the database`.
Two arguments take so many files at most, of another folder: `python examples/digest_library.py 50 my/project`.

Runs are kept in `examples/.flowfn/flows.db`, or where FLOWFN_DB says.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flowfn import entrypoint, record, task

SKIPPED = {"site-packages", "test", "tests", "__pycache__"}
digested_now: list[str] = []


@dataclass(frozen=True)
class Digest:
    path: str
    sha256: str
    lines: int
    definitions: int


def source_files(folder: str, limit: int) -> list[str]:
    def found() -> Iterator[Path]:
        for path in sorted(Path(folder).rglob("*.py")):
            if SKIPPED.isdisjoint(path.relative_to(folder).parts):
                yield path

    return [str(path) for path, _ in zip(found(), range(limit), strict=False)]


@task
def digest(path: str) -> Digest:
    digested_now.append(path)
    source = Path(path).read_bytes()
    body = ast.parse(source).body
    definitions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in body)
    return Digest(path, hashlib.sha256(source).hexdigest(), source.count(b"\n"), definitions)


@entrypoint
def digest_library(folder: str, limit: int) -> list[Digest]:
    # Recorded: the run goes on with the files it began with, whatever came or went meanwhile.
    paths = record(source_files, folder, limit)
    digests = []
    for done in digest.map(paths):
        digests.append(done)
        if len(digests) % 50 == 0:
            print(f"{len(digests)} of {len(paths)} files", flush=True)
    return digests


def main(limit: str = "400", folder: str = sysconfig.get_path("stdlib")) -> None:
    digests = digest_library.run(folder, int(limit))
    lines = sum(one.lines for one in digests)
    definitions = sum(one.definitions for one in digests)
    stored = len(digests) - len(digested_now)
    print(
        f"{len(digests)} files, {lines:,} lines, {definitions:,} definitions: "
        f"{len(digested_now)} digested now, {stored} found in the database"
    )
    for one in sorted(digests, key=lambda one: one.lines, reverse=True)[:5]:
        print(f"  {one.lines:>6,} lines  {one.sha256[:12]}  {Path(one.path).relative_to(folder)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
