"""The kernels of the BLAS libraries that contenders use, and how fast they are.

An OpenBLAS that is older than the processor falls back to kernels without AVX: faiss-cpu's took
"Barcelona" on a processor with AVX-512, an eighth of the speed. A ratio to such a peer says
nothing. This module imports nothing of raysm, like ``whole.py``.
"""

import contextlib
import ctypes
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHOICES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that choose OpenBLAS's kernels and how they use the cache."""

HASWELL = frozenset(("avx2", "fma"))
KERNELS = {
    "SkylakeX": HASWELL | {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "Haswell": HASWELL,
}
"""OpenBLAS's fastest float32 kernels for x86-64, and the flags that the processor must have."""

MIN_SHARE = 0.4
"""Least share of this machine's float32 products that a peer's library must reach."""

SIDE, DEPTH, ROUNDS = 2048, 768, 5

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
INTEGERS = {
    "cblas_sgemm": ctypes.c_int,
    "scipy_cblas_sgemm": ctypes.c_int,
    "cblas_sgemm64_": ctypes.c_int64,
    "scipy_cblas_sgemm64_": ctypes.c_int64,
}
"""Names that builds of OpenBLAS and MKL give to the product, and their integers."""


def cpu_flags():
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def coretype(machine, flags):
    """Return OpenBLAS's name for the fastest kernels of a processor; None lets it choose."""
    if machine not in ("x86_64", "AMD64"):
        return None
    return next((name for name, needed in KERNELS.items() if needed <= flags), None)


def with_fastest(environ):
    """Return these variables with OpenBLAS's fastest kernels, whatever the machine has set."""
    chosen = coretype(platform.machine(), cpu_flags())
    kept = {name: value for name, value in environ.items() if name not in CHOICES}
    return kept | ({} if chosen is None else {"OPENBLAS_CORETYPE": chosen})


@dataclass(frozen=True, kw_only=True)
class Library:
    """A BLAS library in a process."""

    name: str
    version: str
    kernel: str
    gflops: float
    """Its float32 products, in GFLOP/s."""

    def __str__(self):
        return f"{self.name} {self.version}, kernels {self.kernel}, {self.gflops:.0f} GFLOP/s"


def loaded_libraries(threads):
    """Return the BLAS libraries that this process has loaded, measured on so many threads."""
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(threads):
        return [
            Library(
                name=found["internal_api"],
                version=str(found["version"]),
                kernel=str(found.get("architecture")),
                gflops=products(found["filepath"]),
            )
            for found in threadpool_info()
            if found["user_api"] == "blas"
        ]


def products(path):
    """Return the float32 products of the library at ``path`` in GFLOP/s; 0 if it has none."""
    library = ctypes.CDLL(path)
    name = next((name for name in INTEGERS if hasattr(library, name)), None)
    if name is None:
        return 0.0
    # The quickest counts: what else runs on the machine can only slow it down.
    return (
        2
        * SIDE
        * SIDE
        * DEPTH
        / min(_product(library[name], INTEGERS[name]) for _ in range(ROUNDS))
        / 1e9
    )


def _product(sgemm, integer):
    rows = np.random.default_rng(0).standard_normal((SIDE, DEPTH), dtype=np.float32)
    out = np.zeros((SIDE, SIDE), np.float32)
    a, c, real = (
        rows.ctypes.data_as(ctypes.c_void_p),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_float,
    )
    n, depth = integer(SIDE), integer(DEPTH)
    begin = time.perf_counter()
    sgemm(
        ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, n, n, depth, real(1), a, depth, a, depth, real(0), c, n
    )
    return time.perf_counter() - begin


def why_unfair(peer, libraries, machine_gflops):
    """Return why a ratio to this peer would say nothing, or "": the slowest library counts."""
    slow = [library for library in libraries if library.gflops < MIN_SHARE * machine_gflops]
    if not slow:
        return ""
    slowest = min(slow, key=lambda library: library.gflops)
    return (
        f"{peer} uses {slowest}, {slowest.gflops / machine_gflops:.0%} of this machine's {machine_gflops:.0f} in "
        f"float32, less than {MIN_SHARE:.0%}: give it a library that knows this processor, or leave it out by --against"
    )
