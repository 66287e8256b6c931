"""The page about what a script finds in a job names what there is, and the ranks that workers have."""

import re
from pathlib import Path

import pytest

from raysm.core.protocol.names import STATE
from raysm.features.training.cluster.launch.placement import Group, place, torchrun_variables
from raysm.instance.work.nodes import Node
from raysm.local.job_spec import JobSpec, number_hosts
from raysm.local.preparation import service_variables, write_files
from tests.reference.tables import example

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "in-a-job.md"
GROUP = Group(
    world_size=8,
    instances=2,
    master_address="algo-1",
    master_port=7777,
    attempt=0,
    max_restarts=0,
    run_id="",
)
NO_PROCESSING_JOBS = re.compile(r"(?m)^- \*\*Processing jobs.*$")
OPTIONAL = {"checkpointconfig.json"}
"""Written only in jobs that keep checkpoints, for which test_preparation has a test."""


@pytest.fixture
def page():
    return PAGE.read_text()


def gpu_nodes(count):
    return [
        Node(
            host=f"algo-{number + 1}",
            node_id=str(number),
            address="",
            rank=number,
            instance_type="ml.g5.12xlarge",
            cpus=48,
            gpus=4,
        )
        for number in range(count)
    ]


def test_each_variable_of_the_page_is_set(page):
    named = set(re.findall(r"`((?:SM|TRAINING|AWS|RAYSM)_[A-Z_]+)`", page))
    spec = JobSpec(name="job", groups=number_hosts(("g", "t", 1)), command=())
    in_table = set(re.findall(r"^\| `(\w+)` \|", example(), re.MULTILINE))
    assert len(named) > 15
    assert named <= {*in_table, *service_variables(spec), STATE}


def test_each_configuration_file_of_the_page_is_written(page, tmp_path):
    named = set(re.findall(r"`(?:/\S+/)?([a-z-]+\.json)`", NO_PROCESSING_JOBS.sub("", page)))
    spec = JobSpec(name="job", groups=number_hosts(("g", "t", 1)), command=())
    paths = write_files(spec, "algo-1", tmp_path, Path("/opt/ml"))
    assert len(named) >= 8
    assert named - OPTIONAL == {path.name for path in paths.config.iterdir()}


def test_an_instances_gpus_are_filled_before_those_of_the_next_as_the_page_shows(page):
    rows = re.findall(r"^\| `(algo-\d)` \| (\d) \| ([\d, ]+) \| ([\d, ]+) \|$", page, re.MULTILINE)
    found = []
    for each in place(gpu_nodes(2)):
        workers = [torchrun_variables(each, local, GROUP) for local in range(each.workers)]
        ranks = ", ".join(worker["RANK"] for worker in workers)
        local_ranks = ", ".join(worker["LOCAL_RANK"] for worker in workers)
        found.append((each.node.host, workers[0]["GROUP_RANK"], ranks, local_ranks))
    assert found == rows


def test_fewer_workers_than_gpus_fill_the_first_instance_and_are_spread_on_cpus():
    on_gpus = place(gpu_nodes(2), workers=6)
    assert [each.workers for each in on_gpus] == [4, 2]
    cpus = [
        Node(
            host=f"algo-{number}",
            node_id=str(number),
            address="",
            rank=number,
            instance_type="ml.c5.4xlarge",
            cpus=16,
            gpus=0,
        )
        for number in range(2)
    ]
    assert [each.workers for each in place(cpus, workers=6)] == [3, 3]
