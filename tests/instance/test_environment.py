"""What an instance is told, in both layouts, and raysm's own variables."""

import json
from pathlib import Path

import pytest

from raysm import Cluster, InstanceGroup, Ports
from raysm.core.protocol.job_api import PROCESSING, TRAINING
from raysm.core.protocol.paths import Paths
from raysm.errors import InvalidConfig
from raysm.instance import environment
from tests.support.bootstraps import write_training
from tests.support.recorded_answers import ANSWERS, sourced


def instance(base, resources, inputs=None):
    """Return what an instance reads that has these files; ``resources`` is the text of the one."""
    paths = Paths(base)
    paths.config.mkdir(parents=True)
    paths.resource_config.write_text(resources)
    paths.input_data_config.write_text(json.dumps(inputs or {}))
    return environment.read({"SAGEMAKER_BASE_DIR": str(base), "TRAINING_JOB_NAME": "a-job"})


@pytest.mark.parametrize("recorded", sourced(ANSWERS["resources"]))
def test_the_resources_of_jobs_of_every_year_are_read(tmp_path, recorded):
    written = json.loads(recorded["text"])
    read = instance(tmp_path, recorded["text"])
    assert [host.name for host in read.hosts] == written["hosts"]
    assert [host.instance_type for host in read.hosts] == recorded["types"]
    assert {host.group for host in read.hosts} == {"homogeneousCluster"}
    assert (read.current_host, read.network_interface) == (
        "algo-1",
        written.get("network_interface_name"),
    )
    assert read.resource_config == written


HOSTS = sorted(f"algo-{i}" for i in range(1, 13))
GROUPS = [
    {
        "instance_group_name": "work",
        "instance_type": "ml.g5.xlarge",
        "hosts": [h for h in HOSTS if h != "algo-7"],
    },
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-7"]},
]


def read(base, **variables):
    return environment.read({"SAGEMAKER_BASE_DIR": str(base)} | variables)


def test_a_training_instance_is_read(tmp_path):
    paths = write_training(
        tmp_path, "algo-10", HOSTS, hyperparameters={"lr": "0.1"}, network_interface_name="eth0"
    )
    paths.input_data_config.write_text(json.dumps({"matrix": {}, "raysm": {}, "labels": {}}))
    found = read(tmp_path, TRAINING_JOB_NAME="a-job")
    assert (found.paths.api, found.job_name, found.current_host) == (TRAINING, "a-job", "algo-10")
    assert found.current.name == "algo-10"
    assert found.channels == ("labels", "matrix")
    assert found.hyperparameters == {"lr": "0.1"}
    assert found.network_interface == "eth0"
    assert not found.has_checkpoints
    assert found.ray_temp_dir == Path("/tmp/ray")
    assert found.failure_record is None


def test_a_processing_instance_is_read(tmp_path):
    config = tmp_path / "config"
    config.mkdir()
    (config / "resourceconfig.json").write_text(
        json.dumps({"current_host": "algo-2", "hosts": HOSTS})
    )
    inputs = [{"InputName": "matrix"}, {"InputName": "raysm"}]
    (config / "processingjobconfig.json").write_text(
        json.dumps({"ProcessingJobName": "a-job", "ProcessingInputs": inputs})
    )
    found = read(tmp_path)
    assert (found.paths.api, found.job_name, found.channels) == (PROCESSING, "a-job", ("matrix",))
    assert found.hosts[1].name == "algo-2"
    assert found.paths.payload == tmp_path / "processing/input/raysm"
    assert found.hyperparameters == {}


def test_the_head_of_a_named_group_comes_first_and_the_others_keep_their_order(tmp_path):
    write_training(tmp_path, "algo-10", HOSTS, instance_groups=GROUPS)
    shape = Cluster(
        groups=(InstanceGroup("work", "ml.g5.xlarge", 11), InstanceGroup("head", "ml.t3.medium", 1))
    )
    named = Cluster(groups=shape.groups, head="head")
    ranked = [host.name for host in read(tmp_path).ranked(named)]
    assert ranked == ["algo-7", *(f"algo-{i}" for i in range(1, 13) if i != 7)]
    assert read(tmp_path).head(shape).name == "algo-1"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RAYSM_PORTS", "{", "RAYSM_PORTS is not JSON"),
        ("RAYSM_PORTS", '{"gcs": true}', "RAYSM_PORTS must be a JSON object of int values"),
        ("RAYSM_PORTS", '{"gsc": 1}', "there is no port 'gsc'; known are control, gcs"),
        ("RAYSM_CPUS", "two", "RAYSM_CPUS must be a whole number of at least 0, got 'two'"),
        (
            "RAYSM_MEMORY_BYTES",
            "0",
            "RAYSM_MEMORY_BYTES must be a whole number of at least 1, got '0'",
        ),
        ("RAYSM_RAY_TEMP_DIR", "/tmp/" + "x" * 60, "of at most 40 bytes"),
    ],
)
def test_a_bad_variable_is_named_with_its_value(tmp_path, name, value, words):
    write_training(tmp_path, "algo-1", ["algo-1"])
    with pytest.raises(InvalidConfig) as caught:
        read(tmp_path, **{name: value})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_port_overrides_that_clash_with_the_request_are_named(tmp_path):
    write_training(tmp_path, "algo-1", ["algo-1"])
    found = read(tmp_path, RAYSM_PORTS='{"gcs": 8265}')
    with pytest.raises(InvalidConfig, match="RAYSM_PORTS: .*dashboard and gcs .* 8265"):
        found.ports(Ports())
