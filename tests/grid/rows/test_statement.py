"""Statements: parameters by name for every style of driver, and nothing that is formatted into the text."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.statement import Statement

SINCE = "SELECT a FROM t WHERE day >= :since AND (b = :b OR c >= :since)"
VALUES = {"since": "2026-10-01", "b": 3}


@pytest.mark.parametrize(
    ("style", "text", "params"),
    [
        ("named", SINCE, VALUES),
        ("qmark", "SELECT a FROM t WHERE day >= ? AND (b = ? OR c >= ?)", ("2026-10-01", 3, "2026-10-01")),
        ("numeric", "SELECT a FROM t WHERE day >= :1 AND (b = :2 OR c >= :3)", ("2026-10-01", 3, "2026-10-01")),
        ("format", "SELECT a FROM t WHERE day >= %s AND (b = %s OR c >= %s)", ("2026-10-01", 3, "2026-10-01")),
        ("pyformat", "SELECT a FROM t WHERE day >= %(since)s AND (b = %(b)s OR c >= %(since)s)", VALUES),
    ],
)
def test_a_driver_gets_its_own_marks_and_the_values_beside_the_text(style, text, params):
    assert Statement(text=SINCE).bound(style, VALUES) == (text, params)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ':no' FROM t",
        'SELECT ":no" FROM t',
        "SELECT `:no` FROM t",
        "SELECT a -- :no\nFROM t",
        "SELECT a /* :no ; */ FROM t",
        "SELECT a::text FROM t",
        "SELECT $$ :no ; $$, $x$ it's :no $x$ FROM t",
        "SELECT 'it''s :no' FROM t",
    ],
)
def test_what_stands_in_texts_names_and_comments_is_no_parameter(text):
    statement = Statement(text=text)
    assert statement.names == ()
    assert statement.bound("qmark", {}) == (text, ())


def test_percent_signs_are_doubled_only_for_a_driver_that_formats():
    statement = Statement(text="SELECT a FROM t WHERE b LIKE 'x%' AND c = :c")
    assert statement.bound("format", {"c": 1})[0] == "SELECT a FROM t WHERE b LIKE 'x%%' AND c = %s"
    assert statement.bound("qmark", {"c": 1})[0] == "SELECT a FROM t WHERE b LIKE 'x%' AND c = ?"
    # psycopg formats only where parameters are given: https://www.psycopg.org/psycopg3/docs/basic/params.html
    assert Statement(text="SELECT 'x%'").bound("format", {})[0] == "SELECT 'x%'"


def test_sqlalchemy_which_looks_into_texts_is_told_of_colons_that_are_none_of_its_own():
    assert Statement(text="SELECT ':no', a::int, :yes;").for_sqlalchemy() == r"SELECT '\:no', a\:\:int, :yes"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("SELECT a FROM t WHERE day >= '{since}'", r"\{since\}"),
        ("SELECT a FROM t WHERE day >= {}", r"\{\}"),
        ("SELECT {x!r} FROM t", "write :x"),
        ("SELECT {x:>10} FROM t", "write :x"),
    ],
)
def test_a_value_in_braces_is_refused_with_the_way_to_give_one(text, mark):
    with pytest.raises(InvalidRequest, match=rf"never put into SQL.*{mark}|{mark}.*never put into SQL"):
        Statement(text=text)


def test_braces_that_sql_itself_has_are_left_alone():
    for text in ("SELECT '{1,2}'::int[]", """SELECT '{"a": 1}'"""):
        assert Statement(text=text).text == text


@pytest.mark.parametrize(
    "text",
    ["DELETE FROM t", "INSERT INTO t VALUES (1)", "DROP TABLE t", "-- SELECT\nUPDATE t SET a = 1", "", "PRAGMA x"],
)
def test_what_does_not_read_is_refused(text):
    with pytest.raises(InvalidRequest, match=r"the query begins with \w+; it must only read"):
        Statement(text=text)


def test_one_statement_may_end_with_a_semicolon_and_a_second_one_is_refused():
    assert Statement(text="SELECT 1 ; -- the end\n").bound("qmark", {}) == ("SELECT 1  -- the end\n", ())
    assert Statement(text="(SELECT 1) UNION SELECT 2;").names == ()
    with pytest.raises(InvalidRequest, match="several statements"):
        Statement(text="SELECT 1; DROP TABLE t")


def test_values_are_those_that_the_statement_takes():
    statement = Statement(text=SINCE)
    statement.check(VALUES)
    with pytest.raises(InvalidRequest, match=r"takes :b, and no value is given.*--param b=…"):
        statement.check({"since": 1})
    with pytest.raises(InvalidRequest, match=r"takes no :c; it takes :since, :b"):
        statement.check(VALUES | {"c": 1})


def test_a_style_that_there_is_not_is_refused_and_a_statement_of_raysms_own_may_write():
    with pytest.raises(InvalidRequest, match="paramstyle is 'own'"):
        Statement(text="SELECT 1").bound("own", {})
    assert Statement.written("UPDATE t SET a = :a").bound("qmark", {"a": 1}) == ("UPDATE t SET a = ?", (1,))
