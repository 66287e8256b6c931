"""What is kept of a dashboard."""

import asyncio
import contextlib
from itertools import pairwise

from raysm.bootstrap import dashboard_recorder
from raysm.bootstrap.dashboard_recorder import MOST_SAMPLES, WHOLE_SHARE, DashboardRecorder
from raysm.contract.dashboard_record import HISTORY, SNAPSHOT, pack, samples_of_lines, task_summaries, unpack
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


def test_who_looks_while_the_job_runs_finds_what_was_sampled_until_then(tmp_path):
    async def live():
        recorder = DashboardRecorder(Dashboard().read, clock=lambda: 100.0, history=tmp_path / HISTORY)
        await recorder.look(0)
        await recorder.look(1)

    asyncio.run(live())
    samples = samples_of_lines((tmp_path / HISTORY).read_text())
    assert [(sample.host, sample.time_s, sample.value) for sample in samples if sample.name == "cpu_percent"] == [
        ("algo-1", 100.0, 37.5)
    ] * 2


def test_what_is_told_meanwhile_is_thinned_with_what_is_kept(tmp_path):
    nodes = [{**NODE, "raylet": {**NODE["raylet"], "labels": {"raysm.io/host": f"algo-{n}"}}} for n in range(500)]
    dashboard = Dashboard({"nodes?view=summary": {"data": {"summary": nodes}}})

    async def live():
        recorder = DashboardRecorder(dashboard.read, history=tmp_path / HISTORY)
        for count in range(30):
            await recorder.look(count)

    asyncio.run(live())
    assert 0 < len(samples_of_lines((tmp_path / HISTORY).read_text())) <= MOST_SAMPLES


def test_a_folder_that_takes_no_file_holds_nothing_up(tmp_path):
    async def live():
        recorder = DashboardRecorder(Dashboard().read, history=tmp_path / "gone" / HISTORY)
        await recorder.look(0)
        return await recorder.finish()

    assert asyncio.run(live()).samples


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


class Ticking(Dashboard):
    """A dashboard whose every answer takes so many seconds of a clock that nobody waits for."""

    def __init__(self, answer_s):
        super().__init__()
        self.now_s, self.answer_s = 1000.0, answer_s

    async def read(self, key):
        self.now_s += self.answer_s
        return await super().read(key)


def whole_looks(dashboard, times):
    """Return which of the looks at so many times, 15 s apart, are looks at everything."""
    whole = []

    async def live():
        recorder = DashboardRecorder(dashboard.read, stopwatch=lambda: dashboard.now_s)
        for count in range(times):
            before = len(dashboard.asked)
            await recorder.look(count)
            if len(dashboard.asked) - before > 1:
                whole.append(count)
            dashboard.now_s += dashboard_recorder.SAMPLE_S

    asyncio.run(live())
    return whole


def test_a_dashboard_that_answers_at_once_is_looked_at_whole_each_time():
    assert whole_looks(Ticking(answer_s=0.001), times=4) == [0, 1, 2, 3]


def test_looks_at_everything_take_no_more_than_their_share_of_a_core():
    answer_s = 0.1
    whole = whole_looks(Ticking(answer_s), times=40)
    look_s = answer_s * (len(SNAPSHOT) + 2)
    assert len(whole) > 1
    apart_s = [(later - earlier) * dashboard_recorder.SAMPLE_S for earlier, later in pairwise(whole)]
    assert min(apart_s) >= 0.9 * look_s / WHOLE_SHARE
    assert max(apart_s) <= 1.2 * look_s / WHOLE_SHARE
