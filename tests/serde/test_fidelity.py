"""What comes back of every kind of value: what the table in `every_kind.py` says, and the page made of it."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowfn.errors import MissingClassError, UnstorableError
from flowfn.serde import Serializer, copied, decode, encode
from tests.serde import every_kind
from tests.serde.every_kind import PAGE, ROWS, Color, Derived, Folder, Frozen, MyInt, Plain, Point, Row, page, same

SERDE = Serializer()
STRICT = Serializer(allow_pickle=False)
TABLE = Path(every_kind.__file__)
STORED = [row for row in ROWS if row.tier]
REFUSED = [row for row in ROWS if not row.tier]
PLAIN = [row for row in ROWS if row.tier in ("N", "B", "M")]
STRICTLY_STORED = [row for row in ROWS if row.strict_fits]
STRICTLY_REFUSED = [row for row in ROWS if not row.strict_fits]


@pytest.fixture
def value(row: Row) -> Iterator[Any]:
    made = row.make()
    yield made
    if hasattr(made, "close"):
        made.close()


def rows(chosen: list[Row]) -> Any:
    return pytest.mark.parametrize("row", chosen, ids=[row.name for row in chosen])


@rows(STORED)
def test_a_value_comes_back_as_the_table_says(row: Row, value: Any) -> None:
    blob = SERDE.dumps(value)

    assert blob[1:2].decode() == row.tier
    assert row.fits(value, SERDE.loads(blob))


@rows(STORED)
def test_a_value_comes_back_like_that_inside_other_data(row: Row, value: Any) -> None:
    around = SERDE.loads(SERDE.dumps({"a": [(value, "b")]}))

    assert row.fits(value, around["a"][0][0])


@rows(STRICTLY_STORED)
def test_without_pickles_a_value_comes_back_as_the_table_says(row: Row, value: Any) -> None:
    assert row.strict_fits is not None
    assert row.strict_fits(value, STRICT.loads(STRICT.dumps(value)))


@rows(PLAIN)
def test_a_copy_of_plain_data_is_what_would_come_back(row: Row, value: Any) -> None:
    assert row.fits(value, copied(value))


@rows(REFUSED)
def test_what_cannot_be_stored_is_refused_with_its_place(row: Row, value: Any) -> None:
    with pytest.raises(UnstorableError) as caught:
        SERDE.dumps({"a": [value]})

    assert caught.value.path.startswith(row.path.replace("The value", "The value['a'][0]", 1))


@rows(STRICTLY_REFUSED)
def test_without_pickles_what_is_no_plain_data_is_refused_with_its_place(row: Row, value: Any) -> None:
    with pytest.raises(UnstorableError) as caught:
        STRICT.dumps({"a": [value]})

    assert caught.value.path.startswith(row.strict_path.replace("The value", "The value['a'][0]", 1))


@rows(STRICTLY_REFUSED)
def test_what_is_no_plain_data_is_not_copied(row: Row, value: Any) -> None:
    with pytest.raises(UnstorableError):
        copied([value])


def test_in_another_process_the_same_comes_back(tmp_path: Path) -> None:
    """By the module's name, and for a script that is run twice by its own."""
    every_kind.save(f"{tmp_path}/module")
    code = f"""
import runpy, sys
from tests.serde.every_kind import differing
print(differing({f"{tmp_path}/module"!r}))
for verb in ("save", "compare"):
    sys.argv = ["every_kind.py", verb, {f"{tmp_path}/script"!r}]
    runpy.run_path({str(TABLE)!r}, run_name="__main__")
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=TABLE.parents[2]
    )

    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


def test_no_two_rows_are_of_the_same_name() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) >= 105


def test_the_page_says_what_the_table_says() -> None:
    said = PAGE.read_text("utf-8") if PAGE.exists() else ""

    assert said == page(), "docs/reference/values.md is out of date: run `python -m tests.serde.every_kind`"


# ---------------------------------------------------------------- sameness, which the rows rely on


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (math.nan, -math.nan),
        ([1], (1,)),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1}, {True}),
        (Point(1), Point(1.0)),
        (Point(1, [Point(2)]), Point(1, [Point(3)])),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        (datetime.datetime(2026, 1, 1, fold=0), datetime.datetime(2026, 1, 1, fold=1)),
        (np.zeros(2), np.zeros(2, "f4")),
        (np.zeros((2, 2)), np.asfortranarray(np.zeros((2, 2)))),
        (ValueError(1), ValueError(2)),
        (ExceptionGroup("a", [ValueError(1)]), ExceptionGroup("a", [ValueError(2)])),
        (Folder(name="a"), Folder(name="a", inside=[])),
        (Plain(1), Plain(2)),
        (len, max),
    ],
)
def test_what_differs_in_type_or_in_any_part_is_not_the_same(one: Any, other: Any) -> None:
    assert same(one, one)
    assert not same(one, other)


# ---------------------------------------------------------------- what a row cannot say


def test_none_takes_two_bytes() -> None:
    assert len(SERDE.dumps(None)) == 2


def test_bytes_are_stored_as_they_are() -> None:
    assert SERDE.dumps(b"ab").endswith(b"B" + b"ab")


def test_enum_members_are_the_members_themselves() -> None:
    assert decode(encode(Color.RED)) is Color.RED


def test_a_large_array_is_read_as_it_was_written_whatever_is_around_it() -> None:
    large, small = np.arange(20_000, dtype="f8"), np.arange(2, dtype="f8")
    decode(encode(small))

    for array in (large, large[::2], large.reshape(100, 200).T, large.astype(">f4"), large.astype("M8[s]"), large > 5):
        assert same(np.array(array, order="K"), decode(encode(array)))
        assert same(np.array(array, order="K"), SERDE.loads(SERDE.dumps(array)))
        assert same([np.array(array, order="K"), 1], SERDE.loads(SERDE.dumps([array, 1])))


@pytest.mark.parametrize("make", [lambda: np.zeros(20_000), lambda: np.zeros(3)])
def test_an_array_comes_back_with_numbers_of_its_own(make: Any) -> None:
    value = make()
    blob = SERDE.dumps(value)

    one, other = SERDE.loads(blob), SERDE.loads(blob)
    one[0] = 1

    assert (value[0], other[0], SERDE.loads(blob)[0]) == (0, 0, 0)


def test_post_init_does_not_run_again() -> None:
    value = Derived(2)
    value.double = 7

    assert decode(encode(value)).double == 7


def test_a_field_that_the_class_has_got_since_takes_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Point(1, 2))

    @dataclasses.dataclass
    class Newer:
        x: int
        y: Any
        z: list[int] = dataclasses.field(default_factory=lambda: [1])

    monkeypatch.setattr(every_kind, "Point", Newer)

    assert decode(data) == Newer(1, 2, [1])


def test_a_slot_that_has_no_value_comes_back_without_one() -> None:
    value = object.__new__(Frozen)
    object.__setattr__(value, "x", 1)

    back = decode(encode(value))

    assert (back.x, back.y) == (1, ())


def test_an_array_in_a_process_without_numpy_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(np.zeros(3))
    monkeypatch.delitem(sys.modules, "numpy")

    with pytest.raises(MissingClassError, match=r"numpy\.ndarray"):
        decode(data)


def test_a_copy_shares_nothing_that_changes_with_the_original() -> None:
    value = {"a": [Point(1, {2})], "b": bytearray(b"x")}

    copy = copied(value)
    copy["a"][0].y.add(3)
    copy["b"].extend(b"y")

    assert value == {"a": [Point(1, {2})], "b": bytearray(b"x")}


@pytest.mark.parametrize("value", [1, "a", decimal.Decimal(1), uuid.UUID(int=1), datetime.date(2026, 1, 1), None])
def test_the_copy_of_an_atom_is_the_atom(value: Any) -> None:
    assert copied(value) is value


@pytest.mark.parametrize("value", [Plain(1), [threading.Lock()], MyInt(1), {"a": (len,)}])
def test_the_refusal_of_a_copy_names_the_kind(value: Any) -> None:
    with pytest.raises(UnstorableError, match=r"every_kind\.Plain|_thread\.lock|every_kind\.MyInt|builtin_function"):
        copied(value)
