"""A file knows which keys have signed in it, and says so to whoever opens it without them."""

import logging
import os
import sqlite3

import pytest

from flowfn.checkpoint import InMemorySaver, SqliteSaver, Trusted, cells, trust
from flowfn.checkpoint.base import CopyRun, Place, RunRow, SaveCall, SaveQuestion, SaveRun, question_id
from flowfn.checkpoint.columns import COLUMNS
from flowfn.checkpoint.rows import answer, interrupt_of, outcome
from flowfn.errors import NoKeyError, NotEncryptedError, StoreConflictError, StoreError, UnknownKeyError
from flowfn.serde import EncryptedSerializer, Keyring, Serializer, default_keyring, key_file
from tests.checkpoint.filling import PLACE, RUN, call, filled, question, start

OWN, OTHER = "the-secret-of-our-machine", "the-secret-of-another-one"
OWN_ID, OTHER_ID = (Keyring.of(secret).first.id for secret in (OWN, OTHER))


class Odd:
    """No plain data: it is pickled, and so it is signed."""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data" / "flows.db")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nobody has a key yet."""
    monkeypatch.delenv("FLOWFN_KEY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def signed_call(saver, seq):
    row = call(seq)
    return SaveCall(PLACE, RUN, row._replace(payload=saver.serde.dumps(Odd(), "", cells.call(PLACE, RUN, row.key))))


def with_pickle(path):
    """A closed file with one pickled result."""
    with SqliteSaver(path) as saver:
        start(saver)
        saver.save([signed_call(saver, 1)])
    return path


def listed(path):
    with sqlite3.connect(path) as connection:
        return [id for (id,) in connection.execute("SELECT id FROM keys ORDER BY since")]


def result(saver):
    return outcome(saver.calls(PLACE, RUN)[0], PLACE, RUN, saver.serde)


# ---------------------------------------------------------------- which keys


def test_a_file_signs_with_the_keys_of_the_environment(path, monkeypatch):
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    with_pickle(path)
    assert listed(path) == [OWN_ID]
    assert type(result(SqliteSaver(path))) is Odd
    assert SqliteSaver(path).serde.keys is default_keyring()


def test_a_key_is_made_when_the_first_pickle_is_stored_and_not_before(path):
    filled(path)
    with SqliteSaver(path) as saver:
        saver.trust()
        assert not key_file().exists()
        saver.save([signed_call(saver, 900)])
    assert key_file().exists()
    assert not any("key" in name for name in os.listdir(os.path.dirname(path)))
    assert listed(path) == [default_keyring().first.id]


def test_a_serializer_with_keys_of_its_own_keeps_them(path):
    own = Keyring.of(OTHER)
    assert SqliteSaver(path, serde=Serializer(keys=own)).serde.keys is own
    given = Serializer(allow_pickle=False)
    assert SqliteSaver(path, serde=given).serde.keys is default_keyring()
    assert SqliteSaver(path, serde=given).serde.allow_pickle is False
    assert given.keys is None


def test_what_lives_in_memory_needs_no_key():
    for saver in (InMemorySaver(), SqliteSaver(":memory:")):
        start(saver)
        saver.save([signed_call(saver, 1)])
        assert type(result(saver)) is Odd
    assert not key_file().exists()


# ---------------------------------------------------------------- the list of a file


def test_a_key_is_listed_with_the_first_payload_that_it_signed_or_not_at_all(path, monkeypatch):
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    saver = SqliteSaver(path)
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1))])
    with pytest.raises(StoreConflictError):
        saver.save([signed_call(saver, 2), SaveCall(PLACE, RUN, call(1))])
    assert listed(path) == []
    saver.save([signed_call(saver, 2)])
    assert listed(path) == [OWN_ID]
    monkeypatch.setenv("FLOWFN_KEY", f"{OTHER},{OWN}")
    saver.save([signed_call(saver, 3), signed_call(saver, 4)])
    assert listed(path) == [OWN_ID, OTHER_ID]


STORES = {
    "answer": lambda saver: saver.answer("t", {question(1).id: Odd()}),
    "put": lambda saver: saver.put({"thread_id": "t"}, checkpoint(x=Odd()), {}, {"x": 1}),
    "metadata": lambda saver: saver.put({"thread_id": "t"}, checkpoint(), {"mark": Odd()}, {}),
    "put_writes": lambda saver: saver.put_writes({"thread_id": "t", "checkpoint_id": RUN}, [("x", Odd())], "task"),
    "question": lambda saver: saver.save(
        [
            SaveQuestion(
                PLACE,
                question(2)._replace(payload=saver.serde.dumps(Odd(), "", cells.question("t", question(2).id))),
            )
        ]
    ),
}


def checkpoint(**values):
    versions = dict.fromkeys(values, 1)
    return {"id": "9", "ts": "", "channel_values": values, "channel_versions": versions, "versions_seen": {}}


@pytest.mark.parametrize("stored", STORES)
def test_a_key_is_listed_whatever_it_signed(path, monkeypatch, stored):
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    with SqliteSaver(path) as saver:
        start(saver)
        saver.save([SaveQuestion(PLACE, question(1))])
        assert listed(path) == []
        STORES[stored](saver)
    assert listed(path) == [OWN_ID]


def test_a_copied_and_a_forgotten_thread_leave_the_list_as_it_is(path, monkeypatch):
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    with_pickle(path)
    with SqliteSaver(path) as saver:
        saver.copy_thread("t", "u")
        saver.delete_thread("t")
        assert listed(path) == [OWN_ID]
        assert type(outcome(saver.calls(Place("u"), RUN)[0], Place("u"), RUN, saver.serde)) is Odd


def test_a_call_of_plain_data_asks_the_file_nothing_about_keys(path):
    saver = SqliteSaver(path)
    start(saver)
    saver.save([SaveCall(PLACE, RUN, call(1))])
    said = []
    saver.sql._writer.set_trace_callback(said.append)
    saver.save([SaveCall(PLACE, RUN, call(2))])
    assert not any("keys" in statement for statement in said)


# ---------------------------------------------------------------- without them


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("read_only", [False, True])
def test_who_opens_a_file_without_its_key_is_told_once_what_to_do(path, monkeypatch, caplog, read_only):
    monkeypatch.setenv("FLOWFN_KEY", OTHER)
    with_pickle(path)
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    saver = SqliteSaver(path, read_only=read_only)
    assert warnings_of(caplog) == []

    assert [row.thread for row in saver.threads()] == ["t"]
    assert saver.calls(PLACE, RUN)[0].preview == "14"
    with pytest.raises(UnknownKeyError, match="The result of task `charge`") as caught:
        result(saver)

    (told,) = warnings_of(caplog)
    for word in (path, OTHER_ID.hex(), "FLOWFN_KEY", "key file", f"flowfn.trust({path!r})"):
        assert word in told
    assert OTHER_ID.hex() in str(caught.value)
    monkeypatch.setenv("FLOWFN_KEY", f"{OWN} {OTHER}")
    assert type(result(saver)) is Odd


def test_who_has_the_key_or_needs_none_is_told_nothing(path, tmp_path, monkeypatch, caplog):
    with_pickle(path)
    SqliteSaver(path).threads()
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    SqliteSaver(filled(str(tmp_path / "plain.db"))).threads()
    assert warnings_of(caplog) == []


def test_a_viewer_without_any_key_makes_none(path, monkeypatch, tmp_path, caplog):
    with_pickle(path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    viewer = SqliteSaver(path, read_only=True)
    assert len(viewer.threads()) == 1
    with pytest.raises(UnknownKeyError):
        result(viewer)
    assert len(warnings_of(caplog)) == 1
    assert not key_file().exists()


def test_a_key_file_that_cannot_be_used_keeps_nobody_from_looking(path, monkeypatch, tmp_path, caplog):
    with_pickle(path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "careless"))
    key_file().parent.mkdir(parents=True)
    key_file().write_text(OWN)
    key_file().chmod(0o644)

    saver = SqliteSaver(path)

    assert len(saver.threads()) == 1
    (told,) = warnings_of(caplog)
    assert path in told
    assert "open to other users" in told
    with pytest.raises(NoKeyError, match="The result of task `charge` needs a key"):
        result(saver)


# ---------------------------------------------------------------- trust


def test_a_trusted_file_is_read_with_the_new_key_and_lists_no_other(path, monkeypatch, caplog):
    monkeypatch.setenv("FLOWFN_KEY", OTHER)
    with_pickle(path)
    monkeypatch.setenv("FLOWFN_KEY", OWN)

    assert trust(path) == Trusted({"result": 1}, {"charge": 1})

    assert len(warnings_of(caplog)) == 1  # of the file as it was
    assert listed(path) == [OWN_ID]
    caplog.clear()
    assert type(result(SqliteSaver(path))) is Odd
    assert warnings_of(caplog) == []
    assert trust(f"sqlite:///{path}") == Trusted({}, {})
    assert listed(path) == [OWN_ID]


def test_a_trusted_file_still_lists_older_keys_that_are_here(path, monkeypatch):
    monkeypatch.setenv("FLOWFN_KEY", OTHER)
    with_pickle(path)
    monkeypatch.setenv("FLOWFN_KEY", f"{OWN},{OTHER}")
    assert trust(path) == Trusted({}, {})
    assert listed(path) == [OTHER_ID]


def test_a_file_that_is_not_there_cannot_be_trusted_and_is_not_made(path):
    with pytest.raises(StoreError, match="is not there") as caught:
        trust(path)
    assert path in str(caught.value)
    assert not os.path.exists(os.path.dirname(path))


def test_a_viewer_cannot_trust(path):
    with_pickle(path)
    with pytest.raises(StoreError, match="for viewing only"):
        SqliteSaver(path, read_only=True).trust()


def test_without_a_key_nothing_is_trusted_and_the_file_stays_as_it_was(path, monkeypatch, tmp_path):
    with_pickle(path)
    key_file().unlink()
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))
    before = listed(path)
    with pytest.raises(NoKeyError, match="FLOWFN_KEY"):
        trust(path)
    assert listed(path) == before


def test_payloads_that_are_no_payloads_are_left_alone_by_trust(path, monkeypatch):
    monkeypatch.setenv("FLOWFN_KEY", OWN)
    with_pickle(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE channel_values SET payload = 'text'")
        connection.execute("UPDATE checkpoints SET metadata = 7, record = x''")
    assert trust(path) == Trusted({}, {})


def test_every_column_of_payloads_is_known(path):
    with SqliteSaver(path) as saver:
        start(saver)
    with sqlite3.connect(path) as connection:
        blobs = {
            (table, column[1])
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for column in connection.execute(f"PRAGMA table_info({table})").fetchall()
            if column[2] == "BLOB"
        }
    no_payloads = {("keys", "id"), ("runs", "digest"), ("questions", "base"), ("questions", "caller")}
    no_payloads |= {("calls", name) for name in ("key", "caller", "digests", "needs")}
    assert blobs - no_payloads == {(column.table, column.name) for column in COLUMNS}


# ---------------------------------------------------------------- encrypted


@pytest.fixture
def encrypted():
    pytest.importorskip("cryptography")
    return EncryptedSerializer(Keyring.of(OWN))


def test_copies_and_forks_of_an_encrypted_thread_are_encrypted_for_their_place(path, encrypted):
    with SqliteSaver(path, serde=encrypted) as saver:
        start(saver)
        saver.save([signed_call(saver, 1), SaveQuestion(PLACE, shown(saver, 1))])
        saver.answer("t", {question(1).id: "yes"})
        saver.copy_thread("t", "u")
        saver.save([SaveRun(PLACE, RunRow("0-fork", "flow", 1, 1.0, "running")), CopyRun(PLACE, RUN, "0-fork", 9)])

        for place, run in ((PLACE, RUN), (Place("u"), RUN), (PLACE, "0-fork")):
            assert type(outcome(saver.calls(place, run)[0], place, run, saver.serde)) is Odd
            row = saver.question(place.thread, question_id(run, question(1).base))
            assert interrupt_of(row, place.thread, saver.serde).value == "ok?"
            assert answer(row, place.thread, saver.serde) == "yes"
        assert saver.get_tuple({"thread_id": "u"}).checkpoint["channel_values"] == {"__start__": 1}
    assert listed(path) == [OWN_ID]


def shown(saver, number):
    row = question(number)
    return row._replace(payload=saver.serde.dumps("ok?", "", cells.question("t", row.id)))


def test_a_store_in_clear_is_encrypted_by_who_vouches_for_it(path, encrypted, monkeypatch):
    monkeypatch.setenv("FLOWFN_KEY", OTHER)
    with SqliteSaver(path) as saver:
        start(saver)
        saver.save([SaveCall(PLACE, RUN, call(1)), SaveCall(PLACE, RUN, call(2)._replace(payload=b"\x10N"))])
    with SqliteSaver(path, serde=encrypted) as saver:
        with pytest.raises(NotEncryptedError):
            result(saver)
        assert saver.trust().payloads == {"result": 2, "checkpoint": 2, "channel value": 1}
        assert result(saver) == 14
        assert saver.load(PLACE).checkpoint.checkpoint["channel_values"] == {"__start__": 1}
