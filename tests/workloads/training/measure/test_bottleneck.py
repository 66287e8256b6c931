"""The one sentence that says what a run waited for."""

import pytest

from raysm.workloads.training.measure.bottleneck import Picture, RankTimes, bottleneck


def picture(**fields):
    shares = {"data": 0.01, "checkpoint": 0.0, "communication": 0.02, "other": 0.01}
    shares |= {name: fields.pop(name) for name in shares.keys() & fields.keys()}
    computing = 1 - sum(share or 0 for share in shares.values())
    return Picture(**{"steps": 1000, "step_s": 0.1, "computing": computing} | shares | fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"data": 0.41}, "41 % of the step waits for data: more loader workers"),
        ({"data": 0.41, "usage": {"cpu_percent": 97.0}}, "the CPUs are 97 % busy"),
        ({"data": 0.41, "loader_workers": 2}, "loader_workers=4"),
        ({"checkpoint": 0.08}, "8 % of the time goes into checkpoints: save 4 times more rarely"),
        ({"communication": 0.3}, "30 % of the step waits for communication: a larger batch per worker"),
        ({"communication": 0.3, "device": "cuda"}, "precision='bf16'"),
        ({"communication": 0.3, "usage": {"network_sent_bytes_per_s": 2e9}}, "2,000 MB/s"),
        ({"communication": 0.3, "pipeline": 4}, "more micro-batches"),
        ({"other": 0.5}, "50 % of the time goes into the loop's own code"),
        ({"usage": {"cpu_percent": 99.0}}, "96 % of the step computes, and nothing else holds it up: more or faster"),
        ({"usage": {"cpu_percent": 30.0}}, "the CPUs are 30 % busy: a larger batch"),
        ({"device": "cuda", "usage": {"gpu_percent": 35.0}}, "the GPU is 35 % busy: a larger batch"),
        ({"device": "cuda", "usage": {"gpu_percent": 99.0}}, "precision='bf16', or more or faster GPUs"),
        ({"device": "cuda", "precision": "bf16", "usage": {"gpu_percent": 99.0}}, "up: more or faster GPUs"),
    ],
)
def test_the_largest_wait_is_named_with_its_number_and_what_to_try(fields, says):
    assert says in bottleneck(picture(**fields))


def test_of_two_waits_the_larger_one_is_named():
    assert "communication" in bottleneck(picture(data=0.2, communication=0.3))
    assert "data" in bottleneck(picture(data=0.3, communication=0.2))


def test_a_rank_that_computes_longer_than_the_others_is_what_they_wait_for():
    times = [RankTimes(rank=rank, host=f"algo-{rank}", computing_s=s) for rank, s in enumerate((0.1, 0.1, 0.15, 0.1))]
    said = bottleneck(picture(communication=0.3, ranks=tuple(times)))
    assert "30 % of the step waits for rank 2 on algo-2, which computes 50 % longer than the median" in said


def test_of_two_ranks_the_slower_one_is_measured_against_the_faster_one():
    times = (RankTimes(rank=0, host="a", computing_s=0.1), RankTimes(rank=1, host="b", computing_s=0.2))
    assert "rank 1 on b, which computes 100 % longer" in bottleneck(picture(communication=0.3, ranks=times))


def test_without_a_look_at_communication_nothing_is_said_of_it():
    assert "computes" in bottleneck(picture(communication=None))


def test_a_run_without_steps_says_so():
    assert "too few steps" in bottleneck(
        Picture(steps=0, step_s=0, data=0, checkpoint=0, communication=None, computing=0, other=0)
    )


@pytest.mark.parametrize(("steps", "step_s"), [(28, 3.0), (99, 10.0), (5000, 0.01)])
def test_a_try_is_given_no_advice(steps, step_s):
    short = {"steps": steps, "step_s": step_s, "usage": {"cpu_percent": 30.0}}
    assert bottleneck(picture(data=0.41, **short)) == "41 % of the step waits for data"
    assert bottleneck(picture(communication=0.3, **short)) == "30 % of the step waits for communication"
    assert bottleneck(picture(**short)) == "96 % of the step computes"
