"""The package ``rfc3987_syntax`` is imported when an IRI is first checked."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap.variables import import_variables

FOLDER = import_variables({})["PYTHONPATH"]

PACKAGE = """
print("built")
from .syntax_helpers import *
"""

HELPERS = """
def is_valid_syntax(term, value):
    return term == "iri" and value.startswith("http:")

def parse(term, value):
    return [term, value]
"""


@pytest.fixture
def run(tmp_path):
    """Runs code where such a package is installed, or is not; returns what it prints."""
    site = tmp_path / "site"
    (site / "rfc3987_syntax").mkdir(parents=True)
    (site / "rfc3987_syntax" / "__init__.py").write_text(PACKAGE)
    (site / "rfc3987_syntax" / "syntax_helpers.py").write_text(HELPERS)

    def run(code, *options, installed=True):
        path = os.pathsep.join(map(str, [FOLDER, site] if installed else [FOLDER]))
        environ = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, *options, "-c", code]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.split()

    return run


def test_jsonschema_checks_iris_by_it_and_imports_nothing_before(run):
    pytest.importorskip("jsonschema")
    code = """
import sys
import jsonschema
print("imported")
checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
print(checker.conforms("http://a", "iri"), checker.conforms("b", "iri"))
"""
    assert run(code) == ["imported", "built", "True", "False"]
