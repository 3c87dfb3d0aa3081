"""A stage: where flows run under test, see `flowfn.testing`; what loops and frames ask of it. Nothing here waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from flowfn.cache.memory import InMemoryCache
from flowfn.checkpoint.memory import InMemorySaver
from flowfn.errors import UnansweredError
from flowfn.pregel.callee import Callee, injected_parameters, is_async
from flowfn.types import Interrupt

if TYPE_CHECKING:
    from flowfn.pregel.frame import CallFrame


class Called(NamedTuple):
    """A call that a task was given."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What somebody answers.

    Attributes:
        value: the answer, or a function from the question's value to it.
        task: only to questions of this task, or of all.
        where: only to questions for whose value this is true.
        always: to any number of questions, not to one.
    """

    value: Any
    task: str | None
    where: Callable[[Any], bool] | None
    always: bool

    def fits(self, question: Interrupt, task: str) -> bool:
        return self.task in (None, task) and (self.where is None or bool(self.where(question.value)))

    def of(self, question: Interrupt) -> Any:
        return self.value(question.value) if callable(self.value) else self.value


class Staged:
    """What flows run on, and what of them was seen.

    Attributes:
        saver, cache: of every flow.
        is_strict: whether a question that nobody answers is an error.
        fakes: stored name of a task → what is called in its place.
        called: stored name → its calls, in order.
        questions: every question that was asked.
    """

    def __init__(self, is_strict: bool) -> None:
        self.saver, self.cache = InMemorySaver(), InMemoryCache()
        self.is_strict = is_strict
        self.fakes: dict[str, Callable[..., Any]] = {}
        self.called: dict[str, list[Called]] = {}
        self.questions: list[Interrupt] = []
        self.replies: list[Reply] = []
        self._askers: dict[str, str] = {}
        self._threads = 0

    def new_thread(self) -> str:
        """A name for a run that was given none."""
        self._threads += 1
        return f"stage-{self._threads}"

    def cast(self, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callee:
        """Who plays a task that is called."""
        self.called.setdefault(callee.title, []).append(Called(args, kwargs))
        fake = self.fakes.get(callee.title)
        return (
            callee
            if fake is None
            else replace(callee, fn=fake, is_async=is_async(fake), injected=injected_parameters(fake))
        )

    def asked(self, question: Interrupt, frame: CallFrame) -> None:
        """A question has come up."""
        if question.id not in self._askers:
            self._askers[question.id] = frame.of.callee.title
            self.questions.append(question)

    def answers(self, open_questions: Sequence[Interrupt]) -> Mapping[str, Any]:
        """What is answered to these; empty when nothing is, and nobody minds.

        Raises:
            UnansweredError: none of them finds an answer, on a strict stage.
        """
        given: dict[str, Any] = {}
        for question in open_questions:
            reply = next((r for r in self.replies if r.fits(question, self._askers.get(question.id, ""))), None)
            if reply is not None:
                given[question.id] = reply.of(question)
                if not reply.always:
                    self.replies.remove(reply)
        if not given and self.is_strict:
            raise UnansweredError([(question.id, question.value) for question in open_questions])
        return given


_stages: list[Staged] = []


def current() -> Staged | None:
    """The stage that flows begin on now, if any."""
    return _stages[-1] if _stages else None


@contextmanager
def entered(stage: Staged) -> Iterator[None]:
    """Flows that begin inside the block, in whatever thread, begin on this stage."""
    _stages.append(stage)
    try:
        yield
    finally:
        _stages.remove(stage)
