"""What every saver promises, blocking and awaited, of checkpoints and listings."""

import pytest

from flowfn.checkpoint.base import (
    FAILED,
    Place,
    SaveCall,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    call_checkpoint_id,
    split_call_checkpoint_id,
    task_id,
)
from flowfn.errors import (
    ConfigError,
)
from flowfn.types import Interrupt
from tests.contracts.saving import (
    NEXT,
    PLACE,
    RUN,
    call,
    checkpoint,
    config,
    ids,
    question,
    run_row,
    save_checkpoint,
    start,
)

# ---------------------------------------------------------------- listings


def test_threads_are_listed_by_status_and_flow_newest_first(saver):
    for thread, flow, status in (("a", "f", "running"), ("b", "g", "failed"), ("c", "f", "failed")):
        saver.save([SaveRun(Place(thread), run_row(flow=flow, status=status))])
    assert [row.thread for row in saver.threads()] == ["c", "b", "a"]
    assert [row.thread for row in saver.threads("failed")] == ["c", "b"]
    assert [row.thread for row in saver.threads(flow="f")] == ["c", "a"]
    assert [row.thread for row in saver.threads("failed", flow="f")] == ["c"]
    assert [row.thread for row in saver.threads(limit=1)] == ["c"]
    saver.save([SaveRun(Place("a"), run_row(status="finished"))])
    assert [row.thread for row in saver.threads()] == ["a", "c", "b"]


def test_a_deleted_thread_is_gone_and_the_others_stay(saver):
    for thread in ("t", "u"):
        start(saver, Place(thread))
        start(saver, Place(thread, "task:1"), run=NEXT)
        saver.save([SaveCall(Place(thread), RUN, call(1)), SaveQuestion(Place(thread), question())])
        saver.save([SaveWrites(Place(thread), RUN, "task", "", [("x", saver.serde.dumps(1))])])
    kept = list(saver.list(config(thread="u")))

    saver.delete_thread("t")

    assert saver.load(PLACE) == (None, None, None, (), ())
    assert saver.load(Place("t", "task:1")).run is None
    assert saver.calls(PLACE, RUN) == []
    assert saver.question("t", question().id) is None
    assert list(saver.list(config())) == []
    assert [row.thread for row in saver.threads()] == ["u"]
    assert [thread for thread, _ in saver.questions()] == ["u"]
    assert list(saver.list(config(thread="u"))) == kept != []
    start(saver)
    assert list(saver.load(PLACE).calls) == []
    assert saver.load(PLACE).checkpoint.pending_writes == []


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_stores_only_what_changed_and_shows_everything(saver):
    start(saver, value=1)
    saver.save(
        [save_checkpoint(saver, "0000-b", parent=RUN, source="loop", step=0, versions={"__start__": 1, "x": 2}, x="a")]
    )
    saver.save(
        [save_checkpoint(saver, "0000-c", parent="0000-b", source="loop", step=1, versions={"__start__": 3, "x": 2})]
    )

    newest, middle, first = saver.list(config())

    assert newest.checkpoint["channel_values"] == {"x": "a"}
    assert middle.checkpoint["channel_values"] == {"__start__": 1, "x": "a"}
    assert first.checkpoint["channel_values"] == {"__start__": 1}
    assert newest.parent_config == middle.config
    assert saver.load(PLACE).checkpoint == newest
    assert saver.load(PLACE).run.id == RUN


def test_branches_that_count_to_the_same_version_keep_their_own_values(saver):
    start(saver, value=1)
    saver.save([save_checkpoint(saver, "0000-b", parent=RUN, versions={"x": 2}, x="old")])
    saver.save([save_checkpoint(saver, "0000-c", parent=RUN, versions={"x": 2}, x="fork")])
    saver.save([save_checkpoint(saver, "0000-d", parent="0000-b", versions={"x": 2, "y": 3}, y=1)])
    saver.save([save_checkpoint(saver, "0000-e", parent="0000-c.00000002", versions={"x": 2, "y": 3}, y=2)])
    values = {found.checkpoint["id"]: found.checkpoint["channel_values"] for found in saver.list(config())}
    assert values["0000-d"] == {"x": "old", "y": 1}
    assert values["0000-e"] == {"x": "fork", "y": 2}
    assert values["0000-b"] == {"x": "old"}


def test_put_gives_the_config_that_addresses_it(saver):
    first = saver.put(config(), checkpoint(RUN, x=1), {"source": "input", "step": -1}, {"x": 1})
    second = saver.put(first, checkpoint(NEXT, {"x": 1, "y": 2}, x=5, y=2), {"source": "loop", "step": 0}, {"y": 2})
    assert second == config(NEXT, ns="")
    found = saver.get_tuple(second)
    assert found.parent_config == first
    assert found.checkpoint["channel_values"] == {"x": 1, "y": 2}
    assert found.metadata == {"source": "loop", "step": 0}
    assert saver.get(second)["id"] == NEXT


def test_put_writes_keep_the_first_but_special_ones_the_newest(saver):
    at = saver.put(config(), checkpoint(RUN, x=1), {}, {"x": 1})
    saver.put_writes(at, [("x", 1), ("y", 2)], "task", "path")
    saver.put_writes(at, [("x", 3), ("__error__", "first")], "task")
    saver.put_writes(at, [("__error__", "second")], "task")
    assert saver.get_tuple(at).pending_writes == [("task", "__error__", "second"), ("task", "x", 1), ("task", "y", 2)]


def test_a_config_without_a_thread_says_what_to_pass(saver):
    with pytest.raises(ConfigError, match="thread_id"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(ConfigError, match="checkpoint"):
        saver.put_writes(config(), [("x", 1)], "task")


def test_listings_can_be_filtered_cut_and_limited(saver):
    start(saver)
    for number in range(1, 100):
        saver.save([save_checkpoint(saver, f"0000-b{number:03}", source="loop", step=number, x=number)])
    start(saver, Place("t", "task:1"), run=NEXT)
    start(saver, Place("u"), run=NEXT)

    everything = ids(saver.list(config()))
    assert everything == sorted(everything, reverse=True)
    assert len(everything) == 101
    assert ids(saver.list(config(ns="task:1"))) == [NEXT]
    assert len(list(saver.list(config(ns="")))) == 100
    assert len(list(saver.list(None))) == 102
    assert ids(saver.list(None, limit=3)) == [NEXT, NEXT, "0000-b099"]
    assert ids(saver.list(config(), filter={"step": 7, "source": "loop"})) == ["0000-b007"]
    assert ids(saver.list(config(ns=""), before=config("0000-b002"))) == ["0000-b001", RUN]
    assert ids(saver.list(config("0000-b005", ns=""))) == ["0000-b005"]
    assert list(saver.list(config(), filter={"step": 7, "other": 1})) == []
    assert list(saver.list(config(), limit=0)) == []


# ---------------------------------------------------------------- super-steps inside a function


def run_with_steps(saver):
    """Super-steps 0 and 1 have committed, 2 and 3 have not; a question in 1 has its answer, one in 2 is open."""
    start(saver, value=5)
    answered, waiting = question(step=1), question(base=b"c" * 16, step=2, schema={"type": "boolean"}, value="sure?")
    saver.save([SaveCall(PLACE, RUN, call(1)), SaveCall(PLACE, RUN, call(2, caller=b"k" * 16))])
    saver.save([SaveQuestion(PLACE, answered)])
    saver.answer("t", {answered.id: "yes"})
    saver.save([SaveCall(PLACE, RUN, call(3, step=1, committed=1, flags=FAILED, value="sorry"))])
    saver.save([SaveCall(PLACE, RUN, call(4, step=3, committed=2)), SaveQuestion(PLACE, waiting)])
    return answered, waiting


def test_committed_super_steps_are_listed_between_the_checkpoints(saver):
    answered, _ = run_with_steps(saver)
    last = call_checkpoint_id(RUN, 1)
    saver.save(
        [save_checkpoint(saver, "0000-z", parent=last, source="loop", step=0, versions={"__end__": 2}, __end__=9)]
    )
    start(saver, run=NEXT, value=6)

    found = list(saver.list(config()))

    assert ids(found) == [NEXT, "0000-z", last, call_checkpoint_id(RUN, 0), RUN]
    newest, step1, step0, first = found[1:]
    assert newest.parent_config == step1.config
    assert step1.parent_config == step0.config
    assert step0.parent_config == first.config
    assert step0.metadata == {
        "source": "call",
        "step": 0,
        "parents": {},
        "run": RUN,
        "call_step": 0,
        "calls": [task_id(RUN, call(1).key), task_id(RUN, call(2).key)],
    }
    assert step1.metadata["calls"] == [task_id(RUN, call(3).key), answered.id]
    assert step0.checkpoint == {**first.checkpoint, "id": step0.checkpoint["id"], "ts": "1970-01-01T00:00:04+00:00"}
    assert step0.checkpoint["channel_values"] == {"__start__": 5}


def test_pending_writes_are_what_the_next_calls_left(saver):
    _, waiting = run_with_steps(saver)
    task = {seq: task_id(RUN, call(seq).key) for seq in range(1, 5)}
    flow = task_id(RUN, b"")
    step0 = [(task[1], "__return__", 10), (task[2], "__return__", 20)]
    step1 = [(task[3], "__error__", "sorry"), (flow, "__resume__", ["yes"])]
    asked = Interrupt("sure?", waiting.id, response_schema={"type": "boolean"})
    later = [(task[4], "__return__", 40), (flow, "__interrupt__", [asked])]

    assert saver.get_tuple(config(call_checkpoint_id(RUN, 0))).pending_writes == step1
    assert saver.get_tuple(config(call_checkpoint_id(RUN, 1))).pending_writes == later
    assert sorted(saver.get_tuple(config(RUN)).pending_writes, key=repr) == sorted(step0 + step1 + later, key=repr)


def test_the_newest_checkpoint_may_be_inside_a_function(saver):
    run_with_steps(saver)
    assert saver.get_tuple(config()).checkpoint["id"] == call_checkpoint_id(RUN, 1)
    assert saver.load(PLACE).checkpoint.checkpoint["id"] == RUN
    saver.save([SaveRun(PLACE, run_row(committed=4))])
    assert saver.get_tuple(config()).checkpoint["id"] == call_checkpoint_id(RUN, 3)


def test_a_super_step_that_has_not_committed_has_no_checkpoint(saver):
    run_with_steps(saver)
    assert saver.get_tuple(config(call_checkpoint_id(RUN, 2))) is None
    assert saver.get_tuple(config(call_checkpoint_id(NEXT, 0))) is None
    assert saver.get_tuple(config(f"{RUN}.1")) is None


def test_listings_find_super_steps_inside_a_function(saver):
    run_with_steps(saver)
    zero, one = (call_checkpoint_id(RUN, step) for step in (0, 1))
    assert ids(saver.list(config(), filter={"source": "call"})) == [one, zero]
    assert ids(saver.list(config(), before=config(one))) == [zero, RUN]
    assert ids(saver.list(config(), before=config(RUN))) == []
    assert ids(saver.list(config(zero))) == [zero]
    assert ids(saver.list(None, limit=1)) == [one]


def test_ids_of_super_steps_sort_behind_their_run_and_before_what_follows():
    assert RUN < call_checkpoint_id(RUN, 2) < call_checkpoint_id(RUN, 10) < NEXT
    assert split_call_checkpoint_id(call_checkpoint_id(RUN, 10)) == (RUN, 10)
    assert split_call_checkpoint_id(RUN) is None
