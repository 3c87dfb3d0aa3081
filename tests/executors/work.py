"""What the tests of this folder have done in other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from flowfn.executors import travel
from flowfn.serde import Serializer


def pid(data: bytes) -> bytes:
    return str(os.getpid()).encode()


def echo(data: bytes) -> bytes:
    return data


def meet(data: bytes) -> bytes:
    """Say that one is here, and wait until another one is."""
    folder = Path(data.decode())
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.005)
    return pid(data)


def wait_for(data: bytes) -> bytes:
    """Write down who works, then wait for a file called `go` beside that."""
    folder = Path(data.decode())
    write(folder / "pid", os.getpid())
    while not (folder / "go").exists():
        time.sleep(0.005)
    return pid(data)


def write(path: Path, number: int) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(str(number))
    draft.rename(path)


def read(path: Path) -> int:
    while not path.exists():
        time.sleep(0.005)
    return int(path.read_text())


def die(data: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def leave(data: bytes) -> bytes:
    os._exit(7)


def hang_up(data: bytes) -> bytes:
    """Close whatever is open, and leave a thread behind."""
    threading.Thread(target=time.sleep, args=[60]).start()
    os.closerange(3, 100)
    return b""


def start_another(data: bytes) -> bytes:
    """Start a process, write down which, and wait for it."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    write(Path(data.decode()) / "pid", other.pid)
    other.wait()
    return b""


def fork_and_die(data: bytes) -> bytes:
    """Leave a forked child behind that lives a while, and die."""
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    return die(data)


def is_gone(pid: int) -> bool:
    """Whether the process ends within some seconds; one that only waits to be reaped is gone."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.005)
    return False


def call(data: bytes) -> bytes:
    """Call a function that was packed with its arguments; gives what it gives, packed."""
    fn, args = travel.unpacked(data)
    return travel.packed(fn(*args))


def encoded(fn, *args):
    """What the function gives, as a store would have it; decoded where it is unpacked."""
    return FromStore(Serializer().dumps(fn(*args)))


class FromStore:
    def __init__(self, blob: bytes) -> None:
        self.blob = blob

    def __reduce__(self):
        return Serializer().loads, (self.blob,)
