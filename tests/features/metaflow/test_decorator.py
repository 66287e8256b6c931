"""Steps of flows as jobs, by a real Metaflow, on an embedded SageMaker.

The environment of the other tests lacks Metaflow; ``python3 -m tests.extras metaflow`` runs these in one of its own.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

import raysm
from tests.support.homes import serving
from tests.support.pages import DOCS, assert_printed, outputs, run_page

if importlib.util.find_spec("metaflow") is None:
    pytest.skip("the extra metaflow is not installed", allow_module_level=True)

LIMIT_S = 240

BEGIN = """
from metaflow import FlowSpec, Parameter, retry, step, timeout
import raysm as package
from raysm.features.metaflow import raysm

ENDLESS = package.Local(instance_kind="simulated")


class Point:
    def __init__(self, x):
        self.x = x


class Flow(FlowSpec):
    rows = Parameter("rows", default=3)
"""
END = """
    @step
    def end(self):
        pass


if __name__ == "__main__":
    Flow()
"""

EVERYTHING = """
    @step
    def start(self):
        self.base = 10
        self.unused = __import__("threading").Thread
        self.points = [Point(1)]
        self.next(self.compute)

    def double(self, x):
        return 2 * x + self.base

    @raysm(cluster=package.Cluster(count=2))
    @step
    def compute(self):
        import ray

        self.nodes = len(ray.nodes())
        self.points.append(Point(self.double(self.rows)))
        self.parts = ["a", "bc"]
        self.next(self.part, foreach="parts")

    @raysm
    @step
    def part(self):
        self.length = len(self.input) + self.index
        print("it is part", self.input)
        self.next(self.join)

    @raysm
    @step
    def join(self, inputs):
        self.lengths = [each.length for each in inputs]
        self.merge_artifacts(inputs, include=["points", "nodes"])
        self.next(self.last)

    @step
    def last(self):
        assert all(type(point) is Point for point in self.points)
        print("found", self.nodes, [point.x for point in self.points], self.lengths)
        self.next(self.end)
"""

WAITS = """
    @{more}
    @raysm({options})
    @step
    def start(self):
        import time

        print("it waits", flush=True)
        time.sleep(5)
        self.done = True
        self.next(self.end)
"""

FAILS = """
    @raysm
    @step
    def start(self):
        raise ValueError("no rows for this day")
        self.next(self.end)
"""

SIBLINGS = """
    @step
    def start(self):
        self.next(self.runs, self.breaks)

    @raysm(on=ENDLESS)
    @step
    def runs(self):
        self.next(self.join)

    @step
    def breaks(self):
        import time

        while not package.jobs(task="Flow-runs"):
            time.sleep(1)
        raise ValueError("this branch breaks")
        self.next(self.join)

    @step
    def join(self, inputs):
        self.next(self.end)
"""


@pytest.fixture
def flow(tmp_path, raysm_local):
    """A function that starts a flow with steps; its process group is ended after the test."""
    started = []

    def start(steps, *arguments):
        (tmp_path / "flow.py").write_text(BEGIN + steps + END)
        own = {"HOME": str(tmp_path), "METAFLOW_HOME": str(tmp_path), "USERNAME": "raysm"}
        own["METAFLOW_DATASTORE_SYSROOT_LOCAL"] = str(tmp_path)
        started.append(
            subprocess.Popen(
                [sys.executable, "flow.py", "--no-pylint", "run", *arguments],
                cwd=tmp_path,
                env={**os.environ, **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def jobs():
    """A function that returns the test's own jobs of a step, the first one first."""
    before = {job.name for job in raysm.jobs(limit=1000)}

    def found(step="start"):
        new = [job.name for job in raysm.jobs(task=f"Flow-{step}") if job.name not in before]
        return [raysm.attach(name) for name in reversed(new)]

    return found


def until(condition):
    deadline_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    return found


def running(jobs):
    return until(lambda: [job for job in jobs() if job.status == "InProgress"])[0]


def test_steps_run_on_a_cluster_and_their_artifacts_go_there_and_come_back(flow):
    process = flow(EVERYTHING, "--rows", "4")
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, out
    assert "algo-1 | it is part bc" in out
    assert "found 2 [1, 18] [1, 3]" in out


def test_a_step_fails_with_the_exception_of_its_job(flow):
    process = flow(FAILS)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    assert "ValueError: no rows for this day" in out
    assert re.search(r"flow.py.*, in start", out), out


def test_a_retry_takes_the_job_of_an_attempt_that_was_killed(flow, jobs):
    process = flow(WAITS.format(more="retry(times=2, minutes_between_retries=0)", options=""))
    running(jobs)
    (task,) = [
        child for child in psutil.Process(process.pid).children() if "step" in child.cmdline()
    ]
    task.kill()
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, out
    assert [job.status for job in jobs()] == ["Completed"]


def test_a_job_stops_if_another_branch_of_its_flow_fails(flow, jobs):
    process = flow(SIBLINGS)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    (job,) = jobs("runs")
    assert job.wait(LIMIT_S) == "Stopped"


def test_a_job_stops_if_everything_of_its_flow_is_killed(flow, jobs):
    process = flow(WAITS.format(more="retry", options="on=ENDLESS"))
    job = running(jobs)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert job.wait(LIMIT_S) == "Stopped"


def test_a_job_stops_at_ctrl_c(flow, jobs):
    process = flow(WAITS.format(more="retry", options="on=ENDLESS"))
    job = running(jobs)
    os.killpg(process.pid, signal.SIGINT)
    assert job.wait(LIMIT_S) == "Stopped"


def test_a_job_stops_at_the_timeout_of_its_step(flow, jobs):
    process = flow(WAITS.format(more="timeout(seconds=8)", options="on=ENDLESS"))
    out, _ = process.communicate(timeout=LIMIT_S)
    assert "timed out" in out
    (job,) = jobs()
    assert job.wait(LIMIT_S) == "Stopped"


def test_a_job_that_a_user_stops_is_not_sent_again_by_a_retry(flow, jobs):
    more = "retry(times=2, minutes_between_retries=0)"
    process = flow(WAITS.format(more=more, options="on=ENDLESS"))
    running(jobs).cancel()
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0
    assert "was stopped" in out
    assert len(jobs()) == 1


def test_the_page_about_metaflow_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("USERNAME", "raysm")
    with serving(tmp_path / "home") as home:
        printed = run_page(DOCS / "guides" / "metaflow.md", tmp_path, home)
    assert_printed("\n".join(outputs("guides/metaflow.md")), printed)
