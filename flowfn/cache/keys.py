"""What names an entry: the task, what its function holds, its code or version, and its arguments.

The key is a hash of all that. The parts are kept beside an entry for people, so that a miss can be explained: which of
them differs from the entry that comes nearest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from flowfn.errors import UnkeyedArgumentError, listed
from flowfn.identity import Walk, digest
from flowfn.serde.preview import kind_name

NO_CODE: Mapping[str, bytes] = {}
KEY_FUNC = "key_func(…)"
"""The one parameter of a task whose policy has a `key_func`; other functions of the arguments are named alike."""


class Argument(NamedTuple):
    """One argument of an entry.

    Attributes:
        name: of the parameter.
        digest: eight bytes that tell values apart.
        shown: a short preview.
    """

    name: str
    digest: bytes
    shown: str


@dataclass(frozen=True, slots=True)
class Parts:
    """What a key is made of.

    Attributes:
        task: module-qualified name.
        holds: tells functions of one name apart: what a closure captured, and a method's object.
        version: the policy's, which takes the place of the code.
        code: digest of all the code.
        functions: name → digest of each function, class and constant of it, as far as they were kept.
        arguments: in the order of the signature, or what `key_func` gave.
    """

    task: str
    holds: bytes
    version: str | None
    code: bytes
    functions: Mapping[str, bytes]
    arguments: tuple[Argument, ...]

    def packed(self) -> list[Any]:
        """As plain data, without the functions, which many entries share."""
        return [self.task, self.holds, self.version, self.code, [list(argument) for argument in self.arguments]]

    @classmethod
    def unpacked(cls, data: Any, functions: Mapping[str, bytes] = NO_CODE) -> Self:
        """The parts of that data; raises whatever such data raises when it is damaged."""
        task, holds, version, code, arguments = data
        return cls(
            _line(task),
            _bytes(holds),
            None if version is None else _line(version),
            _bytes(code),
            functions,
            tuple(Argument(_line(name), _bytes(digest), _line(shown)) for name, digest, shown in arguments),
        )


def functions_of(data: Any) -> Mapping[str, bytes]:
    """The functions of that data; raises whatever such data raises when it is damaged."""
    return {_line(name): _bytes(digest) for name, digest in data.items()}


def _line(text: Any) -> str:
    """The text, if it is one that can be shown."""
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"{text!r} is no line of text")
    return text


def _bytes(data: Any) -> bytes:
    if not isinstance(data, bytes):
        raise ValueError(f"{data!r} is no bytes")
    return data


class Entry(NamedTuple):
    """What is known of an entry without its value.

    Attributes:
        parts: of its key.
        stored, until: seconds since 1970; `until` is None if it lives for ever.
    """

    parts: Parts
    stored: float
    until: float | None


class Subject:
    """The part of a task's keys that all its calls share.

    Args:
        task: its module-qualified name.
        holds: tells functions of one name apart.
        parameters: their names, in the order of the signature, or KEY_FUNC alone.
        version: the policy's, or None.
        code: digest of its code and of what it reaches; not used with a version.
        functions: the parts of that.
    """

    __slots__ = ("_parts", "digest", "parameters", "task")

    def __init__(
        self,
        task: str,
        holds: bytes,
        parameters: Sequence[str],
        *,
        version: str | None = None,
        code: bytes = b"",
        functions: Mapping[str, bytes] = NO_CODE,
    ) -> None:
        self.task, self.parameters = task, tuple(parameters)
        kind = (b"code", code) if version is None else (b"version", version.encode())
        self.digest = digest(task.encode(), holds, *kind, *[name.encode() for name in self.parameters])
        code, functions = (code, functions) if version is None else (b"", NO_CODE)
        self._parts = Parts(task, digest(holds, size=8), version, code, functions, ())

    def key(self, packed: Sequence[bytes]) -> bytes:
        """The key of a call with these arguments, each as bytes: see `identity.packed_arguments`."""
        return digest(self.digest, *packed)

    def parts(self, packed: Sequence[bytes], shown: Sequence[str]) -> Parts:
        """What that key is made of; `shown` are short previews of the arguments."""
        arguments = [
            Argument(name, digest(data, size=8), text)
            for name, data, text in zip(self.parameters, packed, shown, strict=True)
        ]
        return replace(self._parts, arguments=tuple(arguments))

    def unkeyed(self, values: Sequence[Any]) -> UnkeyedArgumentError:
        """The error for arguments of which something cannot be part of a key."""
        for name, value in zip(self.parameters, values, strict=True):
            walk = Walk()
            walk.packed(value)
            if walk.left_out:
                return UnkeyedArgumentError(self.task, name, kind_name(walk.left_out[0]))
        raise AssertionError("each argument has a key")


# ---------------------------------------------------------------- why a call is a hit or a miss


@dataclass(frozen=True, slots=True)
class Why:
    """Why a call is answered by a cache, or is not; its text says so in a sentence.

    Attributes:
        hit: whether it is answered.
        differs: what differs from the entry that comes nearest: "argument `x`", "the code of `shop:net`"; empty for a
            hit, and where there is no entry to compare with.
        nearest: that entry; for a hit, the one that answers.
        text: the sentence.
    """

    hit: bool
    differs: tuple[str, ...]
    nearest: Entry | None
    text: str

    def __str__(self) -> str:
        return self.text


def explain(parts: Parts, entries: Iterable[Entry], *, is_hit: bool, now: float) -> Why:
    """Why a call is a hit or a miss.

    Args:
        parts: of the call's key.
        entries: of the same task, the newest first; some whose time is over may be among them.
        is_hit: whether the cache has the call's own entry.
        now: seconds since 1970.
    """
    name = parts.task
    ranked = [(_differences(parts, entry.parts), entry) for entry in entries]
    if not ranked:
        text = f"Hit on `{name}`." if is_hit else f"Miss: the cache has no entry of task `{name}`."
        return Why(is_hit, (), None, text)
    differences, nearest = min(ranked, key=lambda found: len(found[0]))  # the newest of several
    if is_hit:
        nearest_is_it = not differences
        text = f"Hit: task `{name}` was stored {_moment(nearest.stored)}{_until(nearest)}." if nearest_is_it else ""
        return Why(True, (), nearest if nearest_is_it else None, text or f"Hit on `{name}`.")
    if not differences:
        is_over = nearest.until is not None and nearest.until <= now
        what = f"its time was over {_moment(nearest.until or 0.0)}" if is_over else "it cannot be read"
        return Why(False, (), nearest, f"Miss: task `{name}` has an entry for these arguments, but {what}.")
    shown = "; ".join(f"{what}{f' ({how})' if how else ''}" for what, how in differences)
    many = f"the nearest of {len(ranked)} entries" if len(ranked) > 1 else "the only entry"
    text = f"Miss: {many} of task `{name}`, stored {_moment(nearest.stored)}, differs in {shown}."
    return Why(False, tuple(what for what, _ in differences), nearest, text)


def _differences(mine: Parts, other: Parts) -> list[tuple[str, str]]:
    """What differs, and how where that can be shown."""
    found = []
    if mine.holds != other.holds:
        found.append(("what the function captured, or its object", ""))
    if mine.version != other.version:
        found.append(("the version", f"{_version(mine)}, there {_version(other)}"))
    elif mine.code != other.code:
        found.append((_changed_code(mine.functions, other.functions), ""))
    return found + _changed_arguments(mine.arguments, other.arguments)


def _version(parts: Parts) -> str:
    return repr(parts.version) if parts.version is not None else "the code itself"


def _changed_code(mine: Mapping[str, bytes], others: Mapping[str, bytes]) -> str:
    names = sorted(name for name in {*mine, *others} if mine.get(name) != others.get(name))
    return f"the code of {listed(names, 5)}" if mine and others and names else "the code"


def _changed_arguments(mine: Sequence[Argument], others: Sequence[Argument]) -> list[tuple[str, str]]:
    here, there = ({argument.name: argument for argument in arguments} for arguments in (mine, others))
    return [
        (
            f"argument `{name}`" if name.isidentifier() else f"`{name}`",
            f"{_shown(here.get(name))}, there {_shown(there.get(name))}",
        )
        for name in {**here, **there}
        if name not in here or name not in there or here[name].digest != there[name].digest
    ]


def _shown(argument: Argument | None) -> str:
    return "none" if argument is None else argument.shown


def _until(entry: Entry) -> str:
    return "" if entry.until is None else f", and counts until {_moment(entry.until)}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
