"""Options in files: found, read and checked as a whole."""

from pathlib import Path

import pytest

import raysm
from raysm.client.settings import Project, Settings, absolute, find_project_file, read_request
from raysm.errors import InvalidRequest
from raysm.request import AWS, Cluster, Limits, Local, Security

WHOLE = """\
# For all of us.
on = "aws"
requirements = [
    "tqdm",
]

[aws]
role = "arn:aws:iam::123456789012:role/jobs"

[cluster]
instance_type = "ml.m5.large"

[security]
subnets = ["subnet-1"]
security_groups = ["sg-1"]

[inputs]
train = "data/train.csv"
other = { uri = "s3://b/x", mode = "FastFile" }
last = "job:NAME/data"

[hyperparameters]
text = \"\"\"
[cluster]
count = 9
\"\"\"

[profile.big.cluster]
count = 10

[profile.laptop]
on = "local"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "raysm.toml"
    path.write_text(WHOLE)
    return path


def of(file, profile=None):
    return Settings(Project.read(file).chosen(profile))


def test_the_nearest_file_above_is_found_up_to_the_repositorys_root(tmp_path):
    inner = tmp_path / "repository" / "src" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "raysm.toml").touch()
    assert find_project_file(inner, Path("/home/none")) == tmp_path / "raysm.toml"
    (tmp_path / "repository" / ".git").mkdir()
    assert find_project_file(inner, Path("/home/none")) is None
    (tmp_path / "repository" / "raysm.toml").touch()
    assert find_project_file(inner, Path("/home/none")) == tmp_path / "repository" / "raysm.toml"


def test_a_file_says_options_and_target(file):
    chosen = of(file)
    assert chosen.target() == AWS(role="arn:aws:iam::123456789012:role/jobs")
    options = chosen.options()
    assert options["cluster"] == Cluster("ml.m5.large")
    assert options["security"] == Security(subnets=("subnet-1",), security_groups=("sg-1",))
    assert options["requirements"] == ("tqdm",)


def test_a_profile_lies_over_what_always_applies(file):
    assert of(file, "big").options()["cluster"] == Cluster("ml.m5.large", count=10)
    assert of(file, "laptop").target() == Local()


def test_a_profile_that_there_is_not_names_those_that_there_are(file):
    with pytest.raises(InvalidRequest, match=r"raysm.toml has no profile 'bgi'; it has big, laptop"):
        of(file, "bgi")


def test_a_path_is_relative_to_the_file_in_which_it_stands(file):
    inputs = of(file).options()["inputs"]
    assert inputs["train"].uri == str(file.parent / "data" / "train.csv")
    assert (inputs["other"].uri, inputs["other"].mode) == ("s3://b/x", "FastFile")
    assert inputs["last"].uri == "job:NAME/data"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clutser]\ncount = 1", ": there is no option clutser; did you mean cluster?"),
        ("[cluster]\ncount = '2'", ": cluster.count: expected an integer, got '2'"),
        (
            "\n[profile.x.cluster]\ncuont = 1",
            " [profile.x]: there is no option cluster.cuont; did you mean",
        ),
        ("[profile]\nx = 3", ": write a profile as [profile.NAME.cluster]"),
        ("[workload]\nkind = 'script'", ": a project file has no workload; put it into a file for --request"),
        ("count = ", " is not TOML that can be read: Invalid value (at end of document)"),
        ("grace_s = nan", ": grace_s: expected a finite number, got nan"),
        ("[tags]\nsince = 2020-01-01", ": tags.since: expected text, got datetime.date(2020, 1, 1)"),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_file_and_nearest_key(tmp_path, text, message):
    path = tmp_path / "raysm.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        Project.read(path)
    assert f"{path}{message}" in str(caught.value)


def test_a_request_has_a_workload_too_and_is_json_or_toml(tmp_path):
    (tmp_path / "r.toml").write_text('[workload]\nkind = "script"\nscript = "a.py"\n[limits]\nspot = true\n')
    (tmp_path / "r.json").write_text('{"workload": {"kind": "script", "script": "a.py"}, "limits": {"spot": true}}')
    for name in ("r.toml", "r.json"):
        chosen = Settings([read_request(tmp_path / name)])
        assert chosen.workload().script == str(tmp_path / "a.py")
        assert chosen.options() == {"limits": Limits(spot=True)}
    assert chosen.origin(("limits", "spot")) == str(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "holds no options"),
        ("{", "is not JSON that can be read: "),
        pytest.param("[" * 100_000, "is not JSON that can be read: ", id="deep"),
        ('{"limits": {"sopt": 1}}', "did you mean limits.spot"),
    ],
)
def test_a_request_that_is_none_is_refused_with_its_file(tmp_path, text, message):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(InvalidRequest, match=rf"r\.json.*{message}"):
        read_request(tmp_path / "r.json")


def test_a_script_in_a_source_folder_is_named_from_there(tmp_path):
    plain = absolute({"workload": {"script": "a.py"}}, tmp_path)
    inside = absolute({"workload": {"script": "a.py", "source_dir": "src"}}, tmp_path)
    assert plain["workload"] == {"script": str(tmp_path / "a.py")}
    assert inside["workload"] == {"script": "a.py", "source_dir": str(tmp_path / "src")}


def test_options_of_a_file_are_those_of_submit(file, remote, script, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("1\n")
    file.write_text(WHOLE.replace('last = "job:NAME/data"\n', ""))
    job = raysm.submit(raysm.Script(str(script)), **{**raysm.load_options(file), "on": remote.service})
    sent = remote.sagemaker.sent[0]
    assert sent["VpcConfig"]["Subnets"] == ["subnet-1"]
    assert job.name == sent["TrainingJobName"]
