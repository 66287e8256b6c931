"""What the user may do, together with the role: nothing on all where a narrower resource will do."""

from raysm.client.doctor.names import placeholders
from raysm.client.permissions.grant import policy
from raysm.client.permissions.role import ROLE
from raysm.client.permissions.user import USER, covered

NAMES = placeholders()


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
        "batch",
        "cloudwatch",
        "servicequotas",
        "ec2",
        "ecr",
        "ssmmessages",
        "sts",
    }
    assert {action for action in everywhere if action.startswith("ecr:")} == {"ecr:GetAuthorizationToken"}
    batch = [action.partition(":")[2] for action in everywhere if action.startswith("batch:")]
    assert all(action.startswith(("Describe", "List")) for action in batch)


def test_what_sessions_call_is_covered_and_asked_of_nobody_whose_job_is_not_entered():
    calls = {"ssm:StartSession", "ssm:ResumeSession", "ssm:TerminateSession", "sagemaker:UpdateTrainingJob"}
    assert calls <= covered()
    closed = {**NAMES, "remote_debug": ()}
    allowed = {action for item in policy(USER, closed)["Statement"] for action in item["Action"]}
    assert not calls & allowed
