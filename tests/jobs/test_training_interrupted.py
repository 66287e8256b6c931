"""One training over three jobs: stopped, a worker killed, an instance killed; its weights are the undisturbed ones."""

import json
import os
import socket
import subprocess

import pytest

from raysm import Cluster, DataParallel, TorchScript
from raysm.core.protocol import script_main
from raysm.core.protocol.events import Metric
from raysm.core.request import JobRequest
from raysm.features.training.cluster.checkpoint.manifest import read_manifests
from raysm.features.training.cluster.model_file import MODEL_FILE
from raysm.local.checkpoints import FolderStore
from raysm.local.job_spec import Checkpoints
from tests.support import interrupted_loop, jobs
from tests.support.leftovers import leaving_nothing
from tests.support.waiting import until

SCRIPT = interrupted_loop.__file__


def undisturbed(folder):
    """The model of two processes that torchrun might have started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "SM_MODEL_DIR": str(folder),
    }
    running = [
        subprocess.Popen(
            # As raysm runs scripts: torch's teardown sometimes aborts a plain process whose work is
            # done.
            script_main.command(SCRIPT, ["{}"]),
            env=os.environ | common | {"RANK": rank, "LOCAL_RANK": rank, "PYTHONPATH": os.getcwd()},
            stdout=subprocess.DEVNULL,
        )
        for rank in "01"
    ]
    assert [process.wait(jobs.ENDS_S) for process in running] == [0, 0]
    return (folder / MODEL_FILE).read_bytes()


def started(workload, root, store):
    is_loop = isinstance(workload, DataParallel)
    code = {"function": workload.pickled(), "source": workload.source()} if is_loop else {}
    asked = workload.workload() if isinstance(workload, DataParallel) else workload
    request = JobRequest(name="test-job", workload=asked, cluster=Cluster(count=2))
    checkpoints = Checkpoints(store=FolderStore(store), uri="s3://bucket/checkpoints")
    return jobs.started(request, root, "process", **code, checkpoints=checkpoints)


def kept_steps(store):
    return [manifest.step for manifest in read_manifests(store / "raysm" / "training").values()]


# Seven starts of torch in two processes each, on a machine that may have other work.
@pytest.mark.timeout(1800)
@pytest.mark.long
def test_stopped_and_killed_three_times_it_ends_with_the_weights_of_an_undisturbed_training(
    tmp_path,
):
    store = tmp_path / "store"
    with leaving_nothing(tmp_path):
        stopped = DataParallel(interrupted_loop.loop, config={"keeps": True, "hold": 4})
        with started(stopped, tmp_path / "1", store) as (job, log):
            log.wait_for_text("holding after step 4", jobs.ENDS_S)
            job.stop()
            assert job.wait(jobs.ENDS_S).status == "Stopped", log.text()
            assert (
                "stopped after step 5, the newest whole checkpoint is that of step 5" in log.text()
            )

        config = {"keeps": True, "die": 8, "hold": 11}
        killed = DataParallel(interrupted_loop.loop, config=config, max_restarts=1)
        with started(killed, tmp_path / "2", store) as (job, log):
            resumed = "goes on from the checkpoint of step 5 (epoch 0, 40 of 60 samples)"
            log.wait_for_text(resumed, jobs.ENDS_S)
            log.wait_for_text("holding after step 11", jobs.ENDS_S)
            until(lambda: 9 in kept_steps(store), jobs.ENDS_S)
            job.kill("algo-2")
            assert job.wait(jobs.ENDS_S).status == "Failed", log.text()
            text = log.text()
            assert "training: 2 workers on CPUs: algo-1 (rank 0), algo-2 (rank 1)" in text
            assert "rank 1 on algo-2: its process ended" in text
            for rank in range(2):
                for attempt in range(2):
                    assert f"[rank {rank}] attempt {attempt} local rank 0" in text
            # The first attempt ends at step 8, and the other one holds at step 11.
            steps = [event.step for event in log.events(Metric) if event.name == "loss"]
            assert steps[0] == 6
            assert steps[-1] in (10, 11)
            # Of what Ray prints when a process of a group dies, nothing is in the log.
            assert "registerClient" not in text

        last = TorchScript(SCRIPT, args=[json.dumps({"keeps": True})])
        with started(last, tmp_path / "3", store) as (job, log):
            assert job.wait(jobs.ENDS_S).status == "Completed", log.text()
            assert (
                "goes on from the checkpoint of step 9 (epoch 1, 8 of 60 samples)" in log.text()
            ), log.text()
            assert (job.model_dir / MODEL_FILE).read_bytes() == undisturbed(
                tmp_path / "undisturbed"
            )
