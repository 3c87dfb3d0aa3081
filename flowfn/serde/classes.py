"""What a class is stored as, and how it is found again.

A stored name is `module:qualname`, and `qualname` alone for a builtin. A script calls its own module `__main__`, and
whoever imports the same file calls it by the file's name; so a class of a script is stored as `__main__/stem:qualname`,
and both readers find it. A look-up never imports, and never asks a module's or class's `__getattr__`: it reads the
dictionaries of what is there. To import what a stored name asks for is a step of its own, `bring_in`, for names that
somebody signed.
"""

from __future__ import annotations

import importlib
import sys
from threading import get_ident
from types import ModuleType
from typing import Any, NoReturn

from flowfn.errors import MissingClassError, UnreadableError

MAINS = ("__main__", "__mp_main__")
"""What the running script is called, by itself and in the children that multiprocessing spawns."""

ABSENT: Any = object()

_OWN = ("flowfn.errors:", "flowfn.types:")
"""Modules that are there wherever a value is read, like the builtins."""


class Absent(LookupError):
    """A stored name stands for nothing here.

    Attributes:
        name: as it is stored.
        why: the end of the sentence "it needs that name, …".
    """

    def __init__(self, name: str, why: str = "which no imported module defines") -> None:
        self.name, self.why = name, why
        super().__init__(name)


def raise_unreadable(error: Exception, what: str) -> NoReturn:
    """Raise what there is to tell of a stored value, called `what`, whose reading ended with `error`."""
    if isinstance(error, UnreadableError):
        raise error
    if isinstance(error, Absent):
        raise MissingClassError(shown(error.name), what, error.why) from error.__cause__
    raise UnreadableError(
        what,
        f"{type(error).__name__}: {error}. It is damaged, or a class that it needs has changed too much; then give "
        f"the class back what it had. The stored value is untouched.",
    ) from error


# ---------------------------------------------------------------- names


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


def is_of_program(name: str) -> bool:
    """Whether the stored name is that of a class which a reader may lack: neither a builtin nor flowfn's own."""
    return ":" in name and not name.startswith(_OWN)


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
        Absent: no imported module defines it.
    """
    cls = find(name)
    if cls is None:
        raise Absent(name)
    return cls


# ---------------------------------------------------------------- imports


def bring_in(name: str) -> str:
    """Import the module that the stored name is of, and give the module's name. Only for names that are trusted.

    Raises:
        Absent: it cannot be imported.
    """
    _, slash, stem = (module := name.partition(":")[0]).partition("/")
    home = stem if slash else module
    if home == main_name() and module not in sys.modules:
        return "__main__"  # To import a script that runs would run it again.
    try:
        importlib.import_module(home)
    except (Exception, SystemExit) as error:
        why = f"and importing `{home}` ended with {type(error).__name__}: {error}"
        raise Absent(name, why) from error
    return home


def gone(name: str, home: str) -> Absent:
    """What to raise when the imported module has nothing of that stored name."""
    return Absent(name, f"which `{home}` does not define any more")


# ---------------------------------------------------------------- who named a class

NAMERS: set[int] = set()
"""Workers that put the name of a program's class into what they packed, until they ask for it; nearly always empty."""


def note_naming() -> None:
    """Note that this worker did."""
    NAMERS.add(get_ident())


def took_note() -> bool:
    """Whether there is such a note of this worker; it is taken away."""
    me = get_ident()
    noted = me in NAMERS
    NAMERS.discard(me)
    return noted


def put_back(noted: bool) -> None:
    """Undo a taking, and whatever this worker noted since."""
    (NAMERS.add if noted else NAMERS.discard)(get_ident())
