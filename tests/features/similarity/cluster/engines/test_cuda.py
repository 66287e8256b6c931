"""The engine of GPUs, computed on the CPU: every operation of it is one that both round alike."""

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.features.similarity.cluster.engines import cuda
from raysm.features.similarity.cluster.engines.cuda import CudaEngine, make_panel
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from raysm.features.similarity.cluster.kernels.build import Unavailable
from tests.support.dense_rows import (
    assert_exact,
    best_of,
    centred,
    expected_keys,
    kinds_of_rows,
    tiles,
)
from tests.support.similarity import adversarial

KINDS = kinds_of_rows(rows=170, columns=25)
CPU = torch.device("cpu")


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


@given(rows=adversarial(9), data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_adversarial_row_breaks_the_bound(rows, data):
    rows = rows.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    frame = data.draw(st.sampled_from([Frame.plain(rows.shape[1]), centred(rows)]))
    assert_exact(engine_of(rows.shape[1]), frame, rows, data.draw(st.integers(1, len(rows) - 1)))


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


def test_rows_that_are_too_long_for_the_bound_are_refused():
    with pytest.raises(Unavailable, match="may be too far off"):
        engine_of(1 << 20)


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 127, 128, 129, 300, 5000])
def test_sums_of_every_length_are_numpys_to_the_last_bit(columns):
    rng = np.random.default_rng(columns)
    values = rng.standard_normal((50, columns)) * np.exp(rng.standard_normal((50, columns)) * 10)
    assert np.array_equal(
        cuda.row_sums(torch.from_numpy(values)).numpy(), values.sum(axis=-1) + 0.0
    )


@pytest.mark.parametrize("noise", [1.0, 0.01, 1e-3])
def test_the_product_says_the_most_that_a_score_can_be_and_hardly_more(noise):
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((120, 200)) * noise + (noise < 1)).astype(np.float32)
    frame = centred(rows)
    panel = make_panel(tiles(rows)[0], frame, CPU)
    near = panel.cheap.double() @ panel.right()[: len(rows)].double().T / panel.scale**2
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1)[:, None]
    excess = near.numpy() - (unit @ unit.T - frame.centre @ frame.centre)
    spread = np.std((unit - frame.centre) @ (unit - frame.centre).T)
    assert 0 <= excess.min()
    assert excess.max() < 0.05 * spread


def test_the_rows_of_a_tile_that_is_dropped_are_free_though_panels_of_it_are_left():
    (tile,) = tiles(KINDS["float32"].copy())
    rows = weakref.ref(tile.rows if tile.rows.base is None else tile.rows.base)
    frame, engine = Frame.plain(tile.rows.shape[1]), engine_of(tile.rows.shape[1])
    prepared = engine.prepare(tile, frame)
    best = Best.empty(tile.norms, 3)
    engine.topk(prepared, prepared, best, best, same=True)
    del tile, prepared
    assert rows() is None
