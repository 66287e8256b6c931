"""What raysm leaves out of Ray Train."""

import pytest
from ray.train import ScalingConfig

from raysm.workloads.training.launch.data_parallel import trainer_class


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_the_workers_start_without_a_manager_of_ray_datasets():
    trainer = trainer_class()(lambda: None, scaling_config=ScalingConfig(num_workers=1))
    names = [type(callback).__name__ for callback in trainer._create_default_callbacks()]
    assert "BackendSetupCallback" in names
    assert "DatasetsCallback" not in names
