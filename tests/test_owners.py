"""Whose process is still there, and whose is gone."""

import os
import signal
import sys
from dataclasses import replace

import pytest

from flowfn.owners import Owner

KILL = os.kill


class Other:
    """Another process, which only waits, and an owner in it."""

    def __init__(self):
        (hears, tells), (waits, self.holds) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.holds)
            os.write(tells, str(Owner.me()).encode())
            os.read(waits, 1)
            os._exit(0)
        os.close(waits)
        self.owner = Owner.parsed(os.read(hears, 1000).decode())
        for end in (hears, tells):
            os.close(end)
        self.is_waited_for = False

    def kill(self):
        KILL(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def wait(self):
        if not self.is_waited_for:
            os.waitpid(self.pid, 0)
            os.close(self.holds)
        self.is_waited_for = True


@pytest.fixture
def other():
    other = Other()
    yield other
    if not other.is_waited_for:
        other.kill()
        other.wait()


def test_owners_of_one_process_are_told_apart():
    assert Owner.me() != Owner.me()
    assert replace(Owner.me(), token="") == replace(Owner.me(), token="")


def test_an_owner_is_read_back_from_its_text():
    me = Owner.me()
    assert Owner.parsed(str(me)) == me


@pytest.mark.parametrize("text", ["", "boot 12", "boot x 1 t", "boot 1 1 t t", "a\nb 1 1 t"])
def test_a_text_that_names_nobody_gives_none(text):
    assert Owner.parsed(text) is None


def test_this_process_is_alive():
    assert Owner.me().is_dead() is False


def test_another_process_is_alive_until_it_is_killed(other):
    assert other.owner.is_dead() is False
    other.kill()
    assert other.owner.is_dead() is True  # though nobody has waited for it, and its number is still taken
    other.wait()
    assert other.owner.is_dead() is True


def test_a_process_that_got_the_number_of_a_dead_one_is_not_it(other):
    owner = other.owner
    assert replace(owner, started=owner.started + 1).is_dead() is True
    assert replace(Owner.me(), started=1).is_dead() is True


def test_of_another_machine_nobody_can_tell(other):
    elsewhere = replace(other.owner, machine="elsewhere")
    assert elsewhere.is_dead() is None
    other.kill()
    other.wait()
    assert elsewhere.is_dead() is None


def test_a_process_of_somebody_else_counts_as_alive(other, monkeypatch):
    def refused(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert other.owner.is_dead() is False


def test_where_the_system_tells_little_a_running_process_counts_as_alive(other, monkeypatch):
    monkeypatch.setattr("flowfn.owners._started", lambda pid: None)
    assert other.owner.is_dead() is False
    other.kill()
    other.wait()
    assert other.owner.is_dead() is True


def test_a_signal_is_never_sent_where_it_would_interrupt(other, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("a signal was sent"))
    assert other.owner.is_dead() is None


def test_a_forked_child_is_another_owner(other):
    assert (Owner.me().pid, other.owner.pid) == (os.getpid(), other.pid)
