"""Graphs whose process dies, anywhere: what finished never runs again, and they come to the end they would have had.

`FLOWFN_ROUNDS=200` kills so many processes' graphs at random moments.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest
from crashing import DoomedSaver, finished
from graph_shapes import GRAPHS, Remembers, answers_in, end_of, entries_in

from flowfn.checkpoint import InMemorySaver, SqliteSaver, cells
from flowfn.checkpoint.base import SaveCall, SaveCheckpoint, SaveWrites

HARNESS = Path(__file__).with_name("killing_graphs.py")
ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("FLOWFN_ROUNDS", "13"))


# ---------------------------------------------------------------- at every write


class Doomed(DoomedSaver):
    """Dies at one of the writes, and knows which entries it had stored by then."""

    def _end_write(self, saves, dies):
        for save in saves:
            self.stored += [entry for value in values_in(save, self.serde) for entry in entries_in(value)]
        super()._end_write((), dies)


def values_in(save, serde):
    """What nodes and tasks have given, in a save."""
    if isinstance(save, SaveCall):
        return [serde.loads(save.row.payload, cells.call(save.place, save.run, save.row.key))]
    if isinstance(save, SaveCheckpoint):
        rows = [(name, (None, row) if isinstance(row, bytes) else row) for name, row in save.values.items()]
        versions = save.checkpoint["channel_versions"]
        return [serde.loads(blob, cells.value(save.place, name, versions[name], prev)) for name, (prev, blob) in rows]
    if isinstance(save, SaveWrites):
        place = save.place, save.checkpoint, save.task
        return [serde.loads(blob, cells.write(*place, at, name)) for at, (name, blob) in enumerate(save.writes)]
    return []


class Life:
    """One process that takes a thread of a graph on until it ends or dies.

    Attributes:
        is_dead: whether it died.
        graph: on its saver.
        state: what the graph came to, None for a dead one.
        began: labels of bodies, in order.
        saw, stored: entries that were seen, and those that were stored.
    """

    def __init__(self, name, how, store, thread, at=0, after=False):
        make, size, _ = GRAPHS[name]
        saver, self.state = Doomed(store, at, after), None
        see = Remembers(saver)
        self.graph = make(see, how, saver)
        try:
            self.state = finished(self.graph, how, [{"left": size}], saver=saver, thread=thread)
        except BaseException:
            if not saver.is_dead:
                raise
        self.is_dead, self.writes = saver.is_dead, saver.writes
        self.began, self.saw, self.stored = see.began, see.saw, set(saver.stored)


@pytest.fixture(params=["memory", "SQLite"])
def store(request, tmp_path):
    store = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield store
    store.close()


def labels(entries):
    return {label for label, _ in entries}


def assert_unbroken(graph, thread):
    """Each checkpoint of the thread follows on the one before."""
    snapshots = list(graph.get_state_history({"configurable": {"thread_id": thread}}))[::-1]
    ids = [snapshot.config["configurable"]["checkpoint_id"] for snapshot in snapshots]
    parents = [s.parent_config and s.parent_config["configurable"]["checkpoint_id"] for s in snapshots]
    assert parents == [None, *ids[:-1]]
    assert [snapshot.metadata["step"] for snapshot in snapshots] == list(range(-1, len(ids) - 1))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the crash ends workers as well
@pytest.mark.parametrize(
    ("store", "after"),
    [("memory", False), ("memory", True), ("SQLite", True)],
    ids=["memory, before the write", "memory, after the write", "SQLite, after the write"],
    indirect=["store"],
)
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.timeout(30)
def test_a_graph_goes_on_from_any_write_and_repeats_nothing_that_was_stored(name, how, after, store):
    # given: what an undisturbed run does
    calm = Life(name, how, store, "calm")

    for at in itertools.count(1):
        # when: the process dies at this write, and another one goes on
        dead = Life(name, how, store, f"t{at}", at, after)
        next = Life(name, how, store, f"t{at}")
        if not dead.is_dead:
            assert end_of(dead.state) == end_of(calm.state)
            break

        # then
        where = f"died at write {at} of about {calm.writes}"
        assert not labels(dead.stored) & set(next.began), f"{where}: ran again although stored"
        assert dead.saw <= dead.stored, f"{where}: seen before stored"
        assert end_of(next.state) == end_of(calm.state), where
        assert dead.stored | next.stored >= entries_in(next.state) >= dead.saw, f"{where}: lost"
        assert set(dead.began) | set(next.began) == set(calm.began), where
        assert_unbroken(next.graph, f"t{at}")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.timeout(30)
def test_a_graph_that_dies_again_and_again_comes_to_its_end(name, how, store):
    # given
    calm, stored = Life(name, how, store, "calm"), set()

    # when: a process dies at its third write, the next one at its fourth, and so on
    for at in itertools.count(3):
        life = Life(name, how, store, "t", at, True)

        # then
        assert not labels(stored) & set(life.began)
        stored |= life.stored
        if not life.is_dead:
            break
    assert end_of(life.state) == end_of(calm.state)


class Mishap(Exception):
    pass


class Fails(Remembers):
    """Has one of the bodies fail instead of coming to its end, though none that is to fail anyway.

    Args:
        at: number of the body, from 1, in the order of their ends.

    Attributes:
        ended: labels of the others.
        has_failed: whether it has.
    """

    def __init__(self, saver, at):
        super().__init__(saver)
        self.at, self.ended, self.has_failed = at, [], False

    def note(self, what, label, mark="", seen=()):
        super().note(what, label, mark, seen)
        if what == "ended" and not label.startswith("charge"):
            self.at -= 1
            if self.at == 0:
                self.has_failed = True
                raise Mishap(label)
            self.ended.append(label)


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_ended_beside_a_body_that_fails_does_not_run_again(name, how, store):
    make, size, _ = GRAPHS[name]
    saver = Doomed(store)
    calm = Life(name, how, store, "calm")

    for at in itertools.count(1):
        # when
        see, next = Fails(saver, at), Fails(saver, 0)
        try:
            finished(make(see, how, saver), how, [{"left": size}], saver=saver, thread=f"t{at}")
        except Mishap:
            pass
        if not see.has_failed:
            break
        state = finished(make(next, how, saver), how, [{"left": size}], saver=saver, thread=f"t{at}")

        # then
        assert not set(see.ended) & set(next.began)
        assert end_of(state) == end_of(calm.state)


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", GRAPHS)
def test_an_undisturbed_graph_runs_again_only_what_had_asked(name, how):
    calm = Life(name, how, InMemorySaver(), "calm")
    again = {label for label, count in Counter(calm.began).items() if count > 1}
    assert again == {answered.rstrip("?") for answered in answers_in(calm.state)}


# ---------------------------------------------------------------- at random moments


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.timeout(60 + 3 * ROUNDS)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_graphs_survive_kill_9_at_random_moments(durability):
    # when: processes of every shape of graph are killed, again and again
    rounds = {"sync": ROUNDS, "async": ROUNDS // 2, "exit": ROUNDS // 4}[durability]
    killing = subprocess.run(
        [sys.executable, str(HARNESS), "--rounds", str(rounds), "--durability", durability],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    # then
    assert killing.returncode == 0, killing.stdout + killing.stderr
    assert " 0 rounds wrong" in killing.stdout
    assert durability != "sync" or " kills" in killing.stdout  # fewer rounds may all end before they are killed


# ---------------------------------------------------------------- two processes at one thread

SCRIPT = """
    import operator, os, sys, time
    from typing import Annotated, TypedDict
    from flowfn import END, START, StateGraph
    from flowfn.checkpoint import SqliteSaver

    saver = SqliteSaver({store!r})
    saver.lease_seconds = {lease}

    class State(TypedDict):
        log: Annotated[list, operator.add]

    def waiting(name):
        def node(state):
            open({folder!r} + "/begun " + name + " " + str(os.getpid()), "w").close()
            while not os.path.exists({folder!r} + "/" + name):
                time.sleep(0.005)
            return {{"log": [name]}}
        return node

    graph = StateGraph(State)
    for name in ("one", "two"):
        graph.add_node(name, waiting(name)).add_edge(START, name)
    graph.add_node("join", lambda state: {{"log": ["join"]}}).add_edge(["one", "two"], "join")
    try:
        input = None if sys.argv[1:] == ["on"] else {{"log": []}}
        print(graph.compile(checkpointer=saver).invoke(input, {{"thread_id": "t"}}))
    except Exception as error:
        print(type(error).__name__, error)
"""
WHOLE = "{'log': ['one', 'two', 'join']}\n"


class Shop:
    """Processes that run one graph on one thread, whose nodes `one` and `two` wait until they are let go on."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.saver = SqliteSaver(folder / "flows.db")

    def begin(self, *args, lease=30.0):
        code = SCRIPT.format(store=str(self.folder / "flows.db"), folder=str(self.folder), lease=lease)
        (self.folder / "shop.py").write_text(textwrap.dedent(code))
        command = [sys.executable, str(self.folder / "shop.py"), *args]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        return self.processes[-1]

    def who_began(self, name):
        """Ids of the processes that have begun the node."""
        return [int(path.name.split()[2]) for path in self.folder.glob(f"begun {name} *")]

    def wait_for(self, *names, by=None):
        wait_until(lambda: all(by.pid in self.who_began(name) if by else self.who_began(name) for name in names))

    def let_go_on(self, name):
        (self.folder / name).touch()

    def finish_one_alone(self):
        """Begin, let node `one` finish and be stored, and kill the process."""
        first = self.begin()
        self.wait_for("one", "two")
        self.let_go_on("one")
        wait_until(lambda: any(write[1] == "log" for write in self.saver.get_tuple(CONFIG).pending_writes))
        first.kill()
        first.wait()
        return first


CONFIG = {"configurable": {"thread_id": "t"}}


def wait_until(is_so, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    yield shop
    shop.saver.close()
    for process in shop.processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(60)
def test_of_two_processes_that_resume_a_thread_at_once_one_wins_and_the_other_is_told(shop):
    # given: a process was killed in the middle of a super-step
    first = shop.finish_one_alone()

    # when
    both = [shop.begin("on"), shop.begin("on")]
    wait_until(lambda: len(shop.who_began("two")) > 1 and any(process.poll() is not None for process in both))

    # then
    [winner] = [process for process in both if process.poll() is None]
    [other] = [process for process in both if process is not winner]
    assert f"ThreadBusyError Thread `t` is being run by process {winner.pid}" in other.communicate()[0]
    shop.let_go_on("two")
    assert winner.communicate(timeout=30)[0] == WHOLE
    assert shop.who_began("one") == [first.pid]
    assert sorted(shop.who_began("two")) == sorted([first.pid, winner.pid])


@pytest.mark.timeout(60)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
def test_a_process_that_wakes_up_after_its_lease_adds_nothing_to_the_graph(shop):
    # given: a process that stands still for longer than its lease, and another one that goes on
    first = shop.begin(lease=0.5)
    shop.wait_for("one", "two")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        time.sleep(0.7)
        second = shop.begin("on")
        shop.wait_for("one", "two", by=second)
        shop.let_go_on("one")
        wait_until(lambda: any(write[1] == "log" for write in shop.saver.get_tuple(CONFIG).pending_writes))
        before = shop.saver.get_tuple(CONFIG)
        shop.let_go_on("two")
        assert second.communicate(timeout=30)[0] == WHOLE
        after = list(shop.saver.list(CONFIG))
    finally:
        os.kill(first.pid, signal.SIGCONT)

    # when: it wakes up, and its nodes come to their ends
    told, _ = first.communicate(timeout=30)

    # then
    assert told.startswith("LeaseLostError"), told
    assert list(shop.saver.list(CONFIG)) == after
    assert before.config in [found.config for found in after]
