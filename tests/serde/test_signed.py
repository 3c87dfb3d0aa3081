"""What is signed, and what a signature is worth."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import http
import pickle
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import numpy as np
import pydantic
import pytest

from flowfn.errors import (
    BadSignatureError,
    MissingClassError,
    NothingToResumeError,
    UnknownKeyError,
    UnreadableError,
    UnsignedPickleError,
)
from flowfn.serde import Cell, Keyring, Serializer, encode, key_id_of, register
from flowfn.types import Send
from tests.shown import shown

NEW, OLD, FOREIGN = (Keyring.of(f"a-secret-of-sixteen-characters-{name}") for name in ("new", "old", "foreign"))
BOTH = Keyring([*NEW.keys, *OLD.keys])
SERDE = Serializer(keys=NEW)
CELL: Cell = ("call", "thread", "", "run", b"key")
ELSEWHERE: Cell = ("call", "thread", "", "run", b"other")


@dataclasses.dataclass
class Point:
    x: Any


class Pair(NamedTuple):
    left: Any


class Color(enum.Enum):
    RED = 1


class Model(pydantic.BaseModel):
    x: Any


@attrs.define
class Coin:
    value: Any


class Plain:
    def __init__(self, x: Any = None) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class CodeError(ValueError):
    pass


class Money:
    def __init__(self, cents: Any) -> None:
        self.cents = cents


class Bomb:
    """Makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


# ---------------------------------------------------------------- what is signed

SIGNED: list[Any] = [
    *[Point(1), [1, {"a": (Point(1),)}], Pair(1), Color.RED, Model(x=1), Coin(1), np.float64(1.5)],
    *[http.HTTPStatus.OK, CodeError("a"), ExceptionGroup("g", [ValueError(1), CodeError(2)])],
    *[Plain(1), [Plain(1)], len, lambda: 1, Plain, collections.ChainMap({1: 2})],
]
UNSIGNED: list[Any] = [
    *[None, b"bytes", 1, "text", [1, 2.5, {"a": None}], (1, {2}), {1: 2}, bytearray(b"a"), "\ud800", 2**100],
    *[decimal.Decimal(1), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), uuid.UUID(int=1), Path("a")],
    *[collections.deque([1]), collections.Counter("a"), ValueError("a"), ExceptionGroup("g", [OSError(2, "gone")])],
    *[np.arange(3), Send("node", 1), NothingToResumeError("thread")],
]


@pytest.mark.parametrize("value", SIGNED, ids=shown)
def test_pickles_and_what_names_a_class_of_the_program_are_signed(value: Any) -> None:
    assert key_id_of(SERDE.dumps(value)) == NEW.first.id


@pytest.mark.parametrize("value", UNSIGNED, ids=shown)
def test_nothing_else_is_signed(value: Any) -> None:
    assert SERDE.dumps(value, cell=CELL) == Serializer().dumps(value)


@pytest.mark.parametrize("value", [*SIGNED, *UNSIGNED], ids=shown)
def test_without_keys_nothing_is_signed(value: Any) -> None:
    assert key_id_of(Serializer().dumps(value)) is None


def test_a_registered_class_is_not_signed_but_what_it_holds_may_be() -> None:
    register(Money, "test-signed-money", lambda money: money.cents, Money)

    assert key_id_of(SERDE.dumps([Money(5)])) is None
    assert key_id_of(SERDE.dumps([Money(Point(5))])) == NEW.first.id


def test_what_was_packed_before_does_not_count() -> None:
    encode(Point(1))
    Serializer().dumps(Point(1))
    SERDE.dumps([Point(1), Plain()])

    assert key_id_of(SERDE.dumps([1])) is None


def test_what_another_worker_packs_does_not_count() -> None:
    worker = threading.Thread(target=encode, args=(Point(1),))
    worker.start()
    worker.join()

    assert key_id_of(SERDE.dumps([1])) is None


@pytest.mark.parametrize(
    ("value", "inside", "is_signed"),
    [([Point(1)], 1, True), ([1], Point(1), False), ([Point(1)], Point(1), True), ([1], lambda: 1, False)],
)
def test_a_value_packed_within_another_counts_for_itself(value: list[Any], inside: Any, is_signed: bool) -> None:
    register(Money, "test-signed-money", lambda money: SERDE.dumps(money.cents), lambda blob: Money(SERDE.loads(blob)))

    blob = SERDE.dumps([*value, Money(inside)])

    assert (key_id_of(blob) is not None) is is_signed


def test_what_is_left_out_of_an_exception_does_not_count() -> None:
    strict = Serializer(allow_pickle=False, keys=NEW)

    blob = strict.dumps(ValueError([Point(1), threading.Lock()]))

    assert key_id_of(blob) is None
    assert "Point" in strict.loads(blob).args[0]


def test_workers_sign_what_is_theirs_to_sign() -> None:
    wrong: list[Any] = []

    def work(value: Any, is_signed: bool) -> None:
        wrong.extend(None for _ in range(2000) if (key_id_of(SERDE.dumps(value)) is not None) is not is_signed)

    workers = [threading.Thread(target=work, args=args) for args in [([Point(1)], True), ([1], False)] * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert wrong == []


# ---------------------------------------------------------------- good signatures


@pytest.mark.parametrize("value", [[Point(1)], Plain(2), [Plain("x" * 100_000)], [Point("x" * 100_000)]])
@pytest.mark.parametrize("cell", [(), CELL, ("value", "t", "", "channel", 7)])
def test_a_signed_value_comes_back_in_its_cell(value: Any, cell: Cell) -> None:
    assert SERDE.loads(SERDE.dumps(value, cell=cell), cell) == value


def test_what_an_older_key_signed_is_read_and_the_newest_signs() -> None:
    blob = Serializer(keys=OLD).dumps(Plain(1), cell=CELL)
    rotated = Serializer(keys=BOTH)

    assert rotated.loads(blob, CELL) == Plain(1)
    assert key_id_of(rotated.dumps(Plain(1))) == NEW.first.id
    assert [rotated.has_key(ring.first.id) for ring in (NEW, OLD, FOREIGN)] == [True, True, False]


def test_without_keys_everything_is_trusted() -> None:
    for value in ([Point(1)], Plain(1)):
        assert Serializer().loads(SERDE.dumps(value, cell=CELL), ELSEWHERE) == value


def test_a_serializer_gets_keys_and_stays_what_it_is() -> None:
    class Mine(Serializer):
        pass

    plain = Mine(allow_pickle=False)
    keyed = plain.signed_by(NEW)

    assert (type(keyed), keyed.allow_pickle, keyed.keys, plain.keys) == (Mine, False, NEW, None)


# ---------------------------------------------------------------- bad ones


def dangerous(canary: Path, tier: str) -> Any:
    return [Bomb(canary), lambda: 1] if tier == "C" else Bomb(canary)


@pytest.fixture(params=["P", "C"])
def tier(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_pickle_can_run_code(canary: Path, tier: str) -> None:
    Serializer().loads(Serializer().dumps(dangerous(canary, tier)))

    assert canary.exists()


def test_an_unsigned_pickle_is_named_and_never_run(canary: Path, tier: str) -> None:
    blob = Serializer().dumps(dangerous(canary, tier))
    kind = "a pickle with code" if tier == "C" else "a pickle"

    with pytest.raises(
        UnsignedPickleError, match=f"^The answer cannot be read back: it is {kind} that nobody signed.*trust"
    ):
        SERDE.loads(blob, CELL, "The answer")

    assert not canary.exists()


def test_a_handmade_pickle_is_never_run(canary: Path) -> None:
    for head in (b"\x10P", b"\x10C", b"\x11P" + NEW.first.id, b"\x11C" + NEW.first.id, b"\x11M" + NEW.first.id):
        with pytest.raises(UnreadableError):
            SERDE.loads(head + b"main\n" + pickle.dumps(Bomb(canary)) + bytes(16), CELL)

    assert not canary.exists()


def test_a_foreign_pickle_is_named_by_its_key_and_never_run(canary: Path, tier: str) -> None:
    blob = Serializer(keys=FOREIGN).dumps(dangerous(canary, tier), cell=CELL)

    with pytest.raises(UnknownKeyError) as caught:
        SERDE.loads(blob, CELL, "The answer")

    assert (caught.value.missing, caught.value.known) == ([FOREIGN.first.id], [NEW.first.id])
    for said in ("The answer", FOREIGN.first.id.hex(), NEW.first.id.hex(), "FLOWFN_KEY", "trust"):
        assert said in str(caught.value)
    assert not canary.exists()


def test_a_pickle_that_was_moved_is_never_run(canary: Path, tier: str) -> None:
    blob = SERDE.dumps(dangerous(canary, tier), cell=CELL)

    with pytest.raises(BadSignatureError, match=r"The answer cannot be read back: .*moved here"):
        SERDE.loads(blob, ELSEWHERE, "The answer")

    assert not canary.exists()


def test_data_with_a_class_is_refused_elsewhere() -> None:
    with pytest.raises(BadSignatureError):
        SERDE.loads(SERDE.dumps([Point(1)], cell=CELL), ELSEWHERE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("a", "", "b"), ("a", "b", "")),
        (("a", 1), ("a", "1")),
        (("a", b"b"), ("a", "b")),
        (("a",), ("a", "")),
        ((), ("",)),
    ],
)
def test_no_two_cells_are_taken_for_one(one: Cell, other: Cell) -> None:
    with pytest.raises(BadSignatureError):
        SERDE.loads(SERDE.dumps(Plain(), cell=one), other)


def changed(blob: bytes) -> Iterator[tuple[int, bytes]]:
    """The blob with each of its bits flipped: (place of the byte, blob)."""
    for place in range(len(blob)):
        for bit in range(8):
            flipped = bytearray(blob)
            flipped[place] ^= 1 << bit
            yield place, bytes(flipped)


def test_a_pickle_with_any_bit_flipped_is_refused_unrun(canary: Path, tier: str) -> None:
    blob = SERDE.dumps(dangerous(canary, tier), cell=CELL)

    for place, flipped in changed(blob):
        expected = UnreadableError if place < 2 else UnknownKeyError if place < 6 else BadSignatureError
        with pytest.raises(expected):
            SERDE.loads(flipped, CELL)

    assert not canary.exists()


def test_data_with_any_bit_flipped_is_refused_or_looked_up_like_unsigned() -> None:
    blob = SERDE.dumps([Point("text"), 7], cell=CELL)

    for place, flipped in changed(blob):
        if 2 <= place < 6:  # A key nobody knows: worth as much as no signature.
            assert SERDE.loads(flipped, CELL) == [Point("text"), 7]
        else:
            with pytest.raises(UnreadableError if place < 2 else BadSignatureError):
                SERDE.loads(flipped, CELL)


@pytest.mark.parametrize("value", [[Point(1)], Plain(1)])
def test_every_truncation_is_refused(value: Any) -> None:
    blob = SERDE.dumps(value, cell=CELL)

    for size in range(len(blob)):
        with pytest.raises(UnreadableError):
            SERDE.loads(blob[:size], CELL)


@pytest.mark.parametrize("tier", b"NBX")
def test_a_signature_on_what_is_never_signed_is_refused(tier: int) -> None:
    for serde in (SERDE, Serializer()):
        with pytest.raises(UnreadableError, match="damaged"):
            serde.loads(bytes((0x11, tier)) + NEW.first.id + bytes(30), CELL)


def test_a_signed_pickle_is_refused_where_none_are_allowed(canary: Path) -> None:
    blob = SERDE.dumps(Bomb(canary), cell=CELL)

    for keys in (None, NEW):
        with pytest.raises(UnreadableError, match="allow_pickle=False"):
            Serializer(allow_pickle=False, keys=keys).loads(blob, CELL)
    assert not canary.exists()


# ---------------------------------------------------------------- modules

MODULE = """
    import dataclasses

    @dataclasses.dataclass
    class Order:
        id: int

    class Plain:
        pass
"""


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `stored_orders` that can be imported, and is not."""
    path = tmp_path / "stored_orders.py"
    path.write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("stored_orders", None)


def stored(value: str, serde: Serializer) -> bytes:
    """The blob of an expression over the module, which is forgotten again."""
    module: Any = __import__("stored_orders")
    blob = serde.dumps(eval(value, vars(module)), cell=CELL)
    del sys.modules["stored_orders"]
    return blob


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("value", ["[Order(1), {'a': (Order(2),)}]", "Plain()", "[Plain(), lambda: 1, Order(1)]"])
def test_a_signed_value_imports_the_module_it_names(value: str) -> None:
    blob = stored(value, SERDE)

    back = SERDE.loads(blob, CELL)

    assert "stored_orders" in sys.modules
    assert type(back[0] if isinstance(back, list) else back).__module__ == "stored_orders"


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("writer", [Serializer(), Serializer(keys=FOREIGN)], ids=["unsigned", "foreign"])
def test_other_data_imports_nothing(writer: Serializer) -> None:
    blob = stored("[Order(1)]", writer)

    with pytest.raises(MissingClassError, match=r"^The answer .* needs `stored_orders\.Order`, which no imported mod"):
        SERDE.loads(blob, CELL, "The answer")

    assert "stored_orders" not in sys.modules


@pytest.mark.usefixtures("orders")
def test_other_data_is_read_once_its_module_is_imported() -> None:
    blob = stored("[Order(1)]", Serializer(keys=FOREIGN))
    __import__("stored_orders")

    assert SERDE.loads(blob, CELL)[0].id == 1


@pytest.mark.parametrize("value", ["Order(1)", "Plain()"])
@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("", "which `stored_orders` does not define any more"),
        (None, "importing `stored_orders` ended with ModuleNotFoundError"),
        ("raise RuntimeError('no database')", "ended with RuntimeError: no database"),
        ("raise SystemExit(3)", "ended with SystemExit: 3"),
    ],
)
def test_a_class_that_cannot_be_imported_is_named_with_the_reason(
    orders: Path, value: str, module: str | None, said: str
) -> None:
    blob = stored(value, SERDE)
    if module is None:
        orders.unlink()
    else:
        orders.write_text(f"{module}  # changed\n")
    for cached in orders.parent.glob("__pycache__/*"):
        cached.unlink()

    with pytest.raises(MissingClassError) as caught:
        SERDE.loads(blob, CELL, "The answer")

    assert str(caught.value).startswith(f"The answer cannot be read back: it needs `{caught.value.name}`, ")
    assert said in str(caught.value)


SCRIPT = """
    import pathlib, sys
    from flowfn.serde import Keyring, Serializer
    print("begun")
    serde = Serializer(keys=Keyring.of("a-secret-of-sixteen-characters"))
    if sys.argv[1] == "write":
        class Order(ValueError):
            pass
        pathlib.Path("blob").write_bytes(serde.dumps(Order(1) if sys.argv[2] == "M" else [Order, lambda: 1]))
    else:
        try:
            serde.loads(pathlib.Path("blob").read_bytes())
        except ValueError as error:
            print(error)
"""


@pytest.mark.parametrize("what", ["M", "C"])
def test_a_script_that_runs_is_not_run_again_for_a_class_it_lacks(tmp_path: Path, what: str) -> None:
    (tmp_path / "bill.py").write_text(textwrap.dedent(SCRIPT))

    def run(verb: str) -> str:
        call = [sys.executable, "bill.py", verb, what]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert run("write") == "begun\n"
    told = run("read")

    assert told.count("begun") == 1
    assert "needs `bill.Order`, which `__main__` does not define any more" in told


# ---------------------------------------------------------------- copies, and trust

LOADABLE = [[Point(1)], Plain(1), [Plain(1), Point(2)]]


@pytest.mark.parametrize("value", LOADABLE)
def test_a_blob_signed_anew_is_good_in_its_new_cell_alone(value: Any) -> None:
    blob = Serializer(keys=BOTH).signed_anew(Serializer(keys=OLD).dumps(value, cell=CELL), CELL, ELSEWHERE)

    assert key_id_of(blob) == NEW.first.id
    assert SERDE.loads(blob, ELSEWHERE) == value
    with pytest.raises(BadSignatureError):
        SERDE.loads(blob, CELL)


def test_nothing_is_loaded_to_sign_it_anew_or_to_trust_it(canary: Path, tier: str) -> None:
    value = dangerous(canary, tier)

    SERDE.signed_anew(SERDE.dumps(value, cell=CELL), CELL, ELSEWHERE)
    SERDE.trusted(Serializer().dumps(value), CELL)
    SERDE.trusted(Serializer(keys=FOREIGN).dumps(value), CELL)

    assert not canary.exists()


@pytest.mark.parametrize("value", UNSIGNED, ids=shown)
def test_what_needs_no_signature_is_copied_and_trusted_as_it_is(value: Any) -> None:
    blob = SERDE.dumps(value, cell=CELL)

    assert SERDE.signed_anew(blob, CELL, ELSEWHERE) == SERDE.trusted(blob, CELL) == blob


def test_a_copy_of_what_cannot_be_verified_stays_refused() -> None:
    foreign, moved = Serializer(keys=FOREIGN).dumps(Plain(), cell=CELL), SERDE.dumps(Plain(), cell=ELSEWHERE)
    damaged, unsigned = SERDE.dumps(Plain(), cell=CELL)[:-1] + b"\0", Serializer().dumps(Plain())

    for blob in (foreign, moved, damaged, unsigned):
        copy = SERDE.signed_anew(blob, CELL, ("new",))
        assert copy == blob
        with pytest.raises(UnreadableError):
            SERDE.loads(copy, ("new",))


@pytest.mark.parametrize("value", LOADABLE)
@pytest.mark.parametrize("writer", [Serializer(), Serializer(keys=FOREIGN), SERDE], ids=["unsigned", "foreign", "own"])
def test_what_its_owner_trusts_is_read(value: Any, writer: Serializer) -> None:
    blob = SERDE.trusted(writer.dumps(value, cell=ELSEWHERE), CELL)

    assert SERDE.loads(blob, CELL) == value


def test_what_is_good_already_stays_as_it_is_when_trusted() -> None:
    blob = Serializer(keys=OLD).dumps(Plain(), cell=CELL)

    assert Serializer(keys=BOTH).trusted(blob, CELL) == blob


def test_without_keys_nothing_is_signed_anew() -> None:
    for blob in (SERDE.dumps(Plain(), cell=CELL), Serializer().dumps(Plain())):
        assert Serializer().signed_anew(blob, CELL, ELSEWHERE) == Serializer().trusted(blob, CELL) == blob


@pytest.mark.parametrize("blob", [b"", b"\x10", b"\x10M", b"\x11", b"\x11M123", b"\x21M1234567", b"\x10P1234567"])
def test_only_a_signed_blob_has_a_key_id(blob: bytes) -> None:
    assert key_id_of(blob) is None
    assert SERDE.signed_anew(blob, CELL, ELSEWHERE) == blob
