import random

import numpy as np
import torch

from raysm.workloads.training.loop.batch import capture_state, restore_state, seeded


def drawn():
    return random.random(), float(np.random.random()), torch.rand(()).item()


def test_after_a_seeded_block_all_generators_go_on_as_if_it_had_not_been():
    state = capture_state()
    expected = drawn()
    restore_state(state)
    with seeded(iter([1, 2, 1])) as steps:
        inside = [drawn() for _ in steps]
    assert inside[0] == inside[2] != inside[1]
    assert drawn() == expected
