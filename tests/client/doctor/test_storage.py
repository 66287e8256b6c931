"""The bucket, the inputs, the keys and the image."""

import json

import pytest

from raysm.client.doctor.case import Intent, State
from raysm.request import Input, Security
from tests.support import aws_account
from tests.support.aws_account import BUCKET, ROLE
from tests.support.sagemaker import ACCOUNT, IMAGE, REGION


def inputs(account, **uris):
    return account.findings(Intent(inputs={name: Input(uri) for name, uri in uris.items()}))["inputs"]


def keys(account, **names):
    return account.findings(Intent(security=Security(**names)))["keys"]


def listed(account):
    return account.s3.list_objects_v2(Bucket=BUCKET).get("KeyCount")


def test_the_bucket_is_written_to_and_left_as_it_was(account):
    assert account.findings()["bucket"][0].state is State.GOOD
    assert "put_object" in [name for name, _ in account.clients["s3"].calls]
    assert listed(account) == 0


def test_a_bucket_that_refuses_the_write_is_bad_since_a_job_is_sent_by_the_same_call(account):
    account.refuse("put_object", "AccessDenied")
    finding, _ = account.findings()["bucket"]
    assert finding.state is State.BAD
    assert "s3:PutObject" in finding.remedy


def test_a_bucket_that_is_named_has_to_be_there_and_the_default_one_is_made_by_the_first_job():
    with aws_account.account(bucket="gone") as made:
        assert made.findings()["bucket"][0].remedy == "aws s3 mb s3://gone --region eu-west-1"
    with aws_account.account(bucket="far") as made:
        made.make_bucket("far", "us-west-2")
        (finding,) = made.findings()["bucket"]
        assert finding.state is State.BAD
        assert "us-west-2" in finding.text
    with aws_account.account(bucket=None) as made:
        (finding,) = made.findings()["bucket"]
        assert finding.state is State.GOOD
        assert "the first job makes it" in finding.text


def test_a_bucket_without_a_rule_for_uploads_that_were_cut_off_is_told_and_runs_jobs(account):
    finding = account.findings()["bucket"][1]
    assert (finding.state, finding.needed) == (State.BAD, False)
    rule = {"ID": "parts", "Status": "Enabled", "Filter": {"Prefix": ""}}
    rule["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": 7}
    account.s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    assert account.findings()["bucket"][1].state is State.GOOD


def test_the_key_of_an_input_whose_objects_may_not_be_read_is_unknown(account):
    account.s3.put_object(Bucket=BUCKET, Key="x/0", Body=b"")
    account.refuse("head_object", "403")
    (finding,) = account.findings(Intent(inputs={"train": Input(f"s3://{BUCKET}/x/")}))["inputs"]
    assert (finding.state, "KMS key" in finding.text) == (State.UNKNOWN, True)


ROOT, OTHER = f"arn:aws:iam::{ACCOUNT}:root", ROLE.replace("jobs", "others")


@pytest.mark.parametrize(
    ("principal", "is_conditional", "denial", "state"),
    [
        # A key's own policy admits a role whose policies do not name the key, or leaves it to them.
        (ROLE, False, "implicitDeny", State.GOOD),
        (ROLE, False, "explicitDeny", State.BAD),
        (ROOT, False, "implicitDeny", State.BAD),
        (OTHER, False, "implicitDeny", State.BAD),
        (ROOT, False, None, State.GOOD),
        # It admits under conditions, cannot be read, or names others: it is not known whether it does.
        ("*", True, "implicitDeny", State.UNKNOWN),
        (None, False, "implicitDeny", State.UNKNOWN),
        (OTHER, False, None, State.UNKNOWN),
    ],
)
def test_what_the_role_may_do_with_a_key_is_told_as_far_as_the_keys_own_policy_is_known(
    account, principal, is_conditional, denial, state
):
    statement = {"Effect": "Allow", "Principal": {"AWS": principal or "*"}, "Action": "kms:*", "Resource": "*"}
    statement |= {"Condition": {"StringEquals": {"kms:CallerAccount": ACCOUNT}}} if is_conditional else {}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    account.encrypt(BUCKET, account.kms.create_key(Policy=document)["KeyMetadata"]["Arn"])
    if principal is None:
        # Such a caller does not learn either whether the key is AWS's own.
        account.refuse("describe_key")
        account.refuse("get_key_policy")
    if denial:
        account.deny("kms:Decrypt", denial)
    assert {finding.state for finding in account.findings()["role's rights"]} == {state}


def test_inputs_are_looked_at_by_one_key_each(account):
    for number in range(3):
        account.s3.put_object(Bucket=BUCKET, Key=f"data/{number}", Body=b"")
    account.make_bucket("far", "us-west-2")
    found = inputs(account, a=f"s3://{BUCKET}/data/", b=f"s3://{BUCKET}/dtaa/", c="s3://far/x", d="s3://nowhere/x")
    assert [finding.state for finding in found] == [State.GOOD, State.BAD, State.BAD, State.BAD]
    assert "there is nothing at" in found[1].text
    assert "aws s3 sync s3://far/x" in found[2].remedy
    assert len([name for name, _ in account.clients["s3"].calls if name == "list_objects_v2"]) == 2


def test_local_inputs_have_to_be_there_and_outputs_of_jobs_are_left_to_the_plan(account, tmp_path):
    found = inputs(account, a=str(tmp_path), b=str(tmp_path / "none"), c="job:other/model")
    assert [finding.state for finding in found] == [State.GOOD, State.BAD]


def test_each_key_has_to_be_enabled_and_is_looked_at_once(account):
    key = account.kms.create_key()["KeyMetadata"]["KeyId"]
    (finding,) = keys(account, volume_kms_key=key, output_kms_key=key)
    assert finding.state is State.GOOD
    account.kms.disable_key(KeyId=key)
    assert keys(account, volume_kms_key=key)[0].remedy == f"aws kms enable-key --key-id {key}"
    assert keys(account, volume_kms_key="11111111-2222-3333-4444-555555555555")[0].state is State.BAD


REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


def image(uri):
    with aws_account.account(image=uri) as made:
        (finding,) = made.findings()["image"]
        return finding


@pytest.mark.parametrize(
    ("uri", "text", "remedy"),
    [
        (f"{REGISTRY}/raysm:gpu", "there is no image", "aws ecr list-images --repository-name raysm"),
        (f"{REGISTRY}/other:cpu", "there is no repository other", "aws ecr describe-repositories"),
        (IMAGE.replace(REGION, "us-east-1"), "is in us-east-1", "docker pull"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_bad(uri, text, remedy):
    finding = image(uri)
    assert finding.state is State.BAD
    assert text in finding.text
    assert remedy in finding.remedy


def test_without_an_image_aws_own_is_looked_for_in_the_registry_of_the_region():
    with aws_account.account(image=None) as made:
        (finding,) = made.findings()["image"]
        assert "pytorch" in finding.text
        assert made.findings(Intent())["image"][0].state is State.UNKNOWN
