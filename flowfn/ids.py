"""Ids that sort by the time they were made."""

from __future__ import annotations

import os
import random
import threading
import time

_chance = random.Random(os.urandom(32))
_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A UUID of version 7 as text: its millisecond, then a count within it, then chance. Later ids sort after earlier
    ones of this process.

    Source: RFC 9562, section 5.7, with method 3 of section 6.2 for the twelve bits after the milliseconds.
    """
    global _last
    now = time.time_ns()
    ticks = (now // 1_000_000 << 12) | ((now % 1_000_000) * 4096 // 1_000_000)
    with _lock:
        _last = ticks = max(ticks, _last + 1)
    value = (ticks >> 12 << 80) | (7 << 76) | ((ticks & 0xFFF) << 64) | (2 << 62) | _chance.getrandbits(62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))
