"""What every saver promises, blocking and awaited, of values that are stored as what was added to them."""

import pytest

from flowfn.channels.growing import Chain
from flowfn.checkpoint import cells
from flowfn.checkpoint.base import Delta, Place, SaveCheckpoint, SaveRun
from flowfn.errors import UnreadableError
from flowfn.types import Overwrite
from tests.contracts.growing import Line, shown
from tests.contracts.saving import NEXT, PLACE, RUN, checkpoint, config, ids, metadata, run_row


def id_of(number):
    return f"{number:04d}"


def grown(saver, steps=40, place=PLACE, run=RUN):
    """A line of so many super-steps, each of which writes to every channel."""
    line = Line(saver, place)
    for number in range(steps):
        line.step(id_of(number), run, log=[[number]], topic=[str(number)], delta=[{"a": [number]}], last=[number])
    return line


def pieces(saver, place, id):
    """Of how many pieces each value is made."""
    values = saver.load(place, id).checkpoint.checkpoint["channel_values"]
    return {name: len(value.added) if isinstance(value, Chain) else 0 for name, value in values.items()}


def expected(steps):
    numbers = list(range(steps))
    return {
        "log": numbers,
        "topic": [str(number) for number in numbers],
        "delta": {"steps": steps, "a": numbers},
        "last": steps - 1,
    }


def test_a_value_is_the_same_after_every_super_step(saver):
    line = grown(saver)
    assert line.deltas() == {"log", "topic", "delta"}
    for number in range(40):
        assert line.back_at(id_of(number)).seen() == expected(number + 1)
    assert line.back_at().seen() == line.seen() == expected(40)
    assert pieces(saver, PLACE, id_of(39)) == {"log": 8, "topic": 8, "delta": 9, "last": 0}


def test_a_checkpoint_of_langgraph_holds_whole_lists(saver):
    grown(saver, 30)
    lists = {name: expected(30)[name] for name in ("log", "topic")}
    assert shown(saver) == shown(saver, id_of(29)) == lists
    assert type(shown(saver)["log"]) is list
    listed = {each.checkpoint["id"]: each.checkpoint["channel_values"]["log"] for each in saver.list(config())}
    assert listed == {id_of(number): list(range(number + 1)) for number in range(30)}


def test_what_only_its_reducer_can_join_is_shown_as_it_is_stored(saver):
    line = grown(saver, 30)
    found = saver.get_tuple(config()).checkpoint["channel_values"]["delta"]
    assert isinstance(found, Chain)
    assert line.channels["delta"].restored(found).get() == expected(30)["delta"]


def test_a_line_goes_on_from_any_checkpoint_as_if_it_had_never_stopped(saver):
    whole = grown(saver, 25)
    line = Line(saver, Place("u"))
    for number in range(25):
        if line.at:
            line = line.back_at()
        line.step(id_of(number), log=[[number]], topic=[str(number)], delta=[{"a": [number]}], last=[number])
    assert line.back_at().seen() == expected(25)
    for number in range(25):
        assert pieces(saver, PLACE, id_of(number)) == pieces(saver, Place("u"), id_of(number))
    assert whole.back_at().seen() == line.seen()


def test_nothing_added_is_read_as_nothing_added(saver):
    line = grown(saver, 8)
    for number in range(8, 12):
        line.step(id_of(number), log=[[]], delta=[{}])
    assert line.back_at().seen()["log"] == list(range(8))
    assert line.back_at().seen()["delta"]["steps"] == 12


def test_an_overwrite_begins_a_new_chain(saver):
    line = grown(saver, 20)
    line.step(id_of(20), log=[Overwrite(["new"])], delta=[Overwrite({"b": [1]})])
    assert line.deltas() == set()
    for number in range(21, 24):
        line.step(id_of(number), log=[[number]], delta=[{"b": [number]}])
    assert line.back_at().seen()["log"] == ["new", 21, 22, 23]
    assert line.back_at().seen()["delta"] == {"steps": 3, "b": [1, 21, 22, 23]}
    assert line.back_at(id_of(19)).seen() == expected(20)


# ---------------------------------------------------------------- branches


def test_branches_that_build_on_one_version_do_not_see_each_other(saver):
    stem = grown(saver, 13)
    left, right = stem.back_at(), stem.back_at()
    for number in range(13, 18):  # both count to the same versions
        left.step(f"{id_of(number)}-l", log=[["left"]], topic=["left"], delta=[{"a": ["left"]}])
        right.step(f"{id_of(number)}-r", log=[["right"]], topic=["right"], delta=[{"a": ["right"]}])
    assert left.versions == right.versions
    for line, word in ((left, "left"), (right, "right")):
        seen = line.back_at(line.at).seen()
        assert seen["log"] == shown(saver, line.at)["log"] == [*range(13), *[word] * 5]
        assert seen["topic"] == [*map(str, range(13)), *[word] * 5]
        assert seen["delta"]["a"] == [*range(13), *[word] * 5]
    assert stem.back_at(id_of(12)).seen() == expected(13)


def test_a_branch_outlives_the_run_whose_values_it_builds_on(saver):
    stem = grown(saver, 13)
    branch = stem.back_at(id_of(9))
    for number in range(20, 24):
        branch.step(id_of(number), "other", highest=13, log=[[number]], topic=[str(number)], delta=[{"a": [number]}])
    before, values = branch.back_at().seen(), shown(saver)
    saver.delete_for_runs([RUN])
    assert ids(saver.list(config())) == [id_of(number) for number in (23, 22, 21, 20)]
    assert branch.back_at().seen() == before == branch.seen()
    assert shown(saver) == values
    assert branch.back_at(id_of(20)).seen()["log"] == [*range(10), 20]


def test_two_branches_keep_their_values_when_their_stem_goes(saver):
    stem = grown(saver, 13)
    left, right = stem.back_at(), stem.back_at()
    for number in range(13, 18):
        left.step(f"{id_of(number)}-l", "left", log=[["left"]], delta=[{"a": ["left"]}])
        right.step(f"{id_of(number)}-r", "right", log=[["right"]], delta=[{"a": ["right"]}])
    saver.delete_for_runs([RUN])
    for line, word in ((left, "left"), (right, "right")):
        assert line.back_at(line.at).seen()["log"] == [*range(13), *[word] * 5]
        assert line.back_at(line.at).seen()["delta"]["a"] == [*range(13), *[word] * 5]
    saver.delete_for_runs(["left"])
    assert right.back_at(right.at).seen()["log"] == [*range(13), *["right"] * 5]


# ---------------------------------------------------------------- copied, and made smaller


def three_runs(saver):
    """Three finished runs of seven super-steps each, in one line."""
    line = Line(saver)
    for number in range(21):
        run = f"run{number // 7}"
        if number % 7 == 0:
            saver.save([SaveRun(PLACE, run_row(run, status="finished", started=float(number)))])
        line.step(id_of(number), run, log=[[number]], topic=[str(number)], delta=[{"a": [number]}], last=[number])
    return line


def test_a_pruned_thread_keeps_all_that_its_newest_run_builds_on(saver):
    line = three_runs(saver)
    before = {id_of(number): line.back_at(id_of(number)).seen() for number in range(14, 21)}
    saver.prune(["t"])
    assert ids(saver.list(config())) == [id_of(number) for number in range(20, 13, -1)]
    assert {id: line.back_at(id).seen() for id in before} == before
    line.back_at().step(id_of(21), "run3", log=[[21]], delta=[{"a": [21]}])
    assert line.back_at().seen()["log"] == list(range(22))
    saver.prune(["t"])
    assert line.back_at().seen()["delta"] == {"steps": 22, "a": list(range(22))}


def test_what_goes_from_the_middle_of_a_chain_is_kept_by_what_comes_after(saver):
    line = three_runs(saver)
    saver.delete_for_runs(["run1"])
    for number in (*range(7), *range(14, 21)):
        assert line.back_at(id_of(number)).seen() == expected(number + 1)
    saver.delete_for_runs(["run0"])
    for number in range(14, 21):
        assert line.back_at(id_of(number)).seen() == expected(number + 1)


def test_a_chain_whose_end_goes_is_whole(saver):
    line = three_runs(saver)
    saver.delete_for_runs(["run2"])
    assert line.back_at().seen() == expected(14)
    line.back_at().step(id_of(30), "run3", log=[[14]])
    assert line.back_at().seen()["log"] == list(range(15))


def test_a_copied_thread_grows_by_itself(saver):
    line = three_runs(saver)
    saver.copy_thread("t", "u")
    copy = Line(saver, Place("u")).back_at()
    copy.step(id_of(30), log=[["copy"]], delta=[{"a": ["copy"]}])
    line.step(id_of(31), log=[["source"]])
    saver.delete_thread("t")
    assert copy.back_at().seen()["log"] == [*range(21), "copy"]
    assert copy.back_at(id_of(17)).seen() == expected(18)


# ---------------------------------------------------------------- beside LangGraph's `put`, and damaged


def test_what_is_put_is_whole_and_can_be_added_to(saver):
    at = saver.put(config(ns=""), checkpoint("a", {"log": 1}, log=[1, 2, 3, 4]), {}, {"log": 1})
    line = Line(saver).back_at("a")
    line.step("b", log=[[5]])
    assert line.deltas() == {"log"}
    assert saver.get_tuple(config("b")).checkpoint["channel_values"] == {"log": [1, 2, 3, 4, 5]}
    found = saver.get_tuple(config("b")).checkpoint
    at = saver.put(config("b", ns=""), {**found, "id": "c", "channel_versions": {"log": 3}}, {}, {"log": 3})
    assert saver.get_tuple(at).checkpoint["channel_values"] == {"log": [1, 2, 3, 4, 5]}
    saver.delete_for_runs([RUN])
    assert saver.get_tuple(at).checkpoint["channel_values"] == {"log": [1, 2, 3, 4, 5]}


def save_rows(saver, id, versions, **rows):
    """A checkpoint whose rows are these: (payload value,) or (payload value, prev)."""
    encoded = {}
    for name, (value, *prev) in rows.items():
        payload = saver.serde.dumps(value, "", cells.value(PLACE, name, versions[name], *prev))
        encoded[name] = Delta(*prev, payload) if prev else payload
    saver.save([SaveCheckpoint(PLACE, checkpoint(id, versions), metadata(), None, encoded)])


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param({2: (["items", [2]], 1)}, id="nothing to build on"),
        pytest.param({1: ([1],), 3: (["items", [3]], 2)}, id="a gap"),
        pytest.param({2: (["items", [2]], 2)}, id="it builds on itself"),
        pytest.param({2: (["items", [2]], 3), 3: (["items", [3]], 2)}, id="a circle"),
        pytest.param({1: ("text",), 2: (["items", [2]], 1)}, id="no list to add to"),
        pytest.param({1: ([1],), 2: ([2], 1)}, id="no addition"),
        pytest.param({1: ([1],), 2: (["others", [2]], 1)}, id="an unknown kind"),
        pytest.param({1: ([1],), 2: (["steps", [2]], 1)}, id="steps without writes"),
        pytest.param({1: ([1],), 2: (["items", [2]], 1), 3: (["steps", [[3]]], 2)}, id="two kinds"),
        pytest.param({1: ([1],), 2: (["items", {"a": 1}], 1)}, id="no items"),
    ],
)
def test_a_broken_chain_is_an_error_that_names_the_channel(saver, rows):
    for version, row in rows.items():
        save_rows(saver, f"{version}", {"log": version}, log=row)
    newest = max(rows)
    for read in (
        lambda: saver.load(PLACE, f"{newest}"),
        lambda: saver.get_tuple(config(f"{newest}")),
        lambda: list(saver.list(config())),
    ):
        with pytest.raises(UnreadableError, match="Channel `log` cannot be read back"):
            read()
    save_rows(saver, NEXT, {"log": 9}, log=([1, 2],))
    assert saver.load(PLACE, NEXT).checkpoint.checkpoint["channel_values"] == {"log": [1, 2]}
