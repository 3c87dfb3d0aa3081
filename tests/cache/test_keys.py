"""What names an entry, and why a call finds one or not."""

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flowfn.cache.keys import KEY_FUNC, Argument, Entry, Parts, Subject, explain
from flowfn.errors import UnkeyedArgumentError
from flowfn.identity import packed_arguments

NOON = 1_800_000_000.0


def subject(task="shop:tax", holds=b"", parameters=("x",), **options):
    return Subject(task, holds, parameters, **({"code": b"c"} | options))


def key(value, **options):
    return subject(**options).key(packed_arguments((value,))[0])


def parts(code=b"c", version=None, holds=b"h", functions=None, **arguments):
    named = tuple(Argument(name, repr(value).encode(), repr(value)) for name, value in arguments.items())
    return Parts("shop:tax", holds, version, code, functions or {}, named)


def why(mine, *others, is_hit=False, now=NOON + 100, until=None):
    return explain(mine, [Entry(other, NOON, until) for other in others], is_hit=is_hit, now=now)


# ---------------------------------------------------------------- keys


def test_equal_values_have_one_key_and_other_values_or_types_another():
    values = [1, 1.0, True, "1", b"1", None, (1,), [1], {1}, {"x": 1}, 10**30, -0.0, 0.0]
    keys = [key(value) for value in values]
    assert len(set(keys)) == len(values)
    assert keys == [key(value) for value in values]
    assert key({"a": 1, "b": {2, 3}}) == key({"b": {3, 2}, "a": 1})


def test_every_part_has_a_part_in_the_key():
    ways = [
        {},
        {"task": "shop:other"},
        {"holds": b"captured"},
        {"parameters": ("y",)},
        {"code": b"d"},
        {"version": "c"},
        {"version": "1"},
    ]
    assert len({key(1, **way) for way in ways}) == len(ways)


def test_with_a_version_the_code_has_no_part_in_the_key():
    assert key(1, version="1") == key(1, version="1", code=b"d")


def test_every_process_makes_the_same_key():
    code = """
from datetime import date, timezone, timedelta
from decimal import Decimal
from flowfn.cache.keys import Subject
from flowfn.identity import packed_arguments
value = [{"b", "a", "c"}, {"y": 1, "x": frozenset("pqr")}, Decimal("1.50"), date(2026, 1, 2)]
value.append(timezone(timedelta(hours=2)))
print(Subject("shop:tax", b"", ("x",), code=b"c").key(packed_arguments((value,))[0]).hex())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_an_argument_that_has_no_key_is_named():
    shop = subject(parameters=("x", "session"))
    error = shop.unkeyed((1, {"lock": threading.Lock()}))
    assert isinstance(error, UnkeyedArgumentError)
    assert (error.task, error.argument, error.kind) == ("shop:tax", "session", "_thread.lock")
    assert "`CachePolicy(key_func=" in str(error)


def test_parts_are_read_back_from_plain_data():
    made = subject(parameters=("x", "y"), holds=b"held", functions={"shop:tax": b"t"}).parts([b"1", b"2"], ["1", "2"])
    assert Parts.unpacked(made.packed(), {"shop:tax": b"t"}) == made
    assert [argument.shown for argument in made.arguments] == ["1", "2"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: [7, *data[1:]],
        lambda data: ["a\x1b[2J", *data[1:]],
        lambda data: [*data[:-1], [["x", "no bytes", "1"]]],
        lambda data: [*data[:-1], [["x", b"1", ["1"]]]],
        lambda data: [*data[:-1], 7],
    ],
)
def test_damaged_parts_are_refused(change):
    data = parts(x=1).packed()
    assert Parts.unpacked(data) == parts(x=1)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        Parts.unpacked(change(data))


# ---------------------------------------------------------------- why


def test_the_nearest_entry_is_the_one_with_fewest_differences_and_the_newest_of_several():
    mine = parts(x=1, y=1, z=1)
    near, far = parts(x=1, y=1, z=2), parts(x=2, y=2, z=1)
    for order in itertools.permutations([near, far]):
        assert why(mine, *order).nearest.parts == near
    assert why(mine, parts(x=2, y=1, z=1), near).differs == ("argument `x`",)


@pytest.mark.parametrize(
    ("other", "differs", "says"),
    [
        (parts(x=2), ("argument `x`",), "argument `x` (1, there 2)."),
        (parts(x=1, y=2), ("argument `y`",), "argument `y` (none, there 2)."),
        (parts(), ("argument `x`",), "argument `x` (1, there none)."),
        (parts(x=1, version="2"), ("the version",), "the version (the code itself, there '2')."),
        (parts(x=1, code=b"d"), ("the code",), "the code."),
        (
            parts(x=2, holds=b"i"),
            ("what the function captured, or its object", "argument `x`"),
            "what the function captured, or its object; argument `x` (1, there 2).",
        ),
    ],
)
def test_a_miss_says_what_differs(other, differs, says):
    found = why(parts(x=1), other)
    assert (found.hit, found.differs, found.nearest) == (False, differs, Entry(other, NOON, None))
    text = f"Miss: the only entry of task `shop:tax`, stored 2027-01-15 08:00:00 UTC, differs in {says}"
    assert str(found) == found.text == text


def test_what_a_key_func_gives_is_named_as_such():
    found = why(parts(**{KEY_FUNC: 1}), parts(**{KEY_FUNC: 2}))
    assert found.differs == ("`key_func(…)`",)


def test_functions_that_changed_came_or_went_are_named():
    mine = parts(functions={"shop:tax": b"1", "shop:net": b"1", "shop:new": b"1"})
    other = parts(code=b"d", functions={"shop:tax": b"1", "shop:net": b"2", "shop:old": b"1"})
    assert why(mine, other).differs == ("the code of `shop:net`, `shop:new` and `shop:old`",)
    assert why(mine, parts(code=b"d")).differs == ("the code",)


def test_an_entry_that_is_there_and_does_not_answer_is_explained():
    assert str(why(parts(x=1), parts(x=1), until=NOON + 50)).endswith("but its time was over 2027-01-15 08:00:50 UTC.")
    assert str(why(parts(x=1), parts(x=1))).endswith("but it cannot be read.")


def test_a_hit_names_its_entry_if_that_is_among_those_looked_at():
    mine = parts(x=1)
    assert why(mine, parts(x=2), mine, is_hit=True).nearest.parts == mine
    assert str(why(mine, mine, is_hit=True)) == "Hit: task `shop:tax` was stored 2027-01-15 08:00:00 UTC."
    for others in ([parts(x=2)], []):
        found = why(mine, *others, is_hit=True)
        assert (found.hit, found.differs, found.nearest, str(found)) == (True, (), None, "Hit on `shop:tax`.")
