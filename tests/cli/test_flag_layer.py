"""What flags choose: each its option and no other, and what cannot be is refused by the flag's name."""

import pytest

from raysm.cli.arguments import parse
from raysm.cli.flag_layer import flag_layer
from raysm.client.settings import Layer, Settings
from raysm.errors import InvalidRequest
from raysm.request import Security

pytestmark = pytest.mark.smoke


def chosen(*argv, on="local"):
    return dict(flag_layer(parse(list(argv)), on).values)


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        (["--instances", "3"], ("cluster", "count"), 3),
        (["--max-runtime", "60"], ("limits", "max_runtime_s"), 60),
        (["--max-runtime", "5m"], ("limits", "max_runtime_s"), 300),
        (["--keep-alive", "1h"], ("cluster", "keep_alive_s"), 3600),
        (["--spot"], ("limits", "spot"), True),
        (["--env", "A=x=y"], ("environment", "A"), "x=y"),
        (["--tag", "team=a"], ("tags", "team"), "a"),
        (["--input", "train=data/"], ("inputs", "train", "uri"), "data/"),
        (["--wheel", "a.whl", "--wheel", "b.whl"], ("wheels",), ["a.whl", "b.whl"]),
        (["--if-done", "skip"], ("if_done",), "skip"),
        (["--subnet", "a", "--subnet", "b"], ("security", "subnets"), ["a", "b"]),
        (["--volume-gb", "200"], ("cluster", "volume_gb"), 200),
        (["--isolation"], ("security", "isolation"), True),
        (["--hyperparameter", "lr=0.1"], ("hyperparameters", "lr"), "0.1"),
        (["--kind", "processing"], ("kind",), "processing"),
        (["--source-dir", "src"], ("workload", "source_dir"), "src"),
    ],
)
def test_a_flag_chooses_its_option_and_no_other(argv, key, value):
    assert chosen("run", "a.py", *argv) == {key: value}


def test_what_nobody_gives_is_not_chosen():
    assert chosen("run", "a.py") == {}
    assert chosen("similarity", "m.npy", "--top-k", "3") == {("workload", "top_k"): 3}


def test_a_flag_of_another_command_by_the_same_name_chooses_nothing():
    assert chosen("metrics", "JOB", "--name", "loss") == {}
    assert chosen("run", "a.py", "--name", "mine") == {("name",): "mine"}


def test_a_flag_of_both_targets_is_the_chosen_ones():
    assert chosen("run", "a.py", "--image", "x") == {("local", "image"): "x"}
    assert chosen("run", "a.py", "--image", "x", on="aws") == {("aws", "image"): "x"}
    assert chosen("run", "a.py", "--on", "aws", "--image", "x")["aws", "image"] == "x"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--role", "x"], "--role belongs to --on aws"),
        (["--on", "aws", "--instance-kind", "docker"], "--instance-kind belongs to --on local"),
        (["--set", "cluster.volume_gb"], "--set takes OPTION=VALUE, as in --set cluster.volume_gb=100"),
        (["--set", "cluster.volume=1"], "--set: there is no option cluster.volume; did you mean cluster.volume_gb?"),
        (["--set", "cluster.volume_gb=many"], "--set: cluster.volume_gb: expected an integer, got 'many'"),
        (["--set", "clutser.x=1"], "--set: there is no option clutser; did you mean cluster?"),
    ],
)
def test_what_a_flag_cannot_say_is_refused_by_its_name(argv, message):
    with pytest.raises(InvalidRequest) as caught:
        chosen("run", "a.py", *argv)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("cluster.volume_gb=100", ("cluster", "volume_gb"), 100),
        ("security.isolation=true", ("security", "isolation"), True),
        ("security.subnets=['subnet-1']", ("security", "subnets"), ["subnet-1"]),
        ("security.output_kms_key=123", ("security", "output_kms_key"), "123"),
        ("project='quoted'", ("project",), "quoted"),
        ("kind=processing", ("kind",), "processing"),
        ("environment.THREADS=1", ("environment", "THREADS"), "1"),
        ("cluster.instance_type=ml.m5.large", ("cluster", "instance_type"), "ml.m5.large"),
        ("hyperparameters.lr=0.1", ("hyperparameters", "lr"), "0.1"),
    ],
)
def test_every_option_can_be_set_by_its_path(text, key, value):
    assert chosen("run", "a.py", "--set", text) == {key: value}


def test_the_origin_of_a_flags_value_is_the_flag():
    layer = flag_layer(parse(["run", "a.py", "--env", "A=1", "--set", "kind=processing", "--spot"]), "local")
    origins = [layer.origin(key) for key in (("environment", "A"), ("kind",), ("limits", "spot"))]
    assert origins == ["--env", "--set", "--spot"]


def test_a_job_in_a_vpc_with_keys_and_tags_can_be_sent_by_flags_alone():
    vpc = "--subnet subnet-1 --subnet subnet-2 --security-group sg-1"
    keys = "--volume-kms-key 1234abcd --output-kms-key alias/mine --encrypt-traffic"
    rest = "--volume-gb 500 --keep-alive 600 --tag team=search --env MODE=fast --output-uri s3://b/out"
    values = chosen("run", "a.py", *f"{vpc} {keys} {rest}".split())
    options = Settings([Layer(values=values, origin=str)]).options()
    assert options["security"] == Security(
        subnets=("subnet-1", "subnet-2"),
        security_groups=("sg-1",),
        volume_kms_key="1234abcd",
        output_kms_key="alias/mine",
        encrypt_traffic=True,
    )
    assert (options["cluster"].volume_gb, options["cluster"].keep_alive_s) == (500, 600)
    assert (options["tags"], options["output_uri"]) == ({"team": "search"}, "s3://b/out")
