"""How a flow and its tasks take their arguments, and what is refused with a sentence that says what to do."""

import asyncio
import copy
import pickle

import pytest

import flowfn
from flowfn import Config, Runtime, StreamWriter, entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import (
    CallArgumentsError,
    EntrypointSignatureError,
    FinalAnnotationError,
    FlowCalledError,
    ForeignThreadError,
    NotATaskError,
    NoThreadError,
    OutsideFlowError,
)

CONFIG = {"thread_id": "t"}


@pytest.fixture(params=["sync", "async"])
def call(request):
    def call(flow, given, config=CONFIG):
        return flow.invoke(given, config) if request.param == "sync" else asyncio.run(flow.ainvoke(given, config))

    return call


# ---------------------------------------------------------------- the input


def none():
    return "ran"


def one(x):
    return x


def optional(x=5):
    return x


def named(*, x):
    return x


def two(a, b):
    return a, b


def two_one_default(a, b=2):
    return a, b


def keyword_only(a, *, b=3):
    return a, b


def positional_only(a, b, /):
    return a, b


def all_default(a=1, b=2):
    return a, b


INPUTS = [
    (none, {"a": 1}, "ran"),
    (none, 5, "ran"),
    (one, 5, 5),
    (one, {"x": 5}, {"x": 5}),
    (one, {"y": 5}, {"y": 5}),
    (one, False, False),
    (one, [], []),
    (optional, 7, 7),
    (named, 5, 5),
    (two, {"a": 1, "b": 2}, (1, 2)),
    (two_one_default, {"a": 1}, (1, 2)),
    (two_one_default, {"a": 1, "b": 5}, (1, 5)),
    (two_one_default, 5, (5, 2)),
    (two_one_default, {"c": 1}, ({"c": 1}, 2)),
    (two_one_default, {"b": 1}, ({"b": 1}, 2)),
    (two_one_default, {"a": 1, "c": 1}, ({"a": 1, "c": 1}, 2)),
    (keyword_only, {"a": 1, "b": 4}, (1, 4)),
    (keyword_only, 1, (1, 3)),
    (positional_only, {"a": 1, "b": 2}, (1, 2)),
    (all_default, {"b": 5}, (1, 5)),
]


@pytest.mark.parametrize(("fn", "given", "expected"), INPUTS)
def test_an_input_becomes_arguments(fn, given, expected, call):
    assert call(entrypoint(fn), given, None) == expected


@pytest.mark.parametrize("given", [5, {"a": 1}, {"a": 1, "b": 2, "c": 3}, [1, 2]], ids=repr)
def test_several_required_parameters_want_a_mapping_that_names_them(given, call):
    with pytest.raises(EntrypointSignatureError) as caught:
        call(entrypoint(two), given, None)
    assert "`a`, `b`" in str(caught.value)


def test_an_entrypoint_works_as_a_method():
    class Service:
        def __init__(self, n):
            self.n = n

        @entrypoint(checkpointer=InMemorySaver())
        def flow(self, x):
            return self.n + x

        @entrypoint
        async def aflow(self, x):
            return self.n * x

    first, second = Service(1), Service(2)
    assert first.flow.invoke(10, CONFIG) == 11
    assert second.flow.invoke(10, CONFIG) == 12
    assert asyncio.run(second.aflow.ainvoke(10)) == 20


@pytest.mark.parametrize("save", [None, 0, "", {"a": 1}], ids=repr)
def test_final_tells_apart_what_is_returned_and_what_the_next_run_sees(save, call):
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x, previous) -> entrypoint.final[int, object]:
        return entrypoint.final(value=[x, previous], save=save)

    assert call(flow, 1) == [1, None]
    assert call(flow, 2) == [2, save]


@pytest.mark.parametrize("value", [0, "", [], False], ids=repr)
def test_previous_keeps_falsy_values(value, call):
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x, previous):
        return previous if x == "look" else value

    call(flow, "leave")
    assert call(flow, "look") == value


def test_previous_has_its_own_default_on_the_first_run_only(call):
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x, previous=10):
        return (previous or 0) + x

    assert call(flow, 1) == 11
    assert call(flow, 1) == 12


def test_previous_follows_finished_runs_only(call):
    @entrypoint(checkpointer=InMemorySaver())
    def flow(x, previous):
        if x == "fail":
            raise ValueError
        return [x, previous]

    call(flow, 1)
    with pytest.raises(ValueError):
        call(flow, "fail")
    assert call(flow, 2) == [2, [1, None]]


def test_a_wrong_annotation_of_final_is_refused():
    with pytest.raises((FinalAnnotationError, TypeError)):

        @entrypoint
        def flow(x) -> entrypoint.final[int]:
            return x


# ---------------------------------------------------------------- refusals


def gen(x):
    yield x


async def agen(x):
    yield x


class Generating:
    def __call__(self, x):
        yield x


@pytest.mark.parametrize("fn", [gen, agen, Generating()], ids=["generator", "async generator", "callable object"])
@pytest.mark.parametrize("decorate", [task, entrypoint, task(name="x"), entrypoint(name="x")])
def test_generators_are_refused_at_decoration_with_advice(fn, decorate):
    with pytest.raises(NotATaskError, match="list"):
        decorate(fn)


def test_calling_a_flow_says_what_to_call_instead():
    flow = entrypoint(one)
    with pytest.raises(FlowCalledError) as caught:
        flow(1)
    assert ".run" in str(caught.value)
    assert ".func" in str(caught.value)
    assert flow.func(1) == 1


def test_calling_a_task_outside_a_flow_says_what_to_call_instead():
    work = task(one)
    with pytest.raises(OutsideFlowError, match=r"\.func"):
        work(1)
    assert work.func(1) == 1


@pytest.mark.parametrize("what", [flowfn.interrupt, flowfn.record, flowfn.approve])
def test_asking_and_recording_outside_a_flow_explain_themselves(what):
    with pytest.raises(OutsideFlowError):
        what(print)
    with pytest.raises(OutsideFlowError):
        flowfn.get_config()


@pytest.mark.parametrize("config", [None, {}, {"configurable": {}}])
def test_a_checkpointer_without_a_thread_is_an_error(config, call):
    flow = entrypoint(checkpointer=InMemorySaver())(one)
    with pytest.raises(NoThreadError, match="thread_id"):
        call(flow, 1, config)


def test_a_thread_belongs_to_its_flow_and_is_found_under_an_old_name(call):
    saver = InMemorySaver()
    call(entrypoint(checkpointer=saver, name="old")(one), 1)
    with pytest.raises(ForeignThreadError, match="old"):
        call(entrypoint(checkpointer=saver)(two_one_default), 1)
    assert call(entrypoint(checkpointer=saver, name="old")(two_one_default), 1) == (1, 2)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"c": 1}), ((1,), {"a": 1})])
def test_wrong_arguments_of_a_task_are_one_clear_error_at_the_call(args, kwargs, call, caplog):
    work = task(two_one_default)

    @entrypoint
    def flow(x):
        with pytest.raises(CallArgumentsError, match="two_one_default"):
            work(*args, **kwargs)
        return "told"

    assert call(flow, 1, None) == "told"
    assert caplog.records == []


# ---------------------------------------------------------------- injection


def test_what_the_runtime_brings_comes_where_it_is_annotated(call):
    @task
    def work(x, config: Config, runtime: Runtime, writer: StreamWriter):
        writer("chunk")
        return config["configurable"]["thread_id"], runtime.execution_info.thread_id, x

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x, *, config: Config, runtime: Runtime, writer: StreamWriter):
        writer("chunk")
        return [work(x).result(), config["configurable"]["thread_id"], runtime.execution_info.thread_id]

    assert call(flow, 1) == [("t", "t", 1), "t", "t"]


def test_parameters_of_those_names_without_the_annotation_are_the_users(call):
    @task
    def work(config, store=2, writer=3, runtime=4, previous=5):
        return config, store, writer, runtime, previous

    @entrypoint
    def flow(config):
        return [config, work(config).result(), work(config="c", store="s").result()]

    assert call(flow, 1, None) == [1, (1, 2, 3, 4, 5), ("c", "s", 3, 4, 5)]


@pytest.mark.parametrize("way", ["by place", "by name"])
def test_an_explicit_argument_wins_over_what_the_runtime_brings(way, call):
    @task
    def work(x, config: Config = None):
        return config

    @entrypoint
    def flow(x):
        return (work(1, {"mine": 1}) if way == "by place" else work(1, config={"mine": 1})).result()

    assert call(flow, 1, None) == {"mine": 1}


def test_a_context_reaches_tasks_through_their_runtime(call):
    @task
    def work(x, runtime: Runtime):
        return runtime.context["user"]

    @entrypoint
    def flow(x, runtime: Runtime):
        return [runtime.context["user"], work(1).result()]

    assert flow.invoke(1, context={"user": "eve"}) == ["eve", "eve"]


# ---------------------------------------------------------------- tasks as objects


@task
def module_task(x):
    """Doubles."""
    return 2 * x


def test_a_task_keeps_name_signature_and_documentation():
    import inspect

    assert (module_task.__name__, module_task.__doc__) == ("module_task", "Doubles.")
    assert list(inspect.signature(module_task).parameters) == ["x"]
    assert not inspect.iscoroutinefunction(module_task)


def test_tasks_can_be_copied_and_pickled():
    import cloudpickle

    assert copy.copy(module_task) is module_task
    assert copy.deepcopy([module_task])[0] is module_task
    again = cloudpickle.loads(cloudpickle.dumps(task(lambda x: 3 * x)))
    assert again.func(2) == 6


def test_a_task_of_a_module_is_pickled_by_name(tmp_path, monkeypatch):
    (tmp_path / "a_module_of_tasks.py").write_text("from flowfn import task\n@task\ndef work(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import a_module_of_tasks

    assert pickle.loads(pickle.dumps(a_module_of_tasks.work)) is a_module_of_tasks.work


def test_options_make_another_task_and_leave_the_first(call):
    other = module_task.with_options(name="renamed", inline=False)

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return [module_task(x).result(), other(x).result()]

    assert call(flow, 2) == [4, 4]
    assert [c.name.rpartition(".")[2] for c in flow.thread("t").calls()] == ["module_task", "renamed"]
