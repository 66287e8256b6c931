"""Definitions: what a training job of a tuning job is sent as, and what none could be launched by."""

import re

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.definition import check_definitions, definitions_of, job_name, most_jobs
from tests.support.tuning import categorical, continuous, job_definition, tuning_config, tuning_request

OBJECTIVE = {"Type": "Minimize", "MetricName": "loss"}


def checked(request):
    definitions = definitions_of(request, 1)
    check_definitions(request, definitions)
    return definitions


def test_a_training_job_has_the_static_and_the_tuned_hyperparameters_and_what_counts():
    (definition,) = checked(tuning_request())
    request = definition.request("name", {"lr": "0.1"})
    assert request["HyperParameters"] == {
        "sagemaker_program": "train.py",
        "lr": "0.1",
        "_tuning_objective_metric": "loss",
    }
    assert request["TrainingJobName"] == "name"


def test_what_both_say_alike_is_passed_on():
    body = job_definition(
        EnableManagedSpotTraining=True, Environment={"A": "1"}, RetryStrategy={"MaximumRetryAttempts": 2}
    )
    body["StoppingCondition"]["MaxWaitTimeInSeconds"] = 200
    (definition,) = checked(tuning_request(definition=body))
    request = definition.request("name", {"lr": "0.1"})
    parts = (
        "EnableManagedSpotTraining",
        "Environment",
        "RetryStrategy",
        "StoppingCondition",
        "ResourceConfig",
        "RoleArn",
    )
    assert {part: request[part] for part in parts} == {part: body[part] for part in parts}


def test_of_a_tunings_own_resources_the_first_of_the_list_is_taken():
    body = job_definition(
        HyperParameterTuningResourceConfig={
            "InstanceConfigs": [
                {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 3},
                {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 3},
            ],
            "AllocationStrategy": "Prioritized",
        }
    )
    del body["ResourceConfig"]
    (definition,) = checked(tuning_request(definition=body))
    assert definition.request("name", {})["ResourceConfig"] == {
        "InstanceType": "ml.c5.xlarge",
        "InstanceCount": 2,
        "VolumeSizeInGB": 3,
    }


def test_of_several_definitions_each_has_its_own_objective_and_ranges():
    request = tuning_request()
    body = request.pop("TrainingJobDefinition")
    for key in ("ParameterRanges", "HyperParameterTuningJobObjective"):
        del request["HyperParameterTuningJobConfig"][key]
    request["TrainingJobDefinitions"] = [
        {
            **body,
            "DefinitionName": name,
            "TuningObjective": OBJECTIVE,
            "HyperParameterRanges": {"ContinuousParameterRanges": [continuous(name)]},
        }
        for name in ("one", "two")
    ]
    definitions = checked(request)
    assert [definition.name for definition in definitions] == ["one", "two"]
    assert [definition.search.ranges[0].name for definition in definitions] == ["one", "two"]
    del request["TrainingJobDefinitions"][1]["DefinitionName"]
    with pytest.raises(ApiError, match="TrainingJobDefinitions.2.member: DefinitionName is required"):
        checked(request)


def test_a_grid_says_itself_how_many_jobs_there_are():
    grid = tuning_request(
        strategy="Grid", jobs=None, ranges={"CategoricalParameterRanges": [categorical("a", "1", "2", "3")]}
    )
    assert most_jobs(grid, checked(grid)) == 3


def without(key):
    body = job_definition()
    del body[key]
    return tuning_request(definition=body)


REFUSED = {
    "no definition": ({**tuning_request(), "TrainingJobDefinition": None}, "Give either TrainingJobDefinition or"),
    "no metric": (
        tuning_request(HyperParameterTuningJobObjective={"Type": "Minimize", "MetricName": "other"}),
        "A metric is required for this hyperparameter tuning job objective. Provide a metric in the metric "
        "definitions.",
    ),
    "no objective": (tuning_request(HyperParameterTuningJobObjective=None), "An objective is required"),
    "no range": (tuning_request(ranges={}), "At least one hyperparameter must have a range"),
    "static and tuned": (
        tuning_request(definition=job_definition(StaticHyperParameters={"lr": "1", "sagemaker_program": "train.py"})),
        "'lr' is both static and tuned",
    ),
    "no end": (tuning_request(jobs=None), "MaxNumberOfTrainingJobs or MaxRuntimeInSeconds is required"),
    "no resources": (without("ResourceConfig"), "Give ResourceConfig or HyperParameterTuningResourceConfig"),
    "no program": (tuning_request(definition=job_definition(StaticHyperParameters={})), "sagemaker_program"),
    "what no training job may be": (
        tuning_request(definition=job_definition(EnableManagedSpotTraining=True)),
        "MaxWaitTimeInSeconds",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_launch_nothing_is_refused(name):
    request, words = REFUSED[name]
    with pytest.raises(ApiError, match=re.escape(words)):
        checked(request)


def test_names_are_numbered_as_the_service_numbers_them():
    assert re.fullmatch(r"tuned-001-[0-9a-f]{8}", job_name("tuned", 0))
    assert len(job_name("t" * 32, 99_999)) <= 63


def test_the_seed_of_the_request_decides_what_is_tried():
    config = tuning_config()
    strategy = definitions_of(tuning_request(), config["RandomSeed"])[0].strategy()
    again = definitions_of(tuning_request(), config["RandomSeed"])[0].strategy()
    assert strategy.propose([], 0) == again.propose([], 0)
