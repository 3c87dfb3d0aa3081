"""What an exception still is after it was stored."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pydantic
import pytest

from flowfn.errors import MissingClassError, UnstorableError
from flowfn.serde import Serializer, decode, encode

SERDE = Serializer()
STRICT = Serializer(allow_pickle=False)


class CodeError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class TwoError(Exception):
    def __init__(self, first: int, *, second: int) -> None:
        super().__init__(first)
        self.second = second


class SlotError(Exception):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place


class FileError(OSError):
    def __init__(self, name: str, detail: Any) -> None:
        super().__init__(2, "gone", name)
        self.detail = detail


class Batch(ExceptionGroup[Exception]):
    def derive(self, excs: Any) -> Batch:
        return Batch(self.message, excs)


class Plain:
    def __init__(self, x: int) -> None:
        self.x = x


def raised(run: Callable[[], Any]) -> BaseException:
    try:
        run()
    except BaseException as error:
        return error
    raise AssertionError("it should have raised")


def back(error: BaseException) -> Any:
    return decode(encode(error))


SIMPLE: dict[str, BaseException] = {
    "value error": ValueError("a", 1, (2,)),
    "key error": KeyError("a"),
    "without args": RuntimeError(),
    "own init": CodeError(3),
    "keyword-only init": TwoError(1, second=2),
    "stop iteration": StopIteration(5),
    "system exit": SystemExit(3),
    "keyboard interrupt": KeyboardInterrupt(),
    "cancelled": asyncio.CancelledError("x"),
    "timeout": TimeoutError("late"),
    "called process": subprocess.CalledProcessError(1, ["a"], b"out"),
    "unicode decode": raised(lambda: b"\xff".decode()),
    "unicode encode": raised(lambda: "\ud800".encode()),
    "os error": raised(lambda: os.stat("/nowhere")),
    "os error two files": OSError(2, "gone", "a", None, "b"),
    "os error one arg": OSError("text"),
    "os error subclass": FileError("a", {"b": 1}),
    "import error": raised(lambda: __import__("nowhere_at_all")),
    "attribute error": raised(lambda: (5).nothing),  # type: ignore[attr-defined]
    "name error": raised(lambda: nothing_here),  # type: ignore[name-defined]  # noqa: F821
    "syntax error": raised(lambda: compile("a b", "file.py", "exec")),
    "zero division": raised(lambda: 1 / 0),
}

MEMBERS = ("errno", "strerror", "filename", "filename2", "name", "path", "value", "code", "msg", "lineno", "offset")
MEMBERS += ("text", "end_lineno", "encoding", "object", "start", "end", "reason", "second", "detail", "returncode")


@pytest.mark.parametrize("error", SIMPLE.values(), ids=SIMPLE)
def test_type_args_and_text_are_kept(error: BaseException) -> None:
    again = back(error)

    assert (type(again), again.args, str(again)) == (type(error), error.args, str(error))


@pytest.mark.parametrize("error", SIMPLE.values(), ids=SIMPLE)
def test_members_are_kept_wherever_they_live(error: BaseException) -> None:
    again = back(error)

    assert [getattr(again, name, None) for name in MEMBERS] == [getattr(error, name, None) for name in MEMBERS]


@pytest.mark.parametrize("error", SIMPLE.values(), ids=SIMPLE)
def test_exceptions_need_no_pickle(error: BaseException) -> None:
    assert STRICT.dumps(error)[1:2] == b"M"


def test_slots_of_an_exception_are_kept() -> None:
    assert back(SlotError("here")).place == "here"


def test_notes_are_kept() -> None:
    error = ValueError("a")
    error.add_note("while reading")

    assert back(error).__notes__ == ["while reading"]


def test_cause_and_context_are_kept() -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner

    again = back(raised(fail))

    assert type(again.__cause__) is KeyError
    assert again.__context__ is again.__cause__
    assert again.__suppress_context__


def test_from_none_is_kept() -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer") from None

    again = back(raised(fail))

    assert again.__cause__ is None
    assert type(again.__context__) is KeyError
    assert again.__suppress_context__


def test_a_context_alone_does_not_become_suppressed() -> None:
    error = ValueError("outer")
    error.__context__ = KeyError("inner")

    assert not back(error).__suppress_context__


def test_where_it_was_raised_is_kept_as_text() -> None:
    again = back(SIMPLE["zero division"])

    assert "test_exceptions.py" in again.__flowfn_traceback__
    assert "1 / 0" in again.__flowfn_traceback__


def test_where_it_was_first_raised_outlives_a_second_raise() -> None:
    again = back(SIMPLE["zero division"])

    def fail() -> None:
        raise again

    assert back(raised(fail)).__flowfn_traceback__ == again.__flowfn_traceback__


def test_a_chain_of_a_thousand_is_kept() -> None:
    error = first = ValueError(0)
    for i in range(1, 1000):
        error = ValueError(i)
        error.__context__ = first
        first = error
    again, length = back(error), 0
    while again is not None:
        again, length = again.__context__, length + 1
    assert length == 1000


def test_a_circle_of_exceptions_is_kept() -> None:
    one, two = ValueError(1), ValueError(2)
    one.__context__, two.__context__ = two, one

    again = back(one)

    assert again.__context__.__context__ is again


def test_a_group_is_kept_with_its_members() -> None:
    group = ExceptionGroup("several", [CodeError(1), ExceptionGroup("inner", [KeyError("a")])])
    group.add_note("note")

    again = back(group)

    assert type(again) is ExceptionGroup
    assert again.message == "several"
    assert again.__notes__ == ["note"]
    assert [type(one) for one in again.exceptions] == [CodeError, ExceptionGroup]
    assert again.exceptions[1].exceptions[0].args == ("a",)


def test_an_own_kind_of_group_is_kept() -> None:
    again = back(Batch("several", [ValueError(1)]))

    assert type(again) is Batch
    assert again.split(ValueError)[0].exceptions[0].args == (1,)


def test_a_group_of_base_exceptions_is_kept() -> None:
    assert type(back(BaseExceptionGroup("several", [KeyboardInterrupt()]))) is BaseExceptionGroup


def test_an_exception_shared_by_a_group_and_a_cause_stays_one() -> None:
    inner = ValueError(1)
    group = ExceptionGroup("several", [inner])
    group.__cause__ = inner

    again = back(group)

    assert again.__cause__ is again.exceptions[0]


def test_exceptions_inside_data_are_kept() -> None:
    assert back_in_list(CodeError(3)).code == 3


def back_in_list(error: BaseException) -> Any:
    return SERDE.loads(SERDE.dumps({"a": [error]}))["a"][0]


def test_an_attribute_that_pickles_is_kept() -> None:
    error = CodeError(3)
    error.extra = Plain(5)  # type: ignore[attr-defined]

    again = back_in_list(error)

    assert (again.code, again.extra.x) == (3, 5)


def test_an_attribute_that_cannot_be_stored_is_left_out_with_a_note() -> None:
    error = CodeError(3)
    error.lock = threading.Lock()  # type: ignore[attr-defined]

    again = SERDE.loads(SERDE.dumps(error))

    assert (type(again), again.code) == (CodeError, 3)
    assert "attribute `lock` was a `_thread.lock`" in again.__notes__[0]


def test_an_argument_that_cannot_be_stored_becomes_text_with_a_note() -> None:
    again = SERDE.loads(SERDE.dumps(ValueError("a", threading.Lock())))

    assert again.args == ("a", "<_thread.lock>")
    assert "argument 1 was a `_thread.lock`" in again.__notes__[0]


def test_what_cannot_be_stored_is_left_out_where_pickles_are_not_allowed() -> None:
    error = CodeError(3)
    error.extra = Plain(5)  # type: ignore[attr-defined]

    again = STRICT.loads(STRICT.dumps([error]))[0]

    assert (type(again), again.code, hasattr(again, "extra")) == (CodeError, 3, False)
    assert "attribute `extra`" in again.__notes__[0]


def test_storing_an_exception_leaves_it_as_it_is() -> None:
    error = CodeError(3)
    error.lock = threading.Lock()  # type: ignore[attr-defined]

    SERDE.dumps(error)

    assert not hasattr(error, "__notes__")
    assert hasattr(error, "lock")


def test_an_exception_that_holds_itself_is_kept_without_that() -> None:
    error = CodeError(3)
    error.me = error  # type: ignore[attr-defined]

    again = SERDE.loads(SERDE.dumps(error))

    assert (type(again), again.code) == (CodeError, 3)


def test_an_exception_with_an_unstorable_attribute_is_no_plain_data() -> None:
    error = CodeError(3)
    error.lock = threading.Lock()  # type: ignore[attr-defined]

    with pytest.raises(UnstorableError, match=r"The value\.lock is a `_thread\.lock`"):
        encode(error)


def test_an_exception_class_made_in_a_function_is_kept_with_its_code() -> None:
    class LocalError(Exception):
        pass

    blob = SERDE.dumps(LocalError("a"))

    assert blob[1:2] == b"C"
    assert type(SERDE.loads(blob)) is LocalError


def test_an_exception_class_made_in_a_function_is_refused_where_pickles_are_not_allowed() -> None:
    class LocalError(Exception):
        pass

    with pytest.raises(UnstorableError, match=r"LocalError.*its class is not found under its name"):
        STRICT.dumps(LocalError("a"))


def test_an_exception_beside_what_only_pickles_is_kept_as_a_record() -> None:
    again = SERDE.loads(SERDE.dumps([Plain(1), TwoError(1, second=2), CodeError(3)]))

    assert (again[1].second, str(again[2])) == (2, "code 3")


def test_an_exception_that_only_its_own_code_can_rebuild_is_left_to_pickle() -> None:
    class Model(pydantic.BaseModel):
        x: int

    error = raised(lambda: Model(x="a"))  # type: ignore[arg-type]

    assert str(SERDE.loads(SERDE.dumps(error))) == str(error)


def test_an_exception_caused_by_one_that_only_its_own_code_can_rebuild_is_kept() -> None:
    class Model(pydantic.BaseModel):
        x: int

    error = CodeError(3)
    error.__cause__ = raised(lambda: Model(x="a"))  # type: ignore[arg-type]

    again = SERDE.loads(SERDE.dumps(error))

    assert again.code == 3
    assert type(again.__cause__) is pydantic.ValidationError


def test_an_exception_whose_class_is_gone_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = SERDE.dumps(CodeError(3))
    monkeypatch.delitem(globals(), "CodeError")

    with pytest.raises(MissingClassError, match=r"test_exceptions\.CodeError"):
        SERDE.loads(blob)


def test_no_code_of_the_class_runs_when_it_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = SERDE.dumps(CodeError(3))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(CodeError, "__init__", refuse)
    monkeypatch.setattr(CodeError, "__setattr__", refuse)

    assert SERDE.loads(blob).code == 3
