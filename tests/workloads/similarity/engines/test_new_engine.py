"""An engine of the CPU is one class and one line: here, one that sums products of integers in int64."""

from dataclasses import replace

import numpy as np
import pytest

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.engines import choice, choose
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.reading.columns import Selection
from tests.support.dense_rows import kinds_of_rows
from tests.support.problems import Part, Problem
from tests.support.reference import scores_between
from tests.support.similarity import context_of, saved
from tests.support.solving import Replicated

ROWS = kinds_of_rows()["int8"]


class WordEngine(PlainEngine):
    """Scores whole rows as sums of int64; what it does not do better is NumPy's."""

    name = "int64 words"
    asked = 0

    def scores(self, left, right, out):
        WordEngine.asked += 1
        dots = (left.rows.astype(np.int64) @ right.rows.astype(np.int64).T).astype(np.float64)
        norms = left.norms[:, None] * right.norms[None, :]
        out[:] = np.divide(dots, norms, out=np.zeros_like(dots), where=norms != 0).astype(np.float32)


def words(rows):
    """Return the engine, where the rows are integers."""
    if rows.frame.integral and rows.wanted(WordEngine.name):
        return WordEngine()
    rows.reasons.append("the rows are no integers")
    return None


@pytest.fixture
def registered():
    choice.FAMILIES.append(words)
    yield
    choice.FAMILIES.remove(words)


def test_a_new_engine_is_chosen_by_a_word_of_its_name_for_the_rows_that_it_takes(registered, tmp_path):
    integral, other = (
        context_of(saved(rows, tmp_path / name)) for name, rows in (("a", ROWS), ("b", ROWS.astype(np.float32) / 3))
    )
    assert choose(integral.sample(200), integral.frame(), "words").name == "int64 words"
    with pytest.raises(InvalidRequest, match="no engine of this machine is called 'words'"):
        choose(other.sample(200), other.frame(), "words")


def test_tasks_compute_with_a_new_engine(registered, tmp_path):
    problem = Problem(
        seed=1,
        kind="int8",
        parts=[Part(ROWS, "npy")],
        queries=None,
        sharded=False,
        k=3,
        threshold=0.5,
        selection=Selection(),
        block_rows=40,
        at_once=1,
        ranges=1,
    )
    before = WordEngine.asked
    found = Replicated(problem, tmp_path).solve("full", "words")
    assert WordEngine.asked > before
    assert np.array_equal(found, scores_between(ROWS, ROWS))


def test_without_its_line_nobody_knows_it(tmp_path):
    context = replace(context_of(saved(ROWS, tmp_path)), engine="words")
    with pytest.raises(InvalidRequest, match="no engine of this machine is called 'words'"):
        choose(context.sample(200), context.frame(), context.engine)
