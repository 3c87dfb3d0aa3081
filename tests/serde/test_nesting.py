"""How deep values may nest: refused where it would end the interpreter, on whatever stack, and on both sides alike."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from flowfn.errors import UnreadableError, UnstorableError
from flowfn.serde import Serializer, decode, encode, nesting

ROOT = Path(__file__).parents[2]
STRICT = Serializer(allow_pickle=False)


def nested(around: Callable[[Any], Any], depth: int, core: Any = 1) -> Any:
    return functools.reduce(lambda inside, _: around(inside), range(depth), core)


def packed(data: bytes, code: int = 16) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, data))


LIST, LONG_LIST, MAP, PAIR = b"\x91", b"\xdd\0\0\0\1", b"\x81\xa1a", b"\x92\x01"

BYTES: dict[str, Callable[[], bytes]] = {
    "lists": lambda: LIST * 1_000 + b"\1",
    "lists without an end": lambda: LIST * 100_000,
    "lists beside numbers": lambda: PAIR * 1_000 + b"\1",
    "lists with sizes of four bytes": lambda: LONG_LIST * 1_000 + b"\1",
    "lists that promise four billion items": lambda: b"\xdd\xff\xff\xff\xff" * 1_000,
    "maps": lambda: MAP * 1_000 + b"\1",
    "maps that promise four billion items": lambda: b"\xdf\xff\xff\xff\xff\xa1a" * 1_000,
    "packed in packed": lambda: nested(packed, 101, LIST + b"\1"),
    "packed in packed, very many": lambda: nested(
        lambda data: b"\xc9" + len(data).to_bytes(4, "big") + b"\x10" + data, 5_000, b"\1"
    ),
    "lists in packed lists": lambda: nested(lambda data: LIST * 1_000 + packed(LIST + data), 99, b"\1"),
    "maps in packed maps": lambda: nested(lambda data: MAP * 1_000 + packed(MAP + data), 99, b"\1"),
    "some lists in packed lists": lambda: nested(lambda data: LIST * 10 + packed(LIST + data), 90, b"\1"),
    "lists at the three outer levels": lambda: nested(
        lambda data: LIST * 1_000 + packed(LIST + data), 3, nested(packed, 90, LIST * 150 + b"\1")
    ),
    "lists at the innermost level": lambda: nested(lambda data: packed(LIST + data), 99, LIST * 1_000 + b"\1"),
    "lists in what is no packed value": lambda: nested(packed, 3, packed(LIST * 1_000, 3)),
    "unknown codes": lambda: nested(lambda data: packed(data, 99), 1_000, b"\1"),
    "alternating codes": lambda: nested(lambda data: packed(LIST + packed(LIST + data, 17), 18), 60, b"\1"),
}

VALUES: dict[str, Callable[[], Any]] = {
    "lists": lambda: nested(lambda inside: [inside], 5_000),
    "dicts": lambda: nested(lambda inside: {"a": inside}, 5_000),
    "tuples": lambda: nested(lambda inside: (inside,), 5_000),
    "tuples of lists": lambda: nested(lambda inside: ([[inside]],), 5_000),
    "lists, then tuples": lambda: nested(lambda inside: [inside], 1_000, nested(lambda inside: (inside,), 99)),
    "tuples, then lists": lambda: nested(lambda inside: (inside,), 90, nested(lambda inside: [inside], 250)),
    "dicts with int keys": lambda: nested(lambda inside: {1: inside}, 5_000),
    "lists of bytearrays": lambda: nested(lambda inside: [bytearray(1), inside], 250),
}

IN_WORKERS = """
import sys, threading
from resource import RUSAGE_SELF, getrusage
from flowfn.errors import UnreadableError, UnstorableError
from flowfn.serde import decode, encode
from tests.serde.test_nesting import BYTES, VALUES

def tried(action, made, refusal):
    before = getrusage(RUSAGE_SELF).ru_maxrss
    try:
        action(made)
        outcome = "taken"
    except refusal as error:
        outcome = "refused"
    grown = getrusage(RUSAGE_SELF).ru_maxrss - before >> 10
    print(outcome if grown < 60 else f"{outcome}, with {grown} MB", flush=True)

for kb in 512, 1024, 3072:
    threading.stack_size(kb << 10)
    for verb, makes, action, refusal in (
        ("read", BYTES, decode, UnreadableError), ("write", VALUES, encode, UnstorableError)
    ):
        for name, make in makes.items():
            print(kb, verb, name, end=": ", flush=True)
            worker = threading.Thread(target=tried, args=(action, make(), refusal))
            worker.start()
            worker.join()
"""


def test_no_depth_ends_the_interpreter_or_takes_much_memory_on_a_small_stack() -> None:
    done = subprocess.run([sys.executable, "-c", IN_WORKERS], capture_output=True, text=True, check=False, cwd=ROOT)

    outcomes = dict(line.split(": ") for line in done.stdout.splitlines())
    tried = [*(f"read {name}" for name in BYTES), *(f"write {name}" for name in VALUES)]
    assert list(outcomes) == [f"{kb} {name}" for kb in (512, 1024, 3072) for name in tried], done
    assert set(outcomes.values()) <= {"taken", "refused"}, outcomes


@pytest.mark.parametrize("name", ["lists in packed lists", "packed in packed", "lists at the innermost level"])
def test_what_is_too_deep_says_so_at_load(name: str) -> None:
    with pytest.raises(UnreadableError, match="nested too deep"):
        decode(BYTES[name]())


@pytest.mark.parametrize("name", [name for name in VALUES if name != "lists of bytearrays"])
def test_what_is_too_deep_says_so_at_save(name: str) -> None:
    with pytest.raises(UnstorableError, match="nested too deep"):
        STRICT.dumps(VALUES[name]())


AROUND: list[Callable[[Any], Any]] = [
    lambda inside: (inside,),
    lambda inside: ([[[inside]]],),
    lambda inside: [inside],
    lambda inside: {"a": [(inside, {1: 2})]},
]


@pytest.mark.parametrize("size", [1 << 19, 2 << 20, 8 << 20], ids=lambda size: f"{size >> 10} KB")
@pytest.mark.parametrize("around", AROUND, ids=["tuples", "tuples of lists", "lists", "held"])
@pytest.mark.parametrize("depth", [50, 70, 99, 150, 250, 260, 3_000])
def test_what_can_be_written_can_be_read(
    around: Callable[[Any], Any], depth: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nesting, "stack_size", lambda: size)
    try:
        data = encode(nested(around, depth))
    except UnstorableError:
        return

    assert encode(decode(data)) == data


@pytest.mark.parametrize("held", [{1: 2}, bytearray(b"x"), "\ud800"], ids=["keys", "bytes", "text"])
def test_what_has_to_be_held_at_every_depth_takes_no_longer_for_it(held: Any) -> None:
    value = nested(lambda inside: (inside, held), 60)

    began = time.thread_time()
    data = encode(value)

    assert time.thread_time() - began < 1
    assert encode(decode(data)) == data


def test_a_small_stack_reads_nothing_that_is_deeper_than_its_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(nested(lambda inside: [inside], 200, nested(lambda inside: (inside,), 60)))
    monkeypatch.setattr(nesting, "stack_size", lambda: 1 << 19)

    with pytest.raises(UnreadableError, match="nested too deep"):
        decode(data)


@pytest.mark.parametrize("byte", [0x91, 0x81, 0xDD])
def test_bytes_that_look_like_nesting_are_none(byte: int) -> None:
    value = nested(lambda inside: (inside,), 5, [bytearray([byte] * 2_000), bytes([byte] * 2_000)])

    assert decode(encode(value)) == value


def test_a_worker_knows_the_size_of_its_own_stack() -> None:
    code = """
import threading
from flowfn.serde.stack import stack_size
for kb in (512, 4096):
    threading.stack_size(kb << 10)
    worker = threading.Thread(target=lambda: print(stack_size() >> 10))
    worker.start()
    worker.join()
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)

    assert [abs(int(found) - kb) < 64 for found, kb in zip(done.stdout.split(), (512, 4096), strict=True)] == [True] * 2


# ---------------------------------------------------------------- the two ways to look


def trees(dice: random.Random, depth: int) -> Any:
    """Any plain data, with packed values inside."""
    kind = dice.randrange(12 if depth else 8)
    leaves = [
        None,
        True,
        dice.randrange(-(2**63), 2**64),
        dice.random(),
        "a" * dice.choice((0, 5, 31, 32, 300, 70_000)),
    ]
    leaves += [dice.randbytes(dice.choice((0, 1, 255, 256, 70_000))), -1, 200]
    if kind < 8:
        return leaves[kind]
    inside = [trees(dice, depth - 1) for _ in range(dice.choice((0, 1, 2, 3, 16)))]
    if kind < 10:
        return inside if kind == 8 else {str(place): part for place, part in enumerate(inside)}
    return ormsgpack.Ext(dice.choice((16, 17, 45, 3, 100)), ormsgpack.packb(inside))


@pytest.mark.parametrize("seed", range(60))
def test_stepping_over_a_packed_value_finds_what_unpacking_it_finds(seed: int) -> None:
    data = ormsgpack.packb(trees(random.Random(seed), 6))

    assert nesting._stepped(data) == nesting._unpacked(data)


def test_stepping_over_damaged_bytes_comes_to_an_end() -> None:
    dice = random.Random(1)
    for _ in range(3_000):
        depth, _ = nesting._stepped(dice.randbytes(dice.randrange(60)))
        assert depth < 60


def test_floors_tell_the_types_at_each_depth() -> None:
    value = {"a": [1, {"b": 2.5}], "c": "d"}

    assert list(nesting.floors(value)) == [{dict}, {list, str}, {int, dict}, {float}]


def test_floors_go_over_a_hundred_thousand_rows_without_a_list_of_their_values() -> None:
    rows = [{"a": 1, "b": [2], "c": 1.5} for _ in range(20_000)]

    tracemalloc.start()
    try:
        assert list(nesting.floors(rows)) == [{list}, {dict}, {int, list, float}, {int}]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 20_000 * 8 * 3
