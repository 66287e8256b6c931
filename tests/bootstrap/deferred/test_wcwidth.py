"""The package ``wcwidth``, executed when it is first used."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap.deferred import FOLDER

pytest.importorskip("wcwidth")

CODE = """
import sys
import ray
import wcwidth
print(type(wcwidth).__name__)
wcwidth.wcswidth("ab")
print(type(wcwidth).__name__, wcwidth.__file__)
"""


def test_ray_imports_it_and_does_not_use_it_before_somebody_else_does():
    environ = {**os.environ, "PYTHONPATH": str(FOLDER)}
    said = subprocess.run(
        [sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=True, timeout=180
    ).stdout.split()
    assert said[:2] == ["_Later", "module"]
    assert not said[2].startswith(str(FOLDER))


def test_one_that_is_imported_already_stays():
    import wcwidth

    from raysm.bootstrap.deferred import wcwidth as stub

    assert sys.modules["wcwidth"] is wcwidth
    assert wcwidth.__file__ != stub.__file__
