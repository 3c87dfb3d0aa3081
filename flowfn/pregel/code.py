"""What a function does, as a digest.

Code is digested as it was compiled, since its file may have been edited after that. Which instructions there are, on
which names and constants, is what counts; lines, comments, docstrings and the way it is laid out do not. What a
function reaches beyond its own code is found in `reach.py`.
"""

from __future__ import annotations

import dis
import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from types import CodeType, MethodType
from typing import Any, NamedTuple, TypeAlias

from flowfn.identity import digest

MOST_WRAPPERS = 50
"""How many decorators are taken off a function to come to its code."""


def call_of(thing: Any) -> Any:
    """What runs when an object is called: its class's `__call__`, None where there is none."""
    return next((vars(kind)["__call__"] for kind in type(thing).__mro__ if "__call__" in vars(kind)), None)


def source_digest(fn: Any) -> str:
    """A digest of a function's own code, empty where there is none to read."""
    code = getattr(innermost(fn), "__code__", None)
    return compiled(code).digest.hex() if isinstance(code, CodeType) else ""


def innermost(fn: Any) -> Any:
    """The function that does the work, below its decorators."""
    for _ in range(MOST_WRAPPERS):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, MethodType | staticmethod | classmethod):
            fn = fn.__func__
        elif "__wrapped__" in getattr(fn, "__dict__", ()):
            fn = fn.__wrapped__
        else:
            break
    return fn if hasattr(fn, "__code__") else call_of(fn) or fn


# ---------------------------------------------------------------- one code object

Chain: TypeAlias = tuple[str, ...]
"""A name and the attributes taken from it: `prices.net` is ("prices", "net")."""


class Compiled(NamedTuple):
    """What is read of a code object and those inside it.

    Attributes:
        digest: of what it does.
        names, frees: what it takes from globals and from closures.
        attributes: the names of all attributes it takes.
        assigned, rebound: globals and closure variables that it assigns.
        imports: modules it imports: name, level, and the names taken from it.
    """

    digest: bytes
    names: frozenset[Chain]
    frees: frozenset[Chain]
    attributes: frozenset[str]
    assigned: frozenset[str]
    rebound: frozenset[str]
    imports: frozenset[tuple[str, int, Chain]]


_NO_WORK = frozenset({"NOP", "CACHE", "EXTENDED_ARG", "RESUME", "PRECALL"})
_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_FREES = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_CLOSURE"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
_CONSTANTS = frozenset(dis.hasconst)
_HEADINGS = frozenset({"__doc__", "__qualname__", "__firstlineno__", "__static_attributes__"})
"""What the body of a class says about itself."""

_STAR, _STARS = 0x04, 0x08
_KIND = _STAR | _STARS | 0x20 | 0x80 | 0x100 | 0x200
"""Flags of a code object: takes `*args`, `**kwargs`; is a generator, a coroutine, or both."""


@functools.lru_cache(maxsize=4096)
def compiled(code: CodeType) -> Compiled:
    """What a code object does and names."""
    work = _work(code)
    inner = [compiled(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    chains = list(_chains(work))
    return Compiled(
        _digest(code, work),
        frozenset(chain for op, chain in chains if op in _NAMES).union(*[c.names for c in inner]),
        frozenset(chain for op, chain in chains if op in _FREES).union(*[c.frees for c in inner]),
        frozenset(i.argval for i in work if i.opname in _ATTRIBUTES).union(*[c.attributes for c in inner]),
        _changed(work, "GLOBAL").union(*[c.assigned for c in inner]),
        _changed(work, "DEREF").union(*[c.rebound for c in inner]),
        frozenset(_imports(work)).union(*[c.imports for c in inner]),
    )


def _work(code: CodeType) -> list[dis.Instruction]:
    """The instructions that do something, and do not only mark a line or name a class."""
    found = [i for i in dis.get_instructions(code) if i.opname not in _NO_WORK]
    headings = {at for at, i in enumerate(found) if i.opname == "STORE_NAME" and i.argval in _HEADINGS}
    dropped = headings | {at - 1 for at in headings}
    return [i for at, i in enumerate(found) if at not in dropped]


def _chains(work: Sequence[dis.Instruction]) -> Iterator[tuple[str, Chain]]:
    """Each name that is taken from somewhere, with the attributes taken from it at once: (operation, chain)."""
    for at, instruction in enumerate(work):
        if instruction.opname in _NAMES or instruction.opname in _FREES:
            chain = [instruction.argval]
            for after in work[at + 1 :]:
                if after.opname not in _ATTRIBUTES:
                    break
                chain.append(after.argval)
            yield instruction.opname, tuple(chain)


def _changed(work: Sequence[dis.Instruction], where: str) -> frozenset[str]:
    return frozenset(i.argval for i in work if i.opname in (f"STORE_{where}", f"DELETE_{where}"))


def _imports(work: Sequence[dis.Instruction]) -> Iterator[tuple[str, int, Chain]]:
    for at, instruction in enumerate(work):
        if instruction.opname == "IMPORT_NAME":
            level, taken = work[at - 2].argval, work[at - 1].argval
            yield instruction.argval, level if isinstance(level, int) else 0, tuple(taken or ())


# ---------------------------------------------------------------- its digest


def _digest(code: CodeType, work: Sequence[dis.Instruction]) -> bytes:
    """Of what is done in which order, where it jumps to and what is guarded, and how it is called."""
    offsets = [i.offset for i in work]
    steps = [f"{_operation(i)} {_operand(code, i, work, offsets)}" for i in work]
    guards = [
        (bisect_left(offsets, e.start), bisect_left(offsets, e.end), bisect_left(offsets, e.target), e.depth, e.lasti)
        for e in dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    ]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    taken = counts[0] + counts[2] + bool(code.co_flags & _STAR) + bool(code.co_flags & _STARS)
    shape = (*counts, code.co_flags & _KIND, code.co_varnames[:taken])
    whole = [str(shape), *steps, *[str(guard) for guard in guards]]
    return digest("\n".join(whole).encode("utf-8", "surrogatepass"))


def _operation(instruction: dis.Instruction) -> str:
    """Whether a jump goes forward or back depends on the layout, and does not count."""
    return instruction.opname.replace("_FORWARD", "").replace("_BACKWARD", "")


def _operand(
    code: CodeType, instruction: dis.Instruction, work: Sequence[dis.Instruction], offsets: Sequence[int]
) -> str:
    if instruction.opcode in _JUMPS:
        return str(_landing(instruction, work, offsets))
    if instruction.opcode in _CONSTANTS and instruction.arg is not None:
        return _constant(code.co_consts[instruction.arg])
    return str(instruction.argval if isinstance(instruction.argval, str) else instruction.arg)


def _landing(jump: dis.Instruction, work: Sequence[dis.Instruction], offsets: Sequence[int]) -> int:
    """Where a jump ends, when it lands on another one too."""
    place = bisect_left(offsets, jump.argval)
    seen: set[int] = set()
    while place not in seen and place < len(work) and _operation(work[place]) == "JUMP":
        seen.add(place)
        place = bisect_left(offsets, work[place].argval)
    return place


def _constant(value: Any) -> str:
    """A constant of a code object, equal in every process."""
    if isinstance(value, CodeType):
        return compiled(value).digest.hex()
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    return repr(value)
