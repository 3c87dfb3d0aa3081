"""One run at a time records on a thread: whether a thread is free, and how those who run one keep it.

A **lease** names the owner and lapses unless it is renewed; its **fence** counts the leases the thread has had. Whoever
takes a thread says which number is next as far as it knows, so that nobody goes on from what somebody else has changed
since; and a late writer is known by its old number. A dead owner on this machine is replaced at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowfn.checkpoint.records import Lease, TakeLease, ThreadRow
from flowfn.errors import FlowBusyError, ThreadBusyError, ThreadMovedError
from flowfn.owners import Owner
from flowfn.types import Status


def is_held(lease: Lease | None, now: float) -> bool:
    """Whether somebody runs the thread."""
    owner = None if lease is None else Owner.parsed(lease.owner)
    if lease is None or owner is None:
        return False
    if owner.is_here():
        return owner.is_present()
    return not owner.is_dead() and lease.until > now


def standing(row: ThreadRow, now: float) -> Status:
    """The thread's status: one that was running, and that nobody runs, was killed."""
    return "killed" if row.status == "running" and not is_held(row.lease, now) else row.status


def check_free(save: TakeLease, lease: Lease | None, last: int, now: float) -> None:
    """Raise why the thread cannot be taken, if so.

    Args:
        lease: the one that stands, if any.
        last: number of the thread's newest lease, 0 for none.
    Raises:
        ThreadBusyError: somebody runs it.
        ThreadMovedError: somebody has run it since it was loaded.
    """
    if lease is not None and is_held(lease, now):
        raise ThreadBusyError(save.place.thread, holder_of(lease), lease.since)
    if save.place.fence != last + 1:
        raise ThreadMovedError(save.place.thread)


def check_few(save: TakeLease, others: Sequence[Lease], now: float) -> None:
    """Raise when the flow has as many runs as it may.

    Args:
        others: the leases of the flow's other threads.
    Raises:
        FlowBusyError: there are so many.
    """
    held = [lease for lease in others if is_held(lease, now)]
    if save.most is not None and len(held) >= save.most:
        raise FlowBusyError(save.flow, save.most, holder_of(held[0]), held[0].since)


def holder_of(lease: Lease) -> str:
    """Who holds it, in words."""
    owner = Owner.parsed(lease.owner)
    if owner is None:
        return "somebody"
    if owner.is_here():
        return "this process"
    return f"process {owner.pid}{' on another machine' if owner.is_dead() is None else ''}"
