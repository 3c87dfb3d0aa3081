"""Write api.md and errors.md from the signatures and docstrings: `python docs/reference/build.py`.

With `--check` nothing is written, and the exit code says whether both are as they would be.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flowfn
from flowfn import cache, checkpoint, errors

HERE = Path(__file__).parent

API_HEAD = """# API

Every name that `flowfn`, `flowfn.checkpoint` and `flowfn.cache` hand out. Written from the docstrings by
`docs/reference/build.py`.
"""

ERRORS_HEAD = """# Errors

All are `FlowError`, and also the builtin they resemble, so that `except ValueError` works as one would expect. Each
says what happened, where, and what to do, and keeps the facts as attributes. Import them from `flowfn.errors`. Written
from the docstrings by `docs/reference/build.py`.
"""

STOPS_HEAD = """
## Stops

Not errors: they end a frame of running code at a question, a pause or a failed save. They are `BaseException`, so that
no `except Exception` swallows them, and every further call of the frame raises them again. Do not catch them.
"""


class Bare(str):
    """An annotation as it stands in the source."""

    def __repr__(self) -> str:
        return str(self)


def bare(annotation: Any) -> Any:
    text = getattr(annotation, "__forward_arg__", annotation)
    return Bare(text) if isinstance(text, str) else annotation


def signature(member: Any) -> str:
    """The parameters and result as written; empty when there are none to show."""
    try:
        whole = inspect.signature(member)
    except (TypeError, ValueError):
        return ""
    parameters = [
        p.replace(
            annotation=bare(p.annotation),
            default=Bare(p.default.__name__) if inspect.isfunction(p.default) else p.default,
        )
        for p in whole.parameters.values()
        if p.name not in ("self", "cls", "_cls")
    ]
    text = str(whole.replace(parameters=parameters, return_annotation=bare(whole.return_annotation)))
    return text.replace("typing.", "").replace("collections.abc.", "").replace(" -> None", "")


def fenced(text: str) -> str:
    """A signature as a block, with one parameter a line when it is long."""
    if len(text) > 100:
        depths = itertools.accumulate((c in "([{") - (c in ")]}") for c in text)
        text = "".join(
            "(\n    "
            if (c, depth) == ("(", 1) and i == text.index("(")
            else ",\n   "
            if (c, depth) == (",", 1)
            else "\n)"
            if (c, depth) == (")", 0)
            else c
            for i, (c, depth) in enumerate(zip(text, depths, strict=True))
        )
    return f"```text\n{text}\n```"


def markdown(docstring: str) -> str:
    """A docstring with its sections as lists."""
    lines: list[str] = []
    inside = False
    for line in docstring.split("\n"):
        head = re.fullmatch(r"(Args|Attributes|Returns|Raises):", line)
        if head:
            inside = head[1] != "Returns"
            lines += ["", f"*{head[1]}*", ""]
        elif inside and re.match(r" {4}\S", line):
            name, colon, rest = line.strip().partition(": ")
            lines.append(
                f"- {_ticked(name)}: {rest}" if colon and re.fullmatch(r"[\w, ]+", name) else f"- {line.strip()}"
            )
        elif inside and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            inside = inside and not line
            lines.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _ticked(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


class Member(NamedTuple):
    name: str
    value: Any


def own_members(kind: type[Any], hidden: frozenset[str]) -> Iterator[Member]:
    """Public methods and properties with a docstring, in the order written, the class's own before inherited ones."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("flowfn"):
            continue
        for name, value in vars(base).items():
            doc = inspect.getdoc(value)
            if name.startswith("_") or name in seen or name in hidden or not doc:
                continue
            if inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod):
                seen.add(name)
                yield Member(name, value)


# What a compiled flow offers to the runtime, not to people.
INTERNAL = frozenset(vars(flowfn.Pregel.__mro__[1])) | {"saver", "kept", "input_of", "previous", "order", "failure"}
DATA = ("Config", "Interrupt", "Send", "Command", "Overwrite", "Verdict", "StateSnapshot", "CallInfo", "CachePolicy")


def described(name: str, value: Any, parents: dict[type[Any], str]) -> Iterator[str]:
    doc = inspect.getdoc(value)
    if not inspect.isclass(value):
        if callable(value):
            yield f"### {name}\n\n{fenced(name + signature(value))}\n"
            yield markdown(doc or "") + "\n"
        else:
            yield f"### {name}\n\n`{_alias(value)}`\n"
        return
    made_by = value.__new__ if issubclass(value, tuple) else value.__init__
    shown = signature(made_by) if "__init__" in vars(value) or name in DATA else ""
    shown = shown.partition(" -> ")[0]
    yield f"### {name}\n"
    if name == "entrypoint":
        shown = "(*, checkpointer=None, store=None, cache=None, context_schema=None, name=None)"
    if shown and name not in ("Task", "TaskFuture", "MapFuture", "Thread", "Flow", "Config"):
        yield f"{fenced(name + shown)}\n"
    above = [parents[base] for base in value.__mro__[1:] if base in parents]
    if above:
        yield f"A `{above[0]}`. {markdown(doc or '')}\n"
    else:
        yield markdown(doc or "") + "\n"
    if name in DATA or issubclass(value, Exception):
        return
    known = frozenset(m for base in value.__mro__[1:] if base in parents for m in vars(base))
    for member in own_members(value, INTERNAL | known):
        is_property = isinstance(member.value, property)
        function = member.value.__func__ if isinstance(member.value, classmethod | staticmethod) else member.value
        text = "" if is_property else signature(function)
        yield f"#### {name}.{member.name}\n"
        if text:
            yield f"{fenced(member.name + text)}\n"
        yield markdown(inspect.getdoc(member.value) or "") + "\n"


def _alias(value: Any) -> str:
    return str(value).replace("typing.", "").replace("collections.abc.", "")


def api() -> str:
    parts = [API_HEAD]
    for module in (flowfn, checkpoint, cache):
        parts.append(f"## {module.__name__}\n")
        values = {name: getattr(module, name) for name in module.__all__}
        parents = {value: name for name, value in values.items() if inspect.isclass(value)}
        for name, value in sorted(values.items(), key=lambda item: item[0].lower()):
            parts.extend(described(name, value, parents))
    return "\n".join(parts)


def exceptions() -> str:
    kinds = [k for k in vars(errors).values() if inspect.isclass(k) and k.__module__ == errors.__name__]
    parts = [ERRORS_HEAD]
    for kind in kinds:
        if kind is errors.FlowStop:
            parts.append(STOPS_HEAD)
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        facts = list(inspect.signature(kind.__init__).parameters)[1:] if "__init__" in vars(kind) else []
        kept = [
            name for name in facts if re.search(rf"self\.{name}\b|self\.[\w, .]*\b{name}\b", inspect.getsource(kind))
        ]
        parts.append(f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n")
        parts.append(f"*Is also:* {bases}." + (f" *Keeps:* {_ticked(', '.join(kept))}." if kept else "") + "\n")
    return "\n".join(parts)


def main() -> None:
    stale = []
    for name, text in (("api.md", api()), ("errors.md", exceptions())):
        text = text.rstrip() + "\n"
        page = HERE / name
        if page.exists() and page.read_text("utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            page.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(
            f"{' and '.join(stale)} no longer say what the docstrings say: `python docs/reference/build.py`."
        )


if __name__ == "__main__":
    main()
