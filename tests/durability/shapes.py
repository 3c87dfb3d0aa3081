"""Flows of every shape, as functions and as coroutines, whose tasks tell a witness what runs and what is seen.

A flow takes how many of a thing it is to do, and returns what it saw, a list. The witness is `crashing.Witness`, or
another with its methods.
"""

from crashing import END, Calling, Next, flow_of, task_of, written

import flowfn
from flowfn import interrupt, record
from flowfn.channels import LastValue
from flowfn.context import get_previous
from flowfn.pregel.node import NodeBuilder
from flowfn.types import MISSING


class Refused(ValueError):
    pass


class Tasks:
    """The tasks of all these flows; each returns what says which call it was."""

    def __init__(self, see, how):
        def fetch(x):
            value = see.run("fetch", x)
            yield see.work(value)
            return value

        def parse(x):
            value = see.run("parse", x)
            yield see.work(value)
            return value

        def charge(x):
            value = see.run("charge", x)
            yield see.work(value)
            raise Refused(*value)

        def whole(x):
            me = see.run("whole", x)
            see.see((yield self.fetch(x)), me)
            see.see((yield self.parse(x)), me)
            yield see.work(me)
            return me

        def asking(x):
            me = see.run("asking", x)
            see.hear(f"is {x} right?", interrupt(f"is {x} right?"), me)
            yield see.work(me)
            return me

        self.fetch, self.parse, self.charge = task_of(fetch, how), task_of(parse, how), task_of(charge, how)
        self.whole, self.asking = task_of(whole, how), task_of(asking, how)

    def __flow_key__(self):
        return "tasks"


def sequence(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        for i in range(n):
            total.append(see.see((yield t.fetch(i)), me))
        return total

    return flow_of(flow, saver, how)


def fan_out(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        for future in [t.fetch(i) for i in range(n)]:
            total.append(see.see((yield future), me))
        total.append(see.see((yield t.parse(n)), me))
        return total

    return flow_of(flow, saver, how)


def mapped(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        values = Next(t.fetch.map(range(n), in_flight=3))
        while (value := (yield values)) is not END:
            total.append(see.see(value, me))
        return total

    return flow_of(flow, saver, how)


def race(see, how, saver):
    """What comes first decides what is called next."""
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        futures = Next(flowfn.as_completed([t.fetch(i) for i in range(n)]))
        while (future := (yield futures)) is not END:
            value = see.see((yield future), me)
            total += [value, see.see((yield t.parse(value[1])), me)]
        return total

    return flow_of(flow, saver, how)


def mixed_kinds(see, how, saver):
    """Functions call coroutines and coroutines functions."""
    t, others = Tasks(see, how), Tasks(see, "async" if how == "sync" else "sync")

    def flow(n):
        me, total = see.run("flow", n), []
        for future in [task(i) for i in range(n) for task in (t.fetch, others.parse)]:
            total.append(see.see((yield future), me))
        total.append(see.see((yield others.fetch(n)), me))
        return total

    return flow_of(flow, saver, how)


def nested_tasks(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        for future in [t.whole(i) for i in range(n)]:
            total.append(see.see((yield future), me))
        return total

    return flow_of(flow, saver, how)


def questions(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        for i in range(n):
            total.append(see.see((yield t.fetch(i)), me))
            total.append(see.hear(f"go on after {i}?", interrupt(f"go on after {i}?"), me))
        total.append(see.see((yield t.parse(n)), me))
        return total

    return flow_of(flow, saver, how)


def questions_in_tasks(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        for future in [task(i) for i in range(n) for task in (t.asking, t.fetch)]:
            total.append(see.see((yield future), me))
        return total

    return flow_of(flow, saver, how)


def handled_failures(see, how, saver):
    t = Tasks(see, how)

    def flow(n):
        me, total = see.run("flow", n), []
        for i in range(n):
            try:
                yield t.charge(i)
            except Refused as error:
                total.append(see.see(list(error.args), me))
            total.append(see.see((yield t.fetch(i)), me))
        return total

    return flow_of(flow, saver, how)


def recorded(see, how, saver):
    t = Tasks(see, how)

    def drawn(x):
        return see.run("drawn", x)

    def flow(n):
        me, total = see.run("flow", n), []
        for i in range(n):
            total.append(see.see(record(drawn, i), me))
            total.append(see.see((yield t.fetch(i)), me))
        return total

    return flow_of(flow, saver, how)


def two_runs(see, how, saver):
    """The second run sees what the first one left."""
    t = Tasks(see, how)

    def flow(n):
        total = list(get_previous() or [])
        me = see.run("flow", len(total))
        for _ in range(n):
            total.append(see.see((yield t.fetch(len(total))), me))
        return total

    return flow_of(flow, saver, how)


def nested_flow(see, how, saver):
    t = Tasks(see, how)
    inside = Calling(sequence(see, how, None))

    def outer(n):
        me = see.run("outer", n)
        values = yield inside(n)
        return [*values, see.see((yield t.whole(n)), me)]

    return flow_of(outer, saver, how)


def nested_flow_in_task(see, how, saver):
    t = Tasks(see, how)
    inside = Calling(sequence(see, how, None))

    def around(x):
        value = see.run("around", x)
        yield inside(x)
        yield see.work(value)
        return value

    outer_task = task_of(around, how)

    def outer(n):
        me, total = see.run("outer", n), []
        for future in [outer_task(n), t.parse(n)]:
            total.append(see.see((yield future), me))
        return total

    return flow_of(outer, saver, how)


def graph(see, how, saver):
    """A program of nodes: two in a super-step, and in the next one that reads both; so many times."""

    def node_of(name):
        def node(count):
            value = see.run(name, count)
            yield see.work(value)
            return value

        return written(node, how)

    def join(both):
        left, right = both["left"], both["right"]
        me = see.run("join", left[1])
        yield see.work(me)
        return [*both.get("total", []), see.see(left, me), see.see(right, me), me]

    def left_over(total):
        return total[-1][1] - 1 or MISSING

    names = ("work", "left", "right", "total")
    return flowfn.Pregel(
        name="graph",
        nodes={
            "left": NodeBuilder().subscribe_only("work").do(node_of("left")).write_to("left"),
            "right": NodeBuilder().subscribe_only("work").do(node_of("right")).write_to("right"),
            "join": NodeBuilder()
            .subscribe_to("left", "right")
            .read_from("total")
            .do(written(join, how))
            .write_to("total", work=left_over),
        },
        channels={name: LastValue(object) for name in names},
        input_channels="work",
        output_channels="total",
        stream_channels="total",
        checkpointer=saver,
    )


FLOWS = {
    "sequence": (sequence, [3]),
    "fan-out": (fan_out, [4]),
    "mapped": (mapped, [3]),
    "race": (race, [2]),
    "mixed kinds": (mixed_kinds, [2]),
    "nested tasks": (nested_tasks, [2]),
    "questions": (questions, [1]),
    "questions in tasks": (questions_in_tasks, [2]),
    "handled failures": (handled_failures, [1]),
    "recorded": (recorded, [2]),
    "previous over two runs": (two_runs, [1, 1]),
    "nested flow": (nested_flow, [2]),
    "nested flow in a task": (nested_flow_in_task, [2]),
    "graph": (graph, [2]),
}
"""Name → what makes the flow, and the inputs of its runs, small enough to be stopped everywhere."""
