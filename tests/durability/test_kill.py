"""Processes that are killed at random moments: what was seen is never computed again, and flows come to their ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("killing.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_flows_survive_kill_9_at_random_moments(durability):
    # when: processes of every shape of flow are killed, again and again
    rounds = {"sync": 14, "async": 6, "exit": 3}[durability]
    arguments = ["--rounds", str(rounds), "--durability", durability, "--brisk"]
    killing = subprocess.run(
        [sys.executable, str(HARNESS), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    # then
    assert killing.returncode == 0, killing.stdout + killing.stderr
    assert " 0 rounds wrong" in killing.stdout
    assert durability != "sync" or " kills" in killing.stdout  # fewer rounds may all end before they are killed
