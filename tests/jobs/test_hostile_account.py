"""A company's account where much is forbidden: the doctor names what it sees before a job, and each job ends in its
result, or in a reason with its remedy."""

import zipfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from markupsafe import _speedups
from rich.console import Console

import raysm
from raysm.cli.arguments import parse
from raysm.core.protocol.home import scenario_file
from raysm.core.request import Cluster, Input, Security
from raysm.errors import CredentialsExpired
from raysm.features.account import doctor_command as doctor
from raysm.features.account.case import Intent, State
from tests.support import aws_account
from tests.support.aws_account import BUCKET
from tests.support.homes import serving
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker import refusal
from tests.support.wheels import make_wheel


def test_the_doctor_names_each_obstacle_of_a_hostile_account():
    # No image is named, and AWS's own lack Ray.
    with aws_account.account(image=None) as made:
        keys = [made.kms.create_key()["KeyMetadata"]["Arn"] for _ in range(2)]
        made.encrypt(BUCKET, keys[0])
        made.s3.put_object(
            Bucket=BUCKET, Key="x/0", Body=b"", ServerSideEncryption="aws:kms", SSEKMSKeyId=keys[1]
        )
        made.deny("kms:Decrypt")
        subnet, group = made.vpc(s3=True)
        intent = Intent(
            cluster=Cluster("ml.m5.large", count=2),
            security=Security(subnets=(subnet,), security_groups=(group,), isolation=True),
            inputs={"train": Input(f"s3://{BUCKET}/x/")},
        )
        found = made.findings(intent)
        obstacles = [
            ("role's rights", f"kms:Decrypt on {keys[0]}", "aws iam put-role-policy"),
            ("role's rights", f"kms:Decrypt on {keys[1]}", "aws iam put-role-policy"),
            ("image", "has no Ray", "raysm image"),
            ("subnets", "Ray must be installed", "raysm image"),
            ("groups", "do not allow tcp", "authorize-security-group-ingress"),
        ]
        for name, text, remedy in obstacles:
            (finding,) = (finding for finding in found[name] if text in finding.text)
            assert (finding.state, finding.needed, remedy in finding.remedy) == (
                State.BAD,
                True,
                True,
            )
        # A question that AWS throttles or refuses is no obstacle, and hides none of the others.
        made.refuse("describe_subnets", "RequestLimitExceeded")
        again = made.findings(replace(intent, inputs={}))
        assert [finding.state for finding in again["subnets"]] == [State.UNKNOWN]
        assert again["role's rights"][0].state is State.BAD
        # Credentials that expire are named, with how to renew them.
        made.fail("get_caller_identity", refusal("ExpiredToken", "expired", "GetCallerIdentity"))
        made.service = type(made.service)(made.service.target, clients=made.clients.__getitem__)
        assert made.findings(intent)["credentials"][0].state is State.BAD


SCENARIO = """
[container]
user = 4242
noexec_tmp = true
leaves_out_empty = true
[network]
silent_internet = true
[api]
throttled = 0.1
rates = {DescribeTrainingJob = 2}
[simulated]
run_s = 0.1
failed = 1.0
failure = "ClientError: Data download failed: User: arn:aws:sts::123456789012:assumed-role/jobs/SageMaker is not \
authorized to perform: kms:Decrypt on this resource because no identity-based policy allows it"
"""
LOADS = """
import os, pathlib
import compiled, empty
pathlib.Path(os.environ["SM_MODEL_DIR"], "escaped").write_text(compiled._speedups._escape_inner("<"))
"""
ENDED_S = 300.0


def compiled_wheel(folder):
    """Make a wheel with a module of machine code, which is another package's."""
    path = make_wheel(folder, "compiled", body="from compiled_parts import _speedups\n")
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.write(_speedups.__file__, f"compiled_parts/{Path(_speedups.__file__).name}")
    return str(path)


@pytest.fixture
def on(tmp_path):
    with serving(tmp_path / "home") as home:
        home.mkdir()
        scenario_file(home).write_text(SCENARIO)
        yield raysm.Local(home=str(home), instance_kind="namespace")
    assert_nothing_left(tmp_path / "home")


@pytest.mark.long
@pytest.mark.namespace
@pytest.mark.timeout(900)
def test_each_job_in_a_hostile_account_ends_in_its_result_or_in_a_reason_with_its_remedy(
    tmp_path, on, capsys
):
    # What only a job can see, a trial tells before any other.
    trial = [
        "doctor",
        "--run",
        "--set",
        f"local.home={on.home}",
        "--set",
        "local.instance_kind=namespace",
    ]
    assert doctor.run(parse(trial), Console(width=300)) == doctor.GOOD
    assert (
        capsys.readouterr().out.count(
            "host name aws, user 4242, /tmp noexec, empty files are left out"
        )
        == 2
    )

    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "empty" / "__init__.py").touch()
    (source / "main.py").write_text(LOADS)
    main = raysm.Script("main.py", source_dir=str(source))
    compiled = {"wheels": [compiled_wheel(tmp_path)], "requirements": ["compiled"]}
    lacks = {
        "wheels": [str(make_wheel(tmp_path, "own", requires=["no-such-package"]))],
        "requirements": ["own"],
    }

    def submit(on=on, **options):
        return raysm.submit(main, on=on, cluster=raysm.Cluster(count=1), **options)

    loads = submit(**compiled)
    fails = [
        # A job that breaks, and a part of the remedy that its reason names.
        (submit(requirements=["no-such-package"]), "give the subnets a NAT, name an index"),
        (submit(**lacks, security=Security(isolation=True)), "send the packages along (wheels)"),
        (submit(replace(on, instance_kind="simulated")), "raysm doctor --on aws --role"),
    ]
    # Credentials that expire end the wait, not the job; once they are renewed, another handle
    # fetches the result.
    expired = Mock(
        side_effect=refusal("ExpiredTokenException", "The security token is expired", "Describe")
    )
    events = loads.service.client("sagemaker").meta.events
    events.register("before-call.sagemaker.DescribeTrainingJob", expired)
    with pytest.raises(CredentialsExpired, match="log in again"):
        loads.wait()
    events.unregister("before-call.sagemaker.DescribeTrainingJob", expired)
    assert (
        raysm.attach(loads.name, on=on).result(timeout=ENDED_S) / "escaped"
    ).read_text() == "&lt;"
    for job, remedy in fails:
        with pytest.raises(raysm.JobFailed) as failed:
            job.result(timeout=ENDED_S)
        assert remedy in str(failed.value)
