"""Rates and limits of tasks: when an attempt may begin, over all threads and processes that share a store.

Whoever is next is decided in the store, in one transaction. A call that has to wait rests meanwhile, and holds neither
a worker nor a place: a timer makes it due when its turn has come, or asks again where too many attempts run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import FlowStop
from flowfn.executors import threads
from flowfn.owners import Owner
from flowfn.pregel import cached
from flowfn.pregel.calls import DUE, FAILURE, RESTING, RUNNING, STOPPED, Call
from flowfn.pregel.lagging import LaggingSaver

if TYPE_CHECKING:
    from flowfn.checkpoint.base import Saver
    from flowfn.pregel.run import Run

logger = logging.getLogger("flowfn")

LOOK_SECONDS = 0.05
"""How often those who wait look whether fewer attempts run elsewhere."""


class _Alone:
    """Decides for runs without a store: for this process alone."""

    def __init__(self) -> None:
        self.saver, self.owner = InMemorySaver(), Owner.me()
        self.owner.arrive()


_alone = _Alone()


def _in_child() -> None:
    global _alone, _lock
    _alone, _lock = _Alone(), threading.Lock()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class _Line:
    """The calls of one task with a limit that wait in this process; the one in front looks for a place for all.

    Attributes:
        calls: in the order in which they came.
        looks_later: whether nobody looks at this moment.
    """

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()
        self.looks_later = False


_lines: dict[tuple[int, str], _Line] = {}
"""Store and task → who waits."""
_lock = threading.Lock()


def ask(call: Call) -> Callable[[], object]:
    """The call is due as soon as its task's rate and limit allow. The lock is held; gives what is to be done then."""
    call.state = RESTING
    return lambda: threads.workers.submit(lambda: _ask(call))


def _ask(call: Call) -> None:
    if not _goes_on(call, lambda: call.callee.cache is None or not _is_answered(call)):
        return
    if call.callee.max_running is None:
        _goes_on(call, lambda: _admit(call))
        return
    key = _line_of(call)
    with _lock:
        line = _lines.setdefault(key, _Line())
        line.calls.append(call)
        is_first = len(line.calls) == 1
    if is_first:
        _serve(key)


def _serve(key: tuple[int, str]) -> None:
    """Let those in front begin, as many as may."""
    line = _lines[key]
    while True:
        call = line.calls[0]
        admits = _goes_on(call, lambda call=call: _admit(call))  # type: ignore[misc]
        with _lock:
            if admits is False:
                line.looks_later = True
                break
            line.calls.popleft()
            if not line.calls:
                del _lines[key]
                return
    threads.later(LOOK_SECONDS, lambda: threads.workers.submit(lambda: _look(key)))


def _look(key: tuple[int, str]) -> None:
    """Fewer attempts may be running by now."""
    with _lock:
        line = _lines.get(key)
        looks = line is not None and line.looks_later
        if line is not None:
            line.looks_later = False
    if looks:
        _serve(key)


def _line_of(call: Call) -> tuple[int, str]:
    return id(_saver(call.run)), call.callee.title


def _goes_on(call: Call, step: Callable[[], bool]) -> bool | None:
    """What a step says to a call that rests; None for one that does not, or that the step has ended."""
    if call.state != RESTING:
        return None
    try:
        return step()
    except Exception as error:  # the store cannot be used: that is the call's failure, as of its result
        _end(call, FAILURE, error)
    except FlowStop as stop:
        _end(call, STOPPED, stop)
    return None


def _admit(call: Call) -> bool:
    """Whether the call has its turn, now or at a moment that is known."""
    run, callee = call.run, call.callee
    slot = os.urandom(8).hex() if callee.max_running is not None else ""
    wait = _saver(run).admit(callee.title, slot, _owner(run), callee.rate, callee.max_running)
    if wait is None:
        return False
    if wait and run.stage is None:
        threads.later(wait, lambda: _begin(call, slot))
    else:
        _begin(call, slot)
    return True


def _begin(call: Call, slot: str) -> None:
    with call.run.crew.lock:
        begins = call.state == RESTING
        if begins:
            call.state, call.slot = DUE, slot
        then = call.run.crew.put(call) if begins else None
    if not begins and slot:
        leave(call, slot)
    elif then is not None:
        then()


def _is_answered(call: Call) -> bool:
    """Whether the call needs no turn: the cache has its value, or somebody else is about to have it."""
    if not _is_taken(call) or cached.has_its_value(call):
        return True
    call.run.lay_down(call)
    return False


def _is_taken(call: Call) -> bool:
    """Whether a call that rests is now nobody else's to end."""
    with call.run.crew.lock:
        is_taken = call.state == RESTING
        if is_taken:
            call.state = RUNNING
    return is_taken


def _end(call: Call, outcome: int, error: BaseException) -> None:
    if call.state == RUNNING or _is_taken(call):
        call.outcome, call.error = outcome, error
        call.run.settle(call)


def leave(call: Call, slot: str) -> None:
    """An attempt has ended, or will not begin: another one may."""
    title, saver, key = call.callee.title, _saver(call.run), _line_of(call)

    def job() -> None:
        try:
            saver.leave(title, slot)
        except Exception as error:
            logger.warning("That an attempt of `%s` has ended could not be noted: %s", title, error)
        _look(key)

    threads.workers.submit(job)


def _saver(run: Run) -> Saver:
    saver = run.saver
    return _alone.saver if saver is None else saver.store if isinstance(saver, LaggingSaver) else saver


def _owner(run: Run) -> str:
    while run.parent is not None:
        run = run.parent.run
    return run.owner or str(_alone.owner)
