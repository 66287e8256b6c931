"""The engine of GPUs beside float64: hard rows in any cut, drawn ones at which bounds may break, and very many."""

import numpy as np
import torch

from raysm.features.similarity.cluster.arithmetic.keys import EMPTY_KEY, decode, encode
from raysm.features.similarity.cluster.arithmetic.score import pair_scores, prepare
from raysm.features.similarity.cluster.engines.cuda import CudaEngine
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from tests.support.dense_rows import (
    assert_pairs,
    best_of,
    centred,
    expected_keys,
    kinds_of_rows,
    tiles,
)

SMALL = 1 << 17
"""Bytes of a device in which a panel has 32 rows, and few panels have room."""

DRAWN = 60
"""Matrices of elements at which bounds may break."""

EDGES = np.array(
    [0.0, 1.0, -1.0, 1e18, -1e18, 1e-30, 2.0**-149, 1 + 2.0**-23, 1 - 2.0**-24, 0.5, 127.49]
)

ASKED = 256
"""Rows of a large matrix whose neighbors are compared."""

SPARE = 16
"""How many more than k are kept of float64's products: their rounding cannot bring anybody over so
many."""


def engine_of(device, columns, free_bytes=None):
    """Return the engine, with all that the device has or with so many bytes of it."""
    if free_bytes is None and device.type == "cpu":
        free_bytes = 1 << 24
    return CudaEngine(device.type, columns, free_bytes=free_bytes)


def compare_all(device, findings, seed=0):
    """Compare all kinds of rows, then drawn ones."""
    for kind, rows in kinds_of_rows(rows=170, columns=25).items():
        _compare(device, kind, rows, findings)
    rng = np.random.default_rng(seed)
    for number in range(DRAWN):
        shape = int(rng.integers(2, 40)), int(rng.choice([1, 2, 5, 17, 48]))
        rows = np.where(
            rng.random(shape) < 0.5, rng.uniform(-1, 1, shape), rng.choice(EDGES, shape)
        )
        _compare(
            device,
            f"drawn {number} (seed {seed})",
            rows.astype(rng.choice(["float32", "float64"])),
            findings,
        )


def _compare(device, name, rows, findings):
    some, n = prepare(rows).norms > 0, len(rows)
    for frame, k, cuts, free in [
        (Frame.plain(rows.shape[1]), min(3, n - 1), [0, n], None),
        (centred(rows), min(12, n - 1), sorted({0, n // 3, n}), SMALL),
    ]:
        found = best_of(engine_of(device, rows.shape[1], free), frame, rows, k, cuts)
        wrong = np.flatnonzero((found != expected_keys(rows, k)).any(axis=1) & some)
        findings.compare(
            f"{name}, top {k}", f"{len(wrong)} rows, the first {wrong[0]}" if len(wrong) else ""
        )
    engine = engine_of(device, rows.shape[1], SMALL)
    for threshold in (0.3, 0.9):
        compare = (engine, centred(rows), rows, sorted({0, n // 2, n}), threshold)
        findings.compare(f"{name}, at least {threshold}", _said(assert_pairs, *compare))


def _said(check, *arguments):
    """Return what an assertion says, or "" where it holds."""
    try:
        check(*arguments)
    except AssertionError as error:
        return str(error) or "they differ"
    return ""


def compare_many(device, shape, findings, k=10):
    """Compare some rows of a large matrix, in one tile, with float64's products of the device itself.

    The products in float64 say who can be among the k at all; who of them is, the definition says.
    """
    rng = np.random.default_rng(1)
    rows = rng.standard_normal(shape, dtype=np.float32)
    # Copies and near copies, far apart: ties, and scores that differ in the last bits.
    rows[-50:] = rows[:50]
    rows[-100:-50] = rows[50:100] * np.float32(1 + 2**-20)
    asked = np.unique(np.concatenate([np.arange(100), rng.integers(0, len(rows), ASKED)]))
    (tile,) = tiles(rows)
    engine = engine_of(device, shape[1])
    prepared = engine.prepare(tile, centred(rows[: 1 << 16]))
    best = Best.empty(tile.norms, k)
    engine.topk(prepared, prepared, best, best, same=True)
    assert (best.keys != EMPTY_KEY).all(), "rows without neighbors"
    near = candidates(device, tile, asked, k + SPARE)
    wrong = [
        row
        for row, some in zip(asked, near, strict=True)
        if not _is_best(tile, best.keys[row], row, some, k)
    ]
    name = f"{shape[0]:,} x {shape[1]}, {len(asked)} of its rows, top {k}"
    findings.compare(name, f"{len(wrong)} rows, the first {wrong[0]}" if wrong else "")


def candidates(device, tile, asked, count, at_once=1 << 16):
    """Return near[len(asked), count]: who has the largest quotients in float64, the lower index first among equals."""
    norms = torch.from_numpy(tile.norms).to(device)
    left = torch.from_numpy(tile.rows[asked] / tile.norms[asked, None]).to(device)
    values, numbers = [], []
    for start in range(0, len(tile), at_once):
        some = torch.from_numpy(np.array(tile.rows[start : start + at_once])).to(
            device, torch.float64
        )
        quotients = left @ (some / norms[start : start + at_once, None]).T
        top = torch.topk(quotients, min(count, quotients.shape[1]), dim=1)
        values.append(top.values.cpu())
        numbers.append(top.indices.cpu() + start)
    everyone, whose = torch.cat(values, dim=1), torch.cat(numbers, dim=1)
    return torch.gather(whose, 1, torch.topk(everyone, count, dim=1).indices).numpy()


def _is_best(tile, keys, row, near, k):
    others = np.sort(near[near != row])
    pairs = np.broadcast_to(tile.rows[row], (len(others), tile.rows.shape[1])), tile.rows[others]
    norms = np.full(len(others), tile.norms[row]), tile.norms[others]
    scores = pair_scores(*(side.astype(np.float64) for side in pairs), *norms)
    expected = np.sort(encode(scores, others))[:k]
    return np.array_equal(decode(keys), decode(expected))
