"""Ctrl-C and SIGTERM as a pause: what runs comes to its end and is stored, and nothing more begins.

The first signal pauses every run of this process that can go on in another one. When the grace time is over, or at a
second Ctrl-C, what still runs is given up: a flow's own code is interrupted in the main thread, and what other threads
do is no longer waited for. A second SIGTERM, or a third Ctrl-C, does what it does without flowfn.

A handler interrupts the main thread anywhere, also where it holds a lock. So it takes none: it notes the signal and
starts a thread, by the one call that takes no lock either. That thread does the rest.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flowfn.amounts import seconds
from flowfn.context import CURRENT
from flowfn.errors import FlowPaused, Paused, PolicyError

if TYPE_CHECKING:
    from flowfn.pregel.run import Run

GRACE = 5.0
"""Seconds that what runs is given where `FLOWFN_GRACE` does not say. Docker kills after ten."""

LAST_GRACE = 1.0
"""Seconds that coroutines are given to end once they were cancelled."""

POKE = 0.05
"""How often a flow's code is interrupted, until it ends."""

ECHO = 0.2
"""Signals that come so close together are one: a wrapper may hand on what the terminal has sent to both."""

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
WATCHED = (signal.SIGINT,) if sys.platform == "win32" else (signal.SIGINT, signal.SIGTERM)

Word: TypeAlias = Literal["hurry", "over", "silence"]

_running: dict[Run, int] = {}
"""The outermost runs that can go on in another process, each with the thread that drives it."""

_watch: Watch | None = None
_command = ""


@contextmanager
def going_on_by(command: str) -> Iterator[None]:
    """While it is entered, people are told that this command goes on with what was paused."""
    global _command
    before, _command = _command, command
    try:
        yield
    finally:
        _command = before


class Watched:
    """While it is entered, a signal pauses the run.

    Raises at its end:
        FlowPaused: a signal has paused the run.
        KeyboardInterrupt: a second one did not let it come to an end; or a Ctrl-C came when it just had.
    """

    __slots__ = ("_run", "_watch")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watch: Watch | None = None

    def __enter__(self) -> None:
        run = self._run
        if run.parent is not None:
            run.stop = run.stop or run.parent.run.stop  # it came before this run was known
        elif run.can_go_on_elsewhere:
            driver = threading.get_ident()
            if driver == threading.main_thread().ident:
                self._watch = _entered_watch()
            _running[run] = driver
            watch = _watch
            if watch is not None and watch.signal:
                watch.pause(run, driver)

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        run, watch = self._run, self._watch
        stop = run.stop
        is_paused = isinstance(stop, Paused) and bool(stop.signal) and isinstance(error, Paused | KeyboardInterrupt)
        is_hurried = watch is not None and watch.is_hurried
        if run not in _running:
            return
        try:
            if watch is not None:
                watch.leave(is_told=is_paused)
        finally:
            del _running[run]
        if is_paused and is_hurried and type(error) is not KeyboardInterrupt:
            raise KeyboardInterrupt from None
        if is_paused and not is_hurried:
            assert isinstance(stop, Paused)
            raise FlowPaused(run.title, run.place.thread, stop.reason, stop.signal) from None


def _entered_watch() -> Watch:
    global _watch
    if _watch is None:
        _watch = Watch()
    _watch.runs += 1
    return _watch


class Watch:
    """The handlers, from the first run of the main thread that begins to the last one that ends.

    Attributes:
        signal: the first one that came, else 0.
        is_hurried: whether a second one came.
        runs: how many runs of the main thread are under way.
    """

    def __init__(self) -> None:
        self.signal = self.runs = 0
        self.is_hurried = self._is_told = self._is_poked = self._is_over = False
        self._since = 0.0
        self._paused: dict[Run, int] = {}
        self._words: SimpleQueue[Word] = SimpleQueue()
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._before: dict[int, Any] = {}
        for number in WATCHED:
            handler = signal.getsignal(number)
            if _is_default(number, handler):
                self._before[number] = handler
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """May run inside any line of the main thread; takes no lock."""
        now = time.monotonic()
        if self._is_poked and number == signal.SIGINT:
            self._is_poked = False
            if _is_users(frame) and CURRENT.get() is not None:
                raise KeyboardInterrupt
        elif not self.signal:
            self.signal, self._since = number, now
            _thread.start_new_thread(self._see_to_it, ())
        elif now - self._since < ECHO:
            return
        elif number == signal.SIGINT and not self.is_hurried:
            self.is_hurried = True
            self._words.put("hurry")
        else:
            self.restore(number)
            signal.raise_signal(number)

    def restore(self, *numbers: int) -> None:
        """The handlers are as they were."""
        for number in numbers or self._before:
            signal.signal(number, self._before[number])

    def leave(self, is_told: bool) -> None:
        """A run of the main thread has ended.

        Args:
            is_told: whether its caller is told of the signal.
        """
        global _watch
        self._is_told |= is_told
        self.runs -= 1
        if self.runs:
            return
        _watch = None
        with self._lock:
            self._is_over = True
        given_up = time.monotonic() + LAST_GRACE
        while self._is_poked and time.monotonic() < given_up:
            time.sleep(0)  # a poke is on its way, and must not meet another handler
        self.restore()
        self._words.put("over")
        if self.signal and not self._is_told:
            signal.raise_signal(self.signal)

    # --- in a thread of its own

    def _see_to_it(self) -> None:
        with self._lock:
            if self._is_over:  # whoever runs by now began after the signal
                return
            for run, driver in list(_running.items()):
                self.pause(run, driver)
        grace = _grace()
        self._tell(list(self._paused), grace)
        if self._heard(grace) == "over":
            return
        for run in list(self._paused):
            run.pause("", ends_coroutines=True)
        last = time.monotonic() + LAST_GRACE
        while True:
            is_last = time.monotonic() >= last
            given_up = list(self._paused.items())
            for run, driver in given_up:
                run.give_up(driver, everything=is_last)
            # Interrupted, a coroutine might take its event loop along; cancelled, it does not.
            if is_last or any(driver == self._main and run.crew.loop is None for run, driver in given_up):
                self._poke()
            if self._heard(POKE) == "over":
                return

    def pause(self, run: Run, driver: int) -> None:
        """Have the run stop; coroutines are let finish as well."""
        self._paused[run] = driver
        run.pause(NAMES[signal.Signals(self.signal)], self.signal, ends_coroutines=False)

    def _tell(self, paused: Sequence[Run], grace: float) -> None:
        if not paused:
            return
        runs = ", ".join(f"`{run.title}` on thread `{run.place.thread}`" for run in paused)
        commands = [_command] if _command else [run.how_to_resume for run in paused]
        with suppress(Exception):  # nobody may be there to read it
            print(
                f"flowfn pauses {runs}: what runs may finish within {grace:g} s; Ctrl-C again stops it at once. "
                f"Go on with: {'; '.join(commands)}",
                file=sys.stderr,
                flush=True,
            )

    def _heard(self, timeout: float) -> Word:
        try:
            return self._words.get(timeout=timeout)
        except Empty:
            return "silence"

    def _poke(self) -> None:
        """Interrupt a flow's code in the main thread, also in a call of the system that waits.

        While the runtime is at work there nothing is sent: a person's press would not be told from it.
        """
        with self._lock:
            is_heard = signal.getsignal(signal.SIGINT) == self._on_signal
            if self._is_over or not is_heard or not _is_users(sys._current_frames().get(self._main)):
                return
            self._is_poked = True
            if sys.platform == "win32":
                _thread.interrupt_main()
            else:
                signal.pthread_kill(self._main, signal.SIGINT)


def _is_default(number: int, handler: Any) -> bool:
    """Whether nobody but Python itself has a say in that signal: `asyncio.run` cancels its main task at a Ctrl-C."""
    if number != signal.SIGINT:
        return bool(handler == signal.SIG_DFL)
    asyncios = getattr(asyncio.Runner, "_on_sigint", signal.default_int_handler)
    return handler is signal.default_int_handler or getattr(getattr(handler, "func", 0), "__func__", 0) is asyncios


def _is_users(frame: FrameType | None) -> bool:
    """Whether a user's code runs, and not the runtime's on its behalf."""
    while frame is not None and _package(frame) in sys.stdlib_module_names:
        frame = frame.f_back
    return frame is not None and _package(frame) != "flowfn"


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _grace() -> float:
    told = os.environ.get("FLOWFN_GRACE", "").strip()
    if not told:
        return GRACE
    try:
        return seconds(float(told) if told.replace(".", "", 1).isdecimal() else told, "FLOWFN_GRACE", may_be_zero=True)
    except PolicyError as wrong:
        with suppress(Exception):
            print(wrong, file=sys.stderr)
        return GRACE


def _in_child() -> None:
    """A forked child runs nothing of its parent's, and ends as it would without it."""
    global _watch
    watch, _watch = _watch, None
    _running.clear()
    if watch is not None:
        watch.restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
