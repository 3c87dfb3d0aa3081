"""A file in which somebody else has written: nothing of it is ever run, and what is refused is named.

Every column of payloads is filled, one at a time, with what an attacker may hope to have loaded; then everybody reads.
"""

import builtins
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys

import cloudpickle
import ormsgpack
import pytest

import flowfn
from flowfn import Command, entrypoint, interrupt, task
from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import FAILED, Place
from flowfn.checkpoint.columns import COLUMNS
from flowfn.errors import BadSignatureError, FlowError, MissingClassError, UnreadableError
from flowfn.serde import Keyring, Serializer, default_keyring

CONFIG = {"thread_id": "t"}
FOREIGN = Serializer(keys=Keyring.of("the secret of an attacker"))


class Kept:
    """No plain data: it is pickled, and so it is signed."""

    def __init__(self, name):
        self.name = name


@task
def check(name):
    return Kept(name)


@task
def charge(name):
    return Kept(name)


def flow_on(saver):
    @entrypoint(name="order", checkpointer=saver)
    def order(name, *, previous=None):
        checked = check(name).result().name
        charged = charge(name).result().name
        first = interrupt(Kept(f"first {name}"))
        second = interrupt(Kept(f"second {name}"))
        return flowfn.entrypoint.final(value=[checked, charged, first.name, second], save=Kept(name))

    return order


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A file with two threads. Each has a finished run, and one that has its first answer and waits for the second."""
    path = tmp_path_factory.mktemp("hostile") / "flows.db"
    with SqliteSaver(path) as saver:
        order = flow_on(saver)
        for thread in ("t", "u"):
            config = {"thread_id": thread}
            for answers in ((Kept("yes"), 1), (Kept("yes"),)):
                order.invoke(f"for {thread}", config)
                for answer in answers:
                    order.invoke(Command(resume=answer), config)
            newest = saver.get_tuple(config).config
            saver.put_writes({"configurable": {**newest["configurable"], "checkpoint_id": saver.runs(thread)[0].id}},
                             [("x", Kept("written"))], "task")  # fmt: skip
    return path


@pytest.fixture
def path(template, tmp_path):
    return shutil.copy(template, tmp_path / "flows.db")


@pytest.fixture
def saver(path):
    with SqliteSaver(path) as saver:
        yield saver


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that is there once anything has run, or a module has been imported, that must not."""
    canary = tmp_path / "canary"
    monkeypatch.setenv("CANARY", str(canary))
    (tmp_path / "tripwire.py").write_text(
        "import os\nopen(os.environ['CANARY'], 'w').close()\nclass Trap:\n    def __init__(self, *args): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield canary
    sys.modules.pop("tripwire", None)


# ---------------------------------------------------------------- what an attacker writes


class Calls:
    """Pickled, it has a function called."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


TOUCH = "open(__import__('os').environ['CANARY'], 'w').close()"
SCRIPT = f"\"{sys.executable}\" -c \"import os; open(os.environ['CANARY'], 'w').close()\""
CALLED = {
    "os.system": Calls(os.system, SCRIPT),
    "exec": Calls(builtins.exec, TOUCH),
    "eval": Calls(builtins.eval, TOUCH),
    "subprocess.call": Calls(subprocess.call, SCRIPT, -1, None, None, None, None, None, True, True),
}


def pickled(value):
    return b"\x10Pscript\n" + pickle.dumps(value)


def with_code():
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"\x10Cscript {version}\n".encode("latin-1") + cloudpickle.dumps(Calls(lambda: exec(TOUCH)))


def naming(code, name, *rest):
    """Plain data that names a class, as the kind with that code is stored."""
    return b"\x10M" + ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb([name, *(rest or ({},))])))


def as_signed(blob, id, tag=b"\0" * 16):
    """As if it was signed with the key of that id."""
    return bytes((blob[0] | 1, blob[1])) + id + blob[2:] + tag


BLOBS = {
    **{f"a pickle that calls {name}": lambda value=value: pickled(value) for name, value in CALLED.items()},
    "a pickle with code": with_code,
    "a pickle that imports": lambda: b"\x10Pscript\nctripwire\nTrap\n.",
    "a pickle signed by another key": lambda: FOREIGN.dumps(CALLED["os.system"]),
    "a pickle that claims to be signed": lambda: as_signed(pickled(CALLED["exec"]), default_keyring().first.id),
    "code that claims to be signed": lambda: as_signed(with_code(), default_keyring().first.id),
    **{
        f"data of kind {code} that names {name}": lambda code=code, name=name: naming(code, name)
        for code, name in (
            (64, "os:system"),
            (65, "subprocess:Popen"),
            (66, "builtins:exec"),
            (67, "tripwire:Trap"),
            (64, "tripwire:Trap"),
        )
    },
    "an exception of a module to import": lambda: (
        b"\x10M"
        + ormsgpack.packb(
            ormsgpack.Ext(6, ormsgpack.packb([0, [["tripwire:Trap", [], {}, {}, None, None, False, "", None]]]))
        )
    ),
    "data to import that another key signed": lambda: as_signed(
        naming(64, "tripwire:Trap"), Keyring.of("the secret of an attacker").first.id
    ),
    "data to import that claims to be signed": lambda: as_signed(
        naming(64, "tripwire:Trap"), default_keyring().first.id
    ),
    "nothing": lambda: b"",
    "half a header": lambda: b"\x10",
    "a header": lambda: b"\x11P",
    "a key's id": lambda: b"\x11P" + default_keyring().first.id,
    "a tag and nothing else": lambda: b"\x11P" + default_keyring().first.id + b"\0" * 16,
    "half a value": lambda: b"\x10M\x93\x01",
    "zeros": lambda: b"\0" * 50,
    "what is encrypted": lambda: b"\x12X" + b"\0" * 60,
    "a text": lambda: "Dear diary",
    "a number": lambda: 7,
}

NAMES = {
    ("calls", "payload"): "The result of task `",
    ("questions", "payload"): "Question `q_",
    ("questions", "answer"): "The answer to question `q_",
    ("checkpoints", "record"): "Checkpoint `",
    ("checkpoints", "metadata"): "Checkpoint `",
    ("channel_values", "payload"): "Channel `",
    ("writes", "payload"): "A write to channel `x`",
}


def poisoned(path, table, column, blob, where="1"):
    with sqlite3.connect(path) as connection:
        changed = connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (blob,)).rowcount
    assert changed > 0


# ---------------------------------------------------------------- who reads

SHOWING = {
    "calls": lambda saver, order: [saver.calls(Place("t"), run.id) for run in saver.runs("t")],
    "questions": lambda saver, order: saver.questions(),
    "question": lambda saver, order: [saver.question("t", row.id) for _, row in saver.questions("t")],
    "threads": lambda saver, order: saver.threads(),
    "runs": lambda saver, order: saver.runs("t"),
    "thread.calls": lambda saver, order: order.thread("t").calls(),
    "thread.status": lambda saver, order: order.thread("t").status(),
}
LOADING = {
    "load": lambda saver, order: saver.load(Place("t")),
    "load of an old run": lambda saver, order: saver.load(Place("t"), saver.runs("t")[1].id),
    "get_tuple": lambda saver, order: saver.get_tuple(CONFIG),
    "get_tuple of a run": lambda saver, order: saver.get_tuple({**CONFIG, "checkpoint_id": saver.runs("t")[0].id}),
    "list": lambda saver, order: list(saver.list(CONFIG)),
    "list of all": lambda saver, order: list(saver.list(None)),
    "get_state": lambda saver, order: order.get_state(CONFIG),
    "history": lambda saver, order: list(order.get_state_history(CONFIG)),
    "thread.questions": lambda saver, order: order.thread("t").questions(),
    "copy_thread": lambda saver, order: saver.copy_thread("t", "w"),
    "delete_for_runs": lambda saver, order: saver.delete_for_runs([saver.runs("u")[1].id]),
    "prune": lambda saver, order: saver.prune(["u"]),
    "answer": lambda saver, order: order.thread("t").answer("yes"),
    "resume": lambda saver, order: order.invoke(None, CONFIG),
    "fork": lambda saver, order: order.invoke(None, {**CONFIG, "checkpoint_id": saver.runs("t")[1].id}),
    "run": lambda saver, order: order.invoke("again", CONFIG),
}


def errors_of(readers, saver):
    """Who could not read, and what they were told."""
    order, errors = flow_on(saver), {}
    for name, read in readers.items():
        try:
            read(saver, order)
        except FlowError as error:
            errors[name] = error
    return errors


@pytest.mark.parametrize("blob", [blob for blob in BLOBS if blob.startswith("a pickle that") and "claims" not in blob])
def test_the_canary_tells_when_such_a_pickle_is_loaded(canary, blob):
    Serializer().loads(BLOBS[blob]())
    assert canary.exists()


def test_the_canary_tells_when_code_is_loaded_or_a_module_imported(canary):
    Serializer().loads(with_code())
    assert canary.exists()
    canary.unlink()
    keys = Keyring.of("the secret of the reader")
    good = Serializer(keys=keys).trusted(as_signed(naming(64, "tripwire:Trap"), keys.first.id))
    with pytest.raises(UnreadableError):  # the class that was imported is no dataclass
        Serializer(keys=keys).loads(good)
    assert canary.exists()


def test_every_reader_reads_the_file_as_it_was(saver):
    assert errors_of({**SHOWING, **LOADING}, saver) == {}


def test_every_column_of_payloads_is_filled(path):
    assert {(column.table, column.name) for column in COLUMNS} == NAMES.keys()
    with sqlite3.connect(path) as connection:
        for table, column in NAMES:
            blobs = connection.execute(f"SELECT count(*) FROM {table} WHERE length({column}) > 0").fetchone()
            assert blobs > (0,), (table, column)


RESULTS = ("calls", "payload")
ONE_OF_EACH_KIND = [
    "a pickle that calls os.system",
    "a pickle signed by another key",
    "a pickle that claims to be signed",
    "data of kind 64 that names tripwire:Trap",
    "nothing",
    "half a value",
    "a number",
]


@pytest.mark.parametrize(
    ("column", "blob"),
    [
        *((RESULTS, blob) for blob in BLOBS),
        *((column, blob) for column in NAMES if column != RESULTS for blob in ONE_OF_EACH_KIND),
    ],
    ids=lambda part: part if isinstance(part, str) else ".".join(part),
)
def test_nothing_that_somebody_wrote_is_run_and_what_is_refused_is_named(path, saver, canary, column, blob):
    poisoned(path, *column, BLOBS[blob](), f"{column[1]} IS NOT NULL")

    assert errors_of(SHOWING, saver) == {}
    errors = errors_of(LOADING, saver)

    assert not canary.exists()
    assert "tripwire" not in sys.modules
    told = [error for error in errors.values() if isinstance(error, UnreadableError)]
    assert len(told) >= 2, errors
    assert all(str(error).startswith((NAMES[column], NAMES[column].lower())) for error in told), told


@pytest.mark.parametrize("column", NAMES, ids=".".join)
def test_what_is_put_right_is_as_it_was(path, template, canary, column):
    poisoned(path, *column, pickled(CALLED["exec"]), f"{column[1]} IS NOT NULL")
    with SqliteSaver(path) as saver:
        assert errors_of({name: LOADING[name] for name in ("load", "get_tuple", "list", "history")}, saver)
    with sqlite3.connect(path) as connection:
        connection.execute("ATTACH ? AS template", (str(template),))
        connection.execute(f"DELETE FROM {column[0]}")
        connection.execute(f"INSERT INTO {column[0]} SELECT * FROM template.{column[0]}")
    with SqliteSaver(path) as saver:
        order = flow_on(saver)
        assert order.invoke(Command(resume="done"), CONFIG) == ["for t", "for t", "yes", "done"]


# ---------------------------------------------------------------- what was signed, elsewhere


def moved(path, table, column, key, source, target):
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE {key} = ?) WHERE {key} = ?",
            (source, target),
        )


def test_a_result_does_not_pass_for_that_of_another_task(path, saver):
    check_row, charge_row = saver.calls(Place("t"), saver.runs("t")[0].id)
    moved(path, "calls", "payload", "key", check_row.key, charge_row.key)
    with pytest.raises(BadSignatureError, match="The result of task `charge`"):
        flow_on(saver).invoke(Command(resume="yes"), CONFIG)


def test_a_result_does_not_pass_for_that_of_an_older_run(path, saver):
    new, old = (run.id for run in saver.runs("t"))
    with sqlite3.connect(path) as connection:
        numbers = dict(connection.execute("SELECT name, id FROM runs WHERE thread = 't'"))
        [blob] = connection.execute("SELECT payload FROM calls WHERE id = ?", (numbers[old] << 32 | 2,)).fetchone()
        connection.execute("UPDATE calls SET payload = ? WHERE id = ?", (blob, numbers[new] << 32 | 2))
    with pytest.raises(BadSignatureError, match="The result of task `charge`"):
        flow_on(saver).invoke(Command(resume="yes"), CONFIG)


def test_an_answer_does_not_pass_for_that_to_another_question(path, saver):
    memory = saver.load(Place("t"))
    first, second = memory.questions
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE questions SET state = 'answered', answered = 1.0, by = 'the boss', "
            "answer = (SELECT answer FROM questions WHERE id = ?) WHERE id = ?",
            (first.id, second.id),
        )
    with pytest.raises(BadSignatureError, match=f"The answer to question `{second.id}`"):
        flow_on(saver).invoke(None, CONFIG)


def test_what_was_asked_does_not_pass_for_another_question(path, saver):
    first, second = saver.load(Place("t")).questions
    moved(path, "questions", "payload", "id", first.id, second.id)
    with pytest.raises(BadSignatureError, match=f"Question `{second.id}`"):
        flow_on(saver).thread("t").questions()


def test_what_a_run_left_in_another_thread_does_not_pass_for_what_it_left_in_this_one(path, saver):
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE channel_values SET payload = (SELECT other.payload FROM channel_values AS other WHERE "
            "other.thread = 'u' AND other.channel = '__previous__') WHERE thread = 't' AND channel = '__previous__'"
        )
    with pytest.raises(BadSignatureError, match="Channel `__previous__`"):
        flow_on(saver).invoke("again", CONFIG)


def test_a_payload_with_one_bit_changed_is_refused(path, saver):
    with sqlite3.connect(path) as connection:
        for id, blob in connection.execute("SELECT id, payload FROM calls").fetchall():
            changed = blob[:-20] + bytes((blob[-20] ^ 1,)) + blob[-19:]
            connection.execute("UPDATE calls SET payload = ? WHERE id = ?", (changed, id))
    with pytest.raises(BadSignatureError, match="The result of task `check`"):
        flow_on(saver).invoke(Command(resume="yes"), CONFIG)


def test_a_class_that_is_not_imported_is_named_and_not_imported(path, saver, canary):
    poisoned(path, "calls", "payload", naming(64, "tripwire:Trap"), "id & 0xffffffff = 1")
    with pytest.raises(MissingClassError, match=r"`tripwire\.Trap`"):
        flow_on(saver).invoke(Command(resume="yes"), CONFIG)
    assert not canary.exists()


# ---------------------------------------------------------------- what is no payload


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "code", "{"),
        ("runs", "code", "[1]"),
        ("questions", "schema", "{"),
        ("questions", "state", "whatever"),
        ("calls", "flags", FAILED),
        ("calls", "step", -5),
        ("calls", "needs", b"odd"),
        ("threads", "status", "whatever"),
        ("checkpoints", "run", 7),
        ("channel_values", "version", "1"),
    ],
)
def test_other_columns_are_told_or_taken_as_they_are_and_nothing_is_run(path, saver, canary, table, column, value):
    poisoned(path, table, column, value)
    errors_of({**SHOWING, **LOADING}, saver)
    assert not canary.exists()
