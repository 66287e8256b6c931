"""The size of a training, which nobody scales: what Ray Train is told instead of asking an autoscaler for it.

What flows in are the arguments of Ray Train's controller, what flows out is the same with a policy of ours. Its own
starts an actor that coordinates what datasets and trainings ask of an autoscaler, 2 s of a core on the instance that
starts the workers; a SageMaker job has the instances that it has.
"""

from collections.abc import Mapping
from typing import Any

from raysm.bootstrap.ray_internals import SCALING_POLICY

__all__ = ["without_autoscaler"]

POLICY = "scaling_policy"


def without_autoscaler(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a controller whose policy asks nobody; as they are, where Ray has another one."""
    kind = SCALING_POLICY.find()
    policy: Any = arguments.get(POLICY)
    if kind is None or type(policy) is not kind:
        return dict(arguments)
    return {**arguments, POLICY: _alone(kind, policy.scaling_config)}


def _alone(kind: type[Any], config: Any) -> Any:
    class FixedSize(kind):  # type: ignore[misc]
        def after_controller_start(self, train_run_context: Any) -> None:
            """Ask for nothing."""

        def _maybe_send_resource_request(self) -> None:
            """Nor now and then."""

    # Made here, where Ray's own class is known to fit: pickled whole, it travels to the controller.
    return FixedSize(config)
