"""The instances as Ray knows them, read from rows as ``ray.nodes()`` returns them."""

from raysm.workloads.nodes import cluster_nodes


def test_the_instances_are_read_from_rays_nodes_by_rank_without_the_dead():
    def row(number, alive=True):
        labels = {"raysm.io/host": f"algo-{number}", "raysm.io/rank": str(number - 1)}
        resources = {"CPU": 2.0, "GPU": 1.0, "object_store_memory": 5e9}
        return {
            "Alive": alive,
            "NodeID": f"id-{number}",
            "NodeManagerAddress": "10.0.0.1",
            "Labels": labels,
            "Resources": resources,
        }

    nodes = cluster_nodes([row(11), row(2, alive=False), row(1)])
    assert [(item.host, item.cpus, item.gpus) for item in nodes] == [("algo-1", 2, 1), ("algo-11", 2, 1)]
    assert {item.object_store_bytes for item in nodes} == {5_000_000_000}
