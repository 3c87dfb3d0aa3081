"""A process that is killed at any moment is gone on with by the next one; what the flow saw is never computed again."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_flow.py")
RESULTS = {
    "sequence": 660,
    "fan_out": 660,
    "awaited": sum(10 * x for x in range(24)),
    "nested": sum(10 * x + 10 * (x + 100) for x in range(12)),
    "nested_flow": 660,
}


def begun(shape, folder):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), shape, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines_of(folder):
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def killed_once_it_wrote(process, folder, count):
    """Kill -9 when the log has so many lines more; False when the process had ended before."""
    until = len(lines_of(folder)) + count
    while len(lines_of(folder)) < until:
        if process.poll() is not None:
            return False
        time.sleep(0.0005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return True


@pytest.mark.timeout(30)
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("shape", RESULTS)
def test_a_killed_process_is_gone_on_with(shape, count, tmp_path):
    # given: processes that are killed after every few lines
    kills = 0
    for _ in range(60):
        process = begun(shape, tmp_path)
        if not killed_once_it_wrote(process, tmp_path, count if kills < 4 else 10_000):
            break
        kills += 1

    # when: the last one is left alone
    out, err = process.communicate(timeout=20)

    # then
    assert process.returncode == 0, err
    assert int(out) == RESULTS[shape]
    lines = lines_of(tmp_path)
    seen = set()
    for line in lines:
        what, label = line.split(" ", 1)
        assert what == "saw" or label not in seen, f"`{label}` ran again after the flow had seen its result"
        if what == "saw":
            seen.add(label)
    ran = Counter(line for line in lines if line.startswith("ran"))
    assert all(times <= 1 + kills for times in ran.values())
    assert kills
