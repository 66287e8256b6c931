"""What applies to a command line: built-in default < raysm.toml < its profile < a request's file < a flag."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import raysm
from raysm.cli.arguments import parse
from raysm.cli.choosing import project_file, read_settings
from raysm.cli.submitting import as_request, prepared
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Local

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
        (run, 2, "raysm.toml:2"),
        ((*run, "--config-profile", "p"), 3, "raysm.toml:5"),
        ((*run, "--config-profile", "p", "--request", "r.json"), 4, "r.json"),
        ((*run, "--config-profile", "p", "--request", "r.json", "--instances", "5"), 5, "--instances"),
    ):
        chosen = settings(*argv)
        assert (chosen.values[count], chosen.origin(count)) == (value, origin)
        assert chosen.options()["cluster"] == Cluster(count=value, volume_gb=40)


def test_who_is_behind_a_vpc_kms_and_tag_policies_works_from_the_command_line(folder):
    project(folder, BEHIND_POLICIES)
    call = call_of("run", "a.py", "--instances", "2", "--tag", "team=a")
    assert call["VpcConfig"] == {"Subnets": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    assert call["ResourceConfig"]["VolumeKmsKeyId"] == "volume-key"
    assert call["ResourceConfig"]["InstanceCount"] == 2
    assert call["OutputDataConfig"]["KmsKeyId"] == "output-key"
    assert call["Environment"] == {"OMP_NUM_THREADS": "1"}
    assert {"Key": "cost-center", "Value": "42"} in call["Tags"]
    assert {"Key": "team", "Value": "a"} in call["Tags"]


def test_a_processing_job_can_be_asked_for_in_a_file_and_by_a_flag(folder):
    project(folder, "kind = 'processing'\n" + BEHIND_POLICIES)
    call = call_of("run", "a.py")
    assert call["NetworkConfig"]["VpcConfig"]["Subnets"] == ["subnet-0a1b2c3d"]
    assert call["ProcessingOutputConfig"]["KmsKeyId"] == "output-key"
    assert call["Environment"] == {"OMP_NUM_THREADS": "1"}
    assert "TrainingJobName" in call_of("run", "a.py", "--set", "kind=training")


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "a.py", "--instances", "2", "--input", "x=s3://b/x/", "--env", "A=1", "--", "--epochs", "3"],
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


def test_local_data_is_printed_by_its_path_and_uploaded_when_it_is_given_back(folder):
    chosen = settings("similarity", "m.npy", "--top-k", "2")
    printed = as_request(prepared(chosen), chosen)
    assert printed["inputs"]["matrix"]["uri"] == str(folder / "m.npy")
    assert (printed["on"], printed["local"]["instance_kind"], printed["name"]) == ("local", "process", "similarity")


def test_flags_beside_a_request_win(folder):
    chosen = settings("similarity", "m.npy", "--top-k", "2", "--instances", "2")
    (folder / "job.json").write_text(json.dumps(as_request(prepared(chosen), chosen)))
    other = settings("similarity", "--request", "job.json", "--threshold", "0.5", "--instances", "3")
    assert (other.workload().top_k, other.workload().threshold) == (None, 0.5)
    assert other.options()["cluster"].count == 3
    assert settings("submit", "--request", "job.json").workload().top_k == 2


def test_a_command_without_its_workload_needs_a_request(capsys):
    for argv, message in (
        (["run"], "the following arguments are required: SCRIPT"),
        (["similarity", "--full"], "the following arguments are required: MATRIX"),
        (["submit"], "the following arguments are required: --request"),
    ):
        with pytest.raises(SystemExit) as caught:
            parse(argv)
        assert caught.value.code == 2
        assert f"raysm {argv[0]}: {message}" in capsys.readouterr().err


def test_a_request_of_another_workload_lends_its_options_and_not_its_workload(folder):
    (folder / "r.toml").write_text('[workload]\nkind = "similarity"\ntop_k = 3\n[limits]\nmax_runtime_s = 60\n')
    chosen = settings("run", "a.py", "--request", "r.toml")
    assert (chosen.workload().kind, chosen.options()["limits"].max_runtime_s) == ("script", 60)
    with pytest.raises(InvalidRequest, match="the script has no script"):
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
    with pytest.raises(InvalidRequest, match=r"no\.toml cannot be read"):
        settings("run", "a.py", "--project-file", "no.toml")


def test_a_profile_without_a_project_file_is_refused():
    with pytest.raises(InvalidRequest, match=r"--config-profile p: there is no raysm\.toml in"):
        settings("run", "a.py", "--config-profile", "p")


def test_the_count_of_a_project_is_taken_where_no_flag_says_another(folder):
    project(folder, "[local]\ninstances = 2\n")
    assert prepared(settings("run", "a.py")).request.cluster.count == 2
    assert prepared(settings("run", "a.py", "--instances", "1")).request.cluster.count == 1


SWEEP = [
    "sweep",
    "a.py",
    "--space",
    "lr=loguniform:1e-4:1e-1",
    "--space",
    "batch=choice:32,64",
    "--metric",
    "loss",
    "--mode",
    "min",
]


def test_a_sweep_of_a_script_is_asked_for_by_flags(folder):
    argv = [*SWEEP, "--trials", "50", "--stop", "asha", "--search", "random", "--gpus", "0.5", "--", "--epochs", "3"]
    workload = read_settings(parse(argv)).workload()
    assert workload.space == {"lr": raysm.loguniform(1e-4, 1e-1), "batch": raysm.choice([32, 64])}
    assert (workload.metric, workload.trials, workload.stop) == ("loss", 50, raysm.Asha())
    assert (workload.search, workload.gpus, workload.args) == ("random", 0.5, ("--epochs", "3"))


def test_a_printed_sweep_given_back_is_the_same_workload(folder):
    settings = read_settings(parse([*SWEEP, "--stop", "median"]))
    ready = prepared(settings)
    (folder / "job.json").write_text(json.dumps(as_request(ready, settings)))
    again = prepared(read_settings(parse(["submit", "--request", "job.json"])))
    # As of every script, its path is absolute in what is printed.
    assert replace(again.request.workload, script="a.py") == ready.request.workload


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--space", "lr=lguniform:1:2"], "space: lr: there is no range 'lguniform'; did you mean 'loguniform'"),
        (["--space", "lr=loguniform:0:2"], "a logarithm needs a lower bound above 0"),
        (["--space", "lr"], "--space takes NAME=RANGE, got 'lr'"),
        (["--space", "lr=uniform:0:1", "--space", "lr=uniform:0:2"], "the parameter 'lr' is given twice"),
    ],
)
def test_a_space_with_a_slip_is_refused(folder, argv, said):
    with pytest.raises(InvalidRequest, match=said):
        read_settings(parse(["sweep", "a.py", *argv, "--metric", "loss", "--mode", "min"])).workload()


def test_a_sweep_without_space_or_metric_says_what_it_needs(folder, capsys):
    with pytest.raises(SystemExit):
        parse(["sweep", "a.py", "--metric", "loss", "--mode", "min"])
    assert "a sweep needs --space NAME=RANGE, --metric NAME and --mode min or --mode max" in capsys.readouterr().err
