"""What a function reaches in its project, and so has a part in its digest."""

import functools
import importlib
import itertools
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from flowfn import task
from flowfn.pregel.reach import deep_digest

COUNT = itertools.count()


def made(source, name="shop", file="/project/{}.py"):
    """A module of that source, as if it lay in that file."""
    module = types.ModuleType(name)
    module.__file__ = file.format(name)
    sys.modules[name] = module
    exec(compile(textwrap.dedent(source), module.__file__, "exec"), vars(module))
    return module


@pytest.fixture(autouse=True)
def _modules():
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def digest(source, **others):
    for name, text in others.items():
        made(text, name)
    return deep_digest(made(source).bill).digest


SHOP = """
import functools, enum, dataclasses
import prices
from prices import gross as with_tax

FEE = 5
RATES = {"de": 0.19, "at": [0.2, 0.1]}

class Kind(enum.Enum):
    SMALL = 1

@dataclasses.dataclass(frozen=True)
class Terms:
    days: int = 30

TERMS = Terms(14)
HANDLERS = {"a": lambda x: x + 100, "b": prices.late}

def deco(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args) + 1000
    return wrapper

@deco
def wrapped(x):
    return x + 2000

@functools.lru_cache
def cached(x):
    return x + 3000

def make(x):
    step = 7
    def inner(y, z=12):
        return y + step
    return inner

made = make(1)
partly = functools.partial(make, 13)

class Base:
    def base(self):
        return 4000

class Order(Base):
    limit = 5000

    @property
    def total(self):
        return self.helper()

    @staticmethod
    def helper():
        return 6000

def even(n): return n == 8000 or odd(n - 1)
def odd(n): return n == 9000 or even(n - 1)

def bill(x):
    def nested():
        return net(x)
    return (nested() + FEE + RATES["de"] + prices.net(x) + with_tax(x) + wrapped(x) + cached(x) + made(x) + partly(x)
            + Order().total + even(x) + TERMS.days + HANDLERS["a"](x) + Kind.SMALL.value)

def net(x):
    return deeper(x) * 2

def deeper(x, y=14000, *, w=15000):
    return x + 3

def unrelated(x):
    return x + 11000
"""

PRICES = """
RATE = 0.5

def net(x):
    return x * RATE

def gross(x):
    return x * 1.19

def late(x):
    return x + 10000

def unrelated(x):
    return x
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FEE = 5\n", "FEE = 7\n"),
        ('"de": 0.19', '"de": 0.16'),
        ("[0.2, 0.1]", "[0.2, 0.11]"),
        ("x + 100", "x + 101"),
        ("+ 1000", "+ 1001"),
        ("x + 2000", "x + 2001"),
        ("x + 3000", "x + 3001"),
        ("return 4000", "return 4001"),
        ("limit = 5000", "limit = 5001"),
        ("return 6000", "return 6001"),
        ("n == 8000", "n == 8001"),
        ("n == 9000", "n == 9001"),
        ("* 2\n", "* 4\n"),
        ("x + 3\n", "x + 4\n"),
        ("step = 7", "step = 8"),
        ("z=12", "z=13"),
        ("y=14000", "y=14001"),
        ("w=15000", "w=15001"),
        ("partial(make, 13)", "partial(make, 14)"),
        ("Terms(14)", "Terms(15)"),
        ("days: int", "days: float"),
        ("SMALL = 1", "SMALL = 2"),
        ("class Order(Base)", "class Order"),
        ("net(x)\n    return", "deeper(x)\n    return"),
        ("from prices import gross as", "from prices import late as"),
    ],
)
def test_whatever_the_task_reaches_counts(before, after):
    assert SHOP.count(before) == 1
    assert digest(SHOP, prices=PRICES) != digest(SHOP.replace(before, after), prices=PRICES)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("RATE = 0.5", "RATE = 0.6", True),
        ("x * 1.19", "x * 1.16", True),
        ("x + 10000", "x + 10001", True),
        ("return x\n", "return -x\n", False),
    ],
)
def test_what_it_reaches_in_another_module_counts_and_no_more(before, after, counts):
    changed = digest(SHOP, prices=PRICES.replace(before, after))
    assert (digest(SHOP, prices=PRICES) != changed) is counts


def test_what_it_does_not_reach_does_not_count():
    before = digest(SHOP, prices=PRICES)
    assert digest(SHOP.replace("x + 11000", "x + 11001"), prices=PRICES) == before
    assert digest("# a line\n\n" + SHOP.replace("def net(x):", 'def net(x):\n    "About it."'), prices=PRICES) == before
    assert digest(SHOP.replace("def even", "def unused():\n    return 1\n\ndef even"), prices=PRICES) == before


def test_the_parts_name_what_counts():
    made(PRICES, "prices")
    parts = deep_digest(made(SHOP).bill).parts
    assert {"shop:bill", "shop:net", "shop:deeper", "shop:FEE", "prices:net", "prices:RATE"} <= parts.keys()
    assert {"shop:Order.limit", "shop:Base.base", "shop:wrapped", "shop:HANDLERS"} <= parts.keys()
    assert not {"shop:unrelated", "prices:unrelated"} & parts.keys()


def test_the_parts_that_changed_are_the_ones_that_differ():
    def parts(source):
        made(PRICES, "prices")
        return deep_digest(made(source).bill).parts

    before, after = parts(SHOP), parts(SHOP.replace("x + 3\n", "x + 4\n").replace("FEE = 5\n", "FEE = 6\n"))
    assert {name for name in before if before[name] != after[name]} == {"shop:deeper", "shop:FEE"}


def test_a_task_and_what_other_tasks_do_count_alike():
    source = """
    from flowfn import task

    @task
    def inner(x):
        return x + 1

    @task
    def bill(x):
        return inner(x).result()
    """
    one = deep_digest(made(source).bill.func)
    other = deep_digest(made(source.replace("x + 1", "x + 2")).bill.func)
    assert one.digest != other.digest
    assert {name for name in one.parts if one.parts[name] != other.parts[name]} == {"shop:inner"}


def test_a_method_counts_with_what_it_names_of_its_class_alone():
    source = """
    class Base:
        def rate(self):
            return 1

    class Shop(Base):
        size = 2

        def bill(self, x):
            return self.net(x) * self.rate() + self.size

        def net(self, x):
            return x + 3

        def unrelated(self):
            return 4
    """

    def of(text):
        return deep_digest(made(text).Shop().bill).digest

    before = of(source)
    assert [of(source.replace(f"{n}\n", f"{n}0\n")) == before for n in (1, 2, 3, 4)] == [False, False, False, True]


def test_a_method_counts_with_what_a_subclass_puts_in_place():
    source = """
    class Shop:
        def bill(self, x):
            return self.net(x)

        def net(self, x):
            return 1

    class Other(Shop):
        def net(self, x):
            return 2
    """

    def of(text, name):
        return deep_digest(getattr(made(text), name)().bill).digest

    edited = source.replace("return 2", "return 3")
    assert of(source, "Shop") == of(edited, "Shop")
    assert of(source, "Other") != of(edited, "Other")


def test_a_callable_object_counts_as_its_methods():
    source = """
    class Scale:
        def __call__(self, x):
            return self.by(x)

        def by(self, x):
            return x + 1
    """
    one, other = (deep_digest(made(text).Scale()).digest for text in (source, source.replace("x + 1", "x + 2")))
    assert one
    assert one != other


# ---------------------------------------------------------------- data and state


def test_what_is_collected_while_the_program_runs_does_not_count():
    module = made("SEEN = []\ndef bill(x):\n    SEEN.append(x)\n")
    before = deep_digest(module.bill).digest
    module.bill(1)
    assert deep_digest(module.bill).digest == before
    exec("def another(x):\n    SEEN.append(x)\n", vars(module))
    assert "shop:SEEN" in deep_digest(module.another).parts
    assert deep_digest(module.another).parts["shop:SEEN"] == deep_digest(module.bill).parts["shop:SEEN"]


def test_a_variable_that_a_function_assigns_is_state():
    source = """
    client = None

    def connected():
        global client
        client = client or object()
        return client

    def bill(x):
        return connected()
    """
    module = made(source)
    before = deep_digest(module.bill)
    module.bill(1)
    assert deep_digest(module.bill) == before
    assert "shop:client" not in before.parts


def test_a_variable_of_a_closure_that_is_assigned_is_state():
    def made():
        count = 0

        def counted():
            nonlocal count
            count += 1

        def bill(x):
            counted()

        return bill

    one, other = made(), made()
    other(1)
    assert deep_digest(one) == deep_digest(other)


def test_what_the_task_itself_captured_is_told_apart_by_its_identity():
    def made(rate):
        def helper(x):
            return x

        def bill(x):
            return helper(x) * rate

        return bill

    assert deep_digest(made(1)) == deep_digest(made(2))


def test_an_object_counts_by_its_class_and_not_by_what_it_holds():
    source = """
    import threading

    class Client:
        def __init__(self):
            self.lock, self.made = threading.Lock(), [0]

        def ask(self):
            return 1

    client = Client()

    def bill(x):
        return client.ask()
    """
    module = made(source)
    before = deep_digest(module.bill).digest
    module.client.made.append(1)
    assert deep_digest(made(source).bill).digest == before
    assert deep_digest(made(source.replace("return 1", "return 2")).bill).digest != before


def test_looking_at_an_object_that_refuses_to_be_looked_at_does_no_harm():
    source = """
    class Absent:
        def __getattribute__(self, name):
            raise RuntimeError("outside of a request")

    request = Absent()
    forever = []
    forever.append([forever])
    deep = []
    for _ in range(10000):
        deep = [deep]

    def bill(x):
        return request, forever, deep
    """
    assert deep_digest(made(source).bill).digest == deep_digest(made(source).bill).digest


def test_values_that_are_equal_but_of_other_types_count_as_others():
    digests = [
        digest(f"FEE = {value}\ndef bill(x):\n    return FEE\n") for value in ("1", "1.0", "True", "'1'", "(1,)")
    ]
    assert len(set(digests)) == 5


def test_a_name_that_is_missing_counts_once_it_is_there():
    source = "def bill(x):\n    return later(x)\n"
    assert digest(source) != digest(source + "def later(x):\n    return x\n")


# ---------------------------------------------------------------- redefinition in this process


@pytest.mark.parametrize(
    "redefined",
    ["def net(x):\n    return x + 2\n", "FEE = 6\n", "net.__code__ = (lambda x: x + 2).__code__\n", "del net\n"],
)
def test_a_redefinition_is_noticed(redefined):
    module = made("FEE = 5\ndef net(x):\n    return x + 1\ndef bill(x):\n    return net(x) + FEE\n")
    before = deep_digest(module.bill).digest
    assert deep_digest(module.bill).digest == before
    exec(redefined, vars(module))
    assert deep_digest(module.bill).digest != before


def test_a_method_that_is_replaced_is_noticed():
    module = made("class A:\n def f(self):\n  return 1\ndef bill(x):\n return A().f()\n")
    before = deep_digest(module.bill).digest
    module.A.f = lambda self: 2
    assert deep_digest(module.bill).digest != before


def test_a_closure_whose_helper_is_replaced_is_noticed():
    def outer():
        def helper(x):
            return x + 1

        def bill(x):
            return helper(x)

        def replace():
            nonlocal helper
            helper = len

        return bill, replace

    bill, replace = outer()
    before = deep_digest(bill).digest
    replace()
    assert deep_digest(bill).digest != before


# ---------------------------------------------------------------- whose code it is


def test_installed_packages_and_python_itself_do_not_count(tmp_path):
    installed = str(tmp_path / "site-packages" / "{}.py")
    made("def help(x):\n    return 1\n", "lib", installed)
    source = "import json, lib\ndef bill(x):\n    return json.dumps(lib.help(x))\n"
    before = deep_digest(made(source).bill)
    made("def help(x):\n    return 2\n", "lib", installed)
    assert deep_digest(made(source).bill).digest == before.digest
    assert not any(name.startswith(("json:dumps", "lib:help")) for name in before.parts)


def test_a_task_that_is_installed_counts_with_its_own_package(tmp_path):
    installed = str(tmp_path / "site-packages" / "{}.py")
    source = "from flowfn import task\ndef net(x):\n    return 1\n@task\ndef bill(x):\n    return net(x)\n"

    def of(text):
        return deep_digest(made(text, "shop", installed).bill.func).digest

    assert of(source) != of(source.replace("return 1", "return 2"))


def test_a_function_of_a_library_that_is_made_a_task_counts_alone():
    parts = deep_digest(task(textwrap.dedent).func).parts
    assert "textwrap:dedent" in parts
    assert not any(name.startswith("re:") for name in parts)


def test_code_typed_at_a_prompt_counts():
    namespace = {"__name__": "__main__"}
    exec("def net(x):\n    return 1\ndef bill(x):\n    return net(x)\n", namespace)
    before = deep_digest(namespace["bill"]).digest
    exec("def net(x):\n    return 2\n", namespace)
    assert deep_digest(namespace["bill"]).digest != before


# ---------------------------------------------------------------- modules imported inside a function


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of modules on the path; gives what writes one."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1e9, 1e9 + next(COUNT)))
        importlib.invalidate_caches()
        return file

    return write


def test_a_module_imported_inside_counts_without_being_imported(project):
    bill = made("def bill(x):\n    from late_prices import net\n    return net(x)\n").bill
    other = made("def bill(x):\n    import late_prices as p\n    return p.net(x)\n").bill
    digests = []
    for number in (1, 2):
        project("late_prices.py", f"nobody_knows()\ndef net(x):\n    return {number * 111111}\n")
        digests.append((fresh(bill), fresh(other)))
    assert "late_prices" not in sys.modules
    assert digests[0][0] != digests[1][0]
    assert digests[0][1] != digests[1][1]


def fresh(fn):
    """The digest as another process would find it."""
    from flowfn.pregel import reach

    reach._known.clear()
    return deep_digest(fn).digest


def test_such_a_module_counts_alike_when_it_is_imported(project):
    project("late_prices.py", "def net(x):\n    return 1\n")
    bill = made("def bill(x):\n    from late_prices import net\n    return net(x)\n").bill
    before = fresh(bill)
    assert bill(1) == 1
    assert fresh(bill) == before


def test_what_such_a_module_imports_counts_too(project):
    project("late/__init__.py", "")
    project("late/prices.py", "from . import rates\ndef net(x):\n    return x * rates.RATE\n")
    rates = project("late/rates.py", "RATE = 1\n")
    importlib.import_module("late")
    bill = made("def bill(x):\n    from late import prices\n    return prices.net(x)\n").bill
    before = fresh(bill)
    rates.write_text("RATE = 222222\n")
    os.utime(rates, (1e9, 1e9 + next(COUNT)))
    assert fresh(bill) != before


def test_a_module_edited_after_it_was_imported_gives_results_to_nobody_else(project):
    file = project("late_prices.py", "def net(x):\n    return 1\n")
    bill = made("def bill(x):\n    from late_prices import net\n    return net(x)\n").bill
    bill(1)
    file.write_text("def net(x):\n    return 222222\n")  # what runs is still the old one
    running = fresh(bill)
    del sys.modules["late_prices"]
    importlib.invalidate_caches()
    assert fresh(bill) != running


@pytest.mark.parametrize("text", ["def net(x:\n", ""])
def test_a_module_that_cannot_be_read_or_found_does_no_harm(project, text):
    if text:
        project("late_prices.py", text)
    bill = made("def bill(x):\n    from late_prices import net\n    from ..up import there\n    return net(x)\n").bill
    assert fresh(bill) == fresh(bill)


# ---------------------------------------------------------------- other processes


SCRIPT = """
import sys
from flowfn import task
from flowfn.pregel.reach import deep_digest

NAMES = {"b", "a", "c"}
TABLE = {"x": {1, 2}, "y": frozenset("abc")}

class Kind(str):
    pass

@task
def bill(x):
    return NAMES, TABLE, Kind, [n for n in x if n in {"p", "q", "r"}]

print(deep_digest(bill.func).digest.hex())
"""


def test_every_process_finds_the_same_digest(tmp_path):
    script = tmp_path / "shop.py"
    script.write_text(SCRIPT)
    found = set()
    imported = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import shop"
    for seed, how in (("1", [str(script)]), ("2", ["-c", imported])):
        done = subprocess.run(
            [sys.executable, *how],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1
    assert len(found.pop()) == 32


def test_a_second_look_is_quick_and_finds_the_same_object():
    made(PRICES, "prices")
    bill = made(SHOP).bill
    assert deep_digest(bill) is deep_digest(bill)


def test_an_unhashable_callable_has_a_digest():
    class Odd:
        __slots__ = ()
        __hash__ = None

        def __call__(self, x):
            return x

    assert deep_digest(Odd()).digest
    assert deep_digest(functools.partial(Odd())).digest
