"""What a serializer says of a value it cannot read, and what it shows of one beside it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from flowfn.errors import MissingClassError, UnreadableError, UnstorableError
from flowfn.serde import Keyring, Serializer, preview

WHAT = "The result of task `charge`"
RING = Keyring.of("a-secret-of-sixteen-characters")


@dataclasses.dataclass
class Point:
    x: Any


class Plain:
    pass


@pytest.fixture(params=[None, RING], ids=["without keys", "with keys"])
def serde(request: pytest.FixtureRequest) -> Serializer:
    return Serializer(keys=request.param)


@pytest.mark.parametrize(
    ("value", "name"), [([Point(1)], "Point"), ([Plain()], "Plain"), ([Plain, lambda: 1], "Plain")]
)
def test_a_missing_class_is_told_with_what_needs_it(
    serde: Serializer, value: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = serde.dumps(value)
    monkeypatch.delitem(globals(), name)

    with pytest.raises(MissingClassError) as caught:
        serde.loads(blob, what=WHAT)

    assert str(caught.value).startswith(f"{WHAT} cannot be read back: it needs `{__name__}.{name}`, which ")
    assert "the stored value is untouched" in str(caught.value)
    assert caught.value.what == WHAT


def test_a_class_that_changed_is_told_with_what_needs_it(serde: Serializer, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = serde.dumps([Point(1)])
    monkeypatch.setitem(globals(), "Point", Plain)

    with pytest.raises(
        UnreadableError, match=f"^{WHAT} cannot be read back: ValueError: the class .*give the class back"
    ):
        serde.loads(blob, what=WHAT)


@pytest.mark.parametrize(
    "blob", [b"", b"\x10", b"\x10M", b"\x10M\xc1", b"\x10NN", b"\x10Q1", b"\x11M1", b"\x14M1", b"\x90M"]
)
def test_bytes_that_cannot_be_read_are_told_by_what_they_are(serde: Serializer, blob: bytes) -> None:
    with pytest.raises(UnreadableError, match=f"^{WHAT} cannot be read back: "):
        serde.loads(blob, what=WHAT)


def test_a_pickle_that_fails_is_told_by_what_it_is() -> None:
    with pytest.raises(UnreadableError, match=f"^{WHAT} cannot be read back: .*damaged"):
        Serializer().loads(Serializer().dumps(Plain())[:-5], what=WHAT)


def test_code_for_another_python_is_told_by_what_it_is() -> None:
    line, _, rest = Serializer().dumps(lambda: 1).partition(b"\n")

    with pytest.raises(UnreadableError, match=rf"^{WHAT} .*code for Python 2\.7.*Read it with that Python"):
        Serializer().loads(line.rpartition(b" ")[0] + b" 2.7\n" + rest, what=WHAT)


def test_an_unstorable_value_is_told_by_what_it_is(serde: Serializer) -> None:
    with pytest.raises(UnstorableError, match=rf"^{WHAT}\[0\] is a `generator`"):
        serde.dumps([(i for i in ())], WHAT)


def test_a_serializer_shows_values_beside_them_and_keys_no_hash(serde: Serializer) -> None:
    assert serde.preview({"a": 1}) == preview({"a": 1}) == "{'a': 1}"
    assert len(serde.preview("x" * 100, 20)) == 20
    assert serde.digest_key == b""


def test_an_error_that_was_told_can_be_stored(serde: Serializer) -> None:
    with pytest.raises(UnreadableError) as caught:
        serde.loads(b"\x10M\xc1", what=WHAT)

    back = serde.loads(serde.dumps(caught.value))

    assert (type(back), str(back), back.what) == (UnreadableError, str(caught.value), WHAT)
