import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from raysm.client.images.default_image import LEAST_PYTHON, check_python, default_image, with_image
from raysm.errors import InvalidRequest
from raysm.request import Cluster, InstanceGroup, JobRequest, PickledFunction, Script
from tests.support.sagemaker import IMAGE, aws

AWS_OWN = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"


def tag(cluster, region="eu-west-1", python=None):
    return default_image(cluster, region, python)[0].tag


def pickled_by(python):
    return PickledFunction(name="tune", python=python)


def request(workload=None, **cluster):
    return JobRequest(
        name="job", workload=workload or Script("a.py"), cluster=Cluster(**{"instance_type": "ml.m5.large"} | cluster)
    )


def never():
    raise AssertionError("the region was not to be asked for")


def test_cpus_and_gpus_have_an_image_each():
    assert "-cpu-" in tag(Cluster("ml.c5.4xlarge"))
    assert "-cu" in tag(Cluster("ml.g5.xlarge"))


def test_a_cluster_of_both_takes_the_one_for_gpus():
    groups = (InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("gpus", "ml.g5.xlarge", 2))
    assert "-cu" in tag(Cluster(groups=groups))


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-west-2", "763104351884.dkr.ecr.us-west-2.amazonaws.com"),
        ("eu-south-1", "692866216735.dkr.ecr.eu-south-1.amazonaws.com"),
        ("cn-north-1", "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_a_region_has_a_registry_of_its_own(region, registry):
    assert default_image(Cluster("ml.m5.large"), region)[1] == registry


def test_a_region_without_images_is_refused_with_the_remedy():
    with pytest.raises(InvalidRequest, match=r"'xx-north-1' \(table of 20.*AWS\(image=…\).*raysm image build --push"):
        default_image(Cluster("ml.m5.large"), "xx-north-1")


@pytest.mark.parametrize(
    ("instance_type", "reason"),
    [
        ("ml.trn1.32xlarge", "AWS Neuron"),
        ("ml.m7g.large", "ARM processors"),
        ("ml.p6e-gb200.36xlarge", "ARM processors"),
        ("ml.p3.2xlarge", "too old for the CUDA 13"),
    ],
)
def test_instances_on_which_none_runs_are_refused(instance_type, reason):
    with pytest.raises(InvalidRequest, match=f"no image is named, and .*{instance_type} .*{reason}|{reason}"):
        default_image(Cluster(instance_type), "us-east-1")


def test_the_newest_that_can_read_the_pickle_is_taken():
    assert "py313" in tag(Cluster("ml.m5.large"), python="3.13")
    assert tag(Cluster("ml.m5.large"), python="3.12") == tag(Cluster("ml.m5.large"))


def test_without_one_that_can_read_it_the_remedies_are_said():
    with pytest.raises(InvalidRequest, match=r"Python 3\.12, 3\.13, not 3\.11.*--base python:3\.11-slim --push"):
        tag(Cluster("ml.m5.large"), python="3.11")


def test_an_image_that_is_named_is_taken_without_asking_where():
    assert with_image(aws(), request(), never) == (aws(), "")


def test_what_was_taken_is_said():
    target, said = with_image(aws(image=None), request(), lambda: "eu-west-1")
    assert target.image.startswith(f"{AWS_OWN}/pytorch:")
    assert target.python == "3.12"
    assert said.startswith(target.image)
    assert re.search(r"AWS's PyTorch \d\.\d+ for CPUs, Python 3\.12\), since no image is named", said)


def test_the_python_that_is_named_chooses_among_aws_own():
    assert "py313" in with_image(aws(image=None, python="3.13"), request(), lambda: "eu-west-1")[0].image


@dataclass(frozen=True)
class Case:
    image: str
    python: str | None
    is_refused: bool


@pytest.mark.parametrize(
    "case",
    [
        Case(f"{AWS_OWN}/pytorch:2.13-cpu-amzn2023-sagemaker", None, is_refused=True),
        Case(IMAGE, None, is_refused=False),
        Case(IMAGE, "3.11", is_refused=False),
        Case(IMAGE, "3.12", is_refused=True),
        # Who names it knows better than the table.
        Case(f"{AWS_OWN}/pytorch:2.13-cpu-amzn2023-sagemaker", "3.11", is_refused=False),
    ],
    ids=["AWS's", "unknown", "named right", "named wrong", "named against the table"],
)
def test_a_pickle_that_the_image_cannot_read_is_refused(case):
    target = aws(image=case.image, python=case.python)
    if not case.is_refused:
        check_python(pickled_by("3.11"), target)
        return
    with pytest.raises(InvalidRequest, match=r"tune is pickled by this Python 3\.11, .* has Python 3\.12.*as a script"):
        check_python(pickled_by("3.11"), target)


def test_what_is_not_pickled_runs_in_any():
    check_python(Script("a.py"), aws(image=IMAGE, python="3.14"))


def test_a_python_that_raysm_does_not_run_on_is_refused_before_an_instance_is():
    old = f"{AWS_OWN}/pytorch-training:2.2.0-cpu-py310-ubuntu20.04-sagemaker"
    with pytest.raises(InvalidRequest, match=r"has Python 3\.10, and raysm needs 3\.11 or later"):
        check_python(Script("a.py"), aws(image=old))


def test_the_least_python_is_the_projects():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={'.'.join(map(str, LEAST_PYTHON))}"
