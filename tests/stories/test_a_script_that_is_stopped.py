"""A nightly job is stopped in every way there is, and started again by the same command until it is done."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from flowfn.checkpoint import SqliteSaver

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform == "win32", reason="sends signals"),
]

COMMAND = ("nightly_job.py", "2026-11-30")
REPORT = "30 Nov: 2,509 sold in 4 shops"


def told_after(process: subprocess.Popen[str], line: str, number: int) -> tuple[list[str], str]:
    """What a process has printed and told people that is sent a signal as soon as it has printed a line."""
    printed = []
    for shown in process.stdout:
        printed.append(shown.rstrip())
        if printed[-1] == line:
            process.send_signal(number)
            break
    rest, told = process.communicate()
    return [*printed, *rest.splitlines()], told


def test_a_job_that_is_stopped_in_every_way_reads_no_till_twice(start, run, database):
    # Somebody presses Ctrl-C while a till is read: that is let finish.
    process = start(*COMMAND)
    printed, told = told_after(process, "read the till of Oslo", signal.SIGINT)
    assert process.returncode == 75
    assert printed == ["read the till of Oslo"]
    [*_, pauses, last] = told.splitlines()
    assert pauses.startswith("flowfn pauses `nightly` on thread")
    assert last.endswith(f"Go on with: {sys.executable} {process.args[1]} 2026-11-30")

    # The machine is shut down.
    process = start(*COMMAND)
    printed, _ = told_after(process, "read the till of Lima", signal.SIGTERM)
    assert process.returncode == 75
    assert printed == ["read the till of Lima"]
    assert SqliteSaver(database).threads()[0].status == "paused"

    # The power fails.
    process = start(*COMMAND)
    printed, _ = told_after(process, "read the till of Quito", signal.SIGKILL)
    assert printed == ["read the till of Quito"]

    # What is left is done, and what was under way when the power failed.
    assert run(*COMMAND).splitlines() == ["read the till of Quito", "read the till of Bern", REPORT]


def test_a_command_that_is_typed_while_the_job_runs_is_told_who_runs_it(start):
    # given
    process = start(*COMMAND, "--thread", "tonight")
    assert process.stdout.readline() == "read the till of Oslo\n"

    # when
    second = start(*COMMAND, "--thread", "tonight")
    printed, told = second.communicate()

    # then
    assert (second.returncode, printed) == (4, "")
    assert "Thread `tonight` is being run by" in told
    assert process.communicate()[0].splitlines()[-1] == REPORT
