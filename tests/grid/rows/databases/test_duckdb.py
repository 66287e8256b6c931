"""SQL over files, by DuckDB."""

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.rows.databases.duckdb import DuckDb
from raysm.grid.rows.statement import Statement

pytest.importorskip("duckdb", reason="the extra duckdb")


def write_and_fail(execute):
    execute("DELETE FROM t", {})
    execute("DELETE FROM none", {})


def test_a_statement_reads_files_with_bound_values(tmp_path):
    (tmp_path / "drives.csv").write_text("campaign,lr\na,0.1\nb,0.2\n")
    statement = Statement(text=f"SELECT campaign AS key, lr FROM '{tmp_path}/*.csv' WHERE lr > :least OR lr = :least")
    assert DuckDb.of("duckdb://").select(statement, {"least": 0.2}, 9) == (("key", "lr"), [("b", 0.2)])


def test_a_database_of_its_own_keeps_what_is_written_and_undoes_what_fails(tmp_path):
    database = DuckDb.of(f"duckdb:///{tmp_path}/a.duckdb")
    with database.transaction() as execute:
        execute("CREATE TABLE t (a INTEGER)", {})
        assert execute("INSERT INTO t VALUES (:a)", {"a": 1}) == 1
        assert execute("UPDATE t SET a = 2 WHERE a = :a", {"a": 7}) == 0
    with pytest.raises(ServiceError, match="none"), database.transaction() as execute:
        write_and_fail(execute)
    assert database.select(Statement(text="SELECT a FROM t"), {}, 9)[1] == [(1,)]


def test_a_statement_that_it_refuses_says_why():
    with pytest.raises(InvalidRequest, match="duckdb:// refuses the query: .*none"):
        DuckDb.of("duckdb://").select(Statement(text="SELECT * FROM none"), {}, 9)


@pytest.mark.parametrize("on", ["a.db", "sqlite:///a.db", None])
def test_what_is_no_such_address_is_left_to_others(on):
    assert DuckDb.of(on) is None
