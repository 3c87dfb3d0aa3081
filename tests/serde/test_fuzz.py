"""Bytes that nobody wrote are read, or refused by a `FlowError`, and do nothing else.

Every input is made from its number: a blob of some kind of value, with bytes changed, or taken apart, changed and put
together again, so that what it says is wrong and how it says it is right. CI tries 60 000; `FLOWFN_FUZZ=3000000`
tries so many. Half are read on the main stack of a process, half on a worker's of 3 MB. One of them is read by
`PYTHONHASHSEED=0 python -c 'from tests.serde.test_fuzz import tell; tell(12345)'`.
"""

from __future__ import annotations

import builtins
import collections
import functools
import json
import mmap
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RLIMIT_AS, RUSAGE_SELF, getrusage, setrlimit
from typing import Any

import numpy as np
import ormsgpack
import pytest

from flowfn.errors import FlowError
from flowfn.serde import Serializer, decode, encode
from flowfn.serde.keys import Keyring
from flowfn.serde.kinds import RAW
from flowfn.serde.typed import _readers
from tests.serde import every_kind
from tests.serde.every_kind import ROWS, Model, Plain, Point

ROOT = Path(__file__).parents[2]
COUNT = int(os.environ.get("FLOWFN_FUZZ", "60000"))
SLOW, GREEDY = 2.0, 30 << 10
"""Seconds of CPU, and kilobytes of memory, that one input may not take."""
DEPTHS = 100
"""So often can the same bytes be packed into others, and there are as many copies of them."""

CELL = ("call", "thread", "", "run", b"key")
OURS, THEIRS = Serializer(keys=Keyring.of("a secret of this test")), Serializer(keys=Keyring.of("a secret of another"))
STRICT = Serializer(allow_pickle=False, keys=Keyring.of("a secret of this test"))


class Canary(BaseException):
    """Something ran that must not; no `except Exception` hides it."""


def sing(*_: Any, **__: Any) -> Any:
    raise Canary("code ran")


class Trap:
    """Whoever loads its pickle runs code."""

    def __reduce__(self) -> Any:
        return sing, ()


# ---------------------------------------------------------------- what is changed


class Ext:
    """An extension that was taken apart."""

    def __init__(self, code: int, inside: Any) -> None:
        self.code, self.inside = code, inside


def taken_apart(data: bytes) -> Any:
    def opened(code: int, inside: bytes) -> Ext:
        return Ext(code, inside if code in RAW else taken_apart(inside))

    return ormsgpack.unpackb(data, ext_hook=opened)


def put_together(tree: Any) -> bytes:
    return ormsgpack.packb(tree, _packed, ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_PASSTHROUGH_BIG_INT)


def _packed(tree: Any) -> ormsgpack.Ext:
    if not isinstance(tree, Ext):
        raise TypeError(tree)
    inside = tree.inside
    return ormsgpack.Ext(tree.code, inside if tree.code in RAW and type(inside) is bytes else put_together(inside))


def trap(tier: bytes) -> bytes:
    """A pickle that runs code when it is loaded, unsigned."""
    line = f"test_fuzz {sys.version_info[0]}.{sys.version_info[1]}" if tier == b"C" else "test_fuzz"
    return b"\x10" + tier + line.encode() + b"\n" + pickle.dumps(Trap())


@functools.cache
def seeds() -> tuple[list[bytes], list[bytes]]:
    """Plain data packed, one of each kind at least; and blobs with their headers, signed and not."""
    plain, blobs = [], []
    for row in ROWS:
        if row.tier and len(blob := Serializer().dumps(row.make())) < 4_000:
            if row.tier == "M":
                plain.append(blob[2:])
            blobs += [blob, OURS.dumps(row.make(), cell=CELL), THEIRS.dumps(row.make(), cell=CELL)]
    for blob in (trap(b"P"), trap(b"C")) * 3:
        blobs += [blob, THEIRS.trusted(blob, CELL), OURS.trusted(blob, ("elsewhere",))]
        blobs.append(OURS.trusted(blob, CELL)[:-16] + bytes(16))
    return plain, blobs


CLASSES = ("Point", "Plain", "Model", "Color", "Bits", "Pair", "Coin", "CodeError")
LEAVES: list[Any] = [
    *(None, True, 0, 1, -1, 255, 2**31, 2**63, 2**64 - 1, -(2**63), 10**6, 1.5, float("nan"), float("inf"), 1e308),
    *("", "a", "a" * 300, "1e99999999", "nan", "\0", "../../etc/passwd", "Europe/Berlin", "(a+)+$", "[" * 50),
    *("b" * 70_000, "builtins:eval", "os:system", "eval", "int", "type", "object", "re:RegexFlag", "enum:Flag"),
    *("datetime:datetime", "numpy:ndarray", "pydantic.main:BaseModel", "collections:OrderedDict", "shelve:Shelf"),
    *("__main__/x:Y", ":", "::", *(f"{every_kind.__name__}:{name}" for name in CLASSES)),
    *("<f8", "|S0", "<U0", "<U999999999", "|O", "|V8", "<M8[25s]", ">i2", "C", "F", "list", "d", "u", "i"),
    *("__class__", "__dict__", "__pydantic_private__", "args", "__traceback__"),
    *(b"", b"\0", b"\x80\x04.", b"\xff" * 8, b"\0" * 70_000, b"\x91" * 300, {}, [], [[]], {"a": 1}, {"": {}}),
]
CODES = tuple(_readers)
TEXTS = [leaf for leaf in LEAVES if type(leaf) is str]


class Hand:
    """Changes trees: replaces, moves, doubles or leaves out parts of them.

    Args:
        share: of how many parts.
    """

    def __init__(self, dice: random.Random, share: float) -> None:
        self.dice, self.share, self.copies = dice, share, 3

    def changed(self, tree: Any) -> Any:
        """The tree after it went through this hand."""
        if self._is_time():
            return self._replaced(tree)
        if isinstance(tree, Ext):
            return Ext(self.dice.choice(CODES) if self._is_time() else tree.code, self.changed(tree.inside))
        if type(tree) is list and tree:
            return self._changed_list([self.changed(part) for part in tree])
        if type(tree) is dict:
            kept = [(key, part) for key, part in tree.items() if self.dice.random() > self.share / 3]
            return {self.dice.choice(TEXTS) if self._is_time() else key: self.changed(part) for key, part in kept}
        return changed_bytes(tree, self.dice) if type(tree) is bytes and self._is_time() else tree

    def _is_time(self) -> bool:
        return self.dice.random() < self.share

    def _replaced(self, tree: Any) -> Any:
        what = self.dice.randrange(6)
        if what == 0:
            return Ext(self.dice.choice((*CODES, 0, 72, 127)), tree)
        if what == 1:
            return [tree] if self.dice.randrange(2) else {"a": tree}
        return self.dice.choice(LEAVES)

    def _changed_list(self, parts: list[Any]) -> list[Any]:
        if not self._is_time():
            return parts
        place, what = self.dice.randrange(len(parts)), self.dice.randrange(3)
        if what == 0:
            del parts[place]
        elif what == 1:
            parts[place] = self.dice.choice(parts)
        elif self.copies:
            self.copies -= 1
            parts[place : place + 1] = [parts[place]] * self.dice.choice((2, 3, 20))
        return parts


SIZES = dict(zip(range(0xC4, 0xCA), (1, 2, 4) * 2, strict=True)) | dict(
    zip(range(0xD9, 0xE0), (1, 2, 4, 2, 4, 2, 4), strict=True)
)
"""The bytes that begin what has a size of its own, and how many bytes that size takes."""
HEADERS = bytes(SIZES)
WRONG = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1")


def changed_bytes(data: bytes, dice: random.Random) -> bytes:
    """The bytes with some of them set, turned, inserted, left out or doubled, cut short, and with wrong sizes."""
    new = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 8))):
        if not new:
            return bytes(new)
        place, what = dice.randrange(len(new)), dice.randrange(10)
        if what == 0:
            new[place] = dice.randrange(256)
        elif what == 1:
            new[place] ^= 1 << dice.randrange(8)
        elif what == 2:
            new[place:place] = dice.randbytes(dice.randrange(1, 5))
        elif what == 3:
            del new[place : place + dice.randrange(1, 9)]
        elif what == 4:
            part = new[place : place + dice.randrange(1, 40)]
            new[place:place] = part * dice.choice((1, 1, 2, 30))
        elif what == 5:
            del new[place:]
        elif what == 6:
            sized = [at for at, byte in enumerate(new[:3_000]) if byte in HEADERS]
            if sized:
                at = dice.choice(sized)
                size = dice.choice((*WRONG, dice.randbytes(4)))
                new[at + 1 : at + 1 + SIZES[new[at]]] = size[: SIZES[new[at]]]
        elif what == 7:
            other = dice.choice(seeds()[0])
            new[place : place + dice.choice((0, 5, 50))] = other[dice.randrange(len(other)) :][:200]
        elif what == 8:
            new[place:place] = bytes((0xC7, dice.randrange(4), dice.choice(CODES)))
        else:
            new[place] = dice.choice(CODES)
    return bytes(new)


def with_arrays(dice: random.Random) -> bytes:
    """A value with the numbers of large arrays behind it, changed."""
    tree, behind = dice.choice(arrays())
    share = dice.choice((0.0, 0.02, 0.1))
    if dice.randrange(3):
        tree = put_together(Hand(dice, share).changed(taken_apart(tree)))
    else:
        tree = changed_bytes(tree, dice)
    size = len(tree) if dice.random() > 0.1 else dice.choice((0, 1, len(tree) + 5, 2**63, 2**64 - 1))
    behind = behind[: dice.choice((None, None, None, 0, 70_000, -1))]
    return b"\xc1" + size.to_bytes(8, "little") + tree + behind + bytes(dice.choice((0, 0, 0, 1, 65_544)))


@functools.cache
def arrays() -> list[tuple[bytes, bytes]]:
    """Packed values that have something behind them, and that."""
    array = np.arange(8_193, dtype="f8")
    values = [array, [array, {"a": (array,)}], Point(array, {1: array}), (array > 5, [array.astype("M8[s]")] * 2)]
    found = []
    for value in values:
        data = encode(value)
        end = 9 + int.from_bytes(data[1:9], "little")
        found.append((data[9:end], data[end:]))
    return found


def made(number: int) -> tuple[int, bytes]:
    """The input of that number: which reader gets it, and the bytes."""
    dice = random.Random(number)
    plain, blobs = seeds()
    reader = dice.randrange(len(READERS))
    kind = dice.randrange(21)
    if kind < 8:
        data = dice.choice(plain)
        try:
            data = put_together(Hand(dice, dice.choice((0.02, 0.1, 0.3))).changed(taken_apart(data)))
        except TypeError:  # It became too deep.
            data = changed_bytes(data, dice)
    elif kind < 15:
        data = changed_bytes(dice.choice(plain), dice)
    elif kind < 19:
        blob = changed = dice.choice(blobs)
        while changed == blob:
            changed = changed_bytes(blob, dice)
        return 1 + reader % 2, changed
    elif kind < 20:
        data = dice.randbytes(dice.randrange(1, 40))
    else:
        data = with_arrays(dice)
    return reader, data if reader == 0 else b"\x10M" + data


READERS: list[Callable[[bytes], Any]] = [
    decode,
    lambda blob: OURS.loads(blob, CELL),
    lambda blob: STRICT.loads(blob, CELL),
]


# ---------------------------------------------------------------- reading them


class Report:
    """What became of the inputs."""

    def __init__(self) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.broken: list[str] = []
        self.slowest, self.greediest = 0.0, 0

    def read(self, number: int) -> None:
        """Read the input of that number, and note what became of it."""
        reader, data = made(number)
        memory, began = getrusage(RUSAGE_SELF).ru_maxrss, time.thread_time()
        try:
            READERS[reader](data)
            outcome = "read"
        except FlowError as error:
            outcome = type(error).__name__
        except BaseException as error:
            outcome = "broken"
            self.broken.append(f"{number}: {type(error).__name__}: {error}")
        took, grown = time.thread_time() - began, getrusage(RUSAGE_SELF).ru_maxrss - memory
        self.outcomes[outcome] += 1
        self.slowest, self.greediest = max(self.slowest, took), max(self.greediest, grown)
        if took > SLOW or grown > GREEDY + len(data) // 1024 * DEPTHS:
            self.broken.append(f"{number}: took {took:.1f} s of CPU and {grown >> 10} MB")


class Watch:
    """Finds every import that reading causes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if not name.startswith(("tzdata", "zoneinfo", "importlib", "encodings", "numpy", "pandas", "pydantic")):
            raise Canary(f"it imported {name}")


def set_traps() -> None:
    """Have everything sing that reading must not call."""
    for holder, name in (
        *((os, "system"), (os, "popen"), (builtins, "eval"), (builtins, "compile"), (subprocess, "Popen")),
        *((Point, "__init__"), (Plain, "__init__"), (Model, "__init__"), (every_kind.CodeError, "__init__")),
        *((every_kind.Derived, "__post_init__"), (every_kind.Coin, "__init__"), (every_kind.Stateful, "__setstate__")),
    ):
        setattr(holder, name, sing)
    sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]


def read_all(numbers: range, current: Any, report: Report) -> None:
    for number in numbers:
        current[:8] = struct.pack("q", number)
        report.read(number)


def work(start: int, stop: int, path: str, stack: int) -> None:
    """Read those inputs on a stack of so many kilobytes, on the main one for 0, and print the report."""
    warnings.simplefilter("ignore")
    setrlimit(RLIMIT_AS, (8 << 30, 8 << 30))  # Whatever is wrong, the machine is to survive.
    with open(path, "r+b") as file:
        current = mmap.mmap(file.fileno(), 8)
    report = Report()
    seeds()
    arrays()
    set_traps()
    if stack:
        threading.stack_size(stack << 10)
        worker = threading.Thread(target=read_all, args=(range(start, stop), current, report))
        worker.start()
        worker.join()
    else:
        read_all(range(start, stop), current, report)
    print(json.dumps({**vars(report), "memory": getrusage(RUSAGE_SELF).ru_maxrss >> 10}))


def tell(number: int) -> None:
    """Read the input of that number, and print it and what becomes of it."""
    reader, data = made(number)
    print(data)
    set_traps()
    print(READERS[reader](data))


# ---------------------------------------------------------------- tests


class Worker:
    """A process that reads a range of inputs."""

    def __init__(self, start: int, stop: int, stack: int, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8))
        code = f"from tests.serde.test_fuzz import work; work({start}, {stop}, {str(path)!r}, {stack})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )

    def report(self) -> dict[str, Any]:
        said, _ = self.process.communicate(timeout=60 + COUNT / 1_000)
        number = struct.unpack("q", self.path.read_bytes())[0]
        assert self.process.returncode == 0, f"it ended with {self.process.returncode} at input {number}"
        report: dict[str, Any] = json.loads(said)
        return report


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder, half = tmp_path_factory.mktemp("fuzz"), COUNT // 2
    workers = [
        Worker(0, half, 0, folder / "main"),
        Worker(half, COUNT, 3 << 10, folder / "worker"),
    ]
    return [worker.report() for worker in workers]


@pytest.mark.timeout(60 + COUNT / 1_000)
def test_bytes_that_nobody_wrote_are_read_or_refused_and_do_nothing_else(reports: list[dict[str, Any]]) -> None:
    assert [report["broken"][:5] for report in reports] == [[], []]
    assert sum(sum(report["outcomes"].values()) for report in reports) == COUNT


def test_many_of_them_are_read_and_many_are_refused_for_each_reason(reports: list[dict[str, Any]]) -> None:
    found = collections.Counter(reports[0]["outcomes"]) + collections.Counter(reports[1]["outcomes"])

    assert found.keys() >= {"read", "UnreadableError", "MissingClassError", "BadSignatureError", "UnknownKeyError"}
    assert found["read"] > COUNT / 50
    assert found["UnreadableError"] > COUNT / 5


def test_the_inputs_begin_from_every_code() -> None:
    def codes(tree: Any) -> Iterator[int]:
        if isinstance(tree, Ext):
            yield tree.code
            yield from codes(tree.inside)
        elif isinstance(tree, (list, dict)):
            for part in tree.values() if isinstance(tree, dict) else tree:
                yield from codes(part)

    trees = [*seeds()[0], *(tree for tree, _ in arrays())]
    found = {code for data in trees for code in codes(taken_apart(data))}

    assert found | {7} == set(_readers)  # 7 is for classes that somebody registers.


def test_taking_apart_and_putting_together_changes_nothing() -> None:
    for data in seeds()[0]:
        assert put_together(taken_apart(data)) == data


@pytest.mark.parametrize("tier", [b"P", b"C"])
def test_a_pickle_that_runs_code_sings_where_its_signature_is_good(tier: bytes) -> None:
    with pytest.raises(Canary):
        OURS.loads(OURS.trusted(trap(tier), CELL), CELL)


@pytest.mark.filterwarnings("ignore")
def test_every_truncation_is_refused() -> None:
    for row in ROWS[::5]:
        if row.tier == "M" and len(data := encode(row.make())) < 2_000:
            for size in range(len(data)):
                with pytest.raises(FlowError):
                    decode(data[:size])
