"""Templates: the values of a row in the texts of a job, and nothing else in braces."""

from dataclasses import dataclass

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.template import check_names, fill, names_in
from raysm.request import Input, Script, Similarity

VALUES = {"lr": 0.125, "campaign": "Stuttgart 3", "region": "eu-central-1", "empty": None}


def test_the_arguments_of_a_script_take_the_values_of_a_row():
    script = Script("train.py", args=("--lr", "{lr}", "--name={campaign}", "--region", "{region}"))
    filled = fill(script, VALUES, "row 1")
    assert filled.args == ("--lr", "0.125", "--name=Stuttgart 3", "--region", "eu-central-1")
    assert script.args[1] == "{lr}"


def test_anything_of_a_job_can_be_lifted_into_the_rows():
    template = {"script": Script("{campaign}.py"), "inputs": {"data": Input("s3://b-{region}/d")}, "list": ["{lr:.2f}"]}
    filled = fill(template, VALUES, "row 1")
    assert filled["script"].script == "Stuttgart 3.py"
    assert filled["inputs"]["data"].uri == "s3://b-eu-central-1/d"
    assert filled["list"] == ["0.12"]


def test_what_takes_no_values_comes_back_as_the_same_object():
    for template in (Script("train.py", args=("--lr", "1")), {"a": ("b",)}, Similarity(top_k=5), 3, None):
        assert fill(template, VALUES, "row 1") is template


def test_a_brace_of_the_text_itself_is_written_twice():
    assert fill('{{"lr": {lr}}}', VALUES, "row 1") == '{"lr": 0.125}'


@dataclass(frozen=True)
class Nested:
    texts: tuple = ("{lr}", {"a": ["{campaign} {lr}"]})


def test_the_names_of_a_template_are_those_of_all_its_texts():
    assert names_in(Nested()) == {"lr", "campaign"}
    assert names_in(["none", 3, None]) == frozenset()


@pytest.mark.parametrize(
    "text", ["{lr.__class__}", "{lr[0]}", "{0}", "{}", "{lr!r}", "{lr:{campaign}}", '{"a": 1}', "{lr", "lr}"]
)
def test_braces_hold_a_name_and_nothing_else(text):
    with pytest.raises(InvalidRequest, match="brace"):
        names_in(text)


def test_a_column_that_there_is_not_is_refused_with_the_one_that_comes_nearest():
    check_names("{lr}", ["lr"], "drives.csv")
    with pytest.raises(
        InvalidRequest, match=r"\{campagn\}: drives.csv has no column 'campagn'; did you mean \{campaign\}"
    ):
        check_names("{campagn}", VALUES, "drives.csv")
    with pytest.raises(InvalidRequest, match=r"there are lr \("):
        check_names("{zzz}", ["lr"], "drives.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{empty}", "row 4: the column 'empty' is empty, but '{empty}' uses it"),
        ("{campaign:.2f}", "row 4, column 'campaign'"),
    ],
)
def test_a_value_that_is_not_there_or_takes_no_such_format_is_refused_with_row_and_column(text, message):
    with pytest.raises(InvalidRequest, match=message):
        fill(text, VALUES, "row 4")
