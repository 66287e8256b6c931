"""The handle on a tuning job, against a service that says what the test has it say."""

import datetime

import pytest

import raysm
from raysm.client.service import Service
from raysm.client.targets.connection import Polling
from raysm.client.tuning.handle import attach_tuning
from raysm.errors import JobFailed, JobNotFound, NotDone
from tests.support.sagemaker import refusal
from tests.support.tuning import BEGAN, SageMaker, scripted_tuning, summary


def test_it_is_waited_for_until_its_status_is_final():
    assert scripted_tuning(SageMaker(["InProgress", "Stopping", "Stopped"])).wait(timeout_s=60) == "Stopped"


def test_who_waits_is_told_of_each_trial_once_when_it_has_ended():
    told, pages = [], [[summary(0, value=0.5), summary(1, "InProgress")]]
    sagemaker = SageMaker(["InProgress", "InProgress", "Completed"], pages)

    def ended(trial):
        told.append((trial.number, trial.status))
        sagemaker.pages = [[summary(0, value=0.5), summary(1, "Failed")]]

    scripted_tuning(sagemaker).wait(timeout_s=60, ended=ended)
    assert told == [(0, "done"), (1, "failed")]


def test_who_has_waited_long_enough_is_told_how_it_is():
    with pytest.raises(NotDone, match="the tuning job tuned is InProgress after 0 s"):
        scripted_tuning(SageMaker(["InProgress"])).wait(timeout_s=0)


def test_the_trials_of_all_pages_are_there_by_their_numbers_with_values_of_their_types():
    done = summary(0, value=0.25, TrainingStartTime=BEGAN, TrainingEndTime=BEGAN + datetime.timedelta(seconds=90))
    failed = summary(1, "Failed", FailureReason="AlgorithmError: typo")
    trials = scripted_tuning(SageMaker(pages=[[failed], [done, summary(2, "InProgress")]])).trials
    assert [trial.status for trial in trials] == ["done", "failed", "running"]
    assert trials[0].params == {"lr": 0.5, "depth": None}
    assert (trials[0].value, trials[0].metrics, trials[0].seconds) == (0.25, {"loss": 0.25}, 90.0)
    assert trials[1].reason == "AlgorithmError: typo"


def test_a_stop_is_asked_for_by_its_name():
    sagemaker = SageMaker()
    scripted_tuning(sagemaker).stop()
    assert sagemaker.stopped == ["tuned"]


def test_as_long_as_there_is_no_best_one_it_is_said_so_and_why():
    with pytest.raises(NotDone, match="has a value of 'loss' yet"):
        _ = scripted_tuning(SageMaker(["InProgress"])).best
    with pytest.raises(JobFailed, match="No training job succeeded"):
        _ = scripted_tuning(SageMaker(["Failed"], FailureReason="No training job succeeded after 5 attempts.")).best


def test_it_says_what_it_is():
    assert repr(scripted_tuning(SageMaker())) == "<raysm tuning tuned: Completed>"
    assert scripted_tuning(SageMaker(["Stopping"])).done() is False


CONFIG = {
    "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "accuracy"},
    "ParameterRanges": {
        "ContinuousParameterRanges": [{"Name": "lr"}],
        "IntegerParameterRanges": [{"Name": "layers"}],
        "CategoricalParameterRanges": [{"Name": "depth"}, {"Name": "kind"}],
    },
}


def attached(sagemaker):
    service = Service(raysm.Local(), clients=lambda name: sagemaker, polling=Polling(first_s=0.001, most_s=0.001))
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
            raise refusal("ResourceNotFound", "none of that name", "DescribeHyperParameterTuningJob")

    with pytest.raises(JobNotFound, match="there is no tuning job 'tuned' on this machine; check its name"):
        attached(Empty())
