"""What a function does, as a digest."""

from __future__ import annotations

import functools
from types import CodeType, MethodType
from typing import Any

from flowfn import identity

MOST_WRAPPERS = 50
"""How many decorators are taken off a function to come to its code."""


def call_of(thing: Any) -> Any:
    """What runs when an object is called: its class's `__call__`, None where there is none."""
    return next((vars(kind)["__call__"] for kind in type(thing).__mro__ if "__call__" in vars(kind)), None)


def source_digest(fn: Any) -> str:
    """A digest of a function's own code, empty where there is none to read."""
    for _ in range(MOST_WRAPPERS):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, MethodType | staticmethod | classmethod):
            fn = fn.__func__
        elif "__wrapped__" in getattr(fn, "__dict__", ()):
            fn = fn.__wrapped__
        else:
            break
    code = getattr(fn if hasattr(fn, "__code__") else call_of(fn) or fn, "__code__", None)
    return "" if code is None else _hex(code)


@functools.lru_cache(maxsize=4096)
def _hex(code: CodeType) -> str:
    return identity.code_digest(code).hex()
