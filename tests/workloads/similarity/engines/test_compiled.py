"""The compiled engines; tests of all engines together are in test_engines."""

import numpy as np
import pytest

from raysm.workloads.similarity.engines.compiled import CompiledEngine
from raysm.workloads.similarity.kernels.build import Unavailable
from raysm.workloads.similarity.kernels.recipes import AVX2, InstructionSet
from tests.support.dense_rows import centred, kinds_of_rows, tiles
from tests.support.reference import scores_between

KINDS = kinds_of_rows(rows=170, columns=25)


def engine_of(element=16, columns=25, mixed=False):
    try:
        return CompiledEngine(element, AVX2, columns, mixed=mixed)
    except Unavailable as reason:
        pytest.skip(str(reason))


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


def test_instructions_that_are_not_there_are_a_reason_before_anything_is_compiled():
    with pytest.raises(Unavailable, match="the processor lacks no_such_flag"):
        CompiledEngine(16, InstructionSet("none", ("no_such_flag",)), 25, mixed=False)
