"""A file is a source by its name alone, the same one when its grid is gone on with."""

import pytest

from raysm.grid.rows.csv_file import CsvFile
from raysm.grid.rows.file_source import FileSource
from raysm.grid.rows.jsonl_file import JsonlFile
from raysm.grid.rows.parquet_file import ParquetFile
from raysm.grid.rows.source import source_again, source_of

NAMES = {"a.csv": CsvFile, "A.TSV.GZ": CsvFile, "a.jsonl": JsonlFile, "a.parquet": ParquetFile, "a.pq": ParquetFile}


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_a_file_has_its_kind_by_its_name_before_it_is_there(tmp_path, name, kind):
    source = source_of(str(tmp_path / name))
    assert type(source) is kind
    assert isinstance(source, FileSource)
    assert source.path == tmp_path / name


@pytest.mark.parametrize("name", NAMES)
def test_a_grid_that_is_gone_on_with_elsewhere_reads_the_same_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    description = source_of(name).description
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert source_again(description).path == tmp_path / name


@pytest.mark.parametrize("rows", [["a.csv"], 3, None, "a.xlsx", "select * from drives"])
def test_what_is_no_such_name_is_no_file(rows):
    assert [kind.of(rows) for kind in (CsvFile, JsonlFile, ParquetFile)] == [None, None, None]
