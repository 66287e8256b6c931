"""The configuration files and disks of containers of real jobs, as others have published them."""

import json
from pathlib import Path

import pytest

from raysm.bootstrap import environment
from raysm.bootstrap.scratch import Disk, choose
from raysm.contract.paths import Paths
from tests.support.recorded_answers import ANSWERS, sourced

GB = 10**9


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
    assert (read.current_host, read.network_interface) == ("algo-1", written.get("network_interface_name"))
    assert read.resource_config == written


def test_the_channels_are_those_of_the_file_with_or_without_a_content_type(tmp_path):
    read = instance(tmp_path, ANSWERS["resources"][0]["text"], ANSWERS["inputs"])
    assert read.channels == ("train", "validation")
    assert read.input_data_config == ANSWERS["inputs"]


@pytest.mark.parametrize("recorded", sourced(ANSWERS["disk"]))
def test_with_the_disks_of_a_real_instance_scratch_is_on_the_volume_that_was_asked_for(recorded):
    root = Disk(folder=Path("/opt/ml"), scratch=Path("/opt/ml/scratch"), free_bytes=recorded["root_gb"] * GB)
    volume = Disk(folder=Path("/tmp"), scratch=Path("/tmp/raysm"), free_bytes=recorded["volume_gb"] * GB)
    assert choose([root, volume]) == choose([volume, root]) == volume
