"""The life-cycle table, with real bootstraps as subprocesses and a stand-in for Ray."""

import json
import os
import select
import signal
import socketserver
import sys
import threading
import time
from pathlib import Path

import pytest

from raysm.instance.gcs_state import pending_socket
from tests.support import init
from tests.support.bootstraps import Cluster, request
from tests.support.processes import is_running
from tests.support.waiting import until

SLEEPER = "import time\nprint('user code runs', flush=True)\ntime.sleep(600)\n"
UNTIL_GO = 'while not pathlib.Path("go").exists(): time.sleep(0.02)\n'
WAITER = f"""
import pathlib, time
print('user code runs', flush=True)
{UNTIL_GO}"""
RECORD = """
import os
from pathlib import Path
from raysm.core.protocol.result import Failure
told = "Traceback ...\\nValueError: no such column"
failure = Failure(error_type="ValueError", message="no such column", remote_traceback=told)
failure.write(Path(os.environ["RAYSM_FAILURE_RECORD"]))
raise SystemExit(1)
"""


def test_a_job_that_succeeds_ends_everywhere_with_zero(tmp_path):
    with Cluster(tmp_path, request(3), driver="print('user code runs')") as cluster:
        cluster.start().wait_for("user code runs")
        assert set(cluster.wait().values()) == {0}
        names = [state.name for state in cluster.states()]
        assert names == ["joined", "joined", "joined", "formed", "control", "dashboard", "done"]
        assert [state.count for state in cluster.states()][:4] == [1, 2, 3, 3]
        assert not any(cluster.failure(host) for host in cluster.hosts)


def test_the_exception_of_the_driver_comes_first_in_the_reason(tmp_path):
    with Cluster(
        tmp_path, request(2), driver=RECORD.replace("raise", "print(told)\nraise")
    ) as cluster:
        assert cluster.start().wait() == {"algo-1": 1, "algo-2": 0}
        assert (
            cluster.failure("algo-1")
            == "ValueError: no such column\nTraceback ...\nValueError: no such column"
        )
        assert cluster.states()[-1].name == "failed"
        assert cluster.failure("algo-2") is None


@pytest.mark.long
def test_a_frozen_worker_is_the_reason_though_ray_says_first_that_its_node_is_gone(tmp_path):
    driver = RECORD.replace("ValueError", "ray.exceptions.ActorDiedError")
    driver = f"import pathlib, time\nprint('user code runs', flush=True)\n{UNTIL_GO}{driver}"
    with Cluster(tmp_path, request(2, silence_s=16), driver=driver) as cluster:
        cluster.start().wait_for("user code runs")
        cluster.signal(signal.SIGSTOP, "algo-2")
        # Eight heartbeats are missing: the driver fails for want of algo-2, which is not lost yet.
        # Four would do, but a head that gets no CPU itself gives its peers that time on top.
        time.sleep(8)
        cluster.go()
        assert cluster.processes["algo-1"].wait(120) == 1
        assert cluster.failure("algo-1") == "algo-2 lost: said nothing for 16 s"
        assert cluster.recorded() is None


def test_the_loss_of_a_worker_fails_the_job_at_once_and_names_it(tmp_path):
    with Cluster(tmp_path, request(3, silence_s=600), driver=SLEEPER) as cluster:
        cluster.start().wait_for("user code runs")
        node = cluster.node_pid("algo-3")
        cluster.signal(signal.SIGKILL, "algo-3")
        assert cluster.wait() == {"algo-1": 1, "algo-2": 0, "algo-3": -9}
        assert cluster.failure("algo-1") == "algo-3 lost: closed its connection"
        until(lambda: not is_running(node), 60)


def test_the_failure_that_the_driver_recorded_stays_the_reason_if_a_worker_is_lost_before_it_exits(
    tmp_path,
):
    driver = RECORD.replace(
        "raise SystemExit(1)", "import time\nprint('recorded', flush=True)\ntime.sleep(600)"
    )
    with Cluster(tmp_path, request(2, silence_s=600), driver=driver) as cluster:
        cluster.start().wait_for("recorded")
        cluster.signal(signal.SIGKILL, "algo-2")
        assert cluster.wait()["algo-1"] == 1
        assert cluster.failure("algo-1").startswith("ValueError: no such column")
        assert cluster.recorded().message == "no such column"


def test_the_end_of_ray_on_the_head_fails_the_job_and_names_it(tmp_path):
    with Cluster(tmp_path, request(2), driver=SLEEPER) as cluster:
        cluster.start().wait_for("user code runs")
        os.kill(cluster.node_pid("algo-1"), signal.SIGKILL)
        assert cluster.wait() == {"algo-1": 1, "algo-2": 0}
        assert cluster.failure("algo-1").startswith("Ray on the head algo-1 ended: ")


def test_a_worker_whose_ray_ends_starts_it_again_and_the_job_goes_on(tmp_path):
    with Cluster(tmp_path, request(2), driver=WAITER) as cluster:
        cluster.start().wait_for("user code runs")
        os.kill(cluster.node_pid("algo-2"), signal.SIGKILL)
        cluster.wait_for('"rejoined"')
        cluster.go()
        assert cluster.wait() == {"algo-1": 0, "algo-2": 0}
        assert [state.host for state in cluster.states() if state.name in ("lost", "rejoined")] == [
            "algo-2"
        ] * 2


class PendingRequests(socketserver.StreamRequestHandler):
    """Answers, in Ray's place, that a request for a GPU waits that no instance has."""

    def handle(self):
        unmet = {"num_gpus=1": "1 x (num_gpus=0)"}
        self.wfile.write(json.dumps({"unmet": unmet}).encode())


def test_a_job_that_asks_ray_for_what_no_instance_has_fails_when_its_time_for_placement_is_over(
    tmp_path,
):
    with Cluster(tmp_path, request(1, placement_timeout_s=0.1), driver=SLEEPER) as cluster:
        path = pending_socket(Path(cluster.ray_temp(0)), cluster.ports["gcs"])
        path.parent.mkdir()
        with socketserver.UnixStreamServer(str(path), PendingRequests) as server:
            answering = threading.Thread(target=server.serve_forever)
            answering.start()
            try:
                assert cluster.start().wait() == {"algo-1": 2}
            finally:
                server.shutdown()
                answering.join()
        assert "no instance can ever run the Ray request num_gpus=1" in cluster.failure("algo-1")


def test_a_processing_job_lives_and_fails_in_its_own_layout(tmp_path):
    driver = "import os\nprint(os.environ['SM_HOSTS'], os.environ['SM_MODEL_DIR'], flush=True)\nraise SystemExit(4)"
    with Cluster(tmp_path, request(2), processing=True, driver=driver) as cluster:
        assert cluster.start().wait() == {"algo-1": 4, "algo-2": 0}
        assert (
            f'["algo-1", "algo-2"] {cluster.base("algo-1")}/processing/output/result\n'
            in cluster.lines["algo-1"]
        )
        assert (
            cluster.base("algo-1") / "output/message"
        ).read_text() == "the workload exited with code 4"


def test_a_head_that_has_to_wait_for_its_log_is_not_lost_to_its_workers(tmp_path):
    driver = WAITER + "print('x\\n' * 1_000_000, flush=True)"
    with Cluster(tmp_path, request(2, silence_s=6, grace_s=1), driver=driver) as cluster:
        cluster.start().wait_for("user code runs")
        cluster.stop_reading()
        cluster.go()
        wait_until_blocked(cluster.processes["algo-1"])
        cluster.signal(signal.SIGTERM, "algo-1")  # it says so, and with that waits too
        time.sleep(8)  # longer than it may be silent
        assert cluster.processes["algo-2"].poll() is None
        cluster.may_read.set()
        assert cluster.wait()["algo-2"] == 0
        assert "was lost" not in cluster.log("algo-2")


def wait_until_blocked(process):
    """Wait until the pipe to which ``process`` and its children write takes no more."""
    with open(f"/proc/{process.pid}/fd/1", "wb", buffering=0) as log:
        until(lambda: not select.select([], [log], [], 0)[1], 60)


CHECKPOINT = f"""
import pathlib, signal, sys, time
def save(*_):
    {UNTIL_GO}
    pathlib.Path('checkpoint').write_text('whole'); print('saved', flush=True); sys.exit()
signal.signal(signal.SIGTERM, save)
print('user code runs', flush=True)
while True: time.sleep(1)
"""

INIT = (sys.executable, "-S", str(Path(init.__file__)))
"""As on SageMaker; without it the bootstrap is the first process itself, as in other images."""


@pytest.mark.parametrize("front", [(), INIT], ids=["alone", "under an init"])
def test_user_code_writes_its_checkpoint_after_sigterm_to_all_and_ray_stays(tmp_path, front):
    with Cluster(tmp_path, request(2), driver=CHECKPOINT) as cluster:
        cluster.start(front=front).wait_for("user code runs")
        node = cluster.node_pid("algo-2")
        cluster.signal(signal.SIGTERM)
        cluster.wait_for('"stopping"')
        assert os.path.exists(f"/proc/{node}")
        cluster.go()
        assert cluster.wait() == {"algo-1": 0, "algo-2": 0}
        assert (
            cluster.base("algo-1") / "input/data/raysm/source/checkpoint"
        ).read_text() == "whole"
        assert not any(cluster.failure(host) for host in cluster.hosts)


def test_user_code_that_ignores_sigterm_is_killed_when_its_grace_is_over(tmp_path):
    driver = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER
    with Cluster(tmp_path, request(2, grace_s=1.0), driver=driver) as cluster:
        cluster.start().wait_for("user code runs")
        cluster.signal(signal.SIGTERM)
        begun = time.monotonic()
        assert cluster.wait() == {"algo-1": 143, "algo-2": 0}
        assert time.monotonic() - begun >= 1
        assert "raysm: algo-1 was told to stop (SIGTERM)\n" in cluster.lines["algo-1"]
        assert cluster.recorded() is None
