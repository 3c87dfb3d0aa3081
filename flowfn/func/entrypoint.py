"""`@entrypoint`: a plain function becomes a flow, a program of one node."""

from __future__ import annotations

import functools
import inspect
import os
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

from flowfn import places
from flowfn.cache import Cache, Why, open_cache
from flowfn.channels import EphemeralValue, LastValue
from flowfn.checkpoint import Saver
from flowfn.context import CURRENT, INJECTED
from flowfn.errors import EntrypointSignatureError, FinalAnnotationError, FlowCalledError, NotATaskError, PolicyError
from flowfn.executors import executor_named
from flowfn.executors.base import ExecutorName
from flowfn.executors.remote import StayedBehind
from flowfn.func.task import Task
from flowfn.futures import futures_in, with_values
from flowfn.identity import Walk, name_of
from flowfn.pregel import staging
from flowfn.pregel.callee import (
    CachePolicies,
    RetryPolicies,
    Timeouts,
    by_reference,
    hints_of,
    injected_parameters,
    is_async,
    kind_of_generator,
    policies,
    short_name,
)
from flowfn.pregel.calls import by_value
from flowfn.pregel.handle import Runs
from flowfn.pregel.node import Node, Write, called_program
from flowfn.pregel.plan import Channels
from flowfn.pregel.program import Pregel
from flowfn.rates import running_limit
from flowfn.types import MISSING, ON_BUSY, OnBusy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
X = TypeVar("X")

START, END, PREVIOUS = "__start__", "__end__", "__previous__"

NAMES = ("__module__", "__name__", "__qualname__", "__doc__")
"""What a flow and its body take over of the function; not its annotations, which ask for what is brought."""


class Flow(Runs[P, R], Pregel):
    """A flow written as a function.

    Run it with `run` or on a `thread`, which keep their runs, or with LangGraph's `invoke` and `stream`. The plain
    function is `func`.
    """

    is_function = True
    owner = b""
    """Of a method: what tells its object from others, so that each has own runs."""

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        checkpointer: Saver | str | None = None,
        store: Any = None,
        cache: Cache | str | os.PathLike[str] | None = None,
        context_schema: type[Any] | None = None,
        retry_policy: RetryPolicies | None = None,
        cache_policy: CachePolicies | None = None,
        timeout: Timeouts | None = None,
        executor: ExecutorName | None = None,
        max_running: int | None = None,
        on_busy: OnBusy = "raise",
    ) -> None:
        if on_busy not in ON_BUSY:
            raise PolicyError("on_busy", on_busy, '"raise", "wait" or "skip"')
        self.max_running, self.on_busy = running_limit(max_running), on_busy
        self.executor = None if executor is None else executor_named(executor)
        self.func = func
        self.title = name or short_name(func)
        self.cache = None if cache is None else open_cache(cache)
        self.context_schema = context_schema
        self._signature = Signature(func, self.title)
        body = _abody(func, self._signature) if is_async(func) else _body(func, self._signature)
        node = Node(
            name=self.title,
            triggers=(START,),
            channels=START,
            bound=body,
            writers=(Write(END, _value), Write(PREVIOUS, _save)),
            called=called_program(func),
            policies=policies(retry_policy=retry_policy, cache_policy=cache_policy, timeout=timeout),
        )
        super().__init__(
            nodes={self.title: node},
            channels={START: EphemeralValue(object), END: LastValue(object), PREVIOUS: LastValue(object)},
            input_channels=START,
            output_channels=END,
            stream_channels=END,
            stream_mode="updates",
            checkpointer=checkpointer,
            store=store,
            name=name or name_of(func),
        )
        functools.update_wrapper(self, func, assigned=NAMES, updated=())
        self.__name__ = self.title

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise FlowCalledError(self.title)

    def __repr__(self) -> str:
        return f"<Flow `{self.name}`>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return by_reference(self, self.__module__, getattr(self.func, "__qualname__", "<unnamed>"))

    def __reduce_by_value__(self) -> Any:
        """What goes to a process that cannot import the module it stands in: a flow runs in its own."""
        return StayedBehind, (f"Flow `{self.title}`",)

    def __deepcopy__(self, memo: Any) -> Flow[P, R]:
        return self

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: Any = None) -> Flow[P, R]: ...
        @overload
        def __get__(self: Flow[Concatenate[X, P], R], instance: X, owner: Any = None) -> Flow[P, R]: ...
        def __get__(self, instance: Any, owner: Any = None) -> Any: ...

    else:

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            own = self.nodes[self.title].policies
            bound = Flow(
                MethodType(self.func, instance),
                name=self.title,
                checkpointer=self.checkpointer,
                store=self.store,
                cache=self.cache,
                context_schema=self.context_schema,
                retry_policy=own.get("retry"),
                cache_policy=own.get("cache"),
                timeout=own.get("timeout"),
                executor=self.executor,
                max_running=self.max_running,
                on_busy=self.on_busy,
            )
            bound.name, bound.bound_config = self.name, self.bound_config
            bound.owner = Walk().packed(instance)
            return bound

    # --- as a command

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run as a script: `if __name__ == "__main__": flow.main()`. The same command goes on with an unfinished run.

        A required parameter is told by its place, one with a default by `--name`, a bool by `--name` or `--no-name`;
        each is read by its annotation: numbers, texts, paths, dates, Decimal, Enum, Literal, `list[T]` as several, and
        JSON for all else. `--thread NAME` runs on the thread of that name, `--answer VALUE` answers an open question.

        The result is printed: a text as it is, plain data as JSON. Questions are asked at the terminal where there is
        one and `FLOWFN_ASK` is not 0. An exception of the flow is shown with its traceback; for what needs no mending,
        one line says what to do.

        Args:
            argv: the arguments; by default those of the process.
        Raises:
            SystemExit: 2 for wrong arguments; 3 when it waits for an answer; 4 when somebody else runs the thread; 75
                when a Ctrl-C or SIGTERM has paused it; 130 when a second Ctrl-C has stopped it at once.
            Exception: whatever the flow raised, which makes the exit code 1.
        """
        from flowfn.func.script import main  # here, since only scripts need a parser

        main(self, self._signature.parameters, argv)

    # --- what loops and handles ask

    def previous(self, channels: Channels) -> Any:
        channel = channels[PREVIOUS]
        return channel.get() if channel.is_available() else MISSING

    def channel_title(self, name: str) -> str:
        if name == START:
            return f"The input of `{self.title}`"
        return f"The result of `{self.title}`" if name == END else f"What `{self.title}` saves for its next run"

    def input_writes(self, input: Any) -> list[tuple[str, Any]]:
        return [(START, by_value(input))]

    def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._signature.input_of(args, kwargs)

    @property
    def cache_in(self) -> Cache | None:
        if self.cache is None and staging.current() is None:
            return places.cache_for(self.func)
        return super().cache_in

    def why(self, task: Task[Q, Any], /, *args: Q.args, **kwargs: Q.kwargs) -> Why:
        """Whether this flow's cache answers a call of a task, or what differs from the entry that comes nearest.

        Raises:
            PolicyError: the task has no cache policy.
            UnkeyedArgumentError: an argument cannot be part of a key.
        """
        cache = self.cache_in
        assert cache is not None
        return task._why(cache, args, kwargs)


def _value(result: Any) -> Any:
    return result.value if isinstance(result, entrypoint.final) else result


def _save(result: Any) -> Any:
    return result.save if isinstance(result, entrypoint.final) else result


# ---------------------------------------------------------------- the body


def _body(func: Callable[..., Any], signature: Signature) -> Callable[[Any], Any]:
    @functools.wraps(func, assigned=NAMES)
    def body(input: Any) -> Any:
        args, kwargs = signature.arguments(input)
        result = func(*args, **kwargs, **signature.brought())
        return _with_values(result) if _futures(result) else result

    return body


def _abody(func: Callable[..., Any], signature: Signature) -> Callable[[Any], Any]:
    @functools.wraps(func, assigned=NAMES)
    async def body(input: Any) -> Any:
        args, kwargs = signature.arguments(input)
        result = await func(*args, **kwargs, **signature.brought())
        futures = _futures(result)
        for future in futures:
            await future
        return _with_values(result) if futures else result

    return body


def _futures(result: Any) -> list[Any]:
    """The futures in what a flow returns; they stand for their values."""
    if isinstance(result, entrypoint.final):
        return [*futures_in(result.value), *futures_in(result.save)]
    return list(futures_in(result))


def _with_values(result: Any) -> Any:
    if isinstance(result, entrypoint.final):
        return entrypoint.final(value=_with_values(result.value), save=_with_values(result.save))
    return with_values(result, lambda future: future.result())


class Signature:
    """How an entrypoint's parameters take the one input of a run."""

    def __init__(self, func: Callable[..., Any], title: str) -> None:
        self._title = title
        self._injected = injected_parameters(func)
        signature = inspect.signature(func)
        self._first_previous = MISSING
        if "previous" in signature.parameters:
            self._injected["previous"] = "previous"
            default = signature.parameters["previous"].default
            self._first_previous = None if default is inspect.Parameter.empty else default
        plain = [p for p in signature.parameters.values() if p.name not in self._injected]
        various = [str(p) for p in plain if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if various:
            raise EntrypointSignatureError(
                title,
                f"takes `{various[0]}`, which the one input of a run cannot carry. Name its parameters, or take "
                f"one dict or list.",
            )
        self._signature = signature.replace(parameters=plain)
        self._named = [p for p in plain if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._required = [p for p in self._named if p.default is p.empty]
        self._names = frozenset(p.name for p in self._named)

    @property
    def parameters(self) -> Sequence[inspect.Parameter]:
        """Those that the caller gives."""
        return self._named

    def brought(self) -> dict[str, Any]:
        """The arguments that the runtime brings."""
        if not self._injected:
            return {}
        spot = CURRENT.get()
        assert spot is not None
        brought = {name: INJECTED[kind](spot.frame) for name, kind in self._injected.items()}
        if self._first_previous is not MISSING and not spot.frame.has_previous:
            brought["previous"] = self._first_previous
        return brought

    def arguments(self, input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that an input stands for.

        Raises:
            EntrypointSignatureError: several required parameters, and the input does not name them.
        """
        if not self._named:
            return (), {}
        if len(self._named) > 1 and isinstance(input, Mapping) and self._is_spread(input):
            placed = [input[p.name] for p in self._named if p.kind is p.POSITIONAL_ONLY and p.name in input]
            named = {p.name: input[p.name] for p in self._named if p.kind is not p.POSITIONAL_ONLY and p.name in input}
            return tuple(placed), named
        if len(self._required) > 1:
            names = ", ".join(f"`{p.name}`" for p in self._required)
            raise EntrypointSignatureError(
                self._title, f"takes {names}: give `invoke` a dict with these keys, or call `.run(…)` with arguments."
            )
        first = (self._required or self._named)[0]
        return ((input,), {}) if first.kind is first.POSITIONAL_ONLY else ((), {first.name: input})

    def _is_spread(self, input: Mapping[Any, Any]) -> bool:
        return input.keys() <= self._names and all(p.name in input for p in self._required)

    def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The input that stands for these arguments.

        Raises:
            TypeError: they do not fit the signature.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._title}() {error}") from None
        bound.apply_defaults()
        if not self._named:
            return None
        if len(self._named) == 1:
            return bound.arguments[self._named[0].name]
        return {p.name: bound.arguments[p.name] for p in self._named}


# ---------------------------------------------------------------- the decorator


class entrypoint:
    """Make a function a flow: it can be run, killed, and gone on with; its tasks' results are stored.

    Args:
        checkpointer: where its threads are kept: a saver, or an address such as `"sqlite:///flows.db"`. Without one,
            `invoke` keeps nothing, while `run` and `thread` keep their runs beside the flow's file.
        store: given to functions that ask for it.
        cache: where tasks with a cache policy keep results over runs and threads: a cache, or a folder on disk; by
            default `.flowfn/cache` beside the flow's file.
        context_schema: class of the run-scoped `context=`; a dict is made into one.
        retry_policy: when the function is run again after it failed, its finished tasks kept: a number of attempts, a
            `RetryPolicy`, or several.
        cache_policy: keep the flow's own result for equal inputs, over threads: True, how long, or a `CachePolicy`.
        timeout: how long an attempt may take: seconds, a timedelta, "90s" or a `TimeoutPolicy`.
        executor: where tasks run that do not say: `"threads"`, `"processes"`, or an object with `submit`.
        max_running: how many of its runs there may be at once, over all threads and processes that share its store.
        on_busy: what a run does that finds its thread busy, or as many runs as there may be: `"raise"` ThreadBusyError,
            `"wait"`, or `"skip"`, which runs nothing and gives None.
        name: under which it owns its threads; keep it when the function is renamed.
    Raises:
        NotATaskError: a generator function.
        PolicyError: a policy cannot mean anything.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class final(Generic[R_co, S_co]):
        """What a flow returns, and what its next run sees as `previous`, told apart."""

        value: R_co
        save: S_co

    @overload
    def __new__(cls, func: Callable[P, Awaitable[entrypoint.final[R, S]]], /) -> Flow[P, R]: ...  # type: ignore[misc]
    @overload
    def __new__(cls, func: Callable[P, Awaitable[R]], /) -> Flow[P, R]: ...  # type: ignore[misc]
    @overload
    def __new__(cls, func: Callable[P, entrypoint.final[R, S]], /) -> Flow[P, R]: ...  # type: ignore[misc]
    @overload
    def __new__(cls, func: Callable[P, R], /) -> Flow[P, R]: ...  # type: ignore[misc]
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        func: None = None,
        /,
        *,
        checkpointer: Saver | str | None = None,
        store: Any = None,
        cache: Cache | str | os.PathLike[str] | None = None,
        context_schema: type[Any] | None = None,
        retry_policy: RetryPolicies | None = None,
        cache_policy: CachePolicies | None = None,
        timeout: Timeouts | None = None,
        executor: ExecutorName | None = None,
        max_running: int | None = None,
        on_busy: OnBusy = "raise",
        name: str | None = None,
    ) -> Decorator: ...
    def __new__(cls, func: Any = None, /, **options: Any) -> Any:
        return functools.partial(_flow, **options) if func is None else _flow(func, **options)


class Decorator:
    """What `entrypoint(…)` gives."""

    @overload
    def __call__(self, func: Callable[P, Awaitable[entrypoint.final[R, S]]], /) -> Flow[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> Flow[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, entrypoint.final[R, S]], /) -> Flow[P, R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> Flow[P, R]: ...
    def __call__(self, func: Any, /) -> Any: ...


def _flow(func: Callable[..., Any], **options: Any) -> Flow[..., Any]:
    kind = kind_of_generator(func)
    if kind is not None:
        raise NotATaskError(short_name(func), kind)
    returned = hints_of(func).get("return")
    origin = typing.get_origin(returned) or returned
    if origin is entrypoint.final and len(typing.get_args(returned)) not in (0, 2):
        raise FinalAnnotationError(short_name(func))
    return Flow(func, **options)
