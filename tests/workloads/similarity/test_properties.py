"""Small problems of every kind, each from its seed, solved by every engine of this machine and by the tasks."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.support.adversarial import KINDS, TYPES
from tests.support.comparing import all_comparisons
from tests.support.problems import FORMATS, LISTS, SCALARS, drawn

PROBLEMS, ALL = 40, 60
"""Of more, CI tries as many as a minute has room for."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "seed", [*range(PROBLEMS), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(PROBLEMS, ALL))]
)
def test_the_answers_of_all_engines_and_tasks_are_those_of_float64(seed, tmp_path):
    problem = drawn(seed)
    answers = list(all_comparisons(problem, tmp_path))
    assert {one.mode for one in answers} - {"ids"} == {"topk", "threshold", "full"}
    assert [one for one in answers if one.wrong] == [], problem


def test_the_problems_are_of_every_kind():
    problems = [drawn(seed) for seed in range(PROBLEMS)]
    parts = [part for one in problems for part in one.parts + (one.queries or [])]
    layouts = Counter((one.layout, one.sparse) for one in problems)
    assert {layout for layout, _ in layouts} == {
        "one file",
        "folder of files",
        "shards",
        "queries of the same type",
        "queries of another type",
    }
    assert {layout for layout, sparse in layouts if sparse} >= {"shards", "queries of another type"}
    assert {part.format for part in parts} == {*FORMATS, *SCALARS, *LISTS}
    assert {part.rows.dtype.name for part in parts} == set(TYPES)
    assert len({one.kind for one in problems} & set(KINDS)) >= 24
    assert {one.at_once for one in problems} == {1, 2, 3, 4}
    assert {one.ranges for one in problems} == {1, 2, 3, 4}
    sides = Counter((one.queries[0].rows.dtype, one.parts[0].rows.dtype) for one in problems if one.queries)
    assert sum(count for (left, right), count in sides.items() if left != right) > 10
    assert sum((~part.rows.astype(np.float64).any(axis=1)).any() for part in parts) > 30
