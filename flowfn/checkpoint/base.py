"""The contract of a saver: what one thread remembers.

A thread holds **checkpoints** per namespace, each storing only the channel values its super-step changed. A **run** is
named by the checkpoint that began it, and holds the rows of its **calls** in the order in which they were stored and
the **questions** it asked with their answers. Super-steps inside a function are not stored a second time: they are read
off the calls' rows (`source: "call"`).

The runtime writes through `save`, one transaction over a list of the `Save…` values below, and reads through `load`, a
run's whole memory at once. The rest serves people, and programs written for LangGraph's savers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal

from flowfn.checkpoint.records import (
    CACHED,
    CALL_ID_DIGITS,
    FAILED,
    FORGOTTEN,
    FORMAT,
    INTENT,
    PACKED,
    RECORDED,
    RETRIED,
    UNCLEAR,
    AbandonQuestions,
    CallRow,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    CopyRun,
    Delta,
    ForgetCalls,
    Lease,
    Memory,
    Place,
    QuestionRow,
    QuestionState,
    RunRow,
    Save,
    SaveCall,
    SaveCheckpoint,
    SaveQuestion,
    SaveRun,
    SaveWrites,
    TakeLease,
    ThreadRow,
    Trusted,
    UseAnswer,
    call_checkpoint_id,
    question_id,
    split_call_checkpoint_id,
    task_id,
    thread_name,
)
from flowfn.serde.base import Serializer
from flowfn.types import Rate, Status

__all__ = [
    "AbandonQuestions",
    "CACHED",
    "CALL_ID_DIGITS",
    "CallRow",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointTuple",
    "CopyRun",
    "Delta",
    "FAILED",
    "FORGOTTEN",
    "FORMAT",
    "INTENT",
    "ForgetCalls",
    "Lease",
    "Memory",
    "PACKED",
    "Place",
    "QuestionRow",
    "QuestionState",
    "RECORDED",
    "RETRIED",
    "RunRow",
    "Save",
    "SaveCall",
    "SaveCheckpoint",
    "SaveQuestion",
    "SaveRun",
    "SaveWrites",
    "Saver",
    "TakeLease",
    "ThreadRow",
    "Trusted",
    "UNCLEAR",
    "UseAnswer",
    "call_checkpoint_id",
    "question_id",
    "split_call_checkpoint_id",
    "task_id",
    "thread_name",
]


class Saver(ABC):
    """Keeps threads. Every method has an awaited twin with `a` before its name; one object serves both, from any
    worker and any event loop.

    Args:
        serde: encodes values; by default the typed encoding with pickle behind it.
    """

    lease_seconds: float = 30.0
    """How long a run holds its thread without renewing its lease: what another machine waits for after a crash."""

    is_instant: bool = False
    """Whether a save takes no time worth sharing, so that nobody has to wait for another's."""

    def __init__(self, serde: Serializer | None = None) -> None:
        self.serde = serde or Serializer()

    # --- what the runtime uses

    @abstractmethod
    def load(self, place: Place, checkpoint: str | None = None) -> Memory:
        """The memory of a thread's newest run, or of the run that `checkpoint` (a stored one) belongs to.

        Raises:
            UnknownCheckpointError: there is no such checkpoint.
        """

    @abstractmethod
    def save(self, saves: Sequence[Save]) -> None:
        """Store all of it or nothing, durably (see the saver) before it returns.

        Raises:
            ThreadBusyError, ThreadMovedError: the thread cannot be taken.
            LeaseLostError: somebody else has taken it.
            StoreConflictError: another process records on this run.
            StoreError: the store cannot be written.
        """

    @abstractmethod
    def save_now(self, saves: Sequence[Save]) -> bool:
        """Like `save`, but False, with nothing stored, when it would have to wait for another writer.

        An event loop calls it before it hands the same saves to a worker.
        """

    @abstractmethod
    def renew(self, thread: str, owner: str) -> None:
        """Let the owner's lease on a thread, if it stands, count for another `lease_seconds`, and so its attempts."""

    @abstractmethod
    def admit(self, task: str, slot: str, owner: str, rate: Rate | None, most: int | None) -> float | None:
        """Let an attempt of a task begin, if its limit allows.

        Args:
            task: its stored name.
            slot: names the attempt until it is told to `leave`.
            owner: of the run; its attempts count for as long as it may hold a thread.
            rate: at which attempts start.
            most: how many may run at once.
        Returns:
            Seconds until it may begin, its turn being kept for it; None when as many run as may: ask again.
        """

    @abstractmethod
    def leave(self, task: str, slot: str) -> None:
        """The attempt has ended."""

    @abstractmethod
    def thread(self, thread: str) -> ThreadRow | None:
        """The thread's row."""

    @abstractmethod
    def question(self, thread: str, id: str) -> QuestionRow | None:
        """One question of a thread, in whatever state."""

    # --- people and other processes

    @abstractmethod
    def answer(
        self, thread: str, answers: Mapping[str, Any], *, by: str | None = None, note: str | None = None
    ) -> None:
        """Record answers by compare-and-set, all or none, without running any code.

        Args:
            answers: question id → answer. Each is checked against its question's schema.
        Raises:
            UnknownQuestionError: the thread has no such question.
            AlreadyAnsweredError: it has its answer, or was abandoned.
            AnswerRefusedError: its schema does not allow the answer.
        """

    @abstractmethod
    def questions(self, thread: str | None = None, *, limit: int = 1000) -> list[tuple[str, QuestionRow]]:
        """Open questions, oldest first, of one thread or of all: (thread, question)."""

    @abstractmethod
    def asked(self, thread: str) -> list[QuestionRow]:
        """Every question of a thread, of all its namespaces and in whatever state, in the order asked."""

    @abstractmethod
    def threads(self, status: Status | None = None, *, flow: str | None = None, limit: int = 1000) -> list[ThreadRow]:
        """Threads, the most recently changed first."""

    @abstractmethod
    def runs(self, thread: str, ns: str = "", *, limit: int = 1000) -> list[RunRow]:
        """Runs of a thread, newest first."""

    @abstractmethod
    def calls(self, place: Place, run: str) -> list[CallRow]:
        """A run's calls in the order stored."""

    @abstractmethod
    def delete_thread(self, thread: str) -> None:
        """Forget a thread, its checkpoints, runs, calls and questions, in all namespaces."""

    @abstractmethod
    def trust(self) -> Trusted:
        """Vouch for all that is stored: whatever is read only when it is signed, pickles above all, is signed anew by
        this program's key, in one transaction and without being loaded.

        After a key was lost, or when a store comes from a machine that had another one. Do it with what you or your
        programs wrote, and with nothing else: a pickle from somebody else runs their code when it is read.
        """

    @abstractmethod
    def copy_thread(self, source: str, target: str) -> None:
        """A thread once more, under another id: all namespaces, checkpoints, runs, calls and questions, all or nothing.

        Runs keep their ids, which are those of their checkpoints, and so questions and tasks keep theirs: an id names
        one thing in its thread. Open questions are open in both, and an answer to one leaves the other. Where an
        unfinished run goes on in both threads, a task hands the same task id to the world outside, as after a crash.

        Values that are signed are signed anew for the copy, without being loaded.

        Raises:
            UnknownThreadError: there is no thread `source`.
            ThreadExistsError: there is one named `target`.
        """

    @abstractmethod
    def delete_for_runs(self, run_ids: Sequence[str], *, thread: str | None = None) -> None:
        """Forget runs, finished or not: their checkpoints, calls, questions, and the flows nested in them.

        What came later reads as before. The thread stands at the newest run that is left; without any it is gone. Ids
        that no run has are ignored.

        Args:
            thread: only there; by default in all threads, since copies share their runs' ids.
        """

    @abstractmethod
    def prune(self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest") -> None:
        """Make threads smaller, one transaction each. What an unfinished run has stored always stays.

        Args:
            strategy: "keep_latest" keeps, per namespace, the newest run with all that belongs to it and the newest
                checkpoint; "delete" keeps nothing, and the thread is gone unless a run in it is unfinished. A flow
                nested in a run stays or goes with it.
        """

    # --- LangGraph's core methods; a config is {"configurable": {"thread_id", "checkpoint_ns"?, "checkpoint_id"?}}

    @abstractmethod
    def get_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the newest; super-steps inside functions included.

        `pending_writes` of the checkpoint that began a run hold what all its calls left; those of a super-step inside
        it, what the next super-step's calls left (and all later ones', when it is the newest that has committed):
        (task id, "__return__", value) or (task id, "__error__", exception). An open question is there as
        (caller's task id, "__interrupt__", [Interrupt]), an answered one as (caller's task id, "__resume__", [answer]).

        Values are whole, but for that of a `DeltaChannel`: its reducer alone can join what was added to it, so it is a
        `channels.growing.Chain`, from which such a channel is `restored`.
        """

    @abstractmethod
    def put(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, int],
    ) -> dict[str, Any]:
        """Store a checkpoint whose parent is the one `config` names; gives the config that addresses it.

        Only the values of channels in `new_versions` are stored anew.
        """

    @abstractmethod
    def put_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store a task's pending writes beside the checkpoint that `config` names."""

    def get(self, config: Mapping[str, Any]) -> Checkpoint | None:
        """The checkpoint of `get_tuple` alone."""
        found = self.get_tuple(config)
        return found.checkpoint if found else None

    def close(self) -> None:  # noqa: B027  most have nothing to give back
        """Give back files and connections. A closed saver opens them again when it is used."""

    # --- awaited twins

    @abstractmethod
    async def aload(self, place: Place, checkpoint: str | None = None) -> Memory: ...
    @abstractmethod
    async def asave(self, saves: Sequence[Save]) -> None: ...
    @abstractmethod
    async def athread(self, thread: str) -> ThreadRow | None: ...
    @abstractmethod
    async def aquestion(self, thread: str, id: str) -> QuestionRow | None: ...
    @abstractmethod
    async def aanswer(
        self, thread: str, answers: Mapping[str, Any], *, by: str | None = None, note: str | None = None
    ) -> None: ...
    @abstractmethod
    async def aquestions(self, thread: str | None = None, *, limit: int = 1000) -> list[tuple[str, QuestionRow]]: ...
    @abstractmethod
    async def aasked(self, thread: str) -> list[QuestionRow]: ...
    @abstractmethod
    async def athreads(
        self, status: Status | None = None, *, flow: str | None = None, limit: int = 1000
    ) -> list[ThreadRow]: ...
    @abstractmethod
    async def aruns(self, thread: str, ns: str = "", *, limit: int = 1000) -> list[RunRow]: ...
    @abstractmethod
    async def acalls(self, place: Place, run: str) -> list[CallRow]: ...
    @abstractmethod
    async def adelete_thread(self, thread: str) -> None: ...
    @abstractmethod
    async def atrust(self) -> Trusted: ...
    @abstractmethod
    async def acopy_thread(self, source: str, target: str) -> None: ...
    @abstractmethod
    async def adelete_for_runs(self, run_ids: Sequence[str], *, thread: str | None = None) -> None: ...
    @abstractmethod
    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> None: ...
    @abstractmethod
    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None: ...
    @abstractmethod
    def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]: ...
    @abstractmethod
    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, int],
    ) -> dict[str, Any]: ...
    @abstractmethod
    async def aput_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None: ...

    async def aget(self, config: Mapping[str, Any]) -> Checkpoint | None:
        found = await self.aget_tuple(config)
        return found.checkpoint if found else None

    # --- last, since inside this class the name `list` hides the builtin from here on

    @abstractmethod
    def list(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a thread (all namespaces unless the config names one), or of all threads.

        Args:
            filter: metadata that must be equal.
            before: only those older than this config's checkpoint.
        """
