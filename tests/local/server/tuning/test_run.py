"""The life of a tuning job, step by step: the training jobs only say what became of them."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.definition import definitions_of
from raysm.local.server.tuning.records import TuningRecord, TuningRecords
from raysm.local.server.tuning.run import TuningRun
from tests.support.hand_clock import HandClock
from tests.support.tuning import TrainingJobs, categorical, tuning_request


class World:
    """One tuning job, whose steps the test takes."""

    def __init__(self, folder, **fields):
        self.clock = HandClock()
        self.records, self.jobs = TuningRecords(folder, self.clock), TrainingJobs(self.clock)
        request = tuning_request(**fields)
        record = TuningRecord(
            name="tuned",
            arn="arn:tuned",
            region="us-east-1",
            request=request,
            tags={"team": "a"},
            seed=1,
            created_s=self.clock.now(),
            modified_s=self.clock.now(),
        )
        self.records.add(record)
        self.run = TuningRun(self.records, record, self.jobs, definitions_of(request, 1))

    @property
    def record(self):
        return self.run.record

    def step(self):
        self.run.step()
        return self.jobs.running()

    def end(self, name, *values, status="Completed", reason=None):
        self.jobs.report(name, *values)
        self.jobs.end(name, status, reason)

    def end_all(self, *values, **fields):
        for name in self.jobs.running():
            self.end(name, *values, **fields)


@pytest.fixture
def world(tmp_path):
    def made(**fields):
        return World(tmp_path, **fields)

    return made


def test_as_many_run_at_a_time_as_are_allowed_and_no_more_than_all(world):
    here = world(jobs=3, parallel=2)
    assert len(here.step()) == 2
    here.end(here.jobs.running()[0], 0.5)
    assert len(here.step()) == 2
    here.end_all(0.4)
    assert here.step() == []
    assert (here.record.status, len(here.record.children)) == ("Completed", 3)


def test_its_training_jobs_know_whose_they_are_and_have_its_tags(world):
    here = world()
    here.step()
    job = next(iter(here.jobs.records.values()))
    assert job.tuning_job == "arn:tuned"
    assert job.request["Tags"] == [{"Key": "team", "Value": "a"}]


def test_the_last_value_of_each_counts_and_one_that_failed_has_none(world):
    here = world(jobs=2)
    first, second = here.step()
    here.end(first, 3.0, 0.5)
    here.end(second, 0.1, status="Failed", reason="AlgorithmError: broken")
    here.step()
    assert [child.value for child in here.record.children] == [0.5, None]
    assert [child.objective_status for child in here.record.children] == ["Succeeded", "Failed"]
    assert here.record.status == "Completed"


def test_one_that_ended_without_a_word_has_no_value(world):
    here = world(jobs=2)
    here.step()
    here.end_all()
    here.step()
    assert [child.objective_status for child in here.record.children] == ["Failed", "Failed"]


def test_where_the_first_five_fail_it_has_failed_and_launches_no_more(world):
    here = world(jobs=20, parallel=5)
    here.step()
    here.end_all(status="Failed", reason="AlgorithmError: typo")
    assert here.step() == []
    assert here.record.status == "Failed"
    assert here.record.failure_reason.startswith("No training job succeeded after 5 attempts.")
    assert len(here.record.children) == 5


def test_a_stop_reaches_what_runs_and_it_is_stopped_when_all_have_ended(world):
    here = world(jobs=20, parallel=2)
    here.step()
    here.run.stop()
    assert here.record.status == "Stopping"
    assert {record.status for record in here.jobs.records.values()} == {"Stopping"}
    here.end_all(0.3, status="Stopped")
    here.step()
    assert (here.record.status, len(here.record.children)) == ("Stopped", 2)
    with pytest.raises(ApiError, match="in status Stopped"):
        here.run.stop()


def test_when_the_target_is_reached_the_others_are_stopped_and_it_is_completed(world):
    here = world(jobs=20, TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 0.1})
    first, second = here.step()
    here.end(first, 0.05)
    here.step()
    assert here.jobs.records[second].status == "Stopping"
    here.end(second, 0.5, status="Stopped")
    here.step()
    assert here.record.status == "Completed"
    assert here.record.enough == f"{first} reached TargetObjectiveMetricValue, 0.1"


def test_at_the_end_of_its_time_it_ends(world):
    here = world(jobs=None, limits={"MaxRuntimeInSeconds": 600})
    here.step()
    here.clock.pass_s(601)
    here.step()
    here.end_all(0.3, status="Stopped")
    here.step()
    assert here.record.status == "Completed"


def fall_behind(here):
    """Let three jobs end, and a fourth report what is worse than theirs; return its name."""
    for _ in range(3):
        (name,) = here.step()
        here.end(name, 1.0, 0.5)
    (last,) = here.step()
    here.jobs.report(last, 2.0)
    here.step()
    return last


def test_who_falls_behind_the_median_is_stopped_early_and_keeps_its_value(world):
    here = world(jobs=4, parallel=1, TrainingJobEarlyStoppingType="Auto")
    last = fall_behind(here)
    assert here.jobs.records[last].status == "Stopping"
    here.end(last, status="Stopped")
    here.step()
    assert here.record.children[-1].value == 2.0
    assert here.record.status == "Completed"


def test_without_early_stopping_it_is_left_to_run(world):
    here = world(jobs=4, parallel=1)
    last = fall_behind(here)
    assert here.jobs.records[last].status == "InProgress"


def test_hyperband_ends_those_that_are_not_among_the_best_at_a_rung(world):
    config = {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 3}}
    here = world(jobs=3, parallel=3, strategy="Hyperband", StrategyConfig=config)
    names = here.step()
    for place, name in enumerate(names):
        here.jobs.report(name, 1.0 + place)
    here.step()
    assert [here.jobs.records[name].status for name in names] == ["InProgress", "Stopping", "Stopping"]


def test_a_grid_is_completed_with_its_last_combination(world):
    ranges = {"CategoricalParameterRanges": [categorical("a", "1", "2"), categorical("b", "x", "y")]}
    here = world(jobs=None, parallel=10, strategy="Grid", ranges=ranges)
    here.step()
    here.end_all(0.3)
    here.step()
    assert here.record.status == "Completed"
    assert sorted((child.assignment["a"], child.assignment["b"]) for child in here.record.children) == [
        ("1", "x"),
        ("1", "y"),
        ("2", "x"),
        ("2", "y"),
    ]


def test_a_training_job_that_is_refused_for_a_moment_is_launched_later(world):
    here = world(jobs=3, parallel=2)
    here.step()
    here.jobs.refusal = ApiError("ResourceLimitExceeded", "full")
    here.end(here.jobs.running()[0], 0.5)
    assert len(here.step()) == 1
    here.jobs.refusal = None
    assert len(here.step()) == 2


def test_where_none_can_be_launched_at_all_it_has_failed_with_the_refusal(world):
    here = world()
    here.jobs.refusal = ApiError("ResourceLimitExceeded", "The account-level service limit is 0")
    here.step()
    assert here.record.status == "Failed"
    assert here.record.failure_reason == "ResourceLimitExceeded: The account-level service limit is 0"


def test_a_training_job_that_somebody_deletes_counts_as_one_without_a_value(world):
    here = world(jobs=1, parallel=1)
    (name,) = here.step()
    del here.jobs.records[name]
    here.step()
    assert here.record.final
    assert here.record.children[0].objective_status == "Failed"
