"""The role, the caller's permissions, and the names of an account's things."""

import json
import shlex

import pytest

from raysm.core.request import Cluster, Input, Security
from raysm.features.account.doctor.case import Intent, State
from raysm.features.account.doctor.rights import names_of
from raysm.features.account.permissions import trust
from tests.support import aws_account
from tests.support.aws_account import BUCKET, ROLE
from tests.support.sagemaker import ACCOUNT, REGION


def document(remedy, option):
    """Return the JSON that a command of a remedy gives an option."""
    words = shlex.split(remedy)
    return json.loads(words[words.index(option) + 1])


def trusting(statement):
    return json.dumps({"Version": "2012-10-17", "Statement": statement})


def test_no_role_is_said_with_the_commands_that_make_one(account):
    findings = account.findings(role=None)
    assert findings["role"][0].state is State.BAD
    assert "aws iam create-role" in findings["role"][0].remedy
    assert "role's rights" not in findings
    assert findings["your rights"][0].state is State.GOOD


def test_a_role_that_is_not_there_is_said_with_the_commands_that_make_it(account):
    findings = account.findings(role=ROLE.replace("jobs", "others"))
    assert "create-role --role-name others" in findings["role"][0].remedy
    statements = document(findings["role"][0].remedy, "--assume-role-policy-document")["Statement"]
    assert statements[0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statements[0]["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


@pytest.mark.parametrize(
    "statement",
    [
        {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        },
        {
            "Effect": "Deny",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        },
        {"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"},
    ],
)
def test_a_role_that_sagemaker_may_not_take_on_is_bad_and_the_remedy_keeps_whom_it_trusts(
    account, statement
):
    account.iam.update_assume_role_policy(RoleName="jobs", PolicyDocument=trusting(statement))
    (finding,) = account.findings()["role"]
    assert finding.state is State.BAD
    statements = document(finding.remedy, "--policy-document")["Statement"]
    assert statements[0] == statement
    assert statements[1]["Principal"]["Service"] == "sagemaker.amazonaws.com"


def test_what_the_role_may_not_do_is_said_with_the_policy_that_allows_just_that(account):
    account.deny("s3:PutObject")
    (finding,) = account.findings()["role's rights"]
    assert finding.state is State.BAD
    (statement,) = document(finding.remedy, "--policy-document")["Statement"]
    assert statement["Action"] == ["s3:PutObject"]
    assert "arn:aws:s3:::my-bucket/raysm/*/*" in statement["Resource"]
    # Of a named project the role may not change another one's results, which clients unpickle.
    (finding,) = account.findings(Intent(project="mine"))["role's rights"]
    (statement,) = document(finding.remedy, "--policy-document")["Statement"]
    parts = ("mine/*", "grids/*")
    assert statement["Resource"] == [f"arn:aws:s3:::my-bucket/raysm/{part}" for part in parts]


def test_the_role_is_asked_about_networks_and_keys_only_of_a_job_that_has_them(account):
    account.deny("ec2:CreateNetworkInterface")
    account.deny("kms:CreateGrant")
    assert account.findings()["role's rights"][0].state is State.GOOD
    subnet, group = account.vpc()
    key = account.kms.create_key()["KeyMetadata"]["KeyId"]
    security = Security(subnets=(subnet,), security_groups=(group,), volume_kms_key=key)
    found = account.findings(Intent(cluster=Cluster("ml.m5.large"), security=security))[
        "role's rights"
    ]
    assert [finding.text.partition(" on ")[0] for finding in found] == [
        "the role may not kms:CreateGrant",
        "the role may not ec2:CreateNetworkInterface",
    ]


def test_a_trust_that_names_no_account_is_told_and_runs_jobs(account):
    finding = account.findings()["role"][1]
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert "aws:SourceAccount" in finding.remedy
    account.iam.update_assume_role_policy(
        RoleName="jobs", PolicyDocument=json.dumps(trust(ACCOUNT))
    )
    assert [finding.state for finding in account.findings()["role"]] == [State.GOOD]


def test_a_caller_who_may_not_pass_the_role_on_is_told_so(account):
    account.deny("iam:PassRole")
    (finding,) = account.findings()["your rights"]
    assert "iam:PassRole" in finding.text
    assert "sagemaker.amazonaws.com" in finding.remedy


def test_a_caller_who_has_taken_a_role_on_is_asked_about_by_that_role_with_its_path():
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/scientists/me@example.com"
    with aws_account.account(caller=arn) as made:
        made.iam.create_role(
            RoleName="scientists", Path="/aws-reserved/", AssumeRolePolicyDocument="{}"
        )
        assert made.findings()["your rights"][0].state is State.GOOD
        assert f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/scientists" in made.permissions.asked
    with aws_account.account(caller=f"arn:aws:iam::{ACCOUNT}:root") as made:
        assert made.findings()["your rights"][0].state is State.GOOD


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
