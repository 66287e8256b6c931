"""Whole sweeps on instances: many trials with early ends, and one that goes on after its head was killed."""

import json
import time

import pytest

import raysm
from raysm.client.package import package_of
from raysm.contract.events import Trial
from raysm.contract.result import Manifest
from raysm.contract.trials import Trials
from raysm.local.checkpoints import FolderStore
from raysm.local.job_spec import Checkpoints
from raysm.request import Cluster, JobRequest
from tests.support import jobs
from tests.support.leftovers import leaving_nothing

pytestmark = [pytest.mark.long, pytest.mark.namespace, pytest.mark.timeout(1500)]

SWEEP_S = 900.0
"""Until 50 trials are done: a minute on two cores, and many beside others' work."""


def work(x):
    for step in range(6):
        time.sleep(0.05)
        raysm.report(step=step, loss=(x - 0.3) ** 2 + 1 / (step + 1))


def slow_work(x):
    for step in range(4):
        time.sleep(0.5)
        raysm.report(step=step, loss=(x - 0.3) ** 2 + 1 / (step + 1))


def started(function, root, store, **options):
    sweep = raysm.Sweep(function, space={"x": raysm.uniform(0, 1)}, metric="loss", seed=1, **options)
    package = package_of(sweep)
    request = JobRequest(name="test-job", workload=package.workload, cluster=Cluster(count=2))
    checkpoints = Checkpoints(store=FolderStore(store), uri="s3://bucket/checkpoints")
    return jobs.started(request, root, "namespace", function=package.pickled, checkpoints=checkpoints)


def done_in(store):
    """The numbers of the trials that the checkpoints say are done."""
    entries = [json.loads(path.read_text()) for path in store.rglob("trials/*.json")]
    return {entry["trial"]["number"] for entry in entries if entry["trial"]["status"] == "done"}


def begun(log):
    return [event.number for event in log.events(Trial) if event.status == "running"]


def test_fifty_trials_with_early_ends_leave_no_placement_group(tmp_path):
    with (
        leaving_nothing(tmp_path),
        started(work, tmp_path / "1", tmp_path / "store", trials=50, stop="asha") as (job, log),
    ):
        assert job.wait(SWEEP_S).status == "Completed", log.text()
        trials = Trials.read(job.model_dir)
        assert [trial.number for trial in trials.trials] == list(range(50))
        assert {trial.status for trial in trials.trials} == {"done", "stopped"}
        assert {trial.host for trial in trials.trials} == {"algo-1", "algo-2"}
        assert Manifest.read(job.model_dir).measures["placement_groups_left"] == 0
        assert abs(trials.trials[trials.best].params["x"] - 0.3) < 0.2


def test_a_sweep_whose_head_was_killed_goes_on_and_runs_no_trial_again_that_was_done(tmp_path):
    store = tmp_path / "store"
    with leaving_nothing(tmp_path):
        with started(slow_work, tmp_path / "1", store, trials=16, search="random") as (job, log):
            log.wait_for_state("formed")
            deadline_s = time.monotonic() + SWEEP_S
            while len(done_in(store)) < 3:
                assert time.monotonic() < deadline_s, log.text()
                time.sleep(0.1)
            job.kill("algo-1")
            assert job.wait(jobs.ENDS_S).status == "Failed", log.text()
            done = done_in(store)
            assert done < set(range(16))
        with started(slow_work, tmp_path / "2", store, trials=16, search="random") as (job, log):
            assert job.wait(SWEEP_S).status == "Completed", log.text()
            assert not set(begun(log)) & done
            trials = Trials.read(job.model_dir).trials
            assert [trial.number for trial in trials] == list(range(16))
            assert Manifest.read(job.model_dir).measures["resumed_trials"] == len(done)
