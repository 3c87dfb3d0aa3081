"""What bytes that nobody wrote can do: be refused, and nothing else."""

from __future__ import annotations

import builtins
import collections
import dataclasses
import datetime
import decimal
import functools
import os
import pathlib
import random
import re
import subprocess
import sys
import uuid
from typing import Any, NamedTuple

import numpy as np
import ormsgpack
import pydantic
import pytest

from flowfn.errors import MissingClassError, UnreadableError, UnstorableError
from flowfn.serde import Serializer, decode, encode

SERDE = Serializer()


@dataclasses.dataclass
class Point:
    x: int
    y: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int


class Pair(NamedTuple):
    left: Any
    right: Any


class Model(pydantic.BaseModel):
    x: int


class Loud:
    def __init__(self, *_: Any) -> None:
        raise AssertionError("called")


def ext(code: int, value: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(value)))


def nested(levels: int, lists: int) -> bytes:
    """A tuple in lists in a tuple in lists, `levels` times."""
    data = ormsgpack.packb(1)
    for _ in range(levels):
        data = b"\x91" * lists + ormsgpack.packb(ormsgpack.Ext(16, b"\x91" + data))
    return data


@pytest.mark.parametrize(("levels", "lists"), [(101, 0), (5000, 0), (99, 250), (30, 250), (5, 255), (99, 3), (1, 1100)])
def test_a_depth_bomb_is_refused(levels: int, lists: int) -> None:
    with pytest.raises(UnreadableError):
        decode(nested(levels, lists))


@pytest.mark.parametrize(("levels", "lists"), [(3, 1000), (99, 1000), (99, 2), (99, 0), (4, 250), (30, 1000)])
def test_a_depth_bomb_does_not_end_the_interpreter_on_a_small_stack(levels: int, lists: int) -> None:
    code = f"""
import sys, threading
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_hostile import nested, decode
def run():
    try:
        decode(nested({levels}, {lists}))
    except ValueError:
        pass
    print("alive")
threading.stack_size(3 << 20)
worker = threading.Thread(target=run)
worker.start()
worker.join()
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout == "alive\n"


@pytest.mark.parametrize("levels", [90, 99])
def test_values_nested_as_deep_as_allowed_come_back(levels: int) -> None:
    value = functools.reduce(lambda inside, _: (inside,), range(levels), 1)

    assert decode(encode(value)) == value


@pytest.mark.parametrize("around", [lambda v: (v,), lambda v: ([[[v]]],), lambda v: [v], lambda v: Point(1, v)])
@pytest.mark.parametrize("levels", [50, 99, 150, 260, 3000])
def test_what_can_be_written_can_be_read(around: Any, levels: int) -> None:
    value = functools.reduce(lambda inside, _: around(inside), range(levels), 1)
    try:
        data = encode(value)
    except UnstorableError:
        return

    assert encode(decode(data)) == data


def test_a_value_nested_too_deep_is_refused_at_save_without_recursion_error() -> None:
    value: Any = 1
    for _ in range(5000):
        value = ({"a": [value]},)

    with pytest.raises(UnstorableError):
        encode(value)


@pytest.mark.parametrize(
    "name",
    ["builtins:eval", "os:system", f"{__name__}:Loud", f"{__name__}:Point.__init__", "eval", "int", "object", ""],
)
@pytest.mark.parametrize("code", range(64, 70))
def test_a_name_that_is_not_of_the_claimed_kind_is_refused(name: str, code: int) -> None:
    with pytest.raises(UnreadableError):
        decode(ext(code, [name, {}]))


def test_an_exception_record_that_names_no_exception_is_refused() -> None:
    with pytest.raises(UnreadableError):
        decode(ext(6, [0, [[f"{__name__}:Loud", [], {}, {}, None, None, False, "", None]]]))


def test_an_exception_record_cannot_set_other_members() -> None:
    with pytest.raises(UnreadableError, match="has no member"):
        decode(ext(6, [0, [["ValueError", [], {}, {"__class__": 1}, None, None, False, "", None]]]))


def test_a_record_of_an_attribute_that_the_slots_do_not_have_is_refused() -> None:
    with pytest.raises(UnreadableError, match="has no attribute y any more"):
        decode(ext(65, [f"{__name__}:Slotted", {"x": 1, "y": 2}]))


def test_a_record_of_fields_that_a_named_tuple_does_not_have_is_refused() -> None:
    with pytest.raises(UnreadableError, match="it has the fields left"):
        decode(ext(66, [f"{__name__}:Pair", {"left": 1}]))


@pytest.mark.parametrize("name", ["shelve:Shelf", "wave:Error", "nowhere:Class", f"{__name__}:Nothing"])
def test_no_module_is_imported_to_find_a_class(name: str) -> None:
    before = set(sys.modules)

    with pytest.raises(MissingClassError):
        decode(ext(65, [name, {}]))

    assert set(sys.modules) == before


def test_a_module_is_not_asked_for_what_it_would_make_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "__getattr__", lambda name: Point)

    with pytest.raises(MissingClassError):
        decode(ext(65, [f"{__name__}:MadeUp", {}]))


def test_an_array_of_objects_is_refused() -> None:
    head = ormsgpack.packb(["O", "C", 1])
    data = len(head).to_bytes(2, "little") + head + bytes(8)

    with pytest.raises(UnreadableError):
        decode(ormsgpack.packb(ormsgpack.Ext(8, data)))


def test_an_array_larger_than_its_bytes_is_refused() -> None:
    head = ormsgpack.packb(["<f8", "C", 10**9])
    data = len(head).to_bytes(2, "little") + head + bytes(8)

    with pytest.raises(UnreadableError):
        decode(ormsgpack.packb(ormsgpack.Ext(8, data)))


def test_a_pattern_that_would_print_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnreadableError):
        decode(ext(42, ["a", int(re.DEBUG)]))

    assert capsys.readouterr().out == ""


def test_a_default_factory_is_never_looked_up_by_name() -> None:
    with pytest.raises(UnreadableError):
        decode(ext(45, ["eval", "a", 1]))


@pytest.mark.parametrize(
    "blob",
    [b"", b"\x10", b"M", b"\x10X", b"\x10NN", b"\x10M", b"\x10P", b"\x10C", b"\x20M\x01", b"\x11M\x01", b"\x00" * 9],
)
def test_a_header_that_is_not_ours_is_refused(blob: bytes) -> None:
    with pytest.raises(UnreadableError):
        SERDE.loads(blob)


@pytest.mark.parametrize(("head", "said"), [(0x12, "encrypted"), (0x14, "compressed"), (0x13, "signed and encrypted")])
def test_a_blob_that_a_later_step_has_changed_says_so(head: int, said: str) -> None:
    with pytest.raises(UnreadableError, match=f"it is {said}, which"):
        SERDE.loads(bytes((head, ord("M"))) + b"\x01")


SEEDS: list[Any] = [
    {"a": [1, (2, 3.5), {4}, None, True, "text", b"bytes"]},
    [Point(1, [Point(2, {"k": (1,)})]), Slotted(1), Pair(1, (2,)), Model(x=1)],
    {1: "a", (2, 3): decimal.Decimal("1.5"), None: [2**80, -(2**90)]},
    [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.date(2026, 1, 2), datetime.timedelta(1)],
    [uuid.UUID(int=5), pathlib.PurePosixPath("a/b"), re.compile("a+(b|c)"), range(5), slice(1, 2), ...],
    [ValueError("a"), OSError(2, "gone", "file"), ExceptionGroup("g", [KeyError(1), TypeError("x")])],
    [collections.Counter("abc"), collections.deque([1], 3), collections.defaultdict(list, {"a": [1]})],
    [np.arange(6).reshape(2, 3), np.float64(1.5), np.datetime64("2026-01-02"), np.array(["a", "bc"])],
    [bytearray(b"abc"), memoryview(b"abc"), "\ud800", re.I | re.M],
]


def mutated(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        place, act = dice.randrange(len(changed)), dice.randrange(4)
        if act == 0:
            changed[place] = dice.randrange(256)
        elif act == 1:
            changed[place] ^= 1 << dice.randrange(8)
        elif act == 2:
            changed[place:place] = dice.randbytes(dice.randrange(1, 4))
        elif len(changed) > 4:
            del changed[place : place + dice.randrange(1, 4)]
    return bytes(changed)


@pytest.mark.parametrize("seed", range(len(SEEDS)))
@pytest.mark.filterwarnings("ignore")
def test_mutated_bytes_are_read_or_refused_and_call_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    data = encode(SEEDS[seed])

    def called(*_: Any, **__: Any) -> Any:
        raise SystemExit("called")

    for holder, name in (
        (os, "system"),
        (builtins, "eval"),
        (Point, "__init__"),
        (Model, "__init__"),
    ):
        monkeypatch.setattr(holder, name, called)
    for _ in range(4000):
        try:
            decode(mutated(data, dice))
        except UnreadableError:
            pass


def test_random_bytes_are_read_or_refused() -> None:
    dice = random.Random(1)
    for _ in range(20_000):
        try:
            decode(dice.randbytes(dice.randrange(1, 40)))
        except UnreadableError:
            pass


@pytest.mark.filterwarnings("ignore")
def test_every_truncation_is_refused() -> None:
    for value in SEEDS:
        data = encode(value)
        for size in range(len(data)):
            with pytest.raises(UnreadableError):
                decode(data[:size])
