"""What can be called: a function with its name, its way of taking arguments, and its policies, read once."""

from __future__ import annotations

import functools
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from flowfn import identity
from flowfn.amounts import Duration
from flowfn.errors import CallArgumentsError, PolicyError
from flowfn.executors.base import ExecutorName, Where, executor_named
from flowfn.pregel.code import call_of
from flowfn.rates import running_limit
from flowfn.types import CachePolicy, Config, Rate, Reconcile, RetryPolicy, StreamWriter, TimeoutPolicy

RetryPolicies: TypeAlias = int | RetryPolicy | Sequence[RetryPolicy]
"""A number of attempts; or policies, of which the first that an error matches decides."""
CachePolicies: TypeAlias = bool | Duration | CachePolicy
"""Whether to keep results; for how long; or a policy."""
Timeouts: TypeAlias = Duration | TimeoutPolicy
"""How long an attempt may take; or a policy."""

Bind: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]
"""Arguments as given → values in the order of the signature, defaults applied."""

INJECT = type("Inject", (), {"__repr__": lambda self: "<injected>", "__reduce__": lambda self: "INJECT"})()
"""Stands for an argument that the runtime brings."""


@dataclass(frozen=True, slots=True)
class Callee:
    """Something a flow can call as a task.

    Attributes:
        fn: the plain function.
        name: what streams and messages say.
        title: module-qualified, what is stored.
        identity: title and what the function captured, the part of call keys that says which task.
        is_async: whether calling it gives a coroutine.
        parameters: names, in the order of what `bind` gives.
        bind: see `Bind`; raises CallArgumentsError.
        injected: parameters that the runtime brings unless they are passed: name → kind, a key of `context.INJECTED`.
        key: from the arguments to what stands for them in the call's key, or None for the arguments themselves.
        interchangeable: whether any of several equal calls may get any of their results.
        inline: whether a caller that waits may run it itself.
        cache: the cache policy, or None; refresh: whether the entry is made anew, even if there is one.
        retry: the retry policies in order, empty for none.
        timeout: how long an attempt may take, or None.
        rate, max_running: how often attempts may start, and how many may run at once, or None.
        effect: "external" for one whose effect is outside, so that it is not silently run again when it is not known
            whether it took place: `reconcile` is asked then, else `on_doubt` a person, see `doubt.py`.
        by_place: how many parameters can be passed by place.
        executor: where attempts run, or None for where the run says.
        owner: the object of a bound method's calls, as (its part of the identity, what was left out of it).
    """

    fn: Callable[..., Any]
    name: str
    title: str
    identity: bytes
    is_async: bool
    parameters: tuple[str, ...]
    bind: Bind
    injected: Mapping[str, str]
    key: Callable[..., Hashable] | None = None
    interchangeable: bool = False
    inline: bool = True
    cache: CachePolicy | None = None
    refresh: bool = False
    retry: tuple[RetryPolicy, ...] = ()
    timeout: TimeoutPolicy | None = None
    rate: Rate | None = None
    max_running: int | None = None
    effect: Literal["external"] | None = None
    reconcile: Reconcile | None = None
    on_doubt: Literal["ask", "rerun"] = "ask"
    executor: Where | None = None
    owner: tuple[bytes, list[Any]] | None = None
    by_place: int = 0

    def __post_init__(self) -> None:
        if self.effect is None and self.reconcile is not None:
            raise PolicyError("reconcile", self.reconcile, 'it together with `effect="external"`')
        if self.effect is None and self.on_doubt != "ask":
            raise PolicyError("on_doubt", self.on_doubt, 'it together with `effect="external"`')
        if self.cache is None and self.refresh:
            raise PolicyError("refresh", True, "it together with a `cache_policy`")


def is_gated(callee: Callee) -> bool:
    """Whether its attempts have to ask before they begin, see `gates.py`."""
    return callee.rate is not None or callee.max_running is not None


def callee_of(fn: Any, name: str | None = None, **policies: Any) -> Callee:
    """Read a function once.

    Args:
        fn: function, partial, callable object, static or class method.
        name: what to call it instead of its own name.
        policies: further fields of `Callee`.
    """
    plain: Any = fn.__func__ if isinstance(fn, staticmethod | classmethod) else fn
    title = identity.name_of(plain)
    if name is not None:
        title = f"{title.partition(':')[0]}:{name}"
    injected = injected_parameters(plain)
    parameters, bind, by_place = binder(plain, name or short_name(plain), injected)
    if isinstance(plain, types.MethodType):
        policies.setdefault("owner", identity.owner_part(plain.__self__))
    return Callee(
        fn=cast(Any, fn),
        name=name or short_name(plain),
        title=title,
        identity=identity.digest(title.encode(), identity.captured(plain)),
        is_async=is_async(plain),
        parameters=parameters,
        bind=bind,
        injected=injected,
        by_place=by_place,
        **policies,
    )


def _check_plain(given: Mapping[str, Any]) -> None:
    effect, on_doubt = given.get("effect"), given.get("on_doubt")
    if effect not in (None, "external"):
        raise PolicyError("effect", effect, '"external", or nothing')
    if on_doubt not in (None, "ask", "rerun"):
        raise PolicyError("on_doubt", on_doubt, '"ask" or "rerun"')
    for option in ("key", "reconcile"):
        if given.get(option) is not None and not callable(given[option]):
            raise PolicyError(option, given[option], "a function that takes the task's arguments")
    for option in ("interchangeable", "inline", "refresh"):
        if given.get(option) not in (None, True, False):
            raise PolicyError(option, given[option], "True or False")


POLICIES = (
    "key",
    "interchangeable",
    "inline",
    "cache",
    "refresh",
    "retry",
    "timeout",
    "rate",
    "max_running",
    "effect",
    "reconcile",
    "on_doubt",
)
"""The fields of a `Callee` that say how it is to be called, not what it is."""


def policies(
    *,
    retry_policy: RetryPolicies | None = None,
    cache_policy: CachePolicies | None = None,
    timeout: Timeouts | None = None,
    rate: str | Rate | None = None,
    max_running: int | None = None,
    executor: ExecutorName | None = None,
    **plain: Any,
) -> dict[str, Any]:
    """The fields of a `Callee` that such options stand for; what is None is left out.

    Raises:
        PolicyError: an option cannot mean anything.
    """
    _check_plain(plain)
    given: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "retry": (RetryPolicy.coerce, retry_policy),
        "cache": (CachePolicy.coerce, cache_policy),
        "timeout": (TimeoutPolicy.coerce, timeout),
        "executor": (executor_named, executor),
        "rate": (Rate.coerce, rate),
        "max_running": (running_limit, max_running),
    }
    read = {field: reader(value) for field, (reader, value) in given.items() if value is not None}
    return {**{field: value for field, value in plain.items() if value is not None}, **read}


def short_name(fn: Any) -> str:
    """The function's name without its module and surroundings."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def named(module: str, qualname: str) -> Any:
    """What a module has under that name."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def by_reference(thing: Any, module: str, qualname: str) -> tuple[Any, tuple[str, str]]:
    """How to pickle something that stands in a module under its name, as functions are pickled.

    Raises:
        TypeError: it does not stand there.
    """
    if "<" in qualname or named(module, qualname) is not thing:
        raise TypeError(f"{thing!r} cannot be pickled: `{module}` has another thing, or none, under `{qualname}`.")
    return named, (module, qualname)


def is_async(fn: Any) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call_of(fn))


def kind_of_generator(fn: Any) -> str | None:
    """`a generator function` or the like, or None for what gives one result."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    called = fn if inspect.isroutine(fn) else call_of(fn)
    for candidate in (fn, called):
        if inspect.isgeneratorfunction(candidate):
            return "a generator function"
        if inspect.isasyncgenfunction(candidate):
            return "an async generator function"
    return None


# ---------------------------------------------------------------- injection


def injected_parameters(fn: Any) -> dict[str, str]:
    """Parameters annotated as something that the runtime brings: name → kind."""
    annotations = hints_of(fn)
    return {name: kind for name in annotations if (kind := _injected_kind(name, annotations[name])) is not None}


def hints_of(fn: Any) -> dict[str, Any]:
    """Annotations as types where they resolve, as text where not."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = call_of(fn) or fn
    annotations = dict(getattr(fn, "__annotations__", {}))
    if any(isinstance(a, str) for a in annotations.values()):
        try:
            annotations.update(typing.get_type_hints(fn))
        except Exception:  # names that exist only for the type checker stay text
            pass
    return annotations


def _injected_kind(name: str, annotation: Any) -> str | None:
    said = annotation.rpartition(".")[2].partition("[")[0] if isinstance(annotation, str) else None
    origin = typing.get_origin(annotation) or annotation
    title = said or getattr(origin, "__name__", "")
    if name == "config" and (origin is Config or title in ("Config", "RunnableConfig")):
        return "config"
    if name == "runtime" and title == "Runtime":
        return "runtime"
    if name == "store" and title in ("Store", "BaseStore"):
        return "store"
    if name == "writer" and (annotation == StreamWriter or title == "StreamWriter"):
        return "writer"
    return None


# ---------------------------------------------------------------- arguments


def binder(fn: Any, name: str, injected: Mapping[str, str]) -> tuple[tuple[str, ...], Bind, int]:
    """The names of a function's parameters, a quick way to bind arguments to them, and how many go by place."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins do not say
        return ("args", "kwargs"), lambda args, kwargs: (args, kwargs), 0
    if isinstance(fn, types.MethodType) or not injected:
        parameters = list(signature.parameters.values())
    else:
        parameters = [p.replace(default=INJECT) if p.name in injected else p for p in signature.parameters.values()]
    signature = _with_optional_last(signature, parameters)
    names = tuple(signature.parameters)
    count = len(names)
    defaults = tuple(p.default for p in signature.parameters.values())
    placed = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in signature.parameters.values())
    by_place = placed == count
    required = sum(d is inspect.Parameter.empty for d in defaults)

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if by_place and not kwargs and required <= len(args) <= count:
            return args if len(args) == count else args + defaults[len(args) :]
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CallArgumentsError(name, str(error)) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    return names, bind, placed


def _with_optional_last(signature: inspect.Signature, parameters: list[inspect.Parameter]) -> inspect.Signature:
    """The signature with injected parameters optional; those in the middle are taken by name only."""
    try:
        return signature.replace(parameters=parameters)
    except ValueError:
        plain = [p for p in parameters if p.default is not INJECT]
        named = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters if p.default is INJECT]
        last = [p for p in plain if p.kind is p.VAR_KEYWORD]
        return signature.replace(parameters=[*[p for p in plain if p not in last], *named, *last])
