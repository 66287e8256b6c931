"""Plans of every sort, for whoever compares them with what others say: workload x API x shape x capacity x security."""

import itertools

from raysm.core.client.plan import plan
from raysm.core.protocol.job_api import api_of
from raysm.core.protocol.seal import Seal
from raysm.core.request import (
    Cluster,
    Input,
    InstanceGroup,
    JobRequest,
    Limits,
    MetricDefinition,
    Security,
)
from raysm.features.batch.request import BatchInference
from raysm.features.script.request import PickledFunction, Script
from raysm.features.session.request import SessionWorkload
from raysm.features.similarity.request import Similarity
from raysm.features.sweep.request import FunctionSweep, ScriptSweep
from raysm.features.sweep.space import loguniform
from raysm.features.training.request import TorchScript, TrainLoop
from tests.support.sagemaker import aws, places_of

KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

MLFLOW = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/ours"

RESERVED = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"

SPACE = {"lr": loguniform(1e-4, 1e-1)}

WORKLOADS = {
    "script": Script("train.py", args=("--lr", "0.1")),
    "function": PickledFunction(name="module.function", python="3.11"),
    "similarity": Similarity(top_k=10),
    "torch_script": TorchScript("train.py", workers_per_instance=2),
    "data_parallel": TrainLoop(name="module.loop", python="3.11"),
    "session": SessionWorkload(),
    "function_sweep": FunctionSweep(
        name="module.train", python="3.11", space=SPACE, metric="loss", mode="min"
    ),
    "script_sweep": ScriptSweep(script="train.py", space=SPACE, metric="loss", mode="min"),
    "batch": BatchInference(name="module.Model", python="3.11", batch_size=8, channel="matrix"),
}

INPUTS = {
    "matrix": Input(
        "s3://b/matrix/", distribution="ShardedByS3Key", mode="FastFile", content_type="text/csv"
    )
}

GROUPS = (InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("work", "ml.g5.xlarge", 2))

SHAPES = {
    "one type": {"cluster": Cluster("ml.m5.large", count=3, volume_gb=100), "inputs": INPUTS},
    "warm": {"cluster": Cluster("ml.m5.large", keep_alive_s=600), "inputs": INPUTS},
    "reserved": {"cluster": Cluster("ml.p4d.24xlarge", training_plan=RESERVED), "inputs": INPUTS},
    "groups": {
        "cluster": Cluster(groups=GROUPS, head="head"),
        "inputs": {"matrix": Input("s3://b/matrix", groups=("work",))},
    },
}

CAPACITY = {
    "on demand": {"limits": Limits(max_runtime_s=3600, retry_attempts=3)},
    "spot": {
        "limits": Limits(max_runtime_s=3600, spot=True),
        "checkpoint_uri": "s3://b/checkpoints",
    },
}

NETWORK = {"subnets": ("subnet-1", "subnet-2"), "security_groups": ("sg-1",)}

SECURITIES = {
    "open": Security(),
    "behind a network": Security(**NETWORK, output_kms_key=KEY, encrypt_traffic=True),
    "isolated": Security(**NETWORK, isolation=True),
    "looked into": Security(remote_debug=True),
}

WORDS = {
    "environment": {"OMP_NUM_THREADS": "4"},
    "tags": {"team": "search"},
    "output_uri": "s3://b/results",
}

TRAINING_WORDS = {
    "hyperparameters": {"lr": "0.1"},
    "metrics": (MetricDefinition("loss", "loss=([0-9.]+)"),),
}

WITHOUT = {
    ("warm", "spot"): "a warm pool has no spot capacity",
    ("reserved", "spot"): "reserved capacity is no spot capacity",
}
"""Of Training, what AWS has not together."""


def planned(kind, workload, **fields):
    """Return the plan of a job on AWS as it would be sent."""
    request = JobRequest(
        name="job-20261122-000714-2373dfb3", workload=workload, kind=kind, **WORDS, **fields
    )
    seal = Seal(start="a" * 64, digests="b" * 64)
    return plan(
        request, target=aws(), places=places_of(aws()), tags={"raysm:job": "job"}, seal=seal
    )


def trainings():
    """Yield a name and a plan of each that Training has."""
    for workload, shape, capacity, security in itertools.product(
        WORKLOADS, SHAPES, CAPACITY, SECURITIES
    ):
        if (shape, capacity) not in WITHOUT:
            fields = (
                SHAPES[shape]
                | CAPACITY[capacity]
                | TRAINING_WORDS
                | {"security": SECURITIES[security]}
            )
            yield (
                f"{workload}, {shape}, {capacity}, {security}",
                planned("training", WORKLOADS[workload], **fields),
            )
    tracked = SHAPES["one type"] | TRAINING_WORDS | {"tracking": MLFLOW}
    yield "script, tracked", planned("training", WORKLOADS["script"], **tracked)


def processings():
    """Yield a name and a plan of each that Processing has, which lacks groups, spot capacity and a look inside."""
    shape = {
        "cluster": Cluster("ml.m5.large", count=3, volume_gb=100),
        "inputs": {"matrix": Input("s3://b/matrix/")},
    }
    for workload, security in itertools.product(WORKLOADS, ("open", "behind a network")):
        fields = shape | {"limits": Limits(max_runtime_s=3600), "security": SECURITIES[security]}
        yield f"{workload}, {security}", planned("processing", WORKLOADS[workload], **fields)


def plans():
    """Yield the name and the plan of every sort."""
    for kind, sorts in (("training", trainings()), ("processing", processings())):
        for name, sent in sorts:
            yield f"{api_of(kind).create}: {name}", sent
