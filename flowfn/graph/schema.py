"""What a state schema says: the channel of each key, the values that are managed, and how instances come and go.

A schema is a TypedDict, dataclass or pydantic model, whose annotations are the keys of the state, or any other type,
which stands for a state of one value, kept in the channel `__root__`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NotRequired, Required, TypeAlias, get_args, get_origin
from typing import get_type_hints as resolved_hints

from flowfn.channels import BinaryOperatorAggregate, Channel, LastValue
from flowfn.errors import GraphError, ResponseSchemaError
from flowfn.graph.managed import ManagedValue
from flowfn.pregel.code import call_of
from flowfn.schema import schema_of
from flowfn.types import MISSING

ROOT = "__root__"
"""The channel of a state that is one value."""

Mapper: TypeAlias = Callable[[dict[str, Any]], Any]

QUALIFIERS = (Required, NotRequired)


class Fields(NamedTuple):
    """What the keys of a schema are.

    Attributes:
        channels: key → a channel to be copied.
        managed: key → what computes its value.
    """

    channels: Mapping[str, Channel[Any, Any, Any]]
    managed: Mapping[str, type[ManagedValue]]

    @property
    def keys(self) -> list[str]:
        return [*self.channels, *self.managed]


def fields_of(schema: Any) -> Fields:
    """The channels and managed values of a schema.

    Raises:
        GraphError: an annotation holds a reducer that does not take two values.
    """
    hints = {ROOT: schema} if not _has_keys(schema) else resolved_hints(schema, include_extras=True)
    channels: dict[str, Channel[Any, Any, Any]] = {}
    managed: dict[str, type[ManagedValue]] = {}
    for key, hint in hints.items():
        said = _unqualified(hint)
        computes = _managed(said)
        if computes is None:
            channels[key] = channel_of(key, said)
        else:
            managed[key] = computes
    return Fields(channels, managed)


def _has_keys(schema: Any) -> bool:
    return isinstance(schema, type) and hasattr(schema, "__annotations__") and schema.__module__ != "builtins"


def _unqualified(hint: Any) -> Any:
    """Without what says only whether a key has to be there."""
    while get_origin(hint) in QUALIFIERS:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated and get_origin(get_args(hint)[0]) in QUALIFIERS:
        inner, *said = get_args(hint)
        return Annotated[(_unqualified(inner), *said)]
    return hint


def _managed(hint: Any) -> type[ManagedValue] | None:
    said = getattr(hint, "__metadata__", (None,))[-1]
    return said if isinstance(said, type) and issubclass(said, ManagedValue) else None


def channel_of(key: str, hint: Any) -> Channel[Any, Any, Any]:
    """The channel that an annotation asks for: the last thing said in `Annotated`, if that is a channel or reducer."""
    said = getattr(hint, "__metadata__", (None,))[-1]
    channel: Channel[Any, Any, Any]
    if isinstance(said, Channel):
        channel = said.copy()
        if channel.typ is None:
            channel.typ = hint.__origin__
    elif isinstance(said, type) and issubclass(said, Channel):
        channel = said(hint.__origin__)
    elif callable(said):
        channel = BinaryOperatorAggregate(hint.__origin__, _checked(key, said))
    else:
        channel = LastValue(hint)
    channel.key = key
    return channel


def _checked(key: str, reducer: Callable[..., Any]) -> Callable[..., Any]:
    try:
        parameters = inspect.signature(reducer).parameters.values()
    except (TypeError, ValueError):  # some builtins do not say
        return reducer
    if sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) != 2:
        raise GraphError(
            f"The reducer of key `{key}` does not take two values. A reducer is a function of what the channel holds "
            f"and what is written: `(held, written) -> held`."
        )
    return reducer


def json_schema(schema: Any, fields: Fields) -> dict[str, Any]:
    """A state schema as a JSON schema."""
    if is_model(schema):
        whole: dict[str, Any] = schema.model_json_schema()
        return whole
    types = {key: _json_of(channel.ValueType) for key, channel in fields.channels.items()}
    return types[ROOT] if list(types) == [ROOT] else {"type": "object", "title": schema.__name__, "properties": types}


def _json_of(hint: Any) -> dict[str, Any]:
    try:
        return schema_of(hint)
    except ResponseSchemaError:
        return {}


# ---------------------------------------------------------------- instances


def mapper_of(schema: Any) -> Mapper | None:
    """What makes an instance of the schema of a dict, None where the dict itself will do."""
    if isinstance(schema, type) and (dataclasses.is_dataclass(schema) or is_model(schema)):
        return lambda values: schema(**values)
    return None


def is_model(schema: Any) -> bool:
    """Whether it is a pydantic model."""
    return hasattr(schema, "model_fields") and hasattr(schema, "model_validate")


def keys_of(kind: type[Any]) -> list[str]:
    """The annotated attributes of a class."""
    return [key for base in reversed(kind.__mro__) for key in vars(base).get("__annotations__", ())]


def is_instance_with_keys(value: Any) -> bool:
    """Whether a value is an object whose annotated attributes are keys of a state."""
    return bool(keys_of(type(value))) or is_model(type(value))


def updates_of(instance: Any, keys: Iterable[str]) -> list[tuple[str, Any]]:
    """What an instance says of these keys; of a model nothing that was left at a default of None."""
    kind = type(instance)
    defaults = {name: field.default for name, field in kind.model_fields.items()} if is_model(kind) else {}
    said = instance.model_fields_set if is_model(kind) else ()
    found = ((key, getattr(instance, key, MISSING)) for key in keys)
    return [
        (key, value)
        for key, value in found
        if value is not MISSING and (value is not None or defaults.get(key, MISSING) is not None or key in said)
    ]


def first_hint(function: Any) -> Any:
    """What the first parameter is annotated as, None where it is not, or cannot be found."""
    parameters = _parameters(function)
    try:
        return resolved_hints(_called(function), include_extras=True).get(parameters[0].name) if parameters else None
    except Exception:  # names that exist only for the type checker
        return None


def returned_hint(function: Any) -> Any:
    """What the function says it returns, None where it does not."""
    try:
        return resolved_hints(_called(function)).get("return")
    except Exception:  # as above
        return None


def _called(function: Any) -> Any:
    """What has the annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else call_of(function)


def _parameters(function: Any) -> Sequence[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()
