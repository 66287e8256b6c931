"""What Describe says of a tuning job, where its training jobs are partly gone."""

from dataclasses import replace

from raysm.local.server.tuning.answers import describe, summarize
from raysm.local.server.tuning.records import Child, TuningRecord
from raysm.local.server.tuning.trial import Objective
from tests.support.hand_clock import HandClock
from tests.support.tuning import TrainingJobs, tuning_request

LEAST = [Objective(metric="loss", kind="Minimize")]


def world(**outcomes):
    """Return a tuning job, and the training jobs of it: status and reason by name."""
    jobs, children = TrainingJobs(HandClock()), []
    for number, (name, (status, value, reason)) in enumerate(outcomes.items()):
        jobs.launch({"TrainingJobName": name}, "us-east-1", "arn:tuned")
        jobs.records[name] = replace(jobs.records[name], status=status, failure_reason=reason)
        ended = status != "InProgress"
        children.append(Child(number=number, name=name, assignment={"lr": "1"}, value=value, ended=ended))
    record = TuningRecord(
        name="tuned",
        arn="arn:tuned",
        region="us-east-1",
        request=tuning_request(),
        seed=1,
        created_s=100.0,
        modified_s=160.0,
        children=tuple(children),
    )
    return record, jobs


def test_failures_of_the_service_are_told_apart_from_those_of_the_job():
    record, jobs = world(
        a=("Failed", None, "InternalServerError: again"),
        b=("Failed", None, "AlgorithmError: typo"),
        c=("Stopping", None, None),
    )
    assert summarize(record, jobs.training_job)["TrainingJobStatusCounters"] == {
        "Completed": 0,
        "InProgress": 1,
        "RetryableError": 1,
        "NonRetryableError": 1,
        "Stopped": 0,
    }


def test_a_training_job_that_was_deleted_is_left_out_also_where_it_was_the_best():
    record, jobs = world(a=("Completed", 0.1, None), b=("Completed", 0.2, None))
    del jobs.records["a"]
    told = describe(record, LEAST, jobs.training_job, [])
    assert "BestTrainingJob" not in told
    assert told["TrainingJobStatusCounters"]["Completed"] == 1


def test_what_it_has_come_to_is_told_while_it_runs():
    record, jobs = world(a=("Completed", 0.1, None), b=("Completed", 0.2, None), c=("InProgress", None, None))
    told = describe(record, LEAST, jobs.training_job, [])
    assert told["TuningJobCompletionDetails"] == {"NumberOfTrainingJobsObjectiveNotImproving": 1}
    assert told["ConsumedResources"] == {"RuntimeInSeconds": 60}
    assert told["ObjectiveStatusCounters"] == {"Succeeded": 2, "Pending": 1, "Failed": 0}


def test_the_best_of_a_family_is_told_with_the_tuning_job_that_it_is_of():
    record, jobs = world(a=("Completed", 0.5, None))
    parent = replace(record, name="parent", children=(replace(record.children[0], value=0.1),))
    told = describe(record, LEAST, jobs.training_job, [parent])
    assert told["OverallBestTrainingJob"]["TuningJobName"] == "parent"
    assert "TuningJobName" not in told["BestTrainingJob"]
