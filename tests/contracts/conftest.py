"""Every saver, blocking and awaited."""

import pytest

from tests.contracts.saving import SAVERS, Awaited


@pytest.fixture(params=SAVERS)
def made(request, tmp_path):
    saver = SAVERS[request.param](tmp_path)
    yield saver
    saver.close()


@pytest.fixture(params=["blocking", "awaited"])
def saver(request, made):
    return made if request.param == "blocking" else Awaited(made)
