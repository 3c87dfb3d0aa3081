"""Exceptions as records: what is kept of one, and how it is put together again without calling its `__init__`.

Pickle calls the class again with `args`, which a custom `__init__` turns into something else or refuses. A record
holds what the exception *is*: class, args, attributes, the members that C code keeps elsewhere, and its traceback as
text. The exceptions it leads to (cause, context, members of a group) lie beside it in one flat list and are named by
their place, so that long chains and circles need no recursion.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType
from typing import Any, NamedTuple

from flowfn.serde.preview import kind_name, preview

TRACEBACK = "__flowfn_traceback__"
"""Attribute of a rebuilt exception: where it was first raised, as text."""

MEMBERS: dict[type, tuple[str, ...]] = {
    OSError: ("errno", "strerror", "filename", "filename2"),
    BlockingIOError: ("characters_written",),
    ImportError: ("name", "path", "msg"),
    AttributeError: ("name",),
    NameError: ("name",),
    StopIteration: ("value",),
    SystemExit: ("code",),
    UnicodeEncodeError: ("encoding", "object", "start", "end", "reason"),
    UnicodeDecodeError: ("encoding", "object", "start", "end", "reason"),
    UnicodeTranslateError: ("object", "start", "end", "reason"),
    SyntaxError: (*("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset", "print_file_and_line"),),
}
"""What C code keeps outside `args` and `__dict__`. `obj` of an AttributeError is left out: it can be anything."""


_put = BaseException.__setattr__


class Record(NamedTuple):
    """One exception; other exceptions are named by their place in the list of records."""

    cls: Any
    args: list[Any]
    attributes: dict[str, Any]
    members: dict[str, Any]
    cause: int | None
    context: int | None
    suppress: bool
    trace: str
    group: list[int] | None


def is_kept(cls: type) -> bool:
    """Whether a record holds all of such an exception: the part of it that C code keeps is a builtin's."""
    return issubclass(cls, BaseException) and _solid(cls).__module__ == "builtins"


def _solid(cls: type) -> type:
    """The class in whose `__new__` memory for it is laid out."""
    return next(base for base in cls.__mro__ if isinstance(vars(base).get("__new__"), BuiltinFunctionType))


def _member_names(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        yield from MEMBERS.get(base, ())


def slots_of(cls: type) -> list[str]:
    """Names of the slots that the class and its bases declare, as they are found on an instance."""
    names = []
    for base in cls.__mro__:
        declared = vars(base).get("__slots__", ())
        for name in (declared,) if isinstance(declared, str) else declared:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return names


def records(error: BaseException, named: Callable[[type], Any]) -> list[Any]:
    """The exception and all it leads to: [place of the exception, records].

    Args:
        named: what stands for a class in a record. What it gives for a class that no record can hold is the
            exception itself, if the caller has a way to store that.
    """
    places: dict[int, int] = {}
    chain: list[BaseException] = []
    todo = [error]
    while todo:
        _collect(todo.pop(), places, chain, todo)
    return [places[id(error)], [list(_record(one, places, named)) for one in chain]]


def _collect(error: BaseException, places: dict[int, int], chain: list[BaseException], todo: list[Any]) -> None:
    """Add the exception behind the members of its group, and what else it leads to, to `todo`."""
    if id(error) in places:
        return
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            _collect(member, places, chain, todo)
    places[id(error)] = len(chain)
    chain.append(error)
    todo.extend(one for one in (error.__context__, error.__cause__) if one is not None)


def _record(error: BaseException, places: dict[int, int], named: Callable[[type], Any]) -> Record:
    cls = type(error)
    attributes = dict(vars(error))
    trace = attributes.pop(TRACEBACK, None) or "".join(traceback.format_tb(error.__traceback__, limit=-100))
    cause, context = (None if one is None else places[id(one)] for one in (error.__cause__, error.__context__))
    links = (cause, context, error.__suppress_context__, trace)
    if not is_kept(cls):
        return Record(error if named(cls) is None else named(cls), [], {}, {}, *links, None)
    group = None
    args = list(error.args)
    if isinstance(error, BaseExceptionGroup):
        group, args = [places[id(member)] for member in error.exceptions], [error.message]
    for name in slots_of(cls):
        if hasattr(error, name):
            attributes[name] = getattr(error, name)
    members = {name: getattr(error, name, None) for name in _member_names(cls)}
    members = {name: value for name, value in members.items() if value is not None}
    return Record(named(cls), args, attributes, members, *links, group)


def kept(plain: list[Any], refusal: Callable[[Any], str | None]) -> list[Any]:
    """The same records without what cannot be stored; a note on each exception tells what it lost."""
    root, rows = plain
    return [root, [list(_kept(Record(*row), refusal)) for row in rows]]


def _kept(record: Record, refusal: Callable[[Any], str | None]) -> Record:
    lost = []

    def storable(name: str, value: Any) -> bool:
        if refusal(value) is None:
            return True
        lost.append(f"flowfn: {name} was a `{kind_name(value)}`, which cannot be stored, and is left out")
        return False

    args = [arg if storable(f"argument {i}", arg) else preview(arg) for i, arg in enumerate(record.args)]
    attributes = {name: v for name, v in record.attributes.items() if storable(f"attribute `{name}`", v)}
    members = {name: v for name, v in record.members.items() if storable(f"attribute `{name}`", v)}
    if lost:
        attributes["__notes__"] = [*attributes.get("__notes__", ()), *lost]
    return record._replace(args=args, attributes=attributes, members=members)


def rebuild(plain: list[Any], found: Callable[[Any], type] = lambda cls: cls) -> BaseException:
    """The exception that the records describe, with its chain; no code of its classes runs.

    Args:
        found: from what stands for a class to the class.
    Raises:
        TypeError, ValueError, LookupError: these are no such records.
    """
    root, rows = plain
    chain: list[BaseException] = []
    parsed = [_parsed(row) for row in rows]
    for record in parsed:
        chain.append(record.cls if isinstance(record.cls, BaseException) else _rebuilt(record, chain, found))
    for error, record in zip(chain, parsed, strict=True):
        _put(error, "__cause__", None if record.cause is None else chain[record.cause])
        _put(error, "__context__", None if record.context is None else chain[record.context])
        _put(error, "__suppress_context__", record.suppress)
        if record.trace:
            error.__dict__[TRACEBACK] = record.trace
    rebuilt: BaseException = chain[root]
    return rebuilt


def _parsed(row: Any) -> Record:
    record = Record(*row) if type(row) is list and len(row) == len(Record._fields) else None
    if record is None or [type(part) for part in record[1:4]] != [list, dict, dict]:
        raise ValueError("this is no record of an exception")
    if record.group is not None and type(record.group) is not list:
        raise ValueError("this is no group of exceptions")
    return record


def _rebuilt(record: Record, chain: list[BaseException], found: Callable[[Any], type]) -> BaseException:
    cls: Any = found(record.cls)
    if not is_kept(cls):
        raise TypeError(f"{cls!r} is no exception that a record can hold")
    new: Any = _solid(cls).__new__
    error: BaseException
    if record.group is None:
        error = new(cls)
        _put(error, "args", tuple(record.args))
    else:
        error = new(cls, record.args[0], [chain[place] for place in record.group])
    slots, members = slots_of(cls), set(_member_names(cls))
    for name, value in record.attributes.items():
        if name in slots:
            _put(error, name, value)
        else:
            error.__dict__[name] = value
    for name, value in record.members.items():
        if name not in members:
            raise TypeError(f"{cls!r} has no member {name!r}")
        _put(error, name, value)
    return error
