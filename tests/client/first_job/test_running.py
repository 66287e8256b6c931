"""The trials are sent one after the other; what they say and leave is gathered."""

import json

import pytest

from raysm.client.description import Status
from raysm.client.first_job.blanking import Blanks
from raysm.client.first_job.probe import MARK
from raysm.client.first_job.records import Records
from raysm.client.first_job.running import run_trials
from raysm.client.first_job.trials import TRIALS
from raysm.errors import ServiceError
from raysm.request import Cluster
from raysm.testing import Answer, FakeSageMaker

BY_NAME = {trial.name: trial for trial in TRIALS}


@pytest.fixture
def fake(tmp_path):
    return FakeSageMaker(tmp_path / "home")


@pytest.fixture
def records(tmp_path):
    made = Records(tmp_path / "out")
    made.begin(Blanks({}))
    return made


def run(fake, records, folder, *names):
    (folder / "data").mkdir()
    trials = [BY_NAME[name] for name in names]
    outcomes = run_trials(fake, Cluster(count=2), records, folder=folder / "data", trials=trials)
    return {outcome.trial.name: outcome for outcome in outcomes}


def observation(topic, host, **values):
    return MARK + json.dumps({"topic": topic, "host": host, **values})


def test_what_a_trial_says_and_leaves_is_its_outcome(fake, records, tmp_path):
    lines = ["something else", observation("system", "algo-2", hostname="aws")]
    fake.answer("script", Answer(lines=lines, files={"instances.json": b"2"}))
    outcome = run(fake, records, tmp_path, "training")["training"]
    assert outcome.is_good
    (said,) = outcome.said("system")
    assert (said.host, said.values) == ("algo-2", {"hostname": "aws"})
    assert outcome.objects == {"output/model/instances.json": "2"}
    assert json.loads((records.folder / "training" / "algo-2.json").read_text()) == {"system": {"hostname": "aws"}}
    assert "something else" in (records.folder / "training" / "log.txt").read_text()


def test_a_job_that_ends_in_another_way_than_it_has_to_is_no_good_and_the_next_is_sent(fake, records, tmp_path):
    fake.answer("script", Answer(status="Failed", reason="CapacityError: none"))
    fake.answer("script", Answer(status="Failed", reason="ValueError: on purpose"))
    outcomes = run(fake, records, tmp_path, "training", "failing")
    assert [outcome.is_good for outcome in outcomes.values()] == [False, True]
    assert outcomes["failing"].description.status is Status.FAILED


def test_a_job_that_cannot_be_sent_is_an_outcome_too(records, tmp_path):
    class Full(FakeSageMaker):
        def create(self, plan):
            raise ServiceError("the quota is 0", code="ResourceLimitExceeded")

    outcomes = run(Full(tmp_path / "home"), records, tmp_path, "training", "spot")
    assert [outcome.obstacle for outcome in outcomes.values()] == ["the quota is 0"] * 2
    assert not any(outcome.is_good for outcome in outcomes.values())


def test_each_trial_is_told_to_whoever_watches(fake, records, tmp_path):
    shown = []
    outcomes = run_trials(
        fake, Cluster(count=2), records, folder=tmp_path, trials=[BY_NAME["training"]], show=shown.append
    )
    assert len(list(outcomes)) == 1
    assert shown[0].startswith("training: ")
    assert shown[1].strip().startswith("first-job-training-")


def test_a_job_that_nobody_may_enter_is_good_all_the_same_and_says_why_it_was_not(fake, records, tmp_path):
    # Of a job that has ended, as all of this service have, nobody can be let in.
    fake.answer("script", Answer(lines=[observation("ready", "driver", port=7070)]))
    outcome = run(fake, records, tmp_path, "tunnel")["tunnel"]
    assert outcome.is_good
    (said,) = outcome.said("tunnel")
    assert not said.values["reached"]
    assert "it can be entered while it is Training" in said.values["obstacle"]


def test_only_the_trial_that_is_entered_is(fake, records, tmp_path):
    fake.answer("script", Answer(lines=[observation("ready", "driver")]))
    assert run(fake, records, tmp_path, "stopped")["stopped"].said("tunnel") == []
