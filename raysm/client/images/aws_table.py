"""AWS's PyTorch images, its deep-learning containers: where each region has them, and what each has inside.

What flows in is ``aws_images.json``, written by ``python -m tests.aws_images`` from the tables of the SageMaker SDK;
what flows out are values. Nothing is asked: ECR of another account answers only who is logged in.
"""

import functools
import json
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

__all__ = ["AWSImage", "images", "python_of", "registry_of", "table_date"]

PYTHON_IN_TAG = re.compile(r"-py(3)(\d{1,2})(?=-|$)")
"""How AWS's older repositories say it: ``2.5.1-cpu-py311-ubuntu22.04-sagemaker``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AWSImage:
    """One image, the same in every region."""

    torch: str
    """Version of PyTorch, ``2.13``."""
    processor: str
    """``cpu`` or ``gpu``; one for GPUs runs on CPUs too."""
    repository: str
    """Of ECR."""
    tag: str
    """Of the repository."""
    python: str
    """Version of Python, ``3.12``."""
    cuda: str | None
    """Version of CUDA; None where it has none."""

    def uri(self, registry: str) -> str:
        """Return its URI in a registry."""
        return f"{registry}/{self.repository}:{self.tag}"

    def describe(self) -> str:
        """Say what it is, for people."""
        computes = "CPUs" if self.cuda is None else f"GPUs, CUDA {self.cuda}"
        return f"AWS's PyTorch {self.torch} for {computes}, Python {self.python}"


@functools.cache
def _table() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files("raysm.client.images").joinpath("aws_images.json").read_text("utf-8"))
    return content


@functools.cache
def images() -> tuple[AWSImage, ...]:
    """Return the images whose torch raysm works with, the newest first."""
    return tuple(AWSImage(**item) for item in _table()["images"])


def registry_of(region: str) -> str | None:
    """Return the registry from which jobs of a region take AWS's images; None where the table has none."""
    registry: str | None = _table()["registries"].get(region)
    return registry


def table_date() -> str:
    """Return the day of the table, ``2026-11-22``."""
    return str(_table()["date"])


def python_of(uri: str) -> str | None:
    """Return the version of Python of one of AWS's images, ``3.12``; None of all others, and where that is not known.

    Only of AWS's own registries: what others write into a tag may mean anything.
    """
    registry, _, name = uri.partition("/")
    if registry not in _table()["registries"].values():
        return None
    repository, _, tag = name.partition(":")
    for image in images():
        # A tag may say more than the table's: 2.13-cpu-amzn2023-sagemaker-v1, and so on.
        if image.repository == repository and (tag == image.tag or tag.startswith(f"{image.tag}-")):
            return image.python
    # Of images whose torch is too old for raysm the table knows nothing, but their tags tell it.
    named = PYTHON_IN_TAG.search(tag)
    return f"{named[1]}.{named[2]}" if named else None
