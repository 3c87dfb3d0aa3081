"""A run that dies at any of its writes goes on, and no result that was stored or seen is computed again."""

import pytest
from crashing import Crash, DoomedSaver, Witness, finished, flow_of, task_of

from flowfn import interrupt
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.context import get_previous


class Refused(ValueError):
    pass


def tasks_for(see, how):
    """The tasks of all these flows: each returns what says which call it was."""

    def fetch(x):
        see.run("fetch", x)
        return ["fetch", x]
        yield

    def parse(x):
        see.run("parse", x)
        return ["parse", x]
        yield

    def charge(x):
        see.run("charge", x)
        raise Refused("charge", x)
        yield

    def whole(x):
        see.run("whole", x)
        part = yield task_of(fetch, how)(x)
        see.see(*part)
        other = yield task_of(parse, how)(x)
        see.see(*other)
        return ["whole", x]

    def asking(x):
        see.run("asking", x)
        answer = interrupt(f"is {x} right?")
        assert answer == "yes"
        return ["asking", x]
        yield

    return {body.__name__: task_of(body, how) for body in (fetch, parse, charge, whole, asking)}


def sequence(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        total = []
        for i in range(3):
            value = yield t["fetch"](x + i)
            see.see(*value)
            total.append(value)
        return total

    return flow_of(flow, saver, how)


def fan_out(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        futures = [t["fetch"](x + i) for i in range(4)]
        total = []
        for future in futures:
            value = yield future
            see.see(*value)
            total.append(value)
        last = yield t["parse"](x)
        see.see(*last)
        return [*total, last]

    return flow_of(flow, saver, how)


def nested_tasks(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        one, two = t["whole"](x), t["whole"](x + 1)
        first = yield one
        see.see(*first)
        second = yield two
        see.see(*second)
        return [first, second]

    return flow_of(flow, saver, how)


def question(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        before = yield t["fetch"](x)
        see.see(*before)
        answer = interrupt("go on?")
        after = yield t["parse"](x)
        see.see(*after)
        return [before, answer, after]

    return flow_of(flow, saver, how)


def questions_in_tasks(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        futures = [t["asking"](x), t["fetch"](x), t["asking"](x + 1)]
        total = []
        for future in futures:
            value = yield future
            see.see(*value)
            total.append(value)
        return total

    return flow_of(flow, saver, how)


def handled_failure(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        try:
            yield t["charge"](x)
        except Refused as error:
            see.see(*error.args)
        value = yield t["fetch"](x)
        see.see(*value)
        return ["instead", value]

    return flow_of(flow, saver, how)


def two_runs(see, how, saver):
    t = tasks_for(see, how)

    def flow(x):
        value = yield t["fetch"](x)
        see.see(*value)
        return [*(get_previous() or []), value]

    return flow_of(flow, saver, how)


def nested_flow(see, how, saver):
    t = tasks_for(see, how)

    def inner(x):
        value = yield t["fetch"](x)
        see.see(*value)
        other = yield t["parse"](x)
        see.see(*other)
        return [value, other]

    inside = flow_of(inner, None, how)

    class Inner:
        """Waits for the inner flow as for a future."""

        def __init__(self, x):
            self.x = x

        def result(self):
            return inside.invoke(self.x)

        def __await__(self):
            return inside.ainvoke(self.x).__await__()

    def flow(x):
        value = yield Inner(x)
        last = yield t["whole"](x + 10)
        see.see(*last)
        return [value, last]

    return flow_of(flow, saver, how)


def nested_flow_in_task(see, how, saver):
    t = tasks_for(see, how)
    flow_inside = sequence(see, how, None)

    class Inner:
        def __init__(self, x):
            self.x = x

        def result(self):
            return flow_inside.invoke(self.x)

        def __await__(self):
            return flow_inside.ainvoke(self.x).__await__()

    def outer_task(x):
        see.run("outer_task", x)
        yield Inner(x)
        return ["outer_task", x]

    outer = task_of(outer_task, how)

    def flow(x):
        one, two = outer(x), t["parse"](x)
        first = yield one
        see.see(*first)
        second = yield two
        see.see(*second)
        return [first, second]

    return flow_of(flow, saver, how)


FLOWS = {
    "sequence": (sequence, [1]),
    "fan-out": (fan_out, [1]),
    "nested tasks": (nested_tasks, [1]),
    "question": (question, [1]),
    "questions in tasks": (questions_in_tasks, [1]),
    "handled failure": (handled_failure, [1]),
    "previous over two runs": (two_runs, [1, 2]),
    "nested flow": (nested_flow, [1]),
    "nested flow in a task": (nested_flow_in_task, [1]),
}


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request, tmp_path):
    made = []

    def new():
        store = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / f"{len(made)}.db")
        made.append(store)
        return store

    yield new
    for store in made:
        store.close()


def runs_through(make, inputs, how, store, at=0, after=False, error=Crash):
    """One process that goes on with the thread until it ends or dies: its saver, its witness, its result."""
    saver = DoomedSaver(store, at, after, error)
    see = Witness(saver)
    result = None
    try:
        result = finished(make(see, how, saver), how, inputs, saver=saver)
    except BaseException:
        if not saver.is_dead:
            raise
    return saver, see, result


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the crash ends workers as well
@pytest.mark.parametrize("error", [Crash, OSError])
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.timeout(20)
def test_a_run_goes_on_from_any_write_and_repeats_nothing_that_was_stored(name, how, after, error, new_store):
    # given: what an undisturbed run does
    make, inputs = FLOWS[name]
    undisturbed, calm, expected = runs_through(make, inputs, how, new_store())
    once = set(calm.ran)

    for at in range(1, undisturbed.writes + 20):
        # when: the process dies at this write, and another one goes on
        store = new_store()
        dead, before, early = runs_through(make, inputs, how, store, at, after, error)
        _, now, result = runs_through(make, inputs, how, store)
        if not dead.is_dead:
            assert early == expected
            break

        # then
        where = f"died at write {at} of about {undisturbed.writes}"
        repeated = set(now.ran) & set(dead.stored)
        assert repeated == set(), f"{where}: ran again although stored"
        assert set(before.saw) <= set(dead.stored), f"{where}: seen before stored"
        assert result == expected, where
        assert set(before.ran) | set(now.ran) == once, where
    else:
        raise AssertionError("it never comes to its end without dying")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.timeout(20)
def test_a_run_that_dies_again_and_again_comes_to_its_end(name, how, new_store):
    # given
    make, inputs = FLOWS[name]
    _, _, expected = runs_through(make, inputs, how, new_store())
    store, stored, result = new_store(), set(), None

    # when: every process dies at its third write
    for _ in range(60):
        saver, see, result = runs_through(make, inputs, how, store, 3, True)

        # then
        assert not set(see.ran) & stored
        stored |= set(saver.stored)
        if not saver.is_dead:
            break
    assert result == expected
