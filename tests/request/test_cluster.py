"""Tests of ``raysm.request.cluster``."""

from dataclasses import fields

import pytest

from raysm.errors import InvalidRequest
from raysm.request.cluster import Cluster, Input, InstanceGroup, Ports


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"metrics_export": 65536}, "metrics_export must be 0 to 65535, got 65536"),
        ({"dashboard": 6379}, "dashboard and gcs are both 6379"),
        ({"control": 0}, "control must be a fixed port"),
        ({"worker_min": 20000}, "worker_max=19999 lies below worker_min=20000"),
    ],
)
def test_ports_that_cannot_be_are_refused(chosen, message):
    with pytest.raises(InvalidRequest, match=message):
        Ports(**chosen)


def test_no_fixed_port_lies_in_the_range_of_the_workers():
    ports = Ports()
    fixed = [getattr(ports, item.name) for item in fields(Ports) if not item.name.startswith("worker")]
    assert not [port for port in fixed if ports.worker_min <= port <= ports.worker_max]


def test_the_mode_pipe_of_old_estimators_is_refused_where_it_is_written():
    with pytest.raises(InvalidRequest, match="mode is 'File' or 'FastFile' .*, got 'Pipe'"):
        Input("s3://bucket/x", mode="Pipe")


HEAD = InstanceGroup("head", "ml.m5.large", 1)
WORK = InstanceGroup("work", "ml.c5.xlarge", 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 2, "groups": [HEAD]}, "either groups, or instance_type and count"),
        ({"groups": [InstanceGroup(f"g{i}", "ml.m5.large", 1) for i in range(6)]}, "at most 5 instance groups, got 6"),
        ({"groups": [WORK, WORK]}, "distinct names, got work, work"),
        ({"groups": [HEAD, WORK], "head": "boss"}, "head='boss' is not an instance group; the groups are head, work"),
        ({"alternatives": ["ml.c5.large"]}, "distinct types of SageMaker, got local, ml.c5.large"),
        ({"instance_type": "ml.c5.large", "alternatives": [f"ml.m{i}.large" for i in range(5)]}, "at most 5 distinct"),
        ({"coordinator_only": True}, "leaves no instance to work on"),
        ({"count": 2, "min_instances": 3}, "min_instances must be 1 to 2, got 3"),
        ({"join_timeout_s": 0}, "join_timeout_s must be above 0"),
        ({"silence_s": 2.9}, r"silence_s must be 3 \(three heartbeats\) to 86400, got 2.9"),
        ({"on_instance_loss": "cry"}, "'fail' or 'continue', got 'cry'"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        Cluster(**fields)


def test_each_type_of_a_choice_is_a_way_of_its_own_to_have_the_instances():
    assert Cluster("ml.m5.large", count=2, alternatives=("ml.c5.large",)).choices == (
        {"ml.m5.large": 2},
        {"ml.c5.large": 2},
    )
    groups = (InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.m5.large", 2))
    assert Cluster(groups=groups).choices == ({"ml.m5.large": 3},)
