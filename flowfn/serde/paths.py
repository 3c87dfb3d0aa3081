"""Where in a value the trouble is: the path to the first part that cannot be stored although all of its parts can."""

from __future__ import annotations

import datetime
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

from flowfn.futures import TaskFuture
from flowfn.serde.exceptions import slots_of
from flowfn.serde.kinds import ATOMS
from flowfn.serde.preview import preview


def culprit(
    value: Any,
    path: str,
    refusal: Callable[[Any], str | None],
    is_made_of_parts: Callable[[Any], bool] = lambda value: True,
) -> tuple[str, Any]:
    """The path to the part that is to blame, and the part; where nothing is but the depth, the way to it.

    Args:
        path: what the value itself is called: "The value".
        refusal: why a value cannot be stored, or None when it can.
        is_made_of_parts: whether a value can be stored if all of its parts can.
    """
    way = [(path, value)]
    while len(way) < _DEEP and is_made_of_parts(value):
        parts = [
            (step, part)
            for step, part in _parts(value)
            if type(part) not in _FAULTLESS and not any(part is one for _, one in way)
        ]
        while len(parts) > 1:  # Halves, so that a part of a hundred thousand is found in two passes, not in so many.
            half = parts[: len(parts) // 2]
            parts = half if refusal([part for _, part in half]) is not None else parts[len(half) :]
        if not parts or refusal(parts[0][1]) is None:
            break
        step, value = parts[0]
        way.append((way[-1][0] + step, value))
    return way[min(len(way) - 1, _SHOWN)] if type(value) in _HOLDERS else way[-1]


_DEEP, _SHOWN = 200, 8
_FAULTLESS = ATOMS - {datetime.datetime, datetime.time, zoneinfo.ZoneInfo}
_HOLDERS = frozenset({list, tuple, dict, set, frozenset, deque})
"""What has no fault of its own: with all its parts it can be stored, if it is not too deep."""


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What the value consists of, each with the step that leads to it."""
    if isinstance(value, dict):
        for key, item in list(value.items()):
            yield f"[{preview(key, 40)}]", item
            yield f" key {preview(key, 40)}", key
    elif isinstance(value, (list, tuple, deque)):
        fields = getattr(value, "_fields", None)
        for place, item in enumerate(list(value)):
            yield f".{fields[place]}" if fields else f"[{place}]", item
    elif isinstance(value, (set, frozenset)):
        for item in list(value):
            yield f" item {preview(item, 40)}", item
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield f" closure `{name}`", cell.cell_contents
            except ValueError:  # The variable has no value yet.
                pass
        return
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, type | TaskFuture):
        return
    if isinstance(value, BaseException):
        for place, item in enumerate(value.args):
            yield f".args[{place}]", item
        for name in ("__cause__", "__context__"):
            if getattr(value, name) is not None:
                yield f".{name}", getattr(value, name)
    try:
        names = [*getattr(value, "__dict__", ()), *slots_of(type(value))]
    except Exception:
        return
    for name in names:
        try:
            yield f".{name}", getattr(value, name)
        except Exception:
            pass
