"""Whole sweeps on instances: many trials with early ends, losses of instances on the way, and the command."""

import json
import os
import subprocess
import sys
import time

import pytest

import raysm
from raysm.core.client.source.package import package_of
from raysm.core.protocol.events import Trial, Trials
from raysm.core.protocol.result import Manifest
from raysm.core.request import Cluster, JobRequest
from raysm.local.checkpoints import FolderStore
from raysm.local.job_spec import Checkpoints
from tests.support import jobs
from tests.support.leftovers import leaving_nothing
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

SWEEP_S = 900.0
"""Until 50 trials are done: a minute on two cores, and many beside others' work."""

RAYSM = (sys.executable, "-m", "raysm")

SCRIPT = """
import argparse
import raysm

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--epochs", type=int)
options = parser.parse_args()
if options.batch_size == 64:
    raise SystemExit("64 rows are too many")
for epoch in range(options.epochs):
    raysm.report(step=epoch, loss=(options.lr - 0.01) ** 2 + options.batch_size / 1e6)
"""


def work(x):
    """End at once as the first trial of an instance; as another one, when the test lets the instance go on."""
    raysm.report(step=0, loss=(x - 0.3) ** 2)
    if os.path.exists("/tmp/had-one"):
        while not os.path.exists("/opt/ml/output/go"):
            time.sleep(0.05)
    open("/tmp/had-one", "w").close()


def go(job, *hosts):
    for host in hosts:
        (job.paths(host).base / "output" / "go").touch()


def started(root, store, *, on_instance_loss="fail", **options):
    sweep = raysm.Sweep(
        work, space={"x": raysm.uniform(0, 1)}, metric="loss", mode="min", seed=1, **options
    )
    package = package_of(sweep)
    cluster = Cluster(count=2, on_instance_loss=on_instance_loss)
    request = JobRequest(name="test-job", workload=package.workload, cluster=cluster)
    checkpoints = Checkpoints(store=FolderStore(store), uri="s3://bucket/checkpoints")
    code = {"function": package.pickled, "source": package.source}
    return jobs.started(
        request,
        root,
        "namespace",
        **code,
        checkpoints=checkpoints,
        environment=jobs.NOTICES_LOSS_SOON,
    )


def done_in(store):
    """Return the host of each trial that is done by the journal among the checkpoints, by its number."""
    done = {}
    for journal in store.rglob("journal.log"):
        # The copy may end within a line.
        for line in journal.read_text().splitlines(keepends=True):
            entry = (
                json.loads(line).get("user_attr", {}).get("entry") if line.endswith("\n") else None
            )
            if entry is not None and entry["trial"]["status"] == "done":
                done[entry["trial"]["number"]] = entry["trial"]["host"]
    return done


def begun(log):
    return [event.number for event in log.events(Trial) if event.status == "running"]


@pytest.mark.namespace
def test_the_trials_of_a_worker_that_was_lost_are_tried_again_on_those_that_are_left(tmp_path):
    with (
        leaving_nothing(tmp_path),
        started(
            tmp_path / "1",
            tmp_path / "store",
            trials=4,
            search="random",
            on_instance_loss="continue",
        ) as (
            job,
            log,
        ),
    ):
        until(lambda: "algo-2" in done_in(tmp_path / "store").values(), SWEEP_S, log.text)
        # The next one runs there.
        until(lambda: len(begun(log)) == 4, SWEEP_S, log.text)
        job.kill("algo-2")
        go(job, "algo-1")
        assert job.wait(SWEEP_S).status == "Completed", log.text()
        trials = Trials.read(job.model_dir).trials
        assert [(trial.number, trial.status) for trial in trials] == [
            (number, "done") for number in range(4)
        ]
        # None was begun anew as another one: a trial keeps its number and its parameters.
        assert sorted(begun(log)) == list(range(4))
        assert trials[-1].host == "algo-1"


@pytest.mark.namespace
def test_a_sweep_whose_head_was_killed_goes_on_and_runs_no_trial_again_that_was_done(tmp_path):
    store = tmp_path / "store"
    with leaving_nothing(tmp_path):
        with started(tmp_path / "1", store, trials=8, search="random") as (job, log):
            until(lambda: len(done_in(store)) >= 2, SWEEP_S, log.text)
            job.kill("algo-1")
            assert job.wait(jobs.ENDS_S).status == "Failed", log.text()
            done = set(done_in(store))
            assert done < set(range(8))
        with started(tmp_path / "2", store, trials=8, search="random") as (job, log):
            go(job, "algo-1", "algo-2")
            assert job.wait(SWEEP_S).status == "Completed", log.text()
            assert not set(begun(log)) & done
            trials = Trials.read(job.model_dir).trials
            assert [trial.number for trial in trials] == list(range(8))
            assert Manifest.read(job.model_dir).measures["resumed_trials"] == len(done)
        # They are kept after its end, too: more may follow.
        assert sorted(done_in(store)) == list(range(8))


def test_the_command_exits_with_1_if_a_trial_failed_and_brings_the_table_and_the_best(
    home, tmp_path
):
    (tmp_path / "train.py").write_text(SCRIPT)
    spaces = ("--space", "lr=choice:-1.6e-05,0.02", "--space", "batch_size=choice:32,64")
    metric = ("--metric", "loss", "--mode", "min", "--search", "grid")
    command = ("sweep", "train.py", *spaces, *metric, "--output", "out")
    done = subprocess.run(
        [*RAYSM, *command, "--", "--epochs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SWEEP_S,
        env=os.environ,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    trials = Trials.read(tmp_path / "out")
    ended = {
        (trial.params["lr"], trial.params["batch_size"]): trial.status for trial in trials.trials
    }
    # argparse reads the negative learning rate.
    assert ended == {
        (-1.6e-05, 32): "done",
        (0.02, 32): "done",
        (-1.6e-05, 64): "failed",
        (0.02, 64): "failed",
    }
    assert "2 of 4 trials failed" in done.stdout
    assert "64 rows are too many" in done.stdout
    best = min(
        (trial for trial in trials.trials if trial.status == "done"), key=lambda trial: trial.value
    )
    found = f"best of 4 trials (2 done, 2 failed; lowest loss): loss = {best.value:.6g} with lr = {best.params['lr']}"
    assert found in done.stdout
    # The table of the trials, for whoever sits at the terminal.
    assert any(line.split()[:3] == ["trial", "status", "loss"] for line in done.stdout.splitlines())
    # The reports are the trials', not lines for people.
    assert "raysm_report" not in done.stdout + done.stderr
