"""Questions are asked at the terminal where there is one and nobody has said no; real processes on pseudo-terminals."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")
pytestmark = pytest.mark.timeout(30)

SCRIPT = """
import sys
from typing import Literal
from flowfn import entrypoint, interrupt, task

@task
def pay(how):
    print("paid by", how)

@entrypoint
def bill(order: int):
    pay(interrupt("How?", response_schema=Literal["card", "cash"])).result()
    return "done"

if __name__ == "__main__":
    if "handle" in sys.argv:
        print(bill.thread("t", ask=eval(sys.argv[2])).run(7))
    else:
        bill.main()
"""


class Terminal:
    """A script whose input and messages are a terminal, so that Ctrl-C can be typed; what it prints is apart."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        script = folder / "bill.py"
        script.write_text(SCRIPT, "utf-8")
        self._shown, self._fd, other = "", *pty.openpty()
        kept = {name: value for name, value in os.environ.items() if name != "FLOWFN_ASK"}
        own = {"FLOWFN_DB": str(folder / "flows.db"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(script), *words],
            env={**kept, **own, **environment},
            stdin=other,
            stdout=subprocess.PIPE,
            stderr=other,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(0),
        )
        os.close(other)

    def shows(self, text: str) -> str:
        """Wait until the terminal has shown the text; gives all that it has shown."""
        give_up = time.monotonic() + 15
        while text not in self._shown:
            assert time.monotonic() < give_up, self._shown
            if select.select([self._fd], [], [], 0.1)[0]:
                self._shown += os.read(self._fd, 1000).decode()
        return self._shown

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ends(self) -> tuple[int, str]:
        """Its exit code, and what it printed."""
        printed, _ = self.process.communicate(timeout=15)
        os.close(self._fd)
        return self.process.returncode, printed


def _take_terminal(fd: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def test_a_question_is_asked_at_the_terminal_until_its_answer_is_accepted(tmp_path):
    # given
    terminal = Terminal(tmp_path, "7")

    # when
    terminal.shows("How?\r\n> ")
    terminal.types("gold\n")
    terminal.shows("was refused")
    terminal.types("cash\n")

    # then
    assert terminal.ends() == (0, "paid by cash\ndone\n")


@pytest.mark.parametrize(
    ("words", "environment", "code"),
    [(["7"], {"FLOWFN_ASK": "0"}, 3), (["handle", "False"], {}, 1), (["handle", "None"], {"FLOWFN_ASK": "0"}, 1)],
    ids=["FLOWFN_ASK=0", "ask=False", "a handle and FLOWFN_ASK=0"],
)
def test_no_question_is_asked_where_somebody_has_said_so(words, environment, code, tmp_path):
    terminal = Terminal(tmp_path, *words, **environment)

    shown = terminal.shows("waits")

    assert "> " not in shown
    assert terminal.ends() == (code, "")


def test_ask_wins_over_the_environment(tmp_path):
    terminal = Terminal(tmp_path, "handle", "True", FLOWFN_ASK="0")

    terminal.shows("> ")
    terminal.types("card\n")

    assert terminal.ends() == (0, "paid by card\ndone\n")


def test_without_a_terminal_the_command_that_answers_is_told(tmp_path):
    # given
    (tmp_path / "bill.py").write_text(SCRIPT, "utf-8")
    kept = {name: value for name, value in os.environ.items() if name != "FLOWFN_ASK"}
    command = [sys.executable, str(tmp_path / "bill.py"), "7"]

    def ran(*more: str) -> subprocess.CompletedProcess[str]:
        own = {"FLOWFN_DB": str(tmp_path / "flows.db")}
        return subprocess.run([*command, *more], env={**kept, **own}, input="", capture_output=True, text=True)

    # when
    waiting = ran()

    # then
    assert waiting.returncode == 3
    assert waiting.stderr.rstrip().endswith(f"Answer with: {' '.join(command)} --answer VALUE")
    assert ran("--answer", "card").stdout == "paid by card\ndone\n"


@pytest.mark.parametrize(("typed", "code"), [("\x03", 130), ("\x04", 3)], ids=["Ctrl-C", "Ctrl-D"])
def test_a_question_that_gets_no_answer_stays_open(typed, code, tmp_path):
    # given
    terminal = Terminal(tmp_path, "7")
    terminal.shows("> ")

    # when
    terminal.types(typed)

    # then
    assert terminal.ends() == (code, "")
    again = Terminal(tmp_path, "7")
    again.shows("> ")
    again.types("card\n")
    assert again.ends() == (0, "paid by card\ndone\n")
