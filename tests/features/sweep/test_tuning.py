"""Tuning jobs: the call, sending it, and the handle."""

import datetime
import re

import pytest

import raysm
from raysm.core.client.service import Service
from raysm.core.client.submit import prepare
from raysm.core.client.targets.connection import Polling
from raysm.core.protocol.events import Trial, line
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, NotDone
from raysm.features.sweep.tuning import (
    attach_tuning,
    make_parsers,
    make_request,
    prepare_tuning,
    tune,
)
from tests.support.sagemaker import refusal
from tests.support.sagemaker_server import training_request
from tests.support.tuning import BEGAN, SageMaker, scripted_tuning, summary


def test_it_is_waited_for_until_its_status_is_final():
    assert (
        scripted_tuning(SageMaker(["InProgress", "Stopping", "Stopped"])).wait(timeout_s=60)
        == "Stopped"
    )


def test_the_trials_of_all_pages_are_there_by_their_numbers_with_values_of_their_types():
    done = summary(
        0,
        value=0.25,
        TrainingStartTime=BEGAN,
        TrainingEndTime=BEGAN + datetime.timedelta(seconds=90),
    )
    failed = summary(1, "Failed", FailureReason="AlgorithmError: typo")
    trials = scripted_tuning(SageMaker(pages=[[failed], [done, summary(2, "InProgress")]])).trials
    assert [trial.status for trial in trials] == ["done", "failed", "running"]
    assert trials[0].params == {"lr": 0.5, "depth": None}
    assert (trials[0].value, trials[0].metrics, trials[0].seconds) == (0.25, {"loss": 0.25}, 90.0)
    assert trials[1].reason == "AlgorithmError: typo"


def test_the_thousandth_trial_comes_after_the_hundred_and_first():
    names = [f"tuned-{number:03}-abc" for number in (1000, 101, 99)]
    jobs = [summary(0, TrainingJobName=name) for name in names]
    assert [trial.host for trial in scripted_tuning(SageMaker(pages=[jobs])).trials] == names[::-1]


def test_as_long_as_there_is_no_best_one_it_is_said_so_and_why():
    with pytest.raises(NotDone, match="'loss' yet"):
        _ = scripted_tuning(SageMaker(["InProgress"])).best
    with pytest.raises(JobFailed, match="No training job succeeded"):
        _ = scripted_tuning(
            SageMaker(["Failed"], FailureReason="No training job succeeded after 5 attempts.")
        ).best


CONFIG = {
    "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "accuracy"},
    "ParameterRanges": {
        "ContinuousParameterRanges": [{"Name": "lr"}],
        "IntegerParameterRanges": [{"Name": "layers"}],
        "CategoricalParameterRanges": [{"Name": "depth"}, {"Name": "kind"}],
    },
}


def attached(sagemaker):
    service = Service(
        raysm.Local(), clients=lambda name: sagemaker, polling=Polling(first_s=0.001, most_s=0.001)
    )
    return attach_tuning("tuned", service)


def test_another_process_reads_its_trials_by_the_name_alone():
    tuned = {"lr": "0.5", "layers": "3", "depth": "null", "kind": "adam", "epochs": "9"}
    trial = summary(0, value=0.25, TunedHyperParameters=tuned)
    found = attached(SageMaker(pages=[[trial]], HyperParameterTuningJobConfig=CONFIG))
    assert found.metric == "accuracy"
    assert found.trials[0].params == {"lr": 0.5, "layers": 3, "depth": None, "kind": "adam"}
    assert found.trials.by_value()[0].metrics == {"accuracy": 0.25}


def test_a_name_that_no_tuning_job_has_is_said_to_be_none():
    class Empty:
        def describe_hyper_parameter_tuning_job(self, **request):
            raise refusal(
                "ResourceNotFound", "none of that name", "DescribeHyperParameterTuningJob"
            )

    with pytest.raises(JobNotFound, match="'tuned' on this machine"):
        attached(Empty())


def test_what_is_no_sweep_is_refused():
    with pytest.raises(InvalidRequest, match=r"raysm\.Sweep.*'train\.py'"):
        tune("train.py")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"checkpoint_uri": "s3://bucket/state"}, "checkpoint_uri")],
    ids=["checkpoints"],
)
def test_what_a_trial_would_lose_without_a_word_is_refused(options, message):
    sweep = raysm.Sweep(
        "examples/hello_cluster.py", space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min"
    )
    with pytest.raises(InvalidRequest, match=message):
        tune(sweep, **options)


def test_each_trial_may_cost_an_equal_part_of_the_cap(fake):
    def tuning(**limits):
        sweep = raysm.Sweep(
            "examples/hello_cluster.py",
            space={"lr": raysm.uniform(0, 1)},
            metric="loss",
            mode="min",
            trials=10,
        )
        ready = prepare(sweep, on=fake, limits=raysm.Limits(price_per_hour=3600.0, **limits))
        return prepare_tuning(ready).request["TrainingJobDefinition"]

    # 20 USD pay for 20 s of a trial, and its stop may take 120 s.
    with pytest.raises(InvalidRequest, match="each of the 10 trials.*or fewer trials"):
        tuning(max_cost=200)
    definition = tuning(max_cost=2000)
    assert definition["StoppingCondition"] == {"MaxRuntimeInSeconds": 80}
    assert definition["Environment"]["RAYSM_MAX_COST"] == "200"


def test_that_trials_are_not_copied_to_a_file_of_this_machine_is_said(tmp_path, caplog):
    sweep = raysm.Sweep(
        "examples/hello_cluster.py", space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min"
    )
    for place in (f"sqlite:///{tmp_path}/mlflow.db", "http://127.0.0.1:5000"):
        prepare_tuning(prepare(sweep, tracking=place))
    (said,) = [
        record.getMessage() for record in caplog.records if "not copied" in record.getMessage()
    ]
    assert "mlflow.db" in said


@pytest.mark.parametrize(
    "value", ["adam", "1", 1, 1.0, "true", True, None, '"1"', "NaN", "", "1e5"]
)
def test_without_its_sweep_a_choice_is_read_as_what_it_was(value):
    kind, choices = raysm.choice([value]).to_tuning_range()
    read = make_parsers({"ParameterRanges": {kind: [{"Name": "x", **choices}]}})["x"](
        choices["Values"][0]
    )
    assert (read, type(read)) == (value, type(value))


def test_a_tuning_job_of_several_definitions_is_not_read():
    with pytest.raises(InvalidRequest, match="several definitions"):
        attached(SageMaker(HyperParameterTuningJobConfig={}))


TRAINING = {
    **training_request("the-sweep", "exit"),
    "CheckpointConfig": {"S3Uri": "s3://b/state"},
    "RemoteDebugConfig": {"EnableRemoteDebug": True},
    "Tags": [{"Key": "raysm:task", "Value": "t"}],
}
SPACE = {
    "lr": raysm.loguniform(1e-4, 1e-1),
    "depth": raysm.randint(2, 8),
    "kind": raysm.choice(["a", "b"]),
}


def call(space=None, *, parallel=1, parents=(), **fields):
    sweep = raysm.Sweep(
        "train.py", space=space or SPACE, metric="loss", **{"mode": "min"} | fields
    ).workload()
    return make_request(
        "tuned", sweep, TRAINING, parallel=parallel, parents=parents, takes_files=False
    )


def config(*arguments, **fields):
    return call(*arguments, **fields)["HyperParameterTuningJobConfig"]


def test_each_range_becomes_one_of_the_services():
    assert config()["ParameterRanges"] == {
        "ContinuousParameterRanges": [
            {"Name": "lr", "MinValue": "0.0001", "MaxValue": "0.1", "ScalingType": "Logarithmic"}
        ],
        "IntegerParameterRanges": [
            {"Name": "depth", "MinValue": "2", "MaxValue": "8", "ScalingType": "Linear"}
        ],
        "CategoricalParameterRanges": [{"Name": "kind", "Values": ["a", "b"]}],
    }


def test_a_grid_of_more_values_than_the_service_lists_is_refused_before_they_are_listed():
    with pytest.raises(InvalidRequest, match="at most 30"):
        config({"n": raysm.randint(0, 2**62)}, search="grid")


def test_steps_are_listed_and_of_a_grid_everything_is():
    ranges = config({"rate": raysm.quniform(0.0, 0.3, 0.1)})["ParameterRanges"]
    assert ranges == {
        "CategoricalParameterRanges": [{"Name": "rate", "Values": ["0.0", "0.1", "0.2", "0.3"]}]
    }
    grid = config({"n": raysm.randint(1, 3), "flag": raysm.choice([True, None])}, search="grid")
    assert grid["ParameterRanges"] == {
        "CategoricalParameterRanges": [
            {"Name": "n", "Values": ["1", "2", "3"]},
            {"Name": "flag", "Values": ["true", "null"]},
        ]
    }
    assert "MaxNumberOfTrainingJobs" not in grid["ResourceLimits"]


def test_a_definition_is_the_job_without_what_it_has_no_place_for():
    definition = call()["TrainingJobDefinition"]
    assert not {"CheckpointConfig", "RemoteDebugConfig", "TrainingJobName", "Tags"} & set(
        definition
    )
    assert "ContainerEntrypoint" not in definition["AlgorithmSpecification"]
    assert definition["StaticHyperParameters"] == {
        "sagemaker_program": "start.py",
        "sagemaker_submit_directory": "/opt/ml/input/data/raysm",
    }
    assert call()["Tags"] == TRAINING["Tags"]


def test_the_metric_is_read_from_the_trials_own_events():
    (metric,) = call()["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"]
    for value in (1.5e-07, -3.0, 0.25):
        text = line(
            Trial(
                number=0, status="running", params={"lr": 0.1}, value=value, metrics={"other": 9.0}
            )
        )
        assert float(re.search(metric["Regex"], text)[1]) == value
    assert re.search(metric["Regex"], line(Trial(number=0, status="running", value=None))) is None
    # A parameter may be called "value", too.
    told = Trial(
        number=0,
        status="done",
        params={"value": 3, "metrics": 4},
        value=0.5,
        metrics={"value": 7.0},
    )
    assert float(re.search(metric["Regex"], line(told))[1]) == 0.5


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"time_budget_s": 60}, "time_budget_s .*120"),
        ({"parallel": 0}, "parallel.*got 0"),
        ({"space": {"n": raysm.choice(list(range(31)))}}, "tuning job.*'30'"),
        ({"parents": tuple("abcdef")}, "tuning job.*'f'"),
    ],
    ids=["time", "parallel", "31 choices", "6 parents"],
)
def test_what_the_service_cannot_do_is_refused(fields, words):
    with pytest.raises(InvalidRequest, match=words):
        call(**fields)


def test_a_function_that_draws_is_refused():
    def train(lr):
        return lr

    sweep = raysm.Sweep(
        train,
        space=lambda trial: {"lr": trial.suggest_float("lr", 0, 1)},
        metric="loss",
        mode="min",
    ).workload()
    with pytest.raises(InvalidRequest, match="space of ranges"):
        make_request("tuned", sweep, TRAINING, takes_files=False)
