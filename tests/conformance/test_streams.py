"""What a watcher of a functional flow sees, in every mode: equal on both libraries.

Several modes at once are compared mode by mode, since LangGraph itself keeps no fixed order between them; the order
within a mode is compared exactly, for flows that wait for one task after another.
"""

import asyncio
import threading

import pytest

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)
MODES = ["values", "updates", "custom", "tasks", "checkpoints", "debug"]
each_mode = pytest.mark.parametrize("mode", MODES)


def two_steps(kit, **options):
    """A flow of two tasks, one after the other, that both write to the custom stream."""

    @kit.task
    def first(n):
        kit.get_stream_writer()({"from": "first", "n": n})
        return n + 1

    @kit.task
    def second(n, writer: kit.StreamWriter):
        writer(["second", n])
        return n * 10

    @kit.entrypoint(**options)
    def flow(n, *, writer: kit.StreamWriter):
        writer("begin")
        found = second(first(n).result()).result()
        writer("end")
        return {"found": found}

    return flow


def asking(kit):
    """A flow with a task, a question, a task and a second question."""

    @kit.task
    def draft(n):
        return f"draft {n}"

    @kit.task
    def mend(text):
        return f"{text}!"

    @kit.entrypoint(checkpointer=kit.InMemorySaver())
    def flow(n):
        kit.get_stream_writer()("begin")
        text = draft(n).result()
        first = kit.interrupt({"text": text})
        text = mend(text).result()
        second = kit.interrupt({"text": text})
        return [text, first, second]

    return flow


def failing(kit):
    @kit.task
    def fine(n):
        return n

    @kit.task
    def fail(n):
        kit.get_stream_writer()("about to fail")
        raise LookupError(n)

    @kit.entrypoint(checkpointer=kit.InMemorySaver())
    def flow(n):
        fine(n).result()
        return fail(n).result()

    return flow


def nested(kit):
    @kit.task
    def inner(n):
        kit.get_stream_writer()("inner")
        return n * 2

    @kit.entrypoint()
    def child(n):
        return inner(n).result() + 1

    @kit.entrypoint(checkpointer=kit.InMemorySaver())
    def parent(n):
        return child.invoke(n) + 1

    return parent


# ---------------------------------------------------------------- one mode


@each_mode
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_finished_run_streams_alike(same, mode, version):
    def program(kit):
        flow = two_steps(kit, checkpointer=kit.InMemorySaver())
        return [
            kit.stream(flow, 1, stream_mode=mode, version=version),
            kit.stream(flow, 2, stream_mode=mode, version=version),
        ]

    same(program)


@each_mode
def test_a_run_without_a_checkpointer_streams_alike(same, mode):
    same(lambda kit: kit.stream(two_steps(kit), 1, stream_mode=mode))


def test_the_default_mode_of_a_flow_is_updates(same):
    value = same(lambda kit: kit.stream(two_steps(kit), 1))
    assert value == [{"first": 2}, {"second": 20}, {"flow": {"found": 20}}]


def test_v2_wraps_every_mode(same):
    def program(kit):
        return kit.stream(two_steps(kit), 1, version="v2")

    assert same(program)[0] == {"type": "updates", "ns": (), "data": {"first": 2}}


@each_mode
def test_a_list_of_one_mode_names_it(same, mode):
    same(lambda kit: kit.stream(two_steps(kit, checkpointer=kit.InMemorySaver()), 1, stream_mode=[mode]))


@each_mode
def test_subgraphs_put_the_namespace_in_front(same, mode):
    same(lambda kit: kit.stream(two_steps(kit), 1, stream_mode=mode, subgraphs=True))


@each_mode
def test_subgraphs_put_the_namespace_in_front_of_several_modes(same, mode):
    same(lambda kit: kit.stream(two_steps(kit), 1, stream_mode=[mode], subgraphs=True))


@each_mode
def test_subgraphs_in_v2(same, mode):
    same(lambda kit: kit.stream(two_steps(kit), 1, stream_mode=mode, subgraphs=True, version="v2"))


def test_an_unknown_mode_is_an_error_in_flowfn_and_silence_in_langgraph(both):
    """What cannot be meant is refused (STYLE, errors); LangGraph streams nothing."""

    def program(kit):
        return kit.stream(two_steps(kit), 1, stream_mode="nonsense")

    pair = both(program)
    assert pair.theirs == []
    assert pair.ours == [("raised", {"error": "ConfigError"})]


# ---------------------------------------------------------------- several modes


def by_mode(chunks):
    found = {}
    for chunk in chunks:
        found.setdefault(chunk[0], []).append(chunk[1])
    return found


def test_several_modes_at_once_show_what_each_shows_alone(same):
    def program(kit):
        return by_mode(kit.stream(two_steps(kit, checkpointer=kit.InMemorySaver()), 1, stream_mode=MODES))

    assert sorted(same(program)) == sorted(MODES)


@pytest.mark.parametrize("modes", [["values", "updates"], ["updates", "custom"], ["tasks", "custom"]])
def test_two_modes_come_in_one_order(same, modes):
    same(lambda kit: kit.stream(two_steps(kit), 1, stream_mode=modes))


def test_a_task_is_updated_before_its_end_is_told(same):
    same(lambda kit: kit.stream(two_steps(kit), 1, stream_mode=["updates", "tasks"]))


def test_the_final_value_comes_before_the_final_checkpoint(same):
    def program(kit):
        flow = two_steps(kit, checkpointer=kit.InMemorySaver())
        return kit.stream(flow, 1, stream_mode=["values", "checkpoints", "updates"])

    same(program)


# ---------------------------------------------------------------- invoke


@each_mode
def test_invoke_with_a_mode_gives_the_chunks(same, mode):
    same(lambda kit: kit.invoke(two_steps(kit), 1, stream_mode=mode))


def test_invoke_with_several_modes_gives_the_chunks_of_all(same):
    def program(kit):
        return kit.invoke(two_steps(kit), 1, stream_mode=["values", "custom"])

    assert same(program)[-1] == ("values", {"found": 20})


def test_invoke_v2_gives_value_and_interrupts(same):
    def program(kit):
        flow = asking(kit)
        return [
            kit.invoke(two_steps(kit), 1, version="v2"),
            kit.invoke(flow, 1, version="v2"),
            kit.invoke(flow, kit.Command(resume="a"), version="v2"),
            kit.invoke(flow, kit.Command(resume="b"), version="v2"),
        ]

    same(program)


def test_invoke_v2_with_a_mode_gives_parts(same):
    same(lambda kit: kit.invoke(two_steps(kit), 1, stream_mode="updates", version="v2"))


# ---------------------------------------------------------------- values


def test_values_come_once_at_the_end(same):
    def program(kit):
        return kit.stream(two_steps(kit), 1, stream_mode="values")

    assert same(program) == [{"found": 20}]


def test_values_of_a_second_run_come_once_too(same):
    def program(kit):
        flow = two_steps(kit, checkpointer=kit.InMemorySaver())
        kit.invoke(flow, 1)
        return kit.stream(flow, 2, stream_mode="values")

    same(program)


def test_no_input_on_a_finished_thread_streams_alike(same):
    def program(kit):
        flow = two_steps(kit, checkpointer=kit.InMemorySaver())
        kit.invoke(flow, 1)
        return [kit.stream(flow, None, stream_mode=mode) for mode in MODES]

    same(program)


# ---------------------------------------------------------------- updates


def test_updates_come_in_the_order_in_which_tasks_finish(same):
    def program(kit):
        fast_is_done = threading.Event()

        @kit.task
        def slow(n):
            fast_is_done.wait(1)
            threading.Event().wait(0.05)
            return n

        @kit.task
        def fast(n):
            fast_is_done.set()
            return n * 2

        @kit.entrypoint()
        def flow(n):
            a, b = slow(n), fast(n)
            return a.result() + b.result()

        return kit.stream(flow, 1)

    assert same(program) == [{"fast": 2}, {"slow": 1}, {"flow": 3}]


def test_a_failed_task_gives_no_update(same):
    def program(kit):
        @kit.task
        def fail(n):
            raise LookupError(n)

        @kit.entrypoint()
        def flow(n):
            try:
                fail(n).result()
            except LookupError:
                return "caught"

        return kit.stream(flow, 1)

    assert same(program) == [{"flow": "caught"}]


def test_updates_show_none_and_dicts_as_they_are(same):
    def program(kit):
        @kit.task
        def give(value):
            return value

        @kit.entrypoint()
        def flow(n):
            return [give(v).result() for v in (None, {"a": 1}, [1], 0, "")][-1]

        return kit.stream(flow, 1)

    same(program)


@awaited
def test_updates_of_async_tasks_come_in_the_order_in_which_they_finish(same):
    def program(kit):
        @kit.task
        async def wait(n):
            await asyncio.sleep(n / 50)
            return n

        @kit.entrypoint()
        async def flow(n):
            return await asyncio.gather(*[wait(i) for i in (3, 1, 2)])

        return kit.stream(flow, 1)

    assert same(program) == [{"wait": 1}, {"wait": 2}, {"wait": 3}, {"flow": [3, 1, 2]}]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_cache_hit_is_marked_in_updates(same, version):
    def program(kit):
        @kit.task(cache_policy=kit.CachePolicy())
        def double(n):
            return n * 2

        @kit.entrypoint(cache=kit.InMemoryCache())
        def flow(n):
            return double(n).result()

        return [kit.stream(flow, 1, version=version), kit.stream(flow, 1, version=version)]

    same(program)


def test_a_cache_hit_has_a_start_without_an_end_in_langgraph_and_both_in_flowfn(both):
    """On purpose: a cache hit has an end as well, and is visible."""

    def program(kit):
        @kit.task(cache_policy=kit.CachePolicy())
        def double(n):
            return n * 2

        @kit.entrypoint(cache=kit.InMemoryCache())
        def flow(n):
            return double(n).result()

        kit.invoke(flow, 1)
        return [(e["name"], "result" in e) for e in kit.stream(flow, 1, stream_mode="tasks")]

    pair = both(program)
    assert pair.theirs == [("flow", False), ("double", False), ("flow", True)]
    assert pair.ours == [("flow", False), ("double", True), ("flow", True)]


# ---------------------------------------------------------------- custom


def test_custom_chunks_are_bare(same):
    def program(kit):
        return kit.stream(two_steps(kit), 1, stream_mode="custom")

    assert same(program) == ["begin", {"from": "first", "n": 1}, ["second", 2], "end"]


def test_custom_chunks_may_be_falsy(same):
    def program(kit):
        @kit.entrypoint()
        def flow(n):
            for chunk in (0, "", {}, [], False):
                kit.get_stream_writer()(chunk)

        return kit.stream(flow, 1, stream_mode="custom")

    assert same(program) == [0, "", {}, [], False]


def test_writing_without_a_watcher_is_nothing(same):
    def program(kit):
        return [kit.invoke(two_steps(kit), 1), kit.stream(two_steps(kit), 1, stream_mode="updates")]

    same(program)


def test_the_namespace_of_custom_chunks_is_the_entrypoints_task(same):
    def program(kit):
        return kit.stream(two_steps(kit), 1, stream_mode=["tasks", "custom"], version="v2")

    same(program)


@awaited
def test_async_tasks_write_to_the_custom_stream(same):
    def program(kit):
        @kit.task
        async def step(n, writer: kit.StreamWriter):
            writer(n)
            kit.get_stream_writer()(n + 1)

        @kit.entrypoint()
        async def flow(n):
            await step(n)

        return kit.stream(flow, 1, stream_mode="custom")

    assert same(program) == [1, 2]


# ---------------------------------------------------------------- tasks


def test_tasks_show_metadata_and_tags_of_the_call(same):
    def program(kit):
        config = {"configurable": {"thread_id": "t"}, "metadata": {"team": "x"}, "tags": ["a"]}
        return kit.stream(two_steps(kit), 1, config, stream_mode="tasks")

    same(program)


def test_parallel_tasks_show_every_start_and_end(same):
    def program(kit):
        @kit.task
        def double(n):
            return n * 2

        @kit.entrypoint()
        def flow(n):
            return sum(f.result() for f in [double(i) for i in range(3)])

        events = kit.stream(flow, 1, stream_mode="tasks")
        return sorted(
            str({k: v for k, v in e.items() if k not in ("id", "interrupts")}) for e in events if e["name"] == "double"
        )

    assert len(same(program)) == 6


def test_the_end_of_a_task_has_the_id_of_its_start(same):
    def program(kit):
        events = kit.stream(two_steps(kit), 1, stream_mode="tasks")
        return [(e["name"], e["id"]) for e in events]

    same(program)


# ---------------------------------------------------------------- checkpoints and metadata


def test_checkpoints_carry_what_the_config_says_of_the_call(same):
    def program(kit):
        config = {"configurable": {"thread_id": "t", "user": "ada"}, "metadata": {"team": "x", "n": 3}, "tags": ["a"]}
        flow = two_steps(kit, checkpointer=kit.InMemorySaver())
        return kit.stream(flow, 1, config, stream_mode="checkpoints")

    same(program)


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize("mode", ["values", "updates", "custom", "checkpoints"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_question_streams_alike(same, mode, version):
    def program(kit):
        return kit.stream(asking(kit), 1, stream_mode=mode, version=version)

    same(program)


@pytest.mark.parametrize("mode", ["tasks", "debug"])
def test_a_question_ends_the_tasks_alike(same, mode):
    same(lambda kit: kit.stream(asking(kit), 1, stream_mode=mode))


@pytest.mark.parametrize("mode", ["values", "updates", "custom", "checkpoints"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_resumed_run_streams_alike(same, mode, version):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, 1)
        return [
            kit.stream(flow, kit.Command(resume="a"), stream_mode=mode, version=version),
            kit.stream(flow, kit.Command(resume="b"), stream_mode=mode, version=version),
        ]

    same(program)


def test_memoized_tasks_start_again_in_langgraph_and_do_not_in_flowfn(both):
    """On purpose: memoized calls do not claim to have started."""

    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, 1)
        events = kit.stream(flow, kit.Command(resume="a"), stream_mode="tasks")
        return [(e["name"], "end" if "result" in e else "start") for e in events]

    pair = both(program)
    mended = [("mend", "start"), ("mend", "end"), ("flow", "end")]
    assert pair.theirs == [("flow", "start"), ("draft", "start"), *mended]
    assert pair.ours == [("flow", "start"), *mended]


def test_what_a_resumed_run_does_anew_streams_alike_in_tasks(same):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, 1)
        return [e for e in kit.stream(flow, kit.Command(resume="a"), stream_mode="tasks") if e["name"] != "draft"]

    same(program)


def test_a_question_inside_a_task_streams_alike(same):
    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt({"n": n})

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ask(n).result()

        first = {m: kit.stream(flow, 1, {"configurable": {"thread_id": m}}, stream_mode=m) for m in MODES[:3]}
        then = {
            m: kit.stream(flow, kit.Command(resume="yes"), {"configurable": {"thread_id": m}}, stream_mode=m)
            for m in MODES[:3]
        }
        return [first, then]

    same(program)


def test_a_question_inside_a_task_ends_task_and_flow_with_it(same):
    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt({"n": n})

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ask(n).result()

        return kit.stream(flow, 1, stream_mode="tasks")

    same(program)


def test_invoke_gives_questions_as_a_list(same):
    def program(kit):
        return kit.invoke(asking(kit), 1)

    assert list(same(program)) == ["__interrupt__"]


# ---------------------------------------------------------------- failures


@each_mode
def test_what_came_before_a_failure_is_streamed_and_then_it_is_raised(same, mode):
    def program(kit):
        return kit.stream(failing(kit), 1, stream_mode=mode)

    assert same(program)[-1] == ("raised", {"error": "LookupError", "args": (1,)})


@pytest.mark.parametrize("mode", ["values", "updates", "custom", "checkpoints"])
def test_a_second_try_after_a_failure_streams_alike(same, mode):
    def program(kit):
        flow = failing(kit)
        kit.attempt(flow, 1)
        return kit.stream(flow, None, stream_mode=mode)

    same(program)


# ---------------------------------------------------------------- nested flows


@each_mode
def test_nested_flows_are_invisible_without_subgraphs(same, mode):
    same(lambda kit: kit.stream(nested(kit), 1, stream_mode=mode))


@pytest.mark.parametrize("mode", ["values", "updates", "custom", "tasks", "checkpoints", "debug"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_nested_flows_stream_alike_with_subgraphs(same, mode, version):
    same(lambda kit: kit.stream(nested(kit), 1, stream_mode=mode, subgraphs=True, version=version))


def test_the_namespace_of_a_nested_flow_names_the_task_that_called_it(same):
    def program(kit):
        return kit.stream(nested(kit), 1, stream_mode=["tasks", "updates"], subgraphs=True)

    same(program)


def test_a_nested_flow_called_in_a_task_has_the_tasks_namespace(same):
    def program(kit):
        @kit.entrypoint()
        def child(n):
            return n + 1

        @kit.task
        def call(n):
            return child.invoke(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def parent(n):
            return call(n).result()

        return kit.stream(parent, 1, subgraphs=True)

    same(program)


def test_a_second_nested_flow_in_one_body_streams_alike(same):
    def program(kit):
        @kit.entrypoint()
        def child(n):
            return n + 1

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def parent(n):
            return child.invoke(n) + child.invoke(n + 1)

        found = kit.stream(parent, 1, subgraphs=True)
        return [[len(ns), chunk] for ns, chunk in found]

    same(program)


def test_a_question_in_a_nested_flow_streams_alike(same):
    def program(kit):
        @kit.task
        def step(n):
            return n * 2

        @kit.entrypoint()
        def child(n):
            return [step(n).result(), kit.interrupt("go on?")]

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def parent(n):
            return child.invoke(n)

        return [
            kit.stream(parent, 1, subgraphs=True),
            kit.stream(parent, kit.Command(resume="yes"), subgraphs=True),
        ]

    same(program)


def test_a_finished_nested_flow_does_not_run_again(same):
    def program(kit):
        runs = []

        @kit.entrypoint()
        def child(n):
            runs.append(n)
            return n + 1

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def parent(n):
            return [child.invoke(n), kit.interrupt("go on?")]

        return [kit.invoke(parent, 1), kit.invoke(parent, kit.Command(resume="yes")), runs]

    assert same(program)[1:] == [[2, "yes"], [1]]


@awaited
def test_async_nested_flows_stream_alike(same):
    def program(kit):
        @kit.task
        async def inner(n):
            return n * 2

        @kit.entrypoint()
        async def child(n):
            return await inner(n) + 1

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        async def parent(n):
            return await child.ainvoke(n) + 1

        return kit.stream(parent, 1, subgraphs=True, stream_mode=["updates", "values"])

    same(program)
