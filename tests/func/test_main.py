"""`flow.main()`: a flow as a command. Its arguments are read by their annotations; how it ended is the exit code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, TypedDict
from uuid import UUID

import pytest

from flowfn import approve, entrypoint, interrupt, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.errors import FlowPaused, FlowWaiting, StoreConflictError, ThreadBusyError
from tests.shown import shown


class Color(Enum):
    RED = 1
    DARK_BLUE = 2


@dataclass(frozen=True)
class Box:
    width: int
    height: int = 1


class Point(TypedDict):
    x: int


Meters = NewType("Meters", float)
NEEDED = object()


@pytest.fixture(autouse=True)
def _asks_nobody(monkeypatch):
    monkeypatch.setenv("FLOWFN_ASK", "0")


@pytest.fixture
def saver():
    return InMemorySaver()


def given(kind: Any, words: str, default: Any = NEEDED) -> Any:
    """What a flow is given by a command, for its one parameter `x` of that type."""
    got = []

    def flow(x):
        got.append(x)

    def flow_with_default(x=default):
        got.append(x)

    func = flow if default is NEEDED else flow_with_default
    if kind is not None:
        func.__annotations__["x"] = kind
    entrypoint(checkpointer=InMemorySaver(), name="flow")(func).main(shlex.split(words))
    return got[0]


def ended(flow: Any, words: str = "") -> Any:
    """The exit code of a command, 0 if it ends by itself."""
    try:
        flow.main(shlex.split(words))
    except SystemExit as end:
        return end.code
    return 0


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (str, "5", "5"),
        (str, "''", ""),
        (int, "5", 5),
        (int, "-- -5", -5),
        (float, "2.5e3", 2500.0),
        (Path, "a/b", Path("a/b")),
        (Decimal, "0.10", Decimal("0.10")),
        (date, "2026-11-30", date(2026, 11, 30)),
        (datetime, "2026-11-30T07:00Z", datetime(2026, 11, 30, 7, tzinfo=UTC)),
        (time, "07:30", time(7, 30)),
        (timedelta, "1h30m", timedelta(minutes=90)),
        (UUID, "12345678123456781234567812345678", UUID("12345678123456781234567812345678")),
        (Color, "DARK_BLUE", Color.DARK_BLUE),
        (Color, "1", Color.RED),
        (Literal["fast", 2, None], "2", 2),
        (Literal["fast", 2, None], "None", None),
        (int | None, "5", 5),
        (int | str, "5", 5),
        (str | int, "5", 5),
        (str | int, "five", "five"),
        (date | Decimal, "1.5", Decimal("1.5")),
        (Annotated[int, "seconds"], "5", 5),
        (Meters, "5", 5.0),
        (list[int], "1 2 3", [1, 2, 3]),
        (list, "1 two", [1, "two"]),
        (Sequence[date], "2026-11-30", [date(2026, 11, 30)]),
        (tuple[int, ...], "1 2", (1, 2)),
        (set[str], "a b a", {"a", "b"}),
        (frozenset[bool], "true false", frozenset([True, False])),
        (list[int] | None, "1 2", [1, 2]),
        (tuple[int, str], """'[1, "a"]'""", (1, "a")),
        (dict, """'{"a": [1]}'""", {"a": [1]}),
        (dict[str, int], """'{"a": 1}'""", {"a": 1}),
        (Box, """'{"width": 2}'""", Box(2)),
        (list[Box], """'{"width": 2}' '{"width": 3, "height": 4}'""", [Box(2), Box(3, 4)]),
        (Point, """'{"x": 1}'""", {"x": 1}),
        (Any, "'[1, 2]'", [1, 2]),
        (Any, "'some text'", "some text"),
        (None, "5", 5),
    ],
    ids=shown,
)
def test_an_argument_is_read_by_its_annotation(kind, words, value):
    got = given(kind, words)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        (int, "five", "'five' is no int"),
        (date, "2026-13-01", "'2026-13-01' is no date: month must be in 1..12"),
        (Decimal, "ten", "'ten' is no Decimal"),
        (timedelta, "soon", "'soon' is no timedelta"),
        (Color, "GREEN", "choose one of 1, 2, RED, DARK_BLUE"),
        (Literal["a", "b"], "c", "choose one of a, b"),
        (int | date, "five", "it fits none of them"),
        (list[int], "1 b", "'b' is no int"),
        (list[int], "", "required: X"),
        (dict, "[1]", "must be an object"),
        (Box, "[]", "must be an object"),
        (int, "1 2", "unrecognized arguments: 2"),
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_meant_is_refused_with_the_reason_and_exit_code_2(kind, words, said, capsys):
    with pytest.raises(SystemExit) as end:
        given(kind, words)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "default", "words", "value"),
    [
        (int, 3, "", 3),
        (int, 3, "--x 5", 5),
        (int, 3, "--x=-5", -5),
        (Path, "here", "", "here"),
        (Path, "here", "--x there", Path("there")),
        (bool, False, "", False),
        (bool, False, "--x", True),
        (bool, True, "--no-x", False),
        (bool | None, None, "--no-x", False),
        (int | None, None, "", None),
        (list[int], [], "--x 1 2", [1, 2]),
        (list[int], [7], "--x", []),
        (None, 3, "--x 5", 5),
        (None, "text", "--x 5", "5"),
        (None, None, "--x 5", 5),
        (Color, Color.RED, "--x DARK_BLUE", Color.DARK_BLUE),
    ],
    ids=str,
)
def test_a_parameter_with_a_default_is_an_option(kind, default, words, value):
    assert given(kind, words, default) == value


def test_every_kind_of_parameter_is_told_from_the_others(saver):
    # given
    got = []

    @entrypoint(checkpointer=saver)
    def flow(a: int, b: int = 2, /, c: int = 3, *, dry_run: bool, e: str, previous: Any = None):
        got.append((a, b, c, dry_run, e, previous))

    # when
    flow.main(["1", "--c", "5", "--no-dry-run", "--e", "text"])

    # then
    assert got == [(1, 2, 5, False, "text", None)]
    assert ended(flow, "1 --e text") == 2
    assert ended(flow, "1 --dry-run --e text --previous 3") == 2


def test_options_of_the_function_win_over_those_that_every_command_has(saver):
    # given
    got = []

    @entrypoint(checkpointer=saver)
    def flow(thread: str = "", help: str = "", answer: int = 0):
        got.append((thread, help, answer))

    # when
    flow.main(["--thread", "a", "--help", "b", "--answer", "3"])

    # then
    assert got == [("a", "b", 3)]


def test_help_shows_the_docstring_the_arguments_and_the_exit_codes(saver, capsys):
    # given
    @entrypoint(checkpointer=saver)
    def nightly(day: date, folder: Path = Path("data"), *, color: Color = Color.RED):
        """Make the report of a day, 100% of it.

        It takes long.
        """

    # when
    code = ended(nightly, "--help")

    # then
    said = capsys.readouterr().out
    assert code == 0
    for line in ["Make the report of a day, 100% of it.", "It takes long.", "DAY", "date", "--folder", "--thread"]:
        assert line in said
    assert re.search(r"--color COLOR\s+one of RED, DARK_BLUE, RED if it is left out", said)
    assert "75 paused" in said


# ---------------------------------------------------------------- results and exit codes


@pytest.mark.parametrize(
    ("result", "printed"),
    [
        (None, ""),
        ("text", "text\n"),
        (5, "5\n"),
        ({"é": [1, None]}, '{"é": [1, null]}\n'),
        ((1, 2), "[1, 2]\n"),
        (Box(2), "Box(width=2, height=1)\n"),
        ({1, 2}, "{1, 2}\n"),
    ],
    ids=str,
)
def test_the_result_is_printed(result, printed, saver, capsys):
    @entrypoint(checkpointer=saver)
    def flow():
        return result

    assert ended(flow) == 0
    assert capsys.readouterr().out == printed


def test_a_flow_of_coroutines_is_a_command_too(saver, capsys):
    @task
    async def double(x: int) -> int:
        return 2 * x

    @entrypoint(checkpointer=saver)
    async def flow(x: int):
        return await double(x)

    assert ended(flow, "21") == 0
    assert capsys.readouterr().out == "42\n"


def test_an_exception_of_the_flow_is_raised_and_says_how_to_go_on(saver):
    # given
    ran, fails = [], [True]

    @task
    def work(x):
        ran.append(x)
        return x

    @entrypoint(checkpointer=saver)
    def flow(x: int):
        value = work(x).result()
        if fails:
            raise LookupError(fails.pop())
        return value

    # when
    with pytest.raises(LookupError) as failed:
        flow.main(["7"])

    # then
    [note] = failed.value.__notes__
    assert re.fullmatch(r"What had finished is stored on thread `flow-\w+`\. Go on with: \S+ 7", note)
    assert ended(flow, "7") == 0
    assert ran == [7]


def test_the_traceback_of_an_exception_begins_with_the_flow(saver):
    @entrypoint(checkpointer=saver)
    def flow(x: int):
        raise LookupError

    with pytest.raises(LookupError) as failed:
        flow.main(["7"])
    assert [entry.name for entry in failed.traceback][-3:] == ["main", "main", "flow"]


def test_a_thread_is_named_and_keeps_its_result(saver, capsys):
    # given
    ran = []

    @entrypoint(checkpointer=saver)
    def flow(x: int):
        ran.append(x)
        return len(ran)

    # when
    for _ in range(2):
        assert ended(flow, "7 --thread monday") == 0

    # then
    assert capsys.readouterr().out == "1\n1\n"
    assert flow.thread("monday").status() == "finished"


def test_other_arguments_on_an_unfinished_thread_are_wrong(saver, capsys):
    @entrypoint(checkpointer=saver)
    def flow(x: int):
        raise LookupError

    with pytest.raises(LookupError):
        flow.main(["7", "--thread", "monday"])
    assert ended(flow, "8 --thread monday") == 2
    assert "that was started with 7; this call gives 8" in capsys.readouterr().err


def test_a_thread_of_another_flow_is_wrong(saver):
    @entrypoint(checkpointer=saver)
    def other(x: int):
        pass

    @entrypoint(checkpointer=saver)
    def flow(x: int):
        pass

    assert ended(other, "7 --thread monday") == 0
    assert ended(flow, "7 --thread monday") == 2


def test_a_question_is_told_in_one_line_with_the_command_that_answers(saver, capsys):
    # given
    paid = []

    @task
    def pay(amount):
        paid.append(amount)

    @entrypoint(checkpointer=saver)
    def flow(amount: int):
        if approve({"amount": amount}, title="pay?"):
            pay(amount).result()

    # when
    assert ended(flow, "7") == 3

    # then
    [line] = capsys.readouterr().err.splitlines()
    question, command = re.fullmatch(r"`flow` waits for an answer: (.*) \(q_\w+\)\. Answer with: (.*)", line).groups()
    assert question == "{'title': 'pay?', 'payload': {'amount': 7}}"
    prog, *words = shlex.split(command)
    assert prog
    assert words == ["7", "--answer", "VALUE"]
    assert ended(flow, "7 --answer maybe") == 2
    assert "was refused" in capsys.readouterr().err
    assert ended(flow, "7 --answer yes") == 0
    assert paid == [7]


def test_several_questions_are_answered_by_their_ids(saver, capsys):
    # given
    @task
    def asks(name):
        return interrupt(name)

    @entrypoint(checkpointer=saver)
    def flow():
        return asks.map(["a", "b"]).result()

    # when
    assert ended(flow) == 3
    line = capsys.readouterr().err
    ids = re.findall(r"'(\w)' \((q_\w+)\)", line)

    # then
    assert line.endswith("--answer ID=VALUE\n")
    assert ended(flow, "--answer 1") == 2
    words = " ".join(f"--answer {id}=answer-{name}" for name, id in ids)
    assert ended(flow, words) == 0
    assert capsys.readouterr().out == '["answer-a", "answer-b"]\n'


def test_the_command_that_goes_on_is_this_one_without_its_answers(saver, capsys):
    # given
    @entrypoint(checkpointer=saver)
    def flow(x: int):
        return [interrupt("first"), interrupt("second")]

    # when
    assert ended(flow, "7") == 3
    assert ended(flow, "7 --answer=1 --answer 2") == 2, "one question was open"
    assert ended(flow, "7") == 3

    # then
    assert capsys.readouterr().err.splitlines()[-1].partition("Answer with: ")[2].endswith(" 7 --answer VALUE")


def test_an_answer_without_a_question_is_wrong(saver, capsys):
    @entrypoint(checkpointer=saver)
    def flow(x: int):
        pass

    assert ended(flow, "7 --answer yes") == 2
    assert "Nothing waits for an answer" in capsys.readouterr().err


def test_a_thread_that_somebody_else_runs_is_busy(tmp_path, capsys):
    # given
    begun, goes_on = threading.Event(), threading.Event()

    @entrypoint(checkpointer=SqliteSaver(tmp_path / "flows.db"))
    def flow(x: int):
        begun.set()
        goes_on.wait(10)

    elsewhere = flow.thread("monday").start(7)
    begun.wait(10)

    # when
    code = ended(flow, "7 --thread monday")
    goes_on.set()
    elsewhere.result(10)

    # then
    assert code == 4
    [line] = [line for line in capsys.readouterr().err.splitlines() if "monday" in line]
    assert "is being run by" in line


@pytest.mark.parametrize(
    "error",
    [
        FlowWaiting("inner", "inner", []),
        ThreadBusyError("inner", "somebody", 0.0),
        StoreConflictError("flows.db", "inner"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_happens_to_another_thread_inside_is_the_flows_own_failure(error, saver):
    @entrypoint(checkpointer=saver)
    def flow(x: int):
        raise error

    with pytest.raises(type(error)):
        flow.main(["7"])


@pytest.mark.parametrize(
    ("interrupt_of_it", "code"), [(FlowPaused("flow", "t", "Ctrl-C", 2), 75), (KeyboardInterrupt(), 130)]
)
def test_a_pause_and_a_stop_are_told_in_one_line(interrupt_of_it, code, saver, capsys):
    @entrypoint(checkpointer=saver)
    def flow(x: int):
        raise interrupt_of_it

    assert ended(flow, "7") == code
    [line] = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"flowfn has (paused|stopped) `flow`\. Go on with: \S+ 7", line)


def test_the_parser_is_loaded_by_scripts_alone():
    code = "import sys, flowfn; print('argparse' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
