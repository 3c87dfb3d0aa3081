"""Messages and components, LangChain's among them: merged and shown alike by both libraries."""

import copy
from collections.abc import Callable
from typing import Annotated, Any

import langgraph.graph.message as theirs
import langgraph.graph.ui as their_ui
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    convert_to_messages,
)
from typing_extensions import TypedDict

import flowfn.messages as ours

ALL = ours.REMOVE_ALL_MESSAGES


def outcome(merge: Callable[..., Any], *lists: Any) -> Any:
    """What comes of merging copies of the lists: a list, or the builtin that the error is."""
    try:
        return merge(*copy.deepcopy(lists))
    except Exception as error:
        return ("raised", isinstance(error, ValueError))


ids = st.sampled_from(["a", "b", "c", "d"])
contents = st.text("xyz", max_size=2)
said = st.one_of(st.builds(HumanMessage, contents, id=ids), st.builds(AIMessageChunk, contents, id=ids))
removed = st.builds(lambda id: RemoveMessage(id=id), ids)


@given(st.lists(said, max_size=6), st.lists(st.one_of(said, removed), max_size=8))
def test_messages_are_merged_alike(left, right):
    assert outcome(ours.add_messages, left, right) == outcome(theirs.add_messages, left, right)


@given(
    st.lists(said, max_size=3), st.lists(st.one_of(said, removed), max_size=3), st.lists(said, unique_by=lambda m: m.id)
)
def test_a_list_is_cleared_alike(left, before, after):
    new = [*before, RemoveMessage(id=ALL), *after]
    expected = [AIMessage(one.content, id=one.id) if isinstance(one, AIMessageChunk) else one for one in after]

    assert outcome(ours.add_messages, left, new) == outcome(theirs.add_messages, left, new) == expected


def test_after_clearing_flowfn_merges_where_langgraph_takes_the_rest_as_it_is():
    new = [RemoveMessage(id=ALL), HumanMessage("a", id="1"), HumanMessage("A", id="1")]

    assert [one.content for one in theirs.add_messages([], copy.deepcopy(new))] == ["a", "A"]
    assert [one.content for one in ours.add_messages([], new)] == ["A"]


@pytest.mark.parametrize(
    "given",
    [
        "hi",
        ("user", "hi"),
        ("ai", "hi"),
        ["system", "hi"],
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hi", "id": "1"},
        {"type": "human", "content": "hi"},
        {"role": "tool", "content": "hi", "tool_call_id": "c"},
    ],
)
def test_short_forms_mean_what_langchain_takes_them_for(given):
    """flowfn keeps dicts; LangChain reads in them what LangGraph reads in the short form."""
    (kept,) = ours.add_messages([], [given])
    (expected,) = theirs.add_messages([], [given])

    (read,) = convert_to_messages([kept])
    assert read.model_copy(update={"id": None}) == expected.model_copy(update={"id": None})
    assert bool(read.id)
    assert bool(expected.id)


@pytest.mark.parametrize("bad", [None, 3, [None], [("a", "b", "c")], {"content": "x"}, [{"role": "user"}]])
def test_what_is_no_message_is_refused_by_both(bad):
    for merge in (ours.add_messages, theirs.add_messages):
        with pytest.raises((ValueError, NotImplementedError)):
            merge([], bad)


def test_ids_are_given_to_copies_and_by_langgraph_to_the_message_itself():
    mine, other = HumanMessage("a"), HumanMessage("a")

    (kept,) = ours.add_messages([], [mine])
    (changed,) = theirs.add_messages([], [other])

    assert mine.id is None
    assert isinstance(kept, BaseMessage)
    assert kept.id
    assert changed is other
    assert other.id


def test_the_format_of_openai_is_the_same_but_that_ids_stay():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "00"}}
    given = [HumanMessage([{"type": "text", "text": "a"}, image], id="1"), AIMessage("b", id="2")]

    kept = ours.add_messages([], copy.deepcopy(given), format="langchain-openai")
    expected = theirs.add_messages([], copy.deepcopy(given), format="langchain-openai")

    assert [one.model_copy(update={"id": None}) for one in kept] == expected
    assert [one.id for one in kept] == ["1", "2"]


components = st.builds(
    lambda id, props, merge: {"type": "ui", "id": id, "name": "n", "props": props, "metadata": {"merge": merge}},
    ids,
    st.dictionaries(st.sampled_from("pq"), st.integers(0, 3)),
    st.booleans(),
)
taken = st.builds(lambda id: {"type": "remove-ui", "id": id}, ids)


@given(st.lists(components, max_size=4), st.lists(st.one_of(components, taken), max_size=8))
def test_components_are_merged_alike(left, right):
    assert outcome(ours.ui_message_reducer, left, right) == outcome(their_ui.ui_message_reducer, left, right)


# ---------------------------------------------------------------- stream mode `messages`


def names_of(kit: Any) -> Any:
    return ours if kit.library == "flowfn" else theirs


def graph_of(kit: Any, *nodes: Callable[[Any], Any], state: Any = None, **options: Any) -> Any:
    """A graph of nodes, one after another, whose state is a conversation unless told otherwise."""
    builder = kit.StateGraph(state or names_of(kit).MessagesState)
    builder.add_sequence(list(nodes))
    builder.add_edge(kit.START, nodes[0].__name__)
    return builder.compile(**options)


def shown(chunks: list[Any]) -> list[Any]:
    """A stream's chunks, LangChain's messages in them as what can be compared."""

    def plain(value: Any) -> Any:
        if isinstance(value, BaseMessage):
            return [type(value).__name__, value.content, value.id]
        if isinstance(value, dict):
            # LangGraph's `checkpoint_ns` is at times the node's own, and at times that of the one around its graph.
            return {key: plain(one) for key, one in value.items() if key != "checkpoint_ns"}
        return tuple(map(plain, value)) if isinstance(value, tuple) else value

    return [plain(chunk) for chunk in chunks]


def watched(kit: Any, flow: Any, input: Any = None, config: Any = None, **more: Any) -> list[Any]:
    input = {"messages": [HumanMessage("ask", id="q")]} if input is None else input
    return shown(kit.stream(flow, input, config, **{"stream_mode": "messages", **more}))


def model(*texts: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(text) for text in texts]))


TAGGED = {"configurable": {"thread_id": "t"}, "tags": ["mine"], "metadata": {"about": 1}}


def test_the_tokens_of_a_model_are_shown_alike(same):
    def program(kit):
        speaker = model("one two")

        def speak(state):
            return {"messages": [speaker.invoke(state["messages"])]}

        return watched(kit, graph_of(kit, speak), config=TAGGED)

    assert [part[0][1] for part in same(program)] == ["one", " ", "two"]


@pytest.mark.parametrize("where", ["run", "model"])
def test_nostream_keeps_tokens_alike_from_a_watcher(same, where):
    def program(kit):
        speaker = model("one two").with_config(tags=["nostream"] if where == "model" else [])

        def speak(state):
            return {"messages": [speaker.invoke(state["messages"])]}

        config = {**TAGGED, "tags": ["nostream"]} if where == "run" else TAGGED
        return watched(kit, graph_of(kit, speak), config=config)

    assert [part[0][0] for part in same(program)] == ["AIMessage"]


def test_returned_messages_are_shown_once_alike(same):
    def program(kit):
        def first(state):
            return {"messages": [AIMessage("a", id="1"), state["messages"][0]]}

        def second(state):
            return kit.Command(update={"messages": [AIMessage("A", id="1"), AIMessage("b", id="2")]})

        def third(state):
            return {"messages": [RemoveMessage(id="2"), RemoveMessage(id=ALL), AIMessage("c", id="3")]}

        return watched(kit, graph_of(kit, first, second, third, checkpointer=kit.InMemorySaver()), config=TAGGED)

    assert [part[0][2] for part in same(program)] == ["1", "2", ALL, "3"]


def test_messages_in_other_keys_are_shown_alike(same):
    class State(TypedDict):
        messages: list[Any]
        last: Any
        deep: Any

    def program(kit):
        def say(state):
            return {"last": AIMessage("a", id="1"), "deep": [[AIMessage("b", id="2")]], "messages": ["x", 3]}

        return watched(kit, graph_of(kit, say, state=State), {"messages": []})

    assert [part[0][2] for part in same(program)] == ["1"]


def test_a_message_that_was_sent_is_not_shown_alike(same):
    def program(kit):
        def plan(state):
            return kit.Command(goto=[kit.Send("work", {"messages": [AIMessage("in", id="in")]})])

        def work(state):
            return {"messages": [*state["messages"], AIMessage("out", id="out")]}

        builder = kit.StateGraph(names_of(kit).MessagesState)
        builder.add_node(plan).add_node(work).add_edge(kit.START, "plan")
        return watched(kit, builder.compile(), {"messages": []})

    ((message, about),) = same(program)
    assert message[2] == "out"
    assert about["langgraph_path"] == ("__pregel_push", 0, False)


@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_messages_of_a_graph_inside_are_shown_alike(same, subgraphs, version):
    def program(kit):
        speaker = model("one")

        def inner(state):
            return {"messages": [speaker.invoke(state["messages"]), AIMessage("a", id="1")]}

        builder = kit.StateGraph(names_of(kit).MessagesState)
        builder.add_node("outer", graph_of(kit, inner)).add_edge(kit.START, "outer")
        return watched(kit, builder.compile(), subgraphs=subgraphs, version=version)

    assert len(same(program)) == 2


def test_pushed_messages_are_shown_and_written_alike(same):
    def program(kit):
        def say(state):
            push = names_of(kit).push_message
            push(AIMessage("a", id="1"))
            push(AIMessage("b", id="2"), state_key=None)
            return {"messages": [AIMessage("a", id="1"), AIMessage("c", id="3")]}

        saver = kit.InMemorySaver()
        return [
            watched(kit, graph_of(kit, say, checkpointer=saver), config=TAGGED),
            shown([kit.state(graph_of(kit, say, checkpointer=saver)).values["messages"]]),
        ]

    parts, _ = same(program)
    assert [part[0][2] for part in parts] == ["1", "2", "3"]


def test_pushed_messages_are_updates_alike(same):
    def program(kit):
        def say(state):
            names_of(kit).push_message(AIMessage("a", id="1"))
            return {"messages": [AIMessage("b", id="2")]}

        return watched(kit, graph_of(kit, say), stream_mode="updates")

    same(program)


def test_components_are_pushed_alike(same):
    def program(kit):
        page = ours if kit.library == "flowfn" else their_ui

        class State(TypedDict):
            ui: Annotated[list[Any], page.ui_message_reducer]

        def show(state):
            page.push_ui_message("chart", {"x": 1}, id="1", message=AIMessage("a", id="m"))
            page.push_ui_message("chart", {"y": 2}, id="1", merge=True, metadata={"k": 1})
            page.push_ui_message("table", {}, id="2", state_key=None)
            page.push_ui_message("table", {}, id="3")
            page.delete_ui_message("3")

        flow = graph_of(kit, show, state=State)
        return [
            watched(kit, flow, {"ui": []}, stream_mode="custom"),
            kit.invoke(flow, {"ui": []}),
        ]

    parts, last = same(program)
    assert len(parts) == 5
    assert [one["props"] for one in last["ui"]] == [{"x": 1, "y": 2}]


def test_messages_of_tasks_and_functions_are_shown_alike(same):
    def program(kit):
        speaker = model("one two")

        @kit.task
        def speak(text):
            return speaker.invoke(text)

        @kit.task
        def make(message):
            return {"made": AIMessage("a", id="1"), "given": [message]}

        @kit.task
        def outer():
            return make(HumanMessage("b", id="2")).result()["made"]

        @kit.entrypoint()
        def flow(input):
            said = speak("x").result()
            return [said, outer().result(), *input["messages"], AIMessage("c", id="3")]

        return watched(kit, flow, config=TAGGED)

    assert [part[1]["langgraph_node"] for part in same(program)] == ["speak"] * 3 + ["make", "flow"]


def test_what_a_function_saves_is_shown_alike(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(input):
            return kit.entrypoint.final(value=AIMessage("a", id="1"), save=[AIMessage("b", id="2")])

        return watched(kit, flow)

    assert [part[0][2] for part in same(program)] == ["1", "2"]
