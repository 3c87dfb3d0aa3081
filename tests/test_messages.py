from __future__ import annotations

import copy
import functools
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfn.context import CURRENT
from flowfn.errors import (
    ConfigError,
    MessageWithoutIdError,
    NotAMessageError,
    OutsideFlowError,
    UnknownMessageError,
)
from flowfn.messages import (
    REMOVE_ALL_MESSAGES,
    MessagesState,
    RemoveMessage,
    add_messages,
    delete_ui_message,
    emit_message,
    push_message,
    push_ui_message,
    ui_message_reducer,
    with_ids,
)
from flowfn.serde.base import Serializer
from flowfn.types import Overwrite


@dataclass(frozen=True)
class Frozen:
    content: str
    id: str | None = None


class Plain:
    def __init__(self, content, id=None):
        self.content, self.id = content, id


def said(text, id=None, role="user"):
    return {"role": role, "content": text} if id is None else {"role": role, "content": text, "id": id}


# ---------------------------------------------------------------- a list takes new messages


def test_a_new_message_comes_last_and_one_with_a_known_id_takes_its_place():
    merged = add_messages([said("a", "1"), said("b", "2")], [said("c", "3"), said("A", "1")])

    assert merged == [said("A", "1"), said("b", "2"), said("c", "3")]


def test_later_messages_of_one_write_win():
    assert add_messages([], [said("a", "1"), said("b", "2"), said("A", "1")]) == [said("A", "1"), said("b", "2")]


@pytest.mark.parametrize(
    "removal",
    [
        RemoveMessage("1"),
        {"type": "remove", "id": "1"},
        {"role": "remove", "id": "1", "content": ""},
        SimpleNamespace(type="remove", id="1"),
    ],
    ids=["ours", "by type", "by role", "object"],
)
def test_a_removal_takes_the_message_with_its_id(removal):
    assert add_messages([said("a", "1"), said("b", "2")], removal) == [said("b", "2")]


def test_a_message_that_was_added_by_the_same_write_can_be_removed():
    assert add_messages([said("a", "1")], [said("b", "2"), RemoveMessage("2")]) == [said("a", "1")]


def test_a_message_that_comes_back_after_its_removal_keeps_its_place():
    merged = add_messages([said("a", "1"), said("b", "2")], [RemoveMessage("1"), said("A", "1")])

    assert merged == [said("A", "1"), said("b", "2")]


def test_removing_what_is_not_there_is_an_error_that_names_it():
    with pytest.raises(UnknownMessageError, match="'9'") as caught:
        add_messages([said("a", "1")], [RemoveMessage("9")])

    assert caught.value.id == "9"
    assert isinstance(caught.value, ValueError)


def test_removing_all_leaves_what_comes_after():
    new = [said("x", "5"), RemoveMessage(REMOVE_ALL_MESSAGES), said("b", "2"), said("B", "2")]

    assert add_messages([said("a", "1")], new) == [said("B", "2")]


def test_after_removing_all_the_earlier_messages_cannot_be_removed_again():
    with pytest.raises(UnknownMessageError):
        add_messages([said("a", "1")], [RemoveMessage(REMOVE_ALL_MESSAGES), RemoveMessage("1")])


@pytest.mark.parametrize("left", [said("a", "1"), [said("a", "1")]], ids=["one", "list"])
@pytest.mark.parametrize("right", [said("b", "2"), [said("b", "2")]], ids=["one", "list"])
def test_one_message_stands_for_a_list_of_it(left, right):
    assert add_messages(left, right) == [said("a", "1"), said("b", "2")]


@pytest.mark.parametrize(
    ("short", "message"),
    [
        ("hi", said("hi")),
        (("assistant", "hi"), said("hi", role="assistant")),
        (["system", "hi"], said("hi", role="system")),
        (("user", [{"type": "text", "text": "hi"}]), said([{"type": "text", "text": "hi"}])),
    ],
)
def test_short_forms_become_dicts_with_an_id(short, message):
    (added,) = add_messages([], [short])

    assert isinstance(added.pop("id"), str)
    assert added == message


@pytest.mark.parametrize("bad", [3, None, b"hi", ("a", "b", "c"), (1, "x"), {"content": "x"}, {"role": "user"}])
def test_what_is_no_message_is_refused_and_shown(bad):
    with pytest.raises(NotAMessageError) as caught:
        add_messages([], [bad])

    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize("sides", [(None, []), ([], None)])
def test_a_missing_side_is_refused(sides):
    with pytest.raises(NotAMessageError):
        add_messages(*sides)


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize("make", [said, Frozen, Plain], ids=["dict", "frozen dataclass", "object"])
def test_a_message_without_an_id_gets_one_on_a_copy(make):
    given = make("hi")
    before = copy.deepcopy(given)
    old, new = [given], [given]

    first, second = add_messages(old, new)

    assert old == new == [given]
    assert old[0] is new[0] is given
    assert getattr(given, "__dict__", given) == getattr(before, "__dict__", before)
    assert type(first) is type(given)
    ids = [one["id"] if isinstance(one, dict) else one.id for one in (first, second)]
    assert all(isinstance(id, str) for id in ids)
    assert ids[0] != ids[1]


def test_a_message_with_an_id_is_kept_as_the_object_it_is():
    one, other = Plain("a", "1"), said("b", "2")

    merged = add_messages([one], [other])

    assert merged[0] is one
    assert merged[1] is other


MESSAGES = st.builds(lambda id, text: said(text, id), st.sampled_from("abcd"), st.text(max_size=3))
REMOVALS = st.builds(RemoveMessage, st.sampled_from(["a", "b", "c", "d", REMOVE_ALL_MESSAGES]))


@given(st.lists(MESSAGES, max_size=6), st.lists(st.one_of(MESSAGES, REMOVALS), max_size=8))
def test_a_merged_list_holds_each_id_once_and_its_last_message(old, new):
    """Against a model: an ordered dict that is told one message after another."""
    start = add_messages([], old)
    before = copy.deepcopy((start, new))
    last: dict[str, Any] = {one["id"]: one for one in start}
    known, is_refused = set(last), False
    # What stands before a clearing counts for nothing, not even as an error.
    clear = max((at for at, one in enumerate(new) if removed_by(one) == REMOVE_ALL_MESSAGES), default=-1)
    if clear >= 0:
        last, known = {}, set()
    for one in new[clear + 1 :]:
        if isinstance(one, RemoveMessage):
            is_refused |= one.id not in known
            last.pop(one.id, None)
        else:
            last[one["id"]] = one
            known.add(one["id"])

    if is_refused:
        with pytest.raises(UnknownMessageError):
            add_messages(start, new)
    else:
        merged = add_messages(start, new)
        assert {one["id"]: one for one in merged} == last
        assert len(merged) == len(last)
    assert (start, new) == before


def removed_by(one):
    return one.id if isinstance(one, RemoveMessage) else None


def test_ids_are_given_in_the_shape_of_the_write():
    assert with_ids([said("a", "1")]) == [said("a", "1")]
    assert set(with_ids(said("a"))) == {"role", "content", "id"}
    (one,) = with_ids(["hi"])
    assert one["content"] == "hi"
    assert one["id"]


def test_a_write_that_lacks_nothing_is_the_same_object():
    whole = [said("a", "1"), Plain("b", "2")]

    assert with_ids(whole) is whole
    assert with_ids(whole[1]) is whole[1]


def test_an_overwrite_is_looked_into():
    replaced = with_ids(Overwrite([said("a"), said("b", "2")]))

    assert isinstance(replaced, Overwrite)
    assert replaced.value[0]["id"]
    assert replaced.value[1] == said("b", "2")


@pytest.mark.parametrize("written", [{"__overwrite__": []}, {"type": "__overwrite__", "value": []}, Overwrite(None)])
def test_other_spellings_of_an_overwrite_are_left_alone(written):
    assert with_ids(written) is written


def test_a_runtime_finds_in_the_reducer_what_prepares_a_write():
    assert add_messages.prepared is with_ids
    assert add_messages(format="langchain-openai").func.prepared is with_ids


# ---------------------------------------------------------------- as a reducer


def test_without_lists_it_is_a_reducer_of_two_arguments():
    reducer = add_messages(format=None)

    assert isinstance(reducer, functools.partial)
    assert reducer([said("a", "1")], said("b", "2")) == [said("a", "1"), said("b", "2")]
    positional = [p for p in inspect.signature(reducer).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) == 2


def test_an_unknown_format_is_refused_at_once():
    with pytest.raises(ConfigError, match="langchain-openai"):
        add_messages(format="anthropic")


def test_the_state_of_a_conversation_has_the_reducer():
    hint = get_type_hints(MessagesState, include_extras=True)["messages"]

    assert hint.__metadata__ == (add_messages,)


def test_a_removal_can_be_stored():
    serde = Serializer()
    for removal in (RemoveMessage("1"), RemoveMessage(REMOVE_ALL_MESSAGES)):
        assert serde.loads(serde.dumps(removal)) == removal


# ---------------------------------------------------------------- LangChain's objects


def test_langchain_messages_are_kept_and_not_changed():
    langchain = pytest.importorskip("langchain_core.messages")
    given = langchain.HumanMessage("hi")

    merged = add_messages([given], [langchain.AIMessage("yes", id="2"), said("dict", "3")])

    assert given.id is None
    assert [type(one) for one in merged] == [langchain.HumanMessage, langchain.AIMessage, dict]
    assert merged[0].id
    assert merged[0].content == "hi"
    assert add_messages(merged, langchain.RemoveMessage(id="2")) == [merged[0], merged[2]]


def test_a_chunk_of_langchain_becomes_a_message():
    langchain = pytest.importorskip("langchain_core.messages")

    (added,) = add_messages([], langchain.AIMessageChunk("hi", id="1"))

    assert added == langchain.AIMessage("hi", id="1")


def test_messages_formatted_for_openai_keep_their_ids():
    langchain = pytest.importorskip("langchain_core.messages")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "00"}}
    reducer = add_messages(format="langchain-openai")

    once = reducer([], [said([image], "1"), said("a", "2", "assistant")])
    twice = reducer(once, said("b", "2", "assistant"))

    assert [one.id for one in twice] == ["1", "2"]
    assert [type(one) for one in twice] == [langchain.HumanMessage, langchain.AIMessage]
    assert twice[0].content == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,00"}}]
    assert twice[1].content == "b"


def test_langchain_is_not_imported_for_anything_but_its_format():
    code = """
import sys
from flowfn.messages import add_messages, RemoveMessage
from flowfn.stream.messages import MessageStream, Origin, set_for_langchain
add_messages(["a"], [("ai", "b")])
stream = MessageStream(print, False)
assert stream.callback(Origin((), {})) is None
set_for_langchain({})
print("langchain_core" in sys.modules)
"""

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# ---------------------------------------------------------------- shown by running code


@dataclass
class Recorded:
    """What a frame is asked for."""

    config: dict[str, Any] = field(default_factory=dict)
    emitted: list[Any] = field(default_factory=list)
    pushed: list[Any] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)

    def emit_message(self, message: Any, metadata: dict[str, Any]) -> None:
        self.emitted.append((message, metadata))

    def push(self, key: str, value: Any) -> None:
        self.pushed.append((key, value))

    def write(self, chunk: Any) -> None:
        self.written.append(chunk)


@pytest.fixture
def frame() -> Iterator[Recorded]:
    spot = SimpleNamespace(frame=Recorded(), path=b"", line=None)
    token = CURRENT.set(spot)  # type: ignore[arg-type]
    yield spot.frame
    CURRENT.reset(token)


@pytest.mark.parametrize(
    "push",
    [
        lambda: push_message(said("a", "1")),
        lambda: emit_message("a"),
        lambda: push_ui_message("chart", {}),
        lambda: delete_ui_message("1"),
    ],
)
def test_outside_a_flow_nothing_can_be_shown(push):
    with pytest.raises(OutsideFlowError):
        push()


def test_a_pushed_message_is_shown_and_written(frame):
    assert push_message(said("a", "1")) == said("a", "1")

    assert frame.emitted == [(said("a", "1"), {})]
    assert frame.pushed == [("messages", said("a", "1"))]


@pytest.mark.parametrize(("key", "pushed"), [(None, []), ("talk", [("talk", said("a", "1"))])])
def test_a_pushed_message_is_written_where_it_is_wanted(frame, key, pushed):
    push_message(said("a", "1"), state_key=key)

    assert frame.pushed == pushed
    assert len(frame.emitted) == 1


@pytest.mark.parametrize("message", ["hi", said("hi"), Plain("hi")])
def test_a_message_without_an_id_is_not_pushed(frame, message):
    with pytest.raises(MessageWithoutIdError):
        push_message(message)

    assert frame == Recorded()


def test_a_piece_of_text_is_shown_as_what_the_assistant_says(frame):
    emit_message("to", model="m")
    emit_message({"content": "ken", "id": "1"})

    assert frame.emitted == [
        ({"role": "assistant", "content": "to"}, {"model": "m"}),
        ({"content": "ken", "id": "1"}, {}),
    ]
    assert frame.pushed == []


def test_a_piece_has_the_tags_of_the_run_and_its_own(frame):
    frame.config["tags"] = ["run"]

    emit_message("a", tags=["own"])

    assert frame.emitted[0][1] == {"tags": ["run", "own"]}


@pytest.mark.parametrize("where", ["run", "piece"])
def test_a_piece_tagged_nostream_is_not_shown(frame, where):
    frame.config["tags"] = ["nostream"] if where == "run" else []

    emit_message("a", tags=["nostream"] if where == "piece" else [])

    assert frame.emitted == []


# ---------------------------------------------------------------- components of a page


def component(id, props, **metadata):
    return {"type": "ui", "id": id, "name": "chart", "props": props, "metadata": metadata}


def test_a_component_is_shown_and_written(frame):
    frame.config.update(tags=["t"], run_id="r")

    shown = push_ui_message("chart", {"x": 1}, id="u1", metadata={"k": 1}, message=Plain("a", "m1"))

    about = {"merge": False, "run_id": "r", "tags": ["t"], "name": None, "k": 1, "message_id": "m1"}
    assert shown == component("u1", {"x": 1}, **about)
    assert frame.written == [shown]
    assert frame.pushed == [("ui", shown)]


def test_components_get_ids_of_their_own_and_may_stay_out_of_the_state(frame):
    first, second = (push_ui_message("chart", {}, state_key=None) for _ in range(2))

    assert first["id"] != second["id"]
    assert frame.pushed == []


def test_a_component_is_taken_away(frame):
    assert delete_ui_message("u1") == {"type": "remove-ui", "id": "u1"}

    assert frame.written == [{"type": "remove-ui", "id": "u1"}]
    assert frame.pushed == [("ui", {"type": "remove-ui", "id": "u1"})]


def test_components_are_merged_by_id():
    old = [component("1", {"a": 1}), component("2", {})]
    before = copy.deepcopy(old)

    merged = ui_message_reducer(
        old, [component("1", {"b": 2}, merge=True), {"type": "remove-ui", "id": "2"}, component("3", {})]
    )

    assert merged == [component("1", {"a": 1, "b": 2}, merge=True), component("3", {})]
    assert old == before


def test_a_component_replaces_another_unless_it_is_to_be_merged():
    assert ui_message_reducer(component("1", {"a": 1}), component("1", {"b": 2})) == [component("1", {"b": 2})]


def test_a_component_that_is_not_there_cannot_be_removed():
    with pytest.raises(UnknownMessageError):
        ui_message_reducer([], {"type": "remove-ui", "id": "1"})
