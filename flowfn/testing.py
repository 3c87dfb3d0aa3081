"""Flows under test: `stage()` puts every flow inside it on a saver and a cache in memory, without rebuilding it.

    def test_a_small_order_is_not_asked_about():
        with stage() as s:
            s.replace(charge, lambda amount: "receipt")
            assert shop.run(5) == "receipt"
            assert s.calls(charge) == [call(5)]

In pytest, `pytest_plugins = ["flowfn.testing"]` in a `conftest.py` brings the same as a fixture named `stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flowfn.errors import PolicyError
from flowfn.func.task import BoundTask, Task
from flowfn.pregel import staging
from flowfn.pregel.staging import Called, Reply
from flowfn.types import Interrupt

__all__ = ["Called", "Stage", "call", "stage"]


class Stage:
    """What a test does with the flows on it, and sees of them; made by `stage()`."""

    def __init__(self, strict: bool) -> None:
        self._staged = staging.Staged(strict)

    def replace(self, task: Task[..., Any], fake: Callable[..., Any]) -> None:
        """Have a function called in the place of a task, plain or async; it is given the task's arguments."""
        if not callable(fake):
            raise PolicyError("fake", fake, "a function that takes the task's arguments")
        self._staged.fakes[_title(task)] = fake

    def answer(
        self,
        value: Any,
        *,
        task: Task[..., Any] | None = None,
        where: Callable[[Any], bool] | None = None,
        always: bool = False,
    ) -> None:
        """Answer a question that will come: the first one that fits, in the order in which answers were given.

        Args:
            value: the answer, or a function from what is asked to the answer.
            task: only a question of this task.
            where: only a question for whose value this is true.
            always: every question that fits, not one.
        """
        name = None if task is None else _title(task)
        self._staged.replies.append(Reply(value, name, where, always))

    @property
    def questions(self) -> list[Interrupt]:
        """Every question that was asked, in order."""
        return list(self._staged.questions)

    def calls(self, task: Task[..., Any]) -> list[Called]:
        """The calls that a task was given, in order; those that a replay answered from the store are not among them."""
        return list(self._staged.called.get(_title(task), ()))

    @property
    def saver(self) -> Any:
        """Where the threads of these flows are kept."""
        return self._staged.saver


def _title(task: Any) -> str:
    if not isinstance(task, Task | BoundTask):
        raise PolicyError("task", task, "a function decorated with `@task`")
    return task._callee().title


def call(*args: Any, **kwargs: Any) -> Called:
    """A call with these arguments, to compare `Stage.calls` with."""
    return Called(args, kwargs)


@contextmanager
def stage(*, strict: bool = True) -> Iterator[Stage]:
    """Run flows in memory, with no real waits between attempts or for rates.

    Every flow that begins inside, by whatever verb and in whatever thread, has this saver and cache instead of its own;
    one that was given no thread gets a new one. Open questions are answered by `Stage.answer`, and the flow goes on.

    Args:
        strict: a question that no answer fits is an `UnansweredError`; else the flow waits, as it does for people.
    """
    made = Stage(strict)
    with staging.entered(made._staged):
        yield made


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture(name="stage")
    def _stage() -> Iterator[Stage]:
        with stage() as made:
            yield made
