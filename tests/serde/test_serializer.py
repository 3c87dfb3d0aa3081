"""What a serializer refuses, and how it says so."""

from __future__ import annotations

import dataclasses
import re
import signal
import threading
from typing import Any

import attrs
import pytest

from flowfn.errors import MissingClassError, TagTakenError, UnreadableError, UnstorableError
from flowfn.serde import Serializer, copied, decode, encode, register

SERDE = Serializer()
STRICT = Serializer(allow_pickle=False)


@dataclasses.dataclass
class Point:
    x: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Any


@attrs.define
class Coin:
    value: Any


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


class Other:
    pass


class BadPickle:
    def __getstate__(self) -> Any:
        raise RuntimeError("no state")


LOCK = threading.Lock()

PLACES: list[tuple[Any, str]] = [
    (LOCK, "The value"),
    ({"conn": Plain(LOCK)}, "The value['conn'].x"),
    ({"rows": [1, {"a": (2, Point(LOCK))}]}, "The value['rows'][1]['a'][1].x"),
    ([Slotted([LOCK])], "The value[0].x[0]"),
    (Coin({1: LOCK}), "The value.value[1]"),
    (Plain(Plain(LOCK)), "The value.x.x"),
    ({Plain: 1, 2: LOCK}, "The value[2]"),
]


@pytest.mark.parametrize(("value", "path"), PLACES, ids=[path for _, path in PLACES])
def test_an_unstorable_value_is_refused_by_its_path(value: Any, path: str) -> None:
    with pytest.raises(UnstorableError) as caught:
        SERDE.dumps(value)

    assert (caught.value.path, caught.value.kind) == (path, "_thread.lock")


def test_what_a_lambda_captured_is_refused_by_its_name() -> None:
    inner = threading.Lock()

    with pytest.raises(UnstorableError, match=r"The value\[0\] closure `inner` is a `_thread\.lock`"):
        SERDE.dumps([lambda: inner])


def test_the_path_begins_with_what_the_caller_calls_the_value() -> None:
    with pytest.raises(UnstorableError, match=r"^What task `load` returned\[0\] is a `_thread.lock`"):
        SERDE.dumps([LOCK], what="What task `load` returned")


def test_one_unstorable_item_of_very_many_is_found() -> None:
    rows: list[Any] = [Plain(i) for i in range(20_000)]
    rows[15_000].x = LOCK

    with pytest.raises(UnstorableError, match=r"The value\[15000\]\.x is a"):
        SERDE.dumps(rows)


def test_a_circle_with_an_unstorable_part_is_refused_by_its_path() -> None:
    circle: dict[str, Any] = {"lock": LOCK}
    circle["me"] = circle

    with pytest.raises(UnstorableError, match=r"The value\['lock'\] is a"):
        SERDE.dumps(circle)


def test_a_class_whose_pickling_fails_is_refused_with_its_reason() -> None:
    with pytest.raises(UnstorableError, match="BadPickle`, which cannot be stored: no state"):
        SERDE.dumps([BadPickle()])


@pytest.mark.parametrize("value", [Plain(1), lambda: 1])
def test_a_pickle_is_refused_at_save_where_it_is_not_allowed(value: Any) -> None:
    with pytest.raises(UnstorableError, match=r"The value\['a'\]\[0\] is a .*allow_pickle=False"):
        STRICT.dumps({"a": [value]})


@pytest.mark.parametrize("value", [Plain(1), lambda: 1])
def test_a_pickle_is_refused_at_load_where_it_is_not_allowed(value: Any) -> None:
    blob = SERDE.dumps(value)

    with pytest.raises(UnreadableError, match="allow_pickle=False"):
        STRICT.loads(blob)


@pytest.mark.parametrize(("value", "name"), [(Point(1), "Point"), (Plain(1), "Plain"), (Coin(1), "Coin")])
def test_a_missing_class_is_named(value: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = SERDE.dumps(value)
    monkeypatch.delitem(globals(), name)

    with pytest.raises(MissingClassError) as caught:
        SERDE.loads(blob)

    assert caught.value.name == f"{__name__}.{name}"


def test_a_missing_class_is_named_in_a_pickle_with_code(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = SERDE.dumps([lambda: 1, Plain(1)])
    monkeypatch.delitem(globals(), "Plain")

    with pytest.raises(MissingClassError, match=r"test_serializer\.Plain"):
        SERDE.loads(blob)


def test_a_class_kept_as_an_alias_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Point(1))

    class Renamed(Point):
        pass

    monkeypatch.setitem(globals(), "Point", dataclasses.dataclass(Renamed))

    assert type(decode(data)) is Renamed


def test_an_object_of_a_class_that_was_defined_anew_is_not_taken_for_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = Point(1)
    encode(old)
    monkeypatch.setitem(globals(), "Point", dataclasses.make_dataclass("Point", ["x"]))

    with pytest.raises(UnstorableError, match="its class is not found under its name"):
        encode(old)


def test_a_pickle_that_fails_to_load_is_unreadable() -> None:
    blob = SERDE.dumps(Plain(1))

    with pytest.raises(UnreadableError):
        SERDE.loads(blob[:-5])


def test_code_for_another_python_is_refused() -> None:
    blob = SERDE.dumps(lambda: 1)
    line, _, rest = blob.partition(b"\n")

    with pytest.raises(UnreadableError, match=r"code for Python 2\.7"):
        SERDE.loads(line.rpartition(b" ")[0] + b" 2.7\n" + rest)


def test_a_registered_class_is_plain_data() -> None:
    register(Money, "test-money", lambda money: money.cents, Money)

    assert decode(encode({"a": [Money(5)]}))["a"][0].cents == 5


def test_a_registered_class_is_copied() -> None:
    register(Money, "test-money", lambda money: money.cents, Money)
    money = Money(5)

    assert copied([money])[0] is not money


def test_a_tag_belongs_to_one_class() -> None:
    register(Money, "test-money", lambda money: money.cents, Money)

    with pytest.raises(TagTakenError, match=re.escape(f"belongs to the class `{__name__}.Money`")):
        register(Other, "test-money", lambda other: None, lambda plain: Other())


def test_an_unknown_tag_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    register(Money, "test-money", lambda money: money.cents, Money)
    data = encode(Money(5)).replace(b"test-money", b"test-bunny")

    with pytest.raises(UnreadableError, match="test-bunny"):
        decode(data)


def test_an_error_in_a_registered_class_is_told() -> None:
    class Broken:
        pass

    def fail(_: Any) -> Any:
        raise RuntimeError("no cents")

    register(Broken, "test-broken", fail, fail)

    with pytest.raises(UnstorableError, match="no cents"):
        encode([Broken()])


def test_ctrl_c_while_a_value_is_taken_apart_is_not_swallowed() -> None:
    class Slow:
        pass

    register(Slow, "test-slow", lambda _: signal.raise_signal(signal.SIGINT), lambda _: None)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            SERDE.dumps([Slow()])
    finally:
        signal.signal(signal.SIGINT, before)


def test_workers_can_share_a_serializer() -> None:
    value = {"a": [(1, Point(2)), {3}]}
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                assert SERDE.loads(SERDE.dumps(value)) == value
                with pytest.raises(UnstorableError):
                    encode([LOCK])
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert errors == []
