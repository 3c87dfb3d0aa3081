"""Count the words of many texts at once, and show the ten that they use most: a graph that maps and reduces.

One node splits the work, one run of `count` is sent to each text, and what they give is joined by adding counts up. The
texts are the plain sources of Python's own library, so there is nothing to download.

    $ python examples/count_words.py email
    … files of email
    self: …
    …
    $ python examples/count_words.py json 3
    … files of json
    …: …
    …: …
    …: …
"""

import importlib
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, TypedDict

from flowfn import END, START, Send, StateGraph


def added(one: Counter[str], other: Counter[str]) -> Counter[str]:
    return one + other


class Count(TypedDict):
    package: str
    files: list[Path]
    counts: Annotated[Counter[str], added]
    most: list[tuple[str, int]]


def find(state: Count) -> dict[str, list[Path]]:
    file = importlib.import_module(state["package"]).__file__
    assert file is not None
    return {"files": sorted(Path(file).parent.glob("*.py"))}


def one_each(state: Count) -> list[Send]:
    return [Send("count", path) for path in state["files"]]


def count(path: Path) -> dict[str, Counter[str]]:
    return {"counts": Counter(re.findall(r"[a-z]{4,}", path.read_text("utf-8").lower()))}


def rank(state: Count) -> dict[str, list[tuple[str, int]]]:
    return {"most": sorted(state["counts"].items(), key=lambda pair: (-pair[1], pair[0]))}


graph = StateGraph(Count)
graph.add_node(find)
graph.add_node(count)
graph.add_node(rank)
graph.add_edge(START, "find")
graph.add_conditional_edges("find", one_each, ["count"])
graph.add_edge("count", "rank")
graph.add_edge("rank", END)
count_words = graph.compile()


def main(package: str, most: str = "10") -> None:
    found = count_words.invoke({"package": package}, {"max_concurrency": 4})
    print(f"{len(found['files'])} files of {package}")
    for word, times in found["most"][: int(most)]:
        print(f"{word}: {times}")


if __name__ == "__main__":
    main(*sys.argv[1:])
