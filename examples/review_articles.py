"""Articles that go round between a writer and an editor, until the editor is content: a graph that loops and asks.

Each article is a thread. The script shows what waits for the editor, and ends; while it waits, nothing runs. A note
sends an article back to the writer, with all notes before it, and `yes` publishes it.

    $ python examples/review_articles.py
    writing about owls
    owls waits: "All about owls."
    writing about elms
    elms waits: "All about elms."
    $ python examples/review_articles.py owls "They fly at night."
    writing about owls
    owls waits: "All about owls. They fly at night."
    elms waits: "All about elms."
    $ python examples/review_articles.py owls yes
    owls is published, in draft 2: "All about owls. They fly at night."
    elms waits: "All about elms."

Threads are kept in `examples/.flowfn/articles.db`, or where FLOWFN_DB says.
"""

import operator
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from flowfn import END, START, Command, StateGraph, StateSnapshot, approve

TOPICS = ["owls", "elms"]
DATABASE = os.environ.get("FLOWFN_DB") or str(Path(__file__).parent / ".flowfn" / "articles.db")


class Article(TypedDict):
    topic: str
    text: str
    drafts: Annotated[int, operator.add]
    notes: Annotated[list[str], operator.add]
    is_published: bool


def write(article: Article) -> dict[str, Any]:
    print(f"writing about {article['topic']}")
    return {"text": " ".join([f"All about {article['topic']}.", *article["notes"]]), "drafts": 1}


def review(article: Article) -> Command[Literal["write", "publish"]]:
    verdict = approve(article["text"], title=f"Publish this about {article['topic']}?")
    if verdict.approved:
        return Command(goto="publish")
    return Command(update={"notes": [verdict.note]}, goto="write")


def publish(article: Article) -> dict[str, Any]:
    return {"is_published": True}


graph = StateGraph(Article)
graph.add_node(write)
graph.add_node(review)
graph.add_node(publish)
graph.add_edge(START, "write")
graph.add_edge("write", "review")
graph.add_edge("publish", END)
articles = graph.compile(checkpointer=DATABASE)


def main(answered: str = "", words: str = "") -> None:
    for topic in TOPICS:
        config = {"configurable": {"thread_id": f"article-{topic}"}}
        article = articles.get_state(config)
        if not article.values:
            articles.invoke({"topic": topic}, config)
        elif article.next and not article.interrupts:  # it was killed
            articles.invoke(None, config)
        elif article.interrupts and topic == answered:
            answer = True if words == "yes" else {"approved": False, "note": words}
            articles.invoke(Command(resume=answer), config)
        show(articles.get_state(config))


def show(article: StateSnapshot) -> None:
    topic, text, drafts = (article.values[key] for key in ("topic", "text", "drafts"))
    if article.interrupts:
        print(f'{topic} waits: "{text}"')
    else:
        print(f'{topic} is published, in draft {drafts}: "{text}"')


if __name__ == "__main__":
    main(*sys.argv[1:])
