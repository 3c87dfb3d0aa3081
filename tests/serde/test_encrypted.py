"""What an encrypted value tells, and to whom."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from flowfn.errors import (
    BadSignatureError,
    MissingPackageError,
    NoKeyError,
    NotEncryptedError,
    UnknownKeyError,
    UnreadableError,
    UnstorableError,
)
from flowfn.serde import Cell, EncryptedSerializer, Keyring, Serializer, key_id_of
from tests.shown import shown

NEW, OLD, FOREIGN = (Keyring.of(f"a-secret-of-sixteen-characters-{name}") for name in ("new", "old", "foreign"))
BOTH = Keyring([*NEW.keys, *OLD.keys])
SERDE = EncryptedSerializer(NEW)
CELL: Cell = ("call", "thread", "", "run", b"key")
ELSEWHERE: Cell = ("call", "thread", "", "run", b"other")


@dataclasses.dataclass
class Point:
    x: Any


class Plain:
    def __init__(self, x: Any = None) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


VALUES: list[Any] = [None, b"bytes", 7, "a secret text", {"a": [(1, 2)]}, [Point("a secret text")], Plain(1), len]


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_a_value_comes_back_in_its_cell(value: Any) -> None:
    assert SERDE.loads(SERDE.dumps(value, cell=CELL), CELL) == value


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_a_blob_tells_nothing_but_its_size_and_key(value: Any) -> None:
    blobs = {SERDE.dumps(value, cell=CELL) for _ in range(20)}

    assert len(blobs) == 20
    for blob in blobs:
        assert (blob[:2], key_id_of(blob)) == (b"\x12X", NEW.first.id)
        assert b"secret" not in blob


def test_code_comes_back() -> None:
    assert SERDE.loads(SERDE.dumps(lambda: 5))() == 5


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_a_moved_value_is_refused(value: Any) -> None:
    with pytest.raises(BadSignatureError, match=r"^The answer cannot .*moved here from another place") as caught:
        SERDE.loads(SERDE.dumps(value, cell=CELL), ELSEWHERE, "The answer")

    assert "trust" not in str(caught.value)


def test_a_value_with_any_bit_flipped_is_refused() -> None:
    blob = SERDE.dumps([Point("text")], cell=CELL)

    for place in range(len(blob)):
        for bit in range(8):
            changed = bytearray(blob)
            changed[place] ^= 1 << bit
            expected = NotEncryptedError if place < 2 else UnknownKeyError if place < 6 else BadSignatureError
            with pytest.raises(expected):
                SERDE.loads(bytes(changed), CELL)


def test_every_truncation_is_refused() -> None:
    blob = SERDE.dumps([Point("text")], cell=CELL)

    for size in range(len(blob)):
        with pytest.raises(UnreadableError):
            SERDE.loads(blob[:size], CELL)


def test_a_foreign_value_is_refused_with_the_ids_of_the_keys() -> None:
    with pytest.raises(UnknownKeyError, match=r"^The answer .*encrypted with.*`FLOWFN_ENCRYPTION_KEY`") as caught:
        SERDE.loads(EncryptedSerializer(FOREIGN).dumps(1, cell=CELL), CELL, "The answer")

    assert (caught.value.missing, caught.value.known) == ([FOREIGN.first.id], [NEW.first.id])
    assert "trust" not in str(caught.value)


def test_what_an_older_key_encrypted_is_read_and_the_newest_encrypts() -> None:
    rotated = EncryptedSerializer(BOTH)

    for value in VALUES:
        assert rotated.loads(EncryptedSerializer(OLD).dumps(value, cell=CELL), CELL) == value
    assert key_id_of(rotated.dumps(1)) == NEW.first.id
    assert [rotated.has_key(ring.first.id) for ring in (NEW, OLD, FOREIGN)] == [True, True, False]


def test_the_same_secret_makes_another_key_for_signing() -> None:
    assert Serializer(keys=NEW).dumps(Plain())[6:-16] not in SERDE.dumps(Plain())
    with pytest.raises(UnreadableError, match="it is encrypted, which this serializer cannot undo"):
        Serializer(keys=NEW).loads(SERDE.dumps(1))


# ---------------------------------------------------------------- what is in clear


def test_a_value_in_clear_is_refused_and_never_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    for writer in (Serializer(), Serializer(keys=NEW)):
        for value in (None, b"", 1, [Point(1)], Bomb(canary)):
            with pytest.raises(NotEncryptedError, match=r"^The answer .*trust"):
                SERDE.loads(writer.dumps(value, cell=CELL), CELL, "The answer")
    assert not canary.exists()


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_a_value_in_clear_that_its_owner_trusts_is_encrypted(value: Any) -> None:
    blob = SERDE.trusted(Serializer(keys=FOREIGN).dumps(value, cell=CELL), CELL)

    assert blob[:2] == b"\x12X"
    assert SERDE.loads(blob, CELL) == value


def test_trust_changes_nothing_that_is_encrypted(tmp_path: Path) -> None:
    for writer in (SERDE, EncryptedSerializer(FOREIGN)):
        blob = writer.dumps(Bomb(tmp_path / "canary"), cell=CELL)
        assert SERDE.trusted(blob, CELL) == blob
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_a_blob_encrypted_anew_is_good_in_its_new_cell_alone(value: Any) -> None:
    blob = EncryptedSerializer(BOTH).signed_anew(EncryptedSerializer(OLD).dumps(value, cell=CELL), CELL, ELSEWHERE)

    assert key_id_of(blob) == NEW.first.id
    assert EncryptedSerializer(BOTH).loads(blob, ELSEWHERE) == value
    with pytest.raises(BadSignatureError):
        SERDE.loads(blob, CELL)


def test_a_copy_of_what_cannot_be_decrypted_stays_as_it_is() -> None:
    for writer, cell in ((EncryptedSerializer(FOREIGN), CELL), (SERDE, ELSEWHERE), (Serializer(), CELL)):
        blob = writer.dumps(Plain(), cell=cell)
        assert SERDE.signed_anew(blob, CELL, ("new",)) == blob


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a secret text", "a str"),
        (7, "an int"),
        (None, "a NoneType"),
        (Point(5), f"a {__name__}.Point"),
        (OSError("secret"), "an OSError"),
    ],
)
def test_a_preview_tells_no_more_than_the_kind(value: Any, shown: str) -> None:
    assert SERDE.preview(value, 200) == shown
    assert len(SERDE.preview(value, 5)) <= 5


def test_hashes_beside_encrypted_values_are_keyed_and_stay_when_a_key_is_added() -> None:
    assert SERDE.digest_key not in (b"", EncryptedSerializer(FOREIGN).digest_key)
    assert EncryptedSerializer(BOTH).digest_key == EncryptedSerializer(OLD).digest_key


# ---------------------------------------------------------------- the serializer inside


class Zipped(Serializer):
    """A serializer of a user's own."""

    def dumps(self, value: object, what: str = "The value", cell: Cell = ()) -> bytes:
        return zlib.compress(super().dumps(value, what, cell))

    def loads(self, blob: bytes, cell: Cell = (), what: str = "A stored value") -> Any:
        return super().loads(zlib.decompress(blob), cell, what)


def test_any_serializer_can_be_encrypted() -> None:
    serde = EncryptedSerializer(NEW, inner=Zipped())
    value = [Plain("x" * 10_000)]

    blob = serde.dumps(value, cell=CELL)

    assert len(blob) < 1000
    assert serde.loads(blob, CELL) == value


def test_the_rules_of_the_serializer_inside_hold() -> None:
    strict = EncryptedSerializer(NEW, inner=Serializer(allow_pickle=False))

    assert not strict.allow_pickle
    with pytest.raises(UnstorableError, match=r"^The answer .*allow_pickle=False"):
        strict.dumps(Plain(), "The answer")
    with pytest.raises(UnreadableError, match=r"^The answer .*allow_pickle=False"):
        strict.loads(SERDE.dumps(Plain(), cell=CELL), CELL, "The answer")


def test_the_keys_of_the_serializer_inside_hold() -> None:
    mine = EncryptedSerializer(NEW, inner=Serializer(keys=OLD))

    assert mine.loads(mine.dumps(Plain(1), cell=CELL), CELL) == Plain(1)
    with pytest.raises(UnknownKeyError):
        mine.loads(SERDE.dumps(Plain(1), cell=CELL), CELL)


def test_what_it_encrypted_needs_no_other_signature() -> None:
    assert SERDE.signed_by(FOREIGN) is SERDE


def test_an_encrypted_value_imports_the_module_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "encrypted_orders.py").write_text("class Problem(ValueError): pass")
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = __import__("encrypted_orders")
    blob = SERDE.dumps([module.Problem(1)], cell=CELL)
    monkeypatch.delitem(sys.modules, "encrypted_orders")

    (back,) = SERDE.loads(blob, CELL)

    assert type(back).__module__ == "encrypted_orders"


# ---------------------------------------------------------------- keys


def test_the_variable_gives_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "FLOWFN_ENCRYPTION_KEY", "a-secret-of-sixteen-characters-new, a-secret-of-sixteen-characters-old"
    )

    serde = EncryptedSerializer()

    assert serde.loads(SERDE.dumps(1)) == serde.loads(EncryptedSerializer(OLD).dumps(1)) == 1
    assert SERDE.loads(serde.dumps(1)) == 1


@pytest.mark.parametrize("secrets", [None, "", "short", " , "])
def test_without_a_key_there_is_no_serializer(secrets: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOWFN_ENCRYPTION_KEY", raising=False)
    if secrets is not None:
        monkeypatch.setenv("FLOWFN_ENCRYPTION_KEY", secrets)

    with pytest.raises(NoKeyError, match="Set `FLOWFN_ENCRYPTION_KEY`"):
        EncryptedSerializer()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)

    with pytest.raises(MissingPackageError, match=r"pip install 'flowfn\[crypto\]'") as caught:
        EncryptedSerializer(NEW)

    assert isinstance(caught.value, ImportError)


def test_importing_the_layer_does_not_import_the_package() -> None:
    code = "import sys, flowfn.serde; print('cryptography' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_random_nonces_do_not_repeat() -> None:
    nonces = {SERDE.dumps(1)[6:18] for _ in range(5000)}

    assert len(nonces) == 5000
    bits = sum(int.from_bytes(nonce).bit_count() for nonce in nonces)
    assert abs(bits - 5000 * 48) < 8 * math.sqrt(5000 * 24)
