"""Means over rows become sums, which any number of uneven slices add up to."""

import pytest
import torch

from raysm.errors import InvalidRequest
from raysm.workloads.training.engines.full_model import no_sums, sums


def mean(output, target):
    return (output - target).mean()


def test_uneven_slices_add_up_to_the_mean_of_all_rows():
    output, target = torch.arange(7.0), torch.ones(7)
    total = no_sums([mean, mean])
    for rows in (slice(0, 5), slice(5, 7)):
        total += sums([mean, lambda output, target: 2.0], output[rows], target[rows], len(output[rows]))
    assert (total / total[-1]).tolist() == [float(mean(output, target)), 2.0, 1.0]
    assert total.dtype == torch.float64


@pytest.mark.parametrize(
    ("returned", "message"),
    [(torch.zeros(3), r"mean returned a tensor of shape \(3,\); it must be the mean"), (None, "mean returned None")],
)
def test_a_metric_that_is_no_number_is_named(returned, message):
    def mean(output, target):
        return returned

    with pytest.raises(InvalidRequest, match=message):
        sums([mean], None, None, 3)
