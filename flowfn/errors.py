"""Every exception flowfn raises, and the sentence it says.

A class takes the facts, keeps them as attributes and writes the sentence itself: what happened, where, what to do.
All errors are `FlowError`, and also the builtin they resemble. The stops at the end are no errors: they end a frame of
running code and are `BaseException`, so that no `except Exception` swallows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class FlowError(Exception):
    """Base of everything flowfn raises because something is wrong."""

    def __reduce__(self) -> Any:
        # The constructors take facts, not the sentence that became `args`.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[FlowError], args: tuple[Any, ...], facts: dict[str, Any]) -> FlowError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


def listed(names: Iterable[str], limit: int = 10) -> str:
    """`a`, `b` and `c`, cut after `limit` names."""
    ticked = [f"`{name}`" for name in names]
    if len(ticked) > limit:
        ticked = [*ticked[:limit], f"{len(ticked) - limit} more"]
    if len(ticked) < 2:
        return "".join(ticked)
    return f"{', '.join(ticked[:-1])} and {ticked[-1]}"


# ---------------------------------------------------------------- how things are declared and called


class NotATaskError(FlowError, TypeError, NotImplementedError):
    """A function of a kind that cannot be stored as one result was decorated."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        super().__init__(
            f"`{name}` is {kind}: what it yields cannot be stored as one result. Return a list, `return list(…)`, "
            f"or call a task for each item: `work.map(items)`."
        )


class FinalAnnotationError(FlowError, TypeError):
    """`entrypoint.final[...]` stands in a return annotation with the wrong number of types."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The return annotation of `{name}` must name two types, `entrypoint.final[R, S]`: what the call returns "
            f"and what the next run sees as `previous`."
        )


class EntrypointSignatureError(FlowError, ValueError):
    """An entrypoint's parameters cannot take the one input of `invoke`."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"Entrypoint `{name}` {why}")


class OutsideFlowError(FlowError, RuntimeError):
    """Something that needs a running flow was used outside one."""

    def __init__(self, what: str, advice: str) -> None:
        self.what, self.advice = what, advice
        super().__init__(
            f"{what} outside an entrypoint, where nothing can run or remember it. Call it inside a function decorated "
            f"with `@entrypoint`{advice}."
        )


class FlowCalledError(FlowError, TypeError):
    """A flow was called like the function it decorates."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Flow `{name}` was called like a function. Run it with `{name}.run(…)` (kept and resumable) or "
            f"`{name}.invoke(input, config)`, or call the plain function: `{name}.func(…)`."
        )


class CallArgumentsError(FlowError, TypeError):
    """A task was called with arguments that its signature does not take."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"{name}() {why}")


class FutureUsedAsValueError(FlowError, TypeError):
    """A future was used as if it were the value it will have."""

    def __init__(self, name: str, use: str) -> None:
        self.name, self.use = name, use
        super().__init__(
            f"The future of task `{name}` was {use} as if it were its value. Take the value with `.result()` in a "
            f"function or `await` in a coroutine."
        )


class UnfinishedInCoroutineError(FlowError, RuntimeError):
    """`.result()` of an unfinished task was called in a coroutine, where waiting would block the event loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"`.result()` of task `{name}` was called in a coroutine before the task had finished, which would block "
            f"the event loop. Write `await` instead: `value = await future`."
        )


class BlockedLoopError(FlowError, RuntimeError):
    """A plain function that runs in an event loop's own thread called a coroutine of that loop."""

    def __init__(self, name: str, frame: str) -> None:
        self.name, self.frame = name, frame
        super().__init__(
            f"Task `{name}` is a coroutine, and `{frame}` runs as a plain function in the thread of the event loop "
            f"that would run it, so both would wait for each other. Call the flow with `await {frame}.ainvoke(…)`."
        )


class EndedFrameError(FlowError, RuntimeError):
    """Code that a finished function left running made a call."""

    def __init__(self, frame: str, what: str) -> None:
        self.frame, self.what = frame, what
        super().__init__(
            f"{what} by code that `{frame}` left behind after it had ended (a coroutine or worker nobody waited for). "
            f"Nothing was started. Wait for that code before `{frame}` returns."
        )


class ForkedProcessError(FlowError, RuntimeError):
    """A call came from a forked child of the process that runs the flow."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"`{name}` was called in a forked child of the process that runs the flow; the child cannot record it. "
            f"Start the process with the `spawn` method, or call the plain function: `{name}.func(…)`."
        )


class AmbiguousCallError(FlowError, RuntimeError):
    """Two calls cannot be told apart at a replay."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"Two calls of task `{name}` cannot be told apart: {why}. A replay could hand each the other's result. "
            f"Name them with `@task(key=…)` or `{name}.with_options(key=…)`, put each caller in its own "
            f"`with branch(name):`, or say that either result serves both: `@task(interchangeable=True)`."
        )


# ---------------------------------------------------------------- values


class UnstorableError(FlowError, TypeError):
    """A value cannot be stored; says where in the value."""

    def __init__(self, path: str, kind: str, why: str = "") -> None:
        self.path, self.kind, self.why = path, kind, why
        super().__init__(f"{path} is a `{kind}`, which cannot be stored{': ' + why if why else ''}.")


class UnstorableResultError(FlowError, TypeError):
    """What a task returned, or a question shows, cannot be stored."""

    def __init__(self, what: str, cause: UnstorableError) -> None:
        self.what, self.path, self.kind = what, cause.path, cause.kind
        super().__init__(
            f"{what} cannot be stored: {cause} Return plain data, a dataclass or anything that pickles, and open such "
            f"objects inside the task that uses them."
        )


class UnreadableError(FlowError, ValueError):
    """A stored value cannot be read back."""

    def __init__(self, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(f"{what} cannot be read back: {why}")


class MissingClassError(UnreadableError):
    """The class of a stored value is not there any more."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"A stored `{name}`",
            f"the class `{name}` is not defined by any imported module. Import the module that defines it, or keep "
            f"its old name as an alias, then go on; the stored value is untouched.",
        )


class TagTakenError(FlowError, ValueError):
    """Two classes were registered under one tag."""

    def __init__(self, tag: str, owner: str) -> None:
        self.tag, self.owner = tag, owner
        super().__init__(
            f"Tag `{tag}` belongs to the class `{owner}`. Register the other class under a tag of its own: stored "
            f"values are found by it."
        )


# ---------------------------------------------------------------- channels and graphs


class InvalidUpdateError(FlowError, ValueError):
    """A channel was written against its rule, or a node returned what no channel takes."""


class ConflictingWritesError(InvalidUpdateError):
    """Several tasks wrote to a channel that takes one value a super-step."""

    def __init__(self, channel: str, writers: Sequence[str]) -> None:
        self.channel, self.writers = channel, list(writers)
        super().__init__(
            f"Channel `{channel}` takes one value a super-step, but got one from each of {listed(writers)}. Let one "
            f"of them write it, or give the channel a reducer: `Annotated[T, reducer]`."
        )


class EmptyChannelError(FlowError, LookupError):
    """A channel was read before anything was written to it."""

    def __init__(self, channel: str = "") -> None:
        self.channel = channel
        super().__init__(f"Channel `{channel}` is empty." if channel else "The channel is empty.")


class UnknownNodeError(FlowError, ValueError):
    """A name that should be a node is none."""

    def __init__(self, where: str, name: str, nodes: Iterable[str]) -> None:
        self.where, self.name = where, name
        super().__init__(f"{where} names `{name}`, which is no node. Nodes: {listed(sorted(nodes)) or 'none'}.")


class RecursionLimitError(FlowError, RecursionError):
    """A graph was still going after as many super-steps as `recursion_limit` allows."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"The graph was still going after {limit} super-steps. Look for a loop that never ends, or raise the "
            f'limit: `config={{"recursion_limit": …}}`.'
        )


# ---------------------------------------------------------------- threads and runs


class ConfigError(FlowError, ValueError):
    """A config lacks something, or holds something that cannot be meant."""


class NoSaverError(FlowError, ValueError):
    """Something needs a checkpointer, and the flow has none."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what} needs a checkpointer, since nothing could go on without one. Give the flow one, "
            f'`@entrypoint(checkpointer=SqliteSaver("flows.db"))`, or run it with `.run(…)` or `.thread(…)`, which '
            f"keep their runs by themselves."
        )


class NoThreadError(FlowError, ValueError, KeyError):
    """A flow with a checkpointer was called without saying on which thread."""

    def __init__(self, flow: str) -> None:
        self.flow = flow
        super().__init__(
            f"Flow `{flow}` has a checkpointer, but the call names no thread. Pass "
            f'`config={{"configurable": {{"thread_id": "some-name"}}}}` or `{{"thread_id": "some-name"}}`, or use '
            f'`{flow}.thread("some-name")`.'
        )

    __str__ = Exception.__str__


class EmptyInputError(FlowError, ValueError):
    """`invoke(None)` on a thread where nothing waits to go on."""

    def __init__(self, flow: str, thread: str | None) -> None:
        self.flow, self.thread = flow, thread
        where = f"thread `{thread}`" if thread is not None else "a run without a checkpointer"
        super().__init__(
            f"`{flow}` got no input (None), and {where} has no run to go on with. Pass an input to start one."
        )


class InputChangedError(FlowError, ValueError):
    """`run` was called with another input on a thread whose run has not finished."""

    def __init__(self, thread: str, status: str, stored: str, given: str) -> None:
        self.thread, self.status, self.stored, self.given = thread, status, stored, given
        super().__init__(
            f"Thread `{thread}` has an unfinished run ({status}) that was started with {stored}; this call gives "
            f"{given}. Call it with the same input to go on, use `.resume()`, or `.start(…)` for a new run."
        )


class ForeignThreadError(FlowError, ValueError):
    """A thread belongs to another entrypoint."""

    def __init__(self, thread: str, owner: str, caller: str) -> None:
        self.thread, self.owner, self.caller = thread, owner, caller
        super().__init__(
            f"Thread `{thread}` belongs to flow `{owner}`; `{caller}` cannot run on it. Use another thread id. If "
            f'`{caller}` is the same flow renamed, keep its old name: `@entrypoint(name="{owner}")`.'
        )


class UnknownCheckpointError(FlowError, LookupError):
    """A config names a checkpoint that the thread does not have."""

    def __init__(self, thread: str, checkpoint: str) -> None:
        self.thread, self.checkpoint = thread, checkpoint
        super().__init__(f"Thread `{thread}` has no checkpoint `{checkpoint}`. List them with `get_state_history`.")


class StoreError(FlowError, OSError):
    """A database of threads cannot be used."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"The database `{path}` {why}")

    __str__ = Exception.__str__


class StoreConflictError(StoreError):
    """Another process records on the same run."""

    def __init__(self, path: str, thread: str) -> None:
        self.thread = thread
        super().__init__(
            path,
            f"was written by another process that runs thread `{thread}` at the same time; this run stops, and what "
            f"the other one stored stands. Run a thread in one place at a time.",
        )


class SaveFailedError(FlowError, RuntimeError):
    """A run ended because its store refused a write."""

    def __init__(self, what: str, cause: BaseException) -> None:
        self.what = what
        super().__init__(
            f"The run stopped because {what} could not be stored: {cause} Nothing that was stored is lost; mend the "
            f"store and go on with `invoke(None, config)` or `.resume()`."
        )


class FlowWaiting(FlowError, RuntimeError):
    """`run` came to open questions that nobody here can answer."""

    def __init__(self, flow: str, thread: str, questions: Sequence[Any]) -> None:
        self.flow, self.thread, self.questions = flow, thread, list(questions)
        lines = "\n".join(f"  {q.id}: {q.value!r}" for q in questions)
        super().__init__(
            f"Flow `{flow}` waits on thread `{thread}` for {len(self.questions)} answer(s):\n{lines}\n"
            f'Answer with `{flow}.thread("{thread}").answer(value, id=…)`, then `{flow}.thread("{thread}").resume()`.'
        )


# ---------------------------------------------------------------- questions and answers


class QuestionError(FlowError):
    """Base of the errors about questions and answers; none of them changes anything."""


class NothingToResumeError(QuestionError, RuntimeError):
    """An answer came where no question is open."""

    def __init__(self, thread: str | None) -> None:
        self.thread = thread
        super().__init__(
            f"Nothing waits for an answer on thread `{thread}`. To go on with an unfinished run pass None: "
            f"`invoke(None, config)`; to start one pass an input."
        )


class UnknownQuestionError(QuestionError, LookupError):
    """An answer names a question that the thread does not have."""

    def __init__(self, thread: str, unknown: Sequence[str], open_ids: Sequence[str]) -> None:
        self.thread, self.unknown, self.open = thread, list(unknown), list(open_ids)
        super().__init__(
            f"Thread `{thread}` has no question {listed(unknown)}. Open questions: {listed(open_ids) or 'none'}."
        )

    __str__ = Exception.__str__


class AlreadyAnsweredError(QuestionError, RuntimeError):
    """An answer names a question that has its answer already, or was abandoned."""

    def __init__(self, thread: str, question: str, by: str | None, state: str = "answered") -> None:
        self.thread, self.question, self.by, self.state = thread, question, by, state
        who = f" by {by}" if by else ""
        super().__init__(
            f"Question `{question}` of thread `{thread}` was already {state}{who}; this answer was not recorded."
        )


class AmbiguousAnswerError(QuestionError, RuntimeError):
    """One bare answer, several open questions."""

    def __init__(self, thread: str, questions: Sequence[tuple[str, str]]) -> None:
        self.thread, self.questions = thread, list(questions)
        lines = "\n".join(f"  {id}: {shown}" for id, shown in questions)
        super().__init__(
            f"Thread `{thread}` has {len(self.questions)} open questions, so a bare answer fits none in particular. "
            f"Pass a dict from ids to answers, `Command(resume={{id: answer}})`:\n{lines}"
        )


class ResponseSchemaError(FlowError, TypeError):
    """What was given as `response_schema` describes no answers."""

    def __init__(self, spec: object) -> None:
        self.spec = spec
        super().__init__(
            f"`response_schema` cannot be {spec!r}. Give a JSON schema as a dict, bool, int, float, str, a `Literal`, "
            f"`Optional`, union, `list[X]`, `dict[str, X]`, an Enum, a dataclass, a TypedDict, or a pydantic model."
        )


class AnswerRefusedError(QuestionError, ValueError):
    """An answer does not fit what the question allows; the question stays open."""

    def __init__(self, question: str, why: str) -> None:
        self.question, self.why = question, why
        super().__init__(f"The answer to question `{question}` was refused: {why}. The question stays open.")


# ---------------------------------------------------------------- stops: how a frame of running code is ended


class FlowStop(BaseException):
    """Base of what ends a frame that must not go on: a question, a pause, a failed save.

    A `BaseException`, so that no `except Exception` swallows it; and raised again by every further call, question, look
    or stream write of the frame it has reached, so that a bare `except` does not help either.
    """


class Asked(FlowStop):
    """A question is open."""

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(f"question {question} is open")


class Paused(FlowStop):
    """The run was asked to stop and go on later."""

    def __init__(self, reason: str = "paused") -> None:
        self.reason = reason
        super().__init__(reason)


class SaveStopped(FlowStop):
    """The store refused a write; what the frame did since cannot be kept."""

    def __init__(self, what: str, cause: BaseException) -> None:
        self.what, self.cause = what, cause
        super().__init__(f"{what} could not be stored: {cause}")
