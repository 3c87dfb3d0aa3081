"""What the suites of savers share: each saver, blocking and awaited, and rows to save."""

import asyncio
import json

from flowfn.checkpoint.base import (
    FAILED,
    CallRow,
    CopyRun,
    Place,
    QuestionRow,
    RunRow,
    SaveCall,
    SaveCheckpoint,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    UseAnswer,
    call_checkpoint_id,
    question_id,
)
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.checkpoint.sqlite import SqliteSaver
from flowfn.serde import Keyring, Serializer

PLACE = Place("t")
RUN = "0000-a"
NEXT = "0001-b"


class Awaited:
    """A saver whose methods are its awaited twins, each called on an event loop of its own."""

    def __init__(self, saver):
        self.saver = saver

    def __getattr__(self, name):
        twin = getattr(self.saver, f"a{name}", None)
        if twin is None:
            return getattr(self.saver, name)
        if name == "list":
            return lambda *args, **kwargs: asyncio.run(gathered(twin(*args, **kwargs)))
        return lambda *args, **kwargs: asyncio.run(twin(*args, **kwargs))


async def gathered(items):
    return [item async for item in items]


SAVERS = {
    "memory": lambda folder: InMemorySaver(),
    "memory-signed": lambda folder: InMemorySaver(Serializer(keys=Keyring.of("a secret of these tests"))),
    "sqlite": lambda folder: SqliteSaver(folder / "flows.db"),
    "sqlite-in-memory": lambda folder: SqliteSaver(":memory:"),
}


def checkpoint(id, versions=None, **values):
    return {
        "v": 4,
        "id": id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1) if versions is None else versions,
        "versions_seen": {"flow": {"__start__": 1}},
        "updated_channels": list(values),
    }


def metadata(source="input", step=-1, run=RUN):
    return {"source": source, "step": step, "parents": {}, "run": run}


def save_checkpoint(
    saver, id=RUN, *, place=PLACE, parent=None, versions=None, source="input", step=-1, run=RUN, **values
):
    row = checkpoint(id, versions, **values)
    blobs = {name: saver.serde.dumps(value) for name, value in values.items()}
    return SaveCheckpoint(place, row, metadata(source, step, run), parent, blobs)


def run_row(id=RUN, **facts):
    return RunRow(**{"id": id, "flow": "flow", "attempt": 1, "started": 1.5, "status": "running", **facts})


def start(saver, place=PLACE, run=RUN, value=1, **facts):
    saver.save(
        [
            SaveRun(place, run_row(run, **facts)),
            save_checkpoint(saver, run, place=place, run=run, __start__=value),
        ]
    )


def call(seq, step=0, committed=0, value=None, key=None, flags=0, **facts):
    made = {"caller": b"", "name": "m.f", "attempt": 1, "started": 1.25, "ended": 2.0 + seq, "digests": b"d" * 8}
    payload = InMemorySaver().serde.dumps(seq * 10 if value is None else value)
    made |= {"arguments": "7", "preview": "14", **facts}
    key = seq.to_bytes(16, "big") if key is None else key
    return CallRow(seq=seq, key=key, step=step, flags=flags, committed=committed, payload=payload, **made)


def question(run=RUN, base=b"b" * 16, ns="", step=0, asked=5.0, schema=None, value="ok?", **facts):
    facts = {"caller": b"", "key": None, "preview": "'ok?'", **facts}
    payload = InMemorySaver().serde.dumps(value)
    schema = None if schema is None else json.dumps(schema)
    id = question_id(run, base)
    return QuestionRow(
        id=id, base=base, run=run, ns=ns, step=step, asked=asked, schema=schema, payload=payload, **facts
    )


def config(checkpoint_id=None, thread="t", ns=None):
    named = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": {key: value for key, value in named.items() if value is not None}}


def ids(found):
    return [each.checkpoint["id"] for each in found]


# ---------------------------------------------------------------- whole threads

INNER = Place("t", "task:1")
THIRD = "0002-c"


def nested(saver, place, run, outer, status="running", **facts):
    """A run of a flow that was called inside of run `outer`."""
    row = save_checkpoint(saver, run, place=place, run=run, __start__=1)
    inside = {**row.metadata, "parents": {"": outer}}
    saver.save([SaveRun(place, run_row(run, status=status, **facts)), row._replace(metadata=inside)])


def finished_run(saver, run, value, parent=None, versions=(1, 2), **more):
    """A run of two checkpoints, one call and one answered question; its result is in the channel `previous`."""
    first, last = versions
    asked = question(run)
    start_row = save_checkpoint(saver, run, parent=parent, run=run, versions={"in": first, **more}, **{"in": value})
    saver.save([SaveRun(PLACE, run_row(run, committed=1)), start_row, SaveCall(PLACE, run, call(1))])
    saver.save([SaveQuestion(PLACE, asked), SaveWrites(PLACE, run, "node", "", [("in", saver.serde.dumps(value))])])
    saver.answer("t", {asked.id: value})
    end = save_checkpoint(
        saver,
        run + "-z",
        parent=call_checkpoint_id(run, 0),
        source="loop",
        step=0,
        run=run,
        versions={"in": first, "previous": last},
        previous=value,
    )
    saver.save([SaveRun(PLACE, run_row(run, committed=1, status="finished")), end])


def everything(saver, thread):
    """All that can be read of a thread, without the names and the moment that differ between copies."""

    def named(value):
        return repr(value).replace(repr(thread), "'…'")

    spaces = sorted({each.config["configurable"]["checkpoint_ns"] for each in saver.list(config(thread=thread))})
    runs = {ns: saver.runs(thread, ns) for ns in spaces}
    return (
        [named(each) for each in saver.list(config(thread=thread))],
        [named(saver.load(Place(thread, ns))._replace(thread=None)) for ns in spaces],
        runs,
        [(ns, run.id, saver.calls(Place(thread, ns), run.id)) for ns in spaces for run in runs[ns]],
        [row for _, row in saver.questions(thread)],
        [row[1:4] for row in saver.threads() if row.thread == thread],
    )


def populated(saver):
    """Two runs, the second one waiting, with a nested flow, a fork, pending writes and a failed call."""
    finished_run(saver, RUN, {"a": (1,)})
    start(saver, run=NEXT, value=2, status="waiting")
    saver.save([SaveCall(PLACE, NEXT, call(1)), SaveCall(PLACE, NEXT, call(2, flags=FAILED, value=ValueError("no")))])
    saver.save([SaveQuestion(PLACE, question(NEXT)), SaveQuestion(PLACE, question(NEXT, base=b"x" * 16, step=1))])
    saver.answer("t", {question(NEXT).id: "yes"}, by="kim", note="fine")
    saver.save([UseAnswer(PLACE, question(NEXT).id, 1)])
    nested(saver, INNER, THIRD, NEXT, "waiting")
    saver.save([SaveCall(INNER, THIRD, call(1)), SaveQuestion(INNER, question(THIRD, ns="task:1"))])
    saver.save([SaveRun(PLACE, run_row("0003-d", status="failed")), CopyRun(PLACE, NEXT, "0003-d", 0)])
