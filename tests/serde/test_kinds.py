"""What stands for a kind of value is of one type only: a few bytes cannot stand for very much."""

from __future__ import annotations

import fractions
import time
import tracemalloc
import uuid
from typing import Any

import numpy as np
import ormsgpack
import pytest

from flowfn.errors import UnreadableError, UnstorableError
from flowfn.serde import decode, encode
from flowfn.serde.kinds import ARRAY, EXCEPTION, KINDS, MEMORYVIEW, RAW, REGISTERED
from flowfn.serde.typed import _readers


def ext(code: int, data: bytes) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, data))


def packed(code: int, plain: Any) -> bytes:
    """An extension of that code, whose inside may be made of extensions, too."""
    return ext(
        code, ormsgpack.packb(plain, lambda part: ormsgpack.Ext(part[0], part[1]), ormsgpack.OPT_PASSTHROUGH_TUPLE)
    )


def part(code: int, plain: Any) -> tuple[int, bytes]:
    return code, ormsgpack.packb(plain)


def array(text: str, *shape: int) -> bytes:
    head = ormsgpack.packb([text, "C", *shape])
    return ext(ARRAY, len(head).to_bytes(2, "little") + head)


NETWORK = part(39, "::/0")  # A sequence of 2**128 addresses.
RANGE = part(20, [0, 2**60, 1])
LISTED = [code for code, kind in _readers.items() if not kind.is_raw and kind.takes is list]

BOMBS: dict[str, bytes] = {
    **{f"a network in the place of a list, code {code}": packed(code, NETWORK) for code in LISTED},
    **{f"a range in the place of a list, code {code}": packed(code, RANGE) for code in LISTED},
    "a range in an array": packed(47, ["q", RANGE]),
    "a number in the place of bytes, in a view": packed(MEMORYVIEW, [10**12, "B", [1], False]),
    "a number in the place of bytes, in an array": packed(47, ["b", 10**12]),
    "a fraction from a text": packed(25, ["1e999999999", 1]),
    "a fraction from a text alone": packed(25, ["1e999999999"]),
    "a billion texts of no bytes": array("<U0", 10**9),
    "a billion bytes of none": array("|S0", 10**9),
    "one text of a billion characters": array("<U1000000000", 1),
    "a billion numbers": array("<f8", 10**9),
    "arguments of an exception": packed(EXCEPTION, [0, [["ValueError", NETWORK, {}, {}, None, None, False, "", None]]]),
    "a record of an exception": packed(EXCEPTION, [0, [RANGE]]),
    "records of exceptions": packed(EXCEPTION, [0, NETWORK]),
    "members of a group": packed(EXCEPTION, [0, [["ExceptionGroup", ["a"], {}, {}, None, None, False, "", NETWORK]]]),
    "a name that is a network": packed(65, [NETWORK, {}]),
    "the state of an object": packed(65, ["fractions:Fraction", NETWORK]),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_few_bytes_cannot_stand_for_very_much(data: bytes) -> None:
    began = time.thread_time()
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError):
            decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20
    assert time.thread_time() - began < 1


def test_no_code_stands_for_two_kinds() -> None:
    codes = [kind.code for kind in KINDS.values()]

    assert len(codes) == len(set(codes))
    assert {REGISTERED, EXCEPTION, MEMORYVIEW, ARRAY}.isdisjoint(codes)


def test_what_is_raw_is_known_as_raw() -> None:
    assert {code for code, kind in _readers.items() if kind.is_raw} == RAW


@pytest.mark.parametrize("safe", list(uuid.SafeUUID))
def test_whether_an_id_is_known_to_be_unique_is_kept(safe: uuid.SafeUUID) -> None:
    assert decode(encode(uuid.UUID(int=5, is_safe=safe))).is_safe is safe


@pytest.mark.parametrize("data", [b"", b"1" * 15, b"1" * 16 + b"\2", b"1" * 18], ids=len)
def test_bytes_that_are_no_id_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode(ext(32, data))


def test_a_fraction_of_other_numbers_than_ints_is_no_plain_data() -> None:
    value = fractions.Fraction(1, 3)
    value._numerator = np.int64(1)  # type: ignore[attr-defined]

    with pytest.raises(UnstorableError, match="no int"):
        encode(value)


@pytest.mark.parametrize("text", ["O", "|O", "|V8", "<i4,<i4", "{'names': ['a']}", "<f8\n", "", "i", "<x4"])
def test_an_array_of_anything_but_numbers_and_texts_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        decode(array(text, 0))
