"""A policy of IAM, made of grants and of the names of one account's things."""

import pytest

from raysm.client.grants import SERVICE, Grant, policy, resources_of, trust


def test_a_resource_stands_once_for_each_name():
    grant = Grant(
        purpose="A", meaning="", actions=("s3:GetObject",), resources=("arn:{partition}:s3:::{input_prefix}*",)
    )
    names = {"partition": ("aws",), "input_prefix": ("a/", "b/", "a/")}
    assert resources_of(grant, names) == ["arn:aws:s3:::a/*", "arn:aws:s3:::b/*"]


def test_what_a_job_does_not_need_has_no_statement():
    grant = Grant(purpose="Network", meaning="", actions=("ec2:DescribeSubnets",), needs="subnet")
    assert resources_of(grant, {}) == []
    assert policy([grant], {})["Statement"] == []
    assert policy([grant], {"subnet": ("subnet-1",)})["Statement"][0]["Resource"] == "*"


def test_a_resource_of_which_a_part_has_no_name_falls_away():
    grant = Grant(purpose="A", meaning="", actions=("s3:GetObject",), resources=("{key}", "arn:{partition}:s3:::b"))
    assert resources_of(grant, {"partition": ("aws", "aws-cn")}) == ["arn:aws:s3:::b", "arn:aws-cn:s3:::b"]


def test_conditions_and_the_version_of_the_language_are_said():
    grant = Grant(purpose="A", meaning="", actions=("a:B",), conditions={"StringEquals": {"a:c": "d"}})
    made = policy([grant], {})
    assert made["Version"] == "2012-10-17"
    assert made["Statement"][0]["Condition"] == {"StringEquals": {"a:c": "d"}}


def test_a_placeholder_that_nobody_closes_is_an_error_of_ours():
    with pytest.raises(ValueError, match="expected '}'"):
        resources_of(Grant(purpose="A", meaning="", actions=(), resources=("{key",)), {})


def test_the_trust_policy_lets_sagemaker_take_the_role_on():
    assert trust()["Statement"][0]["Action"] == "sts:AssumeRole"
    assert trust()["Statement"][0]["Principal"] == {"Service": SERVICE}
