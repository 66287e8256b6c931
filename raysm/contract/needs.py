"""The packages that instances import beside raysm, and which versions of Ray will do.

What flows in are versions and requirements, what flows out is whether raysm can work with them. The client asks before
anything is spent, the instances when they find out what their image has.
"""

import re

__all__ = ["NEEDS", "RAY_RANGE", "name_of", "ray_will_do", "release_of"]

# The standard library alone: the instances ask before anything is installed there.
RAY_RANGE = ">=2.60,<2.61"
"""One release: the bootstrap goes by names inside of Ray, and by options of ``ray start``, that others lack."""

NEEDS = {
    # Without default there is no dashboard, and without train Ray Train lacks pandas.
    "ray": f"ray[default,train]{RAY_RANGE}",
    "cloudpickle": "cloudpickle>=3",
    "numpy": "numpy>=1.26",
    "optuna": "optuna>=4",
    "pyarrow": "pyarrow>=17",
    "safetensors": "safetensors>=0.5",
    "torch": "torch>=2.9,<2.14",
    # The whole of it is for its server, which no instance is.
    "mlflow": "mlflow-skinny>=3.17",
    "sagemaker_mlflow": "sagemaker-mlflow>=0.5",
}
"""What instances import, and the pyproject's requirement of each."""

NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")


def name_of(requirement: str) -> str:
    """Return the name of the package that a line of a requirements.txt asks for; empty where it names none.

    In the form in which names are compared: ``Ray`` is ``ray``, and ``a_b`` is ``a-b``.
    """
    match = NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: ``(2, 60, 1)`` of ``2.60.1rc2+cpu``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def ray_will_do(version: str) -> bool:
    """Return whether raysm works with this version of Ray."""
    least, below = (release_of(bound.lstrip("<>=")) for bound in RAY_RANGE.split(","))
    return least <= release_of(version) < below
