"""What types compute with, beside the types that SageMaker knows."""

import pytest

from raysm.cli.cores import vcpus_of
from raysm.client.checks import instance_types
from raysm.contract.job_api import TRAINING


@pytest.mark.parametrize(
    ("instance_type", "vcpus"),
    [("ml.m5.large", 2), ("ml.t3.medium", 2), ("ml.c5.xlarge", 4), ("ml.c5.18xlarge", 72), ("ml.c4.8xlarge", 36)],
)
def test_the_size_in_a_types_name_tells_its_cores(instance_type, vcpus):
    assert vcpus_of(instance_type) == vcpus


def test_every_type_of_sagemaker_has_cores():
    assert all(vcpus_of(name) >= 2 for name in instance_types(TRAINING))
