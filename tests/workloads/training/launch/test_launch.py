"""What all workers of an attempt share."""

from types import SimpleNamespace

from raysm.bootstrap import environment
from raysm.contract import names
from raysm.request import Cluster
from raysm.workloads.nodes import Node
from raysm.workloads.training.launch.launch import Launch
from raysm.workloads.training.launch.placement import place


def test_a_group_is_counted_over_all_instances_and_known_by_the_jobs_name(tmp_path):
    config = tmp_path / "ml" / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}')
    here = environment.read({names.BASE_DIR: str(tmp_path / "ml"), "TRAINING_JOB_NAME": "a-job"})
    nodes = [
        Node(
            host=f"algo-{number}",
            node_id=str(number),
            address=f"10.0.0.{number}",
            rank=number - 1,
            instance_type="ml.m5.large",
            cpus=4,
            gpus=0,
        )
        for number in (1, 2)
    ]
    launch = Launch(payload=None, environment=here, relay=None, stop=None, threads=None)
    group = launch.group(place(nodes, workers_per_instance=3), 2, 5, 29500)
    assert (group.world_size, group.instances, group.attempt, group.max_restarts) == (6, 2, 2, 5)
    assert (group.master_address, group.master_port, group.run_id) == ("10.0.0.1", 29500, "a-job")


def test_an_instance_may_be_silent_in_a_training_as_long_as_anywhere_else():
    payload = SimpleNamespace(request=SimpleNamespace(cluster=Cluster(silence_s=45)))
    launch = Launch(payload=payload, environment=None, relay=None, stop=None, threads=None)
    assert launch.silence_s == 45
