"""The SDK's question whether a role may do what a job needs."""

import pytest

from raysm.local.server import iam
from raysm.local.server.moto_services import MotoServices


@pytest.fixture(scope="module")
def moto():
    return MotoServices()


def form(action="SimulatePrincipalPolicy", role="arn:aws:iam::123456789012:role/team/trainer"):
    return f"Action={action}&PolicySourceArn={role}&ActionNames.member.1=s3:PutObject&ActionNames.member.2=a<b".encode()


def test_every_action_is_allowed_and_the_role_is_there_and_trusts_sagemaker(moto):
    text = iam.answer(form(), moto).decode()
    assert text.count("<EvalDecision>allowed</EvalDecision>") == 2
    assert "<EvalActionName>a&lt;b</EvalActionName>" in text
    role = moto.client("iam").get_role(RoleName="trainer")["Role"]
    assert role["Path"] == "/team/"
    assert "sagemaker.amazonaws.com" in str(role["AssumeRolePolicyDocument"])


def test_asking_twice_changes_nothing(moto):
    assert iam.answer(form(), moto)
    assert iam.answer(form(), moto)


def test_other_questions_are_left_to_moto(moto):
    assert iam.answer(form(action="ListRoles"), moto) is None


def test_requests_to_iam_are_told_by_their_authorisation():
    scope = "AWS4-HMAC-SHA256 Credential=AKIA/20300101/us-east-1/{}/aws4_request, SignedHeaders=host"
    assert iam.IAM.search(scope.format("iam"))
    assert not iam.IAM.search(scope.format("s3"))
