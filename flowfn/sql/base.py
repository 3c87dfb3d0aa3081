"""What an operation on a database is: a generator of queries that runs in one transaction.

It yields a `Query` and is handed the rows. It knows neither connection nor event loop nor whether anybody waits, so one
body serves the blocking method and its awaited twin, on every database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]


class Query(NamedTuple):
    """One statement; `?` stands for each parameter."""

    sql: str
    params: Sequence[Any] = ()


Op: TypeAlias = Generator[Query, list[Row], T]
"""One operation. A row that breaks a unique key is thrown in where it was yielded, as `DuplicateRow`."""


class DuplicateRow(Exception):
    """A row with this key is there already; for the operation to translate."""


class Busy(Exception):
    """Somebody else is writing; nothing was done."""


class Database(ABC):
    """Runs operations, each in one transaction that is kept when the operation returns and undone when it raises."""

    @abstractmethod
    def run(self, op: Op[T], *, write: bool = False) -> T:
        """Run it, waiting for other writers.

        Raises:
            StoreError: the database cannot be used, or stayed busy for too long.
        """

    @abstractmethod
    def try_run(self, op: Op[T], *, write: bool = False) -> T:
        """Run it if that can be done without waiting.

        Raises:
            Busy: another writer is at work; `op` was not started and can be run again.
        """

    @abstractmethod
    async def arun(self, op: Op[T], *, write: bool = False) -> T:
        """Run it at once on the event loop, or on a worker when the database is busy."""

    @abstractmethod
    def close(self) -> None:
        """Give back all connections; the next operation opens them again."""
