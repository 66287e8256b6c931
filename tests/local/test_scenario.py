"""Scenarios as files: what they may say, and what is said of those that say something else."""

from pathlib import Path

import pytest

from raysm.errors import InvalidRequest
from raysm.local import scenario
from raysm.local.scenario import Container, Scenario


def test_a_file_switches_what_it_names_and_leaves_the_rest_as_on_aws():
    read = scenario.parse("seed = 7\n[container]\nuser = 1000\n")
    assert read == Scenario(seed=7, container=Container(user=1000))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[container]\nhost = 'x'", "s.toml.container: unknown key 'host'; known are root_mb"),
        ("[contaner]\n", "s.toml: unknown key 'contaner'; known are container, network"),
        ("[ssm]\npermitted = 1", "s.toml.ssm.permitted: expected true or false, got 1"),
        ("[container", "s.toml: Expected ']'"),
    ],
)
def test_what_a_file_says_wrongly_is_named_with_its_place(text, words):
    with pytest.raises(InvalidRequest) as refused:
        scenario.parse(text, "s.toml")
    assert words in str(refused.value)


def test_what_is_switched_is_told_by_table_and_name():
    assert list(Scenario(seed=1).switched()) == []
    assert list(Scenario(container=Container(user=7)).switched()) == [("container.user", 7)]


def test_the_example_switches_something_in_every_table():
    example = scenario.read(Path(__file__).parents[2] / "examples" / "hostile.toml")
    tables = {switch.split(".")[0] for switch, _ in example.switched()}
    assert {"network", "checkpoints", "api", "capacity"} <= tables


def test_a_share_is_no_percentage():
    with pytest.raises(InvalidRequest, match=r"api\.throttled is a share from 0 to 1, got 5\.0"):
        scenario.parse("[api]\nthrottled = 5.0\n")


BY_REGION = """
speed = 60
[capacity]
start_delay_s = 240
insufficient = 0.1
[regions.eu-west-1.capacity]
start_delay_s = 30
instances = {"ml.p4d.24xlarge" = 8}
[regions.us-west-2.api]
rates = {ListTrainingJobs = 0.5}
"""


def test_a_region_has_what_it_says_and_else_what_all_have():
    read = scenario.parse(BY_REGION)
    far = read.of("eu-west-1").capacity
    assert (far.start_delay_s, far.insufficient, far.instances) == (30.0, 0.1, {"ml.p4d.24xlarge": 8})
    assert read.of("us-west-2").capacity == read.capacity == read.of("us-east-1").capacity
    assert read.of("us-west-2").api.rates == {"ListTrainingJobs": 0.5}
    assert (read.speed, read.of("us-east-1")) == (60.0, read)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[regions.eu-west-1.ssm]\npermitted = false", "a region has the tables api, capacity, market, simulated"),
        ("[regions.eu-west-1.capacity]\nstart = 1", "regions.eu-west-1.capacity: unknown key 'start'"),
        ("[api]\nrates = {ListTrainingJobs = 0}", "api.rates.ListTrainingJobs is above 0"),
        ("[capacity]\ninterruptions_per_hour = -1", "interruptions_per_hour is 0 or more, got -1"),
        ("[capacity]\ninterrupted_at = ['step 1', '']", "interrupted_at has an empty text"),
        ("[market]\nquotas = {'ml.m5.large' = -1}", "market.quotas.ml.m5.large is 0 or more, got -1"),
    ],
)
def test_what_a_region_or_a_number_cannot_be_is_refused(text, words):
    with pytest.raises(InvalidRequest) as refused:
        scenario.parse(text, "s.toml")
    assert words in str(refused.value)
