"""Processes that run attempts: each runs one at a time, and can be ended without harm to the others.

A pool of the standard library's is one thing: it breaks as a whole when one of its processes dies, and cannot end one
attempt. Here each process has a connection of its own, and a thread that waits for it hears at once when it dies. The
processes are started bare. They do not run the program's main file again, so a script needs no `if __name__ ==
"__main__"` and a prompt no file: what the main module defines travels by value. They are out of reach of a Ctrl-C at
the terminal, which is the program's to deal with, and they end when the process that started them does.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.spawn import get_executable
from queue import SimpleQueue
from time import monotonic
from weakref import WeakSet

from flowfn.errors import WorkerDiedError
from flowfn.executors import threads

IDLE_SECONDS = 60.0
"""How long a process without work stays."""

SIGN_SECONDS = 0.01
"""How soon after a sign the next one is sent."""

PATIENCE = 5.0
"""Seconds that a process has to end by itself once nobody wants it any more."""

_MAIN = """\
import sys
from multiprocessing import connection
c = getattr(connection, "PipeConnection", connection.Connection)({handle})
sys.path[:], sys.argv[:] = c.recv()
from flowfn.executors.processes import serve
serve(c)"""
"""What a process runs: it takes over the path, so that it finds what the other side finds, and serves."""


class Job(Future[bytes]):
    """Work for a process: pending until one takes it, then running, then done.

    Attributes:
        begun: called once, when a process takes it.
        signed: called whenever its code has called `show_sign`.
    """

    def __init__(
        self, pool: Processes, message: bytes, begun: Callable[[], object], signed: Callable[[], object]
    ) -> None:
        super().__init__()
        self.message, self.begun, self.signed = message, begun, signed
        self._pool = pool

    def kill(self) -> None:
        """End it: drop it if no process has taken it yet, else end the process, with all that it has started."""
        if not self.cancel():
            self._pool.kill(self)


class Processes:
    """A pool of processes, each started when it is needed and ended when it is not; the one used last goes first.

    Args:
        max_workers: how many at most; by default as many as this process may use cores.
    """

    def __init__(self, max_workers: int | None = None) -> None:
        self.max_workers = max_workers or cores()
        _pools.add(self)
        self.forget()

    def forget(self) -> None:
        """Be as new. A forked child calls it, for the processes and the threads that feed them are its parent's."""
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._idle: list[Process] = []
        self._at_work: dict[Job, Process] = {}
        self._feeders = self._ends = 0
        self._is_watched = False

    def submit(
        self,
        fn: Callable[[bytes], bytes],
        data: bytes,
        begun: Callable[[], object] = lambda: None,
        signed: Callable[[], object] = lambda: None,
    ) -> Job:
        """Have a process call `fn(data)`.

        Args:
            fn: a function of a module; it gives at least one byte, and what it raises ends the process.
            begun, signed: see `Job`.
        Returns:
            The future of what it gives. It fails with WorkerDiedError when the process ends before that, and with
            OSError when none could be started.
        """
        job = Job(self, f"{fn.__module__}:{fn.__qualname__}\n".encode() + data, begun, signed)
        with self._lock:
            self._jobs.append(job)
            hires = self._feeders < self.max_workers
            self._feeders += hires
        if hires:
            threads.workers.submit(self._feed)
        return job

    def kill(self, job: Job) -> None:
        """End the process that runs the job; nothing happens when none does, or no longer."""
        with self._lock:
            process = self._at_work.get(job)
            if process is not None:
                process.kill()

    def end(self) -> None:
        """End the processes that are idle, and each of the others after its job. Work that comes later starts new
        ones."""
        with self._lock:
            self._ends += 1
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    # --- as many threads as processes are at work

    def _feed(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._feeders -= 1
                    return
                job, ends = self._jobs.popleft(), self._ends
                process = self._idle.pop() if self._idle else None
            if job.set_running_or_notify_cancel():
                process = self._done(job, process)
            if process is not None:
                self._keep(process, ends)
            del job, process

    def _done(self, job: Job, process: Process | None) -> Process | None:
        """Have the job done; gives the process that did it, None when it has not survived."""
        try:
            if process is not None and not process.is_alive():
                process.end()
                process = None
            process = process or Process()
            with self._lock:
                self._at_work[job] = process
            try:
                job.begun()
                reply = process.ask(job.message, job.signed)
            finally:
                with self._lock:
                    del self._at_work[job]
        except Exception as error:
            if process is not None:
                process.abandon()
            job.set_exception(error)
            return None
        job.set_result(reply)
        return process

    def _keep(self, process: Process, ends: int) -> None:
        """Keep a process for the next job, or end it.

        Args:
            ends: how often `end` had been called when it began.
        """
        process.idle_since = monotonic()
        with self._lock:
            is_kept = self._ends == ends
            watches = is_kept and not self._is_watched
            if is_kept:
                self._idle.append(process)
                self._is_watched = True
        if watches:
            threads.later(IDLE_SECONDS, self._tidy)
        elif not is_kept:
            process.end()

    def _tidy(self) -> None:
        """End what has been idle for too long, and look again later if something is left."""
        with self._lock:
            oldest = monotonic() - IDLE_SECONDS
            idle, self._idle = self._idle, [process for process in self._idle if process.idle_since > oldest]
            self._is_watched = bool(self._idle)
        if self._is_watched:
            threads.later(IDLE_SECONDS, self._tidy)
        for process in idle:
            if process.idle_since <= oldest:
                threads.workers.submit(process.end)


class Process:
    """One process that does what comes over its connection."""

    idle_since = 0.0

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._popen = _started(theirs)
        _processes.add(self)
        try:
            self._connection.send((sys.path, sys.argv))
        except OSError:
            raise self._death() from None

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, message: bytes, signed: Callable[[], object]) -> bytes:
        """Send a message and wait for the reply; an empty one is a sign that work goes on.

        Raises:
            WorkerDiedError: the process ended before it had replied.
        """
        try:
            self._connection.send_bytes(message)
            while not (reply := self._connection.recv_bytes()):
                signed()
            return reply
        except (EOFError, OSError):
            raise self._death() from None

    def kill(self) -> None:
        """End it and all that it has started, at once."""
        if self._popen.returncode is not None:
            return
        if sys.platform == "win32":
            self._popen.kill()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let it end by itself, now that it has nothing to do."""
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(PATIENCE)
        self.abandon()

    def abandon(self) -> int:
        """End it, if it has not ended yet, and all that it has started; gives its exit code."""
        self._close()
        self.kill()
        return self._popen.wait()

    def _close(self) -> None:
        _processes.discard(self)
        self._connection.close()

    def _death(self) -> WorkerDiedError:
        """What became of the process, now that its connection is dead."""
        return WorkerDiedError(f"process {self._popen.pid} {_ending(self.abandon())}")

    def forget(self) -> None:
        """Close this end of the connection in a forked child: it must not keep the process from hearing of the death
        of the one that started it."""
        self._connection.close()
        self._popen.returncode = 0  # so that nobody warns of a child of ours that runs


def _started(connection: Connection) -> subprocess.Popen[bytes]:
    """A new process that serves the other end of the connection."""
    handle = connection.fileno()
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [get_executable(), *flags, "-c", _MAIN.format(handle=handle)]
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
        info = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})
        group = subprocess.CREATE_NEW_PROCESS_GROUP
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, startupinfo=info, creationflags=group)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[handle], process_group=0)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit status {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---------------------------------------------------------------- in such a process


def serve(connection: Connection) -> None:
    """Do what comes over the connection, one thing after another, until the other end is closed."""
    global _server
    _server = _Server(connection)
    try:
        _server.work()
    except BaseException:
        traceback.print_exc()
        _flush()
        os._exit(1)  # at once: threads that a task has left behind would keep the process, and the other end waiting


def show_sign() -> None:
    """Let whoever waits for this process know that its work goes on; for nobody in a process that is no worker."""
    if _server is not None:
        _server.show_sign()


class _Server:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()
        self._sending = threading.Lock()
        self._is_busy = False
        self._signed = 0.0
        if hasattr(os, "register_at_fork"):
            # A child of a task's would otherwise hide from the other end that this process has died.
            os.register_at_fork(after_in_child=connection.close)

    def work(self) -> None:
        threading.Thread(target=self._listen, name="flowfn-listener", daemon=True).start()
        while (message := self._messages.get()) is not None:
            name, _, data = message.partition(b"\n")
            reply = _function(name)(data)
            _flush()
            with self._sending:
                self._is_busy = False
                self._connection.send_bytes(reply)

    def show_sign(self) -> None:
        with self._sending:
            if self._is_busy and monotonic() - self._signed > SIGN_SECONDS:
                self._signed = monotonic()
                self._connection.send_bytes(b"")

    def _listen(self) -> None:
        """Hear of the other end's death also while something is done for it: then nobody wants it any more."""
        try:
            while True:
                message = self._connection.recv_bytes()
                self._is_busy = True
                self._messages.put(message)
        except (EOFError, OSError):
            if self._is_busy:
                _die()
            self._messages.put(None)


_server: _Server | None = None


@cache
def _function(name: bytes) -> Callable[[bytes], bytes]:
    module, _, qualname = name.decode().partition(":")
    function: Callable[[bytes], bytes] = getattr(importlib.import_module(module), qualname)
    return function


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or none at all
            stream.flush()


def _die() -> None:
    """End this process and all that it has started."""
    if sys.platform == "win32":
        os._exit(1)
    os.killpg(0, signal.SIGKILL)


# ---------------------------------------------------------------- in all of this process

_pools: WeakSet[Processes] = WeakSet()
_processes: set[Process] = set()

shared = Processes()
"""The pool of all flows of this process."""


def _in_child() -> None:
    for process in _processes:
        process.forget()
    _processes.clear()
    for pool in list(_pools):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
