"""Scores and keys on a device have the bits of those on the host."""

import numpy as np
import pytest
import torch

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, encode
from raysm.workloads.similarity.engines.cuda import scores as scores_module


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 127, 128, 129, 136, 300, 768, 1021, 5000])
def test_sums_of_every_length_are_numpys_to_the_last_bit(columns):
    rng = np.random.default_rng(columns)
    values = rng.standard_normal((50, columns)) * np.exp(rng.standard_normal((50, columns)) * 10)
    assert np.array_equal(scores_module.row_sums(torch.from_numpy(values)).numpy(), values.sum(axis=-1) + 0.0)


def test_keys_on_a_device_are_the_hosts_and_in_their_order():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.uniform(-1, 1, 200), [0, 1, -1, 2.0**-149, -(2.0**-149)]]).astype(np.float32)
    indices = rng.integers(0, 2**32, len(scores))
    keys = encode(scores, indices)
    found = scores_module.encoded(torch.from_numpy(scores), torch.from_numpy(indices))
    assert np.array_equal(scores_module.to_host(found), keys)
    assert np.array_equal(scores_module.to_host(found.sort().values), np.sort(keys))
    assert np.array_equal(scores_module.decoded(found).numpy(), scores)
    nobody = scores_module.from_host(np.array([EMPTY_KEY]), torch.device("cpu"))
    assert nobody.item() == scores_module.EMPTY_KEY
    assert scores_module.decoded(nobody).item() == -np.inf
