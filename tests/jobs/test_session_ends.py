"""How sessions end, each on a cluster of its own: closed, left alone by a client that was killed, and by their head."""

import os
import signal
import subprocess
import sys
import time

import pytest

import raysm
from raysm.errors import SessionEnded
from raysm.features.session.protocol import CLOSING
from tests.support.jobs import ENDS_S, FORMING_S
from tests.support.waiting import until

pytestmark = [pytest.mark.usefixtures("home", "by_value"), pytest.mark.long]

ONE = raysm.Cluster(count=1)


def nothing():
    pass


def reasons(job):
    return [event.detail for event in job.events() if getattr(event, "name", "") == CLOSING]


def test_one_that_is_closed_ends_its_job_and_the_calls_that_run():
    session = raysm.Session(cluster=ONE, name="closed").start()
    job, call = session.job, session.submit(time.sleep, 600)
    until(lambda: call.status.state == "running", FORMING_S)
    session.close()
    assert job.status == "Completed"
    assert reasons(job) == ["it was closed"]
    # The cores are free: the next session starts without waiting for them.
    other = raysm.Session(cluster=raysm.Cluster(count=os.cpu_count()), name="next").start()
    messages = [
        entry["Status"] for entry in other.job.describe().answer["SecondaryStatusTransitions"]
    ]
    assert "Pending" not in messages
    other.close()
    with pytest.raises(SessionEnded, match=" sleep .*it was closed"):
        call.result(timeout=60)
    with pytest.raises(SessionEnded, match="not open"):
        session.run(nothing)


LEFT = """
import raysm
session = raysm.Session(cluster=raysm.Cluster(count=1), name="left", idle_timeout_detached_s=3).start()
print(session.job.name, flush=True)
session.exec("import time; time.sleep(3)")

"""


def test_one_whose_client_is_killed_ends_when_it_has_been_idle():
    client = subprocess.Popen([sys.executable, "-c", LEFT], stdout=subprocess.PIPE, text=True)
    job = raysm.attach(client.stdout.readline().strip())
    client.kill()
    client.communicate()
    assert job.wait(timeout=ENDS_S) == "Completed"
    assert reasons(job) == ["idle for 3 s with no client attached"]


def test_one_whose_process_a_cell_leaves_by_os_exit_has_failed():
    session = raysm.Session(cluster=ONE, name="left-by-a-cell").start()
    job = session.job
    with pytest.raises(SessionEnded, match=" left-by-a-cell .* Failed"):
        session.exec("import os; os._exit(0)")
    assert job.wait(timeout=ENDS_S) == "Failed"
    assert "os._exit" in job.describe().reason
    session.detach()


@pytest.mark.parametrize("victim", ["os.getpid()", "os.getppid()"], ids=["driver", "bootstrap"])
def test_one_whose_head_is_killed_says_so_to_who_waits(victim):
    session = raysm.Session(cluster=ONE, name="doomed").start()
    job, call = session.job, session.submit(time.sleep, 600)
    until(lambda: call.status.state == "running", FORMING_S)
    session.exec(f"import os; victim = {victim}")
    os.kill(session.pull("victim"), signal.SIGKILL)
    with pytest.raises(SessionEnded, match=" doomed .* Failed"):
        call.result(timeout=ENDS_S)
    with pytest.raises(SessionEnded, match=" doomed "):
        session.run(nothing)
    assert job.wait(timeout=ENDS_S) == "Failed"
    session.detach()
