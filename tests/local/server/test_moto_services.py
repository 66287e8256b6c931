"""moto's services in this process, without a socket."""

import pytest

from raysm.local.server.moto_services import MotoServices, simulate_policy


def form(action="SimulatePrincipalPolicy", role="arn:aws:iam::123456789012:role/team/trainer"):
    return f"Action={action}&PolicySourceArn={role}&ActionNames.member.1=s3:PutObject&ActionNames.member.2=a<b".encode()


def test_every_action_is_allowed_and_the_role_is_there_and_trusts_sagemaker(moto):
    text = simulate_policy(form(), moto).decode()
    assert text.count("<EvalDecision>allowed</EvalDecision>") == 2
    assert "<EvalActionName>a&lt;b</EvalActionName>" in text
    role = moto.client("iam").get_role(RoleName="trainer")["Role"]
    assert role["Path"] == "/team/"
    assert "sagemaker.amazonaws.com" in str(role["AssumeRolePolicyDocument"])


@pytest.fixture
def moto():
    return MotoServices()


def test_an_object_whose_key_needs_quoting_comes_back_byte_for_byte(moto):
    s3, key, content = moto.client("s3"), "a b/ü+?&.bin", bytes(range(256))
    s3.create_bucket(Bucket="quoted")
    try:
        s3.put_object(Bucket="quoted", Key=key, Body=content)
        assert [item["Key"] for item in s3.list_objects_v2(Bucket="quoted")["Contents"]] == [key]
        assert b"".join(moto.open_object("quoted", key, len(content))) == content
    finally:
        s3.delete_object(Bucket="quoted", Key=key)
        s3.delete_bucket(Bucket="quoted")
