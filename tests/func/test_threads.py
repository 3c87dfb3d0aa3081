"""A thread of a flow: what `run`, `invoke` and the rest do in each of its states, and where it is kept."""

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest

from flowfn import Command, FlowWaiting, entrypoint, interrupt, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import EmptyInputError, InputChangedError, NothingToResumeError

CONFIG = {"thread_id": "t"}


class World:
    def __init__(self):
        self.ran, self.mode = [], "finish"


@pytest.fixture
def world():
    return World()


@pytest.fixture
def flow(world):
    """A flow whose runs finish, wait or fail, as the world says."""

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x, previous):
        world.ran.append(x)
        if world.mode == "wait":
            return [x, interrupt("sure?"), previous]
        if world.mode == "fail":
            raise ValueError(x)
        return [x, previous]

    return flow


def bring_to(state, flow, world, x=1):
    """Bring the thread into that state by a run with input `x`."""
    if state == "new":
        return
    world.mode = {"finished": "finish", "waiting": "wait", "failed": "fail"}[state]
    try:
        flow.invoke(x, CONFIG)
    except ValueError:
        pass
    world.mode = "finish"
    world.ran.clear()


@pytest.fixture(params=["blocking", "awaited"])
def do(request):
    """Call a verb of the thread, or its awaited twin."""

    def do(owner, verb, *args, **kwargs):
        if request.param == "blocking":
            return getattr(owner, verb)(*args, **kwargs)

        async def twin():
            return await getattr(owner, f"a{verb}")(*args, **kwargs)

        return asyncio.run(twin())

    return do


@pytest.mark.parametrize(
    ("state", "same", "other"),
    [
        ("new", [1, None], [2, None]),
        ("finished", "stored", [2, [1, None]]),
        ("waiting", "goes on", InputChangedError),
        ("failed", "goes on", InputChangedError),
    ],
)
@pytest.mark.parametrize("given", [1, 2])
def test_what_run_does_in_each_state(state, same, other, given, flow, world, do):
    # given
    bring_to(state, flow, world)
    expected = same if given == 1 else other

    # when, then
    if expected is InputChangedError:
        with pytest.raises(InputChangedError) as caught:
            do(flow.thread("t"), "run", given)
        assert "1" in str(caught.value)
        assert "2" in str(caught.value)
        assert world.ran == []
        return
    result = do(flow.thread("t"), "run", given)
    if expected == "stored":
        assert (result, world.ran) == ([1, None], [])
    elif expected == "goes on":
        assert (result, world.ran) == ([1, None], [1])
    else:
        assert (result, world.ran) == (expected, [given])


@pytest.mark.parametrize(
    ("state", "given", "expected"),
    [
        ("new", 2, [2, None]),
        ("new", None, EmptyInputError),
        ("new", Command(resume=1), NothingToResumeError),
        ("finished", 2, [2, [1, None]]),
        ("finished", None, [1, None]),
        ("finished", Command(resume=1), NothingToResumeError),
        ("waiting", 2, [2, None]),
        ("waiting", None, [1, None]),
        ("waiting", Command(resume=1), [1, None]),
        ("failed", 2, [2, None]),
        ("failed", None, [1, None]),
        ("failed", Command(resume=1), NothingToResumeError),
    ],
)
def test_what_invoke_does_in_each_state(state, given, expected, flow, world, do):
    bring_to(state, flow, world)
    if isinstance(expected, type):
        with pytest.raises(expected):
            do(flow, "invoke", given, CONFIG)
    else:
        assert do(flow, "invoke", given, CONFIG) == expected


def test_a_waiting_thread_asks_the_same_again_and_goes_on_with_an_answer(flow, world, do):
    bring_to("waiting", flow, world)
    world.mode = "wait"
    first = flow.thread("t").questions()
    again = do(flow, "invoke", None, CONFIG)["__interrupt__"]
    assert [q.id for q in again] == [q.id for q in first]
    assert do(flow, "invoke", Command(resume="yes"), CONFIG) == [1, "yes", None]


def test_run_on_a_waiting_thread_raises_what_waits_and_says_how_to_answer(flow, world, do):
    world.mode = "wait"
    thread = flow.thread("t", ask=False)
    with pytest.raises(FlowWaiting) as caught:
        do(thread, "run", 1)
    assert [q.value for q in caught.value.questions] == ["sure?"]
    assert "answer(" in str(caught.value)
    do(thread, "answer", "yes")
    assert do(thread, "status") == "waiting"
    assert do(thread, "run", 1) == [1, "yes", None]
    assert do(thread, "status") == "finished"


@pytest.mark.parametrize("state", ["new", "finished", "waiting", "failed"])
def test_the_status_of_a_thread_is_its_state(state, flow, world, do):
    bring_to(state, flow, world)
    assert do(flow.thread("t"), "status") == state


@pytest.mark.parametrize("state", ["new", "finished", "waiting", "failed"])
def test_start_always_starts_a_new_run(state, flow, world):
    bring_to(state, flow, world)
    assert flow.thread("t").start(1).result(5)[0] == 1
    assert world.ran == [1]


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_resume_goes_on_or_gives_what_is_stored(state, flow, world, do):
    bring_to(state, flow, world)
    assert do(flow.thread("t"), "resume") == [1, None]
    assert world.ran == ([] if state == "finished" else [1])


def test_resume_of_a_new_thread_is_an_error(flow, do):
    with pytest.raises(EmptyInputError):
        do(flow.thread("t"), "resume")


def test_the_result_of_an_equal_input_is_logged_as_stored(flow, world, caplog):
    caplog.set_level("INFO")
    flow.thread("t").run(1)
    flow.thread("t").run(1)
    assert any("stored result" in r.getMessage() for r in caplog.records)


def test_update_state_sets_what_the_next_run_sees(flow, do):
    flow.update_state(CONFIG, "edited")
    assert do(flow, "invoke", 1, CONFIG) == [1, "edited"]


def test_run_without_a_thread_goes_on_with_equal_arguments_and_else_starts_anew(flow, world, do):
    # given
    world.mode = "fail"
    with pytest.raises(ValueError):
        do(flow, "run", 1)
    world.mode = "finish"

    # when, then
    assert do(flow, "run", 2) == [2, None]
    assert do(flow, "run", 1) == [1, None]
    assert world.ran == [1, 2, 1]


@pytest.mark.parametrize("verb", ["run", "arun"])
def test_run_without_a_thread_starts_anew_after_a_finished_run_and_sees_no_previous(verb, flow, world):
    # given
    flow.run(1)

    # when
    result = flow.run(1) if verb == "run" else asyncio.run(flow.arun(1))

    # then
    assert result == [1, None]
    assert world.ran == [1, 1]


# ---------------------------------------------------------------- where threads are kept

SCRIPT = """
    import sys
    from flowfn import entrypoint, task

    @task
    def work(x):
        print("ran", x)
        return x

    @entrypoint
    def flow(x):
        value = work(x).result()
        if "fail" in sys.argv:
            raise SystemExit(3)
        return value

    if __name__ == "__main__":
        print("got", flow.run(5))
"""


def scripted(tmp_path, *argv, cwd=None, **env):
    folder = tmp_path / "project" / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.py").write_text(textwrap.dedent(SCRIPT))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLOWFN_")}
    return subprocess.run(
        [sys.executable, str(folder / "job.py"), *argv],
        cwd=cwd or tmp_path,
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=20,
    )


@pytest.mark.parametrize("place", ["beside the file", "pyproject", "FLOWFN_DB", "FLOWFN_DB over pyproject"])
@pytest.mark.timeout(20)
def test_a_script_goes_on_from_wherever_it_is_called_and_keeps_its_runs_in_one_place(place, tmp_path):
    # given
    folder = tmp_path / "project" / "jobs"
    folder.mkdir(parents=True)
    env = {}
    if "pyproject" in place:
        (tmp_path / "project" / "pyproject.toml").write_text('[tool.flowfn]\ndb = "kept/here.db"\n')
    if "FLOWFN_DB" in place:
        env["FLOWFN_DB"] = f"sqlite:///{tmp_path / 'named.db'}"

    # when
    begun = scripted(tmp_path, "fail", **env)
    gone_on = scripted(tmp_path, cwd=folder, **env)

    # then
    assert begun.returncode == 3, begun.stderr
    assert begun.stdout == "ran 5\n"
    assert gone_on.stdout == "got 5\n", gone_on.stderr
    expected = {
        "beside the file": folder / ".flowfn" / "flows.db",
        "pyproject": tmp_path / "project" / "kept" / "here.db",
    }.get(place, tmp_path / "named.db")
    assert list(tmp_path.rglob("*.db")) == [expected]
    assert str(expected) in begun.stderr


@pytest.mark.timeout(20)
def test_an_explicit_checkpointer_wins_over_every_place(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWFN_DB", str(tmp_path / "named.db"))

    @entrypoint(checkpointer=InMemorySaver())
    def flow(x):
        return x

    assert flow.run(1) == 1
    assert not (tmp_path / "named.db").exists()


def test_invoke_alone_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWFN_DB", str(tmp_path / "named.db"))

    @task
    def work(x):
        return x

    @entrypoint
    def flow(x):
        return work(x).result()

    assert flow.invoke(1) == 1
    assert not (tmp_path / "named.db").exists()
    assert flow.run(1) == 1
    assert (tmp_path / "named.db").exists()
