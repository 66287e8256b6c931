"""The kernels of another machine, compiled by its cross compiler and run by qemu: what they answer to one problem."""

import functools
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raysm.features.similarity.cluster.engines import bounds
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from raysm.features.similarity.cluster.kernels import build
from raysm.features.similarity.cluster.kernels.build import ARM, DENSE, dense

DRIVER = Path(__file__).with_name("arm_driver.c")
SECONDS = 120


def why_not():
    """Return why nothing can be emulated here, or None if it can."""
    if build.compiler_for(ARM) is None:
        return "no compiler for aarch64: install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"
    if emulator() is None:
        return "no emulator of aarch64: install qemu-user-static"
    return None


def emulator():
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


@dataclass(frozen=True)
class Answers:
    """What the kernels found."""

    scored: int
    """Pairs that were scored for the best of each row."""
    left: Any
    """keys[n, k] of the left rows."""
    right: Any
    """keys[m, k] of the right ones; untouched where the sides are one."""
    scored_pairs: int
    """Those that were scored for the threshold."""
    i: Any
    j: Any
    similarities: Any
    """Pairs above the threshold, in the order in which they were found."""
    all_scores: Any
    """scores[n, m] in blocks."""
    pair_scores: Any
    """scores[n, m], each by itself."""


@functools.cache
def program(bits, instructions, folder):
    """Compile the driver with the kernels of one kind; return the program."""
    path = Path(folder) / f"driver-{bits}"
    options = [
        option for option in dense(bits, instructions).options if option not in ("-shared", "-fPIC")
    ]
    command = [
        build.compiler_for(ARM),
        *options,
        "-static",
        f"-I{DENSE.parent}",
        str(DRIVER),
        "-o",
        str(path),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    return path


def run(program, folder, left, right, *, bits, k, threshold, same, frame=None, mixed=False):
    """Return what ``program`` answers for two tiles."""
    columns, diagonal = left.rows.shape[1], left is right
    frame = frame or Frame.plain(columns)
    clusters = frame.clusters
    centres = np.concatenate(
        [frame.centre[None], np.empty((0, columns)) if clusters is None else clusters.centres]
    )
    radii = np.empty(0) if clusters is None else clusters.radii
    numbers = struct.pack(
        "11q4d",
        *(
            left.rows.itemsize,
            columns,
            len(left),
            len(right),
            left.start,
            right.start,
            k,
            same,
            diagonal,
            mixed,
        ),
        len(radii),
        max(bounds.slop(columns, one) for one in centres),
        float(bounds.largest_integer(columns + 3, bits)) if bits < 32 else 0.0,
        bounds.growth(columns) if bits == 32 else 0.0,
        float(threshold),
    )
    parts = [left.rows, right.rows, left.norms.astype(np.float64), right.norms.astype(np.float64)]
    parts += [centres, np.array([one @ one for one in centres]), radii]
    parts += [bounds.signs(columns)] if mixed else []
    parts += (
        [] if clusters is None else [clusters.nearest(tile, frame.centre) for tile in (left, right)]
    )
    for tile in (left, right):
        best = Best.empty(tile.norms, k)
        parts += [best.keys, best.lower_bounds]
    problem, answer = Path(folder) / "problem", Path(folder) / "answer"
    problem.write_bytes(numbers + b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
    # Graviton2's, which has the least of those that SageMaker has: what it lacks ends the program.
    command = [emulator(), "-cpu", "neoverse-n1", str(program), str(problem), str(answer)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    return _read(answer.read_bytes(), len(left), len(right), k)


def _read(content, n, m, k):
    at = 0

    def take(count, dtype):
        nonlocal at
        part = np.frombuffer(content, dtype, count, at)
        at += part.nbytes
        return part

    (scored,) = take(1, np.int64)
    left, right = take(n * k, np.uint64).reshape(n, k), take(m * k, np.uint64).reshape(m, k)
    scored_pairs, count = take(2, np.int64)
    i, j, similarities = take(count, np.uint32), take(count, np.uint32), take(count, np.float32)
    scores = [take(n * m, np.float32).reshape(n, m) for _ in range(2)]
    assert at == len(content)
    return Answers(int(scored), left, right, int(scored_pairs), i, j, similarities, *scores)
