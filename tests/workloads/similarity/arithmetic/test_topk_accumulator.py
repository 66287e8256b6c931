import numpy as np
import pytest

from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, TopKAccumulator, decode, encode, zero_row_keys


@pytest.fixture
def accumulator(tmp_path):
    accumulator = TopKAccumulator(tmp_path, 100, 3)
    yield accumulator
    accumulator.close()


def keys_of(*pairs):
    scores, indices = zip(*pairs, strict=True)
    return encode(np.array(scores, dtype=np.float32), np.array(indices))


def test_the_floor_of_a_row_is_its_worst_once_it_has_k(accumulator):
    accumulator.merge(RowBlock(0, 2), np.array([3, 2]), keys_of((0.9, 5), (0.5, 6), (0.25, 8), (0.1, 7), (0.05, 1)))
    assert accumulator.lower_bounds[:3].tolist() == [0.25, -np.inf, -np.inf]


def test_merging_equals_sorting_all(tmp_path):
    rng = np.random.default_rng(0)
    accumulator = TopKAccumulator(tmp_path, 50, 4)
    everyone = [[] for _ in range(50)]
    for _ in range(30):
        start = int(rng.integers(0, 40))
        counts = rng.integers(0, 5, 50 - start)
        keys = [np.sort(rng.integers(0, 2**60, n, dtype=np.uint64)) for n in counts]
        accumulator.merge(RowBlock(start, 50), counts, np.concatenate(keys))
        for row, some in enumerate(keys, start=start):
            everyone[row] += some.tolist()
    expected = [(sorted(row) + [int(EMPTY_KEY)] * 4)[:4] for row in everyone]
    assert accumulator.read(0, 50).tolist() == expected
    accumulator.close()


@pytest.mark.parametrize(("same", "expected"), [(True, [[1, 2, 3], [0, 2, 3], [0, 1, 2]]), (False, [[0, 1, 2]] * 3)])
def test_zero_rows_answer_the_lowest_indices(same, expected):
    scores, indices = decode(zero_row_keys(np.array([0, 1, 7]), 3, same=same))
    assert indices.tolist() == expected
    assert (scores == 0).all()
