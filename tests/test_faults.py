from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import socket
import ssl
import subprocess
import urllib.error
from datetime import UTC, datetime, timedelta, timezone
from email.message import Message
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from flowfn.errors import (
    Asked,
    FlowError,
    FlowWaiting,
    Paused,
    StoreError,
    TaskTimeoutError,
    UnstorableError,
    UnstorableResultError,
)
from flowfn.faults import asked_wait, default_retry_on, is_final, members

NOW = 1_700_000_000.0


def error(**carried: Any) -> Exception:
    made = Exception("busy")
    made.__dict__.update(carried)
    return made


def by_requests(status: int, **headers: str) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return requests.HTTPError("refused", response=response)


def by_httpx(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://host")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.HTTPStatusError("refused", request=request, response=httpx.Response(status, headers=named))


def by_urllib(status: int, **headers: str) -> urllib.error.HTTPError:
    message = Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://host", status, "refused", message, None)


CLIENTS = [by_requests, by_httpx, by_urllib]


class FakeClientError(Exception):
    pass


FakeClientError.__module__, FakeClientError.__qualname__ = "aiohttp.client_exceptions", "ClientError"


class FakeClientOSError(FakeClientError, OSError):
    pass


# ---------------------------------------------------------------- what may pass


@pytest.mark.parametrize(
    "passing",
    [
        ConnectionResetError(),
        TimeoutError(),
        TaskTimeoutError("fetch", 2.6, kind="run", run_timeout=2.5),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
        OSError(errno.ENETUNREACH, "unreachable"),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        urllib.error.URLError(ConnectionRefusedError()),
        FakeClientOSError(errno.EIO, "lost"),
        subprocess.TimeoutExpired("cmd", 1),
        Exception("unknown"),
        AssertionError(),
    ],
    ids=repr,
)
def test_trouble_that_may_pass_is_retried(passing):
    assert default_retry_on(passing)


@pytest.mark.parametrize(
    "lasting",
    [
        ValueError(),
        KeyError(),
        ZeroDivisionError(),
        NotImplementedError(),
        FileNotFoundError(errno.ENOENT, "none"),
        PermissionError(errno.EACCES, "no"),
        OSError(errno.ENOSPC, "full"),
        ssl.SSLCertVerificationError("expired"),
        requests.exceptions.InvalidURL("no host"),
        urllib.error.URLError("unknown url type: foo"),
        urllib.error.URLError(ssl.SSLCertVerificationError("expired")),
        StoreError("flows.db", "is full"),
        FlowError("wrong"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_what_the_next_attempt_would_meet_again_is_not_retried(lasting):
    assert not default_retry_on(lasting)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [500, 502, 503, 599, 408, 429])
def test_a_server_in_trouble_is_asked_again(client, status):
    assert default_retry_on(client(status))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_request_that_a_server_refuses_is_not_sent_again(client, status):
    assert not default_retry_on(client(status))


def test_a_status_on_the_error_itself_counts():
    assert not default_retry_on(error(status=404))
    assert not default_retry_on(error(status_code=401))
    assert default_retry_on(error(status=1)), "no HTTP status"


def test_an_error_whose_attributes_fail_is_judged_by_its_class():
    class Odd(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("not sent yet")

        retry_after = response

    assert default_retry_on(Odd())
    assert asked_wait(Odd(), NOW) == 0.0


def test_a_group_is_retried_when_each_member_is():
    assert default_retry_on(ExceptionGroup("g", [ConnectionError(), ExceptionGroup("in", [TimeoutError()])]))
    assert not default_retry_on(ExceptionGroup("g", [ConnectionError(), ValueError()]))


# ---------------------------------------------------------------- what is final


@pytest.mark.parametrize(
    "final",
    [
        Asked("q_1"),
        Paused(),
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
        FlowWaiting("bill", "t", []),
        UnstorableResultError("The result", UnstorableError("$.lock", "lock", "")),
    ],
    ids=repr,
)
def test_questions_stops_and_cancellations_are_final(final):
    assert is_final(final)
    assert is_final(BaseExceptionGroup("g", [ConnectionError(), BaseExceptionGroup("in", [final])]))


def test_a_failure_is_not_final():
    assert not is_final(ConnectionError())
    assert not is_final(ExceptionGroup("g", [ValueError()]))


def test_the_members_of_a_group_are_found_however_deep():
    one, two, three = ValueError(1), ValueError(2), ValueError(3)

    assert list(members(ExceptionGroup("g", [one, ExceptionGroup("in", [two, ExceptionGroup("deep", [three])])]))) == [
        one,
        two,
        three,
    ]
    assert list(members(one)) == [one]


# ---------------------------------------------------------------- what an error asks for


@pytest.mark.parametrize(
    "wish", [30, 30.0, timedelta(seconds=30), datetime.fromtimestamp(NOW + 30, timezone(timedelta(hours=5))), "30"]
)
def test_an_error_can_ask_to_be_left_alone(wish):
    assert asked_wait(error(retry_after=wish), NOW) == 30.0


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("120", 120.0),
        ("1.5", 1.5),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", 60.0),
        ("Tue Nov 14 22:14:20 2023", 60.0),
        ("Tue, 14 Nov 2023 22:12:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("nan", 0.0),
        ("Tue, 14 Nov 99999999999999999999 22:14:20 GMT", 0.0),
        ("", 0.0),
    ],
)
def test_a_retry_after_header_is_read(client, header, wait):
    assert asked_wait(client(503, Retry_After=header), NOW) == wait


def test_plain_dicts_of_headers_are_read_in_either_spelling():
    assert asked_wait(error(response=SimpleNamespace(headers={"retry-after": "7"})), NOW) == 7.0
    assert asked_wait(error(response=SimpleNamespace(headers={"Retry-After": 7})), NOW) == 7.0


def test_the_longest_of_several_wishes_counts():
    assert asked_wait(error(retry_after=5, response=SimpleNamespace(headers={"Retry-After": "9"})), NOW) == 9.0
    assert asked_wait(ExceptionGroup("g", [error(retry_after=2), error(retry_after=4), ValueError()]), NOW) == 4.0


@pytest.mark.parametrize(
    "nothing",
    [None, True, -1, float("nan"), float("inf"), 10**400, NOW, object(), lambda: 5, datetime(2099, 1, 1), MagicMock()],
)
def test_what_cannot_be_meant_asks_for_nothing(nothing):
    assert asked_wait(error(retry_after=nothing, response=nothing), NOW) == 0.0


@given(
    st.one_of(st.text(), st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,5} \d+:\d+:\d+ ([A-Z]+|[+-]\d+)"))
)
def test_any_text_in_the_header_asks_for_something_or_nothing(text):
    assert asked_wait(error(headers={"Retry-After": text}), NOW) >= 0.0


def test_the_wish_is_counted_from_the_moment_that_is_given():
    dated = error(retry_after=datetime.fromtimestamp(NOW, UTC))

    assert [asked_wait(dated, NOW - 10), asked_wait(dated, NOW + 10)] == [10.0, 0.0]
