"""The names of an account's things, as policies take them."""

import pytest

from raysm.client.doctor.case import Intent
from raysm.client.doctor.names import key_arn, names_of, placeholders
from raysm.contract.job_api import InputManifest
from raysm.request import Input, Security
from tests.support.aws_account import BUCKET, ROLE
from tests.support.sagemaker import ACCOUNT, REGION


def test_a_case_has_its_own_names(account):
    intent = Intent(
        inputs={"a": Input("s3://data/x/"), "b": Input("s3://data/y"), "c": Input("/tmp/z")},
        output_uri="s3://results/mine",
        security=Security(output_kms_key="1234", remote_debug=True),
        pip_index=f"arn:aws:codeartifact:{REGION}:{ACCOUNT}:repository/ours/pypi",
        tracking=f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:mlflow-app/app-1",
    )
    names = names_of(account.case(intent))
    assert names["bucket"] == (BUCKET,)
    assert names["role"] == (ROLE,)
    assert names["repository"] == (f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/raysm",)
    assert names["input_bucket"] == ("data",)
    assert names["input_prefix"] == ("data/x/", "data/y")
    assert names["output_prefix"] == ("results/mine",)
    assert names["output_key"] == (f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234",)
    assert names["domain"] == (f"arn:aws:codeartifact:{REGION}:{ACCOUNT}:domain/ours",)
    assert names["package_repository"] == (intent.pip_index,)
    assert names["mlflow"] == names["mlflow_app"] == (intent.tracking,)
    assert (names["volume_key"], names["subnet"], names["remote_debug"]) == ((), (), ("yes",))


def test_of_a_manifest_its_own_address_counts_and_that_of_what_it_lists(account):
    manifest = InputManifest(prefix="s3://images/a/", names=["1.png"])
    account.make_bucket("lists", REGION)
    account.s3.put_object(Bucket="lists", Key="m", Body=manifest.content())
    names = names_of(account.case(Intent(inputs={"x": Input("s3://lists/m", manifest=True)})))
    assert names["input_bucket"] == ("lists", "images")
    assert names["input_prefix"] == ("lists/m", "images/a/")


def test_what_nobody_tells_stays_a_word_in_capitals(account):
    account.refuse("get_caller_identity", "ExpiredToken")
    names = names_of(account.case(role=None))
    assert names["account"] == ("ACCOUNT",)
    assert names["role"] == placeholders()["role"]
    assert names["repository"] == placeholders()["repository"]


def test_every_placeholder_is_a_name(account):
    assert names_of(account.case()).keys() == placeholders().keys()


@pytest.mark.parametrize(
    ("tracking", "guarded"),
    [
        (None, False),
        ("sqlite:///mlflow.db", False),
        ("http://mlflow.example:5000", False),
        (f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:mlflow-tracking-server/ours", True),
    ],
)
def test_only_sagemakers_own_mlflow_is_guarded_by_iam_and_a_tracking_server_is_no_app(account, tracking, guarded):
    names = names_of(account.case(Intent(tracking=tracking)))
    assert names["mlflow"] == ((tracking,) if guarded else ())
    assert names["mlflow_app"] == ()


@pytest.mark.parametrize(
    ("key", "arn"),
    [
        ("1234", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234"),
        ("arn:aws:kms:eu-west-1:1:key/1234", "arn:aws:kms:eu-west-1:1:key/1234"),
        ("alias/mine", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/*"),
        ("arn:aws:kms:eu-west-1:1:alias/mine", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/*"),
    ],
)
def test_a_key_is_named_by_its_arn_and_an_alias_by_all_keys(key, arn):
    assert key_arn(key, "aws", REGION, ACCOUNT) == arn
