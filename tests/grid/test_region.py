"""What List says of a job, and the fake of the one seam, which stands for every region in these tests."""

from raysm.client.job.description import Status
from raysm.grid.region import Listed
from tests.support.grid_world import Clock, FakeRegion

BEFORE = Listed(name="j", status=Status.IN_PROGRESS, created_s=1.0, changed_s=2.0)


def test_a_job_that_has_changed_is_seen_otherwise():
    assert BEFORE.seen != Listed(name="j", status=Status.IN_PROGRESS, created_s=1.0, changed_s=3.0).seen
    assert BEFORE.seen != Listed(name="j", status=Status.FAILED, created_s=1.0, changed_s=2.0).seen


def test_the_fake_answers_all_that_a_region_is_asked():
    fake = FakeRegion("us-east-1", Clock())
    assert all(callable(getattr(fake, name)) for name in ("create", "describe", "page", "stop"))
