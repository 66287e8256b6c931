"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer of GCC: they report nothing.

A process in which both are preloaded compiles the kernels with their checks, and compares them
with the definition of the similarity.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
COMPILER = """#!/bin/sh
# -O1: the checks take more time to compile than to run.
exec {gcc} "$@" -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
"""
LIBRARIES = ("libasan.so", "libubsan.so")
TIMEOUT_S = 500

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """A function that runs a command whose kernels are checked: its exit code and its output."""
    folder = tmp_path_factory.mktemp("sanitized")
    names = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in LIBRARIES
    ]
    if not all(map(os.path.isabs, names)):
        pytest.skip("gcc has no sanitizers here")
    compiler = folder / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER.format(gcc=shutil.which("gcc")))
    compiler.chmod(0o755)
    variables = {
        "PATH": f"{compiler.parent}:{os.environ['PATH']}",
        "RAYSM_KERNELS": str(folder / "kernels"),
        "LD_PRELOAD": ":".join(names),
        # Python frees little of its memory at its end.
        "ASAN_OPTIONS": "detect_leaks=0",
        "OPENBLAS_NUM_THREADS": "1",
    }

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
        )
        return done.returncode, done.stdout

    return run


TOO_SMALL = """
import numpy as np
from raysm.features.similarity.cluster.arithmetic.score import Tile
from raysm.features.similarity.cluster.engines.compiled import CompiledEngine
from raysm.features.similarity.cluster.kernels.build import FLOATS, this_machine

(_, instructions) = next(one for one in reversed(FLOATS) if one[1].runs_on(this_machine()))
tile = Tile(start=0, rows=np.ones((64, 64), np.float32), norms=np.full(64, 8.0))
engine = CompiledEngine(32, instructions, 64, mixed=False)
out = np.empty(64 * 63, np.float32)
engine.scores(tile, tile, np.lib.stride_tricks.as_strided(out, (64, 64), (256, 4)))
"""


def test_a_write_behind_an_array_is_reported(sanitized):
    code, output = sanitized("-c", TOO_SMALL)
    assert code != 0
    assert "AddressSanitizer: heap-buffer-overflow" in output


def test_random_matrices_of_all_kinds_are_compared_without_a_report(sanitized):
    code, output = sanitized("-m", "tests.fuzz", "--problems", "6", "--seed", "0", "--workers", "0")
    assert (code, "Sanitizer" in output, "runtime error" in output) == (0, False, False), output[
        -4000:
    ]
    assert "sparse any" in output
