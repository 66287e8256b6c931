"""Policies: one statement for each grant, as narrow as IAM allows."""

import json
from fnmatch import fnmatchcase
from types import SimpleNamespace

import raysm
from raysm.core.client.submit import prepare
from raysm.features.account.permissions import ROLE, USER, policy
from raysm.features.grid.filling import Template, preparing
from raysm.features.grid.task import Attempt, Rules, Task
from tests.reference.tables import placeholders
from tests.support.permissions import covered
from tests.support.sagemaker import REGION, aws, fake_aws


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
            row(Task(key="a"), Attempt(task="a", number=1, name="rows-a1", **at)),
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
