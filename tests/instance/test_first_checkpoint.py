"""The warning of a job on spot capacity that saves nothing."""

import asyncio
import dataclasses
from functools import partial

import pytest

from raysm.core.protocol.paths import Paths
from raysm.core.request import Limits
from raysm.instance.exit_status import ExitStatus
from raysm.instance.first_checkpoint import has_checkpoint
from raysm.instance.head import Head
from tests.support.bootstraps import Cluster, live, request

WAITS = """
import pathlib, time
while not pathlib.Path("go").exists(): time.sleep(0.02)
"""


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], False),
        (["algo-1/train.py", "algo-1/.raysm-source.json", "algo-1/__pycache__/a.pyc"], False),
        (["algo-1/last.pt"], True),
        (["raysm/training/step-5/manifest.json"], True),
    ],
)
def test_copies_of_the_source_are_no_checkpoint(tmp_path, names, expected):
    checkpoints, source = tmp_path / "checkpoints", tmp_path / "source"
    write(source / "train.py")
    for name in names:
        write(checkpoints / name)
    assert has_checkpoint(checkpoints, checkpoints / "algo-1", source) is expected


async def go(cluster):
    cluster.go()


async def go_after_the_question(cluster):
    """Let the driver end once the head knows whether there is a checkpoint."""

    def is_asking():
        return "the watch for a first checkpoint" in {
            task.get_name() for task in asyncio.all_tasks()
        }

    while not is_asking():
        await asyncio.sleep(0.02)
    while is_asking():
        await asyncio.sleep(0.02)
    cluster.go()


@pytest.mark.parametrize(
    ("spot", "saved_by", "warns"),
    [(True, None, True), (True, "algo-1", False), (True, "algo-2", False), (False, None, False)],
)
def test_a_job_on_spot_capacity_says_once_that_no_instance_has_saved_anything(
    tmp_path, capfd, spot, saved_by, warns
):
    limits = Limits(spot=spot, max_wait_s=Limits().max_runtime_s if spot else None)
    job = dataclasses.replace(request(2), limits=limits)
    with Cluster(tmp_path, job, driver=WAITS) as cluster:
        for host in cluster.hosts:
            Paths(cluster.base(host)).checkpoint_config.write_text("{}")
        if saved_by is not None:
            write(Paths(cluster.base(saved_by)).state(saved_by) / "last.pt")
        cluster.start("algo-2")

        tasks = []

        def watch(head):
            tasks.append(
                asyncio.create_task(go_after_the_question(cluster) if spot else go(cluster))
            )

        role = partial(Head, first_checkpoint_s=0.1)
        assert live(role, cluster.prepare("algo-1"), watch) == ExitStatus(0)
    assert capfd.readouterr().err.count("nothing was saved among the checkpoints") == warns
