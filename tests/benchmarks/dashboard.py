"""What Ray's dashboard costs a job on this machine, and how soon somebody sees it.

    python3 tests/benchmarks/dashboard.py [--looks 20] [--instances 2]

Of the record that the head keeps it is CPU that counts, not time, so that others' work on the machine is not measured:
a look at everything, and one at the instances alone, by the processes that answer (the dashboard, the GCS, the raylets)
and the one that asks. How soon it is seen takes a browser, Debian's chromium; without one it is left out.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

import raysm
from raysm.bootstrap.dashboard_reader import read_dashboard
from raysm.bootstrap.dashboard_recorder import SAMPLE_S, WHOLE_SHARE, DashboardRecorder
from raysm.client.token import token_of
from raysm.contract.home import VARIABLE, ServerRecord
from raysm.contract.node_usage import NODES
from tests.support import browsers
from tests.support.homes import serving

WORK = """
import time
import ray, raysm
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
def square(number):
    return number * number

ray.get([square.remote(number) for number in range(500)])
print("user code runs", flush=True)
time.sleep(3600)
"""

IDLE_S = 20.0
"""Seconds over which is measured what the same processes take without being asked."""

ANSWERING = ("dashboard", "gcs_server", "raylet", "DashboardHead")


def answering(home):
    """Return the processes of the job that answer the dashboard's questions, and this one, which asks them."""
    server = psutil.Process(ServerRecord.read(home).pid)
    named = [child for child in server.children(recursive=True) if _is_answering(child)]
    return [*named, psutil.Process()]


def _is_answering(process):
    try:
        words = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return any(name in words for name in ANSWERING)


def cpu_s(processes):
    """Return the CPU seconds that processes have had."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def cost_s(processes, idle_per_s, look, count):
    """Return the CPU seconds of one look, without what the processes take by themselves meanwhile."""
    began_s, before_s = time.monotonic(), cpu_s(processes)
    for _ in range(count):
        look()
    return (cpu_s(processes) - before_s - idle_per_s * (time.monotonic() - began_s)) / count


def looking(port, token):
    """Return a look at everything, and one at the instances."""

    async def read(key):
        return await read_dashboard(port, token, key)

    recorder = DashboardRecorder(read)
    return lambda: asyncio.run(recorder._snapshot()), lambda: asyncio.run(read(NODES))


def print_cpu(home, port, token, looks):
    processes = answering(home)
    before_s = cpu_s(processes)
    time.sleep(IDLE_S)
    idle_per_s = (cpu_s(processes) - before_s) / IDLE_S
    everything, instances = looking(port, token)
    everything()
    whole_s = cost_s(processes, idle_per_s, everything, looks)
    nodes_s = cost_s(processes, idle_per_s, instances, looks)
    share = WHOLE_SHARE + nodes_s / SAMPLE_S
    print(f"{len(processes) - 1} processes answer; without questions they take {100 * idle_per_s:.1f} % of a core")
    print(f"a look at everything     {1000 * whole_s:7.0f} ms of CPU")
    print(f"a look at the instances  {1000 * nodes_s:7.0f} ms of CPU")
    print(f"the record, at most      {100 * share:7.2f} % of a core")


def print_paints(dashboard, rounds=3):
    if browsers.chromium() is None:
        print("no chromium: how soon the page is seen was not measured")
        return
    paints = "() => performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
    with browsers.running() as browser:
        for _ in range(rounds):
            # A profile of its own, which has nothing of the page yet.
            with browsers.looking(browser) as (context, _seen):
                page = context.new_page()
                began_s = time.monotonic()
                page.goto(f"{dashboard.url}#/overview")
                page.get_by_text("Recent jobs").wait_for()
                shown_s = time.monotonic() - began_s
                (paint_ms,) = page.evaluate(paints)
            print(f"first paint after {paint_ms / 1000:5.2f} s, with what it shows after {shown_s:5.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=20)
    parser.add_argument("--instances", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as home:
        home.mkdir()
        os.environ[VARIABLE] = str(home)
        (Path(folder) / "work.py").write_text(WORK)
        # Processes: their ports are this machine's own.
        where = raysm.Local(instance_kind="process")
        job = raysm.submit(
            raysm.Script(f"{folder}/work.py"), on=where, cluster=raysm.Cluster(count=arguments.instances)
        )
        while not any(line.text == "user code runs" for line in job.lines()):
            time.sleep(0.5)
        began_s = time.monotonic()
        with job.dashboard(timeout=300) as dashboard:
            place = dashboard_port(job)
            token = token_of(job)
            asyncio.run(_answers(place, token))
            print(f"{job.name}: the dashboard answers {time.monotonic() - began_s:.1f} s after it was asked for")
            print_paints(dashboard)
            print_cpu(home, place, token, arguments.looks)
        job.stop()
        job.wait(timeout=120)


def dashboard_port(job):
    """Return the port that the head told."""
    states = [event for event in job.events() if getattr(event, "name", "") == "dashboard"]
    return int(states[-1].address.rpartition(":")[2])


async def _answers(port, token, within_s=120.0):
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return await read_dashboard(port, token, "api/version")
        except (OSError, ValueError):
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
