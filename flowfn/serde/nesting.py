"""How deep packed values nest, before they are unpacked.

ormsgpack recurses on the machine's stack, about 500 bytes for a list in a list. It stops by itself at a thousand, but a
value packed inside another starts counting anew, and a few kilobytes could make a hundred times a thousand of them and
end the interpreter. So from the third packed value inside another on, all that is below together gets one allowance.
Both sides tell it from the bytes: what can be written can be read. That makes 3 MB of stack enough.
"""

from __future__ import annotations

from typing import Any

import ormsgpack

ALLOWED = 255
_HEADERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))


def is_too_deep(data: bytes | memoryview) -> bool:
    """Whether lists and maps, counted through all packed values inside, might nest deeper than is allowed."""
    if len(data) <= ALLOWED:
        return False
    data = bytes(data)
    if len(data) - len(data.translate(None, _HEADERS)) <= ALLOWED:
        return False
    todo = [(data, 0)]
    while todo:
        packed, above = todo.pop()
        inside: list[bytes] = []
        keep = inside.append
        try:
            tree = ormsgpack.unpackb(packed, ext_hook=lambda _, part, keep=keep: keep(part))  # type: ignore[misc]
        except ValueError:
            continue
        below = above + _depth(tree)
        if below > ALLOWED:
            return True
        todo += [(part, below) for part in inside]
    return False


def _depth(tree: Any) -> int:
    level, depth = [tree], -1
    while level:
        depth += 1
        level = [
            part for one in level if type(one) in (list, dict) for part in (one.values() if type(one) is dict else one)
        ]
    return depth
