"""The main job: hundreds of real files are digested, and the process is killed again and again."""

from __future__ import annotations

import importlib
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from flowfn.checkpoint import SqliteSaver, cells
from flowfn.checkpoint.base import Place

pytestmark = pytest.mark.timeout(180)

FILES = 300

# The example, with a note of each file that it begins to digest.
NOTING = """
import sys
import digest_library

class Noting(list):
    def append(self, path):
        super().append(path)
        with open(sys.argv[1], "a") as notes:
            notes.write(path + chr(10))

digest_library.digested_now = Noting()
digest_library.main(sys.argv[2])
"""


def stored_files(database: Path) -> set[str]:
    if not database.exists():
        return set()
    saver = SqliteSaver(database)
    [thread] = saver.threads()
    place, run = Place(thread.thread), thread.run
    rows = [row for row in saver.calls(place, run) if row.name.endswith(":digest")]
    return {saver.serde.loads(row.payload, cells.call(place, run, row.key)).path for row in rows}


def digested(process: subprocess.Popen[str], notes: Path, is_killed: bool) -> Counter[str]:
    """The files that a process begins to digest, until it is killed at its first word of progress, or ends."""
    assert process.stdout is not None
    for line in process.stdout:
        if is_killed and " of " in line:
            process.kill()
            break
    process.communicate()
    return Counter(notes.read_text("utf-8").splitlines() if notes.exists() else [])


def test_no_stored_file_is_digested_twice(start, tmp_path, database, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    importlib.import_module("digest_library")  # has the class of the stored values
    (tmp_path / "noting.py").write_text(NOTING, "utf-8")
    everything: Counter[str] = Counter()
    ends: list[int] = []
    for attempt in range(4):
        # given: what the processes before have stored
        stored = stored_files(database)

        # when: the next one is killed half-way, the last one comes to its end
        notes = tmp_path / f"notes{attempt}"
        process = start("noting.py", str(notes), str(FILES))
        now = digested(process, notes, is_killed=attempt < 3)
        everything += now
        ends.append(process.returncode)

        # then: it digested nothing that was stored
        assert now.keys() & stored == set()
        assert max(now.values(), default=1) == 1
        assert stored <= stored_files(database)
        if process.returncode == 0:
            break
    assert ends[0] != 0, "the first process was not killed"
    assert ends[-1] == 0
    assert len(everything) == FILES
    assert len(stored_files(database)) == FILES


def test_the_result_is_that_of_a_run_that_was_not_killed(start, run, database):
    # given
    process = start("digest_library.py", "100")
    for line in process.stdout:
        if line.startswith("50 of"):
            process.kill()
            break
    process.communicate()

    # when
    after_kill = run("digest_library.py", "100").splitlines()
    undisturbed = run("digest_library.py", "100").splitlines()

    # then
    assert after_kill[-5:] == undisturbed[-5:]
    assert after_kill[-6].partition(":")[0] == undisturbed[-6].partition(":")[0]
