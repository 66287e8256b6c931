"""The policies, as narrow as they can be said, and a line for every call of the client."""

import json

from raysm.client.doctor.names import placeholders
from raysm.client.grants import policy
from raysm.client.permissions import USER
from raysm.client.role_permissions import ROLE

NAMES = placeholders()


def test_a_policy_has_a_statement_for_each_grant_with_the_names_in_place():
    statements = {item["Sid"]: item for item in policy(USER, NAMES)["Statement"]}
    assert len(statements) == len(USER)
    assert statements["Bucket"]["Resource"] == "arn:aws:s3:::BUCKET"
    assert statements["PassRole"]["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}


def test_nothing_but_what_takes_no_narrower_resource_is_allowed_on_all():
    everywhere = {
        action
        for item in (*policy(USER, NAMES)["Statement"], *policy(ROLE, NAMES)["Statement"])
        if item["Resource"] == "*"
        for action in item["Action"]
    }
    # By the Service Authorization Reference these have no resource types, or are asked of all (List, Describe).
    assert {action.partition(":")[0] for action in everywhere} == {
        "sagemaker",
        "cloudwatch",
        "servicequotas",
        "ec2",
        "ecr",
        "ssmmessages",
        "sts",
    }
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}


def test_sids_are_letters_and_digits_and_policies_are_json_within_iams_limit():
    for grants in (USER, ROLE):
        assert all(grant.purpose.isalnum() for grant in grants)
        # A managed policy has at most 6,144 characters without blanks.
        assert len(json.dumps(policy(grants, NAMES), separators=(",", ":"))) <= 6144
