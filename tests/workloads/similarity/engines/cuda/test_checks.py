import numpy as np
import torch

from raysm.workloads.similarity.engines.cuda.checks import check_device, device_name, multiply

CPU = torch.device("cpu")


def test_a_cpu_that_stands_for_a_gpu_passes_what_a_gpu_is_asked():
    check_device(CPU, 24)
    assert device_name(CPU) == "a CPU"


def test_products_are_summed_in_float32_and_rounded_to_float16_once():
    # Summed in float16, the ones would be lost beside 2048.
    left = torch.ones((1, 5), dtype=torch.float16)
    right = torch.tensor([[2048, 1, 1, 1, 1], [1, 2, 3, 4, 5]], dtype=torch.float16)
    out = torch.empty((1, 2), dtype=torch.float16)
    multiply(left, right, out)
    assert np.array_equal(out.numpy(), [[2052, 15]])
