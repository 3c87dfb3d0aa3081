"""Values as a short line of text, for lists, logs and pages.

Only builtin types are ever asked for their `repr`, and never a large one whole; of anything else the line tells the
type, and the fields if it is a dataclass. So it is quick, fits on a line and cannot raise.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from typing import Any

_PLAIN = frozenset({float, bool, type(None)})
_BIG = 1 << 256
_LARGE = 1 << 10  # Bytes of a Decimal, which can have a million digits.
_SHORT = frozenset(
    {complex, decimal.Decimal, fractions.Fraction, uuid.UUID, range, type(...), datetime.datetime, datetime.date}
    | {datetime.time, datetime.timedelta, datetime.timezone, type(NotImplemented)}
)
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_DEEPEST = 4


def kind_name(value: object) -> str:
    """The type's name as a person would write it: `int`, `threading.Thread`."""
    cls = type(value)
    try:
        return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    except Exception:
        return "object"


def preview(value: object, limit: int = 60) -> str:
    """The value as one line of at most `limit` characters; never raises."""
    kind = type(value)
    if (kind is int and -_BIG < value < _BIG) or (kind is str and len(value) < limit):  # type: ignore[operator,arg-type]
        text = repr(value)
        if len(text) <= limit:
            return text
    try:
        text = _text(value, limit, 0)
    except Exception:
        text = f"<{kind_name(value)}>"
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def _text(value: Any, room: int, depth: int) -> str:
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value if len(value) <= room else value[: max(room, 0)])
    if kind in _PLAIN:
        return repr(value)
    if kind is int:
        return repr(value) if -_BIG < value < _BIG else f"<int of {value.bit_length()} bits>"
    if kind in _BRACKETS:
        return _container(value, kind, room, depth)
    if kind in _SHORT:
        return repr(value) if value.__sizeof__() < _LARGE else f"<{kind_name(value)}>"
    return _object(value, kind, room, depth)


def _container(value: Any, kind: type, room: int, depth: int) -> str:
    """As many items as there is room for."""
    opening, closing = _BRACKETS[kind]
    if depth >= _DEEPEST:
        return f"{opening}…{closing}"
    if not value or _is_small(value, 2):
        return repr(value)
    shown: list[str] = []
    for item in value:
        if room <= 0:
            shown.append(f"… {len(value) - len(shown)} more")
            break
        text = _text(item, room, depth + 1)
        if kind is dict:
            text = f"{text}: {_text(value[item], room, depth + 1)}"
        shown.append(text)
        room -= len(text) + 2
    if kind is tuple and len(shown) == 1:
        closing = ",)"
    return f"{opening}{', '.join(shown)}{closing}"


def _is_small(value: Any, depth: int) -> bool:
    """Whether the whole of it is few and small builtins, whose `repr` is quick and safe."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= 60
    if kind is int:
        return bool(-_BIG < value < _BIG)
    if kind is list or kind is tuple or kind is dict:
        if not depth or len(value) > 8:
            return False
        items = [*value, *value.values()] if kind is dict else value
        for item in items:  # noqa: SIM110 (all() of a generator takes four times as long)
            if not _is_small(item, depth - 1):
                return False
        return True
    return kind in _PLAIN


def _object(value: Any, kind: type, room: int, depth: int) -> str:
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{value._name_}"
    if issubclass(kind, pathlib.PurePath):
        return f"{kind.__name__}({str(value)!r})"
    if issubclass(kind, BaseException):
        inside = _container(value.args, tuple, room, depth)
        return kind.__name__ + (inside.removesuffix(",)") + ")" if len(value.args) == 1 else inside)
    if dataclasses.is_dataclass(kind) and depth < _DEEPEST:
        shown = []
        for field in dataclasses.fields(kind):
            if field.repr and room > 0:
                shown.append(f"{field.name}={_text(getattr(value, field.name, ...), room, depth + 1)}")
                room -= len(shown[-1]) + 2
        return f"{kind.__qualname__}({', '.join(shown)})"
    if issubclass(kind, (list, tuple, dict, set, frozenset)) or kind.__module__ == "collections":
        return f"<{kind.__qualname__} of {len(value)}>"
    if kind.__module__.partition(".")[0] in ("numpy", "pandas"):
        shape = getattr(value, "shape", ())
        return f"<{kind.__qualname__} {'×'.join(map(str, shape))}>" if shape else f"<{kind.__qualname__}>"
    return f"<{kind_name(value)}>"
