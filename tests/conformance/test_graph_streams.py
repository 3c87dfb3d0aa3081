"""What a watcher of a graph sees, in every mode: equal on both libraries.

Nodes that run at once are told when they finish, in no order that a program could rely on; of those, only the chunks
of a mode are compared, sorted by node.
"""

import asyncio
import operator
from typing import Annotated

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from typing_extensions import TypedDict

MODES = ["values", "updates", "tasks", "checkpoints", "debug", "custom"]
each_mode = pytest.mark.parametrize("mode", MODES)
each_version = pytest.mark.parametrize("version", ["v1", "v2"])


class Log(TypedDict):
    log: Annotated[list, operator.add]
    last: str


def step(kit, name):
    """A node that tells the custom stream its name, and logs it."""

    def run(state):
        kit.get_stream_writer()(name)
        return {"log": [name], "last": name}

    return run


def line(kit, is_kept=True, **options):
    """a → b → c."""
    options = {**({"checkpointer": kit.InMemorySaver()} if is_kept else {}), **options}
    return kit.graph(Log, {name: step(kit, name) for name in "abc"}, "start a b c end", **options)


def fan(kit, fail=()):
    """a → (b, c) → d; c raises while `fail` has something, once the writes of b are kept."""

    def node(name):
        def run(state):
            if name == "c" and fail:
                kit.wait_for(flow, "b")
                raise LookupError("c")
            return {"log": [name]}

        return run

    flow = kit.graph(Log, {n: node(n) for n in "abcd"}, "start a b d", "a c d", checkpointer=kit.InMemorySaver())
    return flow


def asking(kit):
    """a → ask → c, with two questions."""

    def ask(state):
        kit.get_stream_writer()("asking")
        return {"log": [kit.interrupt("first"), kit.interrupt("second")]}

    nodes = {"a": step(kit, "a"), "ask": ask, "c": step(kit, "c")}
    return kit.graph(Log, nodes, "start a ask c", checkpointer=kit.InMemorySaver())


def failing(kit, fail):
    """a → b, where b raises while there is something in `fail`."""

    def flaky(state):
        kit.get_stream_writer()("about to fail")
        if fail:
            raise LookupError("b")
        return {"log": ["b"]}

    return kit.graph(Log, {"a": step(kit, "a"), "b": flaky}, "start a b", checkpointer=kit.InMemorySaver())


# ---------------------------------------------------------------- one mode


@each_mode
@each_version
@pytest.mark.parametrize("is_kept", [True, False], ids=["saver", "memoryless"])
def test_a_finished_run_streams_alike(same, mode, version, is_kept):
    def program(kit):
        flow = line(kit, is_kept)
        return [kit.stream(flow, {"log": [n]}, stream_mode=mode, version=version) for n in (1, 2)]

    same(program)


@each_mode
@each_version
@pytest.mark.parametrize("is_listed", [True, False])
def test_namespaces_in_front(same, mode, version, is_listed):
    def program(kit):
        modes = [mode] if is_listed else mode
        return kit.stream(line(kit), {"log": []}, stream_mode=modes, version=version, subgraphs=True)

    same(program)


@each_version
def test_the_default_mode_of_a_graph_is_updates(same, version):
    value = same(lambda kit: kit.stream(line(kit), {"log": []}, version=version))
    if version == "v1":
        assert value[0] == {"a": {"log": ["a"], "last": "a"}}


@each_mode
def test_the_mode_of_a_graph_can_be_chosen(same, mode):
    def program(kit):
        flow = line(kit)
        flow.stream_mode = mode
        return [kit.stream(flow, {"log": []}), kit.invoke(flow, {"log": []})]

    same(program)


@pytest.mark.parametrize("mode", ["values", "updates", "tasks", "checkpoints"])
@pytest.mark.parametrize("keys", ["log", ["log"], ["last", "log"]])
def test_output_keys_narrow_a_stream(same, mode, keys):
    same(lambda kit: kit.stream(line(kit), {"log": ["in"]}, stream_mode=mode, output_keys=keys))


@pytest.mark.parametrize("keys", ["log", ["log"]])
def test_output_keys_narrow_what_invoke_gives(same, keys):
    same(lambda kit: kit.invoke(line(kit), {"log": ["in"]}, output_keys=keys))


@each_mode
def test_output_schemas_narrow_a_stream(same, mode):
    class Found(TypedDict):
        last: str

    def program(kit):
        builder = kit.StateGraph(Log, output_schema=Found)
        builder.add_node("a", step(kit, "a"))
        builder.add_edge(kit.START, "a")
        flow = builder.compile(checkpointer=kit.InMemorySaver())
        return [kit.stream(flow, {"log": ["in"]}, stream_mode=mode), kit.state(flow)]

    same(program)


@each_mode
def test_a_run_without_input_on_a_finished_thread(same, mode):
    def program(kit):
        flow = line(kit)
        kit.invoke(flow, {"log": []})
        return kit.stream(flow, None, stream_mode=mode)

    same(program)


# ---------------------------------------------------------------- shapes of updates


@pytest.mark.parametrize("mode", ["updates", "values", "tasks"])
@pytest.mark.parametrize("returned", [None, {}, {"log": []}, {"unknown": 1}, [], [{"log": [1]}, {"last": "x"}]])
def test_what_nodes_may_return(same, mode, returned):
    def program(kit):
        flow = kit.graph(Log, {"odd": lambda state: returned, "next": lambda state: None}, "start odd next")
        return kit.stream(flow, {"log": ["in"]}, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["updates", "values", "tasks", "checkpoints"])
def test_commands_stream_alike(same, mode):
    def program(kit):
        def go(state):
            return kit.Command(update={"log": ["go"]}, goto="there")

        flow = kit.graph(
            Log,
            {"go": go, "there": lambda state: kit.Command(goto="__end__")},
            "start go",
            checkpointer=kit.InMemorySaver(),
        )
        return kit.stream(flow, {"log": []}, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["updates", "values", "tasks"])
def test_several_commands_of_one_key(same, mode):
    def program(kit):
        def many(state):
            return [kit.Command(update={"log": [n]}) for n in (1, 2, 3)]

        return kit.stream(kit.graph(Log, {"many": many}, "start many"), {"log": []}, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["updates", "tasks"])
def test_commands_and_plain_updates_in_one_list(same, mode):
    def program(kit):
        def many(state):
            return [{"log": [1]}, kit.Command(update={"last": "x", "log": [2]}), kit.Command(goto="next")]

        flow = kit.graph(Log, {"many": many, "next": lambda state: {"log": ["next"]}}, "start many")
        return kit.stream(flow, {"log": []}, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["updates", "values", "tasks", "checkpoints"])
def test_a_node_may_have_the_name_of_a_key(same, mode):
    def program(kit):
        flow = kit.graph(Log, {"last": lambda state: {"last": "x"}}, "start last", checkpointer=kit.InMemorySaver())
        return kit.stream(flow, {"log": ["in"]}, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["updates", "values", "tasks"])
def test_overwrites_stream_alike(same, mode):
    def program(kit):
        flow = kit.graph(Log, {"clear": lambda state: {"log": kit.Overwrite(["new"])}}, "start clear")
        return kit.stream(flow, {"log": ["old"]}, stream_mode=mode)

    same(program)


@each_mode
def test_sends_stream_alike(same, mode):
    def program(kit):
        flow = kit.graph(
            Log,
            {"plan": step(kit, "plan"), "work": lambda n: {"log": [n]}},
            "start plan",
            branches={"plan": lambda state: [kit.Send("work", 7)]},
            checkpointer=kit.InMemorySaver(),
        )
        return kit.stream(flow, {"log": []}, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["values", "checkpoints"])
def test_values_of_parallel_nodes_are_ordered_by_their_paths(same, mode):
    def program(kit):
        flow = kit.graph(
            Log,
            {"plan": lambda state: None, "work": lambda n: {"log": [n]}, "also": lambda state: {"log": ["also"]}},
            "start plan also",
            branches={"plan": lambda state: [kit.Send("work", n) for n in (3, 1, 2)]},
            checkpointer=kit.InMemorySaver(),
        )
        return kit.stream(flow, {"log": []}, stream_mode=mode)

    same(program)


def test_updates_of_parallel_nodes_are_all_told_before_the_next_step(same):
    def program(kit):
        chunks = kit.stream(fan(kit), {"log": []}, stream_mode="updates")
        return [chunks[0], sorted(chunks[1:3], key=str), chunks[3:]]

    same(program)


def test_tasks_of_parallel_nodes_begin_in_order(same):
    def program(kit):
        chunks = kit.stream(fan(kit), {"log": []}, stream_mode="tasks")
        return [chunk["name"] for chunk in chunks if "input" in chunk]

    assert same(program) == ["a", "b", "c", "d"]


@each_mode
def test_deferred_nodes_stream_alike(same, mode):
    def program(kit):
        builder = kit.StateGraph(Log)
        for name in "ab":
            builder.add_node(name, step(kit, name))
        builder.add_node("late", step(kit, "late"), defer=True)
        builder.add_edge(kit.START, "a")
        builder.add_edge("a", "b")
        builder.add_edge("a", "late")
        return kit.stream(builder.compile(checkpointer=kit.InMemorySaver()), {"log": []}, stream_mode=mode)

    same(program)


# ---------------------------------------------------------------- caches and replays


@each_mode
def test_cached_nodes_stream_alike(same, mode):
    def program(kit):
        builder = kit.StateGraph(Log)
        builder.add_node("a", step(kit, "a"), cache_policy=kit.CachePolicy())
        builder.add_node("b", lambda state: {"log": ["b"]})
        builder.add_edge(kit.START, "a")
        builder.add_edge("a", "b")
        flow = builder.compile(cache=kit.InMemoryCache())
        return [kit.stream(flow, {"log": []}, stream_mode=mode) for _ in range(2)]

    same(program)


@pytest.mark.parametrize("mode", ["values", "tasks", "checkpoints", "updates"])
def test_a_half_failed_step_is_gone_on_with_alike(same, mode):
    def program(kit):
        fail = {"c"}
        flow = fan(kit, fail)
        kit.attempt(flow, {"log": []})
        fail.clear()
        return kit.stream(flow, None, stream_mode=mode)

    found = same(program)
    if mode == "updates":
        assert {"b": {"log": ["b"]}, "__metadata__": {"cached": True}} in found


# ---------------------------------------------------------------- questions, breakpoints, errors


@each_mode
@each_version
def test_questions_stream_alike(same, mode, version):
    def program(kit):
        flow = asking(kit)
        inputs = [{"log": []}, kit.Command(resume=1), kit.Command(resume=2)]
        return [kit.stream(flow, one, stream_mode=mode, version=version) for one in inputs]

    same(program)


@each_mode
def test_a_question_asked_again_by_a_run_without_an_answer(same, mode):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": []})
        return kit.stream(flow, None, stream_mode=mode)

    same(program)


@each_mode
def test_a_run_from_a_thread_that_asks_begins_anew_with_input(same, mode):
    def program(kit):
        flow = asking(kit)
        kit.invoke(flow, {"log": []})
        return kit.stream(flow, {"log": ["new"]}, stream_mode=mode)

    same(program)


@each_mode
@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
@pytest.mark.parametrize("nodes", [["b"], ["a", "c"], "*"], ids=["one", "two", "all"])
def test_breakpoints_stream_alike(same, mode, where, nodes):
    def program(kit):
        flow = line(kit, **{where: nodes})
        found = [kit.stream(flow, {"log": []}, stream_mode=mode)]
        while kit.state(flow).next:
            found.append(kit.stream(flow, None, stream_mode=mode))
        return found

    same(program)


@each_version
@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
def test_breakpoints_of_one_run(same, where, version):
    def program(kit):
        flow = line(kit)
        options = {"stream_mode": ["values", "updates"], "version": version}
        return [
            kit.stream(flow, {"log": []}, **{where: ["b"]}, **options),
            kit.state(flow),
            kit.invoke(flow, None, **{where: ["c"]}),
            kit.stream(flow, None, **options),
        ]

    same(program)


@each_mode
@each_version
def test_a_failure_streams_alike(same, mode, version):
    def program(kit):
        fail = [True]
        flow = failing(kit, fail)
        failed = kit.stream(flow, {"log": []}, stream_mode=mode, version=version)
        fail.clear()
        return [failed, kit.stream(flow, None, stream_mode=mode, version=version)]

    same(program)


@pytest.mark.parametrize("mode", ["values", "checkpoints", "custom"])
def test_an_invalid_update_streams_alike(same, mode):
    def program(kit):
        nodes = {name: lambda state: {"last": "both"} for name in "ab"}
        flow = kit.graph(Log, nodes, "start a", "start b", checkpointer=kit.InMemorySaver())
        return [kit.stream(flow, {"log": []}, stream_mode=mode), [one.next for one in kit.history(flow)]]

    same(program)


@each_mode
def test_a_recursion_limit_streams_alike(same, mode):
    def program(kit):
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": 2}
        return kit.stream(line(kit), {"log": []}, config, stream_mode=mode)

    same(program)


@pytest.mark.parametrize("mode", ["updates", "tasks", "values"])
def test_retries_are_told_once(same, mode):
    def program(kit):
        fail = [1, 2]

        def flaky(state):
            if fail:
                raise ConnectionError(fail.pop())
            return {"log": ["done"]}

        builder = kit.StateGraph(Log)
        builder.add_node("flaky", flaky, retry_policy=kit.RetryPolicy(initial_interval=0, jitter=False))
        builder.add_edge(kit.START, "flaky")
        return kit.stream(builder.compile(), {"log": []}, stream_mode=mode)

    same(program)


# ---------------------------------------------------------------- several modes


def by_mode(chunks):
    found = {}
    for chunk in chunks:
        found.setdefault(chunk[0], []).append(chunk[1])
    return found


def test_several_modes_at_once_show_what_each_shows_alone(same):
    def program(kit):
        return by_mode(kit.stream(line(kit), {"log": []}, stream_mode=MODES))

    assert sorted(same(program)) == sorted(MODES)


@pytest.mark.parametrize(
    "modes", [["values", "updates"], ["updates", "tasks"], ["custom", "updates"], ["values", "checkpoints", "updates"]]
)
@each_version
def test_modes_come_in_one_order(same, modes, version):
    same(lambda kit: kit.stream(line(kit), {"log": []}, stream_mode=modes, version=version))


@pytest.mark.parametrize("modes", [["values", "updates"], ["updates", "custom"], ["updates", "checkpoints"]])
def test_modes_of_a_question_come_in_one_order(same, modes):
    def program(kit):
        flow = asking(kit)
        return [kit.stream(flow, one, stream_mode=modes) for one in ({"log": []}, kit.Command(resume=1))]

    same(program)


# ---------------------------------------------------------------- invoke


@each_mode
@each_version
def test_invoke_with_a_mode_gives_the_chunks(same, mode, version):
    same(lambda kit: kit.invoke(line(kit), {"log": []}, stream_mode=mode, version=version))


@each_version
def test_invoke_with_several_modes_gives_the_chunks_of_all(same, version):
    same(lambda kit: kit.invoke(line(kit), {"log": []}, stream_mode=["updates", "values"], version=version))


@pytest.mark.parametrize("mode", ["values", "updates", ["values", "updates"]])
@each_version
def test_invoke_of_a_graph_that_asks(same, mode, version):
    def program(kit):
        flow = asking(kit)
        inputs = [{"log": []}, kit.Command(resume=1), kit.Command(resume=2)]
        return [kit.invoke(flow, one, stream_mode=mode, version=version) for one in inputs]

    same(program)


@each_version
def test_invoke_at_a_breakpoint(same, version):
    def program(kit):
        flow = line(kit, interrupt_before=["b"])
        return [kit.invoke(flow, {"log": []}, version=version), kit.invoke(flow, None, version=version)]

    same(program)


# ---------------------------------------------------------------- streams left early


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("mode", ["values", "updates"])
@pytest.mark.parametrize("way", ["blocking"], indirect=True)
def test_a_stream_closed_halfway_can_be_gone_on_with(same, mode, count):
    """What a closed stream had begun may be done or not; the end is the same."""

    def program(kit):
        flow = line(kit)
        stream = flow.stream({"log": ["in"]}, {"configurable": {"thread_id": "t"}}, stream_mode=mode)
        seen = [next(stream) for _ in range(count)]
        stream.close()
        return [seen, kit.invoke(flow, None)["log"]]

    assert same(program)[1] == ["in", "a", "b", "c"]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("way", ["awaited"], indirect=True)
def test_an_awaited_stream_closed_halfway_can_be_gone_on_with(same, count):
    def program(kit):
        flow = line(kit)

        async def begin():
            stream = flow.astream({"log": ["in"]}, {"configurable": {"thread_id": "t"}}, stream_mode="updates")
            seen = [await anext(stream) for _ in range(count)]
            await stream.aclose()
            return seen

        return [asyncio.run(begin()), kit.invoke(flow, None)["log"]]

    assert same(program)[1] == ["in", "a", "b", "c"]


# ---------------------------------------------------------------- custom


def test_nodes_and_paths_write_to_the_custom_stream(same):
    def program(kit):
        def path(state):
            kit.get_stream_writer()({"path of": state["last"]})
            return kit.END

        flow = kit.graph(Log, {"a": step(kit, "a")}, "start a", branches={"a": path})
        return [
            kit.stream(flow, {"log": []}, stream_mode="custom"),
            kit.stream(flow, {"log": []}, stream_mode=["custom", "updates"]),
        ]

    assert same(program)[0] == ["a", {"path of": "a"}]


def test_a_writer_may_be_asked_for_in_the_signature(same):
    def program(kit):
        def talk(state, writer: kit.StreamWriter):
            writer("by name")
            return {"log": ["talk"]}

        def also(state, runtime: kit.Runtime):
            runtime.stream_writer("by runtime")

        flow = kit.graph(Log, {"talk": talk, "also": also}, "start talk also")
        return kit.stream(flow, {"log": []}, stream_mode="custom", subgraphs=True)

    assert same(program) == [((), "by name"), ((), "by runtime")]


def test_a_writer_without_a_watcher_is_silent(same):
    same(lambda kit: [kit.invoke(line(kit), {"log": []}), kit.stream(line(kit), {"log": []}, stream_mode="updates")])


@each_mode
def test_tasks_inside_a_node_stream_alike(same, mode):
    def program(kit):
        @kit.task
        def double(n):
            kit.get_stream_writer()(n)
            return n * 2

        flow = kit.graph(
            Log,
            {"work": lambda state: {"log": [double(double(1).result()).result()]}},
            "start work",
            checkpointer=kit.InMemorySaver(),
        )
        return kit.stream(flow, {"log": []}, stream_mode=mode)

    same(program)


# ---------------------------------------------------------------- messages


LEFT_OUT = ("ls_provider", "ls_model_type", "ls_integration", "lc_versions", "versions", "checkpoint_ns")


def spoken(chunks):
    """Messages as (class, content, who said it), without what only a tracing service reads."""
    found = []
    for message, metadata in chunks:
        origin = {key: value for key, value in metadata.items() if key not in LEFT_OUT and not key.startswith("ls_")}
        found.append((type(message).__name__, message.content, message.id, origin))
    return found


def talking(kit, *nodes, **options):
    names = [f"n{index}" for index in range(len(nodes))]
    return kit.graph(kit.MessagesState, dict(zip(names, nodes, strict=True)), " ".join(["start", *names]), **options)


def test_messages_that_nodes_return_are_told(same):
    def program(kit):
        flow = talking(
            kit,
            lambda state: {"messages": [AIMessage("one", id="1"), AIMessage("two", id="2")]},
            lambda state: {"messages": AIMessage("three", id="3")},
        )
        return spoken(kit.stream(flow, {"messages": [HumanMessage("hi", id="0")]}, stream_mode="messages"))

    assert [content for _, content, *_ in same(program)] == ["one", "two", "three"]


def test_messages_already_told_are_not_told_again(same):
    def program(kit):
        flow = talking(
            kit,
            lambda state: {"messages": [AIMessage("one", id="1")]},
            lambda state: {"messages": [*state["messages"], AIMessage("two", id="2")]},
        )
        return spoken(kit.stream(flow, {"messages": [HumanMessage("hi", id="0")]}, stream_mode="messages"))

    assert [content for _, content, *_ in same(program)] == ["one", "two"]


def test_a_model_is_heard_token_by_token(same):
    def program(kit):
        model = FakeListChatModel(responses=["abc"])
        flow = talking(kit, lambda state: {"messages": [model.invoke(state["messages"])]})
        chunks = kit.stream(flow, {"messages": [HumanMessage("hi", id="0")]}, stream_mode="messages")
        return [(kind, content, origin) for kind, content, _, origin in spoken(chunks)]

    assert [content for _, content, _ in same(program) if content] == ["a", "b", "c"]


def test_a_model_in_a_child_is_heard_with_subgraphs(same):
    def program(kit):
        model = FakeListChatModel(responses=["ab"])
        sub = talking(kit, lambda state: {"messages": [model.invoke(state["messages"])]})
        flow = talking(kit, sub)
        chunks = kit.stream(flow, {"messages": [HumanMessage("hi", id="0")]}, stream_mode="messages", subgraphs=True)
        return [(len(ns), message.content, metadata["langgraph_node"]) for ns, (message, metadata) in chunks]

    same(program)


def test_messages_of_v2(same):
    def program(kit):
        flow = talking(kit, lambda state: {"messages": [AIMessage("one", id="1")]})
        chunks = kit.stream(flow, {"messages": [HumanMessage("hi", id="0")]}, stream_mode="messages", version="v2")
        return [(chunk["type"], chunk["ns"], spoken([chunk["data"]])) for chunk in chunks]

    same(program)


def test_messages_beside_updates(same):
    def program(kit):
        flow = talking(kit, lambda state: {"messages": [AIMessage("one", id="1")]})
        chunks = kit.stream(flow, {"messages": [HumanMessage("hi", id="0")]}, stream_mode=["updates", "messages"])
        return [(mode, spoken([chunk]) if mode == "messages" else chunk) for mode, chunk in chunks]

    same(program)


def test_messages_of_a_replayed_step_are_not_told(same):
    def program(kit):
        def ask(state):
            return {"messages": [AIMessage(kit.interrupt("?"), id="2")]}

        flow = talking(
            kit, lambda state: {"messages": [AIMessage("one", id="1")]}, ask, checkpointer=kit.InMemorySaver()
        )
        inputs = [{"messages": [HumanMessage("hi", id="0")]}, kit.Command(resume="answer")]
        return [[chunk[0].content for chunk in kit.stream(flow, one, stream_mode="messages")] for one in inputs]

    assert same(program) == [["one"], ["answer"]]


def test_chunks_that_a_node_returns_are_messages(same):
    def program(kit):
        flow = talking(kit, lambda state: {"messages": [AIMessageChunk("part", id="1")]})
        return spoken(kit.stream(flow, {"messages": []}, stream_mode="messages"))

    same(program)


def test_a_graph_without_messages_tells_none(same):
    assert same(lambda kit: kit.stream(line(kit), {"log": []}, stream_mode="messages")) == []
