"""What raysm leaves out of Ray Train."""

import pytest
from ray.train import ScalingConfig

from raysm.workloads.nodes import Node
from raysm.workloads.training.launch.data_parallel import lost_nodes, trainer_class


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_the_workers_start_without_a_manager_of_ray_datasets_and_without_what_asks_the_dashboard():
    trainer = trainer_class()(lambda: None, scaling_config=ScalingConfig(num_workers=1))
    names = [type(callback).__name__ for callback in trainer._create_default_callbacks()]
    assert "BackendSetupCallback" in names
    assert not {"DatasetsCallback", "PlacementGroupCleanerCallback"} & set(names)


def test_an_instance_that_is_silent_is_lost_but_where_this_one_has_no_breath_either():
    head, silent, failed = (
        Node(host=name, node_id=name, address="", rank=rank, instance_type="", cpus=2, gpus=0)
        for rank, name in enumerate(("algo-1", "algo-2", "algo-3"))
    )
    assert lost_nodes([silent], [failed], own_id=head.node_id) == [silent, failed]
    assert lost_nodes([head, silent], [failed], own_id=head.node_id) == [failed]
    assert lost_nodes([], [], own_id=head.node_id) == []
