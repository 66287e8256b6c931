"""Options of several places, one laid over the other, and files of them: found, read and checked as a whole."""

from pathlib import Path

import pytest

import raysm
from raysm.core.client.settings import (
    Layer,
    Project,
    Settings,
    check_values,
    find_project_file,
    read_request,
    schema,
)
from raysm.core.request import AWS, Cluster, InstanceGroup, Limits, Local, Security
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.features.similarity.request import Similarity

ROLE = "arn:aws:iam::123456789012:role/jobs"


def layer(name, **tables):
    def origin(key):
        return name

    return Layer(values=check_values(tables, schema(workload=True), origin), origin=origin)


def settings(*tables):
    return Settings([layer(f"layer {number}", **item) for number, item in enumerate(tables)])


GROUPS = [{"name": "a", "instance_type": "ml.m5.large", "count": 1}]


def test_groups_put_away_a_type_and_a_count_of_a_weaker_place_and_the_reverse():
    uniform, grouped = (
        {"cluster": {"instance_type": "ml.c5.xlarge", "count": 2}},
        {"cluster": {"groups": GROUPS}},
    )
    groups = Cluster(groups=(InstanceGroup("a", "ml.m5.large", 1),))
    assert settings(uniform, grouped).options()["cluster"] == groups
    assert settings(grouped, uniform).options()["cluster"] == Cluster("ml.c5.xlarge", count=2)


def test_the_count_of_this_machine_is_that_of_a_cluster_that_says_only_something_else():
    local = {"local": {"instances": 3}, "cluster": {"coordinator_only": True}}
    assert settings(local).options()["cluster"] == Cluster(count=3, coordinator_only=True)
    assert settings(local, {"cluster": {"count": 2}}).options()["cluster"].count == 2


def test_aws_without_a_role_says_how_to_name_one_and_reading_needs_none():
    with pytest.raises(InvalidRequest, match=r"--role.*\[aws\] in raysm\.toml"):
        settings({"on": "aws"}).target()
    assert settings({"on": "aws"}).target(role=ROLE) == AWS(role=ROLE)
    assert settings({}).target(role=ROLE) == Local()


def test_a_workload_is_read_by_its_kind_and_another_kind_is_another_workload():
    script = {"workload": {"kind": "script", "script": "a.py", "args": ["x"]}}
    assert settings(script).workload() == Script("a.py", args=("x",))
    assert settings(script, {"workload": {"args": ["y"]}}).workload() == Script("a.py", args=("y",))
    assert settings(
        script, {"workload": {"kind": "similarity", "top_k": 3}}
    ).workload() == Similarity(top_k=3)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"kind": "scrpt"}, r"layer 0: workload\.kind: .*'scrpt'"),
        ({"kind": "script", "scirpt": "a.py"}, r"workload\.scirpt.* workload\.script"),
        ({"kind": "script"}, r"script.*\[workload\]"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(workload, message):
    with pytest.raises(InvalidRequest, match=message):
        settings({"workload": workload}).workload()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"cluster": {"cuont": 1}}, "cluster.cuont; did you mean cluster.count?"),
        ({"zzz": 1}, "x: there is no option zzz;"),
        # What a target is, which a user cannot choose, is no option.
        ({"aws": {"kind": "local"}}, "x: there is no option aws.kind;"),
        ({"cluster": {"count": True}}, "x: cluster.count: "),
        ({"metrics": [{"name": "a"}]}, "x: metrics[0]: "),
        (
            {"inputs": {"train": {"url": "s3://b/x"}}},
            "inputs.train.url; did you mean inputs.train.uri?",
        ),
    ],
)
def test_what_is_unknown_or_of_another_type_is_refused_with_place_and_key(tables, message):
    with pytest.raises(InvalidRequest) as caught:
        check_values(tables, schema(workload=True), lambda key: "x")
    assert message in str(caught.value)


def test_values_that_contradict_each_other_name_the_places_that_they_come_from():
    with pytest.raises(InvalidRequest, match="max_wait_s.*spot=True.*layer 0, layer 1"):
        settings(
            *(
                {"limits": item}
                for item in ({"max_wait_s": 5}, {"spot": False}, {"max_runtime_s": 3})
            )
        ).options()


def test_a_channel_may_be_written_as_its_uri_and_a_hyperparameter_as_a_number():
    chosen = settings(
        {"inputs": {"train": "s3://b/x"}, "hyperparameters": {"lr": 0.1, "layers": 3}}
    ).options()
    assert chosen["inputs"]["train"].uri == "s3://b/x"
    assert chosen["hyperparameters"] == {"lr": "0.1", "layers": "3"}


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
    with pytest.raises(InvalidRequest, match=r"raysm\.toml.*'bgi'.* big, laptop"):
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
        (
            "\n[profile.x.cluster]\ncuont = 1",
            " [profile.x]: there is no option cluster.cuont; did you mean",
        ),
        (
            "[workload]\nkind = 'script'",
            ": a project file has no workload; put it into a file for --request",
        ),
        ("count = ", " is not TOML that can be read: Invalid value (at end of document)"),
        (
            "[tags]\nsince = 2020-01-01",
            ": tags.since: expected text, got datetime.date(2020, 1, 1)",
        ),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_file_and_nearest_key(tmp_path, text, message):
    path = tmp_path / "raysm.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        Project.read(path)
    assert f"{path}{message}" in str(caught.value)


def test_a_request_has_a_workload_too_and_is_json_or_toml(tmp_path):
    (tmp_path / "r.toml").write_text(
        '[workload]\nkind = "script"\nscript = "a.py"\n[limits]\nspot = true\n'
    )
    (tmp_path / "r.json").write_text(
        '{"workload": {"kind": "script", "script": "a.py"}, "limits": {"spot": true}}'
    )
    for name in ("r.toml", "r.json"):
        chosen = Settings([read_request(tmp_path / name)])
        assert chosen.workload().script == str(tmp_path / "a.py")
        assert chosen.options() == {"limits": Limits(spot=True)}
    assert chosen.origin(("limits", "spot")) == str(tmp_path / "r.json")


@pytest.mark.parametrize("text", ["{", pytest.param("[" * 100_000, id="deep")])
def test_a_request_that_is_none_is_refused_with_its_file(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(InvalidRequest, match=r"r\.json.*JSON"):
        read_request(tmp_path / "r.json")


def test_options_of_a_file_are_those_of_submit(file, remote, script, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("1\n")
    file.write_text(WHOLE.replace('last = "job:NAME/data"\n', ""))
    job = raysm.submit(
        raysm.Script(str(script)), **{**raysm.load_options(file), "on": remote.service}
    )
    sent = remote.sagemaker.sent[0]
    assert sent["VpcConfig"]["Subnets"] == ["subnet-1"]
    assert job.name == sent["TrainingJobName"]


def test_the_wheels_and_requirement_files_of_a_project_file_are_installed_in_python_too(tmp_path):
    (tmp_path / "requirements.txt").write_text("scipy>=1.11  # for distances\n")
    (tmp_path / "raysm.toml").write_text(
        'wheels = ["dist/mine-1.0-py3-none-any.whl"]\nrequirements = ["polars", "requirements.txt"]\n'
    )
    options = raysm.load_options(tmp_path / "raysm.toml")
    assert options["requirements"] == ["polars", "scipy>=1.11", "mine==1.0"]
    assert options["wheels"] == (str(tmp_path / "dist" / "mine-1.0-py3-none-any.whl"),)
