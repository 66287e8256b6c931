"""A private name of Ray that means something else in a later release makes a node slower to start, and no more."""

import json
import sys
from pathlib import Path

import pytest

from raysm.instance.address import default_address
from tests.support import broken_ray
from tests.support.bootstraps import Cluster, request
from tests.support.broken_ray import NAMES

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DRIVER = """
import json, ray
ray.init(log_to_driver=False)
where = ray.remote(lambda: ray.get_runtime_context().get_node_id())
spread = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
nodes = [node["NodeID"] for node in ray.nodes()]
calls = [where.options(num_cpus=0, scheduling_strategy=spread(node, soft=False)).remote() for node in nodes]
assert ray.get(calls) == nodes
print("NODES", len(nodes), flush=True)
"""
AGAIN = "it is started again by plain `ray start`"
STARTS_PLAINLY = {
    "START_PROCESS",
    "INITIALIZE",
    "START_MONITOR",
    "START_DASHBOARD",
    "AGENTS",
    "STAND_IN",
}
"""Those without which no node registers."""


def broken(name):
    return (sys.executable, "-u", "-P", str(Path(broken_ray.__file__)), name)


# Each takes 5 s of a core. Which of them has another meaning depends on the release of Ray: one of
# each way to start, and that of the cluster below, are enough unless Ray or its start changes.
EACH = [
    name if name in ("SETUP_WORKER", "AGENTS") else pytest.param(name, marks=pytest.mark.soak)
    for name in NAMES
]


@pytest.mark.parametrize("name", EACH)
def test_a_node_starts_whichever_name_has_another_meaning(tmp_path, name):
    variables = {"PYTHONPATH": str(Path(broken_ray.__file__).parents[2])}
    with Cluster(
        tmp_path, request(1), driver=DRIVER, fake=False, ray=broken(name), variables=variables
    ) as cluster:
        assert cluster.start().wait() == {"algo-1": 0}, cluster.log("algo-1")
        assert "NODES 1" in cluster.log("algo-1")
        if name in STARTS_PLAINLY:
            assert cluster.log("algo-1").count(AGAIN) == 1


@pytest.mark.skipif(default_address() is None, reason="needs an address beside loopback")
def test_all_nodes_of_a_cluster_start_again_and_each_says_so_in_the_log(tmp_path):
    variables = {
        "PYTHONPATH": str(Path(broken_ray.__file__).parents[2]),
        "RAYSM_ADDRESSES": json.dumps(dict.fromkeys(["algo-1", "algo-2"], default_address())),
    }
    ray = broken("START_PROCESS")
    with Cluster(
        tmp_path, request(2), driver=DRIVER, fake=False, ray=ray, variables=variables
    ) as cluster:
        assert cluster.start().wait() == {"algo-1": 0, "algo-2": 0}, cluster.log(
            "algo-1"
        ) + cluster.log("algo-2")
        assert "NODES 2" in cluster.log("algo-1")
        assert [cluster.log(host).count(AGAIN) for host in cluster.hosts] == [1, 1]
