"""Which errors LangGraph tries again and after how long, seen by running it, beside what flowfn decides."""

from __future__ import annotations

import errno
import socket
import subprocess
import time
import urllib.error
from collections.abc import Callable
from typing import Any

import httpx
import langgraph.errors
import langgraph.func
import langgraph.types
import pytest
import requests

from flowfn.errors import TaskTimeoutError
from flowfn.retry import next_wait
from flowfn.types import RetryPolicy


def by_requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("refused", response=response)


def by_httpx(status: int) -> Exception:
    response = httpx.Response(status)
    return httpx.HTTPStatusError("refused", request=httpx.Request("GET", "http://host"), response=response)


class Plain(Exception):
    pass


class WithStatus(Exception):
    def __init__(self, status: int) -> None:
        self.status_code = status


ERRORS: dict[str, Callable[[], Exception]] = {
    kind.__name__: kind
    for kind in (
        *(ConnectionError, ConnectionResetError, BrokenPipeError, TimeoutError, OSError, FileNotFoundError),
        *(PermissionError, ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, ImportError, NameError),
        *(SyntaxError, RuntimeError, NotImplementedError, RecursionError, ReferenceError, AttributeError),
        *(AssertionError, MemoryError, EOFError, BufferError, Exception, Plain),
    )
} | {
    "httpx connect": lambda: httpx.ConnectError("refused"),
    "httpx read timeout": lambda: httpx.ReadTimeout("slow"),
    "httpx 404": lambda: by_httpx(404),
    "httpx 408": lambda: by_httpx(408),
    "httpx 429": lambda: by_httpx(429),
    "httpx 500": lambda: by_httpx(500),
    "httpx 503": lambda: by_httpx(503),
    "requests connect": requests.ConnectionError,
    "requests timeout": requests.Timeout,
    "requests invalid url": requests.exceptions.InvalidURL,
    "requests without response": lambda: requests.HTTPError("refused"),
    "requests 404": lambda: by_requests(404),
    "requests 429": lambda: by_requests(429),
    "requests 500": lambda: by_requests(500),
    "urllib refused": lambda: urllib.error.URLError(ConnectionRefusedError()),
    "urllib 404": lambda: urllib.error.HTTPError("http://host", 404, "none", None, None),  # type: ignore[arg-type]
    "urllib 503": lambda: urllib.error.HTTPError("http://host", 503, "busy", None, None),  # type: ignore[arg-type]
    "status 401": lambda: WithStatus(401),
    "status 503": lambda: WithStatus(503),
    "name resolution": lambda: socket.gaierror(socket.EAI_AGAIN, "try again"),
    "unreachable": lambda: OSError(errno.ENETUNREACH, "unreachable"),
    "subprocess timeout": lambda: subprocess.TimeoutExpired("cmd", 1),
    "group of connection errors": lambda: ExceptionGroup("g", [ConnectionError(), ConnectionError()]),
    "group with a mistake": lambda: ExceptionGroup("g", [ConnectionError(), ValueError()]),
}

ON_PURPOSE = {
    "timeouts and trouble with the network are retried, also where a library counts them among OSError": [
        "TimeoutError",
        "requests connect",
        "requests timeout",
        "urllib refused",
        "urllib 503",
        "name resolution",
        "unreachable",
    ],
    "a server that says to come back later (408, 429) is asked again": ["httpx 408", "httpx 429"],
    "a request that a server refuses is not sent again, whichever library sent it": ["requests 404", "status 401"],
    "a group is retried only when each of its members is": ["group with a mistake"],
}
DIFFERENT = {name for names in ON_PURPOSE.values() for name in names}


def their_attempts(policy: Any, errors: list[Exception]) -> tuple[int, Exception]:
    """How often LangGraph runs a task that raises one error after another, the last one for ever, and how it ends."""
    attempts = 0

    @langgraph.func.task(retry_policy=policy)
    def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise errors[min(attempts, len(errors)) - 1]

    @langgraph.func.entrypoint()
    def flow(x: int) -> None:
        fail().result()

    try:
        flow.invoke(0)
    except Exception as error:
        return attempts, error
    raise AssertionError("the task never failed")


def our_attempts(policy: Any, errors: list[Exception]) -> int:
    """How often flowfn would."""
    attempt = 1
    policies = RetryPolicy.coerce(policy) or ()
    while next_wait(policies, errors[min(attempt, len(errors)) - 1], attempt, random=0.0, now=0.0) is not None:
        attempt += 1
    return attempt


def theirs(**fields: Any) -> Any:
    return langgraph.types.RetryPolicy(**{"initial_interval": 0.0, "jitter": False, **fields})


def ours(**fields: Any) -> Any:
    return RetryPolicy(**{"initial_interval": 0.0, "jitter": False, **fields})


# ---------------------------------------------------------------- which errors


@pytest.mark.parametrize("name", ERRORS)
def test_the_same_errors_are_retried_by_default_but_those_on_purpose(name):
    error = ERRORS[name]()

    they, _ = their_attempts(theirs(max_attempts=2), [error])
    we = our_attempts(ours(max_attempts=2), [error])

    assert (we != they) == (name in DIFFERENT), f"LangGraph runs it {they} times, flowfn {we}"


def test_every_difference_on_purpose_is_in_the_table():
    assert ERRORS.keys() >= DIFFERENT


def test_a_timeout_of_the_task_itself_is_retried_by_both():
    their_error = langgraph.errors.NodeTimeoutError("fetch", 2.6, kind="run", run_timeout=2.5)
    our_error = TaskTimeoutError("fetch", 2.6, kind="run", run_timeout=2.5)

    assert their_attempts(theirs(), [their_error])[0] == our_attempts(ours(), [our_error]) == 3
    facts = ("node", "elapsed", "kind", "timeout", "run_timeout", "idle_timeout")
    assert [getattr(our_error, fact) for fact in facts] == [getattr(their_error, fact) for fact in facts]


@pytest.mark.parametrize(
    "retry_on",
    [OSError, (KeyError, ValueError), [KeyError], (), lambda error: "again" in str(error)],
    ids=["class", "tuple", "list", "none", "predicate"],
)
@pytest.mark.parametrize("error", [OSError("again"), FileNotFoundError(), KeyError("again"), TypeError()], ids=repr)
def test_what_is_named_is_retried_by_both(retry_on, error):
    they, _ = their_attempts(theirs(retry_on=retry_on), [error])

    assert our_attempts(ours(retry_on=retry_on), [error]) == they


def test_a_group_of_what_is_named_is_retried_by_flowfn_alone():
    group = ExceptionGroup("g", [KeyError(), KeyError()])

    assert their_attempts(theirs(retry_on=KeyError), [group])[0] == 1
    assert our_attempts(ours(retry_on=KeyError), [group]) == 3


def test_a_predicate_that_fails_hides_the_error_of_the_task_in_langgraph_alone():
    def fails(error: Exception) -> bool:
        raise LookupError("no such status")

    error = OSError("disk")

    attempts, raised = their_attempts(theirs(retry_on=fails), [error])

    assert (attempts, type(raised)) == (1, LookupError)
    assert our_attempts(ours(retry_on=fails), [error]) == 1
    assert "no such status" in error.__notes__[-1]


# ---------------------------------------------------------------- how often


@pytest.mark.parametrize("attempts", [1, 2, 3, 7])
def test_the_number_of_attempts_includes_the_first(attempts):
    assert their_attempts(theirs(max_attempts=attempts), [ConnectionError()])[0] == attempts
    assert our_attempts(ours(max_attempts=attempts), [ConnectionError()]) == attempts


@pytest.mark.parametrize(
    "errors",
    [
        [KeyError()],
        [OSError()],
        [KeyError(), OSError()],
        [OSError(), KeyError()],
        [OSError(), OSError(), OSError(), KeyError()],
        [KeyError(), TypeError()],
    ],
    ids=repr,
)
def test_the_first_policy_that_matches_decides_by_the_attempts_of_all(errors):
    def policies(of: Any) -> list[Any]:
        return [of(max_attempts=2, retry_on=KeyError), of(max_attempts=5, retry_on=(KeyError, OSError))]

    assert our_attempts(policies(ours), errors) == their_attempts(policies(theirs), errors)[0]


# ---------------------------------------------------------------- how long


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between LangGraph's attempts; its workers also hand over by `sleep(0)`, an int."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", lambda wait: waits.append(wait) if isinstance(wait, float) else None)
    return waits


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"initial_interval": 0.0},
        {"initial_interval": 3.0, "backoff_factor": 1.0},
        {"initial_interval": 1.0, "backoff_factor": 10.0, "max_interval": 50.0},
        {"initial_interval": 9.0, "max_interval": 5.0},
        {"initial_interval": 8.0, "backoff_factor": 0.5},
    ],
    ids=repr,
)
def test_without_jitter_the_waits_are_equal(fields, slept):
    fields = {"initial_interval": 0.5, "max_attempts": 6, **fields}

    their_attempts(theirs(**fields), [ConnectionError()])

    policies = [ours(**fields)]
    waits = [next_wait(policies, ConnectionError(), attempt, random=0.5, now=0.0) for attempt in range(1, 6)]
    assert waits == slept


def test_their_jitter_is_up_to_a_second_ours_up_to_half_of_the_interval(slept, monkeypatch):
    monkeypatch.setattr("random.uniform", lambda least, most: most)

    their_attempts(theirs(initial_interval=0.01, jitter=True), [ConnectionError()])

    policies = [ours(initial_interval=0.01, jitter=True)]
    waits = [next_wait(policies, ConnectionError(), attempt, random=1.0, now=0.0) for attempt in (1, 2)]
    assert slept == pytest.approx([1.01, 1.02])
    assert waits == pytest.approx([0.015, 0.03])
