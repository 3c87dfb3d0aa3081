"""What every saver promises, blocking and awaited, of threads pruned and rid of runs."""

import pytest

from flowfn.checkpoint.base import (
    CopyRun,
    Place,
    SaveCall,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    call_checkpoint_id,
)
from flowfn.errors import ConfigError
from tests.contracts.saving import (
    INNER,
    NEXT,
    PLACE,
    RUN,
    THIRD,
    call,
    checkpoint,
    config,
    everything,
    finished_run,
    ids,
    metadata,
    nested,
    populated,
    question,
    run_row,
    save_checkpoint,
    start,
)

# ---------------------------------------------------------------- delete_for_runs


def test_a_forgotten_run_takes_all_that_belongs_to_it(saver):
    populated(saver)
    inner_of_first = Place("t", "task:0")
    nested(saver, inner_of_first, "0000-n", RUN, "finished")
    deeper = Place("t", "task:0|task:1")
    row = save_checkpoint(saver, "0000-o", place=deeper, run="0000-o", __start__=1)
    saver.save([row._replace(metadata={**row.metadata, "parents": {"": RUN, "task:0": "0000-n"}})])
    saver.save([SaveRun(deeper, run_row("0000-o", status="waiting"))])

    saver.delete_for_runs([RUN, "nobody"])

    assert ids(saver.list(config())) == [THIRD, NEXT]
    assert [row.id for row in saver.runs("t")] == ["0003-d", NEXT]
    assert saver.calls(PLACE, RUN) == []
    assert saver.question("t", question(RUN).id) is None
    assert saver.runs("t", "task:0") == saver.runs("t", "task:0|task:1") == []
    assert len(saver.calls(PLACE, NEXT)) == 2
    assert len(saver.questions("t")) == 2
    assert saver.threads()[0].run == "0003-d"


def test_what_came_after_a_forgotten_run_reads_as_before(saver):
    finished_run(saver, RUN, "one")
    finished_run(saver, NEXT, "two", parent=RUN + "-z", versions=(3, 4), previous=2)
    before = {each.checkpoint["id"]: each.checkpoint for each in saver.list(config())}
    assert before[NEXT]["channel_values"] == {"in": "two", "previous": "one"}

    saver.delete_for_runs([RUN])

    after = list(saver.list(config()))
    assert ids(after) == [NEXT + "-z", call_checkpoint_id(NEXT, 0), NEXT]
    assert {each.checkpoint["id"]: each.checkpoint for each in after} == {id: before[id] for id in ids(after)}
    assert after[-1].parent_config is None
    assert after[0].parent_config == after[1].config


def test_branches_keep_their_own_values_when_their_stem_goes(saver):
    saver.save([save_checkpoint(saver, "a0", run="a", versions={"x": 1}, x="stem")])
    saver.save([save_checkpoint(saver, "b0", run="b", parent="a0", versions={"x": 1, "y": 2}, y="left")])
    saver.save([save_checkpoint(saver, "c0", run="c", parent="a0", versions={"x": 1, "y": 2}, y="right")])
    saver.save([save_checkpoint(saver, "d0", run="d", parent="b0", versions={"x": 1, "y": 2, "z": 3}, z=1)])
    saver.save([save_checkpoint(saver, "e0", run="e", parent="c0", versions={"x": 1, "y": 2, "z": 3}, z=2)])
    saver.save([save_checkpoint(saver, "f0", run="e", parent="e0", versions={"x": 4, "y": 2, "z": 3}, x="new")])
    expected = {each.checkpoint["id"]: each.checkpoint["channel_values"] for each in saver.list(config())}

    saver.delete_for_runs(["a", "b", "c"])
    values = {each.checkpoint["id"]: each.checkpoint["channel_values"] for each in saver.list(config())}
    assert values == {id: expected[id] for id in ("d0", "e0", "f0")}
    assert values["d0"] == {"x": "stem", "y": "left", "z": 1}
    assert values["f0"] == {"x": "new", "y": "right", "z": 2}
    assert saver.get_tuple(config("f0")).parent_config == config("e0", ns="")

    # The values have moved, so that new branches that count to the same version do not disturb them.
    saver.save([save_checkpoint(saver, "g0", run="g", parent="d0", versions={"x": 4, "y": 2, "z": 3}, x="other")])
    assert saver.get_tuple(config("f0")).checkpoint["channel_values"] == values["f0"]
    assert saver.get_tuple(config("g0")).checkpoint["channel_values"] == {"x": "other", "y": "left", "z": 1}


def test_a_fork_outlives_the_run_it_was_made_from(saver):
    finished_run(saver, RUN, "one")
    saver.save([SaveRun(PLACE, run_row(NEXT, committed=1))])
    saver.save(
        [
            save_checkpoint(
                saver, NEXT, parent=call_checkpoint_id(RUN, 0), source="fork", run=NEXT, versions={"in": 1}
            ),
            CopyRun(PLACE, RUN, NEXT, 0),
        ]
    )
    before = saver.load(PLACE)
    saver.delete_for_runs([RUN])
    after = saver.load(PLACE)
    assert (after.calls, after.questions, after.run) == (before.calls, before.questions, before.run)
    assert after.checkpoint.checkpoint == before.checkpoint.checkpoint
    assert after.checkpoint.checkpoint["channel_values"] == {"in": "one"}


def test_without_its_newest_run_a_thread_stands_at_the_one_before(saver):
    finished_run(saver, RUN, "one")
    start(saver, run=NEXT, status="failed")
    saver.delete_for_runs([NEXT])
    assert saver.threads()[0][2:4] == ("finished", RUN)
    assert saver.threads("failed") == []
    assert saver.load(PLACE).checkpoint.checkpoint["id"] == RUN + "-z"
    start(saver, run=NEXT, value=3)
    assert saver.load(PLACE).run.id == NEXT


def test_without_any_run_a_thread_is_gone(saver):
    finished_run(saver, RUN, "one")
    nested(saver, INNER, NEXT, RUN)
    start(saver, Place("u"), run=THIRD)
    saver.delete_for_runs([RUN])
    assert [row.thread for row in saver.threads()] == ["u"]
    assert saver.load(PLACE) == (None, None, None, (), ())
    assert list(saver.list(config())) == []


def test_a_nested_run_can_be_forgotten_by_itself(saver):
    populated(saver)
    saver.delete_for_runs([THIRD])
    assert saver.runs("t", "task:1") == []
    assert len(saver.runs("t")) == 3
    assert len(saver.questions("t")) == 1


def test_runs_of_copies_are_forgotten_in_all_threads_or_in_one(saver):
    populated(saver)
    for copy in ("u", "v"):
        saver.copy_thread("t", copy)
    saver.delete_for_runs([RUN], thread="u")
    assert [len(saver.runs(thread)) for thread in "tuv"] == [3, 2, 3]
    saver.delete_for_runs([RUN])
    assert [len(saver.runs(thread)) for thread in "tuv"] == [2, 2, 2]
    saver.delete_for_runs([])
    saver.delete_for_runs(NEXT, thread="nobody")
    assert [len(saver.runs(thread)) for thread in "tuv"] == [2, 2, 2]


def test_runs_of_programs_written_for_langgraph_are_forgotten(saver):
    first = saver.put(config(ns=""), checkpoint("a", x=1), {"run_id": "r1"}, {"x": 1})
    saver.put_writes(first, [("x", 1)], "task")
    saver.put(config(ns="child:1"), checkpoint("b", x=2), {"run_id": "r1"}, {"x": 1})
    saver.put(first, checkpoint("c", {"x": 1}, x=1), {"run_id": "r2"}, {})
    saver.delete_for_runs(["r1"])
    (left,) = saver.list(config())
    assert (left.checkpoint["id"], left.checkpoint["channel_values"]) == ("c", {"x": 1})
    assert saver.get_tuple(first) is None


# ---------------------------------------------------------------- prune


def three_runs(saver, **last):
    finished_run(saver, RUN, "one")
    nested(saver, INNER, "0000-n", RUN, "finished")
    finished_run(saver, NEXT, "two", parent=RUN + "-z", versions=(3, 4), previous=2)
    start(saver, run=THIRD, value="three", **last)
    saver.save([SaveCall(PLACE, THIRD, call(1)), SaveQuestion(PLACE, question(THIRD))])
    nested(saver, Place("t", "task:2"), "0002-n", THIRD, **last)


def test_keep_latest_keeps_the_newest_run_whole(saver):
    three_runs(saver, status="finished")
    newest = saver.load(PLACE)
    saver.prune(["t"])
    assert saver.load(PLACE) == newest
    assert [row.id for row in saver.runs("t")] == [THIRD]
    assert [row.id for row in saver.runs("t", "task:2")] == ["0002-n"]
    assert saver.runs("t", "task:1") == []
    assert ids(saver.list(config())) == ["0002-n", THIRD]
    assert saver.calls(PLACE, NEXT) == []
    assert saver.question("t", question(NEXT).id) is None
    assert [row.id for _, row in saver.questions()] == [question(THIRD).id]
    saver.prune(["t"])
    assert saver.load(PLACE) == newest


def test_a_pruned_thread_still_knows_what_its_last_run_left(saver):
    finished_run(saver, RUN, "one")
    finished_run(saver, NEXT, "two", parent=RUN + "-z", versions=(3, 4), previous=2)
    before = list(saver.list(config()))[:3]
    saver.prune(["t"], strategy="keep_latest")
    after = list(saver.list(config()))
    assert [each.checkpoint for each in after] == [each.checkpoint for each in before]
    assert [each.metadata for each in after] == [each.metadata for each in before]
    assert saver.load(PLACE).checkpoint.checkpoint["channel_values"] == {"in": "two", "previous": "two"}


@pytest.mark.parametrize("status", ["running", "waiting", "failed", "paused"])
@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
def test_an_unfinished_run_keeps_every_outcome(saver, status, strategy):
    start(saver, run=RUN, value="old", status=status)
    saver.save([SaveCall(PLACE, RUN, call(1)), SaveQuestion(PLACE, question())])
    saver.save([SaveWrites(PLACE, RUN, "node", "", [("x", saver.serde.dumps(1))])])
    nested(saver, INNER, "0000-n", RUN, "finished")
    saver.save([SaveCall(INNER, "0000-n", call(1))])
    old, inner, shown = saver.load(PLACE, RUN), saver.load(INNER), saver.get_tuple(config(RUN))
    finished_run(saver, NEXT, "two", parent=RUN, versions=(3, 4))
    start(saver, run=THIRD, value="three", status="finished")

    saver.prune(["t"], strategy=strategy)

    kept = saver.load(PLACE, RUN)
    assert kept._replace(thread=None) == old._replace(thread=None)
    assert saver.load(INNER)[1:] == inner[1:]
    assert saver.get_tuple(config(RUN)) == shown
    assert [row.id for row in saver.runs("t")] == ([THIRD, RUN] if strategy == "keep_latest" else [RUN])
    assert saver.threads()[0].run == (THIRD if strategy == "keep_latest" else RUN)
    left = "killed" if status == "running" else status  # nobody holds the thread
    assert saver.threads()[0].status == ("finished" if strategy == "keep_latest" else left)


def test_delete_leaves_nothing_of_finished_runs(saver):
    three_runs(saver, status="finished")
    start(saver, Place("u"))
    other = everything(saver, "u")
    saver.prune(["t", "nobody"], strategy="delete")
    assert saver.load(PLACE) == (None, None, None, (), ())
    assert list(saver.list(config())) == []
    assert saver.questions() == []
    assert [row.thread for row in saver.threads()] == ["u"]
    assert everything(saver, "u") == other


def test_keep_latest_keeps_the_newest_checkpoint_of_each_namespace(saver):
    at = {"": config(ns=""), "child:1": config(ns="child:1")}
    for number in range(4):
        for ns in at:
            at[ns] = saver.put(at[ns], checkpoint(f"{number}", {"x": 1, "y": number + 2}, x="x", y=number), {}, {
                "y": number + 2, **({} if number else {"x": 1}),
            })  # fmt: skip
    saver.put_writes(at[""], [("ch", "val")], "task")
    saver.prune(["t"])
    found = list(saver.list(config()))
    assert ids(found) == ["3", "3"]
    assert [each.checkpoint["channel_values"] for each in found] == [{"x": "x", "y": 3}] * 2
    assert [each.parent_config for each in found] == [None, None]
    assert saver.get_tuple(config(ns="")).pending_writes == [("task", "ch", "val")]


def test_a_checkpoint_made_by_hand_on_top_of_a_run_is_kept_beside_it(saver):
    finished_run(saver, RUN, "one")
    row = checkpoint(NEXT, {"in": 1, "previous": 3}, previous="by hand")
    saver.put(config(RUN + "-z", ns=""), row, {"source": "update", "step": 1}, {"previous": 3})
    saver.prune(["t"])
    assert ids(saver.list(config())) == [NEXT, RUN + "-z", call_checkpoint_id(RUN, 0), RUN]
    assert saver.load(PLACE).checkpoint.checkpoint["channel_values"] == {"in": "one", "previous": "by hand"}


def test_other_threads_are_not_pruned(saver):
    finished_run(saver, RUN, "one")
    saver.copy_thread("t", "u")
    start(saver, Place("u"), run=NEXT)
    before = everything(saver, "u")
    saver.prune([])
    saver.prune(["t"])
    assert everything(saver, "u") == before


def test_an_unknown_strategy_is_an_error(saver):
    with pytest.raises(ConfigError, match="keep_latest"):
        saver.prune(["t"], strategy="all")


def test_metadata_is_not_touched_by_pruning(saver):
    three_runs(saver, status="finished")
    kept = saver.load(PLACE).checkpoint.metadata
    saver.prune("t")
    assert saver.load(PLACE).checkpoint.metadata == kept == metadata(run=THIRD)
