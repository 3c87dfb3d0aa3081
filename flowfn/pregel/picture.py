"""A picture as data, nodes and edges, and as text that others draw: Mermaid, JSON in LangGraph's shape.

A node stands in the cluster that its id names before the last colon: `review:ask` in `review`.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flowfn.pregel import layout

MARKS = tuple("*_`")
"""A name that begins and ends with one of these would be read as Markdown."""

ENTITIES = str.maketrans(
    {
        "#": "#35;",
        "[": "#91;",
        "]": "#93;",
        "(": "#40;",
        ")": "#41;",
        "{": "#123;",
        "}": "#125;",
        '"': "#quot;",
        "<": "#60;",
        ">": "#62;",
        "|": "#124;",
        ";": "#59;",
        "\n": " ",
        "\r": " ",
    }
)
PLAIN_ID = frozenset(string.ascii_letters + string.digits + "_-")


class Node(NamedTuple):
    """One node of a picture.

    Attributes:
        id: unique; what stands before the last colon is its cluster.
        name: shown.
        data: what it stands for, None for the two ends.
        metadata: shown under the name, as far as it is plain.
        kind: of what a run did: question, failed, cached, recorded, retried, begun, barrier; empty for all others.
        origin: class that JSON names, as LangGraph does.
    """

    id: str
    name: str
    data: Any = None
    metadata: Mapping[str, Any] | None = None
    kind: str = ""
    origin: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The cluster it stands in, with those around it: `outer:inner`; empty for none."""
        return self.id.rpartition(":")[0]


class Edge(NamedTuple):
    """An arrow between two nodes.

    Attributes:
        data: its label.
        conditional: whether it is taken only if some function says so; drawn dotted.
    """

    source: str
    target: str
    data: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class NodeStyles:
    """CSS of nodes in Mermaid: the first, the last, and all others."""

    default: str = "fill:#f2f0ff,line-height:1.2"
    first: str = "fill-opacity:0"
    last: str = "fill:#bfb6fc"


KIND_STYLES = {
    "question": "fill:#fff4cc",
    "failed": "fill:#ffd9d9,stroke:#c00",
    "cached": "fill:#e3f4e3",
    "recorded": "fill:#e6eefc",
    "retried": "fill:#f2f0ff,stroke:#c60",
    "begun": "fill:#ffe9cc,stroke-dasharray:4",
    "barrier": "fill:#888",
}


@dataclass
class Picture:
    """Nodes by id, and edges, in the order in which they are drawn."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def first_node(self) -> Node | None:
        """The only node that no edge leads to, if it is the only one."""
        return self._only({edge.target for edge in self.edges})

    def last_node(self) -> Node | None:
        """The only node that no edge leaves, if it is the only one."""
        return self._only({edge.source for edge in self.edges})

    def _only(self, others: set[str]) -> Node | None:
        found = [node for id, node in self.nodes.items() if id not in others]
        return found[0] if len(found) == 1 else None

    def without(self, id: str) -> Picture:
        """The picture without a node and its edges."""
        kept = {key: node for key, node in self.nodes.items() if key != id}
        return Picture(kept, [edge for edge in self.edges if id not in (edge.source, edge.target)])

    def add_edge(self, edge: Edge) -> None:
        """Add an arrow, unless there is one between the two."""
        if all((edge.source, edge.target) != (known.source, known.target) for known in self.edges):
            self.edges.append(edge)

    # --- out

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Nodes and edges as plain data, in LangGraph's shape."""
        return {
            "nodes": [_json_of_node(node) for node in self.nodes.values()],
            "edges": [_json_of_edge(edge) for edge in self.edges],
        }

    def draw_mermaid(
        self,
        *,
        with_styles: bool = True,
        curve_style: Any = "linear",
        node_colors: Any = None,
        wrap_label_n_words: int = 9,
        frontmatter_config: Mapping[str, Any] | None = None,
    ) -> str:
        """The picture in Mermaid's language.

        Args:
            with_styles: with a head, the shapes of nodes, and colours; else arrows alone.
            curve_style: of arrows, a name that Mermaid knows, or an enum member whose value is one.
            node_colors: `NodeStyles`, or an object with its attributes.
            wrap_label_n_words: words in each line of an arrow's label.
            frontmatter_config: the head, to which the curve style is added.
        """
        drawing = _Mermaid(self, with_styles, max(1, wrap_label_n_words))
        if not with_styles:
            return "graph TD;\n" + drawing.body()
        given = dict(frontmatter_config or {})
        config = dict(given.get("config") or {})
        curve = getattr(curve_style, "value", curve_style)
        given["config"] = {**config, "flowchart": {**(config.get("flowchart") or {}), "curve": curve}}
        head = "---\n" + "".join(f"{line}\n" for line in _yaml(given)) + "---\n"
        styles = node_colors or NodeStyles()
        classes = {name: getattr(styles, name) for name in ("default", "first", "last")}
        used = {node.kind for node in self.nodes.values()}
        classes |= {kind: style for kind, style in KIND_STYLES.items() if kind in used}
        tail = "".join(f"\tclassDef {name} {style}\n" for name, style in classes.items())
        return f"{head}graph TD;\n{drawing.body()}{tail}"

    def draw_ascii(self) -> str:
        """The picture as plain text: boxes and lines, dotted where conditional, and the labels of edges below."""
        names = {id: _printable(_title(node)) for id, node in self.nodes.items()}
        text = layout.draw_ascii(names, self.edges)
        told = [
            f"{names[edge.source]} -> {names[edge.target]}: {_printable(str(edge.data))}"
            for edge in self.edges
            if edge.data is not None
        ]
        return "\n".join([text, "", *told]) if told else text

    def print_ascii(self) -> None:
        print(self.draw_ascii())

    def draw_svg(self) -> str:
        """The picture as an SVG document."""
        first, last = self.first_node(), self.last_node()
        ends = {node.id for node in (first, last) if node is not None}
        shapes = {
            id: layout.Shape(
                (node.name, *(line for line in metadata_lines(node.metadata))),
                node.cluster,
                "end" if id in ends and not node.kind else node.kind,
            )
            for id, node in self.nodes.items()
        }
        return layout.draw_svg(shapes, self.edges)

    def _repr_svg_(self) -> str:
        return self.draw_svg()


# ---------------------------------------------------------------- JSON


def _json_of_node(node: Node) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": node.id}
    if node.origin:
        shown |= {"type": "runnable", "data": {"id": list(node.origin), "name": node.id}}
    if node.metadata is not None:
        shown["metadata"] = dict(node.metadata)
    return shown


def _json_of_edge(edge: Edge) -> dict[str, Any]:
    shown: dict[str, Any] = {"source": edge.source, "target": edge.target}
    if edge.data is not None:
        shown["data"] = edge.data
    if edge.conditional:
        shown["conditional"] = True
    return shown


# ---------------------------------------------------------------- texts


def metadata_lines(metadata: Mapping[str, Any] | None) -> list[str]:
    """What is shown of metadata: `key = value` for each that is plain, or a list of plain values."""
    shown = ((key, _plain(value)) for key, value in (metadata or {}).items())
    return [f"{key} = {text}" for key, text in shown if text is not None]


def _plain(value: Any) -> str | None:
    if isinstance(value, str | int | float | bool):
        return str(value)
    if isinstance(value, list | tuple | set) and all(isinstance(one, str | int | float | bool) for one in value):
        texts = [str(one) for one in value]
        return ", ".join(sorted(texts) if isinstance(value, set) else texts)
    return None


def _title(node: Node) -> str:
    """One line for a node: its place and name, or, of what a run did, its name and how it went."""
    words = ", ".join(metadata_lines(node.metadata))
    if node.kind == "barrier":
        return "*"
    if node.id == f"{node.cluster}:{node.name}":
        return node.id
    return f"{node.name} ({words})" if words else node.name


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


# ---------------------------------------------------------------- Mermaid


def safe_id(id: str) -> str:
    """An id that Mermaid takes, another one for each text."""
    if id == "end":  # a word of the language
        return "\\65nd"
    return "".join(char if char in PLAIN_ID else f"\\{ord(char):x}" for char in id)


def escaped(text: str) -> str:
    """A text that Mermaid shows as it is."""
    return text.translate(ENTITIES)


class _Mermaid:
    """The lines between head and tail."""

    def __init__(self, picture: Picture, with_nodes: bool, words: int) -> None:
        self._nodes = picture.nodes if with_nodes else {}
        self._words = words
        first, last = picture.first_node(), picture.last_node()
        self._shapes = {node.id: kind for node, kind in ((first, "first"), (last, "last")) if node is not None}
        self._members: dict[str, list[Node]] = {}
        for node in self._nodes.values():
            self._members.setdefault(node.cluster, []).append(node)
        self._edges: dict[str, list[Edge]] = {"": []}
        for edge in picture.edges:
            self._edges.setdefault(_place_of(edge), []).append(edge)
        self._clusters = {cluster for node in picture.nodes.values() for cluster in _upwards(node.cluster)}
        self._titles: set[str] = set()

    def body(self) -> str:
        return "".join(f"\t{line}\n" for line in self._lines(""))

    def _lines(self, place: str) -> Iterator[str]:
        """What stands at a place: its nodes, the arrows inside, and the places inside."""
        is_cluster = place in self._clusters
        if is_cluster:
            yield self._opening(place)
        yield from (self._node(node) for node in self._members.get(place, ()))
        yield from (self._arrow(edge) for edge in self._edges.get(place, ()))
        for inner in self._inside(place):
            yield from self._lines(inner)
        if is_cluster:
            yield "end"

    def _inside(self, place: str) -> list[str]:
        """The places right inside another one, those first that have arrows."""
        known = dict.fromkeys([*self._edges, *(key for key in self._members), *sorted(self._clusters)])
        return [key for key in known if key and key.rpartition(":")[0] == place and self._has_lines(key)]

    def _has_lines(self, place: str) -> bool:
        within = f"{place}:"
        return any(key == place or key.startswith(within) for keys in (self._edges, self._members) for key in keys)

    def _opening(self, place: str) -> str:
        title = place.rpartition(":")[2]
        if title in self._titles:  # Mermaid would take the two for one
            return f'subgraph {safe_id(place)}["{escaped(title)}"]'
        self._titles.add(title)
        return f"subgraph {escaped(title)}"

    def _node(self, node: Node) -> str:
        name = node.name.rpartition(":")[2]
        label = f"<p>{escaped(name)}</p>" if name.startswith(MARKS) and name.endswith(MARKS) else escaped(name)
        lines = metadata_lines(node.metadata)
        if lines:
            label += "<hr/><small><em>" + "\n".join(escaped(line) for line in lines) + "</em></small>"
        id, shape = safe_id(node.id), self._shapes.get(node.id)
        if node.kind == "barrier":
            return f'{id}((" ")):::barrier'
        if node.kind == "question":
            return f"{id}{{{label}}}:::question"
        if shape is not None:
            return f"{id}([{label}]):::{shape}"
        return f"{id}({label}):::{node.kind}" if node.kind else f"{id}({label})"

    def _arrow(self, edge: Edge) -> str:
        return f"{safe_id(edge.source)}{self._line(edge)}{safe_id(edge.target)};"

    def _line(self, edge: Edge) -> str:
        if edge.data is None:
            return " -.-> " if edge.conditional else " --> "
        text, n = escaped(str(edge.data)), self._words
        words = text.split()
        if len(words) > n:
            text = "&nbsp<br>&nbsp".join(" ".join(words[at : at + n]) for at in range(0, len(words), n))
        return f" -. &nbsp;{text}&nbsp; .-> " if edge.conditional else f" -- &nbsp;{text}&nbsp; --> "


def _place_of(edge: Edge) -> str:
    """Where an arrow is drawn: in the innermost cluster of both its ends, or, from a node to itself, at the node."""
    if edge.source == edge.target:
        return edge.source
    shared = []
    for one, other in zip(edge.source.split(":")[:-1], edge.target.split(":")[:-1], strict=False):
        if one != other:
            break
        shared.append(one)
    return ":".join(shared)


def _upwards(cluster: str) -> Iterator[str]:
    while cluster:
        yield cluster
        cluster = cluster.rpartition(":")[0]


# ---------------------------------------------------------------- YAML

_WORDS_OF_YAML = frozenset({"", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "none"})


def _yaml(value: Any, indent: str = "") -> Iterable[str]:
    """A config as YAML, keys in order."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _yaml_entry(f"{indent}{_yaml_scalar(key)}:", value[key], indent + "  ")
    else:
        for one in value:
            nested = list(_yaml(one, indent + "  ")) if _is_nested(one) else []
            yield f"{indent}- {nested[0].lstrip() if nested else _yaml_scalar(one)}"
            yield from nested[1:]


def _yaml_entry(key: str, value: Any, indent: str) -> Iterable[str]:
    if _is_nested(value):
        yield key
        yield from _yaml(value, indent if isinstance(value, Mapping) else indent[:-2])
    else:
        yield f"{key} {_yaml_scalar(value)}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and len(value) > 0


def _yaml_scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping | list | tuple):
        return "{}" if isinstance(value, Mapping) else "[]"
    text = str(value)
    if not text.isascii() or not text.isprintable():
        return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    is_word = text[:1].isalpha() and not text[-1:].isspace() and set(text) <= PLAIN_ID | set(" ./,()%")
    if is_word and text.lower() not in _WORDS_OF_YAML:
        return text
    return "'" + text.replace("'", "''") + "'"
