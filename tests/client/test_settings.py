"""Options of several places, one laid over the other."""

import pytest

from raysm.client.settings import Layer, Settings, check_values, schema
from raysm.errors import InvalidRequest
from raysm.request import AWS, Cluster, InstanceGroup, Local, Script, Similarity

ROLE = "arn:aws:iam::123456789012:role/jobs"


def layer(name, **tables):
    def origin(key):
        return name

    return Layer(values=check_values(tables, schema(workload=True), origin), origin=origin)


def settings(*tables):
    return Settings([layer(f"layer {number}", **item) for number, item in enumerate(tables)])


def test_of_two_places_the_later_one_wins_key_by_key():
    chosen = settings(
        {"cluster": {"count": 2, "volume_gb": 100}, "tags": {"team": "a", "cost": "x"}},
        {"cluster": {"count": 3}, "tags": {"team": "b"}},
    )
    assert chosen.options()["cluster"] == Cluster(count=3, volume_gb=100)
    assert chosen.options()["tags"] == {"team": "b", "cost": "x"}
    assert chosen.origin(("cluster", "count")) == "layer 1"
    assert chosen.origin(("tags", "cost")) == "layer 0"
    assert chosen.origin(("limits", "spot")) == "default"


GROUPS = [{"name": "a", "instance_type": "ml.m5.large", "count": 1}]


def test_groups_put_away_a_type_and_a_count_of_a_weaker_place_and_the_reverse():
    uniform, grouped = {"cluster": {"instance_type": "ml.c5.xlarge", "count": 2}}, {"cluster": {"groups": GROUPS}}
    groups = Cluster(groups=(InstanceGroup("a", "ml.m5.large", 1),))
    assert settings(uniform, grouped).options()["cluster"] == groups
    assert settings(grouped, uniform).options()["cluster"] == Cluster("ml.c5.xlarge", count=2)


def test_the_count_of_this_machine_is_that_of_a_cluster_that_says_only_something_else():
    local = {"local": {"instances": 3}, "cluster": {"coordinator_only": True}}
    assert settings(local).options()["cluster"] == Cluster(count=3, coordinator_only=True)
    assert settings(local, {"cluster": {"count": 2}}).options()["cluster"].count == 2


def test_aws_without_a_role_says_how_to_name_one_and_reading_needs_none():
    with pytest.raises(InvalidRequest, match=r"--on aws needs --role, .*; or write role under \[aws\] in raysm.toml"):
        settings({"on": "aws"}).target()
    assert settings({"on": "aws"}).target(role=ROLE) == AWS(role=ROLE)
    assert settings({}).target(role=ROLE) == Local()


def test_a_workload_is_read_by_its_kind_and_another_kind_is_another_workload():
    script = {"workload": {"kind": "script", "script": "a.py", "args": ["x"]}}
    assert settings(script).workload() == Script("a.py", args=("x",))
    assert settings(script, {"workload": {"args": ["y"]}}).workload() == Script("a.py", args=("y",))
    assert settings(script, {"workload": {"kind": "similarity", "top_k": 3}}).workload() == Similarity(top_k=3)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"kind": "scrpt"}, r"layer 0: workload\.kind: expected one of 'script', .*got 'scrpt'"),
        ({}, r"default: workload\.kind: expected one of"),
        ({"kind": "script", "scirpt": "a.py"}, r"a script has no option workload\.scirpt; did you mean workload\.scri"),
        ({"kind": "script"}, r"the script has no script; give it in the request's \[workload\]"),
        ({"kind": "similarity", "top_k": "x"}, "top_k must be a number, got 'x'"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(workload, message):
    with pytest.raises(InvalidRequest, match=message):
        settings({"workload": workload}).workload()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"clutser": {"count": 1}}, "x: there is no option clutser; did you mean cluster?"),
        ({"cluster": {"cuont": 1}}, "x: there is no option cluster.cuont; did you mean cluster.count?"),
        ({"zzz": 1}, "x: there is no option zzz; there are on, local, aws, name"),
        ({"cluster": 3}, "x: cluster is a table of options, got 3"),
        ({"cluster": {"count": "2"}}, "x: cluster.count: expected an integer, got '2'"),
        ({"cluster": {"count": True}}, "x: cluster.count: expected an integer, got True"),
        ({"environment": {"A": 1}}, "x: environment.A: expected text, got 1"),
        ({"on": "awss"}, "x: on: expected one of 'local', 'aws', got 'awss'"),
        ({"metrics": [{"name": "a"}]}, "x: metrics[0]: the key 'regex' is missing"),
        ({"inputs": {"train": {"url": "s3://b/x"}}}, "no option inputs.train.url; did you mean inputs.train.uri?"),
        ({"wheels": "a.whl"}, "x: wheels: expected a list, got 'a.whl'"),
    ],
)
def test_what_is_unknown_or_of_another_type_is_refused_with_place_and_key(tables, message):
    with pytest.raises(InvalidRequest) as caught:
        check_values(tables, schema(workload=True), lambda key: "x")
    assert message in str(caught.value)


def test_values_that_contradict_each_other_name_the_places_that_they_come_from():
    with pytest.raises(InvalidRequest, match=r"max_wait_s belongs to spot=True \(from layer 0, layer 1\)"):
        settings({"limits": {"max_wait_s": 5}}, {"limits": {"max_runtime_s": 3}}).options()


def test_a_channel_may_be_written_as_its_uri_and_a_hyperparameter_as_a_number():
    chosen = settings({"inputs": {"train": "s3://b/x"}, "hyperparameters": {"lr": 0.1, "layers": 3}}).options()
    assert chosen["inputs"]["train"].uri == "s3://b/x"
    assert chosen["hyperparameters"] == {"lr": "0.1", "layers": "3"}
