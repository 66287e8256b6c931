"""Tests of ``raysm.contract.home``."""

import time
from pathlib import Path

import pytest

from raysm.contract.home import Clock, home


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


def test_a_fast_one_tells_more_seconds_than_pass():
    begun_s = time.time() - 10.0
    told_s = Clock(speed=60.0, begun_s=begun_s).now() - begun_s
    assert 600.0 <= told_s <= 60.0 * (time.time() - begun_s)
    assert Clock(speed=60.0).takes_s(3600.0) == 60.0
