"""What is kept of a dashboard."""

import asyncio
import contextlib

from raysm.bootstrap import dashboard_recorder
from raysm.bootstrap.dashboard_recorder import MOST_SAMPLES, DashboardRecorder, is_whole
from raysm.contract.dashboard_record import SNAPSHOT, pack, task_summaries, unpack
from tests.support.dashboard_head import NODE, NODES

JOBS = [{"job_id": "01"}, {"job_id": None, "submission_id": "x"}]


class Dashboard:
    """Answers by the test's own script, and remembers what it was asked."""

    def __init__(self, answers=None, slow_after=None):
        self.answers = {"nodes?view=summary": NODES, "api/jobs/": JOBS} if answers is None else answers
        self.asked, self.slow_after = [], slow_after

    async def read(self, key):
        self.asked.append(key)
        if self.slow_after is not None and len(self.asked) > self.slow_after:
            await asyncio.Event().wait()
        if key not in self.answers:
            raise OSError(f"nobody answers {key}")
        return self.answers[key]


def recorded(dashboard, rounds=1):
    """Return what is kept after so many looks and the last one."""

    async def live():
        recorder = DashboardRecorder(dashboard.read, clock=lambda: 100.0)
        for count in range(rounds):
            await recorder._snapshot()
            recorder._sample(count)
        return await recorder.finish()

    return asyncio.run(live())


def test_every_answer_that_rays_page_needs_is_asked_for():
    dashboard = Dashboard()
    recorded(dashboard)
    assert dashboard.asked[: len(SNAPSHOT) + 2] == [*SNAPSHOT, *task_summaries("01")]


def test_what_is_not_answered_is_left_out():
    record = recorded(Dashboard())
    assert record.answers == {"nodes?view=summary": NODES, "api/jobs/": JOBS}
    assert record.time_s == 100.0


def test_a_dashboard_that_never_answered_leaves_no_record():
    assert recorded(Dashboard({})) is None


def test_the_instances_are_sampled_at_each_look():
    record = recorded(Dashboard(), rounds=3)
    # One more by the last look.
    assert [sample.value for sample in record.samples if sample.name == "cpu_percent"] == [37.5] * 4


def test_an_answer_in_another_form_has_no_samples_and_is_kept():
    record = recorded(Dashboard({"nodes?view=summary": {"other": 1}}))
    assert record.samples == ()
    assert record.answers == {"nodes?view=summary": {"other": 1}}


def test_a_dashboard_that_hangs_at_the_end_holds_nothing_up_and_the_earlier_answers_stay():
    dashboard = Dashboard(slow_after=len(SNAPSHOT) + 2)
    assert recorded(dashboard).answers == {"nodes?view=summary": NODES, "api/jobs/": JOBS}


def test_memory_is_bounded_however_long_the_job_lasts():
    nodes = [{**NODE, "raylet": {**NODE["raylet"], "labels": {"raysm.io/host": f"algo-{n}"}}} for n in range(500)]
    record = recorded(Dashboard({"nodes?view=summary": {"data": {"summary": nodes}}}), rounds=30)
    assert len(record.samples) <= MOST_SAMPLES
    assert unpack(pack(record)).samples


def test_it_looks_again_and_again_until_it_is_told_to_end():
    dashboard = Dashboard()

    async def live():
        recorder = DashboardRecorder(dashboard.read)
        task = asyncio.create_task(recorder.run())
        await asyncio.sleep(0)
        assert dashboard.asked == []  # the dashboard has just come up, and took a core for it
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(live())
    assert dashboard_recorder.FIRST_S > 0


def test_everything_is_looked_at_often_at_first_and_once_a_minute_later():
    assert [count for count in range(18) if is_whole(count)] == [0, 1, 2, 3, 8, 16]
