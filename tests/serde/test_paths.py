"""Which part of a value is to blame, and how the way to it is told."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import threading
import zoneinfo
from typing import Any

import pandas as pd
import pytest

from flowfn.errors import UnstorableError
from flowfn.serde import Serializer
from tests.serde.every_kind import ZONE_FILE

SERDE = Serializer()
STRICT = Serializer(allow_pickle=False)


@dataclasses.dataclass
class Point:
    x: Any


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


def place(serde: Serializer, value: Any) -> tuple[str, str]:
    with pytest.raises(UnstorableError) as caught:
        serde.dumps(value)
    return caught.value.path, caught.value.kind


def local() -> Any:
    @dataclasses.dataclass
    class Local:
        x: int

    return Local(1)


def test_without_pickles_an_object_is_to_blame_itself_and_not_what_is_in_it() -> None:
    kinds = [pd.DataFrame({"a": [1]}), pd.Timestamp(0), Plain(threading.Lock()), object(), threading.Event(), len]

    for value in kinds:
        assert place(STRICT, [{"a": value}])[0] == "The value[0]['a']"


def test_with_pickles_the_part_of_an_object_is_to_blame() -> None:
    assert place(SERDE, [Plain({"a": Plain(threading.Lock())})]) == ("The value[0].x['a'].x", "_thread.lock")


def test_in_what_is_made_of_parts_the_part_is_to_blame() -> None:
    assert place(STRICT, Point([(1, {"a": Plain(1)})])) == ("The value.x[0][1]['a']", f"{__name__}.Plain")
    with pytest.raises(UnstorableError, match=r"The value\[0\]\.x is a"):
        STRICT.dumps([Point(local())])


def test_an_object_of_a_class_that_cannot_be_found_is_to_blame_itself() -> None:
    with pytest.raises(UnstorableError, match=r"The value\[0\] is a .*Local`.* its class is not found under its name"):
        STRICT.dumps([local()])


def test_a_moment_in_a_zone_that_cannot_be_stored_is_found_among_many() -> None:
    zone = zoneinfo.ZoneInfo.from_file(io.BytesIO(ZONE_FILE))
    moments = [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 1_000

    assert place(STRICT, [*moments, datetime.datetime(2026, 1, 1, tzinfo=zone)])[0] == "The value[1000]"


@pytest.mark.parametrize("serde", [SERDE, STRICT], ids=["pickles", "strict"])
def test_where_only_the_depth_is_to_blame_the_first_steps_of_the_way_are_told(serde: Serializer) -> None:
    deep = functools.reduce(lambda inside, _: [inside], range(5_000), 1)

    with pytest.raises(UnstorableError) as caught:
        serde.dumps({"fine": [1], "deep": deep})

    assert caught.value.path == "The value['deep']" + "[0]" * 7
    assert caught.value.kind == "list"
    assert "deep" in caught.value.why


def test_a_circle_is_to_blame_where_it_closes() -> None:
    circle: list[Any] = [1]
    circle.append(circle)

    assert place(STRICT, {"a": circle}) == ("The value['a']", "list")


def test_objects_of_classes_made_in_functions_are_not_remembered() -> None:
    from flowfn.serde import typed

    before = len(typed._writers)
    for _ in range(5):
        SERDE.dumps(local())

    assert len(typed._writers) == before
