"""The command ``raysm doctor``."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.config import read_settings
from raysm.core.client.costs.prices import RegionPrices, save_prices
from raysm.core.client.targets.local import ensure_server
from raysm.errors import InvalidRequest
from raysm.features.account.case import State, bad, good, unknown
from raysm.features.account.doctor_command import (
    BAD,
    GOOD,
    POLICIES,
    UNKNOWN,
    make_case,
    run,
    status,
)
from raysm.features.account.permissions import find_names, policy
from tests.support import aws_account, sagemaker
from tests.support.homes import in_home
from tests.support.pages import assert_printed, outputs
from tests.support.sagemaker import REGION

ROLE = "arn:aws:iam::123456789012:role/jobs"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:cpu"
ON_AWS = ("--on", "aws", "--region", "eu-west-1", "--bucket", "b", "--image", IMAGE)


def case(*words):
    settings = read_settings(parse(["doctor", *ON_AWS, *words]))
    return make_case(settings, settings.options())


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([good("a"), bad("b", "", needed=False)], GOOD),
        ([good("a"), unknown("b")], UNKNOWN),
        ([unknown("a"), bad("b", "")], BAD),
    ],
)
def test_the_exit_code_tells_what_is_bad_from_what_could_not_be_looked_at(findings, code):
    assert status(findings) == code


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
    assert (whole.role, whole.intent.choices, list(whole.intent.inputs)) == (
        ROLE,
        ({"ml.c5.xlarge": 2},),
        ["train"],
    )
    plan = whole.plan()
    assert plan.request["EnableManagedSpotTraining"]
    assert plan.request["RoleArn"] == ROLE
    assert {"Tuning", "Controller", "Secrets"}.isdisjoint(
        item["Sid"] for item in policy(POLICIES["user"], find_names(whole))["Statement"]
    )


@pytest.mark.parametrize("whose", sorted(POLICIES))
def test_a_policy_is_printed_as_json_with_the_jobs_own_names(whose, capsys):
    arguments = parse(["doctor", *ON_AWS, "--role", ROLE, "--policy", whose])
    assert run(arguments, Console()) == GOOD
    printed = json.loads(capsys.readouterr().out)
    assert printed["Version"] == "2012-10-17"
    assert "arn:aws:s3:::b/raysm/*" in json.dumps(printed)


def test_a_policy_without_credentials_has_what_the_options_name_and_says_what_is_missing(capsys):
    role = ("--role", ROLE, "--policy", "role")
    away = ("--output-uri", "s3://away/out", "--checkpoint-uri", "s3://kept/state")
    assert run(parse(["doctor", *ON_AWS, *role, *away]), Console()) == GOOD
    printed, said = capsys.readouterr()
    resources = {item["Sid"]: item["Resource"] for item in json.loads(printed)["Statement"]}
    assert resources["Image"] == "arn:aws:ecr:eu-west-1:123456789012:repository/raysm"
    assert all(":eu-west-1:123456789012:log-group" in one for one in resources["Logs"])
    assert {"arn:aws:s3:::away", "arn:aws:s3:::kept"} <= set(resources["Bucket"])
    assert said == ""
    run(
        parse(["doctor", "--on", "aws", "--region", "eu-west-1", *away, "--policy", "user"]),
        Console(),
    )
    printed, said = capsys.readouterr()
    resources = {item["Sid"]: item["Resource"] for item in json.loads(printed)["Statement"]}
    assert resources["Bucket"] == "arn:aws:s3:::sagemaker-eu-west-1-ACCOUNT"
    assert resources["Outputs"] == ["arn:aws:s3:::away/out*", "arn:aws:s3:::kept/state*"]
    assert {"DefaultBucket", "Tuning", "Controller", "Secrets"} <= set(resources)
    # raysm creates no bucket that the user named.
    run(parse(["doctor", *ON_AWS, "--policy", "user"]), Console())
    assert "s3:CreateBucket" not in capsys.readouterr().out
    assert (
        "ACCOUNT (credentials, or --role with an ARN), ROLE (--role), REPOSITORY (--image or --instance"
        in said
    )
    run(parse(["doctor", "--on", "aws", "--region", "eu-west-1", *role]), Console())
    assert capsys.readouterr().err.endswith("or give it: REPOSITORY (--image or --instance-type)\n")
    with pytest.raises(InvalidRequest, match="add --on aws"):
        run(parse(["doctor", "--policy", "user"]), Console())


def test_what_is_found_here_is_printed_as_json_with_its_state(capsys):
    code = run(parse(["doctor", "--json"]), Console())
    findings = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert findings["ray"]["state"] == State.GOOD
    assert {"server", "namespace", "docker", "ray.train"} <= set(findings)
    assert code == GOOD


def test_an_endpoint_that_is_left_in_the_shell_is_found_and_all_else_is_looked_at_there(
    home, monkeypatch, capsys
):
    variables = {
        "AWS_ENDPOINT_URL": ensure_server(home).url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = run(
        parse(["doctor", "--json", *ON_AWS, "--role", ROLE, "--instance-type", "ml.m5.large"]),
        Console(),
    )
    findings = {item["name"]: item for item in reversed(json.loads(capsys.readouterr().out))}
    assert code == BAD
    assert "127.0.0.1" in findings["endpoint"]["text"]
    assert findings["credentials"]["state"] == State.GOOD
    assert findings["bucket"]["remedy"] == "aws s3 mb s3://b --region eu-west-1"
    # moto has no quotas of SageMaker: what answers is no list of them.
    assert findings["quota"]["state"] == State.UNKNOWN


def run_job(account, *words):
    """Run ``raysm doctor --run`` in an account, with no terminal to ask; return what was printed and the refusal."""
    where = (
        "--on",
        "aws",
        "--role",
        aws_account.ROLE,
        "--region",
        REGION,
        "--bucket",
        aws_account.BUCKET,
    )
    out = io.StringIO()
    arguments = parse(["doctor", "--run", *where, "--image", sagemaker.IMAGE, *words])
    with pytest.raises(InvalidRequest) as refusal:
        run(arguments, Console(file=out, width=200), lambda target: account.service)
    assert not account.clients["sagemaker"].calls
    return out.getvalue(), str(refusal.value)


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_run_tells_the_costs_and_sends_nothing_that_nobody_agreed_to_or_whose_price_is_unknown(
    words,
):
    with aws_account.account() as account:
        printed, refusal = run_job(
            account, "--instance-type", "ml.m5.large", "--instances", "2", *words
        )
    assert "the job costs unknown, up to 0.5 instance-hours: no price of ml.m5.large" in printed
    assert "a job with these options takes up to 0.5 instance-hours" in printed
    assert "add --yes, which needs a known price" in refusal


def test_run_sends_no_trial_that_could_cost_more_than_a_dollar(tmp_path):
    with in_home(tmp_path), aws_account.account() as account:
        save_prices(
            RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={"ml.m5.large": 3.0})
        )
        _, refusal = run_job(account, "--instance-type", "ml.m5.large", "--instances", "2", "--yes")
    assert "a trial may cost at most 1.00 USD, and this one could cost 1.50 USD" in refusal


def test_trial_whose_cost_is_capped_at_a_dollar_is_not_refused_for_it(tmp_path):
    with in_home(tmp_path), aws_account.account() as account:
        save_prices(
            RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={"ml.m5.large": 3.0})
        )
        words = ("--instance-type", "ml.m5.large", "--instances", "2", "--max-cost", "1")
        printed, refusal = run_job(account, *words)
    assert "at most 1.00 USD, its max_cost" in printed
    assert "no terminal to ask whether to send the job" in refusal


def test_yes_alone_sends_no_network_measurement_that_could_cost_more_than_a_dollar(tmp_path):
    with in_home(tmp_path), aws_account.account() as account:
        save_prices(
            RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={"ml.m5.large": 3.0})
        )
        words = ("--instance-type", "ml.m5.large", "--instances", "2", "--network", "--yes")
        _, refusal = run_job(account, *words)
    assert "could cost 1.50 USD: above 1.00 USD --yes needs a --max-cost" in refusal
    assert "--yes --max-cost 1.51" in refusal


def test_network_of_dearer_instances_is_measured_if_the_user_agrees(tmp_path):
    with in_home(tmp_path), aws_account.account() as account:
        save_prices(
            RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={"ml.m5.large": 3.0})
        )
        words = ("--instance-type", "ml.m5.large", "--instances", "2", "--network")
        printed, refusal = run_job(account, *words)
    assert "the job costs" in printed
    assert "no terminal to ask whether to send a job that could cost 1.50 USD" in refusal


def test_a_client_without_ray_has_the_doctor():
    code = "import sys; sys.modules['ray'] = None; import raysm.features.account.doctor_command"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_run_sends_nothing_if_a_check_is_bad():
    with aws_account.account() as account:
        account.deny("iam:PassRole")
        printed, refusal = run_job(account, "--yes")
    assert "iam:PassRole" in printed
    assert "fix what is marked BAD" in refusal


@pytest.mark.long
@pytest.mark.timeout(300)
def test_run_sends_a_job_whose_instances_are_described(home, capsys):
    code = run(parse(["doctor", "--run", "--set", f"local.home={home}"]), Console(width=200))
    printed = capsys.readouterr().out
    assert code == GOOD
    assert_printed(*outputs("guides/account-first-hour.md"), printed)
    assert "instances.txt" in printed
