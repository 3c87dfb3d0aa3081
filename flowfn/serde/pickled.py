"""What is no plain data, by pickle, and what pickle cannot find by name, by cloudpickle.

Pickle names classes and functions, so what comes back is of the very class the program uses; cloudpickle ships code,
and is asked only when names are not enough, for lambdas and for classes made in functions. Exceptions travel as
records, here as in the typed tier. Before the pickle stands a line: the name of the script whose `__main__` it speaks
of and, for code, the Python version that can run it.
"""

from __future__ import annotations

import io
import pickle
import sys
from functools import cache
from typing import Any

from flowfn.errors import UnreadableError
from flowfn.serde.classes import ABSENT, MAINS, bring_in, gone, lookup, main_name, raise_unreadable
from flowfn.serde.exceptions import is_kept, kept, rebuild, records
from flowfn.serde.kinds import view_from_parts, view_parts
from flowfn.serde.pause import without_collecting

_LARGE = 1 << 16
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def pickled(value: object, head: bytes = b"") -> bytes:
    """The value pickled, after `head`; raises whatever pickling raises."""
    stream = _stream(head, main_name())
    _Pickler(stream, 5).dump(value)
    return stream.getvalue()


def cloudpickled(value: object, head: bytes = b"", *, drops: bool = False) -> bytes:
    """The value pickled with the code it needs, after `head`; raises whatever pickling raises.

    Args:
        drops: leave out, with a note, what cannot be stored of an exception.
    """
    stream = _stream(head, f"{main_name()} {_VERSION}")
    pickler = _cloud_pickler()(stream, 5)
    pickler.drops = drops
    pickler.dump(value)
    return stream.getvalue()


def _stream(head: bytes, line: str) -> io.BytesIO:
    stream = io.BytesIO()
    stream.write(head + line.encode() + b"\n")
    return stream


def pickle_refusal(value: object) -> str | None:
    """Why the value cannot be pickled, code and all; None if it can."""
    try:
        cloudpickled(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def unpickled(blob: bytes, start: int = 0, what: str = "A stored value") -> Any:
    """The value that was pickled; loading it can run code, and imports the modules that it names.

    Args:
        start: where the line before the pickle begins.
        what: what errors call the value.
    Raises:
        MissingClassError: a class or function that it names is not there any more.
        UnreadableError: anything else that keeps it from being read.
    """
    stream = io.BytesIO(blob)
    stream.seek(start)
    try:
        main, _, version = stream.readline().decode().removesuffix("\n").partition(" ")
        if version and version != _VERSION:
            why = f"it holds code for Python {version}, and this is {_VERSION}. Read it with that Python."
            raise UnreadableError(what, why)
        load = _Unpickler(stream, main).load
        return load() if len(blob) < _LARGE else without_collecting(load)
    except Exception as error:
        raise_unreadable(error, what)


def _reduced(value: Any, drops: bool) -> Any:
    """How pickle is to store what it would change or break; NotImplemented for all else."""
    if isinstance(value, BaseException) and is_kept(type(value)):
        plain = records(value, _class_if_kept)
        return rebuild, (kept(plain, pickle_refusal) if drops else plain,)
    if type(value) is memoryview:
        return view_from_parts, (view_parts(value),)
    return NotImplemented


def _class_if_kept(cls: type) -> type | None:
    return cls if is_kept(cls) else None


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return _reduced(obj, drops=False)


@cache
def _cloud_pickler() -> Any:
    import cloudpickle

    class CloudPickler(cloudpickle.Pickler):  # type: ignore[misc]
        drops = False

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, io.TextIOBase):  # Cloudpickle would make it a text of what the file holds.
                raise pickle.PicklingError("a file that is open")
            # By name where there is one: a class of the script shipped as code would come back as another class.
            module = getattr(obj, "__module__", None)
            if module in MAINS and lookup("__main__", getattr(obj, "__qualname__", "")) is obj:
                return NotImplemented
            reduced = _reduced(obj, self.drops)
            return super().reducer_override(obj) if reduced is NotImplemented else reduced

    return CloudPickler


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, main: str) -> None:
        super().__init__(stream)
        self.main = main

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        module = f"__main__/{self.main}" if module_name in MAINS else module_name
        known = lookup(module, global_name)
        if known is not ABSENT:
            return known
        name = f"{module}:{global_name}"
        home = bring_in(name)
        try:
            return super().find_class(home, global_name)
        except AttributeError:
            raise gone(name, home) from None
