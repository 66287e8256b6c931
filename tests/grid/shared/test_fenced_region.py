"""A region behind the lease: what sends or stops asks first, what only looks does not."""

import pytest

from raysm.grid.attempt import Attempt
from raysm.grid.database import LeaseLost
from raysm.grid.shared.sharing import FencedRegion
from raysm.grid.task import Task
from tests.support.grid_world import Clock, FakeRegion

TASK = Task(key="a")
ATTEMPT = Attempt(task="a", number=1, name="g-a1", region="r", instance_type="ml", count=1)


class Sharing:
    """The lease, as a test wishes."""

    def __init__(self, error=None):
        self.asked = []
        self._error = error

    def cover(self, name):
        self._ask(f"cover {name}")

    def _ask(self, what):
        self.asked.append(what)
        if self._error is not None:
            raise self._error


def test_with_the_lease_all_is_the_regions_own():
    region, sharing = FakeRegion("r", Clock()), Sharing()
    fenced = FencedRegion(region, sharing)
    fenced.create(TASK, ATTEMPT)
    assert fenced.describe("g-a1").name == "g-a1"
    assert [job.name for job in fenced.page("g-", None).jobs] == ["g-a1"]
    assert fenced.rates(["g-a1"], "rows") == {}
    fenced.stop("g-a1")
    assert sharing.asked == ["cover g-a1", "cover "]
    assert region.lives["g-a1"].asked_s is not None


def test_without_it_nothing_is_sent_or_stopped():
    region = FakeRegion("r", Clock())
    region.create(TASK, ATTEMPT)
    fenced = FencedRegion(region, Sharing(LeaseLost("another one runs it")))
    with pytest.raises(LeaseLost):
        fenced.create(TASK, ATTEMPT)
    with pytest.raises(LeaseLost):
        fenced.stop("g-a1")
    assert (region.calls["create"], region.calls["stop"]) == (1, 0)
    assert fenced.describe("g-a1").name == "g-a1"
