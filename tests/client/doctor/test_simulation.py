"""IAM is asked about single resources, and answers what is denied."""

from raysm.client.doctor.simulation import denials
from raysm.client.permissions import Grant
from tests.support.aws_account import ROLE


def test_a_wildcard_is_asked_about_by_an_example_and_no_resource_by_itself(account):
    grants = [
        Grant(purpose="A", meaning="", actions=("s3:GetObject",), resources=("arn:aws:s3:::{bucket}/*", "{input}")),
        Grant(purpose="B", meaning="", actions=("logs:CreateLogGroup",)),
        Grant(purpose="C", meaning="", actions=("kms:Decrypt",), resources=("{key}",)),
    ]
    assert list(denials(account.case(), ROLE, grants, {"bucket": ("b",)})) == []
    assert account.permissions.questions == [
        (ROLE, ["s3:GetObject"], ["arn:aws:s3:::b/doctor"]),
        (ROLE, ["logs:CreateLogGroup"], ["*"]),
    ]


def test_a_denial_names_the_actions_once(account):
    account.deny("s3:PutObject", "explicitDeny")
    grant = Grant(purpose="A", meaning="", actions=("s3:GetObject", "s3:PutObject"), resources=("{a}", "{b}"))
    (denial,) = denials(account.case(), ROLE, [grant], {"a": ("x",), "b": ("y",)})
    assert (denial.actions, denial.is_explicit, denial.grant) == (("s3:PutObject",), True, grant)
