"""The compiled engines; tests of all engines together are in test_engines."""

import numpy as np
import pytest

from raysm.workloads.similarity.engines import Frame
from raysm.workloads.similarity.engines.compiled import ARRAYS, CompiledEngine, kind_name
from raysm.workloads.similarity.kernels.build import Unavailable
from raysm.workloads.similarity.kernels.instructions import AVX2, AVX512, InstructionSet
from tests.support.dense_rows import centred, kinds_of_rows, tiles
from tests.support.reference import scores_between

KINDS = kinds_of_rows(rows=170, columns=25)


def engine_of(element=16, columns=25, mixed=False):
    try:
        return CompiledEngine(element, AVX2, columns, mixed=mixed)
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_a_kind_is_named_by_what_it_multiplies_and_with_what():
    assert kind_name(8, AVX512) == "int8 AVX-512"
    assert [engine_of(bits).name for bits in (16, 32)] == ["int16 AVX2", "float32 AVX2"]
    assert engine_of(16, mixed=True).name == "int16 AVX2 mixed"


@pytest.mark.parametrize("element", [16, 32])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "int64", "bool", "denormal"])
def test_scores_of_sides_of_any_types_are_numpys_bit_for_bit(element, kind):
    queries, rows = KINDS["float64"][:30], KINDS[kind]
    engine = engine_of(element)
    for left, right in ((rows[:30], rows[30:]), (queries, rows.astype(np.float64))):
        out = np.empty((len(left), len(right)), dtype=np.float32)
        engine.scores(tiles(left)[0], tiles(right)[0], out)
        np.testing.assert_array_equal(out, scores_between(left, right))


def test_a_side_takes_the_memory_that_tasks_reckon_with():
    rows = KINDS["float32"]
    for element in (16, 32):
        side = engine_of(element).prepare(tiles(rows)[0], centred(rows))
        padded_rows, padded_columns = -(-170 // 48) * 48, 28
        assert side.nbytes <= 2 * padded_rows * padded_columns * element // 8 + 32 * padded_rows + 4096


def test_what_is_multiplied_finds_the_pairs_of_another_frame_too():
    rows, engine = KINDS["float32"], engine_of()
    found = []
    for frame in (Frame.plain(25), centred(rows)):
        side = engine.prepare(tiles(rows)[0], frame)
        pairs = engine.pairs(side, side, np.float32(0.2), same=True)
        found.append((pairs.offsets.tolist(), pairs.neighbors.tolist(), pairs.similarities.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("columns", [*range(1, 34), 48, 63, 64, 100, 128, 200, 256, 384, 768])
def test_mixing_rows_of_any_width_keeps_how_long_they_are(columns):
    rows = np.random.default_rng(columns).standard_normal((20, columns))
    frame = centred(rows)
    side = engine_of(16, columns, mixed=True).prepare(tiles(rows)[0], frame)
    lengths, errors = (side.prepared.arrays[ARRAYS.index(name)] for name in ("length", "error"))
    expected = np.linalg.norm(rows / np.linalg.norm(rows, axis=1)[:, None] - frame.centre, axis=1)
    # Of a row and of what is kept of it, whichever is longer: by no more than what is lost of the row.
    np.testing.assert_array_less(expected * (1 - 1e-6), lengths)
    np.testing.assert_array_less(lengths, expected * (1 + 1e-6) + errors + 1e-6)


def test_instructions_that_are_not_there_are_a_reason_before_anything_is_compiled():
    with pytest.raises(Unavailable, match="the processor lacks no_such_flag"):
        CompiledEngine(16, InstructionSet("none", ("no_such_flag",)), 25, mixed=False)
