"""Functions and values travel by name or by value, and arrive as what they are."""

from __future__ import annotations

import functools
import io
import sys
import threading
import types

import cloudpickle
import pytest

from flowfn.executors import travel
from tests.executors import shop, work


def across(pool, fn, *args):
    """What `fn(*args)` gives in another process."""
    return travel.unpacked(pool.submit(work.call, travel.packed((fn, args))).result())


@pytest.mark.parametrize(
    "fn",
    [
        shop.double.func,
        shop.twice_decorated.func,
        shop.Till(1).add.func,
        shop.Till.tax.func,
        shop.Till.named.func,
        shop.Till(3),
        functools.partial(shop.noted, len),
        len,
    ],
)
def test_what_stands_in_a_module_goes_by_name(fn):
    assert len(travel.packed(fn)) < 300

    again = travel.unpacked(travel.packed(fn))

    assert type(again) is type(fn)


def test_a_decorated_function_arrives_without_its_decorators_and_is_the_very_one():
    assert travel.unpacked(travel.packed(shop.double.func)) is shop.double.func
    assert travel.unpacked(travel.packed(shop.double)) is shop.double
    assert travel.unpacked(travel.packed(shop.twice_decorated.func)) is shop.twice_decorated.func


def test_closures_lambdas_and_local_classes_go_by_value(pool):
    factor, parts = 3, {"a": [1]}

    class Local:
        def __init__(self, n):
            self.n = n

    def times(x):
        parts["a"].append(x)
        return [Local(x * factor).n, parts, (lambda: factor)()]

    assert across(pool, times, 2) == [6, {"a": [1, 2]}, 3]
    assert parts == {"a": [1]}


def test_methods_partials_and_callable_objects_take_their_object_along(pool):
    till = shop.Till(10)

    assert across(pool, till.add.func, 5) == 15
    assert across(pool, functools.partial(till.add.func, 7)) == 17
    assert across(pool, till, 4) == 6


def test_a_task_inside_a_closure_arrives_as_a_task(pool):
    inner = shop.double

    def look(x):
        return type(inner).__name__, inner.__name__, inner.func(x)

    assert across(pool, look, 4) == ("Task", "double", 8)


def test_exceptions_keep_type_attributes_and_cause(pool):
    try:
        shop.fails(7)
    except shop.Odd as error:
        again = across(pool, lambda e: e, error)

    assert type(again) is shop.Odd
    assert again.number == 7
    assert type(again.__cause__) is ValueError


def test_an_exception_leaves_behind_what_cannot_travel():
    error = ValueError("x")
    error.lock = threading.Lock()

    again = travel.unpacked(travel.packed([error]))[0]

    assert not hasattr(again, "lock")
    assert "attribute `lock` was a `_thread.lock`" in again.__notes__[0]


def test_what_the_user_told_cloudpickle_goes_with_its_code(monkeypatch):
    module = types.ModuleType("flowfn_test_unimportable")
    exec("def f(x):\n    return g(x) + 1\ndef g(x):\n    return x * 10\n", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cloudpickle.register_pickle_by_value(module)
    try:
        packed = travel.packed(module.f)
        assert not travel.is_by_name(module.f)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert travel.is_by_name(module.f)
    monkeypatch.delitem(sys.modules, module.__name__)

    assert travel.unpacked(packed)(2) == 21


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        ([1, {"a": (2, threading.Lock())}], "It[1]['a'][1]", "lock"),
        (functools.partial(len, sys._getframe()), "It", "partial"),
        ({"log": io.TextIOWrapper(io.BytesIO())}, "It['log']", "TextIOWrapper"),
    ],
)
def test_the_part_to_blame_is_named(value, path, kind):
    assert travel.refusal(value) is not None

    found, leaf = travel.to_blame(value, "It")

    assert found.startswith(path)
    assert type(leaf).__name__ in (kind, "frame")


def test_a_closure_to_blame_is_named():
    lock = threading.Lock()

    assert travel.to_blame(lambda: lock, "It") == ("It closure `lock`", lock)


def test_a_global_to_blame_is_named_through_functions_that_use_each_other():
    module = types.ModuleType("flowfn_test_globals")
    code = "def f():\n    return g()\ndef g():\n    return [f, conn.lock for x in y] if 0 else conn\n"
    exec(code.replace("[f, conn.lock for x in y]", "f"), module.__dict__)
    module.conn = threading.Lock()

    assert travel.to_blame(module.f, "It") == ("It global `g` global `conn`", module.conn)


# ---------------------------------------------------------------- an executor that keeps to this process


def test_classes_that_stay_in_this_process_stay_as_they_are():
    class Local:
        count = 0

        def method(self):
            return self

    method = Local.method
    packed = travel.packed(Local())
    Local.count = 5

    again = travel.unpacked(packed)

    assert type(again) is Local
    assert Local.method is method
    assert Local.count == 5


# ---------------------------------------------------------------- the main module, which nobody can import


@pytest.fixture
def main(monkeypatch):
    """A main module of a script `shop.py`, in the place of the real one."""
    module = types.ModuleType("__main__")
    module.__file__ = "/somewhere/my shop.py"
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


SCRIPT = """
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from flowfn import task

RATE = 2

class Kind(Enum):
    A = 1

@dataclass
class Order:
    number: int
    kind: Kind = Kind.A

    @dataclass
    class Line:
        amount: int

class Pair(NamedTuple):
    a: int
    b: int

class Plain:
    def __init__(self, x):
        self.x = x

class Odd(Exception):
    pass

@task
def helper(x):
    return x * RATE

def build(number):
    return [Order(helper.func(number)), Kind.A, Pair(1, 2), Order.Line(3), Plain(4), Odd("five"), build, Order]
"""


def test_what_the_main_module_defines_comes_back_as_its_own(pool, main):
    exec(SCRIPT, main.__dict__)

    order, kind, pair, line, plain, odd, build, cls = across(pool, work.encoded, main.build, 5)

    assert order == main.Order(10)
    assert kind is main.Kind.A
    assert type(pair) is main.Pair
    assert type(line) is main.Order.Line
    assert type(plain) is main.Plain
    assert type(odd) is main.Odd
    assert build is main.build
    assert cls is main.Order


def test_a_script_that_is_a_module_of_a_package_is_found_too(pool, main):
    main.__spec__ = types.SimpleNamespace(name="pack.tool")
    exec(SCRIPT, main.__dict__)

    order, *_, plain, _, _, _ = across(pool, work.encoded, main.build, 5)

    assert order == main.Order(10)
    assert type(plain) is main.Plain


def test_globals_go_as_they_are_at_the_call(pool, main):
    exec(SCRIPT, main.__dict__)
    assert across(pool, work.encoded, main.build, 5)[0].number == 10

    main.RATE = 7

    assert across(pool, work.encoded, main.build, 5)[0].number == 35


def test_a_task_of_the_main_module_arrives_as_a_task(pool, main):
    exec(SCRIPT, main.__dict__)
    exec("def look():\n    return type(helper).__name__, helper.__name__, helper.func(3)", main.__dict__)

    assert across(pool, main.look) == ("Task", "helper", 6)


def test_a_task_that_uses_itself_can_travel(pool, main):
    exec("from flowfn import task\n@task\ndef fac(n):\n    return n * fac.func(n - 1) if n else 1", main.__dict__)

    assert across(pool, main.fac.func, 5) == 120
