"""What the head says of metrics that become NaN or infinite, by the lines of the log."""

import dataclasses
import math
from functools import partial

import pytest

import raysm
from raysm.core.protocol.events import Metric, line
from raysm.errors import MetricDiverged
from raysm.instance.divergence import DivergenceWatch
from raysm.instance.head import Head
from tests.support.bootstraps import Cluster, live, request

JOB = raysm.JobRequest(
    name="a-job",
    workload=raysm.Script("user.py"),
    metrics=(raysm.MetricDefinition("loss", r"loss: ([^\s,]+)"),),
    stop_on_nan="loss",
)


def watched(*lines, job=JOB):
    """Return what is said, and the ends that are asked for, when these lines come at once."""
    said, ends = [], []
    watch = DivergenceWatch(job, said.append, lambda *end: ends.append(end))
    watch.look("".join(f"{each}\n" for each in lines).encode())
    return said, ends


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("step 3 loss: nan", 'loss is nan: "step 3 loss: nan"'),
        ("[rank 2] step 3 loss: -inf", 'loss is -inf on rank 2: "step 3 loss: -inf"'),
        ("[rank 2] loss: NaN, " + "x" * 500, f'loss is nan on rank 2: "loss: NaN, {"x" * 108}…"'),
    ],
)
def test_a_printed_value_ends_the_job_with_its_line_and_rank(printed, sentence):
    said, ends = watched("loss: 0.5", printed)
    assert said == [f"{sentence}; the job ends, as --stop-on-nan loss asks"]
    assert ends == [(sentence, False)]


def test_a_reported_value_ends_the_job_with_its_step_and_rank():
    sentence = "loss is inf at step 7 on rank 1"
    metric = Metric(name="loss", value=math.inf, step=7, rank=1)
    assert watched(line(metric))[1] == [(sentence, True)]


def test_each_metric_is_said_once_and_another_than_the_named_one_ends_nothing():
    other = [line(Metric(name="accuracy", value=math.nan, step=step)) for step in (4, 5)]
    assert watched(*other) == (["accuracy is nan at step 4"], [])


def test_finite_values_and_what_describes_an_instance_are_passed_over():
    lines = [
        "info: the finance data have loss: 0.25",
        line(Metric(name="loss", value=0.5)),
        line(Metric(name="loss", value=math.nan, host="algo-2")),
    ]
    assert watched(*lines) == ([], [])


SAVES = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("checkpoint").write_text("diverged")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("checkpoint").write_text("good")
print("step 8 loss: nan", flush=True)
time.sleep(600)
"""


def test_a_script_that_saves_at_sigterm_cannot_save_over_its_checkpoint_once_it_has_diverged(
    tmp_path,
):
    shape = request(2)
    job = dataclasses.replace(JOB, cluster=shape.cluster)
    with Cluster(tmp_path, job, driver=SAVES) as cluster:
        assert cluster.start().wait() == {"algo-1": 1, "algo-2": 0}
        assert cluster.failure("algo-1") == 'loss is nan: "step 8 loss: nan"'
        source = cluster.base("algo-1") / "input/data/raysm/source"
        assert (source / "checkpoint").read_text() == "good"


CATCHES = """
import math, time
from raysm.core.protocol.events import Metric, line
print(line(Metric(name="loss", value=math.nan, step=8)), flush=True)
time.sleep(600)
"""


def test_a_program_that_goes_on_after_it_has_reported_the_value_is_ended(tmp_path):
    with (
        Cluster(tmp_path, JOB, driver=CATCHES) as cluster,
        pytest.raises(MetricDiverged, match="loss is nan at step 8"),
    ):
        live(partial(Head, own_end_s=0.1), cluster.prepare("algo-1"))
