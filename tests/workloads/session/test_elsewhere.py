"""What works in a session and is no call of it."""

import asyncio

import pytest

from raysm.workloads.session.elsewhere import Elsewhere
from raysm.workloads.session.ray_jobs import Seen


class Looks:
    def __init__(self, seen):
        self.seen = seen

    async def look(self):
        return self.seen


@pytest.mark.parametrize(
    ("each", "together"),
    [
        ((), Seen(0, None)),
        ((Seen(0, None), Seen(0, None)), Seen(0, None)),
        ((Seen(0, 90.0), Seen(0, 30.0)), Seen(0, 30.0)),
        ((Seen(2, 0.0), Seen(1, 0.0)), Seen(3, 0.0)),
        ((Seen(0, 90.0), Seen(1, 0.0)), Seen(1, 0.0)),
    ],
    ids=["nothing", "never", "the latest end", "sum", "one runs"],
)
def test_all_that_runs_counts_and_the_latest_end(each, together):
    assert asyncio.run(Elsewhere(*map(Looks, each)).look()) == together
