"""A script written for torchrun as the driver runs it; tests/jobs runs whole ones."""

from raysm.request import TorchScript
from raysm.workloads.runner import load_runner
from raysm.workloads.training.launch.torch_script import TorchScriptRunner
from tests.support.driving import payload_of, refusal_without


def test_a_script_for_torchrun_is_run_by_this_runner():
    assert isinstance(load_runner(payload_of(TorchScript("train.py")), None), TorchScriptRunner)


def test_an_image_without_ray_says_so_and_names_the_extra():
    assert refusal_without("ray", TorchScript("train.py")) == (
        "the image lacks ray, which the training needs; add raysm's extra: python3 -m pip install 'raysm[train]'"
    )
