"""Write ``aws_images.json`` of ``raysm.features.account`` anew, by the SageMaker SDK: ``python -m tests.aws_images``.

The Python of an image and its CUDA are below, from AWS's own pages; an unknown image stops the
script.
"""

import datetime
import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from packaging.version import Version

TABLE = Path(__file__).parents[1] / "raysm" / "core" / "client" / "aws_images.json"

CHANGELOG = "https://aws.github.io/deep-learning-containers/pytorch/changelog/"
RELEASES = "https://github.com/aws/deep-learning-containers/tree/main/docs/src/data (read at e0ecede, 2026-08-21)"

KNOWN = {
    "2.9.0": ("3.12", "13.0"),
    "2.10.0": ("3.13", "13.0"),
    "2.11": ("3.12", "13.0"),
    "2.12": ("3.12", "13.0"),
    "2.13": ("3.12", "13.3"),
}
"""Python and CUDA by the SDK's name of a version: those whose torch raysm's pyproject.toml
admits."""


def tables():
    """Return the SDK's tables of versions, the older repository's first."""
    folder = files("sagemaker.core") / "image_uri_config"
    return [
        json.loads((folder / name).read_text())["training"]["versions"]
        for name in ("pytorch.json", "pytorch-amzn2023.json")
    ]


def domain(region):
    """Return what registries of a region are called behind the account."""
    from sagemaker.core.common_utils import _botocore_resolver

    found = _botocore_resolver().construct_endpoint("ecr", region)
    suffix = found["dnsSuffix"] if found else "amazonaws.com"
    return f"dkr.ecr.{region}.{suffix}"


def registries(listed):
    """Return the registry of each region."""
    return {region: f"{account}.{domain(region)}" for region, account in sorted(listed.items())}


def images(name, entry):
    """Yield the images of one version, as the SDK's ``retrieve`` would call them."""
    python, cuda = KNOWN[name]
    for processor in ("cpu", "gpu"):
        if "container_version" in entry:
            tag = f"{entry['tag_prefix']}-{entry['container_version'][processor]}"
        else:
            tag = f"{name}-{processor}-py{python.replace('.', '')}"
            assert f"py{python.replace('.', '')}" in entry["py_versions"], (
                name,
                entry["py_versions"],
            )
        yield {
            "torch": ".".join(name.split(".")[:2]),
            "processor": processor,
            "repository": entry["repository"],
            "tag": tag,
            "python": python,
            "cuda": cuda if processor == "gpu" else None,
        }


def made():
    """Return the table, the newest image first."""
    entries = {name: entry for table in tables() for name, entry in table.items() if name in KNOWN}
    newest = sorted(KNOWN, key=Version, reverse=True)
    everywhere = entries[newest[0]]["registries"]
    for name, entry in entries.items():
        assert entry["registries"] == everywhere, (
            f"{name} has other registries: let images name their regions"
        )
    return {
        "date": datetime.date.today().isoformat(),
        "sources": [
            f"sagemaker-core {version('sagemaker-core')}: image_uri_config",
            CHANGELOG,
            RELEASES,
        ],
        "registries": registries(everywhere),
        "images": [image for name in newest for image in images(name, entries[name])],
    }


if __name__ == "__main__":
    TABLE.write_text(json.dumps(made(), indent=1) + "\n")
    print(f"wrote {TABLE}")
