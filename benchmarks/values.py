"""The payloads: what the task of a flow returns that moves large values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy


@dataclass
class Order:
    """A small record of the program's own class."""

    id: int
    customer: str
    total: float
    paid: bool


def megabyte() -> bytes:
    return os.urandom(1_000_000)


def array() -> Any:
    """Eight megabytes of floats."""
    return numpy.arange(1_000_000, dtype=numpy.float64)


def rows() -> list[dict[str, Any]]:
    return [{"id": i, "name": f"customer {i}", "total": i / 7, "paid": i % 2 == 0} for i in range(100_000)]


def orders() -> list[Order]:
    return [Order(i, f"customer {i}", i / 7, i % 2 == 0) for i in range(1_000)]
