"""Each day another process; each run sees what the last finished one has saved."""

from __future__ import annotations


def test_the_days_add_up(run):
    printed = [run("day_counter.py", str(visitors)).strip() for visitors in (12, 30, 30)]

    assert printed == [
        "day 1: 12 visitors, 12 since the beginning",
        "day 2: 30 visitors, 42 since the beginning",
        "day 3: 30 visitors, 72 since the beginning",
    ]


def test_a_day_that_failed_does_not_count(run, start):
    # given
    run("day_counter.py", "12")

    # when
    process = start("day_counter.py", "-1")
    _, told = process.communicate()

    # then
    assert process.returncode != 0
    assert "ValueError: -1 visitors" in told
    assert run("day_counter.py", "30").strip() == "day 2: 30 visitors, 42 since the beginning"
