"""What a saver keeps, as values: its records, the `Save…` values that change them, and the ids by which they are found.

They are part of the contract, and `checkpoint.base` hands each of them on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from flowfn.types import Status

FORMAT = 2
"""Version of everything a store holds; a newer one is refused."""

# flags of a call's row
FAILED = 1
"""The payload is the exception that the call raised."""
RECORDED = 2
"""The call was made by `record`: it ran inside its caller."""
CACHED = 4
"""The value came from a cache."""
DEPENDS = 16
"""The value depends on a person's answer."""

FORGOTTEN = 8
"""A failure that ended its run: the call is to be tried again, the row stays for the history."""

RETRIED = 32
"""A failed attempt that was to be followed by another one; as a failure it is FORGOTTEN from the start."""

INTENT = 64
"""A task with an effect outside was about to begin; what came of it stands in a later row of the same key, if anybody
knows."""

UNCLEAR = 128
"""A failure that does not say whether the effect of such a task took place: its intent still stands."""

QuestionState: TypeAlias = Literal["open", "answered", "abandoned"]


class Place(NamedTuple):
    """Where a flow keeps its state: a thread, and a namespace in it, empty for the outermost flow.

    Attributes:
        fence: number of the lease by which a run holds the thread; what it writes is refused once somebody has a newer
            one. None for who writes without a lease.
    """

    thread: str
    ns: str = ""
    fence: int | None = None


class Lease(NamedTuple):
    """Who runs a thread.

    Attributes:
        owner: an `Owner` as text.
        since, until: seconds since 1970; it lapses then, unless it is renewed.
    """

    owner: str
    since: float
    until: float


class CallRow(NamedTuple):
    """A call that has an outcome.

    Attributes:
        seq: 1, 2, … in the order in which the run's calls were stored; two rows with one number conflict.
        key: 16 bytes, see `identity`.
        caller: the key of the calling task, empty for the flow itself.
        name: of the task, module-qualified.
        step: number of the super-step it belongs to.
        attempt: which try gave the outcome, from 1.
        started, ended: seconds since 1970, UTC.
        flags: FAILED, RECORDED, CACHED, DEPENDS, FORGOTTEN, RETRIED, INTENT, UNCLEAR.
        committed: how many super-steps of the run had committed when this row was stored.
        digests: 8 bytes for each argument, in the order of the signature.
        arguments, preview: short texts for people.
        payload: the value, or the exception when FAILED.
        needs: the keys of the calls whose futures were its arguments, one after another.
    """

    seq: int
    key: bytes
    caller: bytes
    name: str
    step: int
    attempt: int
    started: float
    ended: float
    flags: int
    committed: int
    digests: bytes
    arguments: str
    preview: str
    payload: bytes
    needs: bytes = b""


class QuestionRow(NamedTuple):
    """A question, and its answer.

    Attributes:
        id: `q_` and 32 hex digits: a hash of the run and `base`.
        base: 16 bytes: a hash of path, key or payload, and occurrence; equal in a fork.
        run: the run that asked.
        ns: the namespace of the flow that asked.
        caller: key of the task that asked, empty for the flow itself.
        step: number of the super-step it stands in.
        key: the name it was tied to, or None.
        payload: what is shown, encoded.
        preview: the same as a short text.
        schema: JSON schema of an answer as JSON text, or None.
        asked: seconds since 1970.
        state: open, answered or abandoned.
        answer: encoded, or None while open.
        by, note: who answered, and what they said.
        answered: when, seconds since 1970.
        used: which attempt of the run used the answer first, 0 for none.
    """

    id: str
    base: bytes
    run: str
    ns: str
    caller: bytes
    step: int
    key: str | None
    payload: bytes
    preview: str
    schema: str | None
    asked: float
    state: QuestionState = "open"
    answer: bytes | None = None
    by: str | None = None
    note: str | None = None
    answered: float | None = None
    used: int = 0


class RunRow(NamedTuple):
    """A run: what a thread does with one input.

    Attributes:
        id: that of the checkpoint that began it.
        flow: name of the entrypoint.
        attempt: how often it was started or gone on with, from 1.
        started: seconds since 1970, UTC, of the first attempt.
        status: running, waiting, failed, paused or finished.
        digest: of its input, 16 bytes, empty when the input has none.
        input: short text of the input.
        code: task name → digest of its source, as of the newest attempt.
        committed: how many super-steps had committed when the run last stopped.
        error: short text of what it failed with.
    """

    id: str
    flow: str
    attempt: int
    started: float
    status: Status
    digest: bytes = b""
    input: str = ""
    code: Mapping[str, str] = {}
    committed: int = 0
    error: str | None = None


class ThreadRow(NamedTuple):
    """A thread as listings show it.

    Attributes:
        thread, flow: its id, and the entrypoint it belongs to.
        status: of its newest run.
        run: id of its newest run.
        updated: seconds since 1970, when a run of it last started, went on or stopped.
        fence: how many leases it has had; `lease` is the one that stands, if any.
    """

    thread: str
    flow: str
    status: Status
    run: str
    updated: float
    fence: int = 0
    lease: Lease | None = None


class Checkpoint(TypedDict):
    """A thread after a super-step, LangGraph's version 4."""

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, int]
    versions_seen: dict[str, dict[str, int]]
    updated_channels: list[str] | None


class CheckpointMetadata(TypedDict, total=False):
    """Where a checkpoint came from.

    `source` is input, loop, update or fork, or call for a super-step inside a function, which has also `call_step` and
    `calls`, the ids of its calls. `step` is -1 for the first input. `run` is the id of the run it belongs to.
    """

    source: Literal["input", "loop", "update", "fork", "call"]
    step: int
    parents: dict[str, str]
    run: str
    call_step: int
    calls: list[str]


class CheckpointTuple(NamedTuple):
    """A checkpoint with its surroundings. `pending_writes` are (task id, channel, value)."""

    config: dict[str, Any]
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: dict[str, Any] | None = None
    pending_writes: list[tuple[str, str, Any]] | None = None


class Memory(NamedTuple):
    """All that a run needs to start or to go on, read at once.

    Attributes:
        thread: the thread's row, None when the thread is new.
        checkpoint: the newest checkpoint that is stored as such (never `source: "call"`), values decoded, or the one
            asked for; None when there is none. With its pending writes of nodes.
        run: the run that checkpoint belongs to, None when it was not made by a run.
        calls: that run's calls in the order stored.
        questions: that run's questions in whatever state, in the order asked.
    """

    thread: ThreadRow | None
    checkpoint: CheckpointTuple | None
    run: RunRow | None
    calls: Sequence[CallRow]
    questions: Sequence[QuestionRow]


class Trusted(NamedTuple):
    """What was signed anew, see `Saver.trust`.

    Attributes:
        payloads: result, question, answer, channel value, write or checkpoint → how many.
        tasks: task → how many of the results are its.
    """

    payloads: Mapping[str, int]
    tasks: Mapping[str, int]


# ---------------------------------------------------------------- what can be saved


class TakeLease(NamedTuple):
    """A run takes its thread: the rest is stored only if nobody runs it, nor has since it was loaded.

    Attributes:
        place: with the number of the new lease, one more than the thread was loaded with.
        flow: the thread's entrypoint.
        owner: an `Owner` as text; None for who only writes this once.
        most: how many runs of the flow there may be at once, None for any number.
    """

    place: Place
    flow: str
    owner: str | None
    most: int | None = None


class SaveRun(NamedTuple):
    """A run starts, goes on, or ends: its row as of now, inserted or replaced.

    For the outermost flow (empty namespace) the thread's row follows it, and gives its lease back unless it runs.
    """

    place: Place
    row: RunRow


class Delta(NamedTuple):
    """What was added to a channel since its version `prev`, encoded: see `values`."""

    prev: Any
    payload: bytes


class SaveCheckpoint(NamedTuple):
    """A checkpoint; `values` holds only the channels it changed, each whole and encoded, or what was added to it."""

    place: Place
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent: str | None
    values: Mapping[str, bytes | Delta]


class SaveCall(NamedTuple):
    """A call has an outcome. Conflicts, as `StoreConflictError`, with a row of the same `seq`."""

    place: Place
    run: str
    row: CallRow


PACKED = "__writes__"
"""In the place of a channel: the value holds several writes, as a list of channel, value, channel, value, …."""


class SaveWrites(NamedTuple):
    """A node finished before the barrier; `writes` are (channel, encoded value) and replace what the task had there.

    All of them may be one, to `PACKED`.
    """

    place: Place
    checkpoint: str
    task: str
    path: str
    writes: Sequence[tuple[str, bytes]]


class SaveQuestion(NamedTuple):
    """A question is asked; one that is there already keeps its state and answer."""

    place: Place
    row: QuestionRow


class UseAnswer(NamedTuple):
    """An attempt of a run used an answer; the first use is kept."""

    place: Place
    question: str
    attempt: int


class ForgetCalls(NamedTuple):
    """Failures that are to be tried again: the calls with these numbers get the flag FORGOTTEN, and lose RETRIED, so
    that they do not count as attempts any more."""

    place: Place
    run: str
    seqs: Sequence[int]


class AbandonQuestions(NamedTuple):
    """Open questions of the thread leave the inbox, in every namespace; of one run only, if named."""

    place: Place
    run: str | None = None


class CopyRun(NamedTuple):
    """A fork: calls and answered questions of run `source` up to super-step `last` also belong to run `target`.

    Questions get the ids they have in the new run, `question_id(target, base)`. Calls keep their numbers. Every INTENT
    is copied, since what began on one branch is in doubt on the other.

    Attributes:
        without: keys of calls that stay behind.
        without_answers: bases of questions that stay behind.
    """

    place: Place
    source: str
    target: str
    last: int
    without: Sequence[bytes] = ()
    without_answers: Sequence[bytes] = ()


Save: TypeAlias = (
    TakeLease
    | SaveRun
    | SaveCheckpoint
    | SaveCall
    | SaveWrites
    | SaveQuestion
    | UseAnswer
    | ForgetCalls
    | AbandonQuestions
    | CopyRun
)


# ---------------------------------------------------------------- ids


def question_id(run: str, base: bytes) -> str:
    """The id under which a run's question is answered."""
    return "q_" + blake2b(run.encode() + base, digest_size=16).hexdigest()


def task_id(run: str, key: bytes) -> str:
    """Id of the task that makes a call: equal over retries, resumes and processes, another one in each run."""
    return blake2b(run.encode() + key, digest_size=16).hexdigest()


def short_title(title: str) -> str:
    """What streams and messages call a task whose stored name is `module:Class.method`: `method`."""
    return title.rpartition(":")[2].rpartition(".")[2]


def thread_name(thread_id: object) -> str:
    """The one text that names a thread: 7 and "7" are the same thread."""
    return thread_id if type(thread_id) is str else str(thread_id)


CALL_ID_DIGITS = 8


def call_checkpoint_id(run: str, step: int) -> str:
    """Id of the checkpoint of a super-step inside a function; sorts after its run's and before any later checkpoint."""
    return f"{run}.{step:0{CALL_ID_DIGITS}d}"


def split_call_checkpoint_id(checkpoint: str) -> tuple[str, int] | None:
    """The run and super-step that such an id names, or None for the id of a stored checkpoint."""
    run, dot, step = checkpoint.rpartition(".")
    return (run, int(step)) if dot and step.isdigit() else None
