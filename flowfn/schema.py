"""Whether an answer fits its JSON schema, and the JSON schema that a Python type stands for.

The part of JSON Schema that answers need: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`,
`items`, `prefixItems`, bounds of numbers, lengths, `pattern`, `anyOf`, `oneOf`, `allOf`, and `$ref` within the schema.
Other keywords are ignored, as the standard says. All of it are plain functions.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from flowfn.errors import ResponseSchemaError

Schema = dict[str, Any]

# ---------------------------------------------------------------- does a value fit?


def check(value: Any, schema: Schema | bool) -> str | None:
    """Why `value` does not fit `schema`, as a sentence without its full stop, or None if it fits."""
    return next(_faults(value, schema, schema, ""), None)


def _faults(value: Any, schema: Schema | bool, root: Schema | bool, path: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{_name(path)} is not allowed"
        return
    value = _plain(value)
    if "$ref" in schema:
        yield from _faults(value, _referred(schema["$ref"], root), root, path)
    kinds = schema.get("type")
    if kinds is not None and not _is_any_of(value, kinds):
        yield f"{_name(path)} must be {_listed(kinds)}, got {_shown(value)}"
        return
    yield from _value_faults(value, schema, path)
    if _is_number(value):
        yield from _number_faults(value, schema, path)
    elif isinstance(value, str):
        yield from _text_faults(value, schema, path)
    elif isinstance(value, Mapping):
        yield from _object_faults(value, schema, root, path)
    elif isinstance(value, list | tuple):
        yield from _array_faults(value, schema, root, path)
    yield from _choice_faults(value, schema, root, path)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda value: value is None),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("a whole number", lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer())),
    "number": ("a number", lambda value: _is_number(value)),
    "string": ("a text", lambda value: isinstance(value, str)),
    "array": ("a list", lambda value: isinstance(value, list | tuple)),
    "object": ("an object", lambda value: isinstance(value, Mapping)),
}


def _plain(value: Any) -> Any:
    """What JSON would hold in the place of an Enum member, a dataclass or a pydantic object."""
    if isinstance(value, enum.Enum):
        return value.value
    if _is_pydantic(type(value)):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_any_of(value: Any, kinds: str | list[str]) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds
    return any(name not in _TYPES or _TYPES[name][1](value) for name in names)


def _is_equal(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


def _value_faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if "enum" in schema and not any(_is_equal(value, allowed) for allowed in schema["enum"]):
        yield f"{_name(path)} must be one of {', '.join(map(_shown, schema['enum']))}, got {_shown(value)}"
    if "const" in schema and not _is_equal(value, schema["const"]):
        yield f"{_name(path)} must be {_shown(schema['const'])}, got {_shown(value)}"


_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", operator.ge),
    ("maximum", "at most", operator.le),
    ("exclusiveMinimum", "more than", operator.gt),
    ("exclusiveMaximum", "less than", operator.lt),
)


def _number_faults(value: float, schema: Schema, path: str) -> Iterator[str]:
    for keyword, words, is_within in _BOUNDS:
        if keyword in schema and not is_within(value, schema[keyword]):
            yield f"{_name(path)} must be {words} {schema[keyword]}, got {_shown(value)}"


def _text_faults(value: str, schema: Schema, path: str) -> Iterator[str]:
    yield from _size_faults(value, schema, path, "Length", "character")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{_name(path)} must match the pattern {schema['pattern']!r}, got {_shown(value)}"


def _size_faults(value: Any, schema: Schema, path: str, keyword: str, unit: str) -> Iterator[str]:
    least, most = schema.get(f"min{keyword}"), schema.get(f"max{keyword}")
    if least is not None and len(value) < least:
        yield f"{_name(path)} must have at least {least} {unit}{'s' * (least != 1)}, got {len(value)}"
    if most is not None and len(value) > most:
        yield f"{_name(path)} must have at most {most} {unit}{'s' * (most != 1)}, got {len(value)}"


def _object_faults(value: Mapping[str, Any], schema: Schema, root: Schema | bool, path: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_name(_below(path, name))} is missing"
    for name, inner in value.items():
        rule = properties.get(name, schema.get("additionalProperties", True))
        if rule is False and name not in properties:
            yield f"{_name(_below(path, name))} is not expected; expected: {', '.join(properties) or 'nothing'}"
        else:
            yield from _faults(inner, rule, root, _below(path, name))


def _array_faults(value: Sequence[Any], schema: Schema, root: Schema | bool, path: str) -> Iterator[str]:
    yield from _size_faults(value, schema, path, "Items", "item")
    first = schema.get("prefixItems", [])
    for at, inner in enumerate(value):
        rule = first[at] if at < len(first) else schema.get("items", True)
        yield from _faults(inner, rule, root, f"{path}[{at}]")


def _choice_faults(value: Any, schema: Schema, root: Schema | bool, path: str) -> Iterator[str]:
    for rule in schema.get("allOf", ()):
        yield from _faults(value, rule, root, path)
    for keyword in ("anyOf", "oneOf"):
        if keyword not in schema:
            continue
        reasons = [next(_faults(value, rule, root, path), None) for rule in schema[keyword]]
        fitting = reasons.count(None)
        if fitting == 0:
            yield "; or ".join(dict.fromkeys(reason for reason in reasons if reason)) or f"{_name(path)} is not allowed"
        elif fitting > 1 and keyword == "oneOf":
            yield f"{_name(path)} fits {fitting} of the forms of which it must fit one, got {_shown(value)}"


def _referred(reference: str, root: Schema | bool) -> Schema | bool:
    at: Any = root
    for part in reference.removeprefix("#").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        at = at.get(name, True) if name and isinstance(at, dict) else at
    return at if isinstance(at, dict | bool) else True


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _name(path: str) -> str:
    return f"`{path}`" if path else "the answer"


def _listed(kinds: str | list[str]) -> str:
    names = [_TYPES[kind][0] if kind in _TYPES else kind for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return " or ".join(names)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# ---------------------------------------------------------------- the schema of a Python type

_PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}


def schema_of(spec: Any) -> Schema:
    """The JSON schema that `spec` stands for.

    Args:
        spec: a schema itself; bool, int, float, str, None, `Literal`, `Optional`, a union, `list[X]`, `tuple[X, …]`,
            `dict[str, X]`; an Enum, a dataclass, a TypedDict, or a pydantic model.
    Raises:
        ResponseSchemaError: it is nothing of that.
    """
    if isinstance(spec, dict):
        return spec
    defs: dict[str, Schema] = {}
    schema = _schema(spec, defs, ())
    return {**schema, "$defs": defs} if defs else schema


def _schema(spec: Any, defs: dict[str, Schema], around: tuple[Any, ...]) -> Schema:
    """The schema of `spec`, which stands inside the classes `around`; a class inside itself is put into `defs`."""
    try:
        if spec in _PLAIN:
            return _PLAIN[spec]
    except TypeError:  # not hashable, so no type either
        raise ResponseSchemaError(spec) from None
    origin, parts = get_origin(spec), get_args(spec)
    if origin is not None:
        return _generic_schema(spec, origin, parts, defs, around)
    if isinstance(spec, typing.NewType):
        return _schema(spec.__supertype__, defs, around)
    if not isinstance(spec, type):
        raise ResponseSchemaError(spec)
    if issubclass(spec, enum.Enum):
        return {"enum": [member.value for member in spec]}
    if _is_pydantic(spec):
        model: Any = spec
        schema: Schema = dict(model.model_json_schema())
        defs.update(schema.pop("$defs", {}))
        return schema
    if typing.is_typeddict(spec) or dataclasses.is_dataclass(spec):
        return _class_schema(spec, defs, around)
    raise ResponseSchemaError(spec)


def _generic_schema(
    spec: Any, origin: Any, parts: tuple[Any, ...], defs: dict[str, Schema], around: tuple[Any, ...]
) -> Schema:
    if origin is Annotated:
        return _schema(parts[0], defs, around)
    if not parts:  # typing.List
        return _schema(origin, defs, around)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(part, defs, around) for part in parts]}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0], defs, around)}
    if origin is tuple and parts and parts[-1] is Ellipsis:
        return {"type": "array", "items": _schema(parts[0], defs, around)}
    if origin is tuple:
        inner = [_schema(part, defs, around) for part in parts]
        return {"type": "array", "prefixItems": inner, "minItems": len(inner), "maxItems": len(inner)}
    if origin is dict and parts[0] is str:
        return {"type": "object", "additionalProperties": _schema(parts[1], defs, around)}
    raise ResponseSchemaError(spec)


def _class_schema(spec: Any, defs: dict[str, Schema], around: tuple[Any, ...]) -> Schema:
    reference = {"$ref": f"#/$defs/{spec.__name__}"}
    if spec in around:
        defs.setdefault(spec.__name__, {})
        return reference
    properties = {name: _schema(hint, defs, (*around, spec)) for name, hint in _fields(spec).items()}
    schema = {
        "type": "object",
        "title": spec.__name__,
        "properties": properties,
        "required": [name for name in properties if _is_required(spec, name)],
        "additionalProperties": False,
    }
    if defs.get(spec.__name__) == {}:
        defs[spec.__name__] = schema
        return reference
    return schema


def _fields(spec: Any) -> dict[str, Any]:
    """Field name → type of a dataclass's or TypedDict's fields that an answer gives."""
    hints = typing.get_type_hints(spec)
    if typing.is_typeddict(spec):
        return hints
    return {field.name: hints[field.name] for field in dataclasses.fields(spec) if field.init}


def _is_required(spec: Any, name: str) -> bool:
    if typing.is_typeddict(spec):
        return name in spec.__required_keys__
    field = next(field for field in dataclasses.fields(spec) if field.name == name)
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_pydantic(kind: type) -> bool:
    return hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


# ---------------------------------------------------------------- an answer as the flow wants it


def converted(value: Any, spec: Any) -> Any:
    """The answer as `spec` describes it: a dataclass or pydantic object, an Enum member; anything else as it is.

    Raises:
        ValueError: it does not fit; the message says why.
    """
    if isinstance(spec, dict) or not _is_pydantic(spec):
        why = check(value, schema_of(spec))
        if why is not None:
            raise ValueError(why)
    try:
        return value if isinstance(spec, dict) else _made(value, spec)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _made(value: Any, spec: Any) -> Any:
    origin, parts = get_origin(spec), get_args(spec)
    if isinstance(spec, type) and origin is None:
        if typing.is_typeddict(spec):
            return {name: _made(value[name], hint) for name, hint in _fields(spec).items() if name in value}
        if isinstance(value, spec):
            return value
        if issubclass(spec, enum.Enum):
            return spec(value)
        if _is_pydantic(spec):
            model: Any = spec
            return model.model_validate(value)
        if dataclasses.is_dataclass(spec):
            return spec(**{name: _made(value[name], hint) for name, hint in _fields(spec).items() if name in value})
    if origin is Annotated:
        return _made(value, parts[0])
    if origin in (Union, types.UnionType):
        return _made(value, next(part for part in parts if check(value, schema_of(part)) is None))
    if origin is list:
        return [_made(inner, parts[0]) for inner in value]
    if origin is tuple:
        hints = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_made(inner, hint) for inner, hint in zip(value, hints, strict=True))
    if origin is dict:
        return {name: _made(inner, parts[1]) for name, inner in value.items()}
    return value
