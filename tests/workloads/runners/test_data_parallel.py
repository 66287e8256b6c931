"""A training loop as the driver runs it; tests/jobs runs whole ones."""

from raysm.request import TrainLoop
from raysm.workloads.runner import load_runner
from raysm.workloads.training.launch.data_parallel import DataParallelRunner
from tests.support.driving import payload_of, refusal_without


def test_a_loop_is_run_by_this_runner():
    assert isinstance(load_runner(payload_of(TrainLoop(name="loop", python="3.11")), None), DataParallelRunner)


def test_an_image_without_ray_says_so_and_names_the_extra():
    assert refusal_without("ray", TrainLoop(name="loop", python="3.11")) == (
        "the image lacks ray, which the training needs; add raysm's extra: python3 -m pip install 'raysm[train]'"
    )
