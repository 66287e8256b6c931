"""Which Ray will do, and what a line of a requirements.txt names."""

from pathlib import Path

import pytest

import raysm
from raysm.contract.needs import NEEDS, name_of, ray_will_do, release_of


def test_what_an_image_may_lack_is_required_as_the_project_requires_it():
    text = (Path(raysm.__file__).parents[1] / "pyproject.toml").read_text()
    known = {"ray", "cloudpickle", "mlflow", "numpy", "optuna", "pyarrow", "safetensors", "sagemaker_mlflow", "torch"}
    assert NEEDS.keys() == known
    assert all(f'"{requirement}"' in text for requirement in NEEDS.values())


@pytest.mark.parametrize("version", ["2.60.0", "2.60.9", "2.60", "2.60.1.post1", "2.60.0+local"])
def test_every_ray_of_the_release_will_do(version):
    assert ray_will_do(version)


@pytest.mark.parametrize("version", ["2.59.9", "2.61.0", "2.6.0", "3.0.0.dev0", "2.600.0", "nightly"])
def test_any_other_ray_will_not(version):
    assert not ray_will_do(version)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ray[default]>=2.60", "ray"),
        ("  Ray == 2.56", "ray"),
        ("sparse_dot.topn", "sparse-dot-topn"),
        ("torch@https://host/torch.whl", "torch"),
        ("# torch", ""),
        ("--no-binary :all:", ""),
        ("", ""),
    ],
)
def test_the_package_that_a_line_names(line, name):
    assert name_of(line) == name


def test_the_numbers_of_a_version():
    assert release_of("2.60.1rc2+cpu") == (2, 60, 1)
    assert release_of("nightly") == ()
