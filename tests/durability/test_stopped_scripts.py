"""Scripts that are told to stop at random moments lose nothing that had finished, repeat nothing, and never hang.

`FLOWFN_ROUNDS=100` stops each kind of script so often; by default a few times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from flowfn.checkpoint import SqliteSaver

SCRIPT = Path(__file__).with_name("stopped_flow.py")
ROUNDS = int(os.environ.get("FLOWFN_ROUNDS", "2"))
N = 40
SHAPES = {
    "sequence": sum(10 * x for x in range(N)),
    "fan_out": sum(10 * x for x in range(N)),
    "coroutines": sum(10 * x for x in range(N)),
    "async coroutines": sum(10 * x for x in range(N)),
    "nested": sum(10 * x + 10 * (x + 100) for x in range(N)),
    "nested_flow": sum(10 * x for x in range(N)),
}
PAUSED = 75
INTERRUPTED = {-signal.SIGINT, -signal.SIGTERM, 130}
"""How a script ends that is told to stop before its run has begun, or after it."""

pytestmark = [
    pytest.mark.timeout(60 + 5 * ROUNDS),
    pytest.mark.skipif(sys.platform == "win32", reason="sends signals"),
]


class Script:
    """A process of `stopped_flow.py`."""

    def __init__(self, shape: str, folder: Path, n: int = N, **environment: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), shape, str(folder), str(n)],
            env={**os.environ, "FLOWFN_GRACE": "20", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def until(self, count: int) -> bool:
        """Wait for so many lines of the log; False when the process has ended before."""
        while len(self.lines()) < count:
            if self.process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    def told(self, number: int, after: float = 0.0) -> None:
        time.sleep(after)
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        printed, told = self.process.communicate(timeout=20)
        return self.process.returncode, printed, told


@pytest.mark.parametrize("shape", SHAPES)
def test_what_had_begun_is_finished_and_stored_whenever_a_script_is_told_to_stop(shape, tmp_path):
    chance = random.Random(f"{shape} {ROUNDS}")
    pauses = rounds = ends = 0
    code = PAUSED
    while rounds < ROUNDS or code != 0:
        # given: a script that goes on with what the ones before have left
        folder = tmp_path / str(ends)
        folder.mkdir(exist_ok=True)
        script = Script(shape, folder)

        # when: it is told to stop at some moment
        if rounds < ROUNDS and script.until(len(script.lines()) + chance.randrange(1, 30)):
            script.told(chance.choice([signal.SIGINT, signal.SIGTERM]), after=chance.random() * 0.006)
        rounds += 1
        code, printed, told = script.end()

        # then: nothing ran that had run before, in whichever process
        is_paused = code == PAUSED or "FlowPaused" in told
        pauses += is_paused
        assert is_paused or code in {0, *INTERRUPTED}, told
        counts = Counter(script.lines())
        assert {line: times for line, times in counts.items() if line.startswith("ran") and times > 1} == {}
        assert code != 0 or int(printed) == SHAPES[shape]
        ends += status(folder) == "finished"  # it may have been told as it ended
    assert pauses


@pytest.mark.parametrize("shape", ["stubborn", "async awaiting", "awaiting"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_what_does_not_end_is_left_when_the_grace_time_is_over(shape, number, tmp_path):
    # given
    script = Script(shape, tmp_path, 7, FLOWFN_GRACE="0.1")
    assert script.until(3 if shape == "stubborn" else 2)

    # when
    script.told(number, after=0.05)
    code, _, told = script.end()

    # then
    assert code == PAUSED or "FlowPaused" in told, told
    assert status(tmp_path) == "paused"
    (tmp_path / "let_go").touch()
    code, printed, told = Script(shape, tmp_path, 7).end()
    assert (code, printed) == (0, "70\n"), told
    assert Counter(script.lines())["ran astep 7"] + Counter(script.lines())["ran step 7"] == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_second_signal_ends_a_script_at_once_and_the_next_one_goes_on(number, code, tmp_path):
    # given
    script = Script("stubborn", tmp_path, 7)
    assert script.until(3)

    # when
    script.told(number)
    script.told(number, after=0.5)
    began = time.monotonic()
    ended, _, told = script.end()

    # then
    assert ended == code, told
    assert time.monotonic() - began < 5
    (tmp_path / "let_go").touch()
    assert Script("stubborn", tmp_path, 7).end()[:2] == (0, "70\n")
    assert Counter(script.lines())["ran step 7"] == 1


def status(folder: Path) -> str:
    saver = SqliteSaver(folder / "flows.db")
    threads = saver.threads()
    saver.close()
    return threads[0].status if threads else "new"
