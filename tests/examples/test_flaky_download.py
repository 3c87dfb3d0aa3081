"""The download that is tried again, played on a stage: without the server, and without waiting."""

from examples.flaky_download import download, download_all
from flowfn.testing import call


def test_a_part_that_is_refused_is_asked_for_again(stage):
    refusals = [ConnectionError(), TimeoutError()]

    def fake(part):
        if part == 2 and refusals:
            raise refusals.pop()
        return b"x" * part

    stage.replace(download, fake)

    assert download_all.run(3) == 6
    assert stage.calls(download) == [call(1), call(2), call(3)]
    assert refusals == []
