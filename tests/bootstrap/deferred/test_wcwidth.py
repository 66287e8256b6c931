"""The package ``wcwidth``, brought when the width of a text is first asked for."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap.deferred import FOLDER

PROGRAM = """
import sys
from ray._private.thirdparty.tabulate import tabulate
print("wcwidth.wcwidth" in sys.modules)
print(tabulate.tabulate([["\u4e2d\u6587"], ["a"]], headers=["b"]))
print("wcwidth.wcwidth" in sys.modules)
"""


def test_rays_tables_are_as_wide_as_ever():
    pytest.importorskip("wcwidth")
    printed = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, check=True
        ).stdout.splitlines()
        for environ in ({**os.environ, "PYTHONPATH": str(FOLDER)}, os.environ)
    ]
    assert printed[0][1:] == printed[1][1:]
    assert (printed[0][0], printed[1][0], printed[0][-1]) == (b"False", b"True", b"True")


def test_as_a_part_of_raysm_it_is_found_too():
    pytest.importorskip("wcwidth")
    from raysm.bootstrap.deferred import wcwidth

    assert wcwidth.wcswidth("\u4e2d") == 2
