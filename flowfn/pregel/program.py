"""`Pregel`: a compiled flow, and the ways to run it and to look at its threads."""

from __future__ import annotations

import asyncio
import os
import queue
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeAlias

from flowfn.cache import Cache, open_cache
from flowfn.channels import Channel
from flowfn.checkpoint import Saver, open_saver
from flowfn.context import RunControl
from flowfn.errors import ConfigError, NoSaverError, NoThreadError, UnknownNodeError
from flowfn.pregel import edit, staging
from flowfn.pregel import snapshot as past
from flowfn.pregel.batches import atogether, each_config, most_at_once, together
from flowfn.pregel.callee import CachePolicies, RetryPolicies, policies
from flowfn.pregel.compiled import Compiled, Keys
from flowfn.pregel.draw import draw_run, picture_of
from flowfn.pregel.entry import Entry, handed_out, result_of
from flowfn.pregel.node import Node, NodeBuilder
from flowfn.pregel.picture import Picture
from flowfn.pregel.terms import Breakpoints, Options, Terms, joined, read_terms
from flowfn.schema import schema_of
from flowfn.stream.parts import Events, Part, Shape, checked_modes
from flowfn.types import MISSING, Command, Durability, StateSnapshot, StateUpdate

Config: TypeAlias = Mapping[str, Any] | None
Version: TypeAlias = Literal["v1", "v2"]
Modes: TypeAlias = str | Sequence[str]


class Pregel(Compiled):
    """A compiled flow.

    Args:
        nodes: name → node, or the builder of one.
        channels: name → channel; each run has copies.
        input_channels: the channel that takes the input, or several that take what a dict has under their names.
        output_channels: what `invoke` gives, one value or a dict of several.
        stream_channels: what streams and states show; by default all.
        stream_mode: of `stream`, when the call names none.
        checkpointer: keeps threads: a saver, or its address (`"sqlite:///flows.db"`, `"memory://"`). Of a program that
            is called by another one: None keeps it with the run of that, True has it go on from its own last state in
            each run, False does not keep it.
        store: given to functions that ask for it.
        cache: keeps what nodes and tasks with a cache policy give.
        retry_policy, cache_policy: of nodes that have none.
        context_schema: class of the run-scoped `context=`; a dict is made into one.
        interrupt_before_nodes, interrupt_after_nodes: stop before or after these nodes, `"*"` for all.
        managed: name → from the number of super-steps that are left to what nodes read under that name.
        config: under the one of each call.
        name: under which the program owns its threads.
    """

    def __init__(
        self,
        *,
        nodes: Mapping[str, Node | NodeBuilder],
        channels: Mapping[str, Channel[Any, Any, Any]],
        input_channels: Keys,
        output_channels: Keys,
        stream_channels: Keys | None = None,
        stream_mode: Modes = "values",
        checkpointer: Saver | str | bool | None = None,
        store: Any = None,
        cache: Cache | str | os.PathLike[str] | None = None,
        retry_policy: RetryPolicies | None = None,
        cache_policy: CachePolicies | None = None,
        context_schema: type[Any] | None = None,
        interrupt_before_nodes: Breakpoints = (),
        interrupt_after_nodes: Breakpoints = (),
        managed: Mapping[str, Callable[[int], Any]] | None = None,
        config: Config = None,
        name: str = "Pregel",
    ) -> None:
        self.interrupt_before, self.interrupt_after = interrupt_before_nodes, interrupt_after_nodes
        self.managed = managed or {}
        self.defaults = policies(retry_policy=retry_policy, cache_policy=cache_policy)
        if context_schema is not None:
            self.context_schema = context_schema
        if cache is not None:
            self.cache = open_cache(cache)
        super().__init__(name, nodes, channels, input_channels, output_channels, stream_channels)
        self.stream_mode = stream_mode
        self.checkpointer = checkpointer if isinstance(checkpointer, bool) else opened(checkpointer)
        self.store = store
        self.bound_config = joined(config)

    def with_config(self, config: Config = None, **more: Any) -> Self:
        """The same program with a config under the one of each call."""
        other = self.clone()
        other.bound_config = joined(self.bound_config, config, more)
        return other

    def copy(self, update: Mapping[str, Any] | None = None) -> Self:
        """Another object of the same program, with these attributes replaced, such as `checkpointer` or `store`."""
        other = self.clone()
        other.__dict__.update(update or {})
        return other

    # --- running

    def batch(
        self,
        inputs: Sequence[Any],
        config: Config | Sequence[Config] = None,
        *,
        return_exceptions: bool = False,
        **options: Any,
    ) -> list[Any]:
        """`invoke` for each of several inputs at the same time, in any order; gives the results in that of the inputs.

        Args:
            config: of all, or one for each. `max_concurrency` of the first bounds how many run at once.
            return_exceptions: put what a run raised in its place, instead of raising it once all have ended.
            options: as of `invoke`.
        """
        configs = each_config(inputs, config)
        runs = [partial(self.invoke, input, one, **options) for input, one in zip(inputs, configs, strict=True)]
        return together(runs, most_at_once(configs), return_exceptions)

    async def abatch(
        self,
        inputs: Sequence[Any],
        config: Config | Sequence[Config] = None,
        *,
        return_exceptions: bool = False,
        **options: Any,
    ) -> list[Any]:
        """The awaited twin of `batch`."""
        configs = each_config(inputs, config)
        runs = [partial(self.ainvoke, input, one, **options) for input, one in zip(inputs, configs, strict=True)]
        return await atogether(runs, most_at_once(configs), return_exceptions)

    def invoke(
        self,
        input: Any,
        config: Config = None,
        *,
        context: Any = None,
        stream_mode: Modes = "values",
        output_keys: Keys | None = None,
        interrupt_before: Breakpoints | None = None,
        interrupt_after: Breakpoints | None = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> Any:
        """Run to the end, or to open questions, and give the value of the output channels.

        Args:
            input: of a new run; None to go on with an unfinished one; `Command(resume=…)` to answer its questions.
            config: `{"configurable": {"thread_id": "t"}}` or `{"thread_id": "t"}`, and LangGraph's other keys.
            context: run-scoped, for functions that ask for a `Runtime`.
            stream_mode: with anything but `"values"` the chunks of that stream are given, as a list.
            output_keys: show these channels instead.
            interrupt_before, interrupt_after: stop before or after these nodes, `"*"` for all; `invoke(None)` goes on.
            control: asks the run to stop between two super-steps.
            durability: `"sync"` (the default): nobody sees a result before it is stored; `"async"`: the store may lag
                behind while the run goes on; `"exit"`: everything is stored when the run stops.
            version: `"v1"` gives the value, with open questions `{"__interrupt__": [Interrupt, …]}`; `"v2"` a
                `GraphOutput`.
        Raises:
            NoThreadError: there is a checkpointer, and the config names no thread.
            EmptyInputError: input is None, and nothing is there to go on with.
            ForeignThreadError: the thread belongs to another flow.
            QuestionError: an answer fits no open question.
            GraphDrained: `control` has asked the run to stop.
            RecursionLimitError: a graph was still going after `recursion_limit` super-steps.
            Exception: whatever the flow raised.
        """
        options = Options(context, interrupt_before, interrupt_after, control)
        if stream_mode != "values":
            return list(
                self.stream(
                    input,
                    config,
                    context=context,
                    stream_mode=stream_mode,
                    output_keys=output_keys,
                    interrupt_before=interrupt_before,
                    interrupt_after=interrupt_after,
                    durability=durability,
                    control=control,
                    version=version,
                )
            )
        entry = Entry(self, config, options, output_keys or self.output_channels, None, durability=durability)
        return result_of(entry.drive(_given(input)), version)

    async def ainvoke(
        self,
        input: Any,
        config: Config = None,
        *,
        context: Any = None,
        stream_mode: Modes = "values",
        output_keys: Keys | None = None,
        interrupt_before: Breakpoints | None = None,
        interrupt_after: Breakpoints | None = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> Any:
        """The awaited twin of `invoke`; coroutines run on this event loop."""
        options = Options(context, interrupt_before, interrupt_after, control)
        if stream_mode != "values":
            chunks = self.astream(
                input,
                config,
                context=context,
                stream_mode=stream_mode,
                output_keys=output_keys,
                interrupt_before=interrupt_before,
                interrupt_after=interrupt_after,
                durability=durability,
                control=control,
                version=version,
            )
            return [chunk async for chunk in chunks]
        loop = asyncio.get_running_loop()
        entry = Entry(self, config, options, output_keys or self.output_channels, None, loop, durability)
        return result_of(await entry.adrive(_given(input)), version)

    def stream(
        self,
        input: Any,
        config: Config = None,
        *,
        context: Any = None,
        stream_mode: Modes | None = None,
        output_keys: Keys | None = None,
        interrupt_before: Breakpoints | None = None,
        interrupt_after: Breakpoints | None = None,
        subgraphs: bool = False,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> Iterator[Any]:
        """What happens, as it happens; an exception of the flow comes after all that came before it.

        Closing the iterator early pauses the run: what runs is let finish and stored, and the thread can go on.

        Args:
            stream_mode: one mode, or several: values, updates, custom, tasks, checkpoints, debug.
            subgraphs: whether nested flows are shown as well.
            version: `"v1"` gives bare chunks for one mode, (mode, chunk) for several, with (namespace, …) in front for
                `subgraphs`; `"v2"` gives dicts with type, ns and data.
        """
        options = Options(context, interrupt_before, interrupt_after, control)
        parts: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
        entry, shape = self._watched(
            config, options, stream_mode, output_keys, subgraphs, durability, version, parts.put, loop=None
        )
        return handed_out(entry, shape, parts, _given(input))

    async def astream(
        self,
        input: Any,
        config: Config = None,
        *,
        context: Any = None,
        stream_mode: Modes | None = None,
        output_keys: Keys | None = None,
        interrupt_before: Breakpoints | None = None,
        interrupt_after: Breakpoints | None = None,
        subgraphs: bool = False,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: Version = "v1",
    ) -> AsyncIterator[Any]:
        """The awaited twin of `stream`."""
        options = Options(context, interrupt_before, interrupt_after, control)
        loop = asyncio.get_running_loop()
        parts: deque[Part] = deque()
        some = asyncio.Event()

        def put(part: Part) -> None:
            parts.append(part)
            loop.call_soon_threadsafe(some.set)

        entry, shape = self._watched(
            config, options, stream_mode, output_keys, subgraphs, durability, version, put, loop
        )
        driver = loop.create_task(entry.adrive(_given(input)))
        driver.add_done_callback(lambda _: some.set())
        # Of a Ctrl-C the event loop itself is told, and nobody asks the task.
        driver.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while parts or not driver.done():
                while parts:
                    yield shape.of(parts.popleft())
                if not driver.done():
                    await some.wait()
                    some.clear()
            driver.result()
        finally:
            if not driver.done():
                driver.cancel()
                await asyncio.wait([driver])

    def _watched(
        self,
        config: Config,
        options: Options,
        stream_mode: Modes | None,
        output_keys: Keys | None,
        subgraphs: bool,
        durability: Durability | None,
        version: Version,
        put: Callable[[Part], None],
        loop: asyncio.AbstractEventLoop | None,
    ) -> tuple[Entry, Shape]:
        mode = self.stream_mode if stream_mode is None else stream_mode
        events = Events(checked_modes(mode), subgraphs, put)
        entry = Entry(self, config, options, output_keys or self.stream_channels, events, loop, durability)
        return entry, Shape(version, not isinstance(mode, str), subgraphs)

    # --- threads

    def get_state(self, config: Config = None, *, subgraphs: bool = False) -> StateSnapshot:
        """A thread now, or at the checkpoint that the config names.

        Args:
            subgraphs: whether each task that is a program of its own comes with the state of that.
        Raises:
            NoSaverError: the program has no checkpointer.
            NoThreadError: the config names no thread.
        """
        return past.run(past.state(self, self._address(config), subgraphs), self.saver("`get_state`"))

    async def aget_state(self, config: Config = None, *, subgraphs: bool = False) -> StateSnapshot:
        return await past.arun(past.state(self, self._address(config), subgraphs), self.saver("`aget_state`"))

    def get_state_history(
        self,
        config: Config = None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config = None,
        limit: int | None = None,
    ) -> Iterator[StateSnapshot]:
        """A thread's checkpoints as snapshots, newest first: one for each super-step, inside functions too.

        Args:
            filter: metadata that must be equal, such as `{"source": "call"}`.
            before: only checkpoints older than this config's.
            limit: at most so many.
        """
        saver = self.saver("`get_state_history`")
        yield from past.run(past.history(self, self._address(config), filter, before, limit), saver)

    async def aget_state_history(
        self,
        config: Config = None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        saver = self.saver("`aget_state_history`")
        for one in await past.arun(past.history(self, self._address(config), filter, before, limit), saver):
            yield one

    def update_state(
        self, config: Config, values: Any, as_node: str | None = None, task_id: str | None = None
    ) -> dict[str, Any]:
        """Write to a thread as if a node had returned `values`; gives the config of the new checkpoint.

        For a function, the thread then stands as after a finished run that returned `values`, which the next run sees
        as `previous`.

        Args:
            as_node: the node; by default the only one, or the one that ran last.
        """
        steps = edit.update(self, self._address(config), [StateUpdate(values, as_node, task_id)])
        return past.run(steps, self.saver("`update_state`"))

    async def aupdate_state(
        self, config: Config, values: Any, as_node: str | None = None, task_id: str | None = None
    ) -> dict[str, Any]:
        steps = edit.update(self, self._address(config), [StateUpdate(values, as_node, task_id)])
        return await past.arun(steps, self.saver("`aupdate_state`"))

    def bulk_update_state(self, config: Config, supersteps: Sequence[Sequence[StateUpdate]]) -> dict[str, Any]:
        """The same for several super-steps of one or more updates each; one checkpoint each."""
        steps = edit.bulk_update(self, self._address(config), supersteps)
        return past.run(steps, self.saver("`bulk_update_state`"))

    async def abulk_update_state(self, config: Config, supersteps: Sequence[Sequence[StateUpdate]]) -> dict[str, Any]:
        steps = edit.bulk_update(self, self._address(config), supersteps)
        return await past.arun(steps, self.saver("`abulk_update_state`"))

    def fork(
        self,
        snapshot: StateSnapshot | Config,
        *,
        results: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Begin a branch at a point in a thread's past, with some results or answers replaced; runs nothing.

        The branch is the thread's newest state, to go on with by `invoke(None, config)`. It shares what was recorded up
        to that point, but for what was computed from a replaced result; the old branch stays in the history.

        Args:
            snapshot: a snapshot of the history, or a config: `{"thread_id": "t"}` for the thread as it is now. At the
                end of a run, results and answers are replaced after its last call.
            results: task id, or a task's name where it was called once, → the value that stands for its outcome.
            answers: question id → another answer to that question.
        Returns:
            The config of the new branch.
        Raises:
            UnknownCallError: no recorded call has that id or name, or several have the name.
            QuestionError: an answer fits no question of that past.
        """
        named = snapshot.config if isinstance(snapshot, StateSnapshot) else snapshot
        return past.run(edit.fork(self, self._address(named), results, answers), self.saver("`fork`"))

    async def afork(
        self,
        snapshot: StateSnapshot | Config,
        *,
        results: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        named = snapshot.config if isinstance(snapshot, StateSnapshot) else snapshot
        return await past.arun(edit.fork(self, self._address(named), results, answers), self.saver("`afork`"))

    def saver(self, what: str) -> Saver:
        """The checkpointer.

        Raises:
            NoSaverError: there is none; `what` needs it.
        """
        kept_in = self.kept_in
        if kept_in is None:
            raise NoSaverError(what)
        return kept_in

    @property
    def kept_in(self) -> Saver | None:
        """The saver that holds its threads here and now: its own, or under test that of the stage."""
        stage = staging.current()
        own = None if isinstance(self.checkpointer, bool) else self.checkpointer
        return own if stage is None else stage.saver

    # --- pictures

    def get_graph(self, config: Config = None, *, xray: bool | int = False) -> Picture:
        """Its nodes and edges as a picture: `draw_mermaid()`, `draw_ascii()`, `draw_svg()`, `to_json()`.

        Args:
            config: not needed; LangGraph's programs give one.
            xray: open the programs that its nodes are, all the way down, or so many levels.
        """
        return picture_of(self, xray)

    def draw_run(self, config: Config) -> Picture:
        """What a thread's newest run of a function did, as a picture: its super-steps, tasks and questions."""
        return past.run(draw_run(self._address(config).place), self.saver("`draw_run`"))

    async def adraw_run(self, config: Config) -> Picture:
        return await past.arun(draw_run(self._address(config).place), self.saver("`adraw_run`"))

    # --- what it is made of

    def clear_cache(self, nodes: Sequence[str] | None = None) -> None:
        """Forget what the cache holds.

        Args:
            nodes: only of these nodes; by default all of it, tasks' results too.
        Raises:
            ConfigError: the program has no cache.
            UnknownNodeError: one of the names is no node.
            CacheError: it could not be forgotten.
        """
        self._cache("`clear_cache`").clear(self._titles(nodes))

    async def aclear_cache(self, nodes: Sequence[str] | None = None) -> None:
        await self._cache("`aclear_cache`").aclear(self._titles(nodes))

    def _cache(self, what: str) -> Cache:
        if self.cache_in is None:
            raise ConfigError(f"{what} needs a cache, and `{self.name}` has none: give it one, `cache=…`.")
        return self.cache_in

    def _titles(self, nodes: Sequence[str] | None) -> list[tuple[str]] | None:
        """The namespaces in the cache of these nodes, None for all there are."""
        unknown = [name for name in nodes or () if name not in self.nodes]
        if unknown:
            raise UnknownNodeError("`clear_cache`", unknown[0], self.nodes)
        return None if nodes is None else [(self.callee(name).title,) for name in nodes]

    def get_context_jsonschema(self) -> dict[str, Any] | None:
        """What `context=` takes, as a JSON schema; None where there is none."""
        return None if self.context_schema is None else schema_of(self.context_schema)

    def get_subgraphs(self, *, namespace: str | None = None, recurse: bool = False) -> Iterator[tuple[str, Pregel]]:
        """The programs that its nodes are or call, each with its name: that of the node, below others `outer|inner`.

        Args:
            namespace: only that one, and with `recurse` those in it.
            recurse: those inside others too.
        """
        for name, node in self.nodes.items():
            inner = node.program
            is_meant = namespace is None or namespace.split("|")[0] == name
            if inner is None or not is_meant:
                continue
            if namespace is None or namespace == name:
                yield name, inner
            below = None if namespace in (None, name) else namespace[len(name) + 1 :]
            if recurse and (namespace is None or below is not None):
                for path, deeper in inner.get_subgraphs(namespace=below, recurse=True):
                    yield f"{name}|{path}", deeper

    def inside(self, ns: str) -> Pregel:
        """The program whose states a namespace holds: this one, or one that is a node in it."""
        program: Pregel = self
        for part in ns.split("|") if ns else ():
            node = program.nodes.get(part.partition(":")[0])
            inner = None if node is None else node.program
            if inner is None:
                return self
            program = inner
        return program

    def _address(self, config: Config) -> Terms:
        terms = read_terms(joined(self.bound_config, config))
        if terms.thread is None and self.kept_in is not None:
            raise NoThreadError(getattr(self, "title", self.name))
        return terms


def opened(checkpointer: Saver | str | None) -> Saver | None:
    """The saver itself, or the one at an address.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(checkpointer, str):
        return open_saver(checkpointer)
    if checkpointer is None or isinstance(checkpointer, Saver):
        return checkpointer
    raise ConfigError(
        f'`checkpointer` is a saver such as `SqliteSaver("flows.db")`, or an address such as '
        f'`"sqlite:///flows.db"`, not a `{type(checkpointer).__name__}`.'
    )


def _given(input: Any) -> Any:
    """An input of `invoke`: None goes on."""
    if input is None:
        return MISSING
    if isinstance(input, Command) and input.resume is MISSING and input.update is None and not input.goto:
        raise ConfigError("`Command` as an input takes answers, `Command(resume=…)`; this one has none.")
    return input
