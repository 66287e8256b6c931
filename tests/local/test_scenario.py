"""Scenarios as files: what they may say, and what is said of those that say something else."""

from pathlib import Path

import pytest

from raysm.errors import InvalidRequest
from raysm.local import scenario
from raysm.local.scenario import Container, Scenario


def test_a_file_switches_what_it_names_and_leaves_the_rest_as_on_aws():
    read = scenario.parse('seed = 7\n[container]\nhostname = "ip-10-0-0-1"\n')
    assert read == Scenario(seed=7, container=Container(hostname="ip-10-0-0-1"))
    assert read.container.init


def test_an_empty_file_and_none_at_all_are_the_default(tmp_path):
    (tmp_path / "empty.toml").touch()
    assert scenario.read(tmp_path / "empty.toml") == scenario.read(tmp_path / "none.toml") == Scenario()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[container]\nhost = 'x'", "s.toml.container: unknown key 'host'; known are hostname"),
        ("[contaner]\n", "s.toml: unknown key 'contaner'; known are container, network"),
        ("[container]\ninit = 1", "s.toml.container.init: expected true or false, got 1"),
        ("[outputs]\nlast_writer = 'tail'", "s.toml.outputs.last_writer: expected one of 'head', 'random', got 'tail'"),
        ("[container", "s.toml: Expected ']'"),
    ],
)
def test_what_a_file_says_wrongly_is_named_with_its_place(text, words):
    with pytest.raises(InvalidRequest) as refused:
        scenario.parse(text, "s.toml")
    assert words in str(refused.value)


def test_a_file_that_is_no_text_is_refused_by_its_name(tmp_path):
    (tmp_path / "s.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match=r"s\.toml cannot be read"):
        scenario.read(tmp_path / "s.toml")


def test_what_is_switched_is_told_by_table_and_name():
    assert list(Scenario(seed=1).switched()) == []
    assert list(Scenario(container=Container(init=False, hostname="x")).switched()) == [
        ("container.hostname", "x"),
        ("container.init", False),
    ]


def test_the_example_switches_something_in_every_table():
    example = scenario.read(Path(__file__).parents[2] / "examples" / "hostile.toml")
    tables = {switch.split(".")[0] for switch, _ in example.switched()}
    assert {"network", "checkpoints", "logs", "api", "capacity"} <= tables


def test_a_share_is_no_percentage():
    with pytest.raises(InvalidRequest, match=r"api\.throttled is a share from 0 to 1, got 5\.0"):
        scenario.parse("[api]\nthrottled = 5.0\n")


def test_chance_is_the_same_for_the_same_seed():
    first, second = Scenario(seed=3).chance(), Scenario(seed=3).chance()
    assert [first.random() for _ in range(5)] == [second.random() for _ in range(5)]
