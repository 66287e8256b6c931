"""Policies: one statement for each grant, as narrow as IAM allows."""

import json

from raysm.client.account.permissions import ROLE, USER, policy
from tests.reference.tables import placeholders
from tests.support.permissions import covered


def test_a_statement_falls_away_with_what_it_is_about():
    bare = {
        name: () if name in ("output_key", "volume_key", "subnet", "remote_debug") else NAMES[name] for name in NAMES
    }
    sids = {item["Sid"] for item in policy(ROLE, bare)["Statement"]}
    assert {"OutputKey", "VolumeKey", "Network", "Session"}.isdisjoint(sids)
    assert {"Objects", "Image", "Logs"} <= sids


def test_sids_are_letters_and_digits_and_policies_are_json_within_iams_limit():
    for grants in (USER, ROLE):
        assert all(grant.purpose.isalnum() for grant in grants)
        # A managed policy has at most 6,144 characters without blanks.
        assert len(json.dumps(policy(grants, NAMES), separators=(",", ":"))) <= 6144


NAMES = placeholders()


def test_nothing_but_what_takes_no_narrower_resource_is_allowed_on_all():
    everywhere = {
        action
        for item in (*policy(USER, NAMES)["Statement"], *policy(ROLE, NAMES)["Statement"])
        if item["Resource"] == "*"
        for action in item["Action"]
    }
    # By the Service Authorization Reference these have no resource types, or are asked of all (List, Describe).
    services = {action.partition(":")[0] for action in everywhere}
    assert services == set("sagemaker batch cloudwatch pricing servicequotas ec2 ecr ssmmessages sts".split())
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}
    batch = [action.partition(":")[2] for action in everywhere if action.startswith("batch:")]
    assert all(action.startswith(("Describe", "List")) for action in batch)


def test_what_sessions_call_is_covered_and_asked_of_nobody_whose_job_is_not_entered():
    calls = {"ssm:StartSession", "ssm:ResumeSession", "ssm:TerminateSession", "sagemaker:UpdateTrainingJob"}
    assert calls <= covered()
    closed = {**NAMES, "remote_debug": ()}
    allowed = {action for item in policy(USER, closed)["Statement"] for action in item["Action"]}
    assert not calls & allowed
