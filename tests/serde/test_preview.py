"""Values as a line of text."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flowfn.serde import preview


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: Any = dataclasses.field(default=None, repr=False)


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class RudeList(list[int]):
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (1.5, "1.5"),
        (None, "None"),
        ("a'b", '"a\'b"'),
        ("a\nb", r"'a\nb'"),
        (b"a", "b'a'"),
        ([1, "a", [2]], "[1, 'a', [2]]"),
        ((1,), "(1,)"),
        ((), "()"),
        (set(), "set()"),
        ({Color.RED}, "{Color.RED}"),
        (frozenset({Point(1).x}), "frozenset({1})"),
        ({"a": 1, (2, 3): {"b": None}}, "{'a': 1, (2, 3): {'b': None}}"),
        (Color.RED, "Color.RED"),
        (Point(1, 2), "Point(x=1)"),
        (ValueError("a", 1), "ValueError('a', 1)"),
        (KeyError("a"), "KeyError('a')"),
        (pathlib.Path("/a"), "PosixPath('/a')"),
        (datetime.date(2026, 1, 2), "datetime.date(2026, 1, 2)"),
        (np.zeros((2, 3)), "<ndarray 2×3>"),
        (pd.DataFrame({"a": [1, 2]}), "<DataFrame 2×1>"),
        (Rude(), f"<{__name__}.Rude>"),
        (RudeList(), f"<{__name__}.RudeList>"),
        ([Rude()], f"[<{__name__}.Rude>]"),
        (1 << 4000, "<int of 4001 bits>"),
        (decimal.Decimal("1.10"), "Decimal('1.10')"),
        (decimal.Decimal("1" * 100_000), "<decimal.Decimal>"),
        (fractions.Fraction(1, 10**5000), "<fractions.Fraction>"),
        (range(10**5000), "<range>"),
    ],
)
def test_a_value_is_shown(value: Any, text: str) -> None:
    assert preview(value) == text


@pytest.mark.parametrize(
    "value",
    ["a" * 10**6, list(range(10**6)), {i: i for i in range(1000)}, [["a" * 1000] * 1000] * 1000, "\x00\x1b" * 500],
    ids=["str", "list", "dict", "nested", "control"],
)
@pytest.mark.parametrize("limit", [0, 1, 10, 60, 1000])
def test_a_line_is_never_longer_than_its_limit(value: Any, limit: int) -> None:
    text = preview(value, limit)

    assert len(text) <= max(limit, 1)
    assert text.isprintable()


def test_a_huge_value_takes_no_longer_than_a_small_one() -> None:
    value = {"rows": [{"id": i, "text": "x" * 1000} for i in range(100_000)]}

    began = time.perf_counter()
    for _ in range(100):
        preview(value)

    assert time.perf_counter() - began < 1


def test_a_circle_is_shown() -> None:
    circle: list[Any] = []
    circle.append(circle)

    assert preview(circle).startswith("[[")
