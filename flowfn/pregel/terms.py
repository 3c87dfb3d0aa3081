"""What a caller may configure about one invocation, read once at the door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from flowfn.checkpoint.records import (
    Place,
)
from flowfn.context import RunControl
from flowfn.errors import ConfigError
from flowfn.types import MISSING

RECURSION_LIMIT = 10_007
"""How many super-steps a graph may take when nobody says."""

Breakpoints: TypeAlias = Literal["*"] | Sequence[str]
"""Names of nodes, or all."""

ADDRESS = ("thread_id", "checkpoint_ns", "checkpoint_id")


class Options(NamedTuple):
    """What a call says beside its config; see `Pregel.invoke`."""

    context: Any = None
    interrupt_before: Breakpoints | None = None
    interrupt_after: Breakpoints | None = None
    control: RunControl | None = None


@dataclass(slots=True)
class Terms:
    """How one invocation is to be run.

    Attributes:
        thread: its id, None without one.
        ns: namespace, empty for an outermost flow.
        checkpoint_id: where in the thread's past to begin, None for its newest state.
        configurable: everything in `configurable`, the address included.
        max_concurrency: how many attempts run at once, None for the crew's own bounds.
        recursion_limit: how many super-steps a graph may take.
        tags, metadata, context: the caller's own.
        callbacks: LangChain's, for whatever of LangChain runs inside.
        interrupt_before, interrupt_after: nodes to stop at, instead of those that the program says.
        control: asks the run to stop.
    """

    thread: str | None = None
    ns: str = ""
    checkpoint_id: str | None = None
    configurable: Mapping[str, Any] = field(default_factory=dict)
    max_concurrency: int | None = None
    recursion_limit: int = RECURSION_LIMIT
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    callbacks: Any = None
    interrupt_before: Breakpoints | None = None
    interrupt_after: Breakpoints | None = None
    control: RunControl | None = None

    @property
    def place(self) -> Place:
        return Place(self.thread or "", self.ns)

    @property
    def marks(self) -> dict[str, Any]:
        """What checkpoints note of the caller: its metadata, and what plain values it put into `configurable`."""
        if not self.metadata and len(self.configurable) <= 1:
            return {}
        own = {k: v for k, v in self.configurable.items() if k not in ADDRESS and _is_plain(k, v)}
        return {**own, **{k: v for k, v in self.metadata.items() if _is_plain(k, v)}}

    def nested(self, thread: str | None, ns: str, around: Terms, metadata: Mapping[str, Any]) -> Terms:
        """The same for a flow that runs inside another one's call, of which something is said."""
        return replace(
            self,
            metadata={**around.metadata, **metadata, **self.metadata},
            thread=thread,
            ns=ns,
            checkpoint_id=None,
            context=around.context if self.context is None else self.context,
            control=self.control or around.control,
            recursion_limit=(around if self.recursion_limit == RECURSION_LIMIT else self).recursion_limit,
        )

    def config_inside(self, run: str) -> dict[str, Any]:
        """The config that running code sees."""
        own: dict[str, Any] = {"checkpoint_ns": self.ns}
        if self.thread is not None:
            own["thread_id"] = self.thread
        return {
            "configurable": {**self.configurable, **own},
            "tags": list(self.tags),
            "metadata": {**({} if self.thread is None else {"thread_id": self.thread}), **self.metadata},
            "max_concurrency": self.max_concurrency,
            "recursion_limit": self.recursion_limit,
        }


def _is_plain(key: str, value: Any) -> bool:
    return not key.startswith("__") and isinstance(value, str | int | float | bool)


def joined(*configs: Mapping[str, Any] | None) -> dict[str, Any]:
    """One config out of several, later ones winning; `{"thread_id": "t"}` counts as `configurable`."""
    whole: dict[str, Any] = {}
    for config in configs:
        if config is None:
            continue
        if not isinstance(config, Mapping):
            raise ConfigError(f"A config is a dict, not a `{type(config).__name__}`: {{'thread_id': 'some-name'}}.")
        named = {key: config[key] for key in ADDRESS if key in config}
        inner = config.get("configurable") or {}
        if not isinstance(inner, Mapping):
            raise ConfigError(f"`configurable` of a config is a dict, not a `{type(inner).__name__}`.")
        whole["configurable"] = {**whole.get("configurable", {}), **inner, **named}
        whole["metadata"] = {**whole.get("metadata", {}), **(config.get("metadata") or {})}
        whole["tags"] = [*whole.get("tags", []), *(config.get("tags") or [])]
        rest = {k: v for k, v in config.items() if k not in (*ADDRESS, "configurable", "metadata", "tags")}
        whole.update(rest)
    return whole


NO_TERMS = Terms()
NO_OPTIONS = Options()


def read_terms(config: Mapping[str, Any] | None, context: Any = None) -> Terms:
    """The terms that a config and a context stand for.

    Raises:
        ConfigError: a value that cannot be meant.
    """
    if not config:
        return NO_TERMS if context is None else replace(NO_TERMS, context=context)
    inner = config.get("configurable") if type(config) is dict else None
    if len(config) == 1 and type(inner) is dict and len(inner) == 1 and inner.get("thread_id") is not None:
        return Terms(thread=str(inner["thread_id"]), configurable=inner, context=context)
    whole = joined(config)
    configurable = whole["configurable"]
    thread = configurable.get("thread_id")
    return Terms(
        thread=None if thread is None else str(thread),
        ns=configurable.get("checkpoint_ns") or "",
        checkpoint_id=configurable.get("checkpoint_id"),
        configurable=configurable,
        max_concurrency=_positive(whole, "max_concurrency", None),
        recursion_limit=_positive(whole, "recursion_limit", RECURSION_LIMIT) or RECURSION_LIMIT,
        tags=whole["tags"],
        metadata=whole["metadata"],
        context=context,
        callbacks=whole.get("callbacks"),
    )


def _positive(whole: Mapping[str, Any], key: str, default: int | None) -> int | None:
    value = whole.get(key, MISSING)
    if value is MISSING or value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"`{key}` of a config is a whole number of at least 1, not {value!r}.")
    return value
