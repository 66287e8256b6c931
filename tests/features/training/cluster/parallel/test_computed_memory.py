"""While a model is cut and gets its weights, a rank has its share and one tensor: computed for many ranks."""

import pytest

from tests.benchmarks.computed_memory import Llama, compute_peak

SMALL = Llama(width=64, layers=3, hidden=256, heads=4, key_heads=2, words=512)


@pytest.mark.parametrize("ranks", [16, 64])
def test_a_rank_needs_its_share_and_one_tensor_while_the_model_is_made(ranks):
    peak = compute_peak(SMALL, ranks)
    assert peak.share == pytest.approx(peak.model / ranks, rel=0.05)
    assert peak.making == peak.share + peak.largest_tensor
