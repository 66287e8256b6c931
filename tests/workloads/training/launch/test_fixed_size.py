"""That nobody is asked for the workers of a training."""

import cloudpickle
import pytest
from ray.train import ScalingConfig
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy

from raysm.workloads.training.launch.data_parallel import without_autoscaler


@pytest.fixture
def policy():
    arguments = without_autoscaler({"scaling_policy": FixedScalingPolicy(ScalingConfig(num_workers=3)), "train_fn": 7})
    assert arguments["train_fn"] == 7
    # As it travels to the controller.
    return cloudpickle.loads(cloudpickle.dumps(arguments["scaling_policy"]))


def test_a_training_has_its_workers_and_asks_no_autoscaler_for_them(policy):
    # Without a cluster: whoever asked for anything would have to start one.
    policy.after_controller_start(None)
    assert policy.make_decision_for_non_running_worker_group().num_workers == 3
    policy._cancel_resource_request()
    assert policy._coordinator_client is None


def test_a_policy_of_another_kind_stays():
    class Elastic(FixedScalingPolicy):
        pass

    arguments = {"scaling_policy": Elastic(ScalingConfig(num_workers=3))}
    assert without_autoscaler(arguments) == arguments
