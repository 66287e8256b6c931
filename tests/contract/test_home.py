"""Where the embedded SageMaker lives, and how its server is found."""

from pathlib import Path

import pytest

from raysm.contract.home import ServerRecord, home


@pytest.mark.parametrize(
    ("variable", "explicit", "found"),
    [
        (None, None, "~/.raysm"),
        ("/elsewhere", None, "/elsewhere"),
        ("/elsewhere", "/here", "/here"),
        ("", None, "~/.raysm"),
    ],
)
def test_the_home_is_what_is_named_else_the_variables_else_the_users(monkeypatch, variable, explicit, found):
    if variable is None:
        monkeypatch.delenv("RAYSM_HOME", raising=False)
    else:
        monkeypatch.setenv("RAYSM_HOME", variable)
    assert home(explicit) == Path(found).expanduser()


def test_a_record_comes_back_and_can_be_removed(tmp_path):
    record = ServerRecord(pid=1, port=2, started_s=3.5, version="4", log_late_s=2.5)
    assert ServerRecord.read(tmp_path) is None
    record.write(tmp_path)
    assert ServerRecord.read(tmp_path) == record
    assert record.url == "http://127.0.0.1:2"
    ServerRecord.remove(tmp_path)
    ServerRecord.remove(tmp_path)
    assert ServerRecord.read(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x", "port": 1, "started_s": 1, "version": "1"}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert ServerRecord.read(tmp_path) is None


def test_the_record_of_a_server_that_knows_no_late_lines_is_found_all_the_same(tmp_path):
    (tmp_path / "server.json").write_text('{"pid": 1, "port": 2, "started_s": 3.5, "version": "4"}')
    assert ServerRecord.read(tmp_path) == ServerRecord(pid=1, port=2, started_s=3.5, version="4", log_late_s=0.0)


def test_a_home_that_is_gone_is_not_made_anew_by_its_server(tmp_path):
    with pytest.raises(FileNotFoundError):
        ServerRecord(pid=1, port=2, started_s=3.5, version="4").write(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()
