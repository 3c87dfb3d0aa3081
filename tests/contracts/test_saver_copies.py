"""What every saver promises, blocking and awaited, of copied threads."""

import pytest

from flowfn.checkpoint.base import (
    Place,
    SaveCall,
    SaveRun,
    SaveWrites,
    TakeLease,
    question_id,
)
from flowfn.errors import AlreadyAnsweredError, ConfigError, ThreadExistsError, UnknownThreadError
from flowfn.owners import Owner
from tests.contracts.saving import (
    NEXT,
    RUN,
    THIRD,
    call,
    checkpoint,
    config,
    everything,
    populated,
    question,
    run_row,
    start,
)


def test_a_copy_reads_as_its_source(saver):
    populated(saver)
    before = everything(saver, "t")

    saver.copy_thread("t", "u")

    assert everything(saver, "u") == everything(saver, "t") == before
    assert len(before[0]) == 5
    assert {name for name, _ in saver.questions()} == {"t", "u"}


def test_what_happens_to_a_copy_leaves_its_source_and_the_other_way_round(saver):
    populated(saver)
    saver.copy_thread("t", "u")
    source = everything(saver, "t")
    there, waiting = Place("u"), question(NEXT, base=b"x" * 16, step=1).id

    saver.answer("u", {waiting: 1})
    saver.save([SaveCall(there, NEXT, call(3)), SaveCall(Place("u", "task:1"), THIRD, call(2))])
    saver.save([SaveWrites(there, RUN, "node", "", [])])
    start(saver, there, run="0009-z")
    assert everything(saver, "t") == source

    copy = everything(saver, "u")
    saver.answer("t", {waiting: 2})
    saver.delete_thread("t")
    assert everything(saver, "u") == copy
    assert saver.serde.loads(saver.question("u", waiting).answer) == 1


def test_questions_of_a_copy_keep_valid_ids_and_are_answered_once_in_each(saver):
    populated(saver)
    saver.copy_thread("t", "u")
    rows = [row for _, row in saver.questions("u")]
    assert [row.id for row in rows] == [question_id(row.run, row.base) for row in rows]
    saver.answer("u", {rows[0].id: 1})
    with pytest.raises(AlreadyAnsweredError):
        saver.answer("u", {rows[0].id: 2})
    saver.answer("t", {rows[0].id: 3})


def test_a_copy_needs_a_source_that_is_there_and_a_new_id(saver):
    populated(saver)
    start(saver, Place("taken"))
    saver.put(config(thread="put"), checkpoint(RUN, x=1), {}, {"x": 1})
    for target in ("taken", "put", "t"):
        before = everything(saver, target)
        with pytest.raises(ThreadExistsError, match=f"`{target}` is there already.*delete_thread") as exists:
            saver.copy_thread("t", target)
        assert (exists.value.source, exists.value.target) == ("t", target)
        assert everything(saver, target) == before
    with pytest.raises(UnknownThreadError, match="no thread `nobody`") as unknown:
        saver.copy_thread("nobody", "new")
    assert isinstance(unknown.value, ConfigError)
    assert isinstance(unknown.value, LookupError)
    assert list(saver.list(config(thread="new"))) == []


def test_a_copy_may_be_named_by_a_number_and_copied_again(saver):
    populated(saver)
    saver.copy_thread("t", 7)
    saver.copy_thread(7, "w")
    assert everything(saver, "w") == everything(saver, "t")
    saver.delete_thread("7")
    assert everything(saver, "w") == everything(saver, "t")


def test_nobody_holds_a_copy_of_a_thread_that_runs(saver):
    owner = Owner.me()
    with owner.present():
        saver.save([TakeLease(Place("t", fence=1), "flow", str(owner)), SaveRun(Place("t", fence=1), run_row())])
        saver.copy_thread("t", "u")
        assert saver.thread("t").lease.owner == str(owner)
        assert (saver.thread("u").fence, saver.thread("u").lease) == (0, None)
