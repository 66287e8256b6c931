"""The engine of GPUs, computed on the CPU: every operation of it is one that both round alike."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, decode, encode
from raysm.workloads.similarity.arithmetic.score import prepare
from raysm.workloads.similarity.engines import Best, Frame
from raysm.workloads.similarity.engines.cuda.engine import CudaEngine, cuda_engine
from raysm.workloads.similarity.engines.cuda.streams import CudaStreams, InTurn
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.kernels.build import Unavailable
from tests.support.dense_rows import assert_pairs, assert_scores, best_of, centred, expected_keys, kinds_of_rows, tiles
from tests.support.emulated_cuda import Emulated
from tests.support.reference import score_rows
from tests.support.similarity import adversarial

KINDS = kinds_of_rows(rows=170, columns=25)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SMALL = 1 << 17
"""Bytes of a device so small that a panel has 32 rows, and only few panels have room."""


def engine_of(columns, free_bytes=SMALL):
    return CudaEngine("cpu", columns, free_bytes=free_bytes)


@pytest.mark.parametrize("kind", KINDS)
def test_panels_and_tiles_give_the_neighbors_of_float64(kind):
    rows = KINDS[kind]
    some = prepare(rows).norms > 0
    for frame, k, cuts, free in [
        (Frame.plain(rows.shape[1]), 3, [0, 170], 1 << 24),
        (centred(rows), 12, [0, 50, 170], SMALL),
    ]:
        expected = expected_keys(rows, k)
        assert np.array_equal(best_of(engine_of(rows.shape[1], free), frame, rows, k, cuts)[some], expected[some])


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_and_scores_are_those_of_float64(kind):
    rows = KINDS[kind]
    engine = engine_of(rows.shape[1])
    for threshold in (0.3, 0.9):
        assert_pairs(engine, centred(rows), rows, [0, 70, 170], threshold)
    assert_scores(engine, rows, 70)


def test_queries_find_their_neighbors_in_another_matrix():
    rng = np.random.default_rng(5)
    queries, corpus = rng.standard_normal((37, 19)).astype(np.float32), rng.standard_normal((203, 19))
    corpus[100] = queries[3]
    corpus = corpus.astype(np.float32)
    engine, frame = engine_of(19), centred(corpus)
    scores = score_rows(np.concatenate([queries, corpus]), range(37))[:, 37:]
    expected = encode(scores, np.broadcast_to(np.arange(203), scores.shape))
    expected.sort(axis=1)
    left = engine.prepare(tiles(queries)[0], frame)
    best = Best.empty(left.tile.norms, 9)
    for tile in tiles(corpus, [0, 64, 203]):
        engine.topk(left, engine.prepare(tile, frame), best, None, same=False)
    assert np.array_equal(best.keys, expected[:, :9])
    some = engine.pairs(left, engine.prepare(tiles(corpus)[0], frame), np.float32(0.4), same=False)
    i, j = np.nonzero(scores >= np.float32(0.4))
    assert np.array_equal(np.repeat(np.arange(37), np.diff(some.offsets)), i)
    assert np.array_equal(some.neighbors, j)
    assert np.array_equal(some.similarities, scores[i, j])


def test_floors_drop_only_who_is_below_them():
    rows = KINDS["float32"]
    expected = expected_keys(rows, 8)
    lower_bounds = decode(expected[:, -1])[0]
    lower_bounds[::5] = np.inf
    found = best_of(engine_of(rows.shape[1]), centred(rows), rows, 8, [0, 60, 170], lower_bounds)
    served = lower_bounds < np.inf
    assert np.array_equal(found[served], expected[served])
    assert (found[~served] == EMPTY_KEY).all()


@given(rows=adversarial(9), data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_adversarial_row_breaks_the_bound(rows, data):
    rows = rows.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    engine = engine_of(rows.shape[1])
    scores = score_rows(rows, range(len(rows)))
    side = engine.prepare(tiles(rows)[0], data.draw(st.sampled_from([Frame.plain(rows.shape[1]), centred(rows)])))
    # Each score is a threshold in turn: a bound that is too small by a hair loses the pair that it belongs to.
    for threshold in np.unique(scores):
        found = engine.pairs(side, side, threshold, same=True)
        assert len(found.neighbors) == np.count_nonzero(np.triu(scores >= threshold, 1))
    k = data.draw(st.integers(1, len(rows) - 1))
    expected = expected_keys(rows, k)
    some = side.tile.norms > 0
    for known in (None, decode(expected[:, -1])[0]):
        best = Best.empty(side.tile.norms, k, known)
        engine.topk(side, side, best, best, same=True)
        assert np.array_equal(best.keys[some], expected[some])


@pytest.mark.parametrize("kind", ["normal", "nearly all equal", "duplicates", "all equal"])
def test_only_few_pairs_are_scored_whatever_the_rows_are(kind):
    rng = np.random.default_rng(2)
    normal = rng.standard_normal((1200, 64))
    rows = {
        "normal": normal,
        "nearly all equal": 1 + 0.01 * normal,
        "duplicates": normal[rng.integers(0, 30, 1200)],
        "all equal": np.ones((1200, 64)),
    }[kind].astype(np.float32)
    engine = engine_of(64, 1 << 24)
    keys = best_of(engine, centred(rows), rows, 10, [0, 600, 1200])
    assert engine.scored / len(rows) < {"normal": 60, "nearly all equal": 60}.get(kind, 450)
    plain = best_of(PlainEngine(), centred(rows), rows, 10, [0, 1200])
    assert np.array_equal(keys, plain)


def test_a_crowded_product_is_gone_through_by_strips():
    rows = KINDS["all equal"].copy()
    rows[::7] *= -1
    engine = CudaEngine("cpu", rows.shape[1], free_bytes=1 << 22, survivors=256)
    assert np.array_equal(best_of(engine, centred(rows), rows, 5, [0, 170]), expected_keys(rows, 5))
    side = engine.prepare(tiles(rows)[0], Frame.plain(rows.shape[1]))
    assert len(engine.pairs(side, side, np.float32(-1), same=True).neighbors) == 170 * 169 // 2


class Recorded(InTurn):
    """Notes which queue waits for what."""

    def __init__(self):
        self.marks, self.waits, self.lane = [], [], ""

    @contextmanager
    def queue(self, lane):
        before, self.lane = self.lane, lane
        yield
        self.lane = before

    def copying(self):
        return self.queue("copy")

    def multiplying(self):
        return self.queue("product")

    def filtering(self):
        return self.queue("filter")

    def mark(self):
        self.marks.append((self.lane, sum(lane == self.lane for lane, _ in self.marks)))
        return self.marks[-1]

    def after(self, event):
        if event is not None:
            self.waits.append((self.lane, event))


def test_the_next_product_is_queued_before_one_is_filtered_and_waits_for_its_buffer():
    rows, streams = KINDS["float32"], Recorded()
    engine = CudaEngine("cpu", rows.shape[1], free_bytes=1 << 17, streams=streams)
    left, right = (engine.prepare(tile, centred(rows)) for tile in tiles(rows, [0, 32, 170]))
    engine.topk(left, right, Best.empty(left.tile.norms, 3), Best.empty(right.tile.norms, 3), same=True)
    order = [lane for lane, _ in streams.marks if lane != "copy"]
    count = len(left.prepared.parts) * len(right.prepared.parts)
    assert count > 3
    assert order == ["product", *["product", "filter"] * (count - 1), "filter"]
    waits = [wait for wait in streams.waits if wait[1][0] != "copy"]
    assert [event for lane, event in waits if lane == "filter"] == [("product", at) for at in range(count)]
    # Two buffers: the third product waits for the first filter.
    assert [event for lane, event in waits if lane == "product"] == [("filter", at) for at in range(count - 2)]
    # Both panels of a product are waited for.
    copied = [event for lane, event in streams.waits if lane == "product" and event[0] == "copy"]
    assert len(copied) == 2 * count


def test_the_queues_of_a_gpu_give_the_same_neighbors():
    rows = KINDS["float32"]
    engine = CudaEngine("cpu", rows.shape[1], free_bytes=SMALL, streams=CudaStreams(Emulated(), stage_bytes=512))
    assert np.array_equal(best_of(engine, centred(rows), rows, 5, [0, 50, 170]), expected_keys(rows, 5))


def test_rows_that_are_too_long_for_the_bound_are_refused():
    with pytest.raises(Unavailable, match="may be too far off"):
        engine_of(1 << 20)


def test_a_machine_without_a_gpu_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(Unavailable, match="finds no GPU"):
        cuda_engine(8)
