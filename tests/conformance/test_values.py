"""What functional flows return, what they leave for the next run, and how they fail: equal on both libraries."""

import asyncio
import concurrent.futures
import functools
import threading
from dataclasses import dataclass
from typing import Any

import pytest

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)


# ---------------------------------------------------------------- values


def test_a_flow_returns_the_value_of_its_function(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n):
            return {"got": n, "list": [1, None]}

        return [kit.invoke(flow, n) for n in (1, "x", {"a": 1}, [1, 2], 0, "", False)]

    assert same(program)[0] == {"got": 1, "list": [1, None]}


def test_a_flow_may_return_none(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return None

        return [kit.invoke(flow, 1), kit.state(flow), kit.stream(flow, 1, stream_mode=["values", "updates", "tasks"])]

    same(program)


def test_tasks_give_their_results(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint()
        def flow(n):
            return [double(n).result(), double(n + 1).result()]

        return kit.invoke(flow, 1)

    assert same(program) == [2, 4]


def test_a_task_takes_positional_and_keyword_arguments_and_defaults(same):
    def program(kit):
        @kit.task
        def join(a, b=2, *rest, c, d=4, **more):
            return [a, b, list(rest), c, d, more]

        @kit.entrypoint()
        def flow(n):
            return [join(1, c=3).result(), join(1, 5, 6, c=3, e=7).result()]

        return kit.invoke(flow, 0)

    assert same(program) == [[1, 2, [], 3, 4, {}], [1, 5, [6], 3, 4, {"e": 7}]]


def test_partials_callable_objects_and_methods_work_as_tasks(same):
    def program(kit):
        def add(a, b):
            return a + b

        class Scale:
            def __init__(self, by):
                self.by = by

            def __call__(self, n):
                return n * self.by

            def shifted(self, n):
                return n + self.by

        scaled, shifted = kit.task(Scale(3)), kit.task(Scale(3).shifted)
        added = kit.task(functools.partial(add, 10))

        @kit.entrypoint()
        def flow(n):
            return [added(n).result(), scaled(n).result(), shifted(n).result()]

        return kit.invoke(flow, 2)

    assert same(program) == [12, 6, 5]


def test_parallel_tasks_give_results_in_the_order_asked(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint()
        def flow(n):
            return [future.result() for future in [double(i) for i in range(n)]]

        return kit.invoke(flow, 20)

    assert same(program) == [i * 2 for i in range(20)]


def test_futures_are_futures_of_the_standard_library(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint()
        def flow(n):
            futures = [double(i) for i in range(3)]
            done, _ = concurrent.futures.wait(futures)
            finished = sorted(f.result() for f in concurrent.futures.as_completed(futures))
            return [len(done), finished, [f.done() for f in futures], futures[0].exception()]

        return kit.invoke(flow, 0)

    assert same(program) == [3, [0, 2, 4], [True, True, True], None]


def test_tasks_may_call_tasks(same):
    def program(kit):
        @kit.task
        def leaf(n):
            return n + 1

        @kit.task
        def branch(n):
            return leaf(n).result() + leaf(n * 10).result()

        @kit.entrypoint()
        def flow(n):
            return branch(n).result()

        return [kit.invoke(flow, 1), kit.stream(flow, 1), kit.stream(flow, 1, stream_mode="tasks")]

    assert same(program)[0] == 13


def test_a_task_may_be_called_many_times_with_equal_arguments(same):
    def program(kit):
        seen = []

        @kit.task
        def tick(n):
            seen.append(n)
            return len(seen)

        @kit.entrypoint()
        def flow(n):
            return [tick(n).result() for _ in range(3)]

        return kit.invoke(flow, 1)

    assert same(program) == [1, 2, 3]


def test_a_named_task_streams_under_its_name(same):
    def program(kit):
        def double(n):
            return n * 2

        named = kit.task(name="twice")(double)

        @kit.entrypoint()
        def flow(n):
            return named(n).result()

        return [kit.stream(flow, 1), kit.stream(flow, 1, stream_mode="tasks")]

    assert same(program)[0] == [{"twice": 2}, {"flow": 2}]


# ---------------------------------------------------------------- previous and final


def test_previous_is_what_the_last_run_returned(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return (previous or 0) + n

        return [kit.invoke(flow, n) for n in (1, 2, 3)]

    assert same(program) == [1, 3, 6]


def test_the_default_of_previous_counts_on_the_first_run_in_flowfn_only(both):
    """On purpose: the default of `previous` counts on the first run; LangGraph passes None there."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=100):
            return [n, previous]

        return [kit.invoke(flow, 1), kit.invoke(flow, 2)]

    pair = both(program)
    assert pair.theirs == [[1, None], [2, [1, None]]]
    assert pair.ours == [[1, 100], [2, [1, 100]]]


@pytest.mark.parametrize("left", [0, "", False, [], {}, None])
def test_previous_may_be_falsy(same, left):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous: Any = None):
            return left if n == 1 else ["before", previous]

        return [kit.invoke(flow, 1), kit.invoke(flow, 2), kit.state(flow)]

    assert same(program)[1] == ["before", left]


def test_previous_is_none_without_a_checkpointer(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n, *, previous=None):
            return [n, previous]

        return [kit.invoke(flow, n) for n in (1, 2)]

    assert same(program) == [[1, None], [2, None]]


def test_threads_do_not_see_each_others_previous(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return [n, previous]

        return [kit.invoke(flow, n, {"configurable": {"thread_id": t}}) for n, t in ((1, "a"), (2, "b"), (3, "a"))]

    assert same(program) == [[1, None], [2, None], [3, [1, None]]]


def test_final_tells_what_is_returned_and_what_is_saved_apart(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None) -> kit.entrypoint.final[Any, Any]:
            return kit.entrypoint.final(value={"previous": previous}, save=n * 2)

        values = [kit.invoke(flow, n) for n in (1, 2, 3)]
        return [values, kit.state(flow).values, kit.stream(flow, 4, stream_mode=["updates", "values", "tasks"])]

    assert same(program)[0] == [{"previous": None}, {"previous": 2}, {"previous": 4}]


@pytest.mark.parametrize("save", [None, 0, "", []])
def test_final_may_save_falsy_values(same, save):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous: Any = None):
            return kit.entrypoint.final(value=[n, previous], save=save)

        return [kit.invoke(flow, n) for n in (1, 2)]

    assert same(program) == [[1, None], [2, save]]


def test_final_may_return_none(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return kit.entrypoint.final(value=None, save=(previous or 0) + 1)

        return [kit.invoke(flow, 1), kit.invoke(flow, 1), kit.state(flow).values]

    assert same(program) == [None, None, None]


def test_previous_follows_finished_runs_only(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            if n < 0:
                raise ValueError(n)
            return [n, previous]

        return [kit.attempt(flow, n) for n in (1, -1, 2)]

    assert same(program) == [[1, None], ("raised", {"error": "ValueError", "args": (-1,)}), [2, [1, None]]]


# ---------------------------------------------------------------- declarations


def test_generators_are_refused_as_flows(same):
    def program(kit):
        def flow(n):
            yield n

        with pytest.raises(NotImplementedError):
            kit.entrypoint()(flow)

    same(program)


def test_async_generators_are_refused_as_flows(same):
    def program(kit):
        async def flow(n):
            yield n

        with pytest.raises(NotImplementedError):
            kit.entrypoint()(flow)

    same(program)


def test_final_needs_two_types(same):
    def program(kit):
        with pytest.raises(TypeError):

            @kit.entrypoint()
            def flow(n) -> kit.entrypoint.final[int]:
                return n

    same(program)


def test_a_task_outside_a_flow_is_a_runtime_error(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        with pytest.raises(RuntimeError):
            double(1)
        return double.func(1)

    assert same(program) == 2


def test_interrupt_outside_a_flow_is_a_runtime_error(same):
    def program(kit):
        for ask in (lambda: kit.interrupt(1), kit.get_config, kit.get_store, kit.get_stream_writer):
            with pytest.raises(RuntimeError):
                ask()

    same(program)


def test_a_function_without_parameters_is_refused_by_langgraph_and_ignores_the_input_in_flowfn(both):
    """On purpose: a flow with no parameters ignores its input."""

    def program(kit):
        def flow():
            return 1

        try:
            return kit.invoke(kit.entrypoint()(flow), 5)
        except ValueError:
            return "refused"

    pair = both(program)
    assert (pair.theirs, pair.ours) == ("refused", 1)


def test_a_checkpointer_wants_a_thread(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return n

        for config in ({}, {"configurable": {}}, {"configurable": {"other": 1}}):
            with pytest.raises((ValueError, KeyError)):
                kit.invoke(flow, 1, config)

    same(program)


def test_no_input_on_a_new_thread_is_an_error(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return n

        return kit.attempt(flow, None)

    assert same(program) == ("raised", {"error": "EmptyInputError"})


def test_no_input_without_a_checkpointer_is_an_error(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n):
            return n

        return kit.attempt(flow, None)

    same(program)


def test_no_input_on_a_finished_thread_gives_the_last_value(same):
    def program(kit):
        runs = []

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            runs.append(n)
            return n * 2

        return [kit.invoke(flow, 1), kit.invoke(flow, None), runs]

    assert same(program) == [2, 2, [1]]


# ---------------------------------------------------------------- failures


def test_what_a_flow_raises_is_what_the_call_raises(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            raise ValueError("bad", n)

        return kit.attempt(flow, 1)

    assert same(program) == ("raised", {"error": "ValueError", "args": ("bad", 1)})


def test_what_a_task_raises_is_raised_by_its_result(same):
    def program(kit):
        @kit.task
        def fail(n):
            raise LookupError(n)

        @kit.entrypoint()
        def flow(n):
            return fail(n).result()

        return kit.attempt(flow, 1)

    assert same(program) == ("raised", {"error": "LookupError", "args": (1,)})


def test_a_caught_failure_of_a_task_lets_the_flow_go_on(same):
    def program(kit):
        @kit.task
        def fail(n):
            raise LookupError(n)

        @kit.task
        def fine(n):
            return n

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            try:
                fail(n).result()
            except LookupError as error:
                return fine(str(error)).result()

        return [kit.invoke(flow, 1), kit.state(flow), kit.stream(flow, 1)]

    assert same(program)[0] == "1"


def test_the_exception_of_a_task_can_be_looked_at(same):
    def program(kit):
        @kit.task
        def fail(n):
            raise LookupError(n)

        @kit.entrypoint()
        def flow(n):
            error = fail(n).exception()
            return [type(error).__name__, list(error.args)]

        return kit.invoke(flow, 1)

    assert same(program) == ["LookupError", [1]]


def test_a_failed_flow_goes_on_with_no_input(same):
    def program(kit):
        fail, runs = [True], []

        @kit.task
        def first(n):
            runs.append("first")
            return n + 1

        @kit.task
        def second(n):
            runs.append("second")
            if fail.pop() if fail else False:
                raise ConnectionError("down")
            return n * 10

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            runs.append("flow")
            return second(first(n).result()).result()

        broken = kit.attempt(flow, 1)
        return [broken, kit.state(flow).next, kit.invoke(flow, None), runs, kit.state(flow)]

    value = same(program)
    assert value[2:4] == [20, ["flow", "first", "second", "flow", "second"]]


def test_a_failed_thread_takes_new_input_and_starts_over(same):
    def program(kit):
        runs = []

        @kit.task
        def step(n):
            runs.append(n)
            return n

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            if step(n).result() < 0:
                raise ValueError(n)
            return [n, previous]

        return [kit.attempt(flow, -1), kit.invoke(flow, 1), runs, kit.state(flow)]

    assert same(program)[1:3] == [[1, None], [-1, 1]]


def test_siblings_of_a_failed_task_keep_their_results(same):
    def program(kit):
        fail, runs = [True], []
        done = threading.Event()

        @kit.task
        def fine(n):
            runs.append("fine")
            done.set()
            return n

        @kit.task
        def broken(n):
            done.wait(1)
            runs.append("broken")
            if fail:
                fail.clear()
                raise ConnectionError("down")
            return -n

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            a, b = fine(n), broken(n)
            return [a.result(), b.result()]

        return [kit.attempt(flow, 1), kit.invoke(flow, None), sorted(runs)]

    assert same(program)[1:] == [[1, -1], ["broken", "broken", "fine"]]


def test_a_failure_nobody_looked_at_is_swallowed_by_langgraph_and_raised_by_flowfn(both):
    """On purpose: a failed task that nobody looked at fails the run when the flow returns."""

    def program(kit):
        @kit.task
        def fail(n):
            raise LookupError(n)

        @kit.entrypoint()
        def flow(n):
            fail(n)
            return "done"

        return kit.attempt(flow, 1)

    pair = both(program)
    assert pair.theirs == "done"
    assert pair.ours == ("raised", {"error": "LookupError", "args": (1,)})


def test_a_handled_failure_runs_again_in_langgraph_and_is_history_in_flowfn(both):
    """On purpose: a failure that was handled is not tried again by a resume."""

    def program(kit):
        runs = []

        @kit.task
        def fail(n):
            runs.append(n)
            raise LookupError(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            try:
                fail(n).result()
            except LookupError:
                return kit.interrupt("go on?")

        kit.invoke(flow, 1)
        return [kit.invoke(flow, kit.Command(resume="yes")), runs]

    pair = both(program)
    assert pair.theirs == ["yes", [1, 1]]
    assert pair.ours == ["yes", [1]]


def test_a_recursion_limit_does_not_count_tasks(same):
    def program(kit):
        @kit.task
        def one(n):
            return n

        @kit.entrypoint()
        def flow(n):
            return sum(one(i).result() for i in range(n))

        return kit.invoke(flow, 10, {"recursion_limit": 1, "configurable": {"thread_id": "t"}})

    assert same(program) == 45


# ---------------------------------------------------------------- sync and async


@awaited
def test_async_flows_await_async_tasks(same):
    def program(kit):
        @kit.task
        async def double(n):
            await asyncio.sleep(0)
            return n * 2

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        async def flow(n, *, previous=None):
            return [await double(n), await asyncio.gather(*[double(i) for i in range(3)]), previous]

        return [kit.invoke(flow, 1), kit.invoke(flow, 2), kit.state(flow)]

    assert same(program)[0] == [2, [0, 2, 4], None]


@awaited
def test_async_flows_await_sync_tasks(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        async def flow(n):
            return [await double(n), await asyncio.gather(double(3), double(4))]

        return [kit.invoke(flow, 1), kit.stream(flow, 1)]

    assert same(program)[0] == [2, [6, 8]]


@awaited
def test_sync_flows_may_be_awaited(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [double(n).result(), double(n + 1).result()]

        return [kit.invoke(flow, 1), kit.stream(flow, 1), kit.state(flow)]

    assert same(program)[0] == [2, 4]


def test_sync_flows_cannot_call_async_tasks_in_langgraph_and_can_in_flowfn(both):
    """On purpose: sync flows may call async tasks (LangGraph allows it only under `ainvoke`)."""

    def program(kit):
        @kit.task
        async def double(n):
            return n * 2

        @kit.entrypoint()
        def flow(n):
            return double(n).result()

        return kit.attempt(flow, 1)

    pair = both(program)
    assert pair.theirs == 2 or pair.theirs[0] == "raised"
    assert pair.ours == 2


@pytest.mark.parametrize("way", ["blocking"], indirect=True)
def test_async_flows_run_only_awaited_in_langgraph_and_either_way_in_flowfn(both):
    """On purpose: `invoke` and `ainvoke` work on both kinds of function."""

    def program(kit):
        @kit.task
        async def double(n):
            return n * 2

        @kit.entrypoint()
        async def flow(n):
            return await double(n)

        return kit.attempt(flow, 1)

    pair = both(program)
    assert pair.theirs[1]["error"] == "TypeError"
    assert pair.ours == 2


@awaited
def test_async_tasks_may_call_tasks(same):
    def program(kit):
        @kit.task
        def leaf(n):
            return n + 1

        @kit.task
        async def branch(n):
            return await leaf(n) + await leaf(n * 10)

        @kit.entrypoint()
        async def flow(n):
            return await branch(n)

        return [kit.invoke(flow, 1), kit.stream(flow, 1)]

    assert same(program)[0] == 13


@awaited
def test_a_failure_of_an_async_task_can_be_caught(same):
    def program(kit):
        @kit.task
        async def fail(n):
            raise LookupError(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        async def flow(n):
            try:
                await fail(n)
            except LookupError as error:
                return ["caught", *error.args]

        return [kit.invoke(flow, 1), kit.stream(flow, 1)]

    assert same(program)[0] == ["caught", 1]


@awaited
def test_failures_are_collected_by_gather(same):
    def program(kit):
        @kit.task
        async def odd(n):
            if n % 2 == 0:
                raise ValueError(n)
            return n

        @kit.entrypoint()
        async def flow(n):
            found = await asyncio.gather(*[odd(i) for i in range(4)], return_exceptions=True)
            return [str(each) for each in found]

        return kit.invoke(flow, 0)

    assert same(program) == ["0", "1", "2", "3"]


@awaited
def test_a_failed_async_flow_goes_on_with_no_input(same):
    def program(kit):
        fail, runs = [True], []

        @kit.task
        async def first(n):
            runs.append("first")
            return n + 1

        @kit.task
        async def second(n):
            runs.append("second")
            if fail:
                fail.clear()
                raise ConnectionError("down")
            return n * 10

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        async def flow(n):
            return await second(await first(n))

        return [kit.attempt(flow, 1), kit.invoke(flow, None), runs]

    assert same(program)[1:] == [20, ["first", "second", "second"]]


# ---------------------------------------------------------------- what is injected


def test_the_config_of_the_call_can_be_asked_for(same):
    def program(kit):
        def shown(config):
            inner = {k: v for k, v in config["configurable"].items() if not k.startswith(("__", "checkpoint"))}
            metadata = {
                k: v for k, v in config["metadata"].items() if not k.startswith(("langgraph", "checkpoint", "ls_"))
            }
            return [inner, metadata, list(config["tags"])]

        @kit.task
        def inside(n, config: kit.Config):
            return [shown(config), shown(kit.get_config())]

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, config: kit.Config):
            return [shown(config), shown(kit.get_config()), inside(n).result()]

        given = {
            "configurable": {"thread_id": "t", "user": "ada"},
            "metadata": {"team": "x"},
            "tags": ["a"],
        }
        return kit.invoke(flow, 1, given)

    same(program)


def test_the_thread_is_metadata_of_the_config_inside(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return kit.get_config()["metadata"].get("thread_id")

        return kit.invoke(flow, 1)

    same(program)


def test_context_is_injected_through_the_runtime(same):
    @dataclass
    class Context:
        user: str

    def program(kit):
        @kit.task
        def inside(n, runtime: kit.Runtime[Context]):
            return [runtime.context.user, kit.get_runtime(Context).context.user]

        @kit.entrypoint(context_schema=Context)
        def flow(n, runtime: kit.Runtime[Context]):
            return [runtime.context.user, runtime.previous, inside(n).result()]

        return [kit.invoke(flow, 1, context=Context("ada"))]

    assert same(program) == [["ada", None, ["ada", "ada"]]]


def test_a_dict_as_context_is_made_into_the_schema(same):
    @dataclass
    class Context:
        user: str

    def program(kit):
        @kit.entrypoint(context_schema=Context)
        def flow(n, runtime: kit.Runtime[Context]):
            return [type(runtime.context).__name__, runtime.context.user]

        return kit.invoke(flow, 1, context={"user": "ada"})

    assert same(program) == ["Context", "ada"]


def test_the_runtime_knows_previous_and_ids(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, runtime: kit.Runtime):
            info = runtime.execution_info
            return [n, runtime.previous, info.thread_id, info.node_attempt, bool(info.task_id)]

        return [kit.invoke(flow, n) for n in (1, 2)]

    same(program)


def test_the_store_is_injected(same):
    def program(kit):
        @kit.task
        def remember(n, store: kit.Store):
            store.put(("numbers",), str(n), {"n": n})
            return len(kit.get_store().search(("numbers",)))

        @kit.entrypoint(store=kit.InMemoryStore())
        def flow(n, *, store: kit.Store):
            count = remember(n).result()
            return [count, store.get(("numbers",), str(n)).value]

        return [kit.invoke(flow, n) for n in (1, 2)]

    assert same(program) == [[1, {"n": 1}], [2, {"n": 2}]]


def test_a_required_store_is_none_where_there_is_none(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n, *, store: kit.Store):
            return store is None

        return kit.invoke(flow, 1)

    same(program)


def test_an_explicit_store_or_writer_wins_over_the_injected_one(same):
    def program(kit):
        @kit.task
        def inside(n, store: kit.Store = None, writer: kit.StreamWriter = None):
            return [store, writer]

        @kit.entrypoint(store=kit.InMemoryStore())
        def flow(n):
            return [inside(n, store=None, writer=None).result(), inside(n, store="mine", writer="too").result()]

        return kit.invoke(flow, 1)

    assert same(program) == [[None, None], ["mine", "too"]]


# ---------------------------------------------------------------- caches


def test_a_cached_task_runs_once_over_threads(same):
    def program(kit):
        runs = []

        @kit.task(cache_policy=kit.CachePolicy())
        def double(n):
            runs.append(n)
            return n * 2

        @kit.entrypoint(cache=kit.InMemoryCache())
        def flow(n):
            return double(n).result()

        return [kit.invoke(flow, 1), kit.invoke(flow, 1), kit.invoke(flow, 2), runs]

    assert same(program)[3] == [1, 2]


def test_a_cache_is_cleared_by_its_task(same):
    def program(kit):
        runs = []
        cache = kit.InMemoryCache()

        @kit.task(cache_policy=kit.CachePolicy())
        def double(n):
            runs.append(n)
            return n * 2

        @kit.entrypoint(cache=cache)
        def flow(n):
            return double(n).result()

        kit.invoke(flow, 1)
        double.clear_cache(cache)
        return [kit.invoke(flow, 1), runs]

    assert same(program) == [2, [1, 1]]


def test_the_key_function_of_a_cache_names_the_entry(same):
    def program(kit):
        runs = []

        @kit.task(cache_policy=kit.CachePolicy(key_func=lambda n, m: str(n)))
        def pair(n, m):
            runs.append((n, m))
            return [n, m]

        @kit.entrypoint(cache=kit.InMemoryCache())
        def flow(n):
            return pair(1, n).result()

        return [kit.invoke(flow, 1), kit.invoke(flow, 2), len(runs)]

    assert same(program) == [[1, 1], [1, 1], 1]
