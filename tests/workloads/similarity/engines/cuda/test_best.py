from types import SimpleNamespace

import numpy as np
import torch

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, encode
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.engines.cuda.best import DeviceBest, panel_best
from raysm.workloads.similarity.engines.cuda.scores import to_host

CPU = torch.device("cpu")
PANELS = SimpleNamespace(parts=[range(2), range(3)])
"""A tile of five rows in panels of two and three, as far as the best of it has to know."""


def of(lower_bounds, k=2):
    keys = np.full((5, k), EMPTY_KEY, dtype=np.uint64)
    return DeviceBest.of(Best(keys, np.array(lower_bounds, dtype=np.float32)), PANELS, CPU)


def taken(best, rows, scores, numbers):
    panel_best(best, PANELS, 1).take(
        torch.tensor(rows), torch.tensor(scores, dtype=torch.float32), torch.tensor(numbers)
    )
    return to_host(best.keys)


def keys(*pairs):
    scores, numbers = zip(*pairs, strict=True)
    return encode(np.array(scores, dtype=np.float32), np.array(numbers))


def test_a_panel_whose_rows_all_have_a_limit_needs_none_of_its_products():
    assert of([0.1, 0.2, -np.inf, 0.3, 0.4]).unseeded == [False, True]


def test_nobody_is_looked_for_where_the_limit_is_infinite():
    assert of([0.1, np.inf, 0, 0, 0]).unserved.tolist() == [False, True, False, False, False]


def test_the_best_of_what_comes_stay_by_score_then_by_number_in_the_panels_own_rows():
    best = of([-np.inf] * 5)
    found = taken(best, [0, 0, 0, 2], [0.5, 0.75, 0.5, 0.25], [9, 3, 4, 7])
    assert np.array_equal(found[2], keys((0.75, 3), (0.5, 4)))
    assert np.array_equal(found[4], [keys((0.25, 7))[0], EMPTY_KEY])
    assert (found[[0, 1, 3]] == EMPTY_KEY).all()


def test_what_comes_later_displaces_only_what_is_worse():
    best = of([-np.inf] * 5)
    taken(best, [1, 1], [0.5, 0.25], [1, 2])
    assert np.array_equal(taken(best, [1, 1], [0.375, 0.125], [8, 9])[3], keys((0.5, 1), (0.375, 8)))


def test_who_is_below_what_is_known_of_a_row_is_not_kept():
    found = taken(of([0, 0, 0.5, 0, 0]), [0, 0], [0.375, 0.5], [1, 2])
    assert np.array_equal(found[2], [keys((0.5, 2))[0], EMPTY_KEY])
