"""`@task`: a plain function whose calls inside a flow are stored, and are found again after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import wrapt

from flowfn import identity
from flowfn.cache.base import Cache
from flowfn.context import CURRENT
from flowfn.errors import NotATaskError, OutsideFlowError
from flowfn.futures import MapFuture, TaskFuture
from flowfn.pregel.callee import Callee, callee_of, kind_of_generator, named, short_name
from flowfn.pregel.calls import ran
from flowfn.types import CachePolicy

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

    def clear_cache(self, cache: Cache) -> None:
        """Forget this task's results in a cache."""
        cache.clear(self._callee().title)

    async def aclear_cache(self, cache: Cache) -> None:
        cache.clear(self._callee().title)

    def with_options(
        self,
        *,
        name: str | None = None,
        key: Callable[..., Hashable] | None = None,
        interchangeable: bool | None = None,
        inline: bool | None = None,
        cache_policy: CachePolicy | None = None,
    ) -> Task[P, R]:
        """The same task with other options, for one call or more: `charge.with_options(key=by_order)(order)`."""
        given = {"key": key, "interchangeable": interchangeable, "inline": inline, "cache": cache_policy}
        callee = replace(self._callee(), **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
        if name is not None:
            title = f"{callee.title.partition(':')[0]}:{name}"
            captured = identity.captured(callee.fn)
            callee = replace(callee, name=name, title=title, identity=identity.digest(title.encode(), captured))
        return cast("Task[P, R]", self._with(callee))


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
        if self._self_method is None:
            mine = self._self_callee
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
    return {
        "name": callee.name,
        "key": callee.key,
        "interchangeable": callee.interchangeable,
        "inline": callee.inline,
        "cache": callee.cache,
    }


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
    cache_policy: CachePolicy | None = None,
    key: Callable[..., Hashable] | None = None,
    interchangeable: bool = False,
    inline: bool = True,
) -> _Decorator: ...
def task(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    cache_policy: CachePolicy | None = None,
    key: Callable[..., Hashable] | None = None,
    interchangeable: bool = False,
    inline: bool = True,
) -> Any:
    """Make a function a task: inside a flow its calls run in parallel, and their results are stored.

    Works on functions, async functions, methods, static and class methods, partials and callable objects.

    Args:
        name: what streams and the store call it; by default its own name.
        cache_policy: keep results over runs and threads in the flow's cache.
        key: called with the arguments, gives what identifies a call instead of them.
        interchangeable: equal calls may get each other's results, so that racing coroutines may make them.
        inline: whether a caller that waits may run it in its own thread.
    Raises:
        NotATaskError: a generator function.
    """

    def decorate(fn: Any) -> Task[Any, Any]:
        plain = fn.__func__ if isinstance(fn, staticmethod | classmethod) else fn
        kind = kind_of_generator(plain)
        if kind is not None:
            raise NotATaskError(short_name(plain), kind)
        if not callable(plain):
            raise NotATaskError(repr(plain), f"no function but a `{type(plain).__name__}`")
        callee = callee_of(fn, name, key=key, interchangeable=interchangeable, inline=inline, cache=cache_policy)
        return Task(fn, callee)

    return decorate if fn is None else decorate(fn)


class _Decorator:
    """What `task(…)` with options gives."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, fn: Any, /) -> Any: ...
