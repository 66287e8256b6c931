"""Tuning jobs by boto3, against a server that really runs their training jobs."""

import json

import pytest
from botocore.exceptions import ClientError

from raysm.local.server.tuning.operations import TuningOperations
from tests.support.sagemaker_server import BUCKET, wait_until
from tests.support.tuning import archive, categorical, continuous, integer, job_definition, tuning_request

NAME = "HyperParameterTuningJobName"

BOWL = """
import json, os
hps = json.loads(os.environ["SM_HPS"])
if hps.get("depth") == 13:
    raise ValueError("unlucky")
print("loss=%r;" % ((hps["lr"] - 0.3) ** 2))
"""

FOREVER = """
import time
print("loss=0.5;")
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def tune(server):
    """Return what starts a tuning job of a script."""
    codes = {}

    def begin(name, script=BOWL, *, static=None, **fields):
        if script not in codes:
            codes[script] = f"code/{len(codes)}/sourcedir.tar.gz"
            server.put(codes[script], archive(script))
        program = {"sagemaker_program": "train.py", "sagemaker_submit_directory": f"s3://{BUCKET}/{codes[script]}"}
        definition = job_definition(StaticHyperParameters={**program, **(static or {})})
        server.sm.create_hyper_parameter_tuning_job(**tuning_request(name, definition=definition, **fields))
        return name

    return begin


def describe(server, name):
    return server.sm.describe_hyper_parameter_tuning_job(**{NAME: name})


def ended(server, name):
    wait_until(lambda: describe(server, name)["HyperParameterTuningJobStatus"] in ("Completed", "Failed", "Stopped"))
    return describe(server, name)


def jobs(server, name, **fields):
    pages = server.sm.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job").paginate(
        **{NAME: name}, **fields
    )
    return [job for page in pages for job in page["TrainingJobSummaries"]]


def tuned(server, name):
    """Return what was tried, in the order in which it was launched."""
    return [job["TunedHyperParameters"] for job in jobs(server, name, SortBy="Name", SortOrder="Ascending")]


def value(job):
    return job["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]


@pytest.fixture(scope="module")
def random(server, tune):
    """A tuning job of twelve trials that has ended."""
    return ended(server, tune("random", jobs=12, parallel=4, tags={"team": "blue"}))


def test_the_best_is_the_best_of_all_and_its_values_are_those_of_its_hyperparameters(server, random):
    done = jobs(server, "random", SortBy="FinalObjectiveMetricValue", SortOrder="Ascending")
    assert random["HyperParameterTuningJobStatus"] == "Completed"
    assert len(done) == 12
    for job in done:
        assert value(job) == pytest.approx((float(job["TunedHyperParameters"]["lr"]) - 0.3) ** 2)
    assert random["BestTrainingJob"]["TrainingJobName"] == done[0]["TrainingJobName"]
    assert [value(job) for job in done] == sorted(value(job) for job in done)


def test_the_counters_say_what_became_of_all(random):
    assert random["TrainingJobStatusCounters"] == {
        "Completed": 12,
        "InProgress": 0,
        "RetryableError": 0,
        "NonRetryableError": 0,
        "Stopped": 0,
    }
    assert random["ObjectiveStatusCounters"] == {"Succeeded": 12, "Pending": 0, "Failed": 0}


def test_a_training_job_of_it_says_whose_it_is_and_has_its_tags(server, random):
    job = server.describe(random["BestTrainingJob"]["TrainingJobName"])
    assert job["TuningJobArn"] == random["HyperParameterTuningJobArn"]
    assert job["HyperParameters"]["_tuning_objective_metric"] == "loss"
    tags = server.sm.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "blue"}]


def test_the_same_seed_tries_the_same_and_another_one_does_not(server, tune, random):
    ended(server, tune("again", jobs=2, parallel=2))
    ended(server, tune("other", jobs=2, parallel=2, RandomSeed=2))
    assert tuned(server, "again") == tuned(server, "random")[:2]
    assert tuned(server, "other") != tuned(server, "again")


def test_a_list_is_paged_filtered_and_sorted(server, random):
    page = server.sm.list_training_jobs_for_hyper_parameter_tuning_job(**{NAME: "random"}, MaxResults=5)
    assert len(page["TrainingJobSummaries"]) == 5
    assert "NextToken" in page
    assert jobs(server, "random", StatusEquals="Failed") == []
    names = [job["TrainingJobName"] for job in jobs(server, "random")]
    assert names == sorted(names)


def test_a_grid_tries_every_combination_once(server, tune):
    ranges = {"CategoricalParameterRanges": [categorical("lr", "0.1", "0.2"), categorical("depth", "2", "4")]}
    done = ended(server, tune("grid", strategy="Grid", jobs=None, parallel=4, ranges=ranges))
    assert done["HyperParameterTuningJobStatus"] == "Completed"
    assert sorted((one["lr"], one["depth"]) for one in tuned(server, "grid")) == [
        ("0.1", "2"),
        ("0.1", "4"),
        ("0.2", "2"),
        ("0.2", "4"),
    ]


def test_a_trial_that_fails_is_counted_and_the_others_decide(server, tune):
    ranges = {"CategoricalParameterRanges": [categorical("lr", "0.3"), categorical("depth", "12", "13")]}
    done = ended(server, tune("unlucky", strategy="Grid", jobs=None, ranges=ranges))
    assert done["HyperParameterTuningJobStatus"] == "Completed"
    assert done["TrainingJobStatusCounters"]["NonRetryableError"] == 1
    assert done["BestTrainingJob"]["TunedHyperParameters"]["depth"] == "12"
    (failed,) = jobs(server, "unlucky", StatusEquals="Failed")
    assert "ValueError: unlucky" in failed["FailureReason"]
    assert failed["ObjectiveStatus"] == "Failed"


def test_where_all_fail_it_fails(server, tune):
    done = ended(server, tune("broken", "raise SystemExit(3)", jobs=2))
    assert done["HyperParameterTuningJobStatus"] == "Failed"
    assert done["FailureReason"].startswith("No training job succeeded after 2 attempts.")
    assert "BestTrainingJob" not in done


def test_a_stop_ends_its_training_jobs_and_what_they_reported_counts(server, tune):
    tune("stopped", FOREVER, jobs=9, parallel=2)

    def reporting():
        running = jobs(server, "stopped")
        return len(running) == 2 and all(
            "loss=0.5;" in dict(server.lines(job["TrainingJobName"])).values() for job in running
        )

    wait_until(reporting)
    server.sm.stop_hyper_parameter_tuning_job(**{NAME: "stopped"})
    done = ended(server, "stopped")
    assert done["HyperParameterTuningJobStatus"] == "Stopped"
    assert done["TrainingJobStatusCounters"]["Stopped"] == 2
    assert value(done["BestTrainingJob"]) == 0.5
    with pytest.raises(ClientError, match="is in status Stopped"):
        server.sm.stop_hyper_parameter_tuning_job(**{NAME: "stopped"})


@pytest.mark.long
def test_bayesian_and_hyperband_run_to_their_end(server, tune):
    tune("bayesian", strategy="Bayesian", jobs=6, parallel=3)
    config = {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 9}}
    tune("hyperband", strategy="Hyperband", jobs=4, parallel=4, StrategyConfig=config)
    for name, count in (("bayesian", 6), ("hyperband", 4)):
        done = ended(server, name)
        assert done["HyperParameterTuningJobStatus"] == "Completed"
        assert done["ObjectiveStatusCounters"]["Succeeded"] == count


@pytest.mark.long
def test_hyperband_ends_a_training_job_that_has_had_all_its_resources(server, tune):
    config = {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 3}}
    endless = FOREVER.replace("while True:", "while True:\n    print('loss=0.4;')")
    done = ended(server, tune("endless", endless, strategy="Hyperband", jobs=2, StrategyConfig=config))
    assert done["HyperParameterTuningJobStatus"] == "Completed"
    assert done["TrainingJobStatusCounters"]["Stopped"] == 2


def test_a_warm_start_knows_the_best_of_its_parents(server, tune, random):
    warm = {"ParentHyperParameterTuningJobs": [{NAME: "random"}], "WarmStartType": "IdenticalDataAndAlgorithm"}
    far = {"ContinuousParameterRanges": [continuous("lr", 0.9, 1.0)]}
    done = ended(server, tune("warm", jobs=2, ranges=far, warm=warm))
    overall = done["OverallBestTrainingJob"]
    assert overall["TuningJobName"] == "random"
    assert overall["TrainingJobName"] == random["BestTrainingJob"]["TrainingJobName"]
    assert done["BestTrainingJob"]["TrainingJobName"].startswith("warm-")


def test_a_warm_start_from_nothing_is_refused(tune):
    warm = {"ParentHyperParameterTuningJobs": [{NAME: "nobody"}], "WarmStartType": "TransferLearning"}
    with pytest.raises(ClientError, match="there is no tuning job 'nobody' in us-east-1"):
        tune("orphan", warm=warm)


def test_tuning_jobs_are_listed_with_what_became_of_them(server, random):
    (found,) = server.sm.list_hyper_parameter_tuning_jobs(NameContains="random")["HyperParameterTuningJobSummaries"]
    assert (found[NAME], found["Strategy"], found["HyperParameterTuningJobStatus"]) == ("random", "Random", "Completed")
    assert found["ResourceLimits"] == {"MaxNumberOfTrainingJobs": 12, "MaxParallelTrainingJobs": 4}


def test_tags_of_a_tuning_job_are_kept_and_can_be_changed(server, random):
    arn = random["HyperParameterTuningJobArn"]
    server.sm.add_tags(ResourceArn=arn, Tags=[{"Key": "cost", "Value": "7"}])
    server.sm.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert server.sm.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "7"}]
    server.sm.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "blue"}])


def test_one_that_has_ended_can_be_deleted_and_its_training_jobs_stay(server, tune):
    ended(server, tune("gone", jobs=1, parallel=1))
    (job,) = jobs(server, "gone")
    server.sm.delete_hyper_parameter_tuning_job(**{NAME: "gone"})
    with pytest.raises(ClientError) as refused:
        describe(server, "gone")
    assert refused.value.response["Error"]["Code"] == "ResourceNotFound"
    assert server.describe(job["TrainingJobName"])["TrainingJobStatus"] == "Completed"


def test_what_is_wrong_is_refused_before_there_is_anything(server, tune):
    refusals = {
        "Value 'x' at": {"name": "bad", "strategy": "x"},
        "enough combinations": {"name": "bad", "jobs": 20, "ranges": {"IntegerParameterRanges": [integer("n", 1, 3)]}},
        "must be unique": {"name": "random"},
        "A metric is required": {
            "name": "bad",
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "none"},
        },
    }
    for words, fields in refusals.items():
        with pytest.raises(ClientError, match=words):
            tune(**fields)
    assert server.sm.list_hyper_parameter_tuning_jobs(NameContains="bad")["HyperParameterTuningJobSummaries"] == []


def test_the_metric_of_every_trial_is_told_by_describe_training_job_too(server, random):
    job = server.describe(random["BestTrainingJob"]["TrainingJobName"])
    (metric,) = job["FinalMetricDataList"]
    assert metric["MetricName"] == "loss"
    assert json.dumps(metric["Value"]) == json.dumps(value(random["BestTrainingJob"]))


def test_tags_of_other_things_than_tuning_jobs_are_not_its_own():
    none = TuningOperations(records=None, jobs=None)
    assert none.has("ListTags", {"ResourceArn": "arn:aws:sagemaker:us-east-1:1:hyper-parameter-tuning-job/a"})
    assert not none.has("ListTags", {"ResourceArn": "arn:aws:sagemaker:us-east-1:1:training-job/a"})
    assert not none.has("CreateTrainingJob", {})
