"""Policies, as narrow as they can be said."""

import json

from raysm.client.doctor.names import placeholders
from raysm.client.permissions import ROLE, USER
from raysm.client.permissions.grant import Grant, policy, resources_of

NAMES = placeholders()


def test_a_policy_has_a_statement_for_each_grant_with_the_names_in_place():
    statements = {item["Sid"]: item for item in policy(USER, NAMES)["Statement"]}
    assert len(statements) == len(USER)
    assert statements["Bucket"]["Resource"] == "arn:aws:s3:::BUCKET"
    assert statements["PassRole"]["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}


def test_a_statement_falls_away_with_what_it_is_about():
    bare = {
        name: () if name in ("output_key", "volume_key", "subnet", "remote_debug") else NAMES[name] for name in NAMES
    }
    sids = {item["Sid"] for item in policy(ROLE, bare)["Statement"]}
    assert {"OutputKey", "VolumeKey", "Network", "Session"}.isdisjoint(sids)
    assert {"Objects", "Image", "Logs"} <= sids


def test_a_resource_stands_once_for_each_name():
    grant = Grant(
        purpose="A", meaning="", actions=("s3:GetObject",), resources=("arn:{partition}:s3:::{input_prefix}*",)
    )
    names = {"partition": ("aws",), "input_prefix": ("a/", "b/", "a/")}
    assert resources_of(grant, names) == ["arn:aws:s3:::a/*", "arn:aws:s3:::b/*"]


def test_sids_are_letters_and_digits_and_policies_are_json_within_iams_limit():
    for grants in (USER, ROLE):
        assert all(grant.purpose.isalnum() for grant in grants)
        # A managed policy has at most 6,144 characters without blanks.
        assert len(json.dumps(policy(grants, NAMES), separators=(",", ":"))) <= 6144
