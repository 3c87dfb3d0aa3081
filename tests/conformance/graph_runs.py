"""What a run of a graph shows: its streams, its state and its history, in an order that no worker decides.

The sentences of a library's errors are left out, their classes are kept.
"""

import builtins
import operator
from typing import Annotated, TypedDict

MODES = ["values", "updates", "tasks", "checkpoints", "custom"]
FEW_STEPS = {"configurable": {"thread_id": "t"}, "recursion_limit": 25}


class State(TypedDict):
    n: int
    log: Annotated[list, operator.add]


def note(name):
    """A node that logs its name."""
    return lambda state: {"log": [name]}


def graph_of(kit, *names, state=State):
    """Nodes that log their names, without edges."""
    graph = kit.StateGraph(state)
    for name in names:
        graph.add_node(name, note(name))
    return graph


def line(kit, state, *nodes, **compiled):
    """A graph of functions or (name, function) pairs, one after another, with a saver."""
    graph = kit.StateGraph(state)
    graph.add_sequence(nodes)
    name = nodes[0][0] if isinstance(nodes[0], tuple) else nodes[0].__name__
    graph.add_edge(kit.START, name)
    return saved(kit, graph, **compiled)


def saved(kit, graph, **compiled):
    """The compiled graph, with a saver of its own."""
    return graph.compile(checkpointer=kit.InMemorySaver(), **compiled)


def run(kit, flow, input, config=FEW_STEPS, **more):
    """One run: mode → its chunks, with what the nodes of one super-step gave sorted by name; then state and history."""
    chunks = kit.stream(flow, input, config, stream_mode=MODES, **more)
    shown = {mode: [] for mode in MODES}
    step = 0
    for mode, chunk in chunks:
        if mode == "raised":
            shown["raised"] = chunk
            continue
        step += mode == "checkpoints"
        if mode == "tasks" and "input" in chunk and "error_handler__" in chunk["name"]:
            continue  # LangGraph tells how an error handler ends, and not that it begins
        shown[mode].append((step, chunk))
    for mode in ("updates", "tasks", "custom"):
        shown[mode].sort(key=lambda found: (found[0], _place(found[1])))
    shown = {m: found if m == "raised" else [chunk for _, chunk in found] for m, found in shown.items()}
    for chunk in shown["checkpoints"]:
        chunk["tasks"] = [{**task, **_shortened(task.get("error"))} for task in chunk["tasks"]]
    state, history = asked(kit.state, flow), asked(kit.history, flow)
    return {**shown, "state": _plain(state), "history": [_plain(one) for one in history]}


def _plain(state):
    """A snapshot whose tasks name the errors of the library by their class only."""
    if not hasattr(state, "tasks"):
        return state
    return state._replace(tasks=tuple(task._replace(**_shortened(task.error)) for task in state.tasks))


def _shortened(error):
    if error is None:
        return {}
    kind = str(error).partition("(")[0]
    return {"error": error if hasattr(builtins, kind) else kind}


def asked(ask, *of):
    """What it gives or raises: after writes that cannot be joined, even to look at a thread can fail."""
    try:
        return ask(*of)
    except Exception as error:
        return ("raised", error)


def runs(kit, flow, *inputs, **more):
    """Several runs of one thread."""
    return [run(kit, flow, input, **more) for input in inputs]


def _place(chunk):
    """Starts before results, and a pause last; each by name and content, whatever its id."""
    if not isinstance(chunk, dict):
        return (0, "", repr(chunk))
    if "name" in chunk and "id" in chunk:
        return (int("triggers" not in chunk), chunk["name"], repr(chunk.get("input", chunk.get("result"))))
    return (int("__interrupt__" in chunk), repr(sorted(chunk, key=str)), repr(chunk))
