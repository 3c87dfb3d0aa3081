"""Processes of the examples, all on one database in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Started = subprocess.Popen[str]
Start = Callable[..., Started]
Run = Callable[..., str]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "flows.db"


@pytest.fixture
def start(database: Path, tmp_path: Path) -> Start:
    """Start a script with its arguments in a process of its own; examples by their name."""

    def started(script: str, *arguments: str) -> Started:
        path = ROOT / "examples" / script if (ROOT / "examples" / script).exists() else tmp_path / script
        own = {"FLOWFN_DB": str(database), "FLOWFN_ASK": "0", "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(
            [sys.executable, str(path), *arguments],
            env={**os.environ, **own, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


@pytest.fixture
def run(start: Start) -> Run:
    """Run a script to its end; gives what it printed."""

    def ran(script: str, *arguments: str) -> str:
        process = start(script, *arguments)
        printed, told = process.communicate()
        assert process.returncode == 0, told
        return printed

    return ran
