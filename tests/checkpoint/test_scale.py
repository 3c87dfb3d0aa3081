"""In a file of many threads nothing that is listed, read or tidied looks at every row: each plan uses an index.

`python tests/checkpoint/test_scale.py 100000` fills a file of so many threads, ten calls each, and prints what each
operation takes.
"""

import statistics
import sys
import tempfile
import time

import pytest

from flowfn.checkpoint import SqliteSaver
from flowfn.checkpoint.base import Place, RunRow, SaveCall, SaveCheckpoint, SaveQuestion, SaveRun
from tests.checkpoint.filling import call, question

STATUSES = ["finished"] * 88 + ["waiting"] * 10 + ["failed", "running"]
CALLS = 10


def name(number):
    return f"thread-{number:06d}"


def run_of(number):
    return f"{number:08x}-run"


def fill(saver, threads, calls=CALLS):
    """Threads of seven flows, in every status, a tenth of them with an open question."""
    blob, saves = saver.serde.dumps(1), []
    for number in range(threads):
        place, run, status = Place(name(number)), run_of(number), STATUSES[number % 100]
        checkpoint = {"v": 4, "id": run, "ts": "", "channel_values": {}, "channel_versions": {"__start__": 1}}
        checkpoint |= {"versions_seen": {}, "updated_channels": ["__start__"]}
        metadata = {"source": "input", "step": -1, "parents": {}, "run": run}
        saves.append(SaveRun(place, RunRow(run, f"app.flow{number % 7}", 1, 1.0, status, committed=calls)))
        saves.append(SaveCheckpoint(place, checkpoint, metadata, None, {"__start__": blob}))
        saves += [SaveCall(place, run, call(seq)) for seq in range(1, calls + 1)]
        if status == "waiting":
            saves.append(SaveQuestion(place, question(number, run)))
        if len(saves) > 200:
            saver.save(saves)
            saves = []
    saver.save(saves)


READS = {
    "threads()": lambda saver: saver.threads(),
    "threads(limit=50)": lambda saver: saver.threads(limit=50),
    "threads('waiting', limit=50)": lambda saver: saver.threads("waiting", limit=50),
    "threads(flow=…, limit=50)": lambda saver: saver.threads(flow="app.flow3", limit=50),
    "threads('failed', flow=…)": lambda saver: saver.threads("failed", flow="app.flow3", limit=50),
    "questions()": lambda saver: saver.questions(),
    "questions(thread)": lambda saver: saver.questions(name(90)),
    "question(thread, id)": lambda saver: saver.question(name(90), question(90, run_of(90)).id),
    "runs(thread)": lambda saver: saver.runs(name(1)),
    "calls(place, run)": lambda saver: saver.calls(Place(name(1)), run_of(1)),
    "list(None, limit=10)": lambda saver: list(saver.list(None, limit=10)),
    "list(thread)": lambda saver: list(saver.list({"thread_id": name(1)})),
    "list(thread, ns)": lambda saver: list(saver.list({"thread_id": name(1), "checkpoint_ns": ""}, limit=10)),
    "list(before=…)": lambda saver: list(saver.list(None, before={"thread_id": "", "checkpoint_id": "1"}, limit=10)),
    "load(place)": lambda saver: saver.load(Place(name(1))),
    "get_tuple(config)": lambda saver: saver.get_tuple({"thread_id": name(1)}),
}
WRITES = {
    "copy_thread": lambda saver, n: saver.copy_thread(name(n), f"copy-{n}"),
    "prune": lambda saver, n: saver.prune([f"copy-{n}"]),
    "delete_for_runs": lambda saver, n: saver.delete_for_runs([run_of(n)]),
    "delete_thread": lambda saver, n: saver.delete_thread(name(1000 + n)),
    "answer": lambda saver, n: saver.answer(
        name(n * 100 + 188), {question(n * 100 + 188, run_of(n * 100 + 188)).id: 1}
    ),
}


@pytest.fixture(scope="module")
def saver(tmp_path_factory):
    saver = SqliteSaver(tmp_path_factory.mktemp("scale") / "flows.db", synchronous="normal")
    fill(saver, 2000, calls=2)
    yield saver
    saver.close()


def plans(connection, work):
    """Each statement that `work` runs on a connection, with its plan."""
    said = []
    connection.set_trace_callback(said.append)
    work()
    connection.set_trace_callback(None)
    words = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
    statements = list(dict.fromkeys(text for text in said if text.lstrip().startswith(words)))
    assert statements
    return {text: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")] for text in statements}


def walks_a_table(step):
    """Whether a step of a plan looks at every row; steps over values, or over rows already found, do not."""
    found_before = ("SCAN wanted", "SCAN stored", "SCAN run")
    return step.startswith("SCAN ") and "INDEX" not in step and "CONSTANT" not in step and step not in found_before


@pytest.mark.parametrize("read", READS)
def test_what_is_read_is_found_by_index(saver, read):
    saver.threads(limit=1)
    reader = saver.sql.file.connect(1)
    for idle in saver.sql._idle:
        idle.close()
    saver.sql._idle[:] = [reader]
    for text, plan in plans(reader, lambda: READS[read](saver)).items():
        assert not any(map(walks_a_table, plan)), (text, plan)
        if read.startswith(("threads", "questions()", "list(None")):
            # Sorting would look at every row; terms behind the first only order those that are equal.
            assert not any("TEMP B-TREE FOR ORDER BY" in step for step in plan), (text, plan)


@pytest.mark.parametrize("write", WRITES)
def test_what_is_tidied_is_found_by_index(saver, write):
    saver.save([])
    for text, plan in plans(saver.sql._writer, lambda: WRITES[write](saver, 0)).items():
        assert not any(map(walks_a_table, plan)), (text, plan)


def test_listings_end_at_their_limit(saver):
    assert len(saver.threads(limit=7)) == 7
    assert [row.updated for row in saver.threads(limit=50)] == sorted(
        (row.updated for row in saver.threads(limit=5000)), reverse=True
    )[:50]
    assert len(saver.questions(limit=7)) == 7
    assert len(list(saver.list(None, limit=7))) == 7


def milliseconds(work, times):
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        work(number)
        taken.append(1000 * (time.perf_counter() - begin))
    return f"{statistics.median(taken):8.2f} ms (at most {max(taken):.2f})"


def main(threads):
    with tempfile.TemporaryDirectory() as folder, SqliteSaver(f"{folder}/flows.db") as saver:
        fill(saver, threads)
        for title, read in READS.items():
            print(f"{title:32}", milliseconds(lambda _, read=read: read(saver), 15))
        for title, write in WRITES.items():
            print(f"{title:32}", milliseconds(lambda number, write=write: write(saver, number), 15))


if __name__ == "__main__":
    main(int(sys.argv[1]))
