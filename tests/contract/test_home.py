"""Tests of ``raysm.contract.home``."""

import time
from pathlib import Path

import pytest

from raysm.contract.home import Clock, ServerRecord, home


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
    record = ServerRecord(pid=1, port=2, started_s=3.5, version="4")
    assert ServerRecord.read(tmp_path) is None
    record.write(tmp_path)
    assert ServerRecord.read(tmp_path) == record
    assert record.url == "http://127.0.0.1:2"
    ServerRecord.remove(tmp_path)
    ServerRecord.remove(tmp_path)
    assert ServerRecord.read(tmp_path) is None


def test_a_fast_one_tells_more_seconds_than_pass():
    begun_s = time.time() - 10.0
    told_s = Clock(speed=60.0, begun_s=begun_s).now() - begun_s
    assert 600.0 <= told_s <= 60.0 * (time.time() - begun_s)
    assert Clock(speed=60.0).takes_s(3600.0) == 60.0
