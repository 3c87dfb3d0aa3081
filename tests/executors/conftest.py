"""One pool of processes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowfn.executors.processes import Processes


@pytest.fixture(scope="session")
def pool() -> Iterator[Processes]:
    pool = Processes(2)
    yield pool
    pool.end()
