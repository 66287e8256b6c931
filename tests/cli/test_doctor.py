"""``raysm doctor``: what it prints, its exit codes, one job of a file, and the policies."""

import json

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.choosing import read_settings
from raysm.cli.doctor import BAD, GOOD, POLICIES, UNKNOWN, case_of, run, status
from raysm.client.doctor import State
from raysm.client.doctor.finding import bad, good, unknown

ROLE = "arn:aws:iam::123456789012:role/jobs"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:cpu"
ON_AWS = ("--on", "aws", "--region", "eu-west-1", "--bucket", "b", "--image", IMAGE)


def case(*words):
    return case_of(read_settings(parse(["doctor", *ON_AWS, *words])))


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([good("a"), bad("b", "", needed=False)], GOOD),
        ([good("a"), unknown("b")], UNKNOWN),
        ([unknown("a"), bad("b", "")], BAD),
        ([], GOOD),
    ],
)
def test_the_exit_code_tells_what_is_bad_from_what_could_not_be_looked_at(findings, code):
    assert status(findings) == code


def test_the_flags_of_a_job_say_what_is_looked_at():
    intent = case("--instance-type", "ml.m5.large", "--instances", "3", "--spot", "--set", "kind=processing").intent
    assert intent.instances == {"ml.m5.large": 3}
    assert intent.limits.spot
    assert intent.kind == "processing"


def test_without_a_role_there_is_a_case_and_no_role_of_it():
    assert case().role is None
    assert case("--role", ROLE).role == ROLE


def test_a_file_names_exactly_one_job(tmp_path):
    (tmp_path / "train.py").touch()
    request = {
        "workload": {"kind": "script", "script": str(tmp_path / "train.py")},
        "cluster": {"instance_type": "ml.c5.xlarge", "count": 2},
        "inputs": {"train": {"uri": "s3://data/train/"}},
        "limits": {"spot": True},
        "aws": {"role": ROLE},
    }
    (tmp_path / "job.json").write_text(json.dumps(request))
    whole = case("--for", str(tmp_path / "job.json"))
    assert (whole.role, whole.intent.instances, list(whole.intent.inputs)) == (ROLE, {"ml.c5.xlarge": 2}, ["train"])
    plan = whole.plan()
    assert plan.request["EnableManagedSpotTraining"]
    assert plan.request["RoleArn"] == ROLE


def test_without_a_workload_no_plan_is_made():
    assert case("--role", ROLE).plan is None


@pytest.mark.parametrize("whose", sorted(POLICIES))
def test_a_policy_is_printed_as_json_with_the_jobs_own_names(whose, capsys):
    arguments = parse(["doctor", *ON_AWS, "--role", ROLE, "--policy", whose])
    assert run(arguments, Console()) == GOOD
    printed = json.loads(capsys.readouterr().out)
    assert printed["Version"] == "2012-10-17"
    assert "arn:aws:s3:::b/raysm/*" in json.dumps(printed)


def test_what_is_found_here_is_printed_as_json_with_its_state(capsys):
    code = run(parse(["doctor", "--json"]), Console())
    findings = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert findings["ray"]["state"] == State.GOOD
    assert code == GOOD
