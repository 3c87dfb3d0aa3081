"""What every saver promises, blocking and awaited: runs and their memory, saves, writes and forks."""

import threading

import pytest

from flowfn.checkpoint.base import (
    FAILED,
    FORGOTTEN,
    AbandonQuestions,
    CopyRun,
    ForgetCalls,
    Place,
    SaveCall,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    UseAnswer,
    call_checkpoint_id,
    question_id,
    task_id,
)
from flowfn.errors import (
    StoreConflictError,
    UnknownCheckpointError,
)
from tests.contracts.saving import (
    NEXT,
    PLACE,
    RUN,
    call,
    checkpoint,
    config,
    ids,
    metadata,
    question,
    run_row,
    save_checkpoint,
    start,
)

# ---------------------------------------------------------------- runs and their memory


def test_a_new_thread_has_no_memory(saver):
    assert saver.load(PLACE) == (None, None, None, (), ())
    assert saver.get_tuple(config()) is None
    assert list(saver.list(config())) == []
    assert saver.calls(PLACE, RUN) == []


def test_the_memory_of_a_run_holds_all_that_was_saved(saver):
    row = run_row(digest=b"d" * 16, input="1", code={"m.f": "abc"}, error=None)
    saver.save([SaveRun(PLACE, row), save_checkpoint(saver, __start__={"amount": (1, 2)})])
    saver.save([SaveCall(PLACE, RUN, call(1)), SaveCall(PLACE, RUN, call(2, caller=b"k" * 16))])
    saver.save([SaveQuestion(PLACE, question())])

    memory = saver.load(PLACE)

    assert memory.thread[:4] == ("t", "flow", "running", RUN)
    assert memory.run == row
    assert list(memory.calls) == [call(1), call(2, caller=b"k" * 16)]
    assert list(memory.questions) == [question()]
    assert memory.checkpoint.checkpoint == checkpoint(RUN, __start__={"amount": (1, 2)})
    assert memory.checkpoint.metadata == metadata()
    assert memory.checkpoint.config == config(RUN, ns="")
    assert memory.checkpoint.parent_config is None
    assert saver.calls(PLACE, RUN) == [call(1), call(2, caller=b"k" * 16)]


def test_a_call_keeps_which_calls_its_arguments_waited_for(saver):
    start(saver)
    rows = [call(1), call(2, needs=b"a" * 16 + b"b" * 16)]
    saver.save([SaveCall(PLACE, RUN, row) for row in rows])
    assert saver.calls(PLACE, RUN) == list(saver.load(PLACE).calls) == rows
    assert [len(row.needs) for row in rows] == [0, 32]


def test_calls_come_in_the_order_of_their_numbers(saver):
    start(saver)
    for seq in (2, 10, 1):
        saver.save([SaveCall(PLACE, RUN, call(seq))])
    assert [row.seq for row in saver.load(PLACE).calls] == [1, 2, 10]


def test_a_checkpoint_loads_the_run_that_it_belongs_to(saver):
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1))])
    start(saver, run=NEXT, value=2)

    assert saver.load(PLACE).run.id == NEXT
    old = saver.load(PLACE, RUN)
    assert (old.run.id, [row.seq for row in old.calls]) == (RUN, [1])
    assert old.thread.run == NEXT


def test_an_unknown_checkpoint_is_an_error(saver):
    with pytest.raises(UnknownCheckpointError):
        saver.load(PLACE, RUN)
    start(saver)
    saver.save([SaveRun(PLACE, run_row(committed=1)), SaveCall(PLACE, RUN, call(1))])
    with pytest.raises(UnknownCheckpointError):
        saver.load(PLACE, "other")
    with pytest.raises(UnknownCheckpointError):
        saver.load(PLACE, call_checkpoint_id(RUN, 0))


def test_a_run_that_goes_on_replaces_its_row_and_the_threads(saver):
    start(saver)
    before = saver.threads()[0]
    saver.save([SaveRun(PLACE, run_row(attempt=2, status="failed", committed=3, error="ValueError"))])

    assert saver.runs("t") == [run_row(attempt=2, status="failed", committed=3, error="ValueError")]
    after = saver.threads()[0]
    assert after.status == "failed"
    assert after.updated >= before.updated > 1e9


def test_a_nested_flow_has_its_own_runs_and_does_not_change_the_thread(saver):
    start(saver)
    inner = Place("t", "task:1")
    start(saver, inner, run=NEXT, status="waiting")
    saver.save([SaveCall(inner, NEXT, call(1))])

    assert saver.threads()[0][2:4] == ("killed", RUN)
    assert saver.load(inner).run.id == NEXT
    assert saver.load(PLACE).run.id == RUN
    assert [row.id for row in saver.runs("t", "task:1")] == [NEXT]
    assert list(saver.load(PLACE).calls) == []


def test_runs_come_newest_first(saver):
    start(saver)
    start(saver, run=NEXT)
    assert [row.id for row in saver.runs("t")] == [NEXT, RUN]
    assert [row.id for row in saver.runs("t", limit=1)] == [NEXT]


def test_values_are_those_of_this_moment_whatever_happens_to_the_object(saver):
    value = [1]
    saver.put(config(), checkpoint(RUN, x=value), metadata(), {"x": 1})
    value.append(2)
    saver.get_tuple(config()).checkpoint["channel_values"]["x"].append(3)
    assert saver.get_tuple(config()).checkpoint["channel_values"] == {"x": [1]}


def test_a_thread_is_named_by_text_and_by_number_alike(saver):
    start(saver, Place("7"))
    assert saver.get_tuple(config(thread=7)) == saver.get_tuple(config(thread="7")) is not None
    assert len(saver.runs(7)) == 1
    saver.delete_thread(7)
    assert saver.threads() == []


@pytest.mark.parametrize(
    "thread", ["", "ü/⛵ %_'\"", "a\0b", "a\0c", "\ud800", "x" * 100_000], ids=lambda name: ascii(name)[:12]
)
def test_any_text_names_a_thread(saver, thread):
    start(saver, Place(thread))
    start(saver, Place(thread + "+"))
    saver.save([SaveQuestion(Place(thread), question())])

    assert saver.load(Place(thread)).thread.thread == thread
    assert {row.thread for row in saver.threads()} == {thread, thread + "+"}
    assert [name for name, _ in saver.questions()] == [thread]
    assert ids(saver.list(config(thread=thread))) == [RUN]
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {thread, thread + "+"}
    saver.delete_thread(thread)
    assert [row.thread for row in saver.threads()] == [thread + "+"]


# ---------------------------------------------------------------- all or nothing


def test_a_number_that_is_taken_conflicts_and_nothing_is_stored(saver):
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1))])
    with pytest.raises(StoreConflictError) as caught:
        saver.save(
            [
                SaveRun(PLACE, run_row(status="failed")),
                SaveCall(PLACE, RUN, call(2)),
                SaveQuestion(PLACE, question()),
                SaveCall(PLACE, RUN, call(1, value="other")),
            ]
        )
    assert caught.value.thread == "t"
    memory = saver.load(PLACE)
    assert memory.run == run_row()
    assert memory.thread.status == "running"
    assert list(memory.calls) == [call(1)]
    assert list(memory.questions) == []


def test_a_failing_save_takes_every_kind_back(saver):
    start(saver)
    saver.save([SaveQuestion(PLACE, question()), SaveCall(PLACE, RUN, call(1, flags=FAILED))])
    saver.answer("t", {question().id: 1})
    saver.save(
        [
            SaveQuestion(PLACE, question(base=b"c" * 16)),
            SaveWrites(PLACE, RUN, "task", "", [("a", saver.serde.dumps(1))]),
        ]
    )

    def everything():
        return saver.load(PLACE), saver.questions(), saver.threads(), saver.runs("t"), list(saver.list(None))

    before = everything()
    with pytest.raises(StoreConflictError):
        saver.save(
            [
                SaveRun(Place("new"), run_row()),
                SaveRun(PLACE, run_row(NEXT, status="waiting")),
                save_checkpoint(saver, NEXT, parent=RUN, run=NEXT, x=1),
                CopyRun(PLACE, RUN, NEXT, 5),
                SaveWrites(PLACE, RUN, "task", "", [("b", saver.serde.dumps(2))]),
                ForgetCalls(PLACE, RUN, [1]),
                UseAnswer(PLACE, question().id, 1),
                AbandonQuestions(PLACE),
                SaveCall(PLACE, RUN, call(1)),
            ]
        )
    assert everything() == before


def test_a_call_of_a_run_that_is_not_there_conflicts(saver):
    with pytest.raises(StoreConflictError):
        saver.save([SaveCall(PLACE, RUN, call(1))])
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1))])
    saver.delete_thread("t")
    with pytest.raises(StoreConflictError):
        saver.save([SaveCall(PLACE, RUN, call(2))])


def test_save_now_stores_when_nobody_else_writes(saver):
    start(saver)
    assert saver.save_now([SaveCall(PLACE, RUN, call(1))]) is True
    assert [row.seq for row in saver.calls(PLACE, RUN)] == [1]


def test_saving_nothing_is_nothing(saver):
    saver.save([])
    assert saver.threads() == []


def test_many_workers_save_at_once(saver):
    places = [Place(str(number)) for number in range(8)]

    def work(place):
        start(saver, place)
        for seq in range(1, 21):
            saver.save([SaveCall(place, RUN, call(seq))])
            assert len(saver.load(place).calls) == seq

    workers = [threading.Thread(target=work, args=(place,)) for place in places]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [len(saver.calls(place, RUN)) for place in places] == [20] * 8


# ---------------------------------------------------------------- writes, forgetting, forks


def test_a_tasks_writes_replace_what_it_wrote_before(saver):
    start(saver)
    one, two = saver.serde.dumps(1), saver.serde.dumps(2)
    saver.save([SaveWrites(PLACE, RUN, "b", "", [("x", one), ("x", two), ("y", one)])])
    saver.save([SaveWrites(PLACE, RUN, "a", "", [("x", one)]), SaveWrites(PLACE, RUN, "b", "", [("x", two)])])
    expected = [("a", "x", 1), ("b", "x", 2)]
    assert saver.load(PLACE).checkpoint.pending_writes == expected
    assert saver.get_tuple(config(RUN)).pending_writes == expected


def test_forgotten_calls_stay_for_the_history(saver):
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1)), SaveCall(PLACE, RUN, call(2, flags=FAILED, value=ValueError("no")))])
    saver.save([ForgetCalls(PLACE, RUN, [2, 99])])
    assert [(row.seq, row.flags) for row in saver.load(PLACE).calls] == [(1, 0), (2, FAILED | FORGOTTEN)]


def test_a_forgotten_failure_shows_until_its_call_has_been_tried_again(saver):
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1, key=b"k" * 16, flags=FAILED, value="sorry"))])
    saver.save([ForgetCalls(PLACE, RUN, [1])])
    task = task_id(RUN, b"k" * 16)
    assert saver.get_tuple(config()).pending_writes == [(task, "__error__", "sorry")]
    saver.save([SaveCall(PLACE, RUN, call(2, key=b"k" * 16, value="fine"))])
    assert saver.get_tuple(config()).pending_writes == [(task, "__return__", "fine")]


def test_a_fork_has_the_calls_and_answers_up_to_a_super_step(saver):
    start(saver)
    asked = [question(base=bytes([step]) * 16, step=step) for step in (0, 1, 2)]
    still_open = question(base=b"o" * 16, step=0)
    saver.save([SaveCall(PLACE, RUN, call(seq, step=seq - 1)) for seq in (1, 2, 3)])
    saver.save([SaveQuestion(PLACE, row) for row in (*asked, still_open)])
    saver.answer("t", {row.id: row.step for row in asked}, by="kim")
    saver.save([UseAnswer(PLACE, asked[0].id, 1)])
    saver.save(
        [
            SaveRun(PLACE, run_row(NEXT, committed=2)),
            save_checkpoint(saver, NEXT, parent=call_checkpoint_id(RUN, 1), source="fork", run=NEXT, __start__=1),
            CopyRun(PLACE, RUN, NEXT, 1),
        ]
    )

    fork, old = saver.load(PLACE), saver.load(PLACE, RUN)

    assert list(fork.calls) == [call(1), call(2, step=1)]
    assert [row.id for row in fork.questions] == [question_id(NEXT, row.base) for row in asked[:2]]
    assert {(row.run, row.state, row.by, row.used) for row in fork.questions} == {(NEXT, "answered", "kim", 0)}
    assert [saver.serde.loads(row.answer) for row in fork.questions] == [0, 1]
    assert len(old.calls) == 3
    assert len(old.questions) == 4
    assert fork.checkpoint.parent_config == config(call_checkpoint_id(RUN, 1), ns="")
    saver.save([SaveCall(PLACE, NEXT, call(3, value="new"))])
    assert list(saver.load(PLACE, RUN).calls)[2] == call(3, step=2)


def test_a_fork_leaves_behind_the_calls_and_answers_it_is_told_to(saver):
    start(saver)
    asked = [question(base=bytes([number]) * 16) for number in (1, 2, 3)]
    saver.save([SaveCall(PLACE, RUN, call(seq, step=seq - 1)) for seq in (1, 2, 3, 4)])
    saver.save([SaveQuestion(PLACE, row) for row in asked])
    saver.answer("t", {row.id: "yes" for row in asked})
    old = saver.load(PLACE)
    replaced = call(2, step=1, value="replaced")

    copy = CopyRun(PLACE, RUN, NEXT, 2, [call(2).key, call(3).key, b"?" * 16], [asked[1].base])
    saver.save([SaveRun(PLACE, run_row(NEXT)), copy, SaveCall(PLACE, NEXT, replaced)])

    assert saver.calls(PLACE, NEXT) == [call(1), replaced]
    questions = [saver.question("t", question_id(NEXT, row.base)) for row in asked]
    assert [row and row.state for row in questions] == ["answered", None, "answered"]
    assert saver.load(PLACE, RUN)[2:] == old[2:]


def test_a_fork_may_leave_more_behind_than_one_statement_takes_parameters(saver):
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(seq)) for seq in (1, 2, 3)])
    many = [number.to_bytes(16, "big") for number in range(2, 40_000)]
    saver.save([SaveRun(PLACE, run_row(NEXT)), CopyRun(PLACE, RUN, NEXT, 0, many)])
    assert saver.calls(PLACE, NEXT) == [call(1)]
