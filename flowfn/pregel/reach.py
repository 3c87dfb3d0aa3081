"""What a function reaches in its project: whatever its result may depend on beside its arguments.

A name is followed to what it stands for, without running anything: globals, closures, defaults, attributes of modules,
handlers in a dict, what a decorator wraps, whole classes, and of a method's own class what the method names. Functions
and classes count that are the project's own: neither part of Python nor installed, unless installed with the task
itself. A module that is imported inside a function counts as a whole, by its file.

Data under a global name counts too, a rate or a table of them, since it is edited as code is: plain values, and lists,
dicts, dataclasses and the like of them. It counts as it is when it is first asked for in a process, so that what a
program collects in a list from then on changes nothing. A variable that some function assigns (`global x`) is state and
never counts, nor does what any other object holds, a client or a lock: of it only the class does.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import importlib.util
import os
import re
import sys
import time
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from flowfn import identity
from flowfn.identity import digest, name_of
from flowfn.pregel.code import Chain, compiled, innermost
from flowfn.types import MISSING

MOST = 1000
"""How many functions, classes and modules are looked at for one task."""

DEEPEST = 20
"""Levels of nested data below which its kind is all that counts."""

_BEGAN = time.time_ns()


class Code(NamedTuple):
    """What a function and all that it reaches in its project do.

    Attributes:
        digest: of all parts; empty where there is no code to read.
        parts: name → digest of each function, class and constant.
    """

    digest: bytes
    parts: Mapping[str, bytes]


def deep_digest(fn: Any) -> Code:
    """The digest of a function and of all that it reaches; a later one differs if any of it was redefined meanwhile."""
    is_plain = type(fn) is FunctionType and "__wrapped__" not in fn.__dict__
    root, owner = (fn, None) if is_plain else (innermost(fn), _class_of(fn))
    try:
        known = _known.get(root)
        if known is None:
            known = _known[root] = {}
    except TypeError:  # no weak reference can be made to it
        known = {}
    reach = known.get(owner)
    if reach is None or not reach.is_current():
        reach = known[owner] = _Search(root).reach_from(fn, root, owner)
    return reach.code


def _class_of(fn: Any) -> type | None:
    """The class that a method's own names are looked up on."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, MethodType):
        return fn.__self__ if isinstance(fn.__self__, type) else type(fn.__self__)
    is_no_object = isinstance(fn, type | staticmethod | classmethod) or hasattr(fn, "__code__")
    return None if is_no_object else type(fn)


class Reach:
    """What was found from one function, and on what that rests.

    Attributes:
        code: the digest, and its parts.
        looked_up: names and what they stood for: (namespace, name, value).
        functions: with their code and defaults then.
        cells: of closures, with what they held.
    """

    code = Code(b"", {})

    def __init__(self) -> None:
        self.looked_up: list[tuple[Mapping[str, Any], str, Any]] = []
        self.functions: list[tuple[FunctionType, CodeType, Any, Any]] = []
        self.cells: list[tuple[CellType, Any]] = []

    def is_current(self) -> bool:
        """Whether nothing of it was redefined since."""
        for namespace, name, value in self.looked_up:
            if namespace.get(name, MISSING) is not value:
                return False
        for fn, code, defaults, named in self.functions:
            if fn.__code__ is not code or fn.__defaults__ is not defaults or fn.__kwdefaults__ is not named:
                return False
        return all(_content(cell) is value for cell, value in self.cells)


_known: weakref.WeakKeyDictionary[Any, dict[type | None, Reach]] = weakref.WeakKeyDictionary()


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is filled later, or was emptied
        return MISSING


# ---------------------------------------------------------------- the search

Found: TypeAlias = tuple[Any, type | None]
"""A function, a class or the name of a module, and of a method the class that its own names are looked up on."""


class _Search:
    """A walk from name to name, breadth first."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._home = _home(root)
        self._reach = Reach()
        self._parts: dict[str, set[bytes]] = {}
        self._bindings: dict[str, bytes] = {}
        self._assigned: set[str] = set()
        self._seen: dict[Any, Any] = {}
        self._todo: deque[Found] = deque()

    def reach_from(self, fn: Any, root: Any, owner: type | None) -> Reach:
        """Everything that `fn` reaches; `root` is what it is below its decorators."""
        if isinstance(root, FunctionType):
            self._add((root, owner))
        if fn is not root and not isinstance(fn, MethodType):
            self._stands_for(fn)
        while self._todo:
            thing, owner = self._todo.popleft()
            if isinstance(thing, type):
                self._read_class(thing)
            elif isinstance(thing, FunctionType):
                self._read_function(thing, owner)
            else:
                self._read_file(thing)
        self._reach.code = self._code()
        return self._reach

    def _code(self) -> Code:
        for label, binding in self._bindings.items():
            if label not in self._assigned:
                self._part(label, binding)
        parts = {label: digest(*sorted(found), size=8) for label, found in sorted(self._parts.items())}
        whole = digest(*[bit for label, part in parts.items() for bit in (label.encode(), part)]) if parts else b""
        return Code(whole, parts)

    def _part(self, label: str, *found: bytes) -> None:
        self._parts.setdefault(label, set()).add(digest(*found))

    def _add(self, found: Found) -> None:
        mark = found if isinstance(found[0], str) else (id(found[0]), found[1])
        if mark not in self._seen and len(self._seen) < MOST:
            self._seen[mark] = found  # kept, so that nothing else gets its id meanwhile
            self._todo.append(found)

    def _stands_for(self, value: Any, owner: type | None = None) -> bytes:
        """A value as bytes, what is in it to look at being noted."""
        meaning = Meaning(self._home, owner)
        stood = meaning.of(value)
        for found in meaning.found:
            self._add(found)
        return stood

    # --- functions and classes

    def _read_function(self, fn: FunctionType, owner: type | None) -> None:
        code, module = compiled(fn.__code__), identity.module_name(_module_of(fn))
        self._reach.functions.append((fn, fn.__code__, fn.__defaults__, fn.__kwdefaults__))
        self._assigned |= {f"{module}:{name}" for name in code.assigned}
        held = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False))
        closed = [self._in_cell(cell, fn) for name, cell in held.items() if name not in code.rebound]
        own = [code.digest, self._stands_for(fn.__defaults__), self._stands_for(fn.__kwdefaults__), *closed]
        self._part(name_of(fn), *own)
        for chain in sorted(code.names):
            self._look_up(fn.__globals__, chain, module)
        for name, *attributes in sorted(code.frees):
            if name in held:
                self._follow(_content(held[name]), attributes)
        for name, level, taken in sorted(code.imports):
            self._import(fn.__globals__.get("__package__"), name, level, taken)
        if "__wrapped__" in fn.__dict__:
            self._stands_for(fn.__dict__["__wrapped__"])
        if owner is not None:
            self._read_methods(owner, code.attributes)

    def _in_cell(self, cell: CellType, fn: FunctionType) -> bytes:
        value = _content(cell)
        self._reach.cells.append((cell, value))
        stood = self._stands_for(value)
        return b"" if fn is self._root else stood  # a task's identity says already what it has captured

    def _read_class(self, cls: type) -> None:
        for kind in cls.__mro__:
            if _is_own(kind.__module__, self._home):
                self._add((kind, None))
        label, held = name_of(cls), vars(cls)
        annotations = held.get("__annotations__", {})
        fields = [f"{name}: {a if isinstance(a, str) else name_of(a)}".encode() for name, a in annotations.items()]
        self._part(label, *[name_of(base).encode() for base in cls.__bases__], b"", *fields)
        for name, value in list(held.items()):
            if callable(value) or isinstance(value, _WRAPPERS) or not (name[:2] == name[-2:] == "__"):
                self._member(cls, name, value, None)

    def _read_methods(self, owner: type, names: Iterable[str]) -> None:
        """Of a method's class, what the method names, in all the project's classes that it stands on."""
        for kind in owner.__mro__:
            if _is_own(kind.__module__, self._home):
                for name in sorted(vars(kind).keys() & names):
                    self._member(kind, name, vars(kind)[name], owner)

    def _member(self, cls: type, name: str, value: Any, owner: type | None) -> None:
        self._reach.looked_up.append((vars(cls), name, value))
        label = f"{name_of(cls)}.{name}"
        is_code = callable(value) or isinstance(value, _WRAPPERS)
        self._part(label, self._stands_for(value, owner) if is_code else self._as_first_seen(label, value))

    # --- names

    def _look_up(self, namespace: Mapping[str, Any], chain: Sequence[str], module: str) -> None:
        """What a name of a module stands for, and the attributes taken from it."""
        name, *attributes = chain
        value = namespace.get(name, MISSING)
        self._reach.looked_up.append((namespace, name, value))
        label = f"{module}:{name}"
        if value is not MISSING:
            self._bindings[label] = self._as_first_seen(label, value)
            self._follow(value, attributes)
        elif not hasattr(builtins, name):
            self._bindings[label] = b"missing"

    def _follow(self, value: Any, attributes: Sequence[str]) -> None:
        if attributes and isinstance(value, ModuleType) and _is_own(value.__name__, self._home):
            self._look_up(vars(value), attributes, identity.module_name(value.__name__))

    def _as_first_seen(self, label: str, value: Any) -> bytes:
        known = _first_seen.get((self._home, label))
        if known is None or known[0] is not value:
            meaning = Meaning(self._home, None)
            known = _first_seen[self._home, label] = value, meaning.of(value), meaning.found
        for found in known[2]:
            self._add(found)
        return known[1]

    # --- modules imported inside a function, which may not be imported yet, and are not for this

    def _import(self, package: str | None, name: str, level: int, taken: Chain) -> None:
        try:
            whole = importlib.util.resolve_name("." * level + name, package or "")
        except ImportError:
            return
        for module in (whole, *[f"{whole}.{one}" for one in taken]):
            if _is_own_import(module, self._home):
                self._add((module, None))

    def _read_file(self, module: str) -> None:
        spec = importlib.util.find_spec(module)
        try:
            code = compiled(spec.loader.get_code(module))  # type: ignore[union-attr]
            edited = os.stat(spec.origin).st_mtime_ns  # type: ignore[union-attr,arg-type]
        except Exception:  # whatever a loader or a syntax error raises; the call itself will tell
            self._part(module, b"unreadable")
            return
        # What was imported may be older than the file, so what it gives is nobody else's result.
        may_differ = module in sys.modules and edited > _BEGAN
        self._part(module, code.digest, b"%d" % edited if may_differ else b"")
        is_package = spec is not None and spec.submodule_search_locations is not None
        for name, level, taken in sorted(code.imports):
            self._import(module if is_package else module.rpartition(".")[0], name, level, taken)


_first_seen: dict[tuple[str, str], tuple[Any, bytes, Sequence[Found]]] = {}
"""What a name stood for when it was first asked for: (home, label) → the value, as bytes, and what was in it."""


# ---------------------------------------------------------------- what a value means

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, range, type(...), re.Pattern})
_ATOM_MODULES = frozenset({"datetime", "decimal", "fractions", "uuid", "zoneinfo", "ipaddress", "numpy"})
_LISTS = frozenset({list, tuple, deque})
_SETS = frozenset({set, frozenset})
_DICTS = frozenset({dict, OrderedDict, defaultdict, Counter, MappingProxyType})
_RECORDS = frozenset({"types.SimpleNamespace", "argparse.Namespace"})
_WRAPPERS = (property, staticmethod, classmethod, functools.cached_property, functools.partialmethod)


class Meaning:
    """Values as bytes: data as it is, the project's functions and classes by their names, anything else by its kind.

    Attributes:
        found: the functions and classes of the project that were met.
    """

    def __init__(self, home: str, owner: type | None) -> None:
        self.found: list[Found] = []
        self._home, self._owner = home, owner
        self._around: list[int] = []

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if kind is list or kind is dict:
            try:
                return digest(identity.packb(value, None, identity.OPTIONS))
            except (TypeError, ValueError, RecursionError):  # it holds something that is no plain data
                pass
        if len(self._around) > DEEPEST or id(value) in self._around:
            return _kind(value)
        self._around.append(id(value))
        try:
            if kind in _ATOMS or kind.__module__ in _ATOM_MODULES or issubclass(kind, PurePath):
                return self._named(value) if callable(value) else digest(identity.Walk().packed(value))
            return self._compound(value, kind)
        except Exception:  # whatever an object raises when it is looked at, a stand-in for something absent for one
            return _kind(value)
        finally:
            self._around.pop()

    def _compound(self, value: Any, kind: type) -> bytes:
        if kind in _DICTS:
            items = sorted((self.of(k), self.of(v)) for k, v in list(value.items()))
            return digest(_kind(value), *[part for item in items for part in item])
        if kind in _SETS:
            return digest(_kind(value), *sorted(map(self.of, list(value))))
        if isinstance(value, type | FunctionType):
            self._note(value)
            return self._named(value)
        if isinstance(value, ModuleType):
            return digest(b"module", identity.module_name(value.__name__).encode())
        self._note(kind)
        held = list(_held(value, kind))
        return digest(_kind(value), *map(self.of, held)) if held else self._named(value)

    def _note(self, thing: Any) -> None:
        if _is_own(_module_of(thing), self._home):
            self.found.append((thing, self._owner if isinstance(thing, FunctionType) else None))

    def _named(self, value: Any) -> bytes:
        if not callable(value) or not hasattr(value, "__qualname__"):
            return _kind(value)
        return digest(_kind(value), name_of(value).encode())


def _held(value: Any, kind: type) -> Iterator[Any]:
    """What counts of an object: items, fields, or the functions that it wraps."""
    if kind in _LISTS or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        yield from list(value)
    elif issubclass(kind, Enum):
        yield from (value.name, value.value)
    elif dataclasses.is_dataclass(kind):
        yield from [getattr(value, field.name, MISSING) for field in dataclasses.fields(kind)]
    elif f"{kind.__module__}.{kind.__qualname__}" in _RECORDS:
        yield dict(vars(value))
    elif issubclass(kind, functools.partial | functools.partialmethod):
        yield from (value.func, value.args, value.keywords)
    elif issubclass(kind, property):
        yield from (value.fget, value.fset, value.fdel)
    elif issubclass(kind, functools.cached_property):
        yield value.func
    elif issubclass(kind, MethodType | staticmethod | classmethod):
        yield value.__func__
    elif callable(value) and hasattr(value, "__wrapped__"):
        yield getattr(value, "__wrapped__")  # noqa: B009  no type has it


def _kind(value: Any) -> bytes:
    return name_of(type(value)).encode()


# ---------------------------------------------------------------- whose code it is

_PYTHON = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")


def _module_of(thing: Any) -> str:
    """The module that a function or class is written in; what a decorator has renamed counts as the decorator's."""
    if isinstance(thing, FunctionType):
        return str(thing.__globals__.get("__name__", "?"))
    return str(getattr(thing, "__module__", None) or "?")


def _home(root: Any) -> str:
    """The package that counts as the project's even if it is installed: that of a function which was decorated where it
    is written, and so is a task of that package; one that was only made a task elsewhere is a library's."""
    module = _module_of(root)
    found: Any = sys.modules.get(module)
    for name in getattr(root, "__qualname__", "").split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return "" if found is root else module.partition(".")[0]


def _is_own(module: str, home: str) -> bool:
    """Whether a module is the project's."""
    return _is_own_file(getattr(sys.modules.get(module), "__file__", None), module, home)


def _is_own_import(module: str, home: str) -> bool:
    """Whether a module, imported or not, is there and the project's."""
    package = module.rpartition(".")[0]
    if package and not hasattr(sys.modules.get(package), "__path__"):
        return False  # to find it would import the package
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and bool(spec.origin) and _is_own_file(spec.origin, module, home)


@functools.lru_cache(maxsize=4096)
def _is_own_file(file: str | None, module: str, home: str) -> bool:
    package = module.partition(".")[0]
    if package == "flowfn":
        return False
    if not file or not os.path.isabs(file):  # typed at a prompt, made by a program, or built in
        return package not in sys.stdlib_module_names
    folders = file.replace("\\", "/").split("/")
    if "site-packages" in folders or "dist-packages" in folders:
        return package == home
    return not os.path.realpath(file).startswith(_PYTHON)
