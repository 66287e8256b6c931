"""raysm for users of the SageMaker Python SDK: ``ModelTrainer(..., distributed=raysm.sdk.Ray())``.

Needs the extra ``sdk``. The SDK, whose import takes seconds, is imported on the first use of
``Ray``.
"""

from typing import TYPE_CHECKING, Any

from raysm.core import features
from raysm.errors import MissingDependency

if TYPE_CHECKING:
    from raysm.features.training.sdk import Ray

__all__ = ["Ray"]


def __getattr__(name: str) -> Any:
    if name != "Ray":
        # ``hasattr`` and ``from … import`` expect this type.
        raise AttributeError(f"module 'raysm.sdk' has no attribute {name!r}")
    try:
        return features.view("sdk_ray")
    except ImportError as error:
        # Version 2 of the SDK lacks sagemaker.train too.
        raise MissingDependency(
            "raysm.sdk needs the SageMaker Python SDK, version 3, "
            f"and {error.name} is not installed: python3 -m pip install 'raysm[sdk]'"
        ) from error
