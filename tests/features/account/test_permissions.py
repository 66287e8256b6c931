"""Policies have one statement for each grant, as narrow as IAM allows; checks of role and caller."""

import json
import shlex
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest

import raysm
from raysm.core.client.submit import prepare
from raysm.core.request import Cluster, Input, Security
from raysm.features.account.case import Intent, State
from raysm.features.account.permissions import ROLE, USER, find_names, policy, trust
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.template import Template, preparing
from tests.reference.tables import placeholders
from tests.support import aws_account
from tests.support.aws_account import BUCKET
from tests.support.aws_account import ROLE as ROLE_ARN
from tests.support.permissions import covered
from tests.support.sagemaker import ACCOUNT, REGION, aws, fake_aws


def test_a_statement_falls_away_with_what_it_is_about():
    bare = {
        name: () if name in ("output_key", "volume_key", "subnet", "remote_debug") else NAMES[name]
        for name in NAMES
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
    # By the Service Authorization Reference these have no resource types, or are asked of all
    # (List, Describe).
    services = {action.partition(":")[0] for action in everywhere}
    assert services == set(
        "sagemaker batch cloudwatch pricing servicequotas ec2 ecr ssmmessages sts".split()
    )
    assert {action for action in everywhere if action.startswith("ecr:")} == {
        "ecr:GetAuthorizationToken"
    }
    batch = [action.partition(":")[2] for action in everywhere if action.startswith("batch:")]
    assert all(action.startswith(("Describe", "List")) for action in batch)


def test_the_roles_policy_covers_what_jobs_sessions_and_rows_of_grids_read_and_write_and_no_other_project(
    script,
):
    common = {"cluster": raysm.Cluster("ml.m5.large", count=2), "project": "ours"}
    options = common | {"inputs": {"in": str(script), "data": "s3://data/x/"}}
    at = {"region": REGION, "instance_type": "ml.m5.large", "count": 2, "max_runtime_s": 60}
    loop = raysm.TorchScript(str(script))
    with fake_aws(bucket="b") as remote:
        template = Template(workload=loop, target=aws(bucket="b"), options=options)
        grid = SimpleNamespace(name="rows", prefix="rows-", rules=Rules())
        row = preparing(template, grid, "secret", lambda target: remote.service)
        jobs = [
            prepare(loop, on=remote.service, **options),
            row(Row(key="a"), Attempt(row_key="a", number=1, name="rows-a1", **at)),
            raysm.Session(on=remote.service, **common).prepare(),
        ]
    names = {
        **NAMES,
        "bucket": ("b",),
        "project": ("ours",),
        "input_prefix": ("data/x/",),
        "output_prefix": (),
    }
    statements = policy(ROLE, names)["Statement"]

    def allows(action, uri):
        arn = f"arn:aws:s3:::{uri.removeprefix('s3://').rstrip('/')}/object"
        resources = [item["Resource"] for item in statements if action in item["Action"]]
        return any(
            fnmatchcase(arn, one)
            for item in resources
            for one in ([item] if isinstance(item, str) else item)
        )

    for request in (job.plan.request for job in jobs):
        read = [item["DataSource"]["S3DataSource"]["S3Uri"] for item in request["InputDataConfig"]]
        written = [
            request["OutputDataConfig"]["S3OutputPath"],
            request["Environment"]["RAYSM_TRAIN_STORAGE"],
        ]
        written += [request[name]["S3Uri"] for name in ("CheckpointConfig",) if name in request]
        assert [uri for uri in read + written if not allows("s3:GetObject", uri)] == []
        assert [uri for uri in written if not allows("s3:PutObject", uri)] == []
    assert not allows("s3:GetObject", "s3://b/raysm/theirs")
    assert not allows("s3:PutObject", "s3://b/raysm/payloads/ours")


def test_what_sessions_call_is_covered_and_asked_of_nobody_whose_job_is_not_entered():
    calls = {
        "ssm:StartSession",
        "ssm:ResumeSession",
        "ssm:TerminateSession",
        "sagemaker:UpdateTrainingJob",
    }
    assert calls <= covered()
    closed = {**NAMES, "remote_debug": ()}
    allowed = {action for item in policy(USER, closed)["Statement"] for action in item["Action"]}
    assert not calls & allowed


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
    findings = account.findings(role=ROLE_ARN.replace("jobs", "others"))
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
    names = find_names(account.case(intent))
    assert names["bucket"] == (BUCKET,)
    assert names["role"] == (ROLE_ARN,)
    assert names["repository"] == (f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/raysm",)
    assert names["input_bucket"] == ("data",)
    assert names["input_prefix"] == ("data/x/", "data/y")
    assert names["output_prefix"] == ("results/mine",)
    assert names["output_key"] == (f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234",)
    assert names["domain"] == (f"arn:aws:codeartifact:{REGION}:{ACCOUNT}:domain/ours",)
    assert names["package_repository"] == (intent.pip_index,)
    assert names["mlflow"] == names["mlflow_app"] == (intent.tracking,)
    assert (names["volume_key"], names["subnet"], names["remote_debug"]) == ((), (), ("yes",))
