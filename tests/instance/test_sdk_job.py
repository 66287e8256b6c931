"""The payload that an instance makes for itself of what the SageMaker SDK brings."""

import json

import pytest

from raysm.core.protocol import payload
from raysm.core.protocol.paths import Paths
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.features.script.request import Script
from raysm.instance import environment
from raysm.instance.sdk_job import make_payload
from tests.support.bootstraps import write_training

GROUPS = [
    {"instance_group_name": "head", "instance_type": "ml.m5.large", "hosts": ["algo-1"]},
    {"instance_group_name": "work", "instance_type": "ml.c5.large", "hosts": ["algo-2", "algo-3"]},
]


class Instance:
    """An instance with what the SDK's channels bring."""

    def __init__(
        self, base, options=None, entry="train.py", hosts=("algo-1", "algo-2"), **resources
    ):
        self.base, paths = base, Paths(base)
        write_training(base, hosts[0], list(hosts), hyperparameters={"epochs": "3"}, **resources)
        channels = {"code": {}, "sm_drivers": {}, "train": {"S3DistributionType": "ShardedByS3Key"}}
        paths.input_data_config.write_text(json.dumps(channels))
        self.code, sdk = paths.channel("code"), paths.channel("sm_drivers")
        self.code.mkdir(parents=True)
        (self.code / "train.py").write_text("print(1)")
        self.drivers = sdk / "distributed_drivers" / "raysm"
        self.drivers.parent.mkdir(parents=True)
        payload.pack_driver(self.drivers)
        (sdk / "distributed.json").write_text(json.dumps(options or {}))
        (sdk / "sourcecode.json").write_text(
            json.dumps({"source_dir": "src", "entry_script": entry})
        )

    def make(self):
        found = environment.read(
            {"SAGEMAKER_BASE_DIR": str(self.base), "TRAINING_JOB_NAME": "sdk-job"}
        )
        return make_payload(self.drivers, found, self.base / "made")


def test_the_payload_runs_the_entry_script_where_it_lies_on_all_instances(tmp_path):
    instance = Instance(tmp_path)
    made = instance.make()
    assert made.request.name == "sdk-job"
    assert made.request.workload == Script("train.py")
    assert made.request.script_args == ("--epochs", "3")
    assert made.request.cluster.size == 2
    assert made.source.resolve() == instance.code.resolve()
    assert {name: given.distribution for name, given in made.request.inputs.items()} == {
        "train": "ShardedByS3Key"
    }


def test_instances_that_were_brought_the_same_make_the_same_with_the_secret_that_travelled(
    tmp_path,
):
    first = Instance(tmp_path)
    one = first.make()
    made = make_payload(
        first.drivers, environment.read({"SAGEMAKER_BASE_DIR": str(tmp_path), "TRAINING_JOB_NAME": "sdk-job"}),
        tmp_path / "again",
    )  # fmt: skip
    assert made.digest == one.digest
    assert made.token() == (first.drivers / "token").read_bytes()


def test_the_options_of_ray_shape_the_cluster(tmp_path):
    options = {"head": "work", "coordinator_only": True, "min_instances": 2, "join_timeout_s": 60}
    hosts = ("algo-1", "algo-2", "algo-3")
    cluster = Instance(
        tmp_path, options, hosts=hosts, instance_groups=GROUPS, current_group_name="head"
    ).make()
    cluster = cluster.request.cluster
    assert [(group.name, group.instance_type, group.count) for group in cluster.groups] == [
        ("head", "ml.m5.large", 1),
        ("work", "ml.c5.large", 2),
    ]
    assert (cluster.head, cluster.coordinator_only, cluster.min_instances) == ("work", True, 2)


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ("train.sh", InvalidConfig, "must be a Python file"),
        (None, InvalidConfig, "must be a Python file"),
        ("absent.py", InvalidRequest, "'absent.py'"),
    ],
)
def test_an_entry_script_that_cannot_run_on_the_head_is_refused(tmp_path, entry, error, message):
    with pytest.raises(error, match=message):
        Instance(tmp_path, entry=entry).make()
