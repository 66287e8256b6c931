"""Tests of ``raysm.request.targets``."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.targets import AWS, INSTANCE_KINDS, Local, instance_kind, kind_of_image


@pytest.mark.parametrize("name", INSTANCE_KINDS)
def test_a_kind_is_found_by_its_name_and_by_the_image_that_names_it(name):
    kind = instance_kind(name)
    assert kind.name == name
    assert kind_of_image(kind.image) is kind


ROLE = "arn:aws:iam::123456789012:role/jobs"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:cpu"
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:processing-job/a job"


@pytest.mark.parametrize("python", ["3", "py312", "3.12.1", "2.7"])
def test_a_python_that_is_no_version_is_refused(python):
    with pytest.raises(InvalidRequest, match=f"python is the version .*got {python!r}"):
        AWS(role=ROLE, python=python)


def test_the_image_says_the_kind_of_instance_unless_it_is_a_real_one():
    assert (Local().job_image(), Local().instance_kind_told()) == ("raysm/process:latest", None)
    docker = Local(instance_kind="docker", image=IMAGE)
    assert (docker.job_image(), docker.instance_kind_told()) == (IMAGE, "docker")
    with pytest.raises(InvalidRequest, match="instances of the kind docker run a container image"):
        Local(instance_kind="docker").job_image()


def test_a_job_on_aws_has_a_page_in_the_console():
    link = AWS(role=ROLE).console_link(ARN, "processing-jobs", "a job")
    assert link == ("https://eu-west-1.console.aws.amazon.com/sagemaker/home?region=eu-west-1#/processing-jobs/a%20job")
    assert AWS(role=ROLE).console_link("", "jobs", "a") == ""
    assert Local().console_link(ARN, "jobs", "a") == ""


def test_a_target_says_what_it_is_in_another_region():
    assert AWS(role="arn:aws:iam::1:role/r").in_region("eu-west-1").region == "eu-west-1"
    assert Local(regions=("us-east-1", "eu-west-1")).in_region("eu-west-1").regions == ("eu-west-1",)


@pytest.mark.parametrize("regions", [(), ("Europe",), ("us-east-1", "")])
def test_regions_are_names_as_a_signature_has_them(regions):
    with pytest.raises(InvalidRequest, match="regions are one or more names"):
        Local(regions=regions)


def test_a_program_of_the_account_reaches_it_by_its_own_role_and_home():
    assert AWS(role=ROLE, profile="mine").within("eu-west-1") == AWS(role=ROLE, region="eu-west-1")
    there = Local(home="/elsewhere", regions=("eu-west-1", "us-east-1")).within("us-east-1")
    assert there == Local(regions=("us-east-1", "eu-west-1"))
