"""What a person is told when a replay does not do what was recorded: changed calls and questions, unclaimed results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowfn.checkpoint.records import (
    CallRow,
    QuestionRow,
    RunRow,
)

if TYPE_CHECKING:
    from flowfn.pregel.calls import Call
    from flowfn.pregel.run import Run

logger = logging.getLogger("flowfn")


def tell(run: Run, call: Call) -> None:
    """Say so, before it starts, when a call is new where results of its task lie unclaimed."""
    rows = run.journal.unclaimed_like(call.key, call.caller, call.callee)
    if not rows:
        return
    call.is_changed = call.callee.effect is not None
    nearest = min(rows, key=lambda row: len(differing(call, row)))
    names = differing(call, nearest)
    fate = "A person is asked before it runs" if call.is_changed else "It runs"
    text = (
        f"Task `{call.name}` is called with ({call.arguments}), which is not on record; recorded and not asked for so "
        f"far: ({nearest.arguments}). {fate}. They differ in {', '.join(f'`{name}`' for name in names) or 'number'}. "
        f"If that value differs at every replay, take it from `record(…)`."
    )
    logger.warning(text, extra=context(run, call.name))
    if run.telling is not None:
        run.telling.changed(call, names, text)


def differing(call: Call, row: CallRow) -> list[str]:
    """Names of the parameters in which a call differs from a recorded one."""
    mine, theirs = _eights(call.digests), _eights(row.digests)
    names = call.callee.parameters if len(call.callee.parameters) == len(mine) else ("key",) * len(mine)
    return [name for i, name in enumerate(names) if i >= len(theirs) or mine[i] != theirs[i]]


def _eights(digests: bytes) -> list[bytes]:
    return [digests[i : i + 8] for i in range(0, len(digests), 8)]


def tell_question(run: Run, row: QuestionRow) -> None:
    """Say so when a new question stands where answers to earlier ones lie unused."""
    with run.crew.lock:
        unused = [known for known in run.journal.unused.values() if known.caller == row.caller]
    for earlier in unused:
        logger.warning(
            "Question %s (%s) is new; the answer to %s (%s) was given to what was shown then and is not used for it.",
            row.id,
            row.preview,
            earlier.id,
            earlier.preview,
            extra=context(run, None),
        )


def tell_unclaimed(run: Run) -> None:
    """At the end of a run: results on record that no call has asked for."""
    rows = run.journal.unclaimed() if run.has_records else []
    if rows:
        shown = "; ".join(f"{row.name}({row.arguments})" for row in rows[:5])
        logger.warning(
            "%d recorded result(s) were not asked for by this run and are kept: %s%s",
            len(rows),
            shown,
            " …" if len(rows) > 5 else "",
            extra=context(run, None),
        )


def context(run: Run, task: str | None) -> dict[str, str | None]:
    """What log records carry."""
    return {"flow_thread": run.thread, "flow_run": run.id, "flow_task": task}


def tell_abandoned(run: Run, old: RunRow, questions: Sequence[QuestionRow]) -> None:
    """A new input came while a run had not finished."""
    waiting = [row for row in questions if row.state == "open"]
    logger.warning(
        "A new input starts a new run on thread `%s`; the one before (%s, started with %s) is left%s.",
        run.thread,
        old.status,
        old.input,
        f" and its open questions are abandoned: {', '.join(row.preview for row in waiting)}" if waiting else "",
        extra=context(run, None),
    )


def tell_code(run: Run, name: str) -> None:
    """A run goes on under code that has changed."""
    logger.warning(
        "The code of `%s` has changed since thread `%s` last ran it; what is on record of it stands.",
        name,
        run.thread,
        extra=context(run, name),
    )
