"""Tests of ``raysm.cli.config``."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

import raysm
from raysm.cli import config
from raysm.cli.arguments import parse
from raysm.cli.config import effective, flag_layer, project_file, read_settings
from raysm.cli.sending import as_request, prepared
from raysm.core.request import Cluster, Local
from raysm.errors import InvalidRequest

pytestmark = pytest.mark.smoke


def chosen(*argv, on="local"):
    return dict(flag_layer(parse(list(argv)), on).values)


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        (["--instances", "3"], ("cluster", "count"), 3),
        (["--max-runtime", "5m"], ("limits", "max_runtime_s"), 300),
        (["--env", "A=x=y"], ("environment", "A"), "x=y"),
        (["--input", "train=data/"], ("inputs", "train", "uri"), "data/"),
        (["--wheel", "a.whl", "--wheel", "b.whl"], ("wheels",), ["a.whl", "b.whl"]),
        (["--subnet", "a", "--subnet", "b"], ("security", "subnets"), ["a", "b"]),
        (["--hyperparameter", "lr=0.1"], ("hyperparameters", "lr"), "0.1"),
        (["--hyperparameter", "empty="], ("hyperparameters", "empty"), ""),
        (["--set", "hyperparameters_as_args=sdk2"], ("hyperparameters_as_args",), "sdk2"),
        (["--metric", "loss=loss=(.*)"], ("metrics",), [{"name": "loss", "regex": "loss=(.*)"}]),
        (["--stop-on-nan", "loss"], ("stop_on_nan",), "loss"),
        (["--set", "cluster.volume_gb=100"], ("cluster", "volume_gb"), 100),
        (["--set", "security.subnets=['subnet-1']"], ("security", "subnets"), ["subnet-1"]),
        (["--set", "hyperparameters.lr=0.1"], ("hyperparameters", "lr"), "0.1"),
    ],
)
def test_a_flag_chooses_its_option_and_no_other(argv, key, value):
    assert chosen("run", "a.py", *argv) == {key: value}


SWEEP = ("sweep", "--space", "lr=uniform:0:1", "--metric", "loss", "--mode", "min")


@pytest.mark.parametrize("verb", [("run",), ("train",), SWEEP])
@pytest.mark.parametrize("argv", [["make", "data"], ["nvidia-smi"]])
def test_a_command_without_a_script_stays_a_command_in_a_printed_request(
    verb, argv, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    settings = read_settings(parse([*verb, "--source-dir", ".", "--", *argv]))
    workload = settings.workload()
    assert (workload.command, [workload.script, *workload.args]) == (True, argv)
    assert as_request(prepared(settings), settings)["workload"]["script"] == argv[0]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--on", "aws", "--instance-kind", "docker"], "--instance-kind belongs"),
        (["--region", "eu-west-1"], "--region belongs"),
        (["--set", "cluster.volume_gb"], "--set takes OPTION=VALUE"),
        (["--set", "cluster.volume_gb=many"], "--set: cluster.volume_gb: "),
    ],
)
def test_what_a_flag_cannot_say_is_refused_by_its_name(argv, message):
    with pytest.raises(InvalidRequest) as caught:
        chosen("run", "a.py", *argv)
    assert message in str(caught.value)


AWS = """\
on = "aws"
[aws]
role = "arn:aws:iam::123456789012:role/jobs"
region = "eu-west-1"
bucket = "b"
image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:cpu"
"""

BEHIND_POLICIES = (
    AWS
    + """\
[cluster]
instance_type = "ml.m5.large"
[security]
subnets = ["subnet-0a1b2c3d"]
security_groups = ["sg-0a1b2c3d"]
volume_kms_key = "volume-key"
output_kms_key = "output-key"
[tags]
cost-center = "42"
[environment]
OMP_NUM_THREADS = "1"
"""
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, home):
    """A working folder of a repository, with a script and a matrix."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text("pass")
    np.save(tmp_path / "m.npy", np.eye(5, dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project(folder, text):
    (folder / "raysm.toml").write_text(text)


def settings(*argv):
    return read_settings(parse(list(argv)))


def call_of(*argv):
    return prepared(settings(*argv)).plan.request


def without_names(text, name):
    # What the payload's seal covers has the job's name in it.
    return json.loads(re.sub(r"[0-9a-f]{64}", "DIGEST", json.dumps(text).replace(name, "JOB")))


def test_each_place_wins_over_the_weaker_ones(folder):
    project(folder, "[cluster]\ncount = 2\nvolume_gb = 40\n[profile.p.cluster]\ncount = 3\n")
    (folder / "r.json").write_text('{"cluster": {"count": 4}, "project": "p"}')
    count = ("cluster", "count")
    run = ("run", "a.py")
    for argv, value, origin in (
        (run, 2, "raysm.toml"),
        ((*run, "--config-profile", "p"), 3, "raysm.toml [profile.p]"),
        ((*run, "--config-profile", "p", "--request", "r.json"), 4, "r.json"),
        (
            (*run, "--config-profile", "p", "--request", "r.json", "--instances", "5"),
            5,
            "--instances",
        ),
    ):
        chosen = settings(*argv)
        assert (chosen.values[count], chosen.origin(count)) == (value, origin)
        assert chosen.options()["cluster"] == Cluster(count=value, volume_gb=40)


def test_who_is_behind_a_vpc_kms_and_tag_policies_works_from_the_command_line(folder):
    project(folder, BEHIND_POLICIES)
    call = call_of("run", "a.py", "--instances", "2", "--tag", "team=a")
    assert call["VpcConfig"] == {
        "Subnets": ["subnet-0a1b2c3d"],
        "SecurityGroupIds": ["sg-0a1b2c3d"],
    }
    assert call["ResourceConfig"]["VolumeKmsKeyId"] == "volume-key"
    assert call["ResourceConfig"]["InstanceCount"] == 2
    assert call["OutputDataConfig"]["KmsKeyId"] == "output-key"
    assert call["Environment"]["OMP_NUM_THREADS"] == "1"
    assert {"Key": "cost-center", "Value": "42"} in call["Tags"]
    assert {"Key": "team", "Value": "a"} in call["Tags"]


@pytest.mark.parametrize(
    "argv",
    [
        [
            "run",
            "a.py",
            "--instances",
            "2",
            "--input",
            "x=s3://b/x/",
            "--env",
            "A=1",
            "--",
            "--epochs",
            "3",
        ],
        ["train", "a.py", "--workers-per-instance", "2", "--spot", "--set", "cluster.volume_gb=99"],
        ["similarity", "s3://b/m.npy", "--threshold", "0.5", "--sharded", "--instances", "3"],
    ],
    ids=lambda argv: argv[0],
)
def test_a_printed_request_given_back_is_the_same_plan(folder, argv, monkeypatch):
    project(folder, BEHIND_POLICIES)
    chosen = settings(*argv)
    first = prepared(chosen)
    (folder / "job.json").write_text(json.dumps(as_request(first, chosen)))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".git").mkdir()
    monkeypatch.chdir(elsewhere)  # nothing of the folder, nor of its project file, is needed again
    for command in (["submit"], [argv[0]]):
        again = prepared(settings(*command, "--request", str(folder / "job.json")))
        assert without_names(again.plan.request, again.request.name) == without_names(
            first.plan.request, first.request.name
        )
        assert again.request.workload.kind == first.request.workload.kind


def test_flags_beside_a_request_win(folder):
    chosen = settings("similarity", "m.npy", "--top-k", "2", "--instances", "2")
    (folder / "job.json").write_text(json.dumps(as_request(prepared(chosen), chosen)))
    other = settings(
        "similarity", "--request", "job.json", "--threshold", "0.5", "--instances", "3"
    )
    assert (other.workload().top_k, other.workload().threshold) == (None, 0.5)
    assert other.options()["cluster"].count == 3
    assert settings("submit", "--request", "job.json").workload().top_k == 2


def test_a_request_of_another_workload_lends_its_options_and_not_its_workload(folder):
    (folder / "r.toml").write_text(
        '[workload]\nkind = "similarity"\ntop_k = 3\n[limits]\nmax_runtime_s = 60\n'
    )
    chosen = settings("run", "a.py", "--request", "r.toml")
    assert (chosen.workload().kind, chosen.options()["limits"].max_runtime_s) == ("script", 60)
    with pytest.raises(InvalidRequest, match="no script"):
        settings("run", "--request", "r.toml").workload()


def test_reading_commands_go_where_the_project_sends_its_jobs(folder):
    project(folder, AWS)
    assert settings("jobs").target(role="arn:aws:iam::000000000000:role/x").region == "eu-west-1"
    assert settings("jobs", "--on", "local").target() == Local()


def test_another_project_file_can_be_named_and_one_that_is_not_there_is_refused(folder):
    project(folder, "project = 'a'")
    (folder / "other.toml").write_text("project = 'b'")
    assert settings("run", "a.py", "--project-file", "other.toml").options() == {"project": "b"}
    assert project_file(parse(["run", "a.py"])) == folder / "raysm.toml"
    with pytest.raises(InvalidRequest, match=r"no\.toml"):
        settings("run", "a.py", "--project-file", "no.toml")


def test_a_sweep_of_a_script_is_asked_for_by_flags(folder):
    space = [
        "--space",
        "lr=loguniform:1e-4:1e-1",
        "--space",
        "batch=choice:32,64",
        "--metric",
        "loss",
        "--mode",
        "min",
    ]
    how = "--trials 50 --stop asha --search random --gpus 0.5 -- --epochs 3".split()
    workload = read_settings(parse(["sweep", "a.py", *space, *how])).workload()
    assert workload.space == {"lr": raysm.loguniform(1e-4, 1e-1), "batch": raysm.choice([32, 64])}
    assert (workload.metric, workload.trials, workload.stop) == ("loss", 50, raysm.Asha())
    assert (workload.search, workload.gpus, workload.args) == ("random", 0.5, ("--epochs", "3"))


def test_a_command_names_the_project_file_that_it_has_found_and_not_one_that_its_user_has_named(
    folder, capsys
):
    project(folder, "project = 'a'")
    settings("run", "a.py")
    assert str(folder / "raysm.toml") in capsys.readouterr().err
    settings("run", "a.py", "--project-file", "raysm.toml")
    shown()
    assert capsys.readouterr().err == ""


@pytest.fixture
def with_profile(folder):
    (folder / "raysm.toml").write_text(
        "[cluster]\ncount = 2\n[tags]\nteam = 'a'\n[profile.p]\nproject = 'x'\n"
    )
    return folder


def shown(*argv):
    out = io.StringIO()
    config.run(parse(["config", *argv]), Console(file=out, width=40))
    return out.getvalue().splitlines()


def test_each_line_has_option_value_and_origin(with_profile):
    lines = shown("--max-runtime", "60", "--config-profile", "p")
    assert lines[0] == f"# project file: {with_profile / 'raysm.toml'}"
    fields = {line.partition("  #")[0].strip(): line.rpartition("# ")[2] for line in lines[1:]}
    assert fields["cluster.count = 2"] == "raysm.toml"
    assert fields['tags.team = "a"'] == "raysm.toml"
    assert fields['project = "x"'] == "raysm.toml [profile.p]"
    assert fields["limits.max_runtime_s = 60"] == "--max-runtime"
    assert fields["limits.spot = false"] == "default"
    assert fields['on = "local"'] == "default"


def test_what_is_shown_is_a_project_file_that_says_the_same(with_profile):
    metric = 'metrics=[{name = "loss", regex = "loss=(.*)"}]'
    lines = shown("--max-runtime", "60", "--set", metric, "--set", 'environment.A="b\\u007fé\\n"')
    assert "# local.image has no value" in [line.partition("  #")[0].strip() for line in lines]
    before = {key: value for key, (value, _) in effective(read_settings(parse(["config"])))}
    (with_profile / "raysm.toml").write_text("\n".join(lines))
    after = {key: value for key, (value, _) in effective(read_settings(parse(["config"])))}
    chosen = {"limits.max_runtime_s": 60, "metrics": [{"name": "loss", "regex": "loss=(.*)"}]}
    assert after == before | chosen | {"environment.A": "b\x7fé\n"}
