"""Batch inference, end to end: the same bytes on any number of instances, and every record once, whoever dies."""

import hashlib
import sys

import cloudpickle
import numpy as np
import pytest
from PIL import Image

from raysm.core.protocol.events import Progress, parse
from raysm.core.protocol.result import Manifest
from raysm.core.request import Cluster, Input, JobRequest
from raysm.features.batch.result import Batch
from tests.support.jobs import NOTICES_LOSS_SOON, completed, started
from tests.support.leftovers import leaving_nothing

IMAGES = 60


class Brightness:
    """Waits after its first piece while there are so many instances: one can be lost in the middle."""

    def __init__(self, instances=0):
        self.instances, self.batches = instances, 0

    def __call__(self, batch):
        import time

        import ray

        while self.batches == 2 and sum(node["Alive"] for node in ray.nodes()) == self.instances:
            time.sleep(0.1)
        self.batches += 1
        return {"brightness": batch["image"].reshape(len(batch["image"]), -1).mean(axis=1)}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number:03}.png")
    return folder, pixels


def asked(folder, batch, cluster, distribution="FullyReplicated"):
    # The jobs' processes cannot import this module: its class travels whole.
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled = batch.pickled()
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    inputs = {"images": Input(str(folder), distribution=distribution)}
    return JobRequest(
        name="batch", workload=batch.workload(), cluster=cluster, inputs=inputs
    ), pickled


def predicted(model):
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [file.name for file in Manifest.read(model).files]
    return pa.concat_tables([pq.read_table(model / name) for name in files])


@pytest.mark.long
def test_one_instance_and_three_leave_the_same_bytes(images, tmp_path):
    folder, pixels = images
    digests = []
    for count in (1, 3):
        batch = Batch(Brightness, batch_size=4, piece_rows=8)
        request, pickled = asked(folder, batch, Cluster(count=count))
        root = tmp_path / str(count)
        with leaving_nothing(root):
            outcome, log, model = completed(request, root, "process", function=pickled)
        assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
        digests.append(
            [
                hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(model.rglob("*.parquet"))
            ]
        )
    assert digests[0] == digests[1]
    table = predicted(model)
    assert table["file"].to_pylist() == [f"{number:03}.png" for number in range(IMAGES)]
    np.testing.assert_allclose(
        table["brightness"].to_numpy(), pixels.reshape(IMAGES, -1).mean(axis=1)
    )


@pytest.mark.long
@pytest.mark.namespace
def test_a_killed_instance_costs_only_what_it_was_predicting(images, tmp_path):
    folder, _ = images
    batch = Batch(Brightness, batch_size=2, piece_rows=4, arguments={"instances": 3})
    request, pickled = asked(folder, batch, Cluster(count=3, on_instance_loss="continue"))
    with started(request, tmp_path / "job", function=pickled, environment=NOTICES_LOSS_SOON) as (
        job,
        log,
    ):
        log.wait_for(lambda _, line: isinstance(event := parse(line), Progress) and event.done >= 1)
        job.kill("algo-3")
        outcome = job.wait(timeout_s=300)
        assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
        table = predicted(job.model_dir)
    assert table["file"].to_pylist() == [f"{number:03}.png" for number in range(IMAGES)]
    # Told once for each part: what was finished before the loss was not predicted again.
    steps = [event.done for event in log.events(Progress) if event.phase == "predict"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 15
