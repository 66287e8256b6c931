"""Where rows come from as flags say it."""

from argparse import Namespace

import pytest

from raysm.cli.rows_source import named_source
from raysm.errors import InvalidRequest


def flags(rows=None, sql=None, param=(), columns=()):
    return Namespace(rows=rows, sql=sql, param=list(param), columns=tuple(columns))


def test_nothing_named_is_none():
    assert named_source(flags()) is None


def test_a_file_and_a_query_are_sources(tmp_path):
    assert named_source(flags(rows=tmp_path / "a.csv")).description == {"file": str(tmp_path / "a.csv")}
    query = named_source(flags(sql=["a.db", "SELECT :day AS key"], param=["day=2026-10-01"]))
    assert query.description["params"] == {"day": "2026-10-01"}


def test_a_file_without_a_line_of_names_has_those_of_the_flag(tmp_path):
    (tmp_path / "array.txt").write_text("us-west-2,s3://b/x\n")
    source = named_source(flags(rows=tmp_path / "array.txt", columns=["region", "input_data"]))
    assert source.columns == ("region", "input_data")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"param": ["a=1"]}, "--param goes with a query"),
        ({"columns": ["region"]}, "--columns goes with --rows FILE"),
        ({"sql": ["a.db", "SELECT :a"], "param": ["a"]}, "takes NAME=VALUE"),
        ({"sql": ["a.db", "SELECT :a"], "param": ["a=1", "a=2"]}, "given twice"),
    ],
    ids=["no query", "no file", "no value", "twice"],
)
def test_values_that_cannot_be_are_refused(given, message):
    with pytest.raises(InvalidRequest, match=message):
        named_source(flags(**given))
