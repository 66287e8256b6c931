"""A value of a configuration file is what it should be, or one line says what is wrong with it, and where."""

import pytest

from raysm.bootstrap.hosts import ConfigValue, shown
from raysm.errors import InvalidConfig

CONFIG = ConfigValue({"groups": [{"name": "head"}, {"name": 3}], "a\nb": 1, "": "x", "empty": ""}, "job.json")


def refused(ask):
    with pytest.raises(InvalidConfig) as caught:
        ask()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_value_of_the_right_type_is_returned_as_it_is():
    first, _ = CONFIG.member("groups").items("a list")
    assert first.member("name").text() == "head"
    assert CONFIG.expect(dict, "an object") is CONFIG.value


def test_the_way_to_a_wrong_value_names_every_step():
    _, second = CONFIG.member("groups").items("a list")
    assert refused(second.member("name").text) == (
        "job.json: groups[1].name: expected a text of printable characters, got 3"
    )


def test_a_member_that_is_not_there_is_none_and_says_its_own_name():
    absent = CONFIG.member("absent")
    assert absent.value is None
    assert refused(absent.text).startswith("job.json: absent: expected a text")


def test_a_whole_file_of_another_form_is_named_alone():
    assert refused(ConfigValue([1], "job.json").members) == "job.json: expected a JSON object, got [1]"
    assert refused(lambda: ConfigValue({}, "job.json").items("a list")) == "job.json: expected a list, got {}"


def test_a_key_that_would_break_the_line_is_shown_escaped():
    wrong = CONFIG.members()["a\nb"]
    assert refused(wrong.text) == "job.json: 'a\\nb': expected a text of printable characters, got 1"


def test_an_empty_text_is_none_that_a_log_could_show():
    assert refused(CONFIG.member("empty").text).endswith("got ''")


def test_a_long_value_is_cut_in_messages():
    assert shown("x" * 200) == "'" + "x" * 78 + "…"
    assert len(shown(list(range(1000)))) == 80
