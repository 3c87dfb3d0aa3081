"""Who holds something that others wait for, and whether that process is still there.

A lease in a store names its owner in such a way that a dead one is known at once on its own machine: by the machine's
boot, the process and the moment it was started, since numbers of processes are used again. Elsewhere nobody can tell,
and the lease has to lapse.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_ZOMBIES = (b"Z", b"X")
_TEXT = re.compile(r"(\S+) (\d+) (\d+) (\w+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Owner:
    """One holder in one process.

    Attributes:
        machine: one boot of one machine, and what part of its processes can be seen from here.
        pid: the process.
        started: when the process was started, in the system's own ticks; 0 where it does not say.
        token: tells holders of one process apart.
    """

    machine: str
    pid: int
    started: int
    token: str

    @classmethod
    def me(cls) -> Self:
        """A new owner in this process, equal to no other."""
        here = _here()
        return cls(here.machine, here.pid, here.started, os.urandom(8).hex())

    def is_here(self) -> bool:
        """Whether it is of this very process."""
        here = _here()
        return (self.machine, self.pid, self.started) == (here.machine, here.pid, here.started)

    def arrive(self) -> None:
        """Be known in this process until it is told to `leave`, see `is_present`."""
        _present.add(self.token)

    def leave(self) -> None:
        _present.discard(self.token)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Arrive, and leave at the end of the block."""
        self.arrive()
        try:
            yield
        finally:
            self.leave()

    def is_present(self) -> bool:
        """Whether it is here: an owner of this process that is not has ended, and left its lease behind."""
        return self.token in _present

    def is_dead(self) -> bool | None:
        """Whether its process is gone; None where that cannot be told from here."""
        here = _here()
        if self.machine != here.machine:
            return None
        if self.pid == here.pid:
            return self.started != here.started
        if sys.platform == "win32":  # where signal 0 is no question but Ctrl-C
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it is another user's
            pass
        started = _started(self.pid)
        return started is not None and started != self.started

    def __str__(self) -> str:
        """One line without blanks at its ends, from which `parsed` makes the owner again."""
        return f"{self.machine} {self.pid} {self.started} {self.token}"

    @classmethod
    def parsed(cls, text: str) -> Self | None:
        """The owner of that text, or None if it is none's."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]), found[4])


_present: set[str] = set()
"""Tokens of the owners that are at work in this process."""

_found: Owner | None = None
"""This process, as it or the one it was forked from was found."""


def _here() -> Owner:
    global _found
    pid = os.getpid()
    if _found is None or _found.pid != pid:
        _found = Owner(_boot() or _hardware(), pid, _started(pid) or 0, "")
    return _found


def _boot() -> str | None:
    """The boot of this machine and the namespace of this process: containers of one machine share its boot alone, and
    each numbers its own processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except (OSError, UnicodeDecodeError):
        return None
    return f"{boot}/{space}"


def _hardware() -> str:
    import uuid  # here, since most systems name their boot

    node = uuid.getnode()
    is_made_up = bool(node >> 40 & 1)
    return f"{node:012x}-{os.getpid()}" if is_made_up else f"{node:012x}"


def _started(pid: int) -> int | None:
    """When a process was started, 0 for one that has ended and was not waited for; None where the system does not say.

    Source: proc(5), the fields of /proc/pid/stat after the command, which may hold any character.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if state in _ZOMBIES else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None
