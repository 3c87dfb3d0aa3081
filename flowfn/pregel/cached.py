"""Tasks with a cache policy: what names a call's entry, and what an attempt does that finds it, or finds it being made.

A call that finds the entry has its value at once. One that finds nothing claims the key, computes, and keeps what it
gives. One that finds the key claimed, here or in another process, rests without a worker until it is told. A task with
a rate or limit looks first: what needs no attempt does not wait for its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flowfn.cache.base import Hit
from flowfn.cache.flights import Claim, Held
from flowfn.cache.keys import KEY_FUNC, NO_CODE, Parts, Subject
from flowfn.errors import UnkeyedArgumentError
from flowfn.identity import packed_arguments
from flowfn.pregel.reach import deep_digest
from flowfn.serde.base import Serializer
from flowfn.serde.preview import kind_name

if TYPE_CHECKING:
    from flowfn.cache.base import Cache
    from flowfn.cache.keys import Why
    from flowfn.pregel.callee import Callee
    from flowfn.pregel.calls import Call


class Wanted(NamedTuple):
    """The entry that a call wants.

    Attributes:
        subject: the task's part of the key.
        key: all of it.
        packed, values: the arguments as bytes and as they are.
    """

    subject: Subject
    key: bytes
    packed: Sequence[bytes]
    values: Sequence[Any]

    def parts(self, serde: Serializer) -> Parts:
        """What the key is made of, for people."""
        return self.subject.parts(self.packed, [serde.preview(value) for value in self.values])


MOST_SUBJECTS = 1000
_subjects: dict[tuple[Any, ...], Subject] = {}


def wanted(callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wanted:
    """The entry that a call with these arguments wants; the callee has a cache policy.

    Raises:
        UnkeyedArgumentError: an argument cannot be part of a key.
    """
    policy = callee.cache
    assert policy is not None
    own, left_out = callee.owner or (b"", ())
    values, parameters = callee.bind(args, kwargs), callee.parameters
    key_func = policy.key_func or callee.key
    if key_func is not None:
        values, parameters, own, left_out = (key_func(*args, **kwargs),), (KEY_FUNC,), b"", ()
    subject = _subject(callee, own, parameters, policy.version)
    packed, not_packed, _ = packed_arguments(values)
    if left_out:
        raise UnkeyedArgumentError(callee.title, "self", kind_name(left_out[0]))
    if not_packed:
        raise subject.unkeyed(values)
    return Wanted(subject, subject.key(packed), packed, values)


def _subject(callee: Callee, own: bytes, parameters: tuple[str, ...], version: str | None) -> Subject:
    code = deep_digest(callee.fn) if version is None else None
    facts = (callee.title, callee.identity, own, parameters, version, code and code.digest)
    subject = _subjects.get(facts)
    if subject is None:
        if len(_subjects) >= MOST_SUBJECTS:
            _subjects.clear()
        digest, functions = code or (b"", NO_CODE)
        subject = Subject(
            callee.title, callee.identity + own, parameters, version=version, code=digest, functions=functions
        )
        _subjects[facts] = subject
    return subject


def has_its_value(call: Call) -> bool:
    """Whether a claimed call needs no attempt: it has the entry's value, or rests until there may be one.

    Raises:
        FlowStop: the run has stopped, so that it cannot rest.
    """
    cache: Cache | None = call.run.program.cache_in
    if cache is None or call.claim is not None:
        return False
    want = call.wanted = call.wanted or wanted(call.callee, *call.given())
    found = cache.permit(call.callee.title, want.key) if call.callee.refresh else cache.ask(call.callee.title, want.key)
    if isinstance(found, Held) and _is_inside_holder(call, want.key):
        found = cache.permit(call.callee.title, want.key)  # it would wait for itself
    if isinstance(found, Claim):
        call.claim = found
        return False
    if isinstance(found, Hit):
        call.run.answered_by_cache(call, found.value)
    else:
        call.run.lay_down(call)
        cache.tell(want.key, lambda: call.run.revive(call))
    return True


def _is_inside_holder(call: Call, key: bytes) -> bool:
    """Whether a call around this one makes the same entry."""
    frame = call.frame
    while frame is not None:
        around = frame.of
        if around.claim is not None and around.wanted is not None and around.wanted.key == key:
            return True
        frame = around.frame or frame.run.parent
    return False


def keep(call: Call, value: Any) -> None:
    """An attempt that had the claim on its key has come to a value that may be kept."""
    claim, call.claim = call.claim, None
    cache, want, policy = call.run.program.cache_in, call.wanted, call.callee.cache
    assert claim is not None
    assert cache is not None
    assert want is not None
    assert policy is not None
    cache.keep(claim, value, policy.ttl, want.parts(cache.serde))


def let_go(call: Call) -> None:
    """An attempt that had the claim on its key has come to nothing that may be kept."""
    claim, call.claim = call.claim, None
    if claim is not None:
        claim.release()


def why(cache: Cache, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Why:
    """Why a call would be answered by a cache, or would not."""
    want = wanted(callee, args, kwargs)
    return cache.why(want.parts(cache.serde), want.key)
