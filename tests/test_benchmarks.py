"""The harness measures what it says, on tiny sizes. Nothing here asks how fast anything is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from benchmarks import bare, flows, graphs
from benchmarks.__main__ import main
from benchmarks.harness import Entrant, Result, Sizes, Trials, Work, cpu, cpu_of_all, head, line, reported, run
from benchmarks.libraries import FLOWFN, LANGGRAPH, Library
from benchmarks.trials import (
    APPENDS,
    LongRun,
    answers,
    append_bytes,
    append_cpu,
    asked,
    awaited_on_sqlite,
    bytes_on_sqlite,
    each,
    filled,
    fresh,
    in_memory,
    on_sqlite,
    questions,
    replay,
)
from benchmarks.works import all_works

TINY = Sizes(3, 3, 3)


def noting(name: str, notes: list[str]) -> Entrant:
    """An entrant that reports its own name's length, and notes when it was prepared and run."""

    def trials(n: int) -> Trials:
        try:
            while True:
                notes.append(f"{name} prepared")
                yield partial(_note, name, notes)
        finally:
            notes.append(f"{name} closed")

    return Entrant(trials)


def _note(name: str, notes: list[str]) -> int:
    notes.append(f"{name} ran")
    return len(name)


def test_entrants_take_turns_after_a_warm_up_and_are_closed() -> None:
    notes: list[str] = []
    work = Work("w", TINY, flowfn=noting("B", notes), langgraph=noting("A", notes), measure=reported)

    result = run(work, "quick", rounds=2)

    assert result.medians == {"langgraph": 1, "flowfn": 1}
    turn = ["A prepared", "A ran", "B prepared", "B ran"]
    warm_up = ["A prepared", "A ran", "A closed", "B prepared", "B ran", "B closed"]
    assert notes == [*warm_up, *turn, *turn, "A closed", "B closed"]


@pytest.mark.parametrize(
    ("medians", "verdict"),
    [
        ({"langgraph": 80.0, "flowfn": 2.0, "bare": 1.0}, "ok"),
        ({"langgraph": 79.0, "flowfn": 2.0, "bare": 1.0}, "missed"),
        ({"langgraph": 800.0, "flowfn": 3.0, "bare": 1.0}, "missed"),
        ({"langgraph": 8000.0, "flowfn": 11.0, "bare": 10.0}, "missed"),
    ],
)
def test_a_row_is_ok_when_it_meets_all_that_was_wanted(medians: dict[str, float], verdict: str) -> None:
    work = Work("w", TINY, noting("B", []), faster=40, of_bare=2.5, at_most=10)
    assert Result(work, "quick", medians).verdict() == verdict


def test_a_work_that_fails_leaves_the_others_their_turn() -> None:
    def trials(n: int) -> Trials:
        raise ValueError("broken")
        yield

    result = run(Work("w", TINY, Entrant(trials)), "quick", rounds=1)

    assert result.verdict() == "failed"
    assert "ValueError: broken" in line(result)


def test_a_line_says_at_how_many_langgraph_was_measured() -> None:
    other = replace(noting("A", []), sizes=Sizes(1, 300, 1_000))
    work = Work("fan-out of {n}", Sizes(1, 1_000, 1_000), noting("B", []), other, faster=80)

    row = line(Result(work, "normal", {"langgraph": 1_234.0, "flowfn": 12.0}))

    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        *("fan-out of 1 000", "1 234 µs (at 300)", "12.0 µs", "", "103 ×", "≥ 80 ×", "", "ok"),
    ]
    assert len(head().splitlines()[0]) == len(row)


@pytest.mark.parametrize("library", [LANGGRAPH, FLOWFN], ids=["langgraph", "flowfn"])
@pytest.mark.parametrize(
    ("make", "result"),
    [
        (flows.no_task, 3),
        (flows.in_turn, 3),
        (flows.fan_out, 6),
        (flows.returns([1, 2]), 6),
        (graphs.loop, 0),
        (graphs.sends, 6),
        (graphs.grows, ["item 3", "item 2", "item 1"]),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_flow_does_the_same_in_both_libraries(library: Library, make: flows.MakeFlow, result: Any) -> None:
    assert make(library, library.memory()).invoke(3, fresh()) == result


@pytest.mark.parametrize("library", [LANGGRAPH, FLOWFN], ids=["langgraph", "flowfn"])
@pytest.mark.parametrize(("make", "result"), [(flows.in_turn_awaited, 3), (flows.fan_out_awaited, 6)])
async def test_an_awaited_flow_does_the_same_in_both(library: Library, make: flows.MakeFlow, result: Any) -> None:
    assert await make(library, library.memory()).ainvoke(3, fresh()) == result


def test_a_task_that_calls_one_does() -> None:
    assert flows.fan_out_of_callers(FLOWFN, FLOWFN.memory()).invoke(3, fresh()) == 6


@pytest.mark.parametrize("library", [LANGGRAPH, FLOWFN], ids=["langgraph", "flowfn"])
def test_every_way_to_run_a_flow_can_be_measured_again_and_again(library: Library) -> None:
    entrants: list[Callable[[], Entrant]] = [
        lambda: on_sqlite(library, flows.in_turn),
        lambda: awaited_on_sqlite(library, flows.in_turn_awaited),
        lambda: replay(library),
        lambda: in_memory(library, flows.no_task, use=each),
        lambda: on_sqlite(library, flows.asks, use=asked),
        lambda: answers(library),
        lambda: questions(library),
        lambda: in_memory(library, graphs.loop),
        lambda: on_sqlite(library, graphs.sends),
        lambda: append_cpu(library, "memory"),
        lambda: append_cpu(library, "SQLite", is_filled=False),
        lambda: append_bytes(library),
    ]
    for entrant in entrants:
        assert run(Work("w", TINY, entrant()), "quick", rounds=2).failed == ""


def test_bytes_on_disk_are_those_that_the_calls_added() -> None:
    work = Work("w", Sizes(300, 0, 0), bytes_on_sqlite(FLOWFN, flows.in_turn), bare=bare.commit_bytes(), once=True)
    medians = run(replace(work, measure=reported), "quick", rounds=1).medians
    assert all(0 < number < 2_000 for number in medians.values())


@pytest.mark.parametrize("library", [LANGGRAPH, FLOWFN], ids=["langgraph", "flowfn"])
def test_a_unit_of_a_loop_is_a_super_step(library: Library) -> None:
    saver, config = library.memory(), fresh()
    loop = graphs.loop(library, saver)

    loop.invoke(5, config)

    assert [state.metadata["step"] for state in loop.graph.get_state_history(config)] == [5, 4, 3, 2, 1, 0, -1]


@pytest.mark.parametrize("library", [LANGGRAPH, FLOWFN], ids=["langgraph", "flowfn"])
def test_what_appends_sees_a_list_that_was_filled_off_the_clock(library: Library) -> None:
    append = filled(library, library.memory(), 1_000)
    assert len(append()["items"]) == 1_000 + 1 + APPENDS


def test_a_super_step_that_appends_reports_its_own_cost() -> None:
    work = Work("w", Sizes(300, 0, 0), append_cpu(FLOWFN, "memory"), append_bytes(FLOWFN), measure=reported)
    medians = run(work, "quick", rounds=1).medians
    assert 0 < medians["flowfn"] < 100_000
    assert 0 < medians["langgraph"] < 20_000


def test_a_long_run_reports_its_first_and_its_last_calls() -> None:
    long = LongRun(FLOWFN, in_memory)
    medians = run(Work("w", TINY, long.last(), bare=long.first(), measure=reported), "quick", rounds=1).medians
    assert all(number > 0 for number in medians.values())


def test_the_cpu_of_all_units_is_in_milliseconds() -> None:
    def burn() -> None:
        enough = cpu() + 0.02
        while cpu() < enough:
            pass

    assert 20 <= cpu_of_all(burn, 1_000) < 200


def test_the_rows_are_named_apart() -> None:
    names = [work.name.format(n=work.sizes.normal) for work in all_works()]
    assert len(set(names)) == len(names)


def test_the_command_prints_the_chosen_rows(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "replay of 10 "])

    printed = capsys.readouterr().out.splitlines()
    rows = [row for row in printed if row.startswith("| replay of 10 finished calls, memory")]
    assert len(rows) == 1
    assert len([row for row in printed if row.startswith("|")]) == 3
    assert "0 failed" in printed[-1]
