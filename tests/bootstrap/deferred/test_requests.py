"""The package ``requests``, executed when it is first used."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap.deferred import FOLDER

pytest.importorskip("requests")

CODE = """
import sys
import ray
import requests
print(type(requests).__name__)
requests.Session
print(type(requests).__name__, requests.__file__)
"""


def test_ray_imports_it_and_does_not_use_it_before_somebody_else_does():
    environ = {**os.environ, "PYTHONPATH": str(FOLDER)}
    said = subprocess.run(
        [sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=True, timeout=180
    ).stdout.split()
    assert said[:2] == ["_Later", "module"]
    assert not said[2].startswith(str(FOLDER))


def test_one_that_is_imported_already_stays():
    import requests

    from raysm.bootstrap.deferred import requests as stub

    assert sys.modules["requests"] is requests
    assert requests.__file__ != stub.__file__
