"""`@task`: a plain function whose calls inside a flow are stored, and are found again after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

import wrapt

from flowfn import identity, places
from flowfn.cache import Cache, Why
from flowfn.cache.base import known_caches
from flowfn.context import CURRENT
from flowfn.errors import NotATaskError, OutsideFlowError, PolicyError
from flowfn.executors.base import ExecutorName
from flowfn.futures import MapFuture, TaskFuture
from flowfn.pregel import cached
from flowfn.pregel.callee import (
    POLICIES,
    CachePolicies,
    Callee,
    RetryPolicies,
    Timeouts,
    callee_of,
    kind_of_generator,
    named,
    policies,
    short_name,
)
from flowfn.pregel.calls import ran
from flowfn.types import Rate, Reconcile

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
X = TypeVar("X")
Q = ParamSpec("Q")

if TYPE_CHECKING:

    class _Wrapper(Generic[P, R]):
        """What a type checker sees of wrapt's wrapper."""

        __wrapped__: Callable[..., Any]
        _self_callee: Callee

        def __init__(self, wrapped: Any, wrapper: Any) -> None: ...

else:

    class _Wrapper(wrapt.FunctionWrapper):
        def __class_getitem__(cls, item):
            return cls


def _unused(*args: Any) -> None:
    """wrapt asks for a function to call; `__call__` does its work."""


class _Calling(Generic[P, R]):
    """What a task can do, bound to an object or not."""

    def _callee(self) -> Callee:
        raise NotImplementedError

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[R]:
        """Call the task in the running flow; gives its future at once.

        Raises:
            OutsideFlowError: no flow is running here.
            CallArgumentsError: the arguments do not fit the signature.
            AmbiguousCallError: a replay could not tell this call from another one.
        """
        spot = CURRENT.get()
        if spot is None:
            if getattr(self, "_self_is_shipped", False):
                return cast("TaskFuture[R]", ran(self._callee(), args, kwargs))
            name = self._callee().name
            raise OutsideFlowError(f"Task `{name}` was called", f", or call the plain function: `{name}.func(...)`")
        return spot.frame.call(spot, self._callee(), args, kwargs)

    def _with(self, callee: Callee) -> Any:
        raise NotImplementedError

    def map(
        self: _Calling[Concatenate[X, Q], S],
        items: Iterable[X],
        /,
        *,
        on_error: str = "raise",
        in_flight: int | None = None,
        **fixed: Any,
    ) -> MapFuture[S]:
        """Call the task for each item.

        Args:
            items: the first argument of each call.
            on_error: `"raise"` raises the first failure where results are taken; `"collect"` gives failures in their
                places.
            in_flight: at most so many calls that are begun and not handed on yet; by default all at once.
            fixed: further arguments, equal for all.
        """
        return self._many(((item,) for item in items), on_error, in_flight, fixed)

    def starmap(
        self, items: Iterable[Iterable[Any]], /, *, on_error: str = "raise", in_flight: int | None = None, **fixed: Any
    ) -> MapFuture[R]:
        """The same with several arguments an item, each item a tuple of them."""
        return self._many((tuple(item) for item in items), on_error, in_flight, fixed)

    def _many(
        self: Any, items: Iterable[tuple[Any, ...]], on_error: str, in_flight: int | None, fixed: dict[str, Any]
    ) -> MapFuture[Any]:
        if on_error not in ("raise", "collect"):
            raise ValueError(f"`on_error` is 'raise' or 'collect', not {on_error!r}.")
        if in_flight is not None and in_flight < 1:
            raise ValueError(f"`in_flight` is a whole number of at least 1, not {in_flight!r}.")
        left = iter(items)
        futures: list[TaskFuture[Any]] = []

        def more() -> bool:
            for item in left:
                futures.append(self(*item, **fixed))
                return True
            return False

        many = MapFuture(futures, on_error == "collect", more)
        while (in_flight is None or len(futures) < in_flight) and many._start_next():
            pass
        return many

    def clear_cache(self, cache: Cache | None = None) -> None:
        """Forget this task's results in a cache; by default in those that `why` looks at."""
        callee = self._callee()
        for one in _caches(callee) if cache is None else [cache]:
            one.clear([(callee.title,)])

    async def aclear_cache(self, cache: Cache | None = None) -> None:
        callee = self._callee()
        for one in _caches(callee) if cache is None else [cache]:
            await one.aclear([(callee.title,)])

    def why(self, *args: P.args, **kwargs: P.kwargs) -> Why:
        """Whether a cache answers a call, or what differs from the entry that comes nearest.

        The cache is that of the running flow; outside of flows any that this process has, else the one beside the
        task's file. See `Flow.why` for the cache of one flow.

        Raises:
            PolicyError: the task has no cache policy.
            UnkeyedArgumentError: an argument cannot be part of a key.
        """
        found = [self._why(cache, args, kwargs) for cache in _caches(self._callee())]
        return min(found, key=lambda why: (not why.hit, why.nearest is None, len(why.differs)))

    def _why(self, cache: Cache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Why:
        callee = self._callee()
        if callee.cache is None:
            raise PolicyError("cache_policy", None, f"something: task `{callee.name}` keeps no results")
        return cached.why(cache, callee, args, kwargs)

    def with_options(
        self,
        *,
        name: str | None = None,
        key: Callable[..., Hashable] | None = None,
        interchangeable: bool | None = None,
        inline: bool | None = None,
        executor: ExecutorName | None = None,
        retry_policy: RetryPolicies | None = None,
        cache_policy: CachePolicies | None = None,
        refresh: bool | None = None,
        timeout: Timeouts | None = None,
        rate: str | Rate | None = None,
        max_running: int | None = None,
        effect: Literal["external"] | None = None,
        reconcile: Reconcile | None = None,
        on_doubt: Literal["ask", "rerun"] | None = None,
    ) -> Task[P, R]:
        """The same task with other options, for one call or more: `charge.with_options(key=by_order)(order)`.

        Args:
            refresh: make the cache's entry anew, even if there is one.
        """
        given = policies(
            key=key,
            interchangeable=interchangeable,
            inline=inline,
            executor=executor,
            retry_policy=retry_policy,
            cache_policy=cache_policy,
            refresh=refresh,
            timeout=timeout,
            rate=rate,
            max_running=max_running,
            effect=effect,
            reconcile=reconcile,
            on_doubt=on_doubt,
        )
        callee = replace(self._callee(), **given)
        if name is not None:
            title = f"{callee.title.partition(':')[0]}:{name}"
            captured = identity.captured(callee.fn)
            callee = replace(callee, name=name, title=title, identity=identity.digest(title.encode(), captured))
        return cast("Task[P, R]", self._with(callee))


def _caches(callee: Callee) -> list[Cache]:
    """Where a task's results are looked for when nobody says."""
    spot = CURRENT.get()
    here = cast(Any, spot.frame).run.program.cache_in if spot is not None else None
    return [here] if here is not None else known_caches() or [places.cache_for(callee.fn)]


class Task(_Calling[P, R], _Wrapper[P, R]):
    """A decorated function. It keeps its name, signature and documentation; `.func` is the plain function."""

    def __init__(self, fn: Any, callee: Callee) -> None:
        super().__init__(fn, _unused)
        self._self_callee = callee
        self._self_method: Callee | None = None

    if not TYPE_CHECKING:

        @property
        def __class__(self):
            # An honest type: cloudpickle would otherwise take the wrapper for the function and drop the decoration.
            return Task

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[R]:
        spot = CURRENT.get()
        if spot is None:
            return super().__call__(*args, **kwargs)
        return spot.frame.call(spot, self._self_callee, args, kwargs)

    def _callee(self) -> Callee:
        return self._self_callee

    def _callee_of_method(self, method: Callable[..., Any]) -> Callee:
        """What is called when the task is taken from an object: all but the object, which each has of its own."""
        mine = self._self_callee
        if method is self.__wrapped__:  # taken from the class: the object is an argument like any other
            return mine
        if self._self_method is None:
            bound = callee_of(method, mine.name)
            read = {name: getattr(bound, name) for name in ("parameters", "bind", "injected", "by_place")}
            self._self_method = replace(mine, **read)
        return self._self_method

    def _with(self, callee: Callee) -> Task[P, R]:
        return Task(self.__wrapped__, callee)

    @property
    def func(self) -> Callable[P, Any]:
        """The plain function."""
        return self.__wrapped__

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: Any = None) -> Task[P, R]: ...
        @overload
        def __get__(self: Task[Concatenate[X, Q], S], instance: X, owner: Any = None) -> BoundTask[Q, S]: ...
        def __get__(self, instance: Any, owner: Any = None) -> Any: ...

    def __reduce_ex__(self, protocol: Any) -> Any:
        module, name = self.__wrapped__.__module__, getattr(self.__wrapped__, "__qualname__", "<unnamed>")
        if "<" not in name:
            found = named(module, name)
            if found is self:
                return _arrived, (module, name)
            if type(found) is Task and found.__wrapped__ is self.__wrapped__:
                return _variant, (found, _policies(self._self_callee))
        return self.__reduce_by_value__()

    def __reduce_by_value__(self) -> Any:
        """How it goes to a process that cannot import the module it stands in."""
        return _by_value, (self.__wrapped__, _policies(self._self_callee))

    def __copy__(self) -> Task[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> Task[P, R]:
        return self


class BoundTask(_Calling[P, R], wrapt.BoundFunctionWrapper if not TYPE_CHECKING else _Wrapper[P, R]):  # type: ignore[misc]
    """A task taken from an object or class, as a method is."""

    _self_parent: Any
    _self_instance: Any

    if not TYPE_CHECKING:

        @property
        def __class__(self):
            return BoundTask

    def _callee(self) -> Callee:
        method = self.__wrapped__
        callee: Callee = self._self_parent._callee_of_method(method)
        owner = getattr(method, "__self__", None)
        return replace(callee, fn=method, owner=None if owner is None else identity.owner_part(owner))

    def _with(self, callee: Callee) -> Task[P, R]:
        return Task(self.__wrapped__, callee)

    @property
    def func(self) -> Callable[P, Any]:
        """The plain method."""
        return cast("Callable[P, Any]", self.__wrapped__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return getattr, (self._self_instance, self.__wrapped__.__name__)


if not TYPE_CHECKING:
    Task.__bound_function_wrapper__ = BoundTask


def _policies(callee: Callee) -> dict[str, Any]:
    return {"name": callee.name, **{field: getattr(callee, field) for field in POLICIES}}


def _arrived(module: str, qualname: str) -> Any:
    """The task of that name. In a worker process that it was sent to, its calls outside a flow just run: to run there
    is what it was sent for."""
    import multiprocessing  # here, since only a pickled task needs it

    found = named(module, qualname)
    if multiprocessing.parent_process() is not None and CURRENT.get() is None:
        found._self_is_shipped = True
    return found


def _by_value(fn: Callable[..., Any], policies: dict[str, Any]) -> Task[Any, Any]:
    name = policies.pop("name")
    return Task(fn, callee_of(fn, None if name == short_name(fn) else name, **policies))


def _variant(base: Task[Any, Any], policies: dict[str, Any]) -> Task[Any, Any]:
    return _by_value(base.__wrapped__, policies)


@overload
def task(fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
@overload
def task(fn: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    name: str | None = None,
    retry_policy: RetryPolicies | None = None,
    cache_policy: CachePolicies | None = None,
    timeout: Timeouts | None = None,
    rate: str | Rate | None = None,
    max_running: int | None = None,
    effect: Literal["external"] | None = None,
    reconcile: Reconcile | None = None,
    on_doubt: Literal["ask", "rerun"] = "ask",
    key: Callable[..., Hashable] | None = None,
    interchangeable: bool = False,
    inline: bool = True,
    executor: ExecutorName | None = None,
) -> _Decorator: ...
def task(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    retry_policy: RetryPolicies | None = None,
    cache_policy: CachePolicies | None = None,
    timeout: Timeouts | None = None,
    rate: str | Rate | None = None,
    max_running: int | None = None,
    effect: Literal["external"] | None = None,
    reconcile: Reconcile | None = None,
    on_doubt: Literal["ask", "rerun"] = "ask",
    key: Callable[..., Hashable] | None = None,
    interchangeable: bool = False,
    inline: bool = True,
    executor: ExecutorName | None = None,
) -> Any:
    """Make a function a task: inside a flow its calls run in parallel, and their results are stored.

    Works on functions, async functions, methods, static and class methods, partials and callable objects.

    Args:
        name: what streams and the store call it; by default its own name.
        retry_policy: when a failed call is tried again: a number of attempts, a `RetryPolicy`, or several.
        cache_policy: keep results over runs and threads in the flow's cache: True, how long, or a `CachePolicy`.
        timeout: how long an attempt may take: seconds, a timedelta, "90s" or a `TimeoutPolicy`. What a plain function
            does after that in its thread is refused.
        rate: how often attempts may start, `"5/s"` or `"100/m"`, over all threads and processes that share the flow's
            store; every attempt counts, and one that waits holds no worker.
        max_running: how many attempts may run at once, counted likewise.
        effect: `"external"` for a task that does something outside, such as a payment. That it begins is stored first,
            and when nobody knows whether it took place, since the process was killed, it is not silently run again.
        reconcile: called with the task's arguments when that is not known; gives `Happened(result)`, `DID_NOT_HAPPEN`,
            or None. May be a coroutine function when the task is one.
        on_doubt: when it is still not known: `"ask"` a person, or `"rerun"` the task.
        key: called with the arguments, gives what identifies a call instead of them.
        executor: where attempts run: `"threads"` of this process, `"processes"` of the machine, or an object with
            `submit` such as Dask's `client.get_executor()`; by default where the flow says. Elsewhere than on threads
            an attempt may ask and may not call tasks.
        interchangeable: equal calls may get each other's results, so that racing coroutines may make them.
        inline: whether a caller that waits may run it in its own thread.
    Raises:
        NotATaskError: a generator function.
        PolicyError: a policy cannot mean anything.
    """
    given = policies(
        key=key,
        interchangeable=interchangeable,
        inline=inline,
        executor=executor,
        retry_policy=retry_policy,
        cache_policy=cache_policy,
        timeout=timeout,
        rate=rate,
        max_running=max_running,
        effect=effect,
        reconcile=reconcile,
        on_doubt=on_doubt,
    )

    def decorate(fn: Any) -> Task[Any, Any]:
        plain = fn.__func__ if isinstance(fn, staticmethod | classmethod) else fn
        kind = kind_of_generator(plain)
        if kind is not None:
            raise NotATaskError(short_name(plain), kind)
        if not callable(plain):
            raise NotATaskError(repr(plain), f"no function but a `{type(plain).__name__}`")
        return Task(fn, callee_of(fn, name, **given))

    return decorate if fn is None else decorate(fn)


class _Decorator:
    """What `task(…)` with options gives."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, fn: Any, /) -> Any: ...
