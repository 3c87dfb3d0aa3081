"""A `KeyboardInterrupt` at any moment reaches whoever runs the flow, and the thread goes on as if nothing had been."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from crashing import CONFIG, finished
from interrupting import InterruptedSaver, InterruptedWitness, Moments, interrupted_effects
from shapes import FLOWS

from flowfn import entrypoint, task
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver

ALARMS = Path(__file__).with_name("alarms.py")
ROOT = Path(__file__).parents[2]
PROMPT = 5.0
"""Seconds within which an interrupted call ends."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = InMemorySaver() if request.param == "memory" else SqliteSaver(tmp_path / "flows.db")
    yield store
    store.close()


class Trial:
    """One thread, taken on until it ends or is interrupted.

    Attributes:
        ran, saw, stored: labels of bodies begun, of results seen, and of those stored.
        result: None when it was interrupted.
    """

    def __init__(self, name, how, store, thread, where="nowhere", at=0):
        make, inputs = FLOWS[name]
        moments, never = Moments(at), Moments()
        saver = InterruptedSaver(store, moments if where == "saver" else never)
        see = InterruptedWitness(saver, moments if where == "code" else never)
        began, self.result, self.error = time.monotonic(), None, None
        with interrupted_effects(moments if where == "loop" else never):
            try:
                self.result = finished(make(see, how, saver), how, inputs, saver=saver, thread=thread)
            except KeyboardInterrupt as error:
                self.error = error
        self.seconds = time.monotonic() - began
        self.is_over = moments.passed < at
        self.moment, self.ran, self.saw, self.stored = moments.name, set(see.ran), set(see.saw), set(saver.stored)


@pytest.mark.parametrize(
    ("store", "where"),
    [("memory", "loop"), ("memory", "saver"), ("sqlite", "saver"), ("memory", "code")],
    indirect=["store"],
)
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", FLOWS)
def test_a_run_goes_on_from_wherever_it_was_interrupted(name, how, where, store):
    # given: what an undisturbed run comes to
    calm = Trial(name, how, store, "calm")

    for at in itertools.count(1):
        # when: it is interrupted there, and gone on with
        first = Trial(name, how, store, f"t{at}", where, at)
        if first.is_over:
            assert first.result == calm.result or name == "race"
            break
        second = Trial(name, how, store, f"t{at}")

        # then
        assert first.error is not None, f"interrupted {first.moment}: nobody was told"
        assert first.seconds < PROMPT, f"interrupted {first.moment}: it took {first.seconds} s to end"
        assert not second.ran & first.saw, f"interrupted {first.moment}: ran again although seen"
        assert not second.ran & first.stored, f"interrupted {first.moment}: ran again although stored"
        same = sorted if name == "race" else list
        assert same(second.result) == same(calm.result), f"interrupted {first.moment}"
    assert at > 1


def test_an_interrupt_ends_the_wait_for_a_result(store):
    # given: a task on a worker, for whose result the main thread waits when the signal comes
    ran = []

    @task(inline=False)
    def slow(x):
        ran.append(x)
        if len(ran) == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        return x

    @entrypoint(checkpointer=store)
    def flow(x):
        return slow(x).result() + slow(x + 1).result()

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        # when
        with pytest.raises(KeyboardInterrupt):
            flow.invoke(1, CONFIG)
    finally:
        signal.signal(signal.SIGALRM, before)

    # then
    assert flow.invoke(None, CONFIG) == 3
    assert ran in ([1, 2], [1, 1, 2])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("by", ["alarm", "ctrl-c"])
def test_flows_survive_interrupts_at_random_moments(by):
    # when: short flows are interrupted between any two instructions, and gone on with
    arguments = ["--rounds", "60", "--by", by]
    alarms = subprocess.run(
        [sys.executable, str(ALARMS), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    # then
    assert alarms.returncode == 0, alarms.stdout + alarms.stderr
    assert " 0 rounds wrong" in alarms.stdout
