"""The image is in ECR, in the job's region, under its tag."""

import pytest

from raysm.client.doctor import CHECKS, Intent, State
from raysm.client.doctor.image import look_at_image
from tests.support import aws_account
from tests.support.sagemaker import ACCOUNT, IMAGE, REGION

REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


def image(uri):
    with aws_account.account(image=uri) as made:
        (finding,) = made.findings()["image"]
        return finding


def test_an_image_that_is_there_is_good():
    assert image(IMAGE).state is State.GOOD


@pytest.mark.parametrize(
    ("uri", "text", "remedy"),
    [
        (f"{REGISTRY}/raysm:gpu", "there is no image", "aws ecr list-images --repository-name raysm"),
        (f"{REGISTRY}/raysm", "there is no image", "aws ecr list-images"),
        (f"{REGISTRY}/raysm@sha256:{'1' * 64}", "there is no image", "aws ecr list-images"),
        (f"{REGISTRY}/other:cpu", "there is no repository other", "aws ecr describe-repositories"),
        (IMAGE.replace(REGION, "us-east-1"), "lies in us-east-1", "docker pull"),
        ("docker.io/library/python:3.12", "is not in Amazon ECR", "push it to"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_bad(uri, text, remedy):
    finding = image(uri)
    assert finding.state is State.BAD
    assert text in finding.text
    assert remedy in finding.remedy


def test_who_may_not_ask_for_the_image_could_not_look(account):
    account.refuse("batch_get_image")
    assert account.findings()["image"][0].state is State.UNKNOWN


def test_without_an_image_aws_own_is_looked_for_in_the_registry_of_the_region():
    with aws_account.account(image=None) as made:
        (finding,) = made.findings()["image"]
        assert "pytorch" in finding.text
        assert made.findings(Intent())["image"][0].state is State.UNKNOWN


def test_a_region_without_an_image_of_aws_is_told_to_name_one():
    with aws_account.account(image=None, region="xx-west-1") as made:
        assert "AWS(image=" in made.findings()["image"][0].text


def test_the_doctor_carries_these_checks_out():
    assert {look_at_image} <= {check.look for check in CHECKS}
