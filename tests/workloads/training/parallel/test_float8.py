"""Linear layers that multiply in float8; on a CPU, by torchao's emulation."""

import importlib.util

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest, MissingDependency
from raysm.workloads.training.engines.full_model import FullModel
from raysm.workloads.training.parallel.float8 import check_float8, to_float8

GPU, CPU = torch.device("cuda"), torch.device("cpu")

HAS_TORCHAO = importlib.util.find_spec("torchao") is not None

needs_torchao = pytest.mark.skipif(
    not HAS_TORCHAO, reason="the extra float8 is not installed: torchao is 3 MB of no use"
)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16), nn.LayerNorm(16), nn.Linear(16, 10))


@pytest.mark.parametrize(
    ("device", "tensor", "capability", "message"),
    [
        (CPU, 1, None, r"of compute capability 8\.9 or later .* this worker computes on the cpu; use precision='bf16'"),
        (GPU, 1, (8, 0), r"this worker computes on a GPU of compute capability 8\.0"),
        (GPU, 2, (9, 0), "precision='fp8' with tensor=2: .* cut by shard or pipeline"),
    ],
)
def test_what_cannot_multiply_float8_is_refused_in_words(device, tensor, capability, message):
    with pytest.raises(InvalidRequest, match=message):
        check_float8(device, tensor, capability)


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0), (12, 0)])
def test_gpus_from_ada_on_are_taken(capability):
    check_float8(GPU, 1, capability)


@pytest.mark.skipif(HAS_TORCHAO, reason="torchao is installed")
def test_without_torchao_the_extra_is_named():
    with pytest.raises(MissingDependency, match=r"python3 -m pip install 'raysm\[float8\]'"):
        to_float8(model())


@needs_torchao
def test_layers_whose_widths_divide_are_replaced_and_parameters_stay_what_they_are():
    converted = model()
    before = dict(converted.named_parameters())
    assert to_float8(converted, emulate=True) == ["0", "2"]
    assert type(converted[4]) is nn.Linear
    after = dict(converted.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] and after[name].dtype == torch.float32 for name in before)


@needs_torchao
@pytest.mark.parametrize("whole", [nn.Linear(16, 16), nn.Sequential(nn.Linear(15, 16))])
def test_a_model_of_which_nothing_would_be_computed_in_float8_is_refused(whole):
    with pytest.raises(InvalidRequest, match="no linear layer inside of it whose widths divide by 16"):
        to_float8(whole, emulate=True)


@needs_torchao
def test_a_training_in_float8_follows_float32_as_far_as_its_bits_go():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(64, 32, generator=generator)
    batch, curves = (rows, rows[:, :10].argmax(1)), []
    for is_float8 in (False, True):
        trained = model()
        if is_float8:
            to_float8(trained, emulate=True)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.2)
        engine = FullModel(
            model=trained,
            loss=nn.functional.cross_entropy,
            device=CPU,
            precision=torch.bfloat16 if is_float8 else None,
        )
        losses = []
        for _ in range(20):
            losses.append(float(engine.forward_backward(batch, 1.0)))
            optimizer.step()
            optimizer.zero_grad()
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=0.1)
    assert curves[1] != pytest.approx(curves[0], rel=1e-4)
    assert curves[1][-1] < 0.8 * curves[1][0]
