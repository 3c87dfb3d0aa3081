"""Graphs as they are built: states, nodes of every kind, edges of every kind, and what is refused."""

import inspect
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel

from tests.conformance.graph_runs import State, asked, graph_of, line, note, run, runs, saved

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)


class Typed(TypedDict):
    n: int
    log: Annotated[list, operator.add]
    more: NotRequired[str]


@dataclass
class Data:
    n: int = 0
    log: Annotated[list, operator.add] = field(default_factory=list)
    more: str = "unset"


class Model(BaseModel):
    n: int = 0
    log: Annotated[list, operator.add] = []
    more: str = "unset"


class Narrow(TypedDict):
    n: int


class Private(TypedDict):
    secret: str


class Given(TypedDict):
    n: int


class Shown(TypedDict):
    log: Annotated[list, operator.add]


@dataclass
class NarrowData:
    n: int = -1


class NarrowModel(BaseModel):
    n: int = -1


def joined(shown):
    """The run, or only its values and its error where writes could not be joined: LangGraph then shows no state."""
    return {key: shown[key] for key in ("values", "raised")} if "raised" in shown else shown


def refusal(act):
    """Whether it raises what is a ValueError, another exception's class, or nothing."""
    try:
        act()
    except ValueError:
        return "ValueError"
    except Exception as error:
        return type(error).__name__
    return "nothing"


# ---------------------------------------------------------------- schemas


def peek(state):
    get = state.get if isinstance(state, dict) else partial(getattr, state)
    keys = sorted(state) if isinstance(state, dict) else ["log", "more", "n"]
    return {"log": [type(state).__name__, *([key, get(key)] for key in keys if key != "log")], "n": get("n") + 1}


@pytest.mark.parametrize("schema", [Typed, Data, Model])
def test_a_node_is_given_an_instance_of_the_schema(same, schema):
    def program(kit):
        return runs(kit, line(kit, schema, ("one", peek), ("two", peek)), {"n": 1}, {"n": 5, "more": "set"})

    same(program)


@pytest.mark.parametrize("schema", [Data, Model])
def test_an_instance_of_the_schema_is_an_input_and_an_update(same, schema):
    def program(kit):
        flow = line(kit, schema, ("one", lambda state: schema(n=7, log=["x"])), ("two", peek))
        return [
            kit.invoke(flow, schema(n=1, log=["given"])),
            run(kit, flow, schema(more="new")),
            kit.state(flow).values,
        ]

    same(program)


@pytest.mark.parametrize("schema", [Data, Model])
def test_an_instance_writes_what_was_set_in_it(same, schema):
    def program(kit):
        flow = line(kit, schema, ("one", lambda state: schema(n=7)), ("two", lambda state: schema(more="m")))
        return run(kit, flow, {"n": 1, "more": "before"})

    same(program)


def test_a_pydantic_state_refuses_a_wrong_input(both):
    def program(kit):
        return kit.attempt(line(kit, Model, ("one", peek)), {"n": "many"})

    pair = both(program)
    assert pair.theirs[0] == pair.ours[0] == "raised"
    assert pair.theirs[1]["error"] == pair.ours[1]["error"] == "ValidationError"


def test_a_pydantic_state_converts_what_a_node_is_given(same):
    def program(kit):
        return run(kit, line(kit, Model, ("one", lambda state: {"n": "8"}), ("two", peek)), {"n": "1"})

    same(program)


@pytest.mark.parametrize(
    ("schema", "input"), [(int, 1), (str, "a"), (Annotated[list, operator.add], [1]), (Annotated[int, operator.add], 3)]
)
def test_a_bare_type_is_a_state_of_one_value(same, schema, input):
    def program(kit):
        return runs(kit, line(kit, schema, ("one", lambda x: x), ("two", lambda x: x * 2)), input, input)

    same(program)


def test_a_node_of_a_bare_state_may_write_none(same):
    def program(kit):
        return run(kit, line(kit, int, ("one", lambda x: None), ("two", lambda x: x)), 1)

    same(program)


def test_required_and_optional_keys(same):
    class Marked(TypedDict, total=False):
        a: Required[int]
        b: NotRequired[Annotated[list, operator.add]]
        c: Annotated[NotRequired[int], "a word that says nothing"]
        d: Annotated[int, "first", lambda old, new: old * 10 + new]

    def program(kit):
        flow = line(
            kit, Marked, ("one", lambda s: {"b": [sorted(s)], "d": 2}), ("two", lambda s: {"b": [s["d"]], "d": 3})
        )
        return runs(kit, flow, {"a": 1}, {"c": 4, "d": 1})

    same(program)


def test_an_inherited_schema_has_the_keys_of_both(same):
    class Wider(State):
        extra: int

    def program(kit):
        return run(kit, line(kit, Wider, ("one", lambda s: {"extra": s["n"], "log": [1]})), {"n": 3, "log": [0]})

    same(program)


CHANNELS = {
    "last": lambda kit: kit.channels.LastValue(list),
    "any": lambda kit: kit.channels.AnyValue(list),
    "ephemeral": lambda kit: kit.channels.EphemeralValue(list),
    "ephemeral-unguarded": lambda kit: kit.channels.EphemeralValue(list, guard=False),
    "untracked": lambda kit: kit.channels.UntrackedValue(list),
    "untracked-unguarded": lambda kit: kit.channels.UntrackedValue(list, guard=False),
    "topic": lambda kit: kit.channels.Topic(int),
    "topic-accumulating": lambda kit: kit.channels.Topic(int, accumulate=True),
    "total": lambda kit: kit.channels.BinaryOperatorAggregate(list, operator.add),
    "class-last": lambda kit: kit.channels.LastValue,
    "class-any": lambda kit: kit.channels.AnyValue,
    "class-ephemeral": lambda kit: kit.channels.EphemeralValue,
    "class-untracked": lambda kit: kit.channels.UntrackedValue,
}


def with_channel(kit, channel):
    """Two nodes at once that write to `value`, one that only looks, one that writes, one that looks."""

    class Holder(TypedDict):
        value: Annotated[list, CHANNELS[channel](kit)]
        log: Annotated[list, operator.add]

    def see(name):
        return lambda state: {"log": [[name, state.get("value", "nothing")]]}

    graph = kit.StateGraph(Holder)
    graph.add_node("write", lambda state: {"value": [1, 2], "log": [state.get("value", "nothing")]})
    graph.add_node("see", see("see"))
    graph.add_node("idle", see("idle"))
    graph.add_node("again", lambda state: {"value": [3]})
    graph.add_node("end", see("end"))
    for start, end in pairwise(["__start__", "write", "see", "idle", "again", "end"]):
        graph.add_edge(start, end)
    return graph


@pytest.mark.parametrize("channel", CHANNELS)
def test_an_annotated_channel_keeps_a_key_by_its_rule(same, channel):
    def program(kit):
        return runs(kit, saved(kit, with_channel(kit, channel)), {"value": [0]}, {"log": ["second"]})

    same(program)


@pytest.mark.parametrize("channel", CHANNELS)
def test_two_nodes_at_once_write_to_an_annotated_channel(same, channel):
    def program(kit):
        graph = with_channel(kit, channel)
        graph.add_node("twin", lambda state: {"value": [9]})
        graph.add_edge("__start__", "twin")
        return joined(run(kit, saved(kit, graph), {"value": [0]}))

    same(program)


@pytest.mark.parametrize(
    ("hint", "writes"),
    [
        (Annotated[Sequence, lambda a, b: [*a, *b]], [[1], [2]]),
        (Annotated[set, operator.or_], [{1}, {2}]),
        (Annotated[dict, operator.or_], [{"a": 1}, {"b": 2}]),
        (Annotated[str, operator.add], ["a", "b"]),
        (Annotated[float, lambda a, b: a + b], [1.5, 2.0]),
        (Annotated[int | None, lambda a, b: b if a is None else a + b], [1, 2]),
        (Annotated[list[int], operator.add], [[1], [2]]),
    ],
    ids=["sequence", "set", "dict", "str", "float", "optional", "list-of"],
)
def test_a_reducer_begins_with_the_empty_value_of_its_type(same, hint, writes):
    class Reduced(TypedDict):
        value: hint
        log: Annotated[list, operator.add]

    def program(kit):
        nodes = [
            (f"n{i}", lambda s, w=w: {"value": w, "log": [s.get("value", "nothing")]}) for i, w in enumerate(writes)
        ]
        return runs(kit, line(kit, Reduced, *nodes), {"log": []}, {"log": []})

    same(program)


@pytest.mark.parametrize(
    "word", [lambda a: a, lambda a, b, c: a, "text", 3, lambda a, b=1: a, lambda *a: a[0], lambda a, b, c=1: a + b]
)
def test_what_annotates_a_key_may_be_no_reducer(same, word):
    class Odd(TypedDict):
        value: Annotated[int, word]

    def program(kit):
        found = []

        def act():
            found.append(run(kit, line(kit, Odd, ("one", lambda s: {"value": 5})), {"value": 1}))

        return [refusal(act), found]

    same(program)


def test_two_channels_for_one_key_are_refused(same):
    def program(kit):
        class One(TypedDict):
            a: Annotated[list, operator.add]

        class Other(TypedDict):
            a: Annotated[list, operator.or_]

        class Plain(TypedDict):
            a: list

        class Twin(TypedDict):
            a: Annotated[list, operator.add]

        def pair(first, second):
            return [
                refusal(lambda: kit.StateGraph(first, input_schema=second)),
                refusal(lambda: kit.StateGraph(first, output_schema=second)),
                refusal(lambda: kit.StateGraph(first).add_node("x", note("x"), input_schema=second)),
            ]

        schemas = (One, Other, Plain, Twin)
        return {f"{a.__name__} then {b.__name__}": pair(a, b) for a in schemas for b in schemas}

    same(program)


def test_a_plain_key_in_a_second_schema_has_the_reducer_of_the_first(same):
    class PlainLog(TypedDict):
        log: list

    def program(kit):
        found = []
        for schemas in ({"input_schema": PlainLog}, {"output_schema": PlainLog}):
            graph = kit.StateGraph(State, **schemas)
            graph.add_node("one", note("one"))
            graph.add_edge(kit.START, "one")
            found.append(runs(kit, saved(kit, graph), {"log": ["a"]}, {"log": ["b"]}))
        return found

    same(program)


def test_input_and_output_schemas_choose_what_goes_in_and_out(same):
    def program(kit):
        graph = kit.StateGraph(State, input_schema=Given, output_schema=Shown)
        graph.add_node("one", lambda s: {"log": [sorted(s)], "n": s.get("n", 0) + 1})
        graph.add_node("two", lambda s: {"log": [s["n"]]})
        graph.add_edge(kit.START, "one")
        graph.add_edge("one", "two")
        flow = saved(kit, graph)
        return [*runs(kit, flow, {"n": 1, "log": ["dropped?"]}, {"n": 5}), kit.attempt(flow, {"log": ["x"]})]

    same(program)


def test_schemas_of_input_and_output_may_have_keys_of_their_own(same):
    class Question(TypedDict):
        question: str

    class Answer(TypedDict):
        answer: str

    def program(kit):
        graph = kit.StateGraph(State, input_schema=Question, output_schema=Answer)

        def read(state: Question):
            return {"n": len(state["question"]), "log": [sorted(state)]}

        graph.add_node(read)
        graph.add_node("tell", lambda s: {"answer": "yes", "log": [sorted(s)]})
        graph.add_edge(kit.START, "read")
        graph.add_edge("read", "tell")
        return runs(kit, saved(kit, graph), {"question": "why"}, {"question": "how", "n": 9})

    same(program)


@pytest.mark.parametrize("schema", [Data, Model])
def test_an_output_schema_of_a_class_gives_a_dict(same, schema):
    def program(kit):
        graph = kit.StateGraph(State, output_schema=schema)
        graph.add_node("one", note("one"))
        graph.add_edge(kit.START, "one")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


@pytest.mark.parametrize("schema", [Narrow, NarrowData, NarrowModel])
@pytest.mark.parametrize("is_said", [True, False], ids=["said", "inferred"])
def test_a_node_is_given_what_its_schema_reads(same, schema, is_said):
    def program(kit):
        def look(state):
            return {"log": [type(state).__name__, state["n"] if isinstance(state, dict) else state.n]}

        if not is_said:
            look.__annotations__["state"] = schema
        graph = kit.StateGraph(State)
        graph.add_node("look", look, **({"input_schema": schema} if is_said else {}))
        graph.add_node("all", lambda s: {"log": [sorted(s)]})
        graph.add_edge(kit.START, "look")
        graph.add_edge(kit.START, "all")
        return run(kit, saved(kit, graph), {"n": 4})

    same(program)


def test_a_node_whose_schema_has_nothing_yet(same):
    def program(kit):
        def look(state: Private):
            return {"log": [dict(state)]}

        return run(kit, line(kit, State, look), {"n": 1})

    same(program)


def test_private_keys_pass_from_node_to_node(same):
    def program(kit):
        def tell(state: State) -> Private:
            return {"secret": f"n is {state['n']}"}

        def hear(state: Private) -> State:
            return {"log": [state["secret"], sorted(state)]}

        graph = kit.StateGraph(State)
        graph.add_sequence([tell, hear, ("last", lambda s: {"log": [sorted(s)]})])
        graph.add_edge(kit.START, "tell")
        return runs(kit, saved(kit, graph), {"n": 1}, {"n": 2, "secret": "given"})

    same(program)


def test_a_key_that_no_schema_names_is_dropped(same):
    def program(kit):
        flow = line(kit, State, ("one", lambda s: {"unknown": 1, "log": ["one"]}), ("two", lambda s: {"unknown": 1}))
        return run(kit, flow, {"n": 1, "other": 2})

    same(program)


def test_an_input_without_any_known_key_is_refused(same):
    def program(kit):
        flow = line(kit, State, ("one", note("one")))
        return [kit.attempt(flow, given) for given in ({}, {"other": 2}, None)]

    same(program)


def test_managed_values_are_neither_input_nor_output(same):
    def program(kit):
        class Managed(TypedDict):
            n: int
            last: kit.IsLastStep

        return [
            refusal(lambda: kit.StateGraph(State, input_schema=Managed)),
            refusal(lambda: kit.StateGraph(State, output_schema=Managed)),
            refusal(lambda: kit.StateGraph(Managed)),
            refusal(lambda: kit.StateGraph(Managed, input_schema=State)),
        ]

    same(program)


@dataclass
class Who:
    name: str
    age: int = 3


class WhoModel(BaseModel):
    name: str
    age: int = 3


class WhoDict(TypedDict):
    name: str


@pytest.mark.parametrize("schema", [Who, WhoModel, WhoDict, None])
def test_context_is_made_into_its_schema(same, schema):
    def program(kit):
        graph = kit.StateGraph(State, context_schema=schema)
        graph.add_node("one", lambda s, runtime: {"log": [repr(runtime.context)]})
        graph.add_edge(kit.START, "one")
        flow = saved(kit, graph)
        given = [{"name": "ann"}, None, *([] if schema is None else [schema(name="bob")])]
        return [kit.attempt(flow, {"n": 1}, context=one) for one in given]

    same(program)


# ---------------------------------------------------------------- callables and signatures


class Teller:
    """Callable in every way an object can be."""

    name_of_it = "teller"

    def __call__(self, state):
        return {"log": ["called"]}

    def told(self, state):
        return {"log": ["method"]}

    @classmethod
    def of_class(cls, state):
        return {"log": [cls.__name__]}

    @staticmethod
    def static(state):
        return {"log": ["static"]}


class AsyncTeller:
    async def __call__(self, state):
        return {"log": ["awaited call"]}

    async def told(self, state):
        return {"log": ["awaited method"]}


async def awaited_one(state):
    return {"log": ["awaited"]}


def with_word(word, state):
    return {"log": [word]}


async def awaited_with_word(word, state):
    return {"log": [word]}


def inner(kit):
    graph = kit.StateGraph(State)
    graph.add_node("inside", lambda s: {"log": ["inside"], "n": s["n"] + 1})
    graph.add_edge(kit.START, "inside")
    return graph.compile()


CALLABLES = {
    "function": lambda kit: note("f"),
    "partial": lambda kit: partial(with_word, "partial"),
    "method": lambda kit: Teller().told,
    "class-method": lambda kit: Teller.of_class,
    "static-method": lambda kit: Teller.static,
    "object": lambda kit: Teller(),
    "graph": inner,
    "runnable": lambda kit: RunnableLambda(note("runnable")),
}
AWAITED_CALLABLES = {
    "async-function": lambda kit: awaited_one,
    "async-partial": lambda kit: partial(awaited_with_word, "partial"),
    "async-method": lambda kit: AsyncTeller().told,
    "async-object": lambda kit: AsyncTeller(),
    "async-runnable": lambda kit: RunnableLambda(awaited_one),
}


@pytest.mark.parametrize("action", CALLABLES)
def test_a_node_is_anything_callable(same, action):
    def program(kit):
        return run(kit, line(kit, State, ("one", CALLABLES[action](kit)), ("two", note("two"))), {"n": 1})

    same(program)


@awaited
@pytest.mark.parametrize("action", AWAITED_CALLABLES)
def test_a_node_is_anything_that_can_be_awaited(same, action):
    def program(kit):
        return run(kit, line(kit, State, ("one", AWAITED_CALLABLES[action](kit)), ("two", note("two"))), {"n": 1})

    same(program)


@pytest.mark.parametrize("way", ["blocking"], indirect=True)
def test_an_async_node_needs_an_awaited_run(both):
    def program(kit):
        return kit.attempt(line(kit, State, ("one", awaited_one)), {"n": 1})

    assert both(program).theirs[1]["error"] == "TypeError"


def signatures(kit):
    """One function for each way to ask for something; each tells what it got."""

    def state_only(state):
        return sorted(state)

    def config_bare(state, config):
        return config["configurable"]["thread_id"]

    def config_annotated(state, config: kit.Config):
        return config["configurable"]["thread_id"]

    def config_optional(state, config: kit.Config | None = None):
        return config is not None and config["configurable"]["thread_id"]

    def config_only_by_keyword(state, *, config: kit.Config):
        return config["configurable"]["thread_id"]

    def runtime_bare(state, runtime):
        return [runtime.context, runtime.store is not None]

    def runtime_annotated(state, runtime: kit.Runtime):
        return runtime.execution_info.thread_id

    def runtime_generic(state, runtime: kit.Runtime[dict]):
        return runtime.context

    def runtime_only_by_keyword(state, *, runtime):
        return runtime.context

    def store_annotated(state, *, store: kit.Store):
        return store is not None

    def store_positional(state, store: kit.Store):
        return store is not None

    def writer_annotated(state, *, writer: kit.StreamWriter):
        writer("written")
        return callable(writer)

    def everything(state, config: kit.Config, *, store: kit.Store, writer: kit.StreamWriter, runtime: kit.Runtime):
        writer(["all"])
        return [config["configurable"]["thread_id"], store is not None, runtime.context]

    def default_of_its_own(state, factor=3):
        return factor

    def many(state, *others, **named):
        return [len(others), sorted(named)]

    return {name: made for name, made in locals().items() if name != "kit"}


SIGNATURES = [
    "state_only",
    "config_bare",
    "config_annotated",
    "config_optional",
    "config_only_by_keyword",
    "runtime_bare",
    "runtime_annotated",
    "runtime_generic",
    "runtime_only_by_keyword",
    "store_annotated",
    "store_positional",
    "writer_annotated",
    "everything",
    "default_of_its_own",
    "many",
]


@pytest.mark.parametrize("has_store", [True, False], ids=["store", "storeless"])
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_node_asks_by_its_signature(same, name, has_store):
    def program(kit):
        ask = signatures(kit)[name]

        class Asked(TypedDict):
            got: Any

        def as_update(asked):
            def node(*given, **named):
                return {"got": asked(*given, **named)}

            node.__signature__ = inspect.signature(asked)
            node.__annotations__ = asked.__annotations__
            return node

        options = {"store": kit.InMemoryStore()} if has_store else {}
        flow = line(kit, Asked, ("one", as_update(ask)), **options)
        return kit.stream(flow, {"got": 1}, stream_mode=["custom", "updates"], context={"c": 1})

    same(program)


def test_a_config_is_told_by_its_annotation_not_by_its_name(same):
    def program(kit):
        def ask(state, conf: kit.Config):
            return {"log": [conf is None]}

        return [kit.attempt(line(kit, State, ask), {"n": 1})[0] == "raised" or "given"]

    same(program)


def test_a_config_annotated_as_text_is_given(same):
    def program(kit):
        def ask(state, config: "RunnableConfig"):  # noqa: F821
            return {"log": [config["configurable"]["thread_id"]]}

        return kit.invoke(line(kit, State, ask), {"n": 1})

    same(program)


def test_metadata_tags_and_own_keys_of_a_config_reach_the_node(same):
    def program(kit):
        def ask(state, config: kit.Config):
            own = config["configurable"]["mine"]
            return {"log": [own, config["metadata"]["m"], config["tags"], config["metadata"]["langgraph_node"]]}

        config = {"configurable": {"thread_id": "t", "mine": 7}, "metadata": {"m": 1}, "tags": ["x"]}
        return kit.invoke(line(kit, State, ask), {"n": 1}, config)

    same(program)


# ---------------------------------------------------------------- names of nodes


def test_a_node_is_named_by_its_function(same):
    def program(kit):
        def plain(state):
            return {"log": ["plain"]}

        found = []
        for action in (plain, Teller().told, Teller.of_class, Teller.static, awaited_one, RunnableLambda(plain)):
            graph = kit.StateGraph(State)
            graph.add_node(action)
            found.append(list(graph.nodes))
        return found

    same(program)


@pytest.mark.parametrize("action", ["lambda", "partial", "object", "graph", "runnable"])
def test_what_has_no_name_of_its_own_is_named_or_refused(same, action):
    def program(kit):
        actions = {
            "lambda": lambda state: {"log": ["lambda"]},
            "partial": partial(with_word, "partial"),
            "object": Teller(),
            "graph": kit.StateGraph(State)
            .add_sequence([("x", note("x"))])
            .add_edge(kit.START, "x")
            .compile(name="mine"),
            "runnable": RunnableLambda(note("r"), name="named"),
        }
        graph = kit.StateGraph(State)
        return [refusal(lambda: graph.add_node(actions[action])), list(graph.nodes)]

    same(program)


@pytest.mark.parametrize("name", ["a", "__start__", "__end__", "a|b", "a:b", "n", "log", "", "ünï code", "a.b", "a/b"])
def test_some_names_are_refused(same, name):
    def program(kit):
        graph = graph_of(kit, "a")
        return [refusal(lambda: graph.add_node(name, note("x"))), sorted(graph.nodes)]

    same(program)


@pytest.mark.parametrize("name", ["__error__", "__input__", "__interrupt__", "__resume__", "__pregel_tasks"])
def test_names_of_reserved_writes_are_no_names_of_nodes(same, name):
    def program(kit):
        return refusal(lambda: kit.StateGraph(State).add_node(name, note("x")))

    same(program)


def test_a_name_without_an_action_is_refused(same):
    def program(kit):
        graph = kit.StateGraph(State)
        return [refusal(lambda: graph.add_node("a")) != "nothing", refusal(lambda: graph.add_node("a", 5)) != "nothing"]

    assert same(program) == [True, True]


def test_a_graph_is_built_by_chained_calls(same):
    def program(kit):
        flow = (
            kit.StateGraph(State)
            .add_node("a", note("a"))
            .add_node("b", note("b"))
            .add_sequence([("c", note("c")), ("d", note("d"))])
            .set_entry_point("a")
            .add_edge("a", "b")
            .add_conditional_edges("b", lambda s: "c")
            .set_finish_point("d")
            .set_node_defaults()
            .compile()
        )
        return kit.invoke(flow, {"n": 1})

    assert same(program)["log"] == ["a", "b", "c", "d"]


def test_a_compiled_graph_can_go_without_a_saver(same):
    def program(kit):
        graph = graph_of(kit, "a").add_edge(kit.START, "a")
        flow = graph.compile()
        return [kit.invoke(flow, {"n": 1}), kit.invoke(flow, {"n": 1}, {}), kit.stream(flow, {"n": 1}, {})]

    same(program)


def test_one_graph_is_compiled_twice(same):
    def program(kit):
        graph = graph_of(kit, "a", "b").add_edge(kit.START, "a")
        first = saved(kit, graph)
        graph.add_edge("a", "b")
        second = saved(kit, graph)
        return [kit.invoke(first, {"n": 1}), kit.invoke(second, {"n": 1}), kit.invoke(first, {"n": 1})]

    same(program)


# ---------------------------------------------------------------- edges


def edged(kit, names, *edges, **compiled):
    graph = graph_of(kit, *names)
    for start, end in edges:
        graph.add_edge(list(start) if isinstance(start, tuple) else start, end)
    return saved(kit, graph, **compiled)


S, E = "__start__", "__end__"
SHAPES = {
    "line": (["a", "b"], (S, "a"), ("a", "b"), ("b", E)),
    "fork": (["a", "b", "c"], (S, "a"), ("a", "b"), ("a", "c")),
    "diamond": (["a", "b", "c", "d"], (S, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")),
    "lopsided": (["a", "b", "b2", "c", "d"], (S, "a"), ("a", "b"), ("b", "b2"), ("a", "c"), ("b2", "d"), ("c", "d")),
    "join": (["a", "b", "b2", "c", "d"], (S, "a"), ("a", "b"), ("b", "b2"), ("a", "c"), (("b2", "c"), "d")),
    "two-joins": (
        ["a", "b", "c", "d", "e", "f"],
        *[(S, n) for n in "abc"],
        (("a", "b"), "d"),
        (("b", "c"), "e"),
        (("d", "e"), "f"),
    ),
    "join-and-edge": (["a", "b", "c"], (S, "a"), ("a", "b"), (("a", "b"), "c"), ("a", "c")),
    "join-of-one": (["a", "b"], (S, "a"), (("a",), "b")),
    "join-to-end": (["a", "b"], (S, "a"), (S, "b"), (("a", "b"), E)),
    "several-starts": (["b", "a"], (S, "b"), (S, "a")),
    "join-never-filled": (["a", "b", "c"], (S, "a"), (("a", "b"), "c")),
    "unreachable": (["a", "b"], (S, "a")),
    "edge-twice": (["a", "b"], (S, "a"), ("a", "b"), ("a", "b")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_say_what_comes_next(same, shape):
    def program(kit):
        names, *edges = SHAPES[shape]
        return runs(kit, edged(kit, names, *edges), {"n": 1}, {"n": 2})

    same(program)


def test_a_join_in_a_loop_waits_each_time(same):
    def program(kit):
        graph = graph_of(kit, "a", "b", "join")
        graph.add_edge(kit.START, "a")
        graph.add_edge(kit.START, "b")
        graph.add_edge(["a", "b"], "join")
        graph.add_conditional_edges("join", lambda s: ["a", "b"] if len(s["log"]) < 7 else kit.END)
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_join_remembers_a_source_over_runs(same):
    def program(kit):
        graph = graph_of(kit, "a", "b", "join")
        graph.add_conditional_edges(kit.START, lambda s: "a" if s["n"] == 1 else "b")
        graph.add_edge(["a", "b"], "join")
        return runs(kit, saved(kit, graph), {"n": 1}, {"n": 1}, {"n": 2}, {"n": 2})

    same(program)


@pytest.mark.parametrize("case", ["end", "start", "join-end", "join-start", "unknown-source", "unknown-target"])
def test_an_edge_that_leads_nowhere_is_refused(same, case):
    edges = {
        "end": (E, "a"),
        "start": ("a", S),
        "join-end": (["a", E], "b"),
        "join-start": (["a", "b"], S),
        "unknown-source": (["a", "x"], "b"),
        "unknown-target": (["a", "b"], "x"),
    }

    def program(kit):
        graph = graph_of(kit, "a", "b").add_edge(kit.START, "a")
        return refusal(lambda: graph.add_edge(*edges[case]))

    assert same(program) == "ValueError"


def test_a_graph_is_checked_when_it_is_compiled(same):
    def program(kit):
        def build(*edges, **compiled):
            def act():
                graph = graph_of(kit, "a", "b")
                for edge in edges:
                    graph.add_edge(*edge)
                graph.compile(**compiled)

            return act

        def branch(source, path_map=None, entry=True):
            def act():
                graph = graph_of(kit, "a", "b")
                if entry:
                    graph.add_edge(kit.START, "a")
                graph.add_conditional_edges(source, lambda s: "b", path_map)
                graph.compile()

            return act

        start = (kit.START, "a")
        return {
            "fine": refusal(build(start)),
            "empty": refusal(lambda: kit.StateGraph(State).compile()),
            "no start": refusal(build(("a", "b"))),
            "unknown source": refusal(build(start, ("x", "b"))),
            "unknown target": refusal(build(start, ("a", "x"))),
            "unknown start": refusal(build((kit.START, "x"))),
            "start to end": refusal(build((kit.START, kit.END))),
            "interrupt before": refusal(build(start, interrupt_before=["x"])),
            "interrupt after": refusal(build(start, interrupt_after=["a", "x"])),
            "interrupt known": refusal(build(start, interrupt_after=["a"], interrupt_before=["b"])),
            "interrupt all": refusal(build(start, interrupt_after="*")),
            "branch of unknown": refusal(branch("x")),
            "branch of end": refusal(branch(kit.END)),
            "branch only": refusal(branch(kit.START, entry=False)),
            "mapped to unknown": refusal(branch("a", {"yes": "x", "no": "b"})),
            "mapped to unknown in list": refusal(branch("a", ["b", "x"])),
            "mapped to end": refusal(branch("a", {"yes": kit.END})),
            "mapped to start": refusal(branch("a", {"yes": kit.START})),
            "an unknown destination": refusal(
                lambda: graph_of(kit, "a").add_edge(*start).add_node("c", note("c"), destinations=("x",)).compile()
            ),
        }

    same(program)


def test_the_same_conditional_edge_twice_is_refused(same):
    def program(kit):
        def path(state):
            return "b"

        graph = graph_of(kit, "a", "b").add_edge(kit.START, "a").add_conditional_edges("a", path)
        return [
            refusal(lambda: graph.add_conditional_edges("a", path)),
            refusal(lambda: graph.add_conditional_edges("b", path, ["a"])),
        ]

    assert same(program) == ["ValueError", "nothing"]


# ---------------------------------------------------------------- conditional edges


class Chooser:
    def __init__(self, end):
        self.end = end

    def __call__(self, state):
        return self.end

    def choose(self, state):
        return self.end


def says_b(state) -> Literal["b", "c"]:
    return "b"


RESULTS = {
    "name": lambda kit: "b",
    "end": lambda kit: kit.END,
    "list": lambda kit: ["b", "c"],
    "reversed": lambda kit: ["c", "b"],
    "tuple": lambda kit: ("b", "c"),
    "twice": lambda kit: ["b", "b"],
    "with-end": lambda kit: ["b", kit.END],
    "empty": lambda kit: [],
    "send": lambda kit: kit.Send("b", {"n": 5, "log": []}),
    "sends": lambda kit: [kit.Send("b", {"n": 5, "log": []}), kit.Send("c", {"n": 6, "log": []})],
    "send-and-name": lambda kit: [kit.Send("b", {"n": 5, "log": []}), "b"],
    "sends-same": lambda kit: [kit.Send("b", {"n": i, "log": []}) for i in range(4)],
    "another": lambda kit: "z",
}


def branching(kit, path, path_map=None, source="a"):
    """a → what `path` says of b, c, which end; each logs what it was given."""
    graph = kit.StateGraph(State)
    for name in "abcz":
        graph.add_node(name, lambda s, name=name: {"log": [[name, s.get("n")]]})
    if source == "a":
        graph.add_edge(kit.START, "a")
    graph.add_conditional_edges(source, path, path_map)
    return graph


@pytest.mark.parametrize("source", ["a", S], ids=["node", "start"])
@pytest.mark.parametrize("result", RESULTS)
def test_a_path_says_where_to_go(same, result, source):
    def program(kit):
        return run(kit, saved(kit, branching(kit, lambda s: RESULTS[result](kit), source=source)), {"n": 1})

    same(program)


MAPPED = {
    "dict": (lambda s: "yes", {"yes": "b", "no": "c"}),
    "bool": (lambda s: s["n"] == 1, {True: "c", False: "b"}),
    "number": (lambda s: 2, {1: "b", 2: "c"}),
    "several": (lambda s: ["yes", "no"], {"yes": "b", "no": "c"}),
    "to-end": (lambda s: "yes", {"yes": "__end__"}),
    "list": (lambda s: "b", ["b", "c"]),
    "tuple": (lambda s: "b", ("b", "c")),
    "literal": (says_b, None),
    "none-mapped": (lambda s: None, {None: "b"}),
}


@pytest.mark.parametrize("case", MAPPED)
def test_a_path_map_names_what_a_path_says(same, case):
    def program(kit):
        path, path_map = MAPPED[case]
        return run(kit, saved(kit, branching(kit, path, path_map)), {"n": 1})

    same(program)


NOWHERE = {
    "none": (lambda kit: None, None),
    "start": (lambda kit: kit.START, None),
    "send-to-end": (lambda kit: kit.Send(kit.END, {}), None),
    "missing-in-map": (lambda kit: "maybe", {"yes": "b"}),
    "missing-in-list": (lambda kit: "c", ["b"]),
}


@pytest.mark.parametrize("source", ["a", S], ids=["node", "start"])
@pytest.mark.parametrize("case", NOWHERE)
def test_a_path_that_leads_nowhere_fails_the_run(same, case, source):
    def program(kit):
        result, path_map = NOWHERE[case]
        found = kit.attempt(saved(kit, branching(kit, lambda s: result(kit), path_map, source)), {"n": 1})
        return [isinstance(found, tuple), isinstance(found[1], ValueError | KeyError | kit.InvalidUpdateError)]

    assert same(program) == [True, True]


def test_a_send_is_not_mapped(same):
    def program(kit):
        path = lambda s: [kit.Send("b", {"n": 3}), "b"]  # noqa: E731
        return run(kit, saved(kit, branching(kit, path, {"b": "c"})), {"n": 1})

    same(program)


PATHS = {
    "object": Chooser("b"),
    "method": Chooser("c").choose,
    "partial": partial(lambda end, state: end, "c"),
    "runnable": RunnableLambda(says_b),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_anything_callable(same, path):
    def program(kit):
        found = []
        flow = []

        def act():
            flow.append(saved(kit, branching(kit, PATHS[path])))

        found.append(refusal(act))
        return [*found, *(run(kit, made, {"n": 1}) for made in flow)]

    same(program)


@awaited
@pytest.mark.parametrize("kind", ["function", "partial"])
def test_a_path_may_be_async(same, kind):
    async def choose(state):
        return ["c", "b"]

    paths = {"function": choose, "partial": partial(choose)}

    def program(kit):
        return run(kit, saved(kit, branching(kit, paths[kind])), {"n": 1})

    same(program)


def test_a_path_asks_by_its_signature(same):
    def program(kit):
        def choose(state, config: kit.Config, *, store: kit.Store, runtime: kit.Runtime):
            return "b" if config["configurable"]["thread_id"] == "t" and store is not None else "c"

        return run(kit, saved(kit, branching(kit, choose), store=kit.InMemoryStore()), {"n": 1}, context={"x": 1})

    assert same(program)["values"][-1]["log"] == [["a", 1], ["b", 1]]


def test_a_path_sees_what_its_own_node_wrote_and_no_other(same):
    def program(kit):
        seen = []
        graph = kit.StateGraph(State)
        graph.add_node("a", lambda s: {"n": 10, "log": ["a"]})
        graph.add_node("b", lambda s: {"log": ["b"]})
        graph.add_node("c", note("c"))
        graph.add_edge(kit.START, "a")
        graph.add_edge(kit.START, "b")
        for name in "ab":
            graph.add_conditional_edges(name, lambda s, name=name: seen.append((name, dict(s))) or "c")
        result = run(kit, saved(kit, graph), {"n": 1, "log": ["in"]})
        return [result, sorted(seen)]

    same(program)


def test_a_path_has_a_schema_of_its_own(same):
    def program(kit):
        seen = []

        def choose(state: Narrow):
            seen.append(dict(state))
            return "b"

        def choose_data(state: NarrowData):
            seen.append((type(state).__name__, state.n))
            return "c"

        graph = branching(kit, choose).add_conditional_edges("a", choose_data)
        return [run(kit, saved(kit, graph), {"n": 1}), sorted(seen, key=str)]

    same(program)


def test_two_conditional_edges_and_an_edge_leave_one_node(same):
    def program(kit):
        def one(state):
            return "b"

        def other(state):
            return [kit.Send("b", {"n": 7}), "c"]

        graph = branching(kit, one).add_conditional_edges("a", other).add_edge("a", "z")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_conditional_edge_of_a_finished_thread_starts_it_again(same):
    def program(kit):
        graph = branching(kit, lambda s: "b" if s["n"] == 1 else kit.END, source=kit.START)
        return runs(kit, saved(kit, graph), {"n": 1}, {"n": 2}, {"n": 1})

    same(program)


def test_a_failing_path_fails_its_node(same):
    def program(kit):
        def choose(state):
            raise KeyError("no path")

        flow = saved(kit, branching(kit, choose))
        return [kit.attempt(flow, {"n": 1}), kit.state(flow).values["n"]]

    assert same(program) == [("raised", {"error": "KeyError", "args": ("no path",)}), 1]


def test_a_node_whose_path_failed_runs_again(both):
    def program(kit):
        fails, ran = [True], []

        def choose(state):
            if fails:
                raise KeyError("no path")
            return "b"

        graph = branching(kit, choose)
        graph.add_node("first", lambda s: ran.append("first"))
        flow = saved(kit, graph.add_edge(kit.START, "first"))
        kit.attempt(flow, {"n": 1})
        fails.clear()
        return [kit.state(flow).next, kit.attempt(flow, None), ran]

    assert both(program).ours == [("a",), {"n": 1, "log": [["a", 1], ["b", 1]]}, ["first"]]


def test_a_conditional_entry_point_with_a_map(same):
    def program(kit):
        graph = graph_of(kit, "a", "b")
        graph.set_conditional_entry_point(lambda s: s["n"] > 1, {True: "b", False: "a"})
        return runs(kit, saved(kit, graph), {"n": 1}, {"n": 2})

    same(program)


# ---------------------------------------------------------------- sugar


def test_a_sequence_runs_in_order(same):
    def program(kit):
        def first(state):
            return {"log": ["first"]}

        def last(state):
            return {"log": ["last"]}

        graph = kit.StateGraph(State).add_sequence([first, ("middle", note("middle")), last])
        graph.set_entry_point("first").set_finish_point("last")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_sequence_that_is_empty_or_names_twice_is_refused(same):
    def program(kit):
        return [
            refusal(lambda: kit.StateGraph(State).add_sequence([])),
            refusal(lambda: kit.StateGraph(State).add_sequence([("a", note("a")), ("a", note("b"))])),
            refusal(lambda: graph_of(kit, "a").add_sequence([("a", note("a"))])),
        ]

    assert same(program) == ["ValueError"] * 3


def test_several_entry_and_finish_points(same):
    def program(kit):
        graph = graph_of(kit, "a", "b").set_entry_point("a").set_entry_point("b")
        graph.set_finish_point("a").set_finish_point("b")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


# ---------------------------------------------------------------- defer


def test_a_deferred_node_waits_until_nothing_else_is_due(same):
    def program(kit):
        graph = graph_of(kit, "a", "b", "b2", "b3", "c")
        graph.add_node("last", note("last"), defer=True)
        for edge in [(S, "a"), ("a", "b"), ("b", "b2"), ("b2", "b3"), ("a", "c"), ("b3", "last"), ("c", "last")]:
            graph.add_edge(*edge)
        return runs(kit, saved(kit, graph), {"n": 1}, {"n": 2})

    same(program)


def test_deferred_nodes_follow_each_other(same):
    def program(kit):
        graph = graph_of(kit, "a", "b", "b2")
        graph.add_node("later", note("later"), defer=True)
        graph.add_node("latest", note("latest"), defer=True)
        graph.add_node("after", note("after"))
        for edge in [(S, "a"), (S, "b"), ("b", "b2"), ("a", "later"), ("later", "latest"), ("a", "latest")]:
            graph.add_edge(*edge)
        graph.add_edge("latest", "after")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_deferred_join_waits_for_sources_and_for_the_rest(same):
    def program(kit):
        graph = graph_of(kit, "a", "b", "c", "c2", "c3")
        graph.add_node("join", note("join"), defer=True)
        for edge in [(S, "a"), (S, "b"), (S, "c"), ("c", "c2"), ("c2", "c3"), (["a", "b"], "join")]:
            graph.add_edge(*edge)
        return runs(kit, saved(kit, graph), {"n": 1}, {"n": 1})

    same(program)


def test_a_deferred_node_collects_what_sends_gave(same):
    def program(kit):
        graph = kit.StateGraph(State)
        graph.add_node("plan", note("plan"))
        graph.add_node("work", lambda s: {"log": [s["n"] * 10]})
        graph.add_node("more", note("more"))
        graph.add_node("sum", lambda s: {"n": len(s["log"]), "log": ["sum"]}, defer=True)
        graph.add_edge(kit.START, "plan")
        graph.add_conditional_edges("plan", lambda s: [kit.Send("work", {"n": i}) for i in range(3)])
        graph.add_edge("work", "sum")
        graph.add_conditional_edges("work", lambda s: "more" if s["n"] == 2 else kit.END)
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_deferred_node_at_the_start(same):
    def program(kit):
        graph = graph_of(kit, "a", "a2")
        graph.add_node("later", note("later"), defer=True)
        for edge in [(S, "a"), (S, "later"), ("a", "a2")]:
            graph.add_edge(*edge)
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_a_deferred_node_can_be_looped_to(same):
    def program(kit):
        graph = graph_of(kit, "a", "b")
        graph.add_node("later", note("later"), defer=True)
        for edge in [(S, "a"), ("a", "b"), ("a", "later"), ("b", "later")]:
            graph.add_edge(*edge)
        graph.add_conditional_edges("later", lambda s: "a" if len(s["log"]) < 6 else kit.END)
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


# ---------------------------------------------------------------- metadata, destinations, defaults


def test_metadata_of_a_node_is_in_its_config(same):
    def program(kit):
        def ask(state, config: kit.Config):
            return {"log": [config["metadata"].get("who"), config["metadata"].get("langgraph_step")]}

        graph = kit.StateGraph(State)
        graph.add_node("ask", ask, metadata={"who": "me"})
        graph.add_node("other", ask)
        graph.add_edge(kit.START, "ask")
        graph.add_edge("ask", "other")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_destinations_change_nothing_of_a_run(same):
    def program(kit):
        graph = graph_of(kit, "b", "c")
        graph.add_node("a", lambda s: kit.Command(goto="c", update={"log": ["a"]}), destinations=("b", "c"))
        graph.add_node("d", note("d"), destinations={"b": "maybe"})
        graph.add_edge(kit.START, "a")
        graph.add_edge("c", "d")
        return run(kit, saved(kit, graph), {"n": 1})

    same(program)


def test_defaults_of_nodes_are_overridden_by_a_node(same):
    def program(kit):
        tries = []

        def fail(name):
            def node(state):
                tries.append(name)
                raise ConnectionError(name)

            return node

        found = []
        for name in ("default", "own", "late"):
            graph = kit.StateGraph(State)
            policy = partial(kit.RetryPolicy, initial_interval=0.0, jitter=False)
            if name == "late":
                graph.add_node(name, fail(name))
            graph.set_node_defaults(retry_policy=policy(max_attempts=3))
            if name == "default":
                graph.add_node(name, fail(name))
            if name == "own":
                graph.add_node(name, fail(name), retry_policy=policy(max_attempts=2))
            graph.add_edge(kit.START, name)
            found.append(kit.attempt(saved(kit, graph), {"n": 1}))
        return [found, tries]

    assert same(program)[1] == ["default"] * 3 + ["own"] * 2 + ["late"] * 3


# ---------------------------------------------------------------- what nodes return


GOOD = {
    "none": lambda kit: None,
    "empty": lambda kit: {},
    "dict": lambda kit: {"n": 5},
    "data": lambda kit: Data(n=6, log=["d"]),
    "model": lambda kit: Model(n=7),
    "narrow-data": lambda kit: NarrowData(n=4),
    "pairs": lambda kit: [("n", 5), ("log", ["x"])],
    "command": lambda kit: kit.Command(update={"n": 8}),
    "command-of-pairs": lambda kit: kit.Command(update=[("log", ["p"]), ("log", ["q"])]),
    "command-of-data": lambda kit: kit.Command(update=Data(n=9)),
    "empty-command": lambda kit: kit.Command(),
    "commands": lambda kit: [kit.Command(update={"log": ["x"]}), kit.Command(update={"log": ["y"]}, goto="z")],
    "dicts": lambda kit: [{"log": ["x"]}, {"log": ["y"]}],
    "dict-and-command": lambda kit: [{"log": ["x"]}, kit.Command(update={"log": ["y"]}, goto="z")],
    "command-and-none": lambda kit: [kit.Command(update={"log": ["y"]}), None],
    "command-and-bad": lambda kit: [kit.Command(update={"log": ["y"]}), 5],
    "tuple-of-commands": lambda kit: (kit.Command(update={"log": ["x"]}), kit.Command(goto="z")),
    "empty-list": lambda kit: [],
    "number": lambda kit: 5,
    "text": lambda kit: "text",
    "list": lambda kit: [1, 2],
    "set": lambda kit: {"n"},
    "list-of-dicts": lambda kit: [{"n": 1}, {"n": 2}],
    "true": lambda kit: True,
    "send": lambda kit: kit.Send("z", {"n": 1}),
    "sends": lambda kit: [kit.Send("z", {"n": 1})],
}


@pytest.mark.parametrize("schema", [State, Data, Model])
@pytest.mark.parametrize("given", GOOD)
def test_a_node_returns_an_update_or_is_refused(same, given, schema):
    def program(kit):
        graph = kit.StateGraph(schema)
        graph.add_node("a", lambda s: GOOD[given](kit))
        graph.add_node("b", lambda s: {"log": ["b"]})
        graph.add_node("z", lambda s: {"log": ["z"]})
        graph.add_edge(kit.START, "a")
        graph.add_edge("a", "b")
        return run(kit, saved(kit, graph), {"n": 1, "log": ["in"]})

    same(program)


UNJOINABLE = {
    "two-commands-one-key": lambda kit: [kit.Command(update={"n": 1}), kit.Command(update={"n": 2})],
    "none-for-a-reducer": lambda kit: {"log": None},
    "none-for-a-key": lambda kit: {"n": None},
}


@pytest.mark.parametrize("schema", [State, Data, Model])
@pytest.mark.parametrize("given", UNJOINABLE)
def test_an_update_that_a_key_cannot_take_fails_the_run(same, given, schema):
    def program(kit):
        flow = line(kit, schema, ("a", lambda s: UNJOINABLE[given](kit)), ("b", lambda s: {"log": ["b"]}))
        return joined(run(kit, flow, {"n": 1, "log": ["in"]}))

    shown = same(program)
    assert "raised" in shown or given == "none-for-a-key"


OVERWRITES = {
    "class": lambda kit, value: kit.Overwrite(value),
    "dict": lambda kit, value: {"__overwrite__": value},
    "json": lambda kit, value: {"type": "__overwrite__", "value": value},
    "more-keys": lambda kit, value: {"__overwrite__": value, "x": 1},
    "json-untyped": lambda kit, value: {"type": "overwrite", "value": value},
}


@pytest.mark.parametrize("spelling", OVERWRITES)
def test_an_overwrite_passes_the_reducer_by(same, spelling):
    def program(kit):
        class Held(TypedDict):
            n: Any
            log: Annotated[Any, lambda old, new: [*(old or []), new]]

        flow = line(
            kit,
            Held,
            ("one", lambda s: {"log": "one"}),
            ("over", lambda s: {"log": OVERWRITES[spelling](kit, ["fresh"])}),
            ("last", lambda s: {"log": "last", "n": OVERWRITES[spelling](kit, "plain")}),
        )
        return runs(kit, flow, {"n": 1}, {"log": OVERWRITES[spelling](kit, [])})

    same(program)


def overwriting(kit, *writes):
    """Nodes that all write to `log` in one super-step, in the order of their names."""
    graph = kit.StateGraph(State)
    for number, write in enumerate(writes):
        graph.add_node(f"w{number}", lambda s, write=write: {"log": write})
        graph.add_edge(kit.START, f"w{number}")
    return saved(kit, graph)


def test_an_overwrite_wins_over_ordinary_writes_of_its_step(same):
    def program(kit):
        over = kit.Overwrite(["over"])
        orders = [[["a"], over, ["b"]], [over, ["a"], ["b"]], [["a"], ["b"], over]]
        return [run(kit, overwriting(kit, *writes), {"n": 1, "log": ["in"]}) for writes in orders]

    same(program)


def test_two_overwrites_in_one_step_are_refused(same):
    def program(kit):
        return joined(run(kit, overwriting(kit, kit.Overwrite([1]), kit.Overwrite([2])), {"n": 1, "log": ["in"]}))

    same(program)


def test_an_overwrite_by_a_command(same):
    def program(kit):
        flow = line(
            kit,
            State,
            ("one", lambda s: kit.Command(update={"log": kit.Overwrite([s["n"]])})),
            ("two", lambda s: kit.Command(update=[("log", kit.Overwrite(["pair"]))])),
        )
        return run(kit, flow, {"n": 1, "log": ["in"]})

    same(program)


def test_two_nodes_that_write_one_plain_key_are_refused(same):
    def program(kit):
        graph = kit.StateGraph(State)
        for name in "ab":
            graph.add_node(name, lambda s: {"n": 5})
            graph.add_edge(kit.START, name)
        flow = saved(kit, graph)
        return [joined(run(kit, flow, {"n": 1})), joined(run(kit, flow, {"n": 2}))]

    assert "raised" in same(program)[0]


def test_a_thread_can_be_looked_at_after_writes_that_could_not_be_joined(both):
    def program(kit):
        graph = kit.StateGraph(State)
        for name in "ab":
            graph.add_node(name, lambda s: {"n": 5})
            graph.add_edge(kit.START, name)
        flow = saved(kit, graph)
        kit.attempt(flow, {"n": 1})
        return [state.values for state in kit.history(flow)][-2], asked(lambda: kit.state(flow).values)

    assert both(program).ours == ({"n": 1, "log": []}, {"n": 1, "log": []})


def test_a_failing_reducer_fails_the_run(same):
    def program(kit):
        def join(old, new):
            if new == 3:
                raise ArithmeticError("three")
            return old + new

        class Picky(TypedDict):
            total: Annotated[int, join]

        return kit.attempt(
            line(kit, Picky, ("one", lambda s: {"total": 2}), ("two", lambda s: {"total": 3})), {"total": 1}
        )

    same(program)


# ---------------------------------------------------------------- graphs in graphs


def test_a_graph_is_a_node_with_shared_keys(same):
    def program(kit):
        graph = kit.StateGraph(State)
        graph.add_node("before", note("before"))
        graph.add_node("inner", inner(kit))
        graph.add_node("after", note("after"))
        graph.add_edge(kit.START, "before").add_edge("before", "inner").add_edge("inner", "after")
        flow = saved(kit, graph)
        return [run(kit, flow, {"n": 1}), kit.stream(flow, {"n": 5}, stream_mode="updates", subgraphs=True)[0][1]]

    same(program)


def test_a_graph_with_another_state_is_called_in_a_node(same):
    class Other(TypedDict):
        words: Annotated[list, operator.add]

    def program(kit):
        sub = kit.StateGraph(Other)
        sub.add_node("x", lambda s: {"words": ["x"]})
        sub.add_edge(kit.START, "x")
        sub = sub.compile()
        flow = line(kit, State, ("call", lambda s: {"log": sub.invoke({"words": ["given"]})["words"]}))
        return run(kit, flow, {"n": 1})

    same(program)


def test_a_graph_with_an_output_schema_gives_only_that_to_its_parent(same):
    def program(kit):
        sub = kit.StateGraph(State, output_schema=Given)
        sub.add_node("x", lambda s: {"n": s["n"] * 2, "log": ["hidden"]})
        sub.add_edge(kit.START, "x")
        return run(kit, line(kit, State, ("sub", sub.compile()), ("end", note("end"))), {"n": 4})

    same(program)


def test_a_graph_not_compiled_is_no_node(same):
    def program(kit):
        return refusal(lambda: kit.StateGraph(State).add_node("sub", graph_of(kit, "a"))) != "nothing"

    assert same(program)
