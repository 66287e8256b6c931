"""The service's list of jobs, in stretches of time that are asked for at once."""

import datetime
import threading

from raysm.client.experiments.pages import EDGE, IN_A_STRETCH, listed, stretches
from raysm.contract.job_api import TRAINING
from raysm.testing import FakeSageMaker

BEGIN = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)

PATIENCE_S = 60.0


def at(second):
    return BEGIN + datetime.timedelta(seconds=second)


def filled(home, seconds, kind=FakeSageMaker):
    """Return a service that has a job of each of these seconds."""
    fake = kind(home)
    for second in seconds:
        arn = TRAINING.arn(region="us-east-1", account="123456789012", name=f"j{second}")
        fake.jobs[f"j{second}"] = {"TrainingJobName": f"j{second}", TRAINING.arn_key: arn, "CreationTime": at(second)}
    return fake


def seconds_of(fake, known, contains=None):
    sent_s = [at(second).timestamp() for second in known]
    return [int(item["TrainingJobName"][1:]) for item in listed(fake, TRAINING, contains=contains, sent_s=sent_s)]


def test_without_known_jobs_all_of_time_is_one_stretch():
    assert stretches([]) == [(None, None)]
    assert stretches(range(IN_A_STRETCH)) == [(None, None)]


def test_stretches_have_all_of_time_and_overlap_at_their_edges():
    parts = stretches(at(10 * number).timestamp() for number in range(2 * IN_A_STRETCH + 1))
    assert len(parts) == 3
    assert (parts[0].before, parts[-1].after) == (None, None)
    for later, earlier in zip(parts, parts[1:], strict=False):
        assert earlier.before - later.after == 2 * EDGE


def test_every_job_is_listed_once_the_latest_first_those_that_nobody_knew_too(tmp_path):
    # Several a second, so that some lie on the edges of two stretches.
    every = range(1000)
    fake = filled(tmp_path, every)
    assert seconds_of(fake, range(0, 1000, 2)) == list(reversed(every))
    assert seconds_of(fake, []) == list(reversed(every))


def test_only_names_that_contain_a_text_are_listed(tmp_path):
    fake = filled(tmp_path, range(300))
    assert seconds_of(fake, range(300), contains="99") == [299, 199, 99]


class Meeting(FakeSageMaker):
    """A service whose bounded lists begin once there are several of them under way."""

    def __init__(self, home):
        super().__init__(home)
        self.together = threading.Barrier(3)
        self.unbounded = 0

    def summaries(self, api, *, contains=None, sent=(None, None), limit):
        if sent[0] is not None:
            self.together.wait(PATIENCE_S)
        else:
            self.unbounded += 1
        return super().summaries(api, contains=contains, sent=sent, limit=limit)


def test_stretches_are_asked_for_at_once(tmp_path):
    seconds = range(3 * IN_A_STRETCH + 1)
    fake = filled(tmp_path, seconds, kind=Meeting)
    assert seconds_of(fake, seconds) == list(reversed(seconds))


def test_the_stretch_without_an_end_is_read_only_by_who_reads_so_far(tmp_path):
    seconds = range(3 * IN_A_STRETCH + 1)
    fake = filled(tmp_path, seconds, kind=Meeting)
    items = listed(fake, TRAINING, contains=None, sent_s=[at(second).timestamp() for second in seconds])
    next(items)
    assert fake.unbounded == 0
