"""The role, whom it trusts, what IAM lets it and the caller do."""

import json
import shlex

import pytest

from raysm.client.doctor import CHECKS, Intent, State
from raysm.client.doctor.permitted import look_at_caller, look_at_role, look_at_role_policy
from raysm.request import Cluster, Security
from tests.support import aws_account
from tests.support.aws_account import ROLE
from tests.support.sagemaker import ACCOUNT


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


def test_who_may_not_ask_for_the_role_is_not_told_that_it_is_bad(account):
    account.refuse("get_role", "AccessDenied")
    assert account.findings()["role"][0].state is State.UNKNOWN


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
        {"Effect": "Deny", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"},
        {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:TagSession"},
        {"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"},
    ],
)
def test_a_role_that_sagemaker_may_not_take_on_is_bad_and_the_remedy_keeps_whom_it_trusts(account, statement):
    account.iam.update_assume_role_policy(RoleName="jobs", PolicyDocument=trusting(statement))
    (finding,) = account.findings()["role"]
    assert finding.state is State.BAD
    statements = document(finding.remedy, "--policy-document")["Statement"]
    assert statements[0] == statement
    assert statements[1]["Principal"]["Service"] == "sagemaker.amazonaws.com"


def test_one_of_several_services_that_a_role_trusts_will_do(account):
    services = ["lambda.amazonaws.com", "sagemaker.amazonaws.com"]
    statement = {"Effect": "Allow", "Principal": {"Service": services}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    account.iam.update_assume_role_policy(RoleName="jobs", PolicyDocument=trusting([statement]))
    assert account.findings()["role"][0].state is State.GOOD


def test_what_the_role_may_not_do_is_said_with_the_policy_that_allows_just_that(account):
    account.deny("s3:PutObject")
    (finding,) = account.findings()["role's rights"]
    assert finding.state is State.BAD
    (statement,) = document(finding.remedy, "--policy-document")["Statement"]
    assert statement["Action"] == ["s3:PutObject"]
    assert statement["Resource"] == "arn:aws:s3:::my-bucket/raysm/*"


def test_a_denial_that_somebody_wrote_is_told_from_one_that_nobody_lifted(account):
    account.deny("logs:PutLogEvents", "explicitDeny")
    assert "a policy denies it" in account.findings()["role's rights"][0].text


def test_who_may_not_simulate_is_told_that_the_rights_could_not_be_looked_at(account):
    account.refuse("simulate_principal_policy", "AccessDenied")
    findings = account.findings()
    assert findings["role's rights"][0].state is State.UNKNOWN
    assert findings["your rights"][0].state is State.UNKNOWN


def test_the_role_is_asked_about_networks_and_keys_only_of_a_job_that_has_them(account):
    account.deny("ec2:CreateNetworkInterface")
    account.deny("kms:CreateGrant")
    assert account.findings()["role's rights"][0].state is State.GOOD
    subnet, group = account.vpc()
    security = Security(subnets=(subnet,), security_groups=(group,), volume_kms_key="1234")
    found = account.findings(Intent(cluster=Cluster("ml.m5.large"), security=security))["role's rights"]
    assert [finding.text.partition(" on ")[0] for finding in found] == [
        "the role may not kms:CreateGrant",
        "the role may not ec2:CreateNetworkInterface",
    ]


def test_a_caller_who_may_not_pass_the_role_on_is_told_so(account):
    account.deny("iam:PassRole")
    (finding,) = account.findings()["your rights"]
    assert "iam:PassRole" in finding.text
    assert "sagemaker.amazonaws.com" in finding.remedy


def test_a_caller_who_has_taken_a_role_on_is_asked_about_by_that_role_with_its_path():
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/scientists/me@example.com"
    with aws_account.account(caller=arn) as made:
        made.iam.create_role(RoleName="scientists", Path="/aws-reserved/", AssumeRolePolicyDocument="{}")
        assert made.findings()["your rights"][0].state is State.GOOD
        assert f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/scientists" in made.permissions.asked


def test_a_caller_whose_role_cannot_be_looked_up_is_asked_about_by_its_name():
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/scientists/me"
    with aws_account.account(caller=arn) as made:
        made.findings()
        assert f"arn:aws:iam::{ACCOUNT}:role/scientists" in made.permissions.asked


def test_a_federated_user_has_no_policies_that_iam_simulates():
    with aws_account.account(caller=f"arn:aws:sts::{ACCOUNT}:federated-user/me") as made:
        assert made.findings()["your rights"][0].state is State.UNKNOWN


def test_the_root_user_may_do_everything():
    with aws_account.account(caller=f"arn:aws:iam::{ACCOUNT}:root") as made:
        assert made.findings()["your rights"][0].state is State.GOOD


def test_the_doctor_carries_these_checks_out():
    assert {look_at_caller, look_at_role, look_at_role_policy} <= {check.look for check in CHECKS}


def test_a_role_that_may_not_write_to_the_jobs_mlflow_is_told_so_and_one_without_mlflow_is_not_asked(account):
    account.deny("sagemaker-mlflow:LogBatch")
    assert account.findings()["role's rights"][0].state is State.GOOD
    server = f"arn:aws:sagemaker:{account.service.region}:{ACCOUNT}:mlflow-tracking-server/ours"
    (finding,) = account.findings(Intent(cluster=Cluster("ml.m5.large"), tracking=server))["role's rights"]
    assert finding.state is State.BAD
    (statement,) = document(finding.remedy, "--policy-document")["Statement"]
    assert (statement["Action"], statement["Resource"]) == (["sagemaker-mlflow:LogBatch"], server)


@pytest.mark.parametrize("action", ["ssm:StartSession", "ssm:ResumeSession", "sagemaker:UpdateTrainingJob"])
def test_who_may_not_enter_jobs_is_told_so_where_the_job_is_to_be_entered(account, action):
    account.deny(action)
    assert account.findings()["your rights"][0].state is State.GOOD
    entered = Intent(cluster=Cluster("ml.m5.large"), security=Security(remote_debug=True))
    (finding,) = account.findings(entered)["your rights"]
    assert finding.state is State.BAD
    assert action in finding.text
