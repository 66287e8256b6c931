"""Requests of trainings that cannot run are refused before anything is sent."""

import pytest

from raysm.core.request.cluster import Alternative, Cluster, InstanceGroup
from raysm.core.request.job import JobRequest
from raysm.errors import InvalidRequest
from raysm.features.training.request import TrainLoop


def loop(**options):
    return TrainLoop(name="train.loop", python="3.11", **options)


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster("ml.g4dn.12xlarge", count=2),
        Cluster("ml.g5.xlarge", alternatives=("ml.g4dn.xlarge",)),
        Cluster("ml.g5.xlarge", alternatives=(Alternative("ml.p3.2xlarge", count=1),)),
        Cluster(
            groups=(
                InstanceGroup("a", "ml.p4d.24xlarge", 1),
                InstanceGroup("b", "ml.p3dn.24xlarge", 1),
            )
        ),
    ],
    ids=lambda cluster: " ".join(cluster.types),
)
def test_bf16_is_refused_for_types_whose_gpus_lack_it(cluster):
    with pytest.raises(InvalidRequest, match=r"(g4dn|p3|p3dn)\..*(T4|V100)"):
        JobRequest(name="train", workload=loop(precision="bf16"), cluster=cluster)


@pytest.mark.parametrize(
    "instance_type", ["local", "ml.m5.large", "ml.g5.xlarge", "ml.p5.48xlarge"]
)
def test_bf16_is_taken_for_cpus_and_newer_gpus(instance_type):
    JobRequest(name="train", workload=loop(precision="bf16"), cluster=Cluster(instance_type))


def test_fp32_is_taken_for_any_type():
    JobRequest(name="train", workload=loop(), cluster=Cluster("ml.g4dn.xlarge"))
