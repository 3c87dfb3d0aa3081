"""While very much is read nothing looks for garbage, and afterwards everything is as before."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from flowfn.errors import UnreadableError
from flowfn.serde import Serializer, pause, register
from flowfn.serde.pause import without_collecting

SERDE = Serializer()


class Seen:
    """Notes, when it is read, whether the collector is on."""

    states: list[bool] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.states.append(gc.isenabled())

    def __reduce__(self) -> Any:
        return Seen, ()


class Registered(Seen):
    pass


register(Registered, "test-pause", lambda _: None, lambda _: Registered())


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    Seen.states.clear()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", [Seen, Registered], ids=["pickle", "plain data"])
@pytest.mark.parametrize(("size", "on"), [(10, True), (100_000, False)], ids=["small", "large"])
def test_the_collector_rests_while_a_large_value_is_read(kind: type[Seen], size: int, on: bool) -> None:
    blob = SERDE.dumps([kind(), "x" * size])
    Seen.states.clear()

    SERDE.loads(blob)

    assert Seen.states == [on]
    assert gc.isenabled()


def test_the_collector_is_on_again_when_reading_fails() -> None:
    with pytest.raises(UnreadableError):
        SERDE.loads(SERDE.dumps(["x" * 100_000])[:-1])

    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()

    SERDE.loads(SERDE.dumps(["x" * 100_000]))

    assert not gc.isenabled()


def test_of_two_who_read_at_once_the_last_leaves_it_on() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def read() -> None:
        inside.set()
        go_on.wait(10)

    worker = threading.Thread(target=without_collecting, args=(read,))
    worker.start()
    inside.wait(10)
    without_collecting(lambda: None)
    go_on.set()
    worker.join()

    assert gc.isenabled()
    assert not pause._pausing


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_was_forked_meanwhile_collects() -> None:
    def fork() -> int:
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        return os.waitpid(child, 0)[1]

    assert without_collecting(fork) == 0
