"""A conditional edge: a function of the state that says where to go from a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from flowfn.errors import GraphError, InvalidUpdateError, UnknownNodeError
from flowfn.graph.names import END, START, branch_to
from flowfn.graph.schema import returned_hint
from flowfn.pregel.plan import TASKS
from flowfn.types import Send


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional edge of a node.

    Attributes:
        source: the node it leaves.
        name: of the function, which no other branch of the node has.
        path: from the state to where to go: a node's name, a `Send`, `END`, or several of them.
        ends: what `path` may say → the node that is meant; None where it names nodes itself.
        input_schema: the schema of what `path` takes, None for that of the node.
    """

    source: str
    name: str
    path: Callable[..., Any]
    ends: Mapping[Hashable, str] | None
    input_schema: Any = None

    def writes(self, said: Any, nodes: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """The writes by which the nodes that the path has named become due.

        Raises:
            GraphError: it has named none.
            UnknownNodeError: what it has named is no node.
            InvalidUpdateError: a `Send` to the end.
        """
        several = said if isinstance(said, list | tuple) else [said]
        return [write for one in several for write in self._writes_of(one, nodes)]

    def _writes_of(self, said: Any, nodes: Mapping[str, Any]) -> list[tuple[str, Any]]:
        if isinstance(said, Send):
            if said.node == END:
                raise InvalidUpdateError(f"{self.title} sends to the end of the graph, where nothing can take it.")
            if said.node not in nodes:
                raise UnknownNodeError(f"A Send of {self.title}", said.node, nodes)
            return [(TASKS, said)]
        if self.ends is not None:
            if said not in self.ends:
                raise GraphError(f"{self.title} gave {said!r}, which its path map lacks: {list(self.ends)!r}.")
            said = self.ends[said]
        if said == END:
            return []
        if said is None or said == START or said not in nodes:
            raise UnknownNodeError(self.title, str(said), nodes)
        return [(branch_to(said), None)]

    @property
    def title(self) -> str:
        return f"The conditional edge `{self.name}` of node `{self.source}`"


def path_ends(
    path: Callable[..., Any], path_map: Mapping[Hashable, str] | Sequence[str] | None
) -> Mapping[Hashable, str] | None:
    """Where a path may lead: as said, or as its `Literal` result says."""
    if isinstance(path_map, Mapping):
        return dict(path_map)
    if path_map is not None:
        return {name: name for name in path_map}
    returned = returned_hint(path)
    return {name: name for name in get_args(returned)} if get_origin(returned) is Literal else None
