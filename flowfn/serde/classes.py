"""What a class is stored as, and how it is found again.

A stored name is `module:qualname`, and `qualname` alone for a builtin. A script calls its own module `__main__`, and
whoever imports the same file calls it by the file's name; so a class of a script is stored as `__main__/stem:qualname`,
and both readers find it. A look-up never imports, and never asks a module's or class's `__getattr__`: it reads the
dictionaries of what is there.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from flowfn.errors import MissingClassError

MAINS = ("__main__", "__mp_main__")
"""What the running script is called, by itself and in the children that multiprocessing spawns."""

ABSENT: Any = object()


def main_name() -> str:
    """The name under which others import the running script; empty at a prompt."""
    main = vars(sys.modules["__main__"])
    spec = main.get("__spec__")
    if spec is not None:
        return str(spec.name)
    file = main.get("__file__") or ""
    return str(file).replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def stored_module(module: str) -> str:
    """The module's name as it is stored."""
    return f"__main__/{main_name()}" if module in MAINS else module


def name_of(cls: type) -> str:
    """The class's name as it is stored; whether it can be found by it is another question."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{stored_module(cls.__module__)}:{cls.__qualname__}"


def shown(name: str) -> str:
    """A stored name in a person's words: `script.Order`."""
    return name.removeprefix("__main__/").replace(":", ".").removeprefix(".")


def lookup(module: str, qualname: str) -> Any:
    """What the stored names stand for, among imported modules; ABSENT when there is no such thing."""
    main, slash, stem = module.partition("/")
    if slash:
        homes = ["__main__", stem] if stem == main_name() else [stem]
    elif module in sys.modules or module != main_name():
        homes = [main]
    else:
        homes = ["__main__"]
    for home in homes:
        found = _attribute(sys.modules.get(home), qualname)
        if found is not ABSENT:
            return found
    return ABSENT


def _names(module: Any) -> dict[str, Any]:
    """What the module defines, by name."""
    # Not vars(module): a lazily loaded module would import itself.
    return object.__getattribute__(module, "__dict__") if isinstance(module, ModuleType) else {}


def _attribute(holder: Any, qualname: str) -> Any:
    first, _, rest = qualname.partition(".")
    found = _names(holder).get(first, ABSENT)
    for step in rest.split(".") if rest else ():
        if not isinstance(found, type):
            return ABSENT
        found = vars(found).get(step, ABSENT)
    return found


def find(name: str) -> type | None:
    """The class of that stored name, or None."""
    module, colon, qualname = name.partition(":")
    if colon and (home := sys.modules.get(module)) is not None:  # Nearly always, and quicker.
        cls = _names(home).get(qualname)
        if isinstance(cls, type):
            return cls
    found = lookup(module, qualname) if colon else lookup("builtins", module)
    return found if isinstance(found, type) else None


def found(name: str) -> type:
    """The class of that stored name.

    Raises:
        MissingClassError: no imported module defines it.
    """
    cls = find(name)
    if cls is None:
        raise MissingClassError(shown(name))
    return cls
