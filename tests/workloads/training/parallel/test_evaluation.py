"""Computing on data that nothing is learned from."""

from types import SimpleNamespace

import torch
from torch import nn

from raysm.workloads.training.evaluation import evaluation, means

CPU = torch.device("cpu")


def model():
    whole = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    whole[2].eval()
    return whole


def test_modes_averages_and_random_numbers_are_as_before_also_after_an_error():
    whole = model()
    torch.manual_seed(1)
    try:
        with evaluation(whole, (), CPU):
            assert not whole(torch.ones(3, 2)).requires_grad
            assert not any(module.training for module in whole.modules())
            torch.rand(3)
            raise KeyError
    except KeyError:
        pass
    assert [module.training for module in whole] == [True, True, False]
    assert whole[0].num_batches_tracked == 0
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(1)))


class Engine:
    """Whose outputs are its inputs."""

    def measure(self, batch, metrics):
        return torch.tensor([*(metric(batch, None) * len(batch) for metric in metrics), len(batch)]).double()


def test_a_slice_of_which_no_row_counts_is_left_out():
    session = SimpleNamespace(share=None, cpu_group=None)

    def slices():
        for rows, share in (([1.0, 2.0, 3.0], 1.0), ([90.0], 0.0), ([6.0], 0.5)):
            session.share = share
            yield torch.tensor(rows)

    metrics = {"mean": lambda output, target: output.mean(), "largest": lambda output, target: output.max()}
    assert means(session, Engine(), slices(), metrics) == {"mean": 12 / 4, "largest": (3 * 3 + 6) / 4}
