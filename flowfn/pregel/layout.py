"""Where the parts of a picture stand: nodes in layers, each below those that lead to it, long edges through gaps.

Sugiyama's scheme: edges that close a loop are turned round, nodes are layered by their longest path, and each layer is
ordered by where its neighbours stand. A cluster is laid out by itself and then is one big node of what is around it.
Source: Sugiyama, Tagawa, Toda, Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import dedent
from typing import NamedTuple, Protocol
from xml.sax.saxutils import escape, quoteattr

SWEEPS = 4
"""How often the layers are ordered, down and up in turn."""


class Arrow(Protocol):
    """What is drawn between two nodes."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def data(self) -> str | None: ...
    @property
    def conditional(self) -> bool: ...


class Shape(NamedTuple):
    """What is drawn for a node: lines of text, the cluster it stands in (`outer:inner`), and what kind it is."""

    lines: tuple[str, ...]
    cluster: str = ""
    kind: str = ""


class Size(NamedTuple):
    """Width and height."""

    width: float
    height: float


NOTHING = Size(0, 0)

Point = tuple[float, float]


@dataclass
class Placed:
    """A layout.

    Attributes:
        size: of all.
        at: node → its left upper corner.
        ways: (upper, lower) node → points that an edge between them passes, from above to below.
        turned: edges, (source, target), that are drawn from below to above.
    """

    size: Size = NOTHING
    at: dict[str, Point] = field(default_factory=dict)
    ways: dict[tuple[str, str], list[Point]] = field(default_factory=dict)
    turned: set[tuple[str, str]] = field(default_factory=set)


def placed(sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]], gap: Size, line: Size = NOTHING) -> Placed:
    """Lay out nodes in layers from above to below.

    Args:
        sizes: node → its size.
        edges: (source, target); from a node to itself they count for nothing.
        gap: between two nodes of a layer, and between two layers.
        line: of a layer, what an edge takes that passes it.
    """
    found = Placed()
    down, found.turned = _without_loops(list(sizes), [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]])
    layer = _layers(list(sizes), down)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node, at in layer.items():
        rows[at].append(node)
    sizes, links, chains = dict(sizes), [], {}
    gap_mark = "\0" * (1 + max(map(len, sizes), default=0))
    for number, (upper, lower) in enumerate(down):
        chain = [upper]
        for at in range(layer[upper] + 1, layer[lower]):
            between = f"{gap_mark}{number}:{at}"
            sizes[between] = line
            rows[at].append(between)
            chain.append(between)
        chains[upper, lower] = [*chain, lower]
        links += list(pairwise([*chain, lower]))
    _order(rows, links)
    _place(found, rows, sizes, gap)
    for edge, chain in chains.items():
        found.ways[edge] = [found.at[node] for node in chain[1:-1]]
    for node in [node for node in found.at if node.startswith(gap_mark)]:
        del found.at[node]
    return found


def _without_loops(
    nodes: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], set[tuple[str, str]]]:
    """The edges with those turned round that lead back, (upper, lower), and which these are."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    entered = set()
    for source, target in edges:
        after[source].append(target)
        entered.add(target)
    turned: set[tuple[str, str]] = set()
    done: set[str] = set()
    for root in [*(node for node in nodes if node not in entered), *nodes]:
        if root in done:
            continue
        path, on_path = [(root, iter(after[root]))], {root}
        while path:
            node, following = path[-1]
            following_node = next(following, None)
            if following_node is None:
                path.pop()
                on_path.discard(node)
                done.add(node)
            elif following_node in on_path:
                turned.add((node, following_node))
            elif following_node not in done:
                on_path.add(following_node)
                path.append((following_node, iter(after[following_node])))
    down = [(target, source) if (source, target) in turned else (source, target) for source, target in edges]
    return list(dict.fromkeys(down)), turned


def _layers(nodes: Sequence[str], down: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Node → the length of the longest path to it."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    missing = dict.fromkeys(nodes, 0)
    for upper, lower in down:
        after[upper].append(lower)
        missing[lower] += 1
    layer = dict.fromkeys(nodes, 0)
    ready = [node for node in nodes if not missing[node]]
    while ready:
        node = ready.pop()
        for lower in after[node]:
            layer[lower] = max(layer[lower], layer[node] + 1)
            missing[lower] -= 1
            if not missing[lower]:
                ready.append(lower)
    return layer


def _order(rows: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Order each layer so that few edges cross."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for upper, lower in links:
        below.setdefault(upper, []).append(lower)
        above.setdefault(lower, []).append(upper)
    rank = {node: float(at) for row in rows for at, node in enumerate(row)}
    for sweep in range(SWEEPS):
        neighbours = below if sweep % 2 else above
        for row in reversed(rows) if sweep % 2 else rows:
            wished = {node: _mean([rank[other] for other in neighbours.get(node, ())], rank[node]) for node in row}
            row.sort(key=wished.__getitem__)
            rank.update((node, float(at)) for at, node in enumerate(row))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _place(found: Placed, rows: Sequence[Sequence[str]], sizes: Mapping[str, Size], gap: Size) -> None:
    """Give each node its corner: layers one below the other, each in the middle."""
    widths = [sum(sizes[node].width for node in row) + gap.width * (len(row) - 1) for row in rows]
    width, y = max(widths, default=0.0), 0.0
    for row, own in zip(rows, widths, strict=True):
        height = max((sizes[node].height for node in row), default=0.0)
        x = (width - own) // 2
        for node in row:
            found.at[node] = (x, y + (height - sizes[node].height) // 2)
            x += sizes[node].width + gap.width
        y += height + gap.height
    found.size = Size(width, max(0.0, y - gap.height))


# ---------------------------------------------------------------- SVG

LETTER, LINE, PAD, TITLE = 7.5, 17.0, 10.0, 20.0
GAP = Size(36, 48)
FILLS = {
    "": "#f2f0ff",
    "end": "#ffffff",
    "question": "#fff4cc",
    "failed": "#ffd9d9",
    "cached": "#e3f4e3",
    "recorded": "#e6eefc",
    "begun": "#ffe9cc",
    "barrier": "#888888",
}
STYLE = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#222}.s{font-size:11px;fill:#666}.l{font-size:11px;fill:#444;"
    "paint-order:stroke;stroke:#fff;stroke-width:3px}.n{stroke:#9370db}.c{fill:#0001;stroke:#bbb}"
    ".e{fill:none;stroke:#555}.d{stroke-dasharray:4 3}"
)
ARROWHEAD = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>'
)


class _Svg:
    """A drawing that grows, cluster by cluster."""

    def __init__(self, shapes: Mapping[str, Shape], edges: Sequence[Arrow]) -> None:
        self._shapes, self._edges = shapes, edges
        self._sizes = {id: _size_of(shape) for id, shape in shapes.items()}
        self._corners: dict[str, Point] = {}
        self._frames: list[tuple[str, Point, Size]] = []
        self._ways: dict[int, list[Point]] = {}
        self._inside: dict[str, dict[str, None]] = {"": {}}
        for id, shape in shapes.items():
            inner = f"n{id}"
            for cluster in _upwards(shape.cluster):
                self._inside.setdefault(cluster, {})[inner] = None
                inner = f"c{cluster}"
            self._inside[""][inner] = None
        self._paths = {id: [f"n{id}", *(f"c{one}" for one in _upwards(shape.cluster))] for id, shape in shapes.items()}

    def text(self) -> str:
        layouts: dict[str, Placed] = {}
        size = self._lay_out("", layouts)
        self._settle("", (PAD, PAD), layouts)
        loops = any(edge.source == edge.target for edge in self._edges)
        width, height = size.width + 2 * PAD + (40 if loops else 0), size.height + 2 * PAD
        parts = [self._frame(*frame) for frame in self._frames]
        parts += [self._arrow(number, edge) for number, edge in enumerate(self._edges)]
        parts += [self._node(id) for id in self._shapes]
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        head += f' viewBox="0 0 {width:g} {height:g}"><style>{STYLE}</style>{ARROWHEAD}'
        return "\n".join([head, *parts, "</svg>\n"])

    def _lay_out(self, cluster: str, layouts: dict[str, Placed]) -> Size:
        sizes = {}
        for part in self._inside[cluster]:
            if part[0] == "n":
                sizes[part] = self._sizes[part[1:]]
            else:
                inner = self._lay_out(part[1:], layouts)
                title = LETTER * len(part.rpartition(":")[2]) + 2 * PAD
                sizes[part] = Size(max(inner.width + 2 * PAD, title), inner.height + 2 * PAD + TITLE)
        edges = [ends for edge in self._edges if (ends := self._ends_in(edge, cluster))]
        found = layouts[cluster] = placed(sizes, edges, GAP)
        for part, size in sizes.items():
            self._sizes[part] = size
        return found.size

    def _ends_in(self, edge: Arrow, cluster: str) -> tuple[str, str] | None:
        """The parts of a cluster that an edge joins, if it joins two."""
        ends = [part for id in (edge.source, edge.target) for part in self._paths[id] if part in self._inside[cluster]]
        return (ends[0], ends[1]) if len(ends) == 2 and ends[0] != ends[1] else None

    def _settle(self, cluster: str, at: Point, layouts: Mapping[str, Placed]) -> None:
        """Give the parts of a cluster their places in the whole."""
        layout = layouts[cluster]
        for part, (x, y) in layout.at.items():
            corner = (at[0] + x, at[1] + y)
            if part[0] == "n":
                self._corners[part[1:]] = corner
                continue
            self._frames.append((part[1:], corner, self._sizes[part]))
            spare = (self._sizes[part].width - layouts[part[1:]].size.width) / 2
            self._settle(part[1:], (corner[0] + spare, corner[1] + PAD + TITLE), layouts)
        for number, edge in enumerate(self._edges):
            ends = self._ends_in(edge, cluster)
            if ends is None:
                continue
            is_turned = ends in layout.turned
            way = layout.ways[(ends[1], ends[0]) if is_turned else ends]
            passed = [(at[0] + x, at[1] + y) for x, y in way]
            self._ways[number] = passed[::-1] if is_turned else passed

    # --- parts

    def _frame(self, cluster: str, at: Point, size: Size) -> str:
        (x, y), title = at, cluster.rpartition(":")[2]
        box = f'<rect class="c" x="{x:g}" y="{y:g}" width="{size.width:g}" height="{size.height:g}" rx="4"/>'
        return box + _text(x + size.width / 2, y + TITLE - 5, title, "s")

    def _node(self, id: str) -> str:
        shape, (x, y), (width, height) = self._shapes[id], self._corners[id], self._sizes[id]
        fill = FILLS.get(shape.kind, FILLS[""])
        middle = x + width / 2
        if shape.kind == "question":
            points = [(x, y + height / 2), (middle, y), (x + width, y + height / 2), (middle, y + height)]
            box = f'<polygon class="n" fill="{fill}" points="{" ".join(f"{a:g},{b:g}" for a, b in points)}"/>'
        else:
            round_ = height / 2 if shape.kind in ("end", "barrier") else 5
            box = f'<rect class="n" fill="{fill}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
            box += f' rx="{round_:g}"/>'
        top = y + height / 2 - LINE * (len(shape.lines) - 1) / 2 + 4
        lines = [_text(middle, top + LINE * n, line, "s" if n else "") for n, line in enumerate(shape.lines)]
        return f"<g><title>{_clean(id)}</title>{box}{''.join(lines)}</g>"

    def _arrow(self, number: int, edge: Arrow) -> str:
        path, label_at = self._path(number, edge)
        kind = "e d" if edge.conditional else "e"
        line = f'<path class="{kind}" d="{path}" marker-end="url(#arrow)"/>'
        return line if edge.data is None else line + _text(*label_at, str(edge.data), "l")

    def _path(self, number: int, edge: Arrow) -> tuple[str, Point]:
        (x, y), size = self._corners[edge.source], self._sizes[edge.source]
        if edge.source == edge.target:
            right, up, down = x + size.width, y + size.height * 0.3, y + size.height * 0.7
            path = f"M{right:g} {up:g}C{right + 34:g} {up - 12:g} {right + 34:g} {down + 12:g} {right:g} {down:g}"
            return path, (right + 30, (up + down) / 2)
        (to_x, to_y), to = self._corners[edge.target], self._sizes[edge.target]
        is_down = y + size.height / 2 <= to_y + to.height / 2
        aside = -to.width / 6 if not is_down else 0  # so that there and back are two lines
        start = (x + size.width / 2 + (size.width / 6 if not is_down else 0), y + (size.height if is_down else 0))
        end = (to_x + to.width / 2 - aside, to_y + (0 if is_down else to.height))
        points = [start, *self._ways.get(number, ()), end]
        path = f"M{start[0]:g} {start[1]:g}"
        for (ax, ay), (bx, by) in pairwise(points):
            bend = (by - ay) / 2
            path += f"C{ax:g} {ay + bend:g} {bx:g} {by - bend:g} {bx:g} {by:g}"
        near = points[1]
        return path, ((start[0] + near[0]) / 2, (start[1] + near[1]) / 2 + 4)


def draw_svg(shapes: Mapping[str, Shape], edges: Sequence[Arrow]) -> str:
    """Nodes and edges as an SVG document; a dotted arrow is a conditional one."""
    return _Svg(shapes, edges).text()


def _size_of(shape: Shape) -> Size:
    if shape.kind == "barrier":
        return Size(14, 14)
    text = max((len(line) for line in shape.lines), default=0) * LETTER
    height = LINE * max(1, len(shape.lines)) + 2 * PAD - 4
    return Size(text * 1.5 + 30, height * 1.7) if shape.kind == "question" else Size(max(40, text + 2 * PAD), height)


def _text(x: float, y: float, text: str, kind: str) -> str:
    mark = f" class={quoteattr(kind)}" if kind else ""
    return f'<text{mark} x="{x:g}" y="{y:g}">{_clean(text)}</text>'


def _clean(text: str) -> str:
    """Text as XML may hold it."""
    allowed = (char if char.isprintable() or char == " " else "\N{REPLACEMENT CHARACTER}" for char in text)
    return escape("".join(allowed))


def _upwards(cluster: str) -> Iterable[str]:
    while cluster:
        yield cluster
        cluster = cluster.rpartition(":")[0]


# ---------------------------------------------------------------- plain text


class _Canvas:
    """Characters on lines."""

    def __init__(self, width: int, height: int) -> None:
        self._rows = [[" "] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str) -> None:
        for at, char in enumerate(text):
            self._rows[y][x + at] = char

    def line(self, x: int, y: int, mark: str) -> None:
        """One character of a line; where two lines meet they cross."""
        known = self._rows[y][x]
        self._rows[y][x] = mark if known in (" ", mark) or mark in "v^" else known if known in "v^" else "+"

    def text(self) -> str:
        return dedent("\n".join("".join(row).rstrip() for row in self._rows)).rstrip()


def draw_ascii(names: Mapping[str, str], edges: Sequence[Arrow]) -> str:
    """Nodes as boxes with names, edges as lines between them.

    A conditional edge is dotted, one that leads back up ends in `^`, and what leads to itself has a hook at its side.
    """
    names = {id: name.ljust(len(name) | 1) for id, name in names.items()}  # odd, so that each has a middle
    loops = {edge.source for edge in edges if edge.source == edge.target}
    sizes = {id: Size(len(name) + 4 + (2 * HOOK if id in loops else 0), 3) for id, name in names.items()}
    found = placed(sizes, [(edge.source, edge.target) for edge in edges], Size(3, 0), Size(1, 1))
    lanes = _Lanes(found, sizes, edges)
    canvas = _Canvas(int(found.size.width) + 1, lanes.height)
    lanes.draw(canvas)
    for id, name in names.items():
        x, y = int(found.at[id][0]) + (HOOK if id in loops else 0), lanes.top[id]
        bar = "+" + "-" * (len(name) + 2) + "+"
        canvas.put(x, y, bar)
        canvas.put(x, y + 1, f"| {name} |" + ("--+" if id in loops else ""))
        canvas.put(x, y + 2, bar + ("<-+" if id in loops else ""))
        for row, column, mark in lanes.tips.get(id, ()):
            canvas.put(column, row, mark)
    return canvas.text()


HOOK = 4
"""Letters at each side of a box that leads to itself."""


class _Hop(NamedTuple):
    """A line from one layer to the next: from a column to a column, and whether it comes through the upper layer."""

    start: int
    stop: int
    is_dotted: bool
    passes: bool

    def draw(self, canvas: _Canvas, top: int, turn: int, end: int) -> None:
        """Down from row `top`, aside in row `turn`, down to row `end`."""
        upright, level = (":", ".") if self.is_dotted else ("|", "-")
        for y in range(top, end):
            if y != turn:
                canvas.line(self.start if y < turn else self.stop, y, upright)
        if turn < end:
            left, right = sorted((self.start, self.stop))
            for x in range(left + 1, right):
                canvas.line(x, turn, level)
            canvas.line(left, turn, "+")
            canvas.line(right, turn, "+")


class _Lanes:
    """The lines of a drawing of characters: between two layers each edge that turns has a row of its own.

    Attributes:
        top: node → its first row.
        height: rows in all.
        tips: node → the ends of arrows at it: (row, column, mark).
    """

    def __init__(self, found: Placed, sizes: Mapping[str, Size], edges: Sequence[Arrow]) -> None:
        self._sizes = sizes
        count = 1 + max((_level(y) for _, y in found.at.values()), default=-1)
        self._hops: list[list[_Hop]] = [[] for _ in range(count)]
        tips: list[tuple[str, int, str]] = []
        for edge in edges:
            if edge.source == edge.target:
                continue
            ends = (edge.source, edge.target)
            is_up = ends in found.turned
            upper, lower = ends[::-1] if is_up else ends
            aside = 1 if is_up else 0
            xs = [self._middle(found, upper) + aside, *(int(x) for x, _ in found.ways[upper, lower])]
            xs.append(self._middle(found, lower) + aside)
            first = _level(found.at[upper][1])
            for at, (start, stop) in enumerate(pairwise(xs)):
                self._hops[first + at].append(_Hop(start, stop, edge.conditional, at > 0))
            tips.append((upper, xs[0], "^") if is_up else (lower, xs[-1], "v"))
        self._hops = [list(dict.fromkeys(hops)) for hops in self._hops]
        tops, y = [], 0
        for hops in self._hops:
            tops.append(y)
            turning = sum(hop.start != hop.stop for hop in hops)
            y += 3 + (turning + 2 if hops else 1)
        self._tops, self.height = tops, y
        self.top = {id: tops[_level(at)] for id, (_, at) in found.at.items()}
        self.tips: dict[str, list[tuple[int, int, str]]] = {}
        for id, column, mark in tips:
            row = self.top[id] + 3 if mark == "^" else self.top[id] - 1
            self.tips.setdefault(id, []).append((row, column, mark))

    def _middle(self, found: Placed, id: str) -> int:
        return int(found.at[id][0]) + int(self._sizes[id].width) // 2

    def draw(self, canvas: _Canvas) -> None:
        for at, hops in enumerate(self._hops):
            top = self._tops[at] + 3
            end = self._tops[at + 1] if at + 1 < len(self._tops) else self.height
            lane = top + 1
            for hop in hops:
                is_straight = hop.start == hop.stop
                hop.draw(canvas, self._tops[at] if hop.passes else top, end if is_straight else lane, end)
                lane += not is_straight


def _level(y: float) -> int:
    """The layer of a row: layers of boxes are three rows high, and a line between boxes passes in the middle."""
    return int(y) // 3
