"""Functions and values on their way to another process.

What stands in a module under its name goes by name, a function also from beneath its decorators. The main module is
none that another process could import: what it defines goes with its code and with the globals that the code uses. On
the other side this lives in a module that is called what stored names call the script, `__main__/script`, so that a
value of such a class comes back under the name by which it is found here. Exceptions go as records, as they do to a
store.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

from flowfn.serde.classes import MAINS, lookup, main_name
from flowfn.serde.exceptions import is_kept, kept, rebuild, records
from flowfn.serde.kinds import view_from_parts, view_parts
from flowfn.serde.paths import culprit

MOST_WRAPPERS = 50
"""How many decorators are taken off what stands in a module to come to a function."""


def packed(value: object) -> bytes:
    """The value as bytes for another process; raises whatever pickling raises."""
    try:
        return _pickled(value, drops=False)
    except Exception:
        return _pickled(value, drops=True)


def unpacked(blob: bytes) -> Any:
    """The value that was packed, in another process or this one; raises whatever loading raises."""
    stream = io.BytesIO(blob)
    origin, _, main = stream.readline().decode().removesuffix("\n").partition(" ")
    is_own = origin == _origin()
    unpickler = _OwnUnpickler(stream) if is_own else pickle.Unpickler(stream)
    value = unpickler.load()
    while stream.tell() < len(blob) and not is_own:
        _settle(main, unpickler.load())
    return value


def refusal(value: object) -> str | None:
    """Why the value cannot travel; None if it can."""
    try:
        packed(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def to_blame(value: object, what: str) -> tuple[str, Any]:
    """The path to the part because of which a value cannot travel, and that part; looks into closures and globals.

    Args:
        what: what the value itself is called.
    """
    path, leaf = culprit(value, what, refusal)
    seen: list[Any] = []
    while isinstance(leaf, FunctionType):
        seen.append(leaf)
        used = {name: v for name, v in _globals_of(leaf).items() if not any(v is one for one in seen)}
        name = next((name for name in used if refusal(used[name]) is not None), None)
        if name is None:
            break
        path, leaf = culprit(used[name], f"{path} global `{name}`", refusal)
    return path, leaf


def is_by_name(fn: object) -> bool:
    """Whether a function goes by its name, so that the other side may have other code under it."""
    if not isinstance(fn, FunctionType) or fn.__module__ in MAINS:
        return False
    return _wrappers_over(fn) is not None and not _goes_with_code(fn.__module__)


_TOKEN = os.urandom(8).hex()


def _origin() -> str:
    """What tells this process from all others."""
    return f"{_TOKEN}-{os.getpid()}"


# ---------------------------------------------------------------- on this side


def _pickled(value: object, drops: bool) -> bytes:
    stream = io.BytesIO()
    stream.write(f"{_origin()} {main_name()}\n".encode())
    pickler = _pickler()(stream, 5)
    pickler.drops = drops
    pickler.dump(value)
    told = 0
    while told < len(pickler.of_main):  # To write down what was met may be to meet more.
        things = list(pickler.of_main.items())[told:]
        told += len(things)
        pickler.dump(things)
    return stream.getvalue()


@cache
def _pickler() -> Any:
    import cloudpickle

    if "__mp_main__" in sys.modules:
        # What multiprocessing calls a script in its children. Nobody can import that either.
        cloudpickle.register_pickle_by_value(sys.modules["__mp_main__"])

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        """Attributes:
        drops: leave out, with a note, what of an exception cannot travel.
        of_main: the classes and functions of the main module that were met, by qualified name.
        """

        drops = False

        def __init__(self, file: Any, protocol: int) -> None:
            super().__init__(file, protocol)
            self.of_main: dict[str, Any] = {}

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, FunctionType | type):
                return self._named(obj)
            by_value = getattr(type(obj), "__reduce_by_value__", None)
            if by_value is not None and getattr(obj, "__module__", None) in MAINS:
                return by_value(obj)
            if isinstance(obj, BaseException) and is_kept(type(obj)):
                plain = records(obj, lambda cls: cls if is_kept(cls) else None)
                return rebuild, (kept(plain, refusal) if self.drops else plain,)
            if isinstance(obj, io.TextIOBase):  # Cloudpickle would make it a text of what the file holds.
                raise pickle.PicklingError("it is a file that is open")
            if type(obj) is memoryview:
                return view_from_parts, (view_parts(obj),)
            return super().reducer_override(obj)

        def _named(self, obj: Any) -> Any:
            if obj.__module__ in MAINS:
                self._note(obj)
            elif isinstance(obj, FunctionType) and not _goes_with_code(obj.__module__):
                wrappers = _wrappers_over(obj)
                if wrappers:
                    return _beneath, (obj.__module__, obj.__qualname__, wrappers)
            return super().reducer_override(obj)

        def _note(self, obj: Any) -> None:
            """Have the other side know it by its name, and what it stands in: a nested class is found by the outer."""
            qualname = obj.__qualname__
            if qualname not in self.of_main and lookup("__main__", qualname) is obj:
                self.of_main[qualname] = obj
                first = qualname.partition(".")[0]
                self.of_main.setdefault(first, vars(sys.modules["__main__"])[first])

    return Pickler


def _goes_with_code(module: str) -> bool:
    """Whether the user has told cloudpickle so: `cloudpickle.register_pickle_by_value(module)`."""
    cloudpickle = sys.modules.get("cloudpickle")
    told = cloudpickle.list_registry_pickle_by_value() if cloudpickle is not None else ()
    return any(f"{module}.".startswith(f"{name}.") for name in told)


def _wrappers_over(fn: FunctionType) -> int | None:
    """How many decorators are on a function where it stands in its module; None when it does not stand there."""
    found = lookup(fn.__module__, fn.__qualname__)
    for wrappers in range(MOST_WRAPPERS):
        if found is fn:
            return wrappers
        found = _inside(found)
    return None


def _inside(thing: Any) -> Any:
    """What a decorator was put on."""
    return thing.__func__ if isinstance(thing, staticmethod | classmethod) else getattr(thing, "__wrapped__", None)


def _globals_of(fn: FunctionType) -> Mapping[str, Any]:
    """The globals that a function's code uses, in functions inside it too."""
    names = dict.fromkeys(_global_names(fn.__code__))
    return {name: fn.__globals__[name] for name in names if name in fn.__globals__}


def _global_names(code: CodeType) -> Iterator[str]:
    import dis  # here, since only an error needs it

    for step in dis.get_instructions(code):
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


# ---------------------------------------------------------------- on the other side


class _OwnUnpickler(pickle.Unpickler):
    """Reads what this process has packed itself, for an executor that keeps to this process.

    A class that went with its code is recognised when it comes back, and keeps the attributes that it has: cloudpickle
    would set all of them anew, to copies.
    """

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = super().find_class(module_name, global_name)
        return _unchanged if module_name.startswith("cloudpickle") and global_name == "_class_setstate" else found


def _unchanged(cls: type, state: object) -> type:
    return cls


def _beneath(module: str, qualname: str, wrappers: int) -> Any:
    """The function that stands in a module under so many decorators."""
    import_module(module)
    found = lookup(module, qualname)
    for _ in range(wrappers):
        found = _inside(found)
    if not isinstance(found, FunctionType):
        raise AttributeError(f"`{module}` has no function `{qualname}` beneath {wrappers} decorators")
    return found


def _settle(main: str, things: list[tuple[str, Any]]) -> None:
    """Put what came from another process's main module where its stored name looks for it."""
    name = f"__main__/{main}"
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        part = ".".join(parts[:count])
        sys.modules.setdefault(part, ModuleType(part))
    for qualname, thing in things:
        thing.__module__ = name
        if "." not in qualname:
            setattr(sys.modules[name], qualname, thing)
