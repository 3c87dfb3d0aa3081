"""Attempts: whether a call is tried again after a failure, and what ends an attempt that takes too long.

Between two attempts a call rests, and holds neither a worker nor a place; a timer makes it due again. All attempts of a
call share its calls: what had finished inside one answers in the next, except for the failures that ended it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowfn import timeouts
from flowfn.checkpoint.records import FORGOTTEN, RETRIED, ForgetCalls, Save, SaveCall
from flowfn.errors import TaskTimeoutError
from flowfn.executors import threads
from flowfn.pregel import changed, elsewhere, gates, outcomes
from flowfn.pregel.calls import DONE, FAILURE, RESTING, RUNNING, STOPPED, VALUE, Call
from flowfn.retry import next_wait
from flowfn.types import MISSING

if TYPE_CHECKING:
    from flowfn.pregel.frame import CallFrame

logger = logging.getLogger("flowfn")

GRACE = 1.0
"""How many seconds a coroutine that was cancelled for its time-out may take to end; then it is left behind."""


# ---------------------------------------------------------------- again


def is_tried_again(frame: CallFrame, error: Exception) -> bool:
    """Whether the call will have another attempt, which is arranged then; the failed one is on its way to the store."""
    call, run = frame.of, frame.run
    policies = call.callee.retry
    if not policies:
        return False
    wait = next_wait(policies, error, call.tried + 1, random=random.random(), now=time.time())
    if wait is None:
        return False
    call.tried += 1
    call.wait = wait if run.stage is None else 0.0
    logger.warning(
        "Attempt %d of task `%s` failed; it is tried again in %.3g s: %r",
        call.attempt,
        call.name,
        wait,
        error,
        extra=changed.context(run, call.name),
    )
    if run.telling is not None:
        run.telling.retried(call, error, wait)
    if frame.open_calls:
        call.awaited = [*call.awaited, *[other for other in run.crew.calls_of(frame) if other.is_ending]]
    forgotten = _forget_what_ended_it(frame)
    if run.saver is None:
        rest(call)
        return True
    call.outcome, call.error, call.rests = FAILURE, error, True
    outcomes.encode(call, run.serde)
    run.put_on_record(call, forgotten)
    return True


def failed_attempt(call: Call, save: SaveCall, more: Sequence[Save]) -> list[Save]:
    """The saves of an attempt that is to be followed by another one."""
    row = save.row._replace(flags=save.row.flags | RETRIED | FORGOTTEN)
    call.run.journal.retried.append(row.seq)
    return [*more, save._replace(row=row)]


def _forget_what_ended_it(frame: CallFrame) -> list[Save]:
    """Failures inside the attempt that are not history are tried again with it."""
    run = frame.run
    numbers = []
    for call in [*[failed for failed in frame.failed if not failed.acted], *frame.unseen]:
        run.shared.pop(call.key, None)
        run.journal.forget(call.key)
        run.failures = [other for other in run.failures if other is not call]
        if call.payload is not None:
            numbers.append(call.number)
    return [ForgetCalls(run.place, run.id, sorted(set(numbers)))] if numbers else []


def rest(call: Call) -> None:
    """Wait until the next attempt is due; a run that stops will come to it when it goes on."""
    run = call.run
    with run.crew.lock:
        if call.state == DONE:
            return
        call.outcome, call.error, call.payload, call.shown, call.number = VALUE, None, None, "", 0
        call.rests, stops = False, run.stop is not None
        call.state = RUNNING if stops else RESTING
        slot, call.slot = call.slot, ""
    if slot:
        gates.leave(call, slot)
    if stops:
        call.outcome, call.error = STOPPED, run.stop
        run.settle(call)
    else:
        threads.later(call.wait, lambda: _again(call))


def _again(call: Call) -> None:
    crew = call.run.crew
    while call.awaited:
        ending, *call.awaited = call.awaited
        if crew.tell_when_done(ending, lambda: _again(call)):
            return
    with crew.lock:
        if call.state != RESTING:
            return
        call.attempt += 1
    call.run.revive(call)


def adopted(call: Call, frame: CallFrame) -> Call:
    """A call that an earlier attempt has made, as one of this attempt."""
    with call.run.crew.lock:
        before, call.frame = call.frame, frame
        if call.state != DONE and before is not None and before is not frame:
            before.open_calls -= 1
            frame.open_calls += 1
    if call.state == DONE and call.outcome == VALUE and call.payload is not None:
        call.value = MISSING  # decoded anew: the earlier attempt may have changed what it was handed
    return call


# ---------------------------------------------------------------- no longer


def watch(frame: CallFrame) -> None:
    """See to it that the attempt ends in time; it has just begun."""
    policy = frame.of.callee.timeout
    assert policy is not None
    frame.began = frame.refreshed = time.monotonic()
    _wait_for(frame, timeouts.next_limit(policy, frame.began, frame.refreshed))


def _wait_for(frame: CallFrame, limit: timeouts.Limit) -> None:
    threads.later(max(0.0, limit.at - time.monotonic()), lambda: _look(frame))


def _look(frame: CallFrame) -> None:
    """The moment of a limit has come: it is met, or was put off by a sign of progress."""
    if frame.ended:
        return
    policy = frame.of.callee.timeout
    assert policy is not None
    limit = timeouts.next_limit(policy, frame.began, frame.refreshed)
    now = time.monotonic()
    if limit.at > now:
        _wait_for(frame, limit)
        return
    frame.too_late = TaskTimeoutError(
        frame.of.name,
        now - frame.began,
        kind=limit.kind,
        run_timeout=policy.run_timeout,
        idle_timeout=policy.idle_timeout,
    )
    handle = frame.of.handle
    if elsewhere.end(frame.of):
        return
    if handle is None:
        leave_behind(frame)
    else:
        handle.get_loop().call_soon_threadsafe(handle.cancel)
        threads.later(GRACE, lambda: leave_behind(frame))


def leave_behind(frame: CallFrame) -> None:
    """An attempt that does not end is over for the run: whatever it does from here on is refused."""
    crew = frame.run.crew
    with crew.lock:
        if frame.ended or frame.of.state != RUNNING:
            return
        frame.ended = frame.is_left_behind = True
        after = crew.give_up(frame)
    if after is not None:
        after()
    frame.of.awaited = frame.run.leave_behind(frame)
    assert frame.too_late is not None
    frame.run.fail(frame, frame.too_late)
