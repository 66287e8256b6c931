"""GPUs by instance type."""

import pytest

from raysm.contract.gpus import gpu_count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ml.p3.16xlarge", 8),
        ("ml.p5.48xlarge", 8),
        ("ml.g5.16xlarge", 1),
        ("ml.g5.12xlarge", 4),
        ("ml.p6-b200.48xlarge", 8),
        ("ml.m5.large", 0),
        ("local", 0),
    ],
)
def test_an_instance_has_the_gpus_that_its_page_tells(name, count):
    assert gpu_count(name) == count
