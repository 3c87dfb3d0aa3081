"""Looking for no garbage while very much is read: none of it is any, and looking can take longer than reading."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

T = TypeVar("T")

_pausing: set[int] = set()
"""Workers that have the collector turned off."""


def without_collecting(read: Callable[..., T], *arguments: Any) -> T:
    """What `read` gives; the garbage collector rests meanwhile, unless somebody else has turned it off or on."""
    if not gc.isenabled():
        return read(*arguments)
    me = get_ident()
    try:
        _pausing.add(me)
        gc.disable()
        return read(*arguments)
    finally:
        gc.enable()
        _pausing.discard(me)


def _wake_up() -> None:
    """In a forked child nobody comes back from reading, but for the worker that forked."""
    if _pausing:
        _pausing.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_wake_up)
