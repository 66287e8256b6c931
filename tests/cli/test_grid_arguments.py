"""The arguments of ``raysm grid``."""

import pytest

from raysm.cli.arguments import parse
from raysm.cli.grid_arguments import ASKING, NAMING


def test_a_script_has_its_arguments_behind_the_dashes_with_columns_in_braces():
    arguments = parse(["grid", "plan", "train.py", "--rows", "r.csv", "--regions", "a-b-1,c-d-2", "--", "--lr", "{lr}"])
    assert (arguments.verb, arguments.what, arguments.regions) == ("plan", "train.py", ["a-b-1", "c-d-2"])
    assert arguments.script_args == ("--lr", "{lr}")


def test_a_query_has_its_database_before_it_and_values_beside_it():
    arguments = parse(["grid", "plan", "t.py", "--sql", "a.db", "SELECT 1", "--param", "a=1", "--param", "b=2"])
    assert arguments.sql == ["a.db", "SELECT 1"]
    assert arguments.param == ["a=1", "b=2"]


@pytest.mark.parametrize(
    "argv",
    [["grid"], ["grid", "plan"], ["grid", "plan", "t.py", "--rows", "r.csv", "--sql", "a", "b"], ["grid", "fly"]],
)
def test_what_contradicts_itself_is_refused(argv, capsys):
    with pytest.raises(SystemExit):
        parse(argv)
    assert "raysm grid" in capsys.readouterr().err


def test_a_misspelt_option_is_answered_with_the_nearest_one(capsys):
    with pytest.raises(SystemExit):
        parse(["grid", "plan", "t.py", "--region", "us-east-1", "--parallell", "3"])
    assert "did you mean --parallel?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [*ASKING, *NAMING])
def test_each_verb_takes_one_thing_and_answers_as_json_where_that_is_wanted(verb):
    # Of the row that is sent alone, which one.
    more = {"row": ["drives", "--index", "0"], "result": ["drives", "key"], "list": []}
    arguments = parse(["grid", verb, *more.get(verb, ["drives"])])
    assert (arguments.command, arguments.verb) == ("grid", verb)
    assert verb == "list" or "drives" in vars(arguments).values()
