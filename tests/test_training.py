"""``raysm.training`` in one plain process, which is then the only worker."""

import torch

from raysm import training


def test_a_plain_process_is_the_only_worker():
    assert (training.rank(), training.world_size(), training.device().type) == (
        0,
        1,
        "cuda" if torch.cuda.is_available() else "cpu",
    )


def test_every_public_name_is_there_and_documented():
    assert training.__all__ == sorted(training.__all__)
    assert all(getattr(training, name).__doc__ for name in training.__all__)
