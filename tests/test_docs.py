"""Every block of code in README, docs and examples runs, and says what the page says it says.

In a page, a block marked `python` runs: all such blocks of a page are one script, in order. One marked with a file
name, `python bill.py`, is written to that file. A `console` block is a session: its `$ python …` lines run, one after
another, and print what follows them; `…` stands for anything, `Killed` for a kill -9 as soon as the lines above it are
there. `python no-run: reason` is for what cannot run. Examples tell their sessions in their docstrings.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOT_RUN = ("python3 -m venv ", "pip install ", "bash .ci/run", ".ci/run", "python docs/")

pytestmark = pytest.mark.timeout(120)


def called(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Block(NamedTuple):
    mark: str
    line: int
    text: str


def blocks(page: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", page, re.MULTILINE):
        yield Block(found[1].strip(), page[: found.start(2)].count("\n"), found[2])


class Command(NamedTuple):
    words: list[str]
    printed: list[str]


def commands(session: str) -> Iterator[Command]:
    """The commands of a session that are to be run, each with the lines that follow it."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        line, *printed = part.rstrip().split("\n")
        if not line.startswith(NOT_RUN):
            yield Command(shlex.split(line, comments=True), printed)


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOWFN_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "FLOWFN_ASK": "0", **more}


def follow(command: Command, folder: Path, **more: str) -> None:
    """Run a command of a session, and compare what it prints."""
    python, *arguments = command.words
    assert python == "python", f"{command.words} is neither run nor known as one that is not"
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    printed = list(command.printed)
    is_killed = printed[-1:] == ["Killed"]
    if is_killed:
        del printed[-1]
    # Every process tells where it keeps runs; a page shows the line once.
    tells_where = any("flowfn keeps runs in" in line for line in printed)
    lines: list[str] = []
    with process:
        for line in process.stdout:
            if tells_where or not line.startswith("flowfn keeps runs in"):
                lines.append(line.rstrip())
            if is_killed and is_like(printed, lines):
                process.kill()
                break
    assert is_like(printed, lines), "\n".join(["the page says:", *printed, "it printed:", *lines])


def is_like(shown: list[str], lines: list[str]) -> bool:
    """Whether lines are as shown, `…` standing for anything; a line of nothing else, for any lines."""
    parts = ["(.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n" for line in shown]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in lines)) is not None


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_a_page_tells_the_truth(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script: list[str] = []
    for block in blocks(page.read_text("utf-8")):
        language, _, rest = block.mark.partition(" ")
        if language == "console":
            for command in commands(block.text):
                about = {"FLOWFN_DB": str(tmp_path / "examples.db")} if "examples" in command.words[1] else {}
                follow(command, tmp_path, **about)
        elif language == "python" and rest.startswith("no-run"):
            assert re.fullmatch(r"no-run: .+", rest), f"{called(page)}:{block.line} does not say why it cannot run"
        elif language == "python" and rest:
            (tmp_path / rest).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / rest).write_text(block.text, "utf-8")
        elif language == "python":
            # Each line of the script has the number that it has in the page.
            script += [""] * (block.line - len(script)) + block.text.split("\n")[:-1]
    if script:
        (tmp_path / "page.py").write_text("\n".join(script), "utf-8")
        run = [sys.executable, "page.py"]
        done = subprocess.run(
            run, cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{called(page)} as page.py:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("example", EXAMPLES, ids=called)
def test_an_example_prints_what_its_docstring_says(example: Path, tmp_path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(example.read_text("utf-8")))
    assert docstring is not None
    session = "\n".join(line[4:] for line in docstring.split("\n") if line.startswith("    "))
    told = list(commands(session))
    assert told
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command in told:
        follow(command, tmp_path, FLOWFN_DB=str(tmp_path / "flows.db"))


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))
    files = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [file for file in files if not (page.parent / file).exists()] == []


def test_the_reference_is_what_the_docstrings_say() -> None:
    build = [sys.executable, str(ROOT / "docs" / "reference" / "build.py"), "--check"]
    done = subprocess.run(build, env=environment(ROOT), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_docs_never_test_a_bare_answer_for_truth() -> None:
    """A text answer "no" is true."""
    texts = {called(path): path.read_text("utf-8") for path in [*PAGES, *EXAMPLES]}
    assert [
        name for name, text in texts.items() if re.search(r"\b(if|while|assert|not)\s+(await\s+)?interrupt\(", text)
    ] == []
