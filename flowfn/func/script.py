"""`flow.main()`: a flow as a command. Its arguments are the function's parameters, and how it ended is its exit code.

Whatever the state of the run, the same command goes on with it; so every line that is told here ends with a command.
"""

from __future__ import annotations

import argparse
import collections.abc
import enum
import inspect
import json
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin
from uuid import UUID

from flowfn import schema
from flowfn.amounts import seconds
from flowfn.errors import (
    FlowPaused,
    FlowWaiting,
    ForeignThreadError,
    InputChangedError,
    QuestionError,
    ResponseSchemaError,
    StoreConflictError,
    ThreadBusyError,
)
from flowfn.pregel import signals
from flowfn.pregel.callee import hints_of
from flowfn.pregel.handle import Runs, Thread, answer_of
from flowfn.serde.base import preview

WRONG, WAITING, BUSY, PAUSED, STOPPED = 2, 3, 4, 75, 130
EXITS = (
    "exit codes: 0 finished, 1 failed, 2 wrong arguments, 3 waiting for an answer, 4 run by somebody else, "
    "75 paused, 130 stopped at once; after any but 0 the same command goes on"
)

THREAD, ANSWER = "--thread", "--answer"
ANSWER_TO = re.compile(r"(q_[0-9a-f]{32})=(.*)", re.DOTALL)


def main(flow: Runs[..., Any], parameters: Sequence[inspect.Parameter], argv: Sequence[str] | None) -> None:
    """See `Flow.main`."""
    hints = hints_of(flow.func)
    arguments = [Argument(parameter, hints.get(parameter.name)) for parameter in parameters]
    parser = _parser(flow, arguments)
    given = vars(parser.parse_args(argv))
    placed, named = _bound(arguments, given)
    name = given.get(THREAD)
    thread = flow.own_thread(*placed, **named) if name is None else flow.thread(name)
    command = _command(parser.prog, argv)
    for text in given.get(ANSWER) or ():
        _answer(thread, text)
    try:
        with signals.going_on_by(command):
            result = thread.run(*placed, **named)
    except FlowWaiting as waiting:
        if waiting.thread != thread.id:
            raise
        _end(WAITING, _question(waiting, command))
    except (ThreadBusyError, StoreConflictError) as busy:
        if busy.thread not in (thread.id, ""):
            raise
        _end(BUSY, str(busy))
    except (InputChangedError, ForeignThreadError) as wrong:
        if wrong.thread != thread.id:
            raise
        _end(WRONG, str(wrong))
    except FlowPaused:
        _end(PAUSED, f"flowfn has paused `{flow.title}`. Go on with: {command}")
    except KeyboardInterrupt:
        _end(STOPPED, f"flowfn has stopped `{flow.title}`. Go on with: {command}")
    except Exception as error:
        if _is_unfinished(thread):
            error.add_note(f"What had finished is stored on thread `{thread.id}`. Go on with: {command}")
        raise error.with_traceback(_from_the_flow(error.__traceback__))
    _show(result)


def _answer(thread: Thread[..., Any], text: str) -> None:
    found = ANSWER_TO.fullmatch(text)
    try:
        if found is None:
            thread.answer(answer_of(text))
        else:
            thread.answer(answer_of(found[2]), found[1])
    except QuestionError as refused:
        _end(WRONG, str(refused))


def _question(waiting: FlowWaiting, command: str) -> str:
    """What is asked, and the command that answers, in one line."""
    asked = "; ".join(f"{preview(question.value, 200)} ({question.id})" for question in waiting.questions)
    word = "VALUE" if len(waiting.questions) == 1 else "ID=VALUE"
    return f"`{waiting.flow}` waits for an answer: {asked}. Answer with: {command} {ANSWER} {word}"


def _is_unfinished(thread: Thread[..., Any]) -> bool:
    with suppress(Exception):  # a store that cannot be read has another error under way
        return thread.status() not in ("new", "finished")
    return False


def _from_the_flow(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without what lies between the command and the flow's own code; whole, if it never got there."""
    at = trace
    while at is not None and str(at.tb_frame.f_globals.get("__name__")).partition(".")[0] == "flowfn":
        at = at.tb_next
    return at or trace


def _end(code: int, line: str) -> NoReturn:
    print(line, file=sys.stderr)
    sys.exit(code)


def _show(result: Any) -> None:
    """Print a text as it is, plain data as JSON, anything but None else as Python shows it."""
    if result is None:
        return
    if not isinstance(result, str):
        try:
            result = json.dumps(result, ensure_ascii=False)
        except (TypeError, ValueError):
            result = repr(result)
    print(result)


def _command(prog: str, argv: Sequence[str] | None) -> str:
    """The command that goes on: this one, without its answers."""
    words = [prog, *argv] if argv is not None else sys.orig_argv
    kept: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if word != ANSWER and before != ANSWER and not word.startswith(f"{ANSWER}="):
            kept.append(word)
    return shlex.join(kept)


# ---------------------------------------------------------------- arguments


def _parser(flow: Runs[..., Any], arguments: Sequence[Argument]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=inspect.getdoc(flow.func),
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        conflict_handler="resolve",  # an option of the function's wins
    )
    parser.add_argument(THREAD, dest=THREAD, metavar="NAME", help="run on the thread of this name")
    parser.add_argument(
        ANSWER, dest=ANSWER, metavar="[ID=]VALUE", action="append", help="answer the question that is open, or that one"
    )
    for argument in arguments:
        argument.add_to(parser)
    return parser


def _bound(arguments: Sequence[Argument], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments to call the flow with, by place and by name."""
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for argument in arguments:
        parameter = argument.parameter
        if parameter.kind is parameter.POSITIONAL_ONLY:
            placed.append(argument.value(given.get(parameter.name, parameter.default)))
        elif parameter.name in given:
            named[parameter.name] = argument.value(given[parameter.name])
    return placed, named


class Argument:
    """A parameter as an argument of a command: one that is required is told by its place, others by `--name`."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        self.parameter = parameter
        self._kind = _told(parameter, hint)
        self._makes, self._item = _several(self._kind)

    @property
    def _is_option(self) -> bool:
        parameter = self.parameter
        is_required = parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
        return not is_required or self._kind is bool

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        name, default = self.parameter.name, self.parameter.default
        told: dict[str, Any] = {"help": _name_of(self._kind), "default": argparse.SUPPRESS}
        if self._kind is bool:
            told["action"] = argparse.BooleanOptionalAction
        else:
            told["type"] = self._read
            told["metavar"] = name.upper()
        if self._makes is not None:
            told["nargs"] = "*" if self._is_option else "+"
        if default is not self.parameter.empty:
            shown = default.name if isinstance(default, enum.Enum) else preview(default)
            told["help"] += f", {shown} if it is left out"
        told["help"] = told["help"].replace("%", "%%")
        if self._is_option:
            is_required = default is self.parameter.empty
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, required=is_required, **told)
        else:
            parser.add_argument(name, **told)

    def _read(self, text: str) -> Any:
        try:
            return value_of(text, self._item)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no {_name_of(self._item)}: {error}") from None

    def value(self, given: Any) -> Any:
        """What the function is given."""
        return self._makes(given) if self._makes is not None and type(given) is list else given


def _told(parameter: inspect.Parameter, hint: Any) -> Any:
    """The type of an argument: by annotation, else by the default, else Any."""
    if hint is None or isinstance(hint, str):
        return type(parameter.default) if type(parameter.default) in _READ else Any
    while True:
        parts = get_args(hint)
        if get_origin(hint) is Annotated:
            hint = parts[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif get_origin(hint) in (Union, types.UnionType) and types.NoneType in parts:
            hint = reduce(or_, [part for part in parts if part is not types.NoneType])  # None is to leave it out
        else:
            return hint


def _several(kind: Any) -> tuple[Callable[[list[Any]], Any] | None, Any]:
    """What makes a collection of several arguments, and the type of each; None and the type itself for a single one."""
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is tuple and parts and parts[1:] != (Ellipsis,):
        return None, kind
    if origin in (list, set, frozenset, tuple):
        return origin, parts[0] if parts else Any
    if origin in (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection):
        return list, parts[0] if parts else Any
    return None, kind


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


_READ: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: _boolean,
    Path: Path,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    timedelta: lambda text: timedelta(seconds=seconds(text, "a duration", may_be_zero=True)),
    UUID: UUID,
}


def value_of(text: str, kind: Any) -> Any:
    """The value of that type that a text stands for: JSON where the type says no more.

    Raises:
        ValueError, TypeError, ArithmeticError: it stands for none.
    """
    if kind in _READ:
        return _READ[kind](text)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _chosen(text, {str(part): part for part in parts})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _chosen(text, {**{str(member.value): member for member in kind}, **kind.__members__})
    if origin in (Union, types.UnionType):
        return _first_that_fits(text, sorted(parts, key=lambda part: part is str))  # which any text fits
    if kind is Any:
        with suppress(ValueError):
            return json.loads(text)
        return text
    value = json.loads(text)
    try:
        return schema.converted(value, kind)
    except ResponseSchemaError:
        return value


def _chosen(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise ValueError(f"choose one of {', '.join(choices)}")
    return choices[text]


def _first_that_fits(text: str, kinds: Sequence[Any]) -> Any:
    for kind in kinds:
        with suppress(ValueError, TypeError, ArithmeticError):
            return value_of(text, kind)
    raise ValueError("it fits none of them")


def _name_of(kind: Any) -> str:
    if kind is Any:
        return "JSON or text"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"one of {', '.join(kind.__members__)}"
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")
