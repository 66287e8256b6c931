"""Each fault of a cluster of three, and the exception that the user gets of it; times are those of the log's lines."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import raysm
from raysm.core.client.targets.local import find_server
from tests.support.leftovers import assert_nothing_left
from tests.support.processes import await_watched, inside, one
from tests.support.waiting import until, until_line

pytestmark = [pytest.mark.long, pytest.mark.namespace]

ENDS_S = 120.0
SILENCE_S = 6.0
LONG_SILENCE_S = 600.0
"""For faults that are known without it: on a loaded machine an instance may say nothing for
seconds."""
KNOWN_S = 30.0
"""A cause is known within this, beyond the silence that is allowed; on a machine without other
work, within 5 s."""

CODE = """
import os, time, ray
ray.init()
print("user code runs", flush=True)
while not os.path.exists(os.environ["SM_MODEL_DIR"] + "/go"):
    time.sleep(0.1)
"""


def kill(host):
    return lambda pids: os.kill(pids[host], signal.SIGKILL)


def kill_in(host, part):
    return lambda pids: os.kill(one(pids[host], part), signal.SIGKILL)


def cut_off(pids):
    links = json.loads(
        subprocess.check_output(["nsenter", "-t", str(pids["algo-2"]), "-n", "ip", "-j", "link"])
    )
    (link,) = [link["ifname"] for link in links if link["ifname"] != "lo"]
    subprocess.check_call(
        ["nsenter", "-t", str(pids["algo-2"]), "-n", "ip", "link", "set", link, "down"]
    )


@dataclass(frozen=True, kw_only=True)
class Fault:
    happen: Callable
    """Called with the pids of the bootstraps by host."""
    reason: str
    """What the exception says behind the job's name, from its beginning; a pattern."""
    known: str
    """What the line of the log that names the cause holds."""
    silence_s: float = LONG_SILENCE_S
    known_s: float = KNOWN_S


FAULTS = {
    "the head's bootstrap is killed": Fault(
        happen=kill("algo-1"),
        reason="algo-[23]: the head algo-1 was lost: it closed its connection",  # who hears it first
        known="failed: the head algo-1 was lost: it closed its connection",
    ),
    "a worker's bootstrap is killed": Fault(
        happen=kill("algo-2"),
        reason="algo-2 lost: closed its connection",
        known="algo-1 failed: algo-2 lost: closed its connection",
    ),
    "the GCS is killed": Fault(
        happen=kill_in("algo-1", "gcs_server"),
        reason=r"Ray on the head algo-1 ended: gcs_server \[exit code=-9( \(signal 9\))?\]",
        known="algo-1 failed: Ray on the head algo-1 ended: gcs_server",
    ),
    "a worker's bootstrap is frozen": Fault(
        happen=lambda pids: os.kill(pids["algo-2"], signal.SIGSTOP),
        reason="algo-2 lost: said nothing for 6 s",
        known="algo-1 failed: algo-2 lost: said nothing for 6 s",
        silence_s=SILENCE_S,
        known_s=SILENCE_S + KNOWN_S,
    ),
    "a worker is cut off the network": Fault(
        happen=cut_off,
        reason="algo-2 lost: said nothing for 6 s",
        known="algo-1 failed: algo-2 lost: said nothing for 6 s",
        silence_s=SILENCE_S,
        known_s=SILENCE_S + KNOWN_S,
    ),
    "the driver is killed": Fault(
        happen=kill_in("algo-1", "raysm.instance.work.driver"),
        reason=re.escape(
            "the workload was killed by SIGKILL: most likely out of memory (this machine has "
        ),
        known="algo-1 failed: the workload was killed by SIGKILL",
    ),
    "the head alone gets SIGTERM": Fault(
        happen=lambda pids: os.kill(pids["algo-1"], signal.SIGTERM),
        reason="algo-1: ended by a SIGTERM that the service did not send",
        known="algo-1 was told to stop (SIGTERM)",
    ),
}


@pytest.fixture(scope="module")
def table(request):
    """Takes a row for each fault; printed at the end."""
    rows = []
    yield rows
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n| fault | seconds | what the user is told |\n| --- | --- | --- |")
        for row in rows:
            print("| " + " | ".join(row) + " |")


def submitted(folder, silence_s):
    script = folder / "script.py"
    script.write_text(CODE)
    cluster = raysm.Cluster(count=3, silence_s=silence_s)
    return raysm.submit(
        raysm.Script(str(script)), cluster=cluster, on=raysm.Local(instance_kind="namespace")
    )


def bootstraps(home, job):
    """Return the pid of each instance's bootstrap, by host."""
    found = {}
    for process in psutil.Process(find_server(home).pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended, as short helpers do
            if (
                "/raysm/start.py" in str(process.cmdline())
                and process.environ()["TRAINING_JOB_NAME"] == job.name
            ):
                root = Path(f"/proc/{process.pid}/root/opt/ml/input/config/resourceconfig.json")
                found[json.loads(root.read_text())["current_host"]] = process.pid
    assert sorted(found) == ["algo-1", "algo-2", "algo-3"], found
    return found


@contextlib.contextmanager
def running(home, folder, silence_s=LONG_SILENCE_S):
    """Yield a job whose user code runs, and the pids of its bootstraps; afterwards, nothing of it is left."""
    job = submitted(folder, silence_s)
    try:
        until_line(job, "user code runs")
        pids = bootstraps(home, job)
        everything = {pid for main in pids.values() for pid in inside(main)}
        yield job, pids
    finally:
        job.cancel()
        job.wait(ENDS_S)
    until(lambda: not any(psutil.pid_exists(pid) for pid in everything), 120)
    assert_nothing_left(home / "jobs" / "training" / job.name / "work", find_server(home).pid)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_user_is_told_the_cause_that_came_first(home, tmp_path, table, fault):
    wanted = FAULTS[fault]
    with running(home, tmp_path, wanted.silence_s) as (job, pids):
        await_watched(pids["algo-1"])
        happened_s = time.time()
        wanted.happen(pids)
        error = job.exception(timeout=ENDS_S)
        assert isinstance(error, raysm.JobFailed)
        assert re.match(f"the job {job.name} failed: {wanted.reason}", str(error)), error
        assert re.match(wanted.reason, job.describe().reason)
        assert "\n" not in str(error)
        known = next(line for line in job.lines() if wanted.known in line.text)
        known_s = known.time_s - happened_s
        table.append((fault, f"{known_s:.1f}", str(error).partition(" failed: ")[2]))
        assert known_s <= wanted.known_s
        assert "SystemExit" not in "".join(line.text for line in job.lines())


def test_a_raylet_that_dies_does_not_end_the_job(home, tmp_path, table):
    with running(home, tmp_path) as (job, pids):
        happened_s = time.time()
        os.kill(one(pids["algo-2"], "/raylet/raylet"), signal.SIGKILL)
        rejoined = until_line(job, '"rejoined"')
        Path(f"/proc/{pids['algo-1']}/root/opt/ml/model/go").touch()
        job.result(timeout=ENDS_S)
        row = (
            "a worker's raylet is killed",
            f"{rejoined.time_s - happened_s:.1f}",
            "nothing: the job goes on",
        )
        table.append(row)
