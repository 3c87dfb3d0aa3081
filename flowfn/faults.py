"""What an exception says about trying again: whether it may pass, and how long it asks to be left alone.

Libraries are told by what their exceptions carry (a status, headers) and by the full names of their classes, so that
none is imported.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import CancelledError
from datetime import UTC, datetime, timedelta
from typing import Any

from flowfn.amounts import UNITS, number
from flowfn.errors import FlowError, FlowWaiting, UnstorableResultError

MISTAKES = (
    FlowError,
    ValueError,
    TypeError,
    ArithmeticError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    RuntimeError,
    ReferenceError,
    StopIteration,
    StopAsyncIteration,
)
"""What the program got wrong; the next attempt would get it wrong again."""

FINAL = (CancelledError, FlowWaiting, UnstorableResultError)
"""Exceptions that no attempt after them could mend, whatever a policy says."""

NETWORK_ERRNOS = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
NETWORK_KINDS = {"requests.exceptions.RequestException", "aiohttp.client_exceptions.ClientError"}
"""Classes of libraries that count trouble with the network among `OSError`."""

REQUEST_TIMEOUT, TOO_MANY_REQUESTS = 408, 429
LONGEST_ASK = 366 * UNITS["d"]


def default_retry_on(error: BaseException) -> bool:
    """Whether an error may pass by itself.

    Connection errors and time-outs may; an error with an HTTP status may if that is 5xx, 408 or 429; what the program
    got wrong (`ValueError`, `TypeError`, `RuntimeError`, …) and other errors of the operating system may not; all else
    may. A group may if each of its members may.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(default_retry_on, error.exceptions))
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if not isinstance(error, Exception):
        return False
    status = _status(error)
    if status is not None:
        return status >= 500 or status in (REQUEST_TIMEOUT, TOO_MANY_REQUESTS)
    if isinstance(error, MISTAKES):
        return False
    return not isinstance(error, OSError) or _is_of_network(error)


def is_final(error: BaseException) -> bool:
    """Whether no policy may try again: a question, a stop, a cancellation, an exit, a result that cannot be stored, or
    a group that holds one of them."""
    return any(not isinstance(one, Exception) or isinstance(one, FINAL) for one in members(error))


def members(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, however deep; of an error that is none, itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from members(one)
    else:
        yield error


def asked_wait(error: BaseException, now: float) -> float:
    """Seconds that an error asks to be left alone, 0.0 when it does not ask; of a group, the longest.

    Read are `retry_after` (seconds, a timedelta, or an aware moment) and the `Retry-After` header, of `response` or of
    the error itself. More than a year is taken for a mistake, not for a wish.

    Args:
        now: seconds since 1970.
    Source: RFC 9110, section 10.2.3.
    """
    return max(_asked(wish, now) for one in members(error) for wish in _wishes(one))


def _wishes(error: BaseException) -> tuple[Any, Any, Any]:
    return _read(error, "retry_after"), _retry_header(_read(error, "response")), _retry_header(error)


def _asked(wish: Any, now: float) -> float:
    if isinstance(wish, str):
        wish = _of_header(wish)
    if isinstance(wish, timedelta):
        wish = wish.total_seconds()
    elif isinstance(wish, datetime) and wish.tzinfo is not None:
        wish = wish.timestamp() - now
    wait = number(wish)
    return wait if wait is not None and 0.0 < wait <= LONGEST_ASK else 0.0


def _of_header(text: str) -> float | datetime | None:
    from email.utils import parsedate_to_datetime  # here, since only a header needs it

    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _retry_header(holder: Any) -> Any:
    get = _read(_read(holder, "headers"), "get")
    try:
        return get("Retry-After") or get("retry-after")
    except Exception:  # headers of a kind we do not know ask for nothing
        return None


def _status(error: Exception) -> int | None:
    for holder, name in ((_read(error, "response"), "status_code"), (error, "status_code"), (error, "status")):
        found = _read(holder, name)
        if isinstance(found, int) and 400 <= found < 600:
            return found
    return None


def _is_of_network(error: OSError) -> bool:
    reason = _read(error, "reason")  # what urllib's URLError wraps
    if isinstance(reason, Exception):
        return default_retry_on(reason)
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, socket.gaierror) or error.errno in NETWORK_ERRNOS or not names.isdisjoint(NETWORK_KINDS)


def _read(thing: Any, name: str) -> Any:
    """An attribute, or None also when reading it fails: the error at hand matters more."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None
