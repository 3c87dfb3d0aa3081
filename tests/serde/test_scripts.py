"""Values of a script come back as the script's own, run or imported."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
    import dataclasses, enum, sys
    from typing import NamedTuple

    from flowfn.serde import Keyring, Serializer

    @dataclasses.dataclass
    class Order:
        id: int

    class Kind(enum.Enum):
        BIG = 1

    class Pair(NamedTuple):
        left: int

    class CodeError(Exception):
        def __init__(self, code):
            super().__init__("code")
            self.code = code

    class Plain:
        class Inner:
            pass

    def function():
        return 1

    VALUES = {
        "dataclass": lambda: Order(1),
        "enum": lambda: Kind.BIG,
        "named tuple": lambda: Pair(1),
        "exception": lambda: CodeError(3),
        "object": lambda: Plain(),
        "inner class": lambda: [Plain.Inner()],
        "with code": lambda: [lambda: 1, Plain(), Order(2)],
        "function": lambda: function,
    }

    def write(name, path):
        open(path, "wb").write(Serializer().dumps(VALUES[name]()))

    def sign(name, path):
        serde = Serializer(keys=Keyring.of("a-secret-of-sixteen-characters"))
        open(path, "wb").write(serde.dumps(VALUES[name]()))

    def read(name, path):
        back, new = Serializer().loads(open(path, "rb").read()), VALUES[name]()
        kinds = lambda v: [type(one) for one in v] if isinstance(v, list) else type(v)
        assert kinds(back) == kinds(new), (kinds(back), kinds(new))
        if name == "function":
            assert back is function
        if name == "exception":
            assert back.code == 3

    if __name__ == "__main__":
        {"write": write, "sign": sign, "read": read}[sys.argv[1]](*sys.argv[2:])
"""

NAMES = ["dataclass", "enum", "named tuple", "exception", "object", "inner class", "with code", "function"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "orders.py").write_text(textwrap.dedent(SCRIPT))
    return folder


def run(folder: Path, as_script: bool, verb: str, name: str) -> subprocess.CompletedProcess[str]:
    blob = str(folder / f"{name}.blob")
    how = ["orders.py", verb, name, blob] if as_script else ["-c", f"import orders; orders.{verb}({name!r}, {blob!r})"]
    return subprocess.run([sys.executable, *how], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("written", "read"),
    [(True, True), (True, False), (False, True), (False, False)],
    ids=["script-script", "script-module", "module-script", "module-module"],
)
def test_a_value_of_a_script_is_read_back_as_its_own(folder: Path, name: str, written: bool, read: bool) -> None:
    assert run(folder, written, "write", name).stderr == ""

    assert run(folder, read, "read", name).stderr == ""


@pytest.mark.parametrize("name", ["dataclass", "enum", "exception", "object", "function"])
def test_a_reader_without_the_script_is_told_what_is_missing(folder: Path, name: str) -> None:
    run(folder, True, "write", name)
    blob = str(folder / f"{name}.blob")
    code = f"from flowfn.serde import Serializer; Serializer().loads(open({blob!r}, 'rb').read())"

    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False)

    assert "MissingClassError: A stored value cannot be read back: it needs `orders." in done.stderr


@pytest.mark.parametrize("name", ["dataclass", "exception", "object", "with code"])
def test_a_signed_value_of_a_script_is_read_by_who_did_not_import_it(folder: Path, name: str) -> None:
    run(folder, True, "sign", name)
    code = f"""
from flowfn.serde import Keyring, Serializer
value = Serializer(keys=Keyring.of("a-secret-of-sixteen-characters")).loads(open({name + ".blob"!r}, "rb").read())
one = value[1] if {name!r} == "with code" else value[0] if isinstance(value, list) else value
print(getattr(one, "__module__", None) or type(one).__module__)
"""

    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("orders\n", "")


def test_reading_plain_data_imports_nothing(folder: Path) -> None:
    run(folder, True, "write", "dataclass")
    blob = str(folder / "dataclass.blob")
    code = f"""
import sys
from flowfn.serde import Serializer
try:
    Serializer().loads(open({blob!r}, 'rb').read())
except ValueError:
    print("orders" in sys.modules)
"""

    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)

    assert done.stdout == "False\n"


def test_importing_the_layer_imports_none_of_the_packages_it_recognises() -> None:
    code = "import sys, flowfn.serde; print({'numpy', 'pandas', 'pydantic', 'attr', 'cloudpickle'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout == "set()\n"
