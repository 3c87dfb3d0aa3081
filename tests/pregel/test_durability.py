"""How far the store may lag behind a run: not at all, a little, or until the run stops."""

import asyncio
import threading

import pytest

from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint import InMemorySaver, SqliteSaver
from flowfn.checkpoint.base import SaveCall, TakeLease
from flowfn.errors import ConfigError, SaveFailedError, StoreError
from tests.durability.crashing import Forwarding

CONFIG = {"thread_id": "t"}


class SlowSaver(Forwarding):
    """Keeps results back until it is let go on."""

    def __init__(self, inner):
        super().__init__(inner)
        self.is_instant = False
        self.goes_on = threading.Event()
        self.commits = []

    def save(self, saves):
        if any(type(save) is SaveCall for save in saves):
            assert self.goes_on.wait(10)
        if type(saves[0]) is not TakeLease or len(saves) > 1:
            self.commits.append(list(saves))
        self.inner.save(saves)

    def save_now(self, saves):
        return False

    async def asave(self, saves):
        self.save(saves)


@pytest.fixture(params=["memory", "sqlite"])
def inner(request, tmp_path):
    saver = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield saver
    saver.close()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """`invoke` or `ainvoke`."""

    def call(flow, given, **options):
        if request.param == "sync":
            return flow.invoke(given, CONFIG, **options)
        return asyncio.run(flow.ainvoke(given, CONFIG, **options))

    return call


@task
def double(x):
    return 2 * x


def stored(flow):
    return [info.value for info in flow.thread("t").calls()]


def test_async_shows_a_result_that_is_not_stored_yet(inner, call):
    saver = SlowSaver(inner)
    seen = []

    @entrypoint(checkpointer=saver)
    def flow(x):
        seen.append(double(x).result())
        seen.append(stored(flow))
        saver.goes_on.set()
        return double(seen[0]).result()

    assert call(flow, 1, durability="async") == 4
    assert seen == [2, []]
    assert stored(flow) == ["2", "4"]


@pytest.mark.parametrize("ends", ["finishes", "asks", "fails"])
def test_exit_stores_everything_at_once_when_the_run_stops(inner, call, ends):
    saver = SlowSaver(inner)
    saver.goes_on.set()
    seen = []

    @entrypoint(checkpointer=saver)
    def flow(x):
        y = double(double(x)).result()
        seen.append((len(saver.commits), inner.runs("t")))
        if ends == "asks":
            return interrupt("go on?")
        if ends == "fails":
            raise LookupError("gone")
        return y

    if ends == "fails":
        with pytest.raises(LookupError):
            call(flow, 1, durability="exit")
    else:
        call(flow, 1, durability="exit")

    assert seen == [(0, [])]
    assert len(saver.commits) == 1
    assert stored(flow) == ["2", "4"]
    assert flow.thread("t").status() == {"finishes": "finished", "asks": "waiting", "fails": "failed"}[ends]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_question_is_stored_before_it_is_told_and_its_answer_goes_on(inner, call, durability):
    @entrypoint(checkpointer=inner)
    def flow(x):
        return [double(x).result(), interrupt("go on?"), double(x + 1).result()]

    assert "__interrupt__" in call(flow, 1, durability=durability)
    assert [row.preview for _, row in inner.questions()] == ["'go on?'"]
    assert call(flow, Command(resume="yes"), durability=durability) == [2, "yes", 4]
    assert stored(flow) == ["2", "4"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_the_history_is_the_same_whatever_the_durability(inner, call, durability):
    @entrypoint(checkpointer=inner)
    def flow(x):
        return double(double(x).result()).result()

    call(flow, 1, durability=durability)

    history = [snapshot.metadata["source"] for snapshot in flow.get_state_history(CONFIG)]
    assert history == ["loop", "call", "call", "input"]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_nested_flow_finds_what_the_store_does_not_have_yet(inner, call, durability):
    runs = []

    @entrypoint
    def small(x):
        runs.append(x)
        return double(x).result()

    @task
    def twice(x):
        return small.invoke(x)

    @entrypoint(checkpointer=inner)
    def flow(x):
        return [twice(x).result(), small.invoke(x), twice(x).result()]

    assert call(flow, 1, durability=durability) == [2, 2, 2]
    assert runs == [1, 1, 1]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_refused_save_stops_the_run_and_names_what_is_not_stored(inner, call, durability):
    class FullSaver(SlowSaver):
        def save(self, saves):
            if any(type(save) is SaveCall for save in saves) and not self.goes_on.is_set():
                raise StoreError("flows.db", "is full.")
            self.inner.save(saves)

    saver = FullSaver(inner)
    ran = []

    @task
    def first(x):
        ran.append("first")
        return x

    @task
    def second(x):
        ran.append("second")
        return x

    @entrypoint(checkpointer=saver)
    def flow(x):
        first(x).result()
        threading.Event().wait(0.1 if durability == "async" else 0)
        return second(x).result()

    with pytest.raises(SaveFailedError, match="is full") as raised:
        call(flow, 1, durability=durability)
    assert "results of `first`" in "".join(raised.value.__cause__.__notes__)
    saver.goes_on.set()
    assert call(flow, 1 if flow.thread("t").status() == "new" else None) == 1
    assert ran.count("first") == 2


def test_a_key_press_leaves_stored_what_had_finished(inner):
    @entrypoint(checkpointer=inner)
    def flow(x):
        double(x).result()
        if x == 1 and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return double(x).result()

    pressed = []
    with pytest.raises(KeyboardInterrupt):
        flow.invoke(1, CONFIG, durability="exit")
    assert stored(flow) == ["2"]
    assert flow.invoke(None, CONFIG) == 2


def test_a_thread_handle_has_a_durability(tmp_path):
    saver = SlowSaver(SqliteSaver(tmp_path / "flows.db"))
    saver.goes_on.set()

    @entrypoint(checkpointer=saver)
    def flow(x: int) -> int:
        return double(x).result()

    assert flow.thread("t", durability="exit").run(1) == 2
    assert len(saver.commits) == 1
    assert list(flow.thread("u", durability="exit").stream(1))[-1] == {"flow": 2}
    assert len(saver.commits) == 2


def test_an_unknown_durability_is_refused_before_anything_runs(inner):
    @entrypoint(checkpointer=inner)
    def flow(x):
        raise AssertionError

    with pytest.raises(ConfigError, match="'sync', 'async' or 'exit'"):
        flow.invoke(1, CONFIG, durability="eventually")
    assert flow.thread("t").status() == "new"
