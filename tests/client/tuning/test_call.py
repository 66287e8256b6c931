"""The call of a tuning job: what a sweep and the plan of its job become."""

import re

import pytest

import raysm
from raysm.client.tuning.call import TuningOptions, request_of
from raysm.contract.events import Trial, line
from raysm.errors import InvalidRequest
from tests.support.sagemaker_server import training_request

TRAINING = {
    **training_request("the-sweep", "exit"),
    "CheckpointConfig": {"S3Uri": "s3://b/state"},
    "RemoteDebugConfig": {"EnableRemoteDebug": True},
    "Tags": [{"Key": "raysm:task", "Value": "t"}],
}
SPACE = {"lr": raysm.loguniform(1e-4, 1e-1), "depth": raysm.randint(2, 8), "kind": raysm.choice(["a", "b"])}


def call(space=None, *, options=None, **fields):
    sweep = raysm.Sweep("train.py", space=space or SPACE, metric="loss", **{"mode": "min"} | fields).workload()
    return request_of("tuned", sweep, TRAINING, options or TuningOptions(), takes_files=False)


def config(*arguments, **fields):
    return call(*arguments, **fields)["HyperParameterTuningJobConfig"]


def test_each_range_becomes_one_of_the_services():
    assert config()["ParameterRanges"] == {
        "ContinuousParameterRanges": [
            {"Name": "lr", "MinValue": "0.0001", "MaxValue": "0.1", "ScalingType": "Logarithmic"}
        ],
        "IntegerParameterRanges": [{"Name": "depth", "MinValue": "2", "MaxValue": "8", "ScalingType": "Linear"}],
        "CategoricalParameterRanges": [{"Name": "kind", "Values": ["a", "b"]}],
    }


def test_steps_are_listed_and_of_a_grid_everything_is():
    ranges = config({"rate": raysm.quniform(0.0, 0.3, 0.1)})["ParameterRanges"]
    assert ranges == {"CategoricalParameterRanges": [{"Name": "rate", "Values": ["0.0", "0.1", "0.2", "0.3"]}]}
    grid = config({"n": raysm.randint(1, 3), "flag": raysm.choice([True, None])}, search="grid")
    assert grid["ParameterRanges"] == {
        "CategoricalParameterRanges": [
            {"Name": "n", "Values": ["1", "2", "3"]},
            {"Name": "flag", "Values": ["true", "null"]},
        ]
    }
    assert "MaxNumberOfTrainingJobs" not in grid["ResourceLimits"]


def test_the_limits_and_the_search_are_the_sweeps():
    parts = config(trials=30, search="random", seed=5, time_budget_s=600, options=TuningOptions(parallel=4))
    assert parts["ResourceLimits"] == {
        "MaxNumberOfTrainingJobs": 30,
        "MaxParallelTrainingJobs": 4,
        "MaxRuntimeInSeconds": 600,
    }
    assert (parts["Strategy"], parts["RandomSeed"]) == ("Random", 5)
    assert config()["Strategy"] == "Bayesian"


def test_more_is_better_where_the_sweep_says_so():
    objective = config(mode="max")["HyperParameterTuningJobObjective"]
    assert objective == {"Type": "Maximize", "MetricName": "loss"}


def test_the_median_rule_is_the_services_early_stopping():
    assert config(stop="median")["TrainingJobEarlyStoppingType"] == "Auto"
    assert config()["TrainingJobEarlyStoppingType"] == "Off"


def test_a_definition_is_the_job_without_what_it_has_no_place_for():
    definition = call()["TrainingJobDefinition"]
    assert not {"CheckpointConfig", "RemoteDebugConfig", "TrainingJobName", "Tags"} & set(definition)
    assert "ContainerEntrypoint" not in definition["AlgorithmSpecification"]
    assert definition["StaticHyperParameters"] == {
        "sagemaker_program": "start.py",
        "sagemaker_submit_directory": "/opt/ml/input/data/raysm",
    }
    assert call()["Tags"] == TRAINING["Tags"]


def test_the_metric_is_read_from_the_trials_own_events():
    (metric,) = call()["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"]
    for value in (1.5e-07, -3.0, 0.25):
        text = line(Trial(number=0, status="running", params={"lr": 0.1}, value=value, metrics={"other": 9.0}))
        assert float(re.search(metric["Regex"], text)[1]) == value
    assert re.search(metric["Regex"], line(Trial(number=0, status="running", value=None))) is None


def test_a_parameter_that_is_called_value_is_not_taken_for_the_metric():
    (metric,) = call()["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"]
    told = Trial(number=0, status="done", params={"value": 3, "metrics": 4}, value=0.5, metrics={"value": 7.0})
    assert float(re.search(metric["Regex"], line(told))[1]) == 0.5


def test_parents_are_named():
    warm = call(options=TuningOptions(parents=("a", "b")))["WarmStartConfig"]
    assert [item["HyperParameterTuningJobName"] for item in warm["ParentHyperParameterTuningJobs"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stop": "asha"}, "stop='asha' is not the service's"),
        ({"time_budget_s": 60}, "time_budget_s is at least 120"),
        ({"options": TuningOptions(parallel=0)}, "parallel must be a whole number of at least 1, got 0"),
        ({"space": {"n": raysm.choice([1, 1])}}, "two of these would be the same"),
        ({"space": {"n": raysm.choice(list(range(31)))}}, "a tuning job cannot have"),
        ({"options": TuningOptions(parents=tuple("abcdef"))}, "a tuning job cannot have"),
    ],
    ids=["asha", "time", "parallel", "equal texts", "31 choices", "6 parents"],
)
def test_what_the_service_cannot_do_is_refused(fields, words):
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        call(**fields)


def test_a_function_that_draws_is_refused():
    def train(lr):
        return lr

    sweep = raysm.Sweep(
        train, space=lambda trial: {"lr": trial.suggest_float("lr", 0, 1)}, metric="loss", mode="min"
    ).workload()
    with pytest.raises(InvalidRequest, match="the service draws by ranges"):
        request_of("tuned", sweep, TRAINING, TuningOptions(), takes_files=False)
