from __future__ import annotations

import asyncio
from contextvars import copy_context
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from flowfn.stream.messages import (
    MessageStream,
    Origin,
    is_message,
    messages_in,
    metadata_of,
    set_for_langchain,
    with_callback,
)
from flowfn.types import Command, Overwrite

NODE = Origin((), {"langgraph_node": "n"})
OTHER = Origin((), {"langgraph_node": "m"})
INSIDE = Origin(("sub:1",), {"langgraph_node": "i"})
WHOLE = {"langgraph_node": "n", "ls_integration": "langgraph"}


def said(text, id=None, role="assistant"):
    return {"role": role, "content": text} if id is None else {"role": role, "content": text, "id": id}


@dataclass
class Message:
    content: str
    id: str | None = None
    type: str = "ai"


class Watcher:
    """A stream, and what it has told."""

    def __init__(self, subgraphs: bool = False, root: tuple[str, ...] = ()) -> None:
        self.told: list[Any] = []
        self.stream = MessageStream(lambda ns, data: self.told.append((ns, *data)), subgraphs, root)

    @property
    def messages(self) -> list[Any]:
        return [message for _, message, _ in self.told]


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


# ---------------------------------------------------------------- what a message is


@pytest.mark.parametrize(
    "value",
    [
        said("a"),
        {"role": "assistant", "content": None, "tool_calls": []},
        {"type": "human", "content": "a"},
        {"type": "remove", "id": "1"},
        Message("a"),
        SimpleNamespace(role="critic", content="a", id=None),
    ],
)
def test_messages_are_known(value):
    assert is_message(value)


@pytest.mark.parametrize(
    "value",
    [
        "hi",
        ("user", "hi"),
        {"role": "admin", "content": "a"},
        {"content": "a"},
        {"role": 1, "content": "a"},
        {"type": "ui", "id": "1", "content": "a"},
        SimpleNamespace(type="ai", content="a"),
        SimpleNamespace(content="a", id="1"),
        None,
        Message,
    ],
)
def test_other_values_are_no_messages(value):
    assert not is_message(value)


@dataclass
class State:
    talk: list[Any]
    last: Any = None


A, B, C = said("a", "1"), Message("b", "2"), said("c", "3")


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (A, [A]),
        ([A, 3, "x", B], [A, B]),
        ({"talk": [A, "x", B], "last": C, "n": 3, "text": "abc"}, [A, B, C]),
        ({"talk": (A, B)}, [A, B]),
        (State([A], B), [A, B]),
        (Command(update={"talk": A}), [A]),
        ([Command(update={"talk": A}), {"talk": [B]}], [A, B]),
        (Command(goto="x"), []),
        ({"talk": [[A]], "deep": {"x": B}}, []),
        ({"talk": Overwrite([A])}, []),
        (None, []),
        (7, []),
    ],
)
def test_messages_are_found_in_what_was_returned(returned, found):
    assert list(messages_in(returned)) == found


def test_messages_are_found_in_a_pydantic_state():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", talk=(list, ...), last=(Any, None))

    assert list(messages_in(model(talk=[A], last=B))) == [A, B]


# ---------------------------------------------------------------- what is shown


def test_the_metadata_has_the_keys_of_langgraph():
    told = metadata_of(
        {"thread_id": "t", "mine": 1},
        step=1,
        node="n",
        triggers=["branch:to:n"],
        path=["__pregel_pull", "n"],
        checkpoint_ns="n:1",
    )

    assert told == {
        "thread_id": "t",
        "mine": 1,
        "langgraph_step": 1,
        "langgraph_node": "n",
        "langgraph_triggers": ("branch:to:n",),
        "langgraph_path": ("__pregel_pull", "n"),
        "langgraph_checkpoint_ns": "n:1",
    }


def test_a_returned_message_is_shown_once(watcher):
    watcher.stream.ended(NODE, {"talk": [A, B]})
    watcher.stream.ended(OTHER, {"talk": [B, C]})

    assert watcher.told == [
        ((), A, WHOLE),
        ((), B, WHOLE),
        ((), C, {**WHOLE, "langgraph_node": "m"}),
    ]


def test_a_message_that_a_node_was_given_is_not_shown_when_it_hands_it_back(watcher):
    watcher.stream.begun(NODE, {"talk": [A], "last": B})
    watcher.stream.ended(NODE, {"talk": [A, B, C]})

    assert watcher.messages == [C]


def test_pieces_are_all_shown_and_stand_for_the_whole(watcher):
    watcher.stream.emit(NODE, said("he", "1"), {"tags": ["t"]})
    watcher.stream.emit(NODE, said("llo", "1"), {})
    watcher.stream.ended(NODE, {"talk": [said("hello", "1")]})

    assert watcher.told == [
        ((), said("he", "1"), {"langgraph_node": "n", "tags": ["t"]}),
        ((), said("llo", "1"), {"langgraph_node": "n"}),
    ]


def test_pieces_without_an_id_stand_for_nothing(watcher):
    watcher.stream.emit(NODE, said("he"), {})
    watcher.stream.ended(NODE, said("hello", "1"))

    assert watcher.messages == [said("he"), said("hello", "1")]


@pytest.mark.parametrize("message", [said("a"), Message("a")], ids=["dict", "object"])
def test_a_returned_message_is_shown_with_an_id_and_not_changed(watcher, message):
    watcher.stream.ended(NODE, [message, message])

    first, second = [getattr(one, "id", None) or one["id"] for one in watcher.messages]
    assert first != second
    assert message in (said("a"), Message("a"))


@pytest.mark.parametrize(("subgraphs", "shown"), [(False, []), (True, [A])])
def test_what_happens_inside_is_shown_when_asked_for(subgraphs, shown):
    watcher = Watcher(subgraphs)

    watcher.stream.ended(INSIDE, {"talk": [A]})

    assert watcher.messages == shown


def test_a_message_that_was_hidden_inside_is_shown_when_it_comes_out(watcher):
    watcher.stream.begun(INSIDE, {"talk": [A]})
    watcher.stream.emit(INSIDE, said("b", "2"), {})
    watcher.stream.ended(INSIDE, {"talk": [C]})
    watcher.stream.ended(NODE, {"talk": [A, said("b", "2"), C]})

    assert watcher.messages == [A, said("b", "2"), C]


def test_a_graph_inside_can_be_watched_alone():
    watcher = Watcher(root=("sub:1",))

    watcher.stream.ended(INSIDE, A)
    watcher.stream.ended(Origin(("sub:1", "deeper:2"), {}), C)

    assert watcher.messages == [A]


# ---------------------------------------------------------------- LangChain's models


@pytest.fixture
def langchain():
    pytest.importorskip("langchain_core")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    def model(*texts: str) -> Any:
        return GenericFakeChatModel(messages=iter([AIMessage(text) for text in texts]))

    return SimpleNamespace(model=model, AIMessage=AIMessage)


def config_for(watcher, origin=NODE, **more):
    return {**more, "callbacks": with_callback(None, watcher.stream.callback(origin))}


@pytest.fixture(params=["given", "around"])
def ask(request):
    """Asks a model: with a config, or with the one it finds around it."""

    def ask(model: Any, config: Any) -> Any:
        if request.param == "given":
            return model.invoke("hi", config)
        return copy_context().run(lambda: (set_for_langchain(config), model.invoke("hi"))[1])

    return ask


def test_the_tokens_of_a_model_are_shown(watcher, langchain, ask):
    answer = ask(langchain.model("one two"), config_for(watcher, tags=["seq:step:1", "run"], metadata={"mine": 1}))

    assert [one.content for one in watcher.messages] == ["one", " ", "two"]
    assert {one.id for one in watcher.messages} == {answer.id}
    for _, _, about in watcher.told:
        assert about["langgraph_node"] == "n"
        assert about["mine"] == 1
        assert about["tags"] == ["run"]
        assert about["ls_model_type"] == "chat"


def test_the_answer_is_not_shown_again_when_the_node_returns_it(watcher, langchain, ask):
    answer = ask(langchain.model("one two"), config_for(watcher))
    watcher.stream.ended(NODE, {"talk": [answer]})

    assert len(watcher.told) == 3


def test_awaited_and_streamed_models_are_shown_alike(watcher, langchain):
    model = langchain.model("one two", "three four")

    async def both() -> None:
        await model.ainvoke("hi", config_for(watcher))
        async for _ in model.astream("hi", config_for(watcher)):
            pass

    asyncio.run(both())

    assert [one.content for one in watcher.messages] == ["one", " ", "two", "three", " ", "four"]


def test_the_tag_nostream_silences_a_model_but_not_what_is_returned(watcher, langchain, ask):
    answer = ask(langchain.model("one two"), config_for(watcher, tags=["nostream"]))
    assert watcher.told == []

    watcher.stream.ended(NODE, {"talk": [answer]})

    assert watcher.messages == [answer]


def test_the_tags_of_the_execution_count_where_the_model_has_its_own(watcher, langchain):
    tagged = Origin((), {}, ["run"])
    langchain.model("one").invoke("hi", {**config_for(watcher, tagged), "tags": ["model"]})
    silent = Origin((), {}, ["nostream"])
    langchain.model("two").invoke("hi", {**config_for(watcher, silent), "tags": ["model"]})

    assert [(one.content, about["tags"]) for _, one, about in watcher.told] == [("one", ["run", "model"])]


def test_a_model_without_tokens_shows_its_answer(watcher, langchain, ask):
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel

    answer = ask(FakeMessagesListChatModel(responses=[langchain.AIMessage("all", id="1")]), config_for(watcher))

    assert watcher.messages == [answer]
    assert watcher.told[0][2]["ls_model_type"] == "chat"


def test_a_model_that_fails_leaves_nothing_behind(watcher, langchain):
    handler = watcher.stream.callback(NODE)

    with pytest.raises(RuntimeError):
        langchain.model().invoke("hi", {"callbacks": [handler]})

    assert vars(handler)["_runs"] == {}
    assert watcher.told == []


def test_what_the_config_around_says_of_another_node_does_not_count(watcher, langchain, ask):
    ask(langchain.model("one"), config_for(watcher, metadata={"langgraph_node": "around", "langgraph_step": 7}))

    assert watcher.told[0][2]["langgraph_node"] == "n"
    assert "langgraph_step" not in watcher.told[0][2]


@pytest.mark.parametrize("kind", ["list", "manager"])
def test_an_execution_inside_another_takes_the_place_of_its_callback(langchain, kind):
    from langchain_core.callbacks import BaseCallbackHandler, CallbackManager

    watcher, own = Watcher(subgraphs=True), BaseCallbackHandler()
    around = with_callback([own], watcher.stream.callback(NODE))
    if kind == "manager":
        around = CallbackManager(handlers=list(around), inheritable_handlers=list(around))

    before = list(around if kind == "list" else around.handlers)
    inner = with_callback(around, watcher.stream.callback(INSIDE))
    langchain.model("one").invoke("hi", {"callbacks": inner})

    assert [(ns, about["langgraph_node"]) for ns, _, about in watcher.told] == [(("sub:1",), "i")]
    handlers = inner if kind == "list" else inner.handlers
    assert own in handlers
    assert list(around if kind == "list" else around.handlers) == before


def test_an_execution_that_is_not_shown_silences_the_callback_around_it(watcher, langchain):
    around = with_callback(None, watcher.stream.callback(NODE))
    inner = with_callback(around, watcher.stream.callback(INSIDE))

    answer = langchain.model("one two").invoke("hi", {"callbacks": inner})
    watcher.stream.ended(NODE, {"talk": [answer]})

    assert watcher.messages == [answer]


def test_a_callback_is_taken_out_where_nothing_is_watched(watcher, langchain):
    assert with_callback(with_callback(None, watcher.stream.callback(NODE)), None) == []


def test_the_config_around_ends_with_its_context(watcher, langchain):
    copy_context().run(set_for_langchain, config_for(watcher))
    langchain.model("one").invoke("hi")

    assert watcher.told == []
