"""Every exception flowfn raises, and the sentence it says.

A class takes the facts, keeps them as attributes and writes the sentence itself: what happened, where, what to do.
All errors are `FlowError`, and also the builtin they resemble. The stops at the end are no errors: they end a frame of
running code and are `BaseException`, so that no `except Exception` swallows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal


class FlowError(Exception):
    """Base of everything flowfn raises because something is wrong."""

    def __reduce__(self) -> Any:
        # The constructors take facts, not the sentence that became `args`.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[FlowError], args: tuple[Any, ...], facts: dict[str, Any]) -> FlowError:
    error = kind.__new__(kind, *args)
    error.args = args  # an OSError's own `__new__` leaves them to `__init__`
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


def _sentence(error: BaseException) -> str:
    """What an error says, as a sentence that others can follow; its kind, where it says nothing."""
    text = str(error) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _moment(seconds: float) -> str:
    """A moment in a person's words, in the zone they live in."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


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


class LimitInsideItselfError(FlowError, RuntimeError):
    """A task with a limit is called inside a call of its own, which holds a place that the inner one would wait for."""

    def __init__(self, task: str, most: int) -> None:
        self.task, self.most = task, most
        super().__init__(
            f"Task `{task}` was called inside a call of itself, and no more than {most} may run at "
            f"once (`max_running`): it would wait for its own place. Call a task without the limit inside."
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


class RemoteCallError(FlowError, RuntimeError):
    """Code that runs in another process than its flow asked for what only the flow can do."""

    def __init__(self, what: str, task: str) -> None:
        self.what, self.task = what, task
        super().__init__(
            f"{what} by an attempt at task `{task}` that runs in another process than its flow, where nothing can "
            f"record it. Make the call in the flow, call the plain function (`.func`), or run `{task}` on threads."
        )


class StayedBehindError(FlowError, RuntimeError):
    """Code that runs in another process than its flow asked for what cannot be brought there."""

    def __init__(self, what: str, why: str = "") -> None:
        self.what, self.why = what, why
        super().__init__(
            f"{what} stayed in the process that runs the flow{': ' + why.rstrip('.') if why else ''}. Hand the task "
            f"what it needs of it as an argument, or run the task on threads."
        )


class UnsendableError(FlowError, TypeError):
    """A function or an argument cannot be sent to another process; says which part of it."""

    def __init__(self, path: str, kind: str, why: str = "") -> None:
        self.path, self.kind, self.why = path, kind, why
        super().__init__(
            f"{path} is a `{kind}`, which cannot be sent to another process{': ' + why.rstrip('.') if why else ''}. "
            f"Open such objects inside the task that uses them, or run the task on threads."
        )


class UnfitWorkerError(FlowError, RuntimeError):
    """A worker cannot run what it was sent."""

    def __init__(self, worker: str, task: str, why: str) -> None:
        self.worker, self.task, self.why = worker, task, why
        super().__init__(
            f"{worker} cannot run {f'task `{task}`' if task else 'an attempt'}: {why}. Workers need the same Python, "
            f"flowfn and modules as the flow; install them there and start the workers again."
        )


class WorkerDiedError(FlowError, ChildProcessError):
    """The process that ran an attempt ended before the attempt did.

    Args:
        how: what became of the process.
        task: the task that was tried, when it is not tried again.
        times: how often it had been begun.
    """

    def __init__(self, how: str, task: str = "", times: int = 1) -> None:
        self.how, self.task, self.times = how, task, times
        if times > 1:
            what = (
                f"Task `{task}` was begun {times} times, and each time the worker it ran on was lost; at last, {how}. "
                f"Look for what ends it: memory that runs out, code in C that crashes, an exit in the task itself."
            )
        else:
            attempt = f"An attempt at task `{task}`" if task else "An attempt"
            what = f"{attempt} was lost with the worker it ran on, and nobody knows how far it had come: {how}."
        super().__init__(what)

    __str__ = Exception.__str__


class AmbiguousCallError(FlowError, RuntimeError):
    """Two calls cannot be told apart at a replay."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"Two calls of task `{name}` cannot be told apart: {why}. A replay could hand each the other's result. "
            f"Name them with `@task(key=…)` or `{name}.with_options(key=…)`, put each caller in its own "
            f"`with branch(name):`, or say that either result serves both: `@task(interchangeable=True)`."
        )


class UnkeyedArgumentError(FlowError, TypeError):
    """An argument of a cached task holds something that cannot be part of a key."""

    def __init__(self, task: str, argument: str, kind: str) -> None:
        self.task, self.argument, self.kind = task, argument, kind
        super().__init__(
            f"No entry of cached task `{task}` could be found again by its argument `{argument}`, which is or holds a "
            f"`{kind}`. Say what names an entry instead, `CachePolicy(key_func=lambda …: …)`, or give that class a "
            f"`__flow_key__` method."
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
    """A class or function that a stored value names is not there any more."""

    def __init__(self, name: str, what: str = "A stored value", why: str = "which no imported module defines") -> None:
        self.name = name
        super().__init__(
            what,
            f"it needs `{name}`, {why}. Import the module that defines it, or keep its old name as an alias, then go "
            f"on; the stored value is untouched.",
        )


class UnsignedPickleError(UnreadableError):
    """A stored pickle carries no signature, so that anybody may have put it there."""

    def __init__(self, what: str, kind: str) -> None:
        self.kind = kind
        super().__init__(
            what,
            f"it is {kind} that nobody signed, and loading it could run anybody's code. It was not loaded. If you "
            f"know where the store comes from, sign what it holds: `flowfn.trust(…)`.",
        )


class UnknownKeyError(UnreadableError):
    """What a stored value was signed or encrypted with is no key of this reader.

    Args:
        missing: ids of the keys that are wanted.
        known: ids of the keys that are here.
    """

    def __init__(
        self, what: str, missing: Sequence[bytes], known: Sequence[bytes] = (), *, is_encrypted: bool = False
    ) -> None:
        self.missing, self.known, self.is_encrypted = list(missing), list(known), is_encrypted
        done, does = ("encrypted", "encrypts") if is_encrypted else ("signed", "signs")
        place = "`FLOWFN_ENCRYPTION_KEY`" if is_encrypted else "`FLOWFN_KEY` or the key file"
        trust = (
            ""
            if is_encrypted
            else " Or, if you know where the store comes from, sign what it holds anew: `flowfn.trust(…)`."
        )
        super().__init__(
            what,
            f"it was {done} with the key {listed(id.hex() for id in missing)}, which is not here (here: "
            f"{listed(id.hex() for id in known) or 'none'}), and was not loaded. Add its secret behind your own, "
            f"in {place}: the first one {does}, all are good for reading.{trust}",
        )


class BadSignatureError(UnreadableError):
    """A stored value is not what was signed or encrypted, or does not stand where it was put."""

    def __init__(self, what: str, key: bytes, *, is_encrypted: bool = False) -> None:
        self.key, self.is_encrypted = key, is_encrypted
        done = "what was encrypted" if is_encrypted else "what was signed"
        trust = "" if is_encrypted else " If it was you who changed it, sign it anew: `flowfn.trust(…)`."
        super().__init__(
            what,
            f"it is not {done} with the key `{key.hex()}` for this place: it was changed, or moved here from another "
            f"place. It was not loaded. Take it from a backup.{trust}",
        )


class NotEncryptedError(UnreadableError):
    """A stored value is in clear, where only encrypted ones are read."""

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            "it was stored without encryption, so that anybody may have put it there. If you know where the store "
            "comes from, encrypt what it holds: `flowfn.trust(…)`.",
        )


class NoKeyError(UnstorableError, UnreadableError):
    """A value has to be signed, or its signature checked, and no key could be made or read."""

    def __init__(self, why: str, what: str = "A value", variable: str = "FLOWFN_KEY") -> None:
        self.why, self.what, self.variable = why, what, variable
        self.path, self.kind = what, "value"
        FlowError.__init__(
            self,
            f"{what} needs a key, and there is none: {why}. Set `{variable}` to a secret, the same wherever the store "
            f"is used. This makes one: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`",
        )


class ShortSecretError(FlowError, ValueError):
    """A secret is too short to make a key of."""

    def __init__(self, length: int, shortest: int) -> None:
        self.length, self.shortest = length, shortest
        super().__init__(
            f"A secret has {length} characters, and needs at least {shortest}. This makes one: "
            f"`python -c 'import secrets; print(secrets.token_urlsafe(32))'`"
        )


class MissingPackageError(FlowError, ImportError):
    """Something needs a package that is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.what, self.package, self.extra = what, package, extra
        super().__init__(f"{what} needs the package `{package}`. Install it: `pip install 'flowfn[{extra}]'`.")


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


class GraphError(FlowError, ValueError):
    """A graph cannot be built like this; the sentence names the node or edge."""


class ParentCommand(FlowError, RuntimeError):
    """A node gave a `Command` to the graph around its own: raised where the inner graph was called.

    A node that calls a graph need not catch it; the command then counts as what the node returned. Outside any graph it
    is an error.
    """

    def __init__(self, command: Any) -> None:
        self.command = command
        super().__init__(
            "A node returned a command to the graph around its own (`Command(graph=Command.PARENT)`), and there is "
            "none. Call this graph inside a node of another one, or return a Command without `graph`."
        )


class InnerBusyError(GraphError, RuntimeError):
    """A graph inside another one that keeps its state from call to call was called twice at once."""

    def __init__(self, name: str, ns: str) -> None:
        self.name, self.ns = name, ns
        super().__init__(
            f"`{name}` keeps its state from call to call (`checkpointer=True`), and is called while it runs (`{ns}`): "
            f"two calls at once would lose what one of them wrote. Call it once a super-step, or let it begin anew in "
            f"each call: compile it without `checkpointer=True`."
        )


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


class PolicyError(ConfigError):
    """A policy holds something that cannot be meant."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field, self.value, self.expected = field, value, expected
        super().__init__(f"`{field}` cannot be {value!r}. Give {expected}.")


class ThreadExistsError(ConfigError):
    """A thread was to be copied under an id that is taken."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        super().__init__(
            f"Thread `{target}` is there already, so thread `{source}` cannot be copied under that id. Choose an id "
            f"that is new, or delete it first: `saver.delete_thread({target!r})`."
        )


class UnknownThreadError(ConfigError, LookupError):
    """A thread that is not there was to be copied."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(f"There is no thread `{thread}` to copy. List them with `saver.threads()`.")


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


class EffectRefusedError(FlowError, RuntimeError):
    """A person did not let a call run whose effect is outside."""

    def __init__(self, task: str, arguments: str) -> None:
        self.task, self.arguments = task, arguments
        super().__init__(
            f"Task `{task}` was not run with ({arguments}): the call differs from what is on record, and the answer "
            f"was no. Mend the code so that it makes the recorded call, or fork the run from an earlier point."
        )


class ReconcileError(FlowError, TypeError):
    """`reconcile` of a task gave something else than it may."""

    def __init__(self, task: str, said: object) -> None:
        self.task = task
        super().__init__(
            f"`reconcile` of task `{task}` gave {said!r}. It gives `Happened(result)` when the effect took place, "
            f"`DID_NOT_HAPPEN` when it did not, or None when it cannot tell."
        )


class UnknownCallError(FlowError, LookupError):
    """A result is given for a call that a run has not recorded, or for one of several of that name."""

    def __init__(self, thread: str, call: str, found: int, known: Sequence[tuple[str, str, str]]) -> None:
        self.thread, self.call, self.known = thread, call, list(known)
        why = f"{found} recorded calls of that name; say which by its id" if found else "no such call on record"
        lines = "".join(f"\n  {id}: {name}({arguments})" for id, name, arguments in self.known)
        super().__init__(f"`{call}` stands for no one call of thread `{thread}`: there are {why}. Recorded:{lines}")

    __str__ = Exception.__str__


class StoreError(FlowError, OSError):
    """A database of threads cannot be used."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"The database `{path}` {why}")

    __str__ = Exception.__str__


class CacheError(FlowError, OSError):
    """A folder cannot be used as a cache."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"The cache `{path}` {why}")

    __str__ = Exception.__str__


class ThreadBusyError(FlowError, RuntimeError):
    """Somebody else runs the thread."""

    def __init__(self, thread: str, holder: str, since: float) -> None:
        self.thread, self.holder, self.since = thread, holder, since
        super().__init__(
            f"Thread `{thread}` is being run by {holder}, since {_moment(since)}; one run at a time records on a "
            f'thread. Wait for it (`on_busy="wait"`), or stop it first.'
        )


class FlowBusyError(ThreadBusyError):
    """As many runs of the flow are under way as may be (`max_running`)."""

    def __init__(self, flow: str, most: int, holder: str, since: float) -> None:
        self.flow, self.most = flow, most
        self.holder, self.since, self.thread = holder, since, ""
        FlowError.__init__(
            self,
            f"Flow `{flow}` may have {most} run(s) at once (`max_running`), and that many are under way, one by "
            f'{holder}, since {_moment(since)}. Wait for it (`on_busy="wait"`), or stop it first.',
        )


class ThreadMovedError(FlowError, RuntimeError):
    """A thread has changed between the moment it was read and the moment it was to be written; read it again."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(f"Thread `{thread}` was run by somebody else meanwhile; try again.")


class StoreConflictError(StoreError):
    """Another process records on the same run."""

    def __init__(self, path: str, thread: str) -> None:
        self.thread = thread
        super().__init__(
            path,
            f"was written by another process that runs thread `{thread}` at the same time; this run stops, and what "
            f"the other one stored stands. Run a thread in one place at a time.",
        )


class LeaseLostError(StoreConflictError):
    """Somebody else has taken over the thread that a run was writing to."""

    def __init__(self, path: str, thread: str) -> None:
        self.thread = thread
        StoreError.__init__(
            self,
            path,
            f"refused a write to thread `{thread}`: this run was not heard of for longer than its lease, and somebody "
            f"else has taken the thread over, or deleted it. What was stored stands; this run stops.",
        )


class SaveFailedError(FlowError, RuntimeError):
    """A run ended because its store refused a write."""

    def __init__(self, what: str, cause: BaseException) -> None:
        self.what = what
        kept = "" if "stored is lost" in str(cause) else "Nothing that was stored is lost. "
        super().__init__(
            f"The run stopped because {what} could not be stored: {_sentence(cause)} {kept}Mend the store and go "
            f"on with `invoke(None, config)` or `.resume()`."
        )


class TaskTimeoutError(FlowError, TimeoutError):
    """An attempt of a task went on for longer than it may.

    Attributes:
        node: the task.
        elapsed: seconds since the attempt began.
        kind: which limit ended it, `"run"` or `"idle"`.
        timeout: that limit in seconds.
        run_timeout, idle_timeout: both limits, None where there is none.
    """

    def __init__(
        self,
        node: str,
        elapsed: float,
        *,
        kind: Literal["run", "idle"],
        run_timeout: float | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        self.node, self.elapsed, self.kind = node, elapsed, kind
        self.run_timeout, self.idle_timeout = run_timeout, idle_timeout
        self.timeout = run_timeout if kind == "run" else idle_timeout
        if kind == "run":
            why = f"an attempt may take {run_timeout} (`timeout=`). Give it more time, or split its work into tasks."
        else:
            why = (
                f"it had shown no sign of progress for {idle_timeout} (`idle_timeout=`). Give it more time, or let it "
                f"call `runtime.heartbeat()` while it works."
            )
        super().__init__(f"Task `{node}` was ended {elapsed:.3f} seconds after its attempt began: {why}")

    __str__ = Exception.__str__


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


class UnansweredError(QuestionError, AssertionError):
    """A flow under test asks what the test has no answer to."""

    def __init__(self, questions: Sequence[tuple[str, object]]) -> None:
        self.questions = list(questions)
        shown = "; ".join(repr(value) for _, value in self.questions)
        super().__init__(
            f"Nobody answers: {shown}. Give an answer before the flow runs, `stage.answer(…)`, or let it wait, "
            f"`stage(strict=False)`."
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


# ---------------------------------------------------------------- messages


class NotAMessageError(FlowError, TypeError, ValueError):
    """A value stands where a message was expected."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{value!r:.200} is no message. Give a string, a pair `(role, content)`, a dict with `role` (or `type`) "
            f"and `content`, or an object with an `id`."
        )


class UnknownMessageError(FlowError, ValueError):
    """A message is to be removed that is not there."""

    def __init__(self, id: object) -> None:
        self.id = id
        super().__init__(f"No message has the id {id!r}, so it cannot be removed. It may have been removed already.")


class MessageWithoutIdError(FlowError, ValueError):
    """A message was pushed that nothing could recognise later."""

    def __init__(self, message: object) -> None:
        self.message = message
        super().__init__(
            f"{message!r:.200} was pushed without an id, so a watcher would be shown it again when the node returns "
            f"it. Give it one."
        )


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


class AtBreakpoint(FlowStop):
    """A graph inside has stopped at a breakpoint."""


class Paused(FlowStop):
    """The run was asked to stop and go on later; by a signal, if that is not 0."""

    def __init__(self, reason: str = "paused", signal: int = 0) -> None:
        self.reason, self.signal = reason, signal
        super().__init__(reason)


class GraphDrained(FlowStop):
    """A run was asked to stop between two super-steps (`RunControl.request_drain`); it can go on.

    Raised where the run was called.
    """

    def __init__(self, reason: str = "shutdown") -> None:
        self.reason = reason
        super().__init__(reason)


class FlowPaused(Paused, KeyboardInterrupt):
    """A Ctrl-C or SIGTERM has paused a run: what had finished is stored, and the run can go on.

    Raised where the run was called. It is no `FlowError` but a `KeyboardInterrupt`, which the signal would have raised:
    no `except Exception` of a program that was told to stop makes it go on.
    """

    __reduce__ = FlowError.__reduce__

    def __init__(self, flow: str, thread: str, reason: str, signal: int) -> None:
        super().__init__(reason, signal)
        self.flow, self.thread = flow, thread
        self.args = (
            f"Flow `{flow}` was paused by {reason} on thread `{thread}`; what had finished is stored. Go on with the "
            f'same `run`, or with `{flow}.thread("{thread}").resume()`.',
        )


class SaveStopped(FlowStop):
    """The store refused a write; what the frame did since cannot be kept."""

    def __init__(self, what: str, cause: BaseException) -> None:
        self.what, self.cause = what, cause
        super().__init__(f"{what} could not be stored: {cause}")
