"""What lies behind a packed value: the numbers of its large arrays, each written and read by one copy.

Inside they would be copied at every depth, on both ways. So an array leaves its description and its size in the packed
value, and its numbers behind it, in the order in which the arrays are met; and whoever reads takes them in that order,
each once, to the last byte. Before such a value stand `MARK`, which begins no value of msgpack, and how long it is.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

MARK = 0xC1
_START = 9

_written: dict[int, list[Any]] = {}
_unread: dict[int, memoryview] = {}
"""What each worker has put aside, and has to take up, while it packs or unpacks; nearly always empty."""


def put_aside(description: bytes, numbers: Any) -> bytes:
    """Have the numbers written behind the value that this worker packs; what is to be packed in their place."""
    _written.setdefault(get_ident(), []).append(numbers)
    return memoryview(numbers).nbytes.to_bytes(8, "little") + description


def take_up(data: bytes) -> tuple[bytes, memoryview]:
    """Description and numbers of what `put_aside` gave this for.

    Raises:
        ValueError: they do not lie there.
    """
    size, unread = int.from_bytes(data[:8], "little"), _unread.get(get_ident())
    if unread is None or size > len(unread):
        raise ValueError("the numbers of an array are missing")
    _unread[get_ident()] = unread[size:]
    return data[8:], unread[:size]


def forget() -> None:
    """Forget what this worker has put aside, for it begins anew."""
    if _written:
        _written.pop(get_ident(), None)


def written(pack: Callable[[Any], bytes], value: Any, head: bytes) -> bytes:
    """`head`, the value as `pack` packs it, and all that it put aside meanwhile."""
    around = _written.pop(get_ident(), None) if _written else None  # Of a value that asked for this to be packed.
    try:
        data = pack(value)
    finally:
        behind = _written.pop(get_ident(), None) if _written else None
        if around is not None:
            _written[get_ident()] = around
    if behind is None:
        return head + data
    return b"".join((head, bytes((MARK,)), len(data).to_bytes(_START - 1, "little"), data, *behind))


def read(unpack: Callable[[memoryview], Any], data: bytes | memoryview) -> Any:
    """What `unpack` makes of a value that has something behind it.

    Raises:
        ValueError: it leaves some of that unread.
    """
    me, end = get_ident(), _START + int.from_bytes(data[1:_START], "little")
    around = _unread.get(me)
    _unread[me] = memoryview(data)[end:]
    try:
        value = unpack(memoryview(data)[_START:end])
        if len(_unread[me]):
            raise ValueError("there is more behind it than it asks for")
    finally:
        if around is None:
            del _unread[me]
        else:
            _unread[me] = around
    return value
