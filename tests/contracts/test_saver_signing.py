"""What every saver that signs promises, blocking and awaited: a value is read where it was put, and nowhere else."""

import pytest

from flowfn.checkpoint import InMemorySaver, SqliteSaver, cells
from flowfn.checkpoint.base import (
    FAILED,
    CopyRun,
    Delta,
    Place,
    SaveCall,
    SaveCheckpoint,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    question_id,
)
from flowfn.checkpoint.rows import answer, interrupt_of, outcome
from flowfn.errors import BadSignatureError, UnknownKeyError, UnsignedPickleError
from flowfn.serde import Keyring, Serializer
from tests.contracts.growing import Line
from tests.contracts.saving import (
    NEXT,
    PLACE,
    RUN,
    Awaited,
    call,
    checkpoint,
    config,
    metadata,
    question,
    run_row,
    save_checkpoint,
    start,
)


class Odd:
    """No plain data: it is pickled, and so it is signed."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return type(other) is Odd and other.text == self.text

    def __hash__(self):
        return hash(self.text)


class Sorry(Exception):
    pass


OWN, OTHER = Keyring.of("the secret of our machine"), Keyring.of("the secret of another one")
SIGNING = {
    "memory": lambda keys, folder: InMemorySaver(Serializer(keys=keys)),
    "sqlite": lambda keys, folder: SqliteSaver(folder / "flows.db", serde=Serializer(keys=keys)),
}


@pytest.fixture(params=SIGNING)
def made(request, tmp_path):
    saver = SIGNING[request.param](OWN, tmp_path)
    yield saver
    saver.close()


def with_keys(saver, keys):
    """The same store for a reader with other keys."""
    saver.serde = saver.serde.signed_by(keys)
    return saver


def signed_call(saver, seq, value, place=PLACE, run=RUN, **facts):
    row = call(seq, **facts)
    return SaveCall(place, run, row._replace(payload=saver.serde.dumps(value, "", cells.call(place, run, row.key))))


def signed_question(saver, value, place=PLACE, run=RUN, **facts):
    row = question(run, **facts)
    payload = saver.serde.dumps(value, "", cells.question(place.thread, row.id))
    return SaveQuestion(place, row._replace(payload=payload))


WROTE = question()


def filled(saver):
    """A thread with a pickle in each column of payloads: a result, a failure, a question with its answer, a channel's
    value, a pending write, and a checkpoint's metadata."""
    start(saver)
    saver.save([signed_call(saver, 1, Odd("result")), signed_call(saver, 2, Sorry("failure"), flags=FAILED)])
    saver.save([signed_question(saver, Odd("question"))])
    saver.answer("t", {WROTE.id: Odd("answer")})
    row = checkpoint("0000-b", {"__start__": 1, "x": 2}, x=Odd("value"))
    saver.put(config(RUN, ns=""), row, {"source": "loop", "step": 0, "mark": Odd("metadata")}, {"x": 2})
    saver.put_writes(config("0000-b", ns=""), [("x", Odd("first")), ("x", Odd("second"))], "task")


def held(saver, thread="t", run=RUN):
    """All that `filled` put there."""
    place = Place(thread)
    calls = saver.calls(place, run)
    asked = saver.question(thread, question_id(run, WROTE.base))
    found = saver.get_tuple(config("0000-b", thread))
    return [
        outcome(calls[0], place, run, saver.serde).text,
        outcome(calls[1], place, run, saver.serde).args[0],
        interrupt_of(asked, thread, saver.serde).value.text,
        answer(asked, thread, saver.serde).text,
        found.checkpoint["channel_values"]["x"].text,
        *(value.text for _, _, value in found.pending_writes),
        found.metadata["mark"].text,
    ]


ALL = ["result", "failure", "question", "answer", "value", "first", "second", "metadata"]


def test_what_is_signed_is_read_where_it_was_put(saver):
    filled(saver)
    assert held(saver) == ALL
    shown = saver.get_tuple(config(RUN))
    assert [value for _, channel, value in shown.pending_writes if channel == "__return__"] == [Odd("result")]


def test_a_copy_is_signed_for_the_thread_it_is_in(saver):
    filled(saver)
    saver.copy_thread("t", "u")
    saver.copy_thread("u", "w")
    assert held(saver, "u") == held(saver, "w") == held(saver, "t") == ALL


def test_a_copy_needs_no_class_and_loads_nothing(saver, monkeypatch):
    filled(saver)
    monkeypatch.setattr(Serializer, "loads", None)
    saver.copy_thread("t", "u")
    saver.save([SaveRun(PLACE, run_row(NEXT)), CopyRun(PLACE, RUN, NEXT, 9)])
    monkeypatch.undo()
    assert held(saver, "u") == ALL


def test_a_fork_is_signed_for_the_run_it_is(saver):
    filled(saver)
    saver.save([SaveRun(PLACE, run_row(NEXT)), CopyRun(PLACE, RUN, NEXT, 9)])
    assert held(saver, run=NEXT) == held(saver) == ALL


def test_a_value_that_moves_when_a_thread_is_pruned_stays_readable(saver):
    filled(saver)
    start(saver, run="0001-x")
    row = checkpoint("0002-y", {"__start__": 1, "x": 2})
    saver.put(config("0000-b", ns=""), row, {"source": "loop", "step": 1, "run": "0001-x"}, {})
    saver.delete_for_runs([RUN])
    saver.prune(["t"])
    assert saver.get_tuple(config("0002-y")).checkpoint["channel_values"]["x"] == Odd("value")


# ---------------------------------------------------------------- what stands where it was not put


def test_a_result_in_the_place_of_another_is_refused_by_name(saver):
    start(saver)
    good = signed_call(saver, 1, Odd("approved"), name="shop:check")
    moved = call(2, name="shop:charge")._replace(payload=good.row.payload)
    saver.save([good, SaveCall(PLACE, RUN, moved)])
    with pytest.raises(BadSignatureError, match="The result of task `charge`"):
        saver.get_tuple(config())
    with pytest.raises(BadSignatureError, match="The result of task `charge`"):
        list(saver.list(config()))


def test_a_failure_in_the_place_of_another_is_refused_by_name(saver):
    start(saver)
    blob = saver.serde.dumps(Sorry(), "", cells.call(PLACE, RUN, b"?" * 16))
    saver.save([SaveCall(PLACE, RUN, call(1, name="shop:charge", flags=FAILED)._replace(payload=blob))])
    with pytest.raises(BadSignatureError, match="What task `charge` raised"):
        saver.get_tuple(config())


def test_a_value_from_another_thread_or_channel_is_refused_by_name(saver):
    for cell in (cells.value(Place("u"), "total", 1), cells.value(PLACE, "other", 1), cells.value(PLACE, "total", 2)):
        save = save_checkpoint(saver, total=None)
        saver.save([save._replace(values={"total": saver.serde.dumps(Odd("much"), "", cell)})])
        for read in (lambda: saver.load(PLACE), lambda: saver.get_tuple(config()), lambda: list(saver.list(None))):
            with pytest.raises(BadSignatureError, match="Channel `total`"):
                read()


def test_a_question_or_an_answer_of_another_thread_is_refused_by_name(saver):
    start(saver)
    other = signed_question(saver, Odd("small"), place=Place("u"))
    saver.save([SaveQuestion(PLACE, other.row)])
    with pytest.raises(BadSignatureError, match=f"Question `{other.row.id}`"):
        saver.get_tuple(config())
    foreign = saver.serde.dumps(Odd("yes"), "", cells.answer("u", other.row.id))
    saver.save([SaveQuestion(PLACE, question(base=b"c" * 16)._replace(state="answered", answer=foreign))])
    row = saver.question("t", question(base=b"c" * 16).id)
    with pytest.raises(BadSignatureError, match=f"The answer to question `{row.id}`"):
        answer(row, "t", saver.serde)


def test_a_write_in_another_slot_is_refused_by_name(saver):
    start(saver)
    blob = saver.serde.dumps(Odd("1"), "", cells.write(PLACE, RUN, "task", 1, "x"))
    saver.save([SaveWrites(PLACE, RUN, "task", "", [("x", blob)])])
    with pytest.raises(BadSignatureError, match="A write to channel `x`"):
        saver.get_tuple(config())


def test_what_was_refused_is_refused_in_a_copy_too(saver):
    start(saver)
    good = signed_call(saver, 1, Odd("approved"))
    saver.save([good, SaveCall(PLACE, RUN, call(2, name="shop:charge")._replace(payload=good.row.payload))])
    saver.copy_thread("t", "u")
    assert outcome(saver.calls(Place("u"), RUN)[0], Place("u"), RUN, saver.serde) == Odd("approved")
    with pytest.raises(BadSignatureError, match="The result of task `charge`"):
        saver.get_tuple(config(thread="u"))


# ---------------------------------------------------------------- trust


def test_a_store_of_another_key_is_listed_and_not_loaded(made, saver):
    filled(saver)
    with_keys(made, OTHER)
    assert [row.preview for row in saver.calls(PLACE, RUN)] == ["14", "14"]
    assert [row.thread for row in saver.threads()] == ["t"]
    with pytest.raises(UnknownKeyError, match="Checkpoint `0000-b`"):
        saver.get_tuple(config("0000-b"))
    with pytest.raises(UnknownKeyError, match="The result of task `f`"):
        saver.get_tuple(config(RUN))


def test_what_its_owner_vouches_for_is_signed_anew(made, saver, monkeypatch):
    filled(saver)
    saver.copy_thread("t", "u")
    with_keys(made, OTHER)
    monkeypatch.setattr(Serializer, "loads", None)

    report = saver.trust()

    monkeypatch.undo()
    kinds = {"result": 4, "question": 2, "answer": 2, "channel value": 2, "write": 4, "checkpoint": 2}
    assert report == (kinds, {"f": 4})
    assert held(saver) == held(saver, "u") == ALL
    assert saver.trust() == ({}, {})
    with_keys(made, OWN)
    with pytest.raises(UnknownKeyError):
        saver.get_tuple(config(RUN))


def test_a_key_in_front_of_the_old_one_reads_both(made, saver):
    filled(saver)
    with_keys(made, Keyring([*OTHER.keys, *OWN.keys]))
    start(saver, Place("new"))
    saver.save([signed_call(saver, 1, Odd("new"), Place("new"))])
    assert held(saver) == ALL
    saver.trust()  # all of it is readable as it is
    with_keys(made, OTHER)
    assert outcome(saver.calls(Place("new"), RUN)[0], Place("new"), RUN, saver.serde) == Odd("new")
    with pytest.raises(UnknownKeyError):
        held(saver)


def test_unsigned_pickles_are_read_once_their_owner_vouches_for_them(made, saver):
    with_keys(made, None)
    filled(saver)
    with_keys(made, OWN)
    with pytest.raises(UnsignedPickleError, match="The result of task `f`"):
        saver.get_tuple(config(RUN))
    assert sum(saver.trust().payloads.values()) == 7  # all but the failure, which is plain data and names a class
    assert held(saver) == ALL


def test_trust_is_all_or_nothing(made, saver, monkeypatch):
    filled(saver)
    with_keys(made, OTHER)
    trusted, times = Serializer.trusted, []

    def failing(self, blob, cell=()):
        times.append(cell[0])
        if "write" in times:
            raise OSError("the key is gone")
        return trusted(self, blob, cell)

    monkeypatch.setattr(Serializer, "trusted", failing)
    with pytest.raises(OSError, match="the key is gone"):
        saver.trust()
    monkeypatch.undo()
    assert len(times) > 5
    with_keys(made, OWN)
    assert held(saver) == ALL


def test_a_call_that_is_stored_while_a_memory_is_signed_anew_is_kept(monkeypatch):
    saver = InMemorySaver(Serializer(keys=OWN))
    filled(saver)
    trusted, late = Serializer.trusted, [signed_call(saver, 9, Odd("late"))]

    def interrupted(self, blob, cell=()):
        if cell[0] == "call" and late:
            saver.save([late.pop()])
        return trusted(self, blob, cell)

    monkeypatch.setattr(Serializer, "trusted", interrupted)
    with_keys(saver, Keyring([*OTHER.keys, *OWN.keys])).trust()
    assert [row.seq for row in saver.calls(PLACE, RUN)] == [1, 2, 9]
    assert held(saver) == ALL


def test_awaited_methods_are_the_twins(made):
    filled(Awaited(made))
    with_keys(made, OTHER)
    assert sum(Awaited(made).trust().payloads.values()) == 8
    assert held(made) == ALL


# ---------------------------------------------------------------- what was added to a value


def grown(saver, place=PLACE):
    """A line of seven super-steps, each of which adds a pickle to each channel; the last ones stored additions."""
    line = Line(saver, place)
    for number in range(7):
        line.step(f"000{number}", log=[[Odd(number)]], topic=[Odd(number)], delta=[{"a": [Odd(number)]}])
    assert line.deltas() == {"log", "topic", "delta"}
    return line


def test_additions_are_signed_for_the_versions_they_stand_between(made, saver):
    line, odds = grown(saver), [Odd(number) for number in range(7)]
    saver.copy_thread("t", "u")
    with_keys(made, OTHER)
    with pytest.raises(UnknownKeyError, match="Channel `"):
        line.back_at()
    saver.trust()
    for thread in ("t", "u"):
        again = Line(saver, Place(thread)).back_at()
        again.step("0007", log=[[Odd(7)]])
        assert again.back_at().seen()["log"] == [*odds, Odd(7)]
        assert again.back_at().seen()["delta"]["a"] == odds
    with_keys(made, OWN)
    with pytest.raises(UnknownKeyError, match="Channel `"):
        line.back_at()


def test_an_addition_in_the_place_of_another_is_refused_by_name(saver):
    line = grown(saver)
    (prev, payload), version = line.stored["log"], line.versions["log"]
    for row in (Delta(prev - 1, payload), payload):
        again = line.back_at("0005")
        again.step("0006", log=[[Odd(6)]])
        again.saver.save(
            [SaveCheckpoint(PLACE, checkpoint("0006", {"log": version}), metadata(), "0005", {"log": row})]
        )
        for read in (lambda: saver.load(PLACE), lambda: saver.get_tuple(config())):
            with pytest.raises(BadSignatureError, match="Channel `log`"):
                read()
