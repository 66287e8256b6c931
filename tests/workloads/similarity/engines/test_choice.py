import sys

import numpy as np
import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.arithmetic.score import Tile
from raysm.workloads.similarity.engines.choice import choose, is_cuda, why_no_cuda
from raysm.workloads.similarity.engines.compiled import CompiledEngine
from raysm.workloads.similarity.engines.protocol import Frame, unit_sum
from raysm.workloads.similarity.kernels.build import Unavailable
from raysm.workloads.similarity.kernels.recipes import AVX2, INTEGERS, InstructionSet


def sample(rows):
    rows = rows.astype(np.float32)
    return Tile(start=0, rows=rows, norms=np.linalg.norm(rows.astype(np.float64), axis=1))


def chosen(rows, forced=None, candidates=INTEGERS):
    tile = sample(rows)
    return choose(tile, Frame(centre=unit_sum(tile) / len(rows)), forced, candidates)


def normal(rows=300, columns=64):
    return np.random.default_rng(0).standard_normal((rows, columns))


def next_best():
    """Skip where nothing compiled is to be had at all."""
    try:
        return CompiledEngine(16, AVX2, 64, mixed=False).name
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_engine_that_is_asked_for_is_taken():
    assert chosen(normal(), "NumPy").name == "float64 NumPy"
    assert chosen(normal(), "float32").name.startswith("float32")


def test_an_engine_that_is_not_there_is_refused_by_name():
    with pytest.raises(InvalidRequest, match="'abacus'; it has 'float64 NumPy"):
        chosen(normal(), "abacus")


def test_rows_with_large_elements_are_mixed():
    if "int8" not in chosen(normal(2)).name:
        pytest.skip("this processor multiplies no int8")
    rows = normal(100)
    assert "mixed" not in chosen(rows).name
    rows[np.arange(100), np.arange(100) % 64] = 30
    assert "mixed" in chosen(rows).name


def test_rows_too_long_for_integers_are_multiplied_as_floats():
    assert "int8" not in chosen(normal(2, 100_000)).name


def test_instructions_that_the_kernel_refuses_are_left_for_the_next():
    refused = InstructionSet("refused", (), allowed=lambda: False)
    with pytest.raises(Unavailable, match="does not let this process use refused"):
        CompiledEngine(8, refused, 8, mixed=False)
    assert chosen(normal(), "int", candidates=((8, refused), (16, AVX2))).name == next_best()


def test_a_gpu_is_asked_for_by_its_whole_name_and_says_what_it_lacks(monkeypatch):
    assert [is_cuda(word) for word in ("cuda", "CUDA", "a", "cud", None)] == [True, True, False, False, False]
    # No bound is proven for rows this long.
    assert "may be too far off" in why_no_cuda(1 << 30) or "finds no GPU" in why_no_cuda(1 << 30)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "raysm.workloads.similarity.engines.cuda", raising=False)
    assert why_no_cuda(4) == "torch is missing"
    with pytest.raises(InvalidRequest, match="the engine 'cuda' cannot be had here: torch is missing"):
        chosen(normal(), "CUDA")
