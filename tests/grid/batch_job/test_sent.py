"""A Batch job that runs a grid, once it was submitted."""

import pytest

from raysm.errors import InvalidConfig, ServiceError
from raysm.grid.batch_job.sending import SentController, last_sent, remember
from tests.support.grid_world import Clock
from tests.support.shared_grids import FakeObjects

SENT = SentController(id="id-1", queue="controllers", region="eu-west-1")


@pytest.fixture
def objects():
    return FakeObjects(Clock())


def test_the_one_that_was_submitted_last_is_found_by_any_machine(objects):
    assert last_sent(objects) is None
    remember(SentController(id="id-0", queue="controllers", region="eu-west-1"), objects)
    remember(SENT, objects)
    assert last_sent(objects) == SENT


def test_what_is_kept_and_cannot_be_read_is_said(objects):
    objects.put("batch-job.json", b"{")
    with pytest.raises(InvalidConfig, match=r"batch-job\.json in .* cannot be read"):
        last_sent(objects)


@pytest.mark.parametrize(("status", "is_open"), [("RUNNABLE", True), ("RUNNING", True), ("SUCCEEDED", False)])
def test_it_is_open_until_batch_says_that_it_has_ended(laptop, status, is_open):
    laptop.batch.submitted.append({})
    laptop.batch.status = status
    assert SENT.is_open(laptop.service) is is_open
    SENT.check(laptop.service)


def test_one_that_batch_has_forgotten_is_not_open(laptop):
    assert not SENT.is_open(laptop.service)


def test_one_that_has_failed_says_why_and_where_its_lines_are(laptop):
    laptop.batch.submitted.append({})
    laptop.batch.status, laptop.batch.reason = "FAILED", "CannotPullContainerError"
    with pytest.raises(ServiceError, match=r"id-1 .* has failed: CannotPullContainerError; .* /aws/batch/job"):
        SENT.check(laptop.service)
