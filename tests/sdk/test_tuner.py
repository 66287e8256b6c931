"""The SageMaker SDK's own HyperparameterTuner, unchanged, against the embedded SageMaker; and what version 2 of it
sends.

The SDK runs in a process of its own, as its users run it: with nothing but environment variables that say where.
"""

import pytest

from tests.support.sagemaker_server import BUCKET, ROLE, Server, wait_until
from tests.support.sdk_programs import run_program
from tests.support.tuning import archive, job_definition, tuning_request

pytestmark = pytest.mark.long

TUNE = """
import json, sys
from sagemaker.core.parameter import CategoricalParameter, ContinuousParameter
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.model_trainer import ModelTrainer
from sagemaker.train.tuner import HyperparameterTuner

options = json.loads(sys.argv[1])
trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/any:1",
    role=options["role"],
    base_job_name="sdk",
    source_code=SourceCode(source_dir=options["source"], entry_script="train.py"),
    compute=Compute(instance_type="ml.c5.xlarge", instance_count=1, volume_size_in_gb=1),
    hyperparameters={"epochs": 3},
)
tuner = HyperparameterTuner(
    model_trainer=trainer,
    objective_metric_name="loss",
    objective_type="Minimize",
    metric_definitions=[{"Name": "loss", "Regex": "loss=(.*?);"}],
    hyperparameter_ranges={"lr": ContinuousParameter(0.0, 1.0), "kind": CategoricalParameter(["a", "b"])},
    strategy="Random",
    random_seed=7,
    max_jobs=options["jobs"],
    max_parallel_jobs=4,
    base_tuning_job_name="sdk",
)
tuner.tune(wait=True)
described = tuner.describe()
print("RESULT", json.dumps([
    described.hyper_parameter_tuning_job_name, described.hyper_parameter_tuning_job_status, tuner.best_training_job()
]))
"""

TRAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--kind")
parser.add_argument("--epochs", type=int)
told = parser.parse_args()
assert told.epochs == 3 and told.kind in ("a", "b")
for epoch in range(told.epochs):
    print("loss=%r;" % ((told.lr - 0.3) ** 2 + told.epochs - 1 - epoch))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("sdk"), "--instance-kind=process", "--cores=4")
    server.make_bucket()
    yield server
    server.end()


def trials(server, name):
    pages = server.sm.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job").paginate(
        HyperParameterTuningJobName=name, SortBy="FinalObjectiveMetricValue", SortOrder="Ascending"
    )
    return [job for page in pages for job in page["TrainingJobSummaries"]]


def value(job):
    return job["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]


def test_the_sdks_tuner_runs_twenty_real_trials_and_its_best_is_the_best_of_them(server, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    options = {"role": ROLE, "source": str(source), "jobs": 20}
    name, status, best = run_program(TUNE, options, server, tmp_path)
    ended = trials(server, name)
    assert status == "Completed"
    assert [job["ObjectiveStatus"] for job in ended] == ["Succeeded"] * 20
    assert best == ended[0]["TrainingJobName"]
    for job in ended:
        assert value(job) == pytest.approx((float(job["TunedHyperParameters"]["lr"]) - 0.3) ** 2)


def test_what_the_second_generation_of_the_sdk_sends_runs_too(server):
    """Its texts are JSON inside of texts, and its variables and hyperparameters have names of their own."""
    server.put("v2/sourcedir.tar.gz", archive(TRAIN))
    static = {
        "epochs": "3",
        "kind": '"a"',
        "sagemaker_container_log_level": "20",
        "sagemaker_estimator_class_name": '"PyTorch"',
        "sagemaker_estimator_module": '"sagemaker.pytorch.estimator"',
        "sagemaker_job_name": '"v2-2026"',
        "sagemaker_program": '"train.py"',
        "sagemaker_region": '"us-east-1"',
        "sagemaker_submit_directory": f'"s3://{BUCKET}/v2/sourcedir.tar.gz"',
    }
    definition = job_definition(StaticHyperParameters=static)
    server.sm.create_hyper_parameter_tuning_job(**tuning_request("v2", definition=definition, jobs=3))

    def has_ended():
        told = server.sm.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="v2")
        return told["HyperParameterTuningJobStatus"] in ("Completed", "Failed")

    wait_until(has_ended)
    assert [job["ObjectiveStatus"] for job in trials(server, "v2")] == ["Succeeded"] * 3
