"""How deep packed values nest, before they are unpacked.

ormsgpack recurses on the machine's stack, about 550 bytes for a list in a list. It stops by itself at a thousand, but a
value packed inside another starts counting anew, and a few kilobytes could make a hundred times a thousand of them and
end the interpreter. So from the third packed value inside another on, all that is below together gets one allowance.
That makes 3 MB of stack enough. Where a worker has less, all of a value gets that one allowance, and 512 KB are enough.
Both sides tell it from the bytes: what can be written can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import ormsgpack

from flowfn.serde.kinds import RAW
from flowfn.serde.stack import stack_size

ALLOWED = 255
ENOUGH = 3 << 20
"""Bytes of stack that hold whatever the count from the third packed value on lets pass."""

_FOR_ONE = 1 << 20  # Bytes that hold one value, with nothing packed in it, as deep as ormsgpack goes.

_HEADERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))


def is_too_deep_here(data: bytes | memoryview) -> bool:
    """Whether all of a value is too deep for this worker; False where the stack holds whatever may come."""
    return len(data) > ALLOWED and stack_size() < ENOUGH and is_too_deep(data)


def is_too_deep(data: bytes | memoryview) -> bool:
    """Whether lists and maps, counted through all packed values inside, might nest deeper than is allowed."""
    if len(data) <= ALLOWED:
        return False
    data = bytes(data)
    if len(data) - len(data.translate(None, _HEADERS)) <= ALLOWED:
        return False
    look = _unpacked if stack_size() >= _FOR_ONE else _stepped
    todo = [(data, 0)]
    while todo:
        packed, above = todo.pop()
        depth, inside = look(packed)
        if above + depth > ALLOWED:
            return True
        todo += [(part, above + depth) for part in inside]
    return False


# ---------------------------------------------------------------- how deep one packed value is, and what is in it


def _unpacked(packed: bytes) -> tuple[int, list[bytes]]:
    """Found by unpacking it. Bytes that cannot be are not deep: whoever reads them will say so."""
    inside: list[bytes] = []

    def keep(code: int, part: bytes) -> None:
        if code not in RAW:
            inside.append(part)

    try:
        tree = ormsgpack.unpackb(packed, ext_hook=keep)
    except ValueError:
        return 0, []
    return sum(1 for _ in floors(tree)) - 1, inside


_PLAIN, _LIST, _MAP, _EXT = range(4)
_SIZED = (
    *[(_PLAIN, 0, 0)] * 4,  # nil, and true and false
    *[(_PLAIN, width, 0) for width in (1, 2, 4)],  # bytes
    *[(_EXT, width, 0) for width in (1, 2, 4)],
    *[(_PLAIN, 0, size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)],  # floats, and ints of both kinds
    *[(_EXT, 0, size) for size in (1, 2, 4, 8, 16)],
    *[(_PLAIN, width, 0) for width in (1, 2, 4)],  # texts
    *[(kind, width, 0) for kind in (_LIST, _MAP) for width in (2, 4)],
)
"""What begins with 0xc0 and the bytes after it: its kind, how many bytes tell its size, and its size if none do."""


def _shape(head: int) -> tuple[int, int, int]:
    """What begins with that byte, as in `_SIZED`."""
    if 0xC0 <= head < 0xE0:
        return _SIZED[head - 0xC0]
    if head < 0x80 or head >= 0xE0:
        return _PLAIN, 0, 0
    return (_MAP, 0, head & 15) if head < 0x90 else (_LIST, 0, head & 15) if head < 0xA0 else (_PLAIN, 0, head & 31)


_SHAPES = [_shape(head) for head in range(256)]


def _stepped(packed: bytes) -> tuple[int, list[bytes]]:
    """Found by stepping over it from head to head: slower, and without any recursion."""
    inside: list[bytes] = []
    open_, left, deepest, at = [0], 1, 0, 0
    try:
        while open_ and deepest <= ALLOWED:
            if not left:
                left = open_.pop()
                continue
            kind, width, size = _SHAPES[packed[at]]
            at, left = at + 1 + width, left - 1
            if width:
                size = int.from_bytes(packed[at - width : at], "big")
            if kind == _PLAIN:
                at += size
            elif kind == _EXT:
                if packed[at] not in RAW:
                    inside.append(packed[at + 1 : at + 1 + size])
                at += 1 + size
            else:
                open_.append(left)
                left = 2 * size if kind == _MAP else size
                deepest = max(deepest, len(open_) - 1)
    except IndexError:  # They end too soon.
        pass
    return deepest, inside


# ---------------------------------------------------------------- values, floor by floor


def floors(value: Any) -> Iterator[set[type]]:
    """The types of what lies at each depth of lists and dicts, from the value itself down."""
    kinds = {type(value)}
    lists, dicts = _only(list, kinds, (value,)), _only(dict, kinds, (value,))
    yield kinds
    while lists or dicts:
        kinds = set(map(type, _inside(lists, dicts)))
        yield kinds
        lists, dicts = _only(list, kinds, _inside(lists, dicts)), _only(dict, kinds, _inside(lists, dicts))


def _inside(lists: list[Any], dicts: list[Any]) -> Iterator[Any]:
    values = chain.from_iterable(map(dict.values, dicts))
    return chain(chain.from_iterable(lists), values) if lists else values


def _only(kind: type, kinds: set[type], items: Iterable[Any]) -> list[Any]:
    if kind not in kinds:
        return []
    return list(items) if len(kinds) == 1 else [item for item in items if type(item) is kind]
