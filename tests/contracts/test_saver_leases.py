"""One run at a time records on a thread: who takes it, who is refused, and when it is free again."""

import time

import pytest

from flowfn.checkpoint.base import SaveCall, SaveRun, TakeLease
from flowfn.errors import FlowBusyError, LeaseLostError, ThreadBusyError, ThreadMovedError
from flowfn.owners import Owner
from tests.contracts.saving import NEXT, PLACE, RUN, call, run_row, start

FIRST, SECOND = PLACE._replace(fence=1), PLACE._replace(fence=2)


@pytest.fixture
def owner():
    """An owner of this process who is at work."""
    owner = Owner.me()
    with owner.present():
        yield str(owner)


def take(saver, place, owner, status="running", most=None):
    saver.save([TakeLease(place, "flow", owner, most), SaveRun(place, run_row(status=status))])


def test_a_thread_that_is_held_cannot_be_taken(saver, owner):
    take(saver, FIRST, owner)
    with pytest.raises(ThreadBusyError, match="this process, since") as raised:
        take(saver, SECOND, str(Owner.me()))
    assert raised.value.thread == "t"
    assert saver.threads()[0].status == "running"
    assert saver.thread("t").lease.owner == owner


def test_an_owner_of_this_process_that_has_ended_holds_nothing(saver):
    owner = Owner.me()
    with owner.present():
        take(saver, FIRST, str(owner))
    assert saver.threads()[0].status == "killed"
    take(saver, SECOND, str(Owner.me()))
    assert saver.thread("t").fence == 2


def test_a_process_that_is_gone_holds_nothing(saver):
    me = Owner.me()
    gone = Owner(me.machine, 2**22 + 1, 1, me.token)
    take(saver, FIRST, str(gone))
    assert [row.thread for row in saver.threads("killed")] == ["t"]
    assert saver.threads("running") == []
    take(saver, SECOND, str(Owner.me()))


def test_another_machine_is_believed_until_its_lease_lapses(saver, made):
    there = Owner("another-boot", 7, 1, "ab")
    made.lease_seconds = 0.2
    take(saver, FIRST, str(there))
    with pytest.raises(ThreadBusyError, match="process 7 on another machine"):
        take(saver, SECOND, str(Owner.me()))
    saver.renew("t", str(there))
    time.sleep(0.25)
    take(saver, SECOND, str(Owner.me()))


def test_a_lease_is_prolonged_by_its_owner_alone(saver, owner):
    take(saver, FIRST, owner)
    before = saver.thread("t").lease
    saver.renew("t", str(Owner.me()))
    assert saver.thread("t").lease == before
    saver.renew("t", owner)
    assert saver.thread("t").lease.until > before.until


@pytest.mark.parametrize("status", ["finished", "waiting", "failed", "paused"])
def test_a_run_that_stops_gives_its_thread_back(saver, owner, status):
    take(saver, FIRST, owner)
    saver.save([SaveRun(FIRST, run_row(status=status))])
    assert saver.thread("t").lease is None
    take(saver, SECOND, str(Owner.me()))


def test_who_read_the_thread_before_somebody_else_ran_it_has_to_read_again(saver, owner):
    take(saver, FIRST, owner, status="finished")
    with pytest.raises(ThreadMovedError):
        take(saver, FIRST, owner)
    assert saver.thread("t").fence == 1


def test_a_late_writer_is_refused(saver, made, owner):
    start(saver, run=RUN)
    take(saver, FIRST, str(Owner("another-boot", 7, 1, "ab")))
    saver.save([SaveCall(FIRST, RUN, call(1))])
    made.lease_seconds = -1
    saver.renew("t", str(Owner("another-boot", 7, 1, "ab")))
    take(saver, SECOND, owner)

    for late in (SaveCall(FIRST, RUN, call(2)), SaveRun(FIRST, run_row(status="finished"))):
        with pytest.raises(LeaseLostError):
            saver.save([late])

    saver.save([SaveCall(SECOND, RUN, call(2))])
    assert [row.seq for row in saver.calls(PLACE, RUN)] == [1, 2]
    assert saver.thread("t").lease.owner == owner


def test_a_deleted_thread_refuses_its_writer(saver, owner):
    start(saver, run=RUN)
    take(saver, FIRST, owner)
    saver.delete_thread("t")
    with pytest.raises(LeaseLostError):
        saver.save([SaveCall(FIRST, RUN, call(1))])


def test_an_edit_needs_the_thread_to_be_free_and_counts(saver, owner):
    take(saver, FIRST, owner)
    with pytest.raises(ThreadBusyError):
        saver.save([TakeLease(SECOND, "flow", None)])
    saver.save([SaveRun(FIRST, run_row(status="finished"))])
    saver.save([TakeLease(SECOND, "flow", None)])
    assert saver.thread("t").lease is None
    assert saver.thread("t").fence == 2


def test_a_flow_has_as_many_runs_as_it_may(saver, owner):
    other = PLACE._replace(thread="u", fence=1)
    take(saver, FIRST, owner, most=1)
    with pytest.raises(FlowBusyError, match=r"may have 1 run\(s\)"):
        take(saver, other, owner, most=1)
    assert saver.thread("u") is None
    take(saver, other, owner, most=2)


def test_what_was_refused_leaves_nothing(saver, owner):
    take(saver, FIRST, owner)
    before = saver.threads(), saver.runs("t")
    with pytest.raises(ThreadBusyError):
        saver.save([TakeLease(SECOND, "flow", owner), SaveRun(SECOND, run_row(id=NEXT))])
    assert (saver.threads(), saver.runs("t")) == before
