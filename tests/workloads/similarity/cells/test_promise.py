"""How many cells keep a recall, and what a sample of rows says of it."""

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.cells.promise import (
    Measured,
    check_kept,
    choose_probes,
    measured_recall,
    sample_size,
)

SHARES = np.linspace(0.02, 1, 50)
"""Of 50 cells of equal size."""


def ranks(*places, rows=1000):
    return np.tile(np.array(places), (rows, 1))


def test_the_interval_is_wilsons():
    found = measured_recall(np.array([1.0] * 95 + [0.0] * 5))
    assert found.recall == pytest.approx(0.95)
    # As in E. B. Wilson's formula with z = 1.96, of 95 of 100.
    assert (found.low, found.high) == (pytest.approx(0.8882, abs=1e-4), pytest.approx(0.9785, abs=1e-4))


def test_a_sample_without_a_miss_does_not_show_that_there_is_none():
    found = measured_recall(np.ones(1000))
    assert (found.recall, found.high) == (1.0, 1.0)
    assert 0.995 < found.low < 1


@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99, 0.999])
def test_a_sample_is_large_enough_for_its_recall_to_be_shown(recall):
    assert measured_recall(np.ones(sample_size(recall, 10**6))).low > recall


def test_a_sample_leaves_half_of_the_rows_to_measure_with():
    assert sample_size(0.95, 600) == 300
    assert sample_size(0.95, 10**6) == 1024


def test_as_few_cells_are_looked_into_as_hold_the_lower_end_of_the_interval():
    # Nine in ten of the neighbors lie in the first 3 cells, all in the first 7.
    held = ranks(*[2] * 9, 6)
    assert choose_probes(0.8, held, held, SHARES) == 3
    # 0.9 is what a sample of 1000 rows has, and not what its interval begins at.
    assert choose_probes(0.9, held, held, SHARES) == 7


def test_rows_that_chose_nothing_have_to_hold_it_too():
    assert choose_probes(0.9, ranks(1), ranks(4), SHARES) == 5


def test_a_recall_that_needs_most_pairs_is_refused_with_what_was_reached():
    spread = np.tile(np.arange(50), (1000, 1))
    with pytest.raises(InvalidInput, match=r"0\.95 needs \d+% of all pairs.*50% of them reached 0\.5.*drop recall"):
        choose_probes(0.95, spread, spread, SHARES)


def test_a_recall_that_so_few_rows_cannot_show_is_refused():
    with pytest.raises(InvalidInput, match="cannot be shown by a sample of 30 rows"):
        choose_probes(0.95, ranks(0, rows=30), ranks(0, rows=30), SHARES)


def test_a_result_that_holds_less_than_was_promised_is_refused():
    with pytest.raises(InvalidInput, match=r"0\.95 was promised, and 0\.9400 .* was reached; drop recall"):
        check_kept(0.95, Measured(recall=0.94, low=0.93, high=0.96, rows=1000))
    check_kept(0.95, Measured(recall=0.95, low=0.93, high=0.96, rows=1000))
