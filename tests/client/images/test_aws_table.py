import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from raysm.client.images.aws_table import images, python_of, registry_of, table_date
from tests import aws_images

ROOT = Path(__file__).parents[3]


def torch_range():
    """Return which versions of torch raysm's own requirements admit."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = map(Requirement, project["optional-dependencies"]["train"])
    return next(requirement.specifier for requirement in listed if requirement.name == "torch")


def test_there_is_an_image_for_both_processors_of_every_torch():
    assert {(image.torch, image.processor) for image in images()} == {
        (image.torch, processor) for image in images() for processor in ("cpu", "gpu")
    }
    assert all((image.cuda is None) == (image.processor == "cpu") for image in images())


def test_every_image_has_a_torch_and_a_python_that_raysm_works_with():
    assert all(f"{image.torch}.0" in torch_range() for image in images())
    assert all(tuple(map(int, image.python.split("."))) >= (3, 11) for image in images())


def test_the_newest_image_is_the_newest_torch_that_raysm_works_with():
    known = [name for table in aws_images.tables() for name in table]
    admitted = {".".join(name.split(".")[:2]) for name in known if name in torch_range()}
    newest = max(admitted, key=lambda name: tuple(map(int, name.split("."))))
    assert images()[0].torch == newest, "run: python -m tests.aws_images, with its Python and CUDA"


def test_registries_and_images_are_those_of_the_sdks_tables():
    """What stands in the table is what the script makes of the SDK; a newer SDK may have more."""
    made = aws_images.made()
    assert all(made["registries"][region] == registry_of(region) for region in made["registries"])
    kept = [(item["repository"], item["tag"]) for item in made["images"]]
    assert kept == [(image.repository, image.tag) for image in images()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("region", ["us-east-1", "eu-south-1", "cn-north-1", "us-gov-west-1", "us-iso-east-1"])
@pytest.mark.parametrize(("processor", "instance_type"), [("cpu", "ml.m5.large"), ("gpu", "ml.g5.xlarge")])
def test_a_uri_is_the_one_that_the_sdk_makes(region, processor, instance_type):
    from sagemaker.core.image_uris import retrieve

    image = next(image for image in images() if image.processor == processor)
    uri = retrieve("pytorch-amzn2023", region, version=image.torch, instance_type=instance_type, image_scope="training")
    assert image.uri(registry_of(region)) == uri


def test_a_region_that_aws_does_not_list_has_no_registry():
    assert registry_of("xx-north-1") is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", table_date())


HERE = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("pytorch:2.13-cpu-amzn2023-sagemaker", "3.12"),
        ("pytorch:2.13-cu133-amzn2023-sagemaker-v1.2", "3.12"),
        ("pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04-sagemaker", "3.13"),
        ("pytorch-training:2.5.1-cpu-py311-ubuntu22.04-sagemaker", "3.11"),
        ("huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04", "3.12"),
        ("pytorch:2.99-cpu-amzn2023-sagemaker", None),
        ("pytorch", None),
    ],
)
def test_the_python_of_aws_own_images_is_known(name, python):
    assert python_of(f"{HERE}/{name}") == python


def test_of_other_registries_nothing_is_believed():
    assert python_of("123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1-py311") is None
    assert python_of("pytorch:2.13-cpu-amzn2023-sagemaker") is None
