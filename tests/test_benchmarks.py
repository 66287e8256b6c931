"""The similarity's benchmark: peers whose BLAS library uses the processor, and where the time goes."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.blas import KERNELS, Library, coretype, cpu_flags, why_unfair, with_fastest
from tests.benchmarks.processor_limit import kind_of
from tests.benchmarks.where_time_goes import FOLDER

ROOT = Path(__file__).parents[1]
AVX512, AVX2 = KERNELS["SkylakeX"], KERNELS["Haswell"]


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", AVX512 | {"avx512_bf16", "sse2"}, "SkylakeX"),
        ("x86_64", AVX2, "Haswell"),
        # Without one of the flags, its instructions would end the process.
        ("x86_64", AVX512 - {"avx512dq"}, "Haswell"),
        ("x86_64", {"sse2"}, None),
        ("aarch64", {"asimd"}, None),
    ],
)
def test_the_kernels_are_the_fastest_that_the_processor_has_the_instructions_for(
    machine, flags, expected
):
    assert coretype(machine, flags) == expected


def test_what_the_machine_sets_for_openblas_is_replaced():
    chosen = with_fastest(
        {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_L2_SIZE": "1", "PATH": "/bin"}
    )
    expected = coretype(platform.machine(), cpu_flags())
    assert chosen == {"PATH": "/bin"} | ({"OPENBLAS_CORETYPE": expected} if expected else {})


def library(gflops):
    return Library(name="openblas", version="0.3.15", kernel="Barcelona", gflops=gflops)


def test_a_peer_whose_library_does_not_know_the_processor_is_not_compared_with():
    assert why_unfair("faiss", [library(364), library(340)], 400) == ""
    unfair = why_unfair("faiss", [library(364), library(43)], 400)
    assert (
        "faiss uses openblas 0.3.15, kernels Barcelona, 43 GFLOP/s, 11% of this machine's 400"
        in unfair
    )


LOADED = """
import json
import numpy
from tests.benchmarks.blas import loaded_libraries
print(json.dumps([[one.name, one.kernel, one.gflops] for one in loaded_libraries(1)]))
"""


def test_the_kernels_of_numpys_library_are_named_and_measured():
    pytest.importorskip("threadpoolctl")
    variables = with_fastest(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    libraries = json.loads(done.stdout)
    if not libraries:
        pytest.skip("NumPy's library is not one that threadpoolctl knows")
    assert all(gflops > 0 for _, _, gflops in libraries)
    chosen = variables.get("OPENBLAS_CORETYPE")
    assert chosen is None or {kernel for name, kernel, _ in libraries if name == "openblas"} <= {
        chosen
    }


COUNTED = """
import json
import numpy
from tests.benchmarks import where_time_goes
watch = where_time_goes.watch()
from raysm.features.similarity.cluster.engines.choice import choose
from tests.support.dense_rows import best_of, centred, tiles
rows = numpy.random.default_rng(0).standard_normal((8000, 64), dtype=numpy.float32)
frame = centred(rows)
engine = choose(tiles(rows)[0], frame, None)
best_of(engine, frame, rows, 10, [0, 4000, 8000])
print(json.dumps([engine.name, sum(watch.seconds.values()), watch.read()]))
"""


def test_the_parts_of_a_profile_are_disjoint_and_sum_to_the_time_of_the_calls(tmp_path):
    variables = os.environ | {FOLDER: str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    name, whole_s, parts = json.loads(done.stdout)
    if kind_of(name) is None:
        pytest.skip(f"the engine {name} has no counters")
    assert parts.pop("products made") >= 8000 * 7999 / 2 * 64
    assert all(parts[part] > 0 for part in ("packing", "products", "filter", "scores"))
    # What the counters leave of the calls, 3 % on a quiet machine; another program may run meanwhile.
    assert abs(parts["calls of the kernels"]) < 0.5 * whole_s
    assert min(parts.values()) > -0.01 * whole_s
    assert sum(parts.values()) == pytest.approx(whole_s, rel=0.01)
