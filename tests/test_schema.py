"""Whether an answer fits, and why not; and what a Python type says about answers."""

import dataclasses
import enum
import typing
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pydantic
import pytest

from flowfn.errors import FlowError, ResponseSchemaError
from flowfn.schema import check, converted, schema_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Order:
    amount: float
    color: "Color"
    lines: list[Line] = dataclasses.field(default_factory=list)
    note: str | None = None
    total: float = dataclasses.field(init=False, default=0.0)


@dataclasses.dataclass
class Tree:
    name: str
    children: "list[Tree]" = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Person(pydantic.BaseModel):
    name: str
    age: int = 0


class Team(pydantic.BaseModel):
    lead: Person


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        ({"type": "boolean"}, [True, False], [1, 0, None, "true"]),
        ({"type": "integer"}, [1, -5, 2.0, 10**30], [True, 1.5, "1", float("inf")]),
        ({"type": "number"}, [1, 1.5], [False, "1"]),
        ({"type": "string"}, ["", "a"], [1, None]),
        ({"type": "null"}, [None], [0, False]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"type": "array"}, [[], [1], (1,)], ["a", {}]),
        ({"type": "object"}, [{}], [[], None]),
        ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [True, "b"]),
        ({"const": [1, {"a": True}]}, [[1, {"a": True}]], [[1, {"a": 1}], [1]]),
        ({"minimum": 1, "maximum": 3}, [1, 3, "text"], [0.9, 4]),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [1, 3]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "abc", 5], ["a", "abcd"]),
        ({"pattern": "^a+$"}, ["aa"], ["b"]),
        ({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3], ["a"]]),
        ({"prefixItems": [{"type": "string"}], "items": False}, [["a"], []], [[1], ["a", 1]]),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, [{"a": "x", "b": 1}], [{}, {"a": 1}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}, {}], [{"b": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["a", None], [1]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, [0, 3], [1]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, [None], [1]),
        ({"future": "keyword", "type": "unheard-of"}, [1, None], []),
        ({}, [1, None, object()], []),
    ],
)
def test_values_fit_or_not(schema, fits, fails):
    assert [value for value in fits if check(value, schema) is not None] == []
    assert [value for value in fails if check(value, schema) is None] == []


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"amount": "x"}, "`amount` must be a number, got 'x'"),
        ({}, "`amount` is missing"),
        ({"amount": 1, "lines": [{"count": True}]}, "`lines[0].count` must be a whole number, got True"),
        ({"amount": 0}, "`amount` must be at least 1, got 0"),
        ({"amount": 1, "other": 2}, "`other` is not expected; expected: amount, lines"),
        (7, "the answer must be an object, got 7"),
    ],
)
def test_the_reason_names_the_place(value, why):
    line = {"properties": {"count": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "number", "minimum": 1}, "lines": {"items": {"$ref": "#/$defs/Line"}}},
        "required": ["amount"],
        "additionalProperties": False,
        "$defs": {"Line": line},
    }
    assert check(value, schema) == why


def test_objects_are_checked_as_what_json_would_hold():
    assert check(Order(1.5, Color.RED, [Line("a")]), {"properties": {"color": {"const": "red"}}}) is None
    assert check(Person(name="kim"), {"required": ["name"], "type": "object"}) is None
    assert check(Color.RED, schema_of(Color)) is None


@pytest.mark.parametrize(
    ("spec", "schema"),
    [
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (Any, {}),
        ({"type": "x"}, {"type": "x"}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (typing.List, {"type": "array"}),  # noqa: UP006
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Annotated[int, "years"], {"type": "integer"}),
        (Color, {"enum": ["red", "blue"]}),
    ],
    ids=str,
)
def test_types_stand_for_schemas(spec, schema):
    assert schema_of(spec) == schema


def test_a_dataclass_requires_the_fields_without_defaults():
    schema = schema_of(Order)
    assert schema["required"] == ["amount", "color"]
    assert set(schema["properties"]) == {"amount", "color", "lines", "note"}
    assert schema["properties"]["lines"]["items"]["required"] == ["item"]
    assert schema["properties"]["color"] == {"enum": ["red", "blue"]}


def test_a_typeddict_requires_what_it_says():
    assert schema_of(Movie)["required"] == ["title"]
    assert check({"title": "Alien", "year": 1979}, schema_of(Movie)) is None


def test_a_class_may_contain_itself():
    schema = schema_of(Tree)
    assert check({"name": "a", "children": [{"name": "b", "children": []}]}, schema) is None
    assert check({"name": "a", "children": [{"name": 1}]}, schema) == "`children[0].name` must be a text, got 1"
    assert converted({"name": "a", "children": [{"name": "b"}]}, Tree) == Tree("a", [Tree("b")])


def test_a_pydantic_model_gives_its_own_schema():
    assert check({"lead": {"name": "kim"}}, schema_of(list[Team] | Team)) is None
    assert "name" in (check([{"lead": {}}], schema_of(list[Team])) or "")


@pytest.mark.parametrize("spec", [object, set[int], 5, "int", [int], print], ids=repr)
def test_what_describes_no_answers_is_refused(spec):
    with pytest.raises(ResponseSchemaError, match="dataclass") as caught:
        schema_of(spec)
    assert isinstance(caught.value, FlowError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("value", "spec", "made"),
    [
        (5, int, 5),
        ({"a": 1}, {"type": "object"}, {"a": 1}),
        ("red", Color, Color.RED),
        (Color.RED, Color, Color.RED),
        ({"item": "x"}, Line, Line("x")),
        (Line("x"), Line, Line("x")),
        ({"amount": 2, "color": "blue", "lines": [{"item": "x"}]}, Order, Order(2, Color.BLUE, [Line("x")])),
        ({"name": "kim"}, Person, Person(name="kim")),
        ([{"item": "x"}], list[Line], [Line("x")]),
        ({"a": "red"}, dict[str, Color], {"a": Color.RED}),
        ([1, "red"], tuple[int, Color], (1, Color.RED)),
        (None, Line | None, None),
        ({"item": "x"}, Optional[Line], Line("x")),  # noqa: UP045
        ({"title": "Alien"}, Movie, {"title": "Alien"}),
        ("red", Annotated[Color, "paint"], Color.RED),
    ],
    ids=repr,
)
def test_answers_become_what_the_flow_wants(value, spec, made):
    result = converted(value, spec)
    assert result == made
    assert type(result) is type(made)


@pytest.mark.parametrize(
    ("value", "spec"),
    [("x", int), ({"item": 1}, Line), ({}, Person), ("green", Color), ({"type": 1}, {"type": "null"})],
)
def test_an_answer_that_does_not_fit_says_why(value, spec):
    with pytest.raises(ValueError):
        converted(value, spec)
