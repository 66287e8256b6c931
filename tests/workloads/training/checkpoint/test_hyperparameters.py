"""What a user's optimizer and scheduler ask for, and what a checkpoint has in its place."""

import torch

from raysm.workloads.training.checkpoint.hyperparameters import find_overruled, read_hyperparameters


def test_numbers_are_read_by_group_and_name():
    weight, bias = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = torch.optim.AdamW([{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}], lr=0.1)
    numbers = read_hyperparameters(optimizer, None)
    assert (numbers["0.lr"], numbers["1.lr"], numbers["0.betas[1]"], numbers["1.weight_decay"]) == (0.1, 0.1, 0.999, 0)
    assert not any(name.endswith(("foreach", "fused", "params")) for name in numbers)


def test_under_a_scheduler_the_rate_is_the_one_that_was_asked_for():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=4)
    numbers = read_hyperparameters(optimizer, scheduler)
    assert numbers["0.lr"] == 0.1
    assert numbers["scheduler.total_iters"] == 4


def test_what_the_checkpoint_overrules_is_said_once_for_groups_that_are_alike():
    asked = {"0.lr": 0.2, "1.lr": 0.2, "0.momentum": 0.9, "0.new": 1.0}
    resumed = {"0.lr": 0.1, "1.lr": 0.1, "0.momentum": 0.9, "0.old": 2.0}
    assert find_overruled(asked, resumed) == [("lr", 0.2, 0.1)]
