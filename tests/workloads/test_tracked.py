"""The driver with a copy of its metrics, run as the bootstrap runs it."""

import json
import signal
import subprocess
import sys

import pytest

from raysm.contract.events import Metric, line
from raysm.contract.names import TUNING_OBJECTIVE
from raysm.contract.payload import Payload
from raysm.request import JobRequest, Script
from raysm.request.space import loguniform
from raysm.request.sweep import ScriptSweep
from raysm.workloads.tracked import run_of

WITHIN_S = 120

PROGRAM = """
import json, sys
from raysm.workloads.tracked import main

class Recording:
    def __init__(self):
        self.metrics = []
    def add(self, metric):
        self.metrics.append((metric.name, metric.step, metric.value))
    def close(self, end, within_s):
        json.dump([end, self.metrics], open(sys.argv[1], "w"))
        return True

sys.exit(main(sys.argv[3:], (sys.executable, "-u", "-c", sys.argv[2]), Recording()))
"""


def start(tmp_path, driver, *arguments):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "copy.json"), driver, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def copied(tmp_path):
    end, metrics = json.loads((tmp_path / "copy.json").read_text())
    return end, [tuple(metric) for metric in metrics]


LOSS = line(Metric(name="loss", value=0.5, step=3))


def test_output_is_handed_on_byte_by_byte_and_its_metrics_are_copied(tmp_path):
    driver = f"import sys; print('before'); print({LOSS!r}); sys.stdout.write('no line'); sys.stderr.write('error')"
    out, err = start(tmp_path, driver).communicate(timeout=WITHIN_S)
    assert out == f"before\n{LOSS}\nno line".encode()
    assert err == b"error"
    assert copied(tmp_path) == ("FINISHED", [("loss", 3, 0.5)])


@pytest.mark.parametrize(
    ("driver", "status", "end"),
    [
        ("pass", 0, "FINISHED"),
        ("raise SystemExit(7)", 7, "FAILED"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "FAILED"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, "FAILED"),
    ],
)
def test_it_ends_as_the_driver_ends(tmp_path, driver, status, end):
    process = start(tmp_path, driver)
    process.communicate(timeout=WITHIN_S)
    assert (process.returncode, copied(tmp_path)[0]) == (status, end)


def test_a_stop_is_handed_on_and_the_driver_has_its_grace(tmp_path):
    driver = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('ready')\n"
        "while True: time.sleep(0.05)"
    )
    process = start(tmp_path, driver)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=WITHIN_S)
    assert (out, process.returncode, copied(tmp_path)[0]) == (b"saved\n", 0, "KILLED")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child outlives its parent")
def test_the_driver_does_not_outlive_it(tmp_path):
    process = start(tmp_path, "import time; print('ready'); time.sleep(600)")
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    # The pipe ends once nobody can write to it any more.
    assert process.communicate(timeout=WITHIN_S)[0] == b""


def test_the_run_is_that_of_the_request(tmp_path):
    request = JobRequest(
        name="digits-1",
        workload=Script("train.py", args=["--lr", "0.1"]),
        project="digits",
        hyperparameters={"depth": "3"},
        tracking="http://127.0.0.1:5000",
    )
    run = run_of(Payload(request=request, folder=tmp_path, token_file=tmp_path / "token", digest=""))
    assert (run.uri, run.experiment, run.job) == ("http://127.0.0.1:5000", "digits", "digits-1")
    assert run.parameters == {"lr": 0.1, "depth": "3"}


def test_each_trial_of_a_tuning_job_has_a_run_of_its_own_with_what_was_drawn_for_it(tmp_path):
    sweep = ScriptSweep(script="train.py", space={"lr": loguniform(1e-4, 1)}, metric="loss", mode="min")
    request = JobRequest(name="sweep-1", workload=sweep, tracking="http://127.0.0.1:5000")
    payload = Payload(request=request, folder=tmp_path, token_file=tmp_path / "token", digest="")
    runs = [
        run_of(payload, job, {TUNING_OBJECTIVE: "loss", "lr": lr, "sagemaker_program": "start.py"})
        for job, lr in (("tuned-001-a", "0.1"), ("tuned-002-b", "0.01"))
    ]
    assert [run.job for run in runs] == ["tuned-001-a", "tuned-002-b"]
    assert [run.parameters["lr"] for run in runs] == ["0.1", "0.01"]
    assert "sagemaker_program" not in runs[0].parameters
    # As one job, which has all trials, the sweep is one run.
    assert run_of(payload, "sweep-1", {"lr": "0.1"}).job == "sweep-1"
