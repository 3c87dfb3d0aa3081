"""A call's outcome as it is stored: encoded once, seen by everybody as it comes back, and made into a row."""

from __future__ import annotations

from flowfn.checkpoint.records import FAILED, UNCLEAR, CallRow
from flowfn.errors import UnreadableError, UnstorableError, UnstorableResultError
from flowfn.pregel.calls import FAILURE, VALUE, Call
from flowfn.pregel.journal import Journal
from flowfn.serde.base import Serializer
from flowfn.serde.typed import ATOMS

RESULT = "The result of a task"


def encode(call: Call, serde: Serializer) -> None:
    """Encode a call's value or failure; from here on it is what will be read back.

    A value that cannot be stored becomes a failure.
    """
    try:
        if call.outcome == VALUE:
            value = call.value
            if call.payload is None:
                call.payload = serde.dumps(value, RESULT, call.cell)
            if type(value) not in ATOMS:
                call.value = serde.loads(call.payload, call.cell, call.title)
            call.shown = serde.preview(value)
            return
        failed = call.error
        assert failed is not None
        call.payload = serde.dumps(failed, RESULT, call.cell)
        call.error = serde.loads(call.payload, call.cell, call.title).with_traceback(failed.__traceback__)
    except UnstorableError:
        call.error = _refusal(call, serde)
        call.payload = serde.dumps(call.error, RESULT, call.cell)
    except UnreadableError as error:
        call.outcome, call.error = FAILURE, error
        call.payload = serde.dumps(error, RESULT, call.cell)
    call.shown = serde.preview(call.error)


def _refusal(call: Call, serde: Serializer) -> BaseException:
    """The error of a call whose outcome cannot be stored, which becomes its outcome."""
    refused = call.outcome == FAILURE
    what = f"What task `{call.name}` raised" if refused else f"The result of task `{call.name}`"
    outcome, call.outcome = (call.error if refused else call.value), FAILURE
    try:
        serde.dumps(outcome, what)
    except UnstorableError as error:
        return UnstorableResultError(what, error)
    raise AssertionError("an outcome was refused, and then was not")


def row(call: Call, journal: Journal) -> CallRow:
    """The row of a call that has its outcome, with the next number of its run. The run's lock is held."""
    call.number = journal.next_number()
    return CallRow(
        call.number,
        call.key,
        call.caller,
        call.callee.title,
        call.step,
        call.attempt,
        call.started,
        call.ended,
        call.flags | (FAILED | UNCLEAR * call.is_unclear if call.outcome == FAILURE else 0),
        journal.steps.committed,
        call.digests,
        call.arguments,
        call.shown,
        call.payload or b"",
        b"".join([needed.key for needed in call.needs]) if call.needs else b"",
    )
