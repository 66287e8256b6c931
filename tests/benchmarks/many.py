"""How a head copes with many instances: emulated ones form clusters, and simulated members speak its protocol.

    python3 -m tests.benchmarks.many [--instances 8 24 48] [--members 1000] [--runs 3]

The first table needs Linux and root. Its instances are network namespaces of this machine with Ray in each, so they
share its cores: the seconds are those of this machine, the processor seconds and the memory of the head are its own.
The second table needs neither. Its members are coroutines that join, send heartbeats and leave as workers do, without
Ray, against a real head. The third is the user's side: the status and the log of a job that has as many streams.
``--instances 0`` and ``--members 0`` leave tables out.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from raysm.core.client.job.description import Status
from raysm.core.client.logs.stalls import find_stall
from raysm.core.client.logs.stream import JobStream
from raysm.core.client.submit import submit
from raysm.core.protocol.control_line import MAX_LINE, ask_head
from raysm.core.protocol.home import ServerRecord, jobs_folder
from raysm.core.protocol.names import LOCAL_REGION
from raysm.core.protocol.result import own_manifest
from raysm.core.request import Cluster as ClusterRequest
from raysm.core.request import Local
from raysm.features.script.request import Script
from tests.support import bootstraps
from tests.support.homes import in_home, serving
from tests.support.jobs import script_request, started
from tests.support.members import LOOPBACK, Members
from tests.support.processes import inside
from tests.support.waiting import until

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FORMING_S = 600.0
QUIET_S = 10.0
"""Seconds in which nothing but heartbeats is sent."""
SILENCE_S = 15.0
REGISTER_S = 2.0
"""Seconds within which the members' Ray nodes register."""
LINES = 5
OUTPUTS = 1
"""Files of the result that each member has."""

SCRIPT = """
import os, statistics, time
print("first line", flush=True)
from ray._raylet import GcsClient
client, took = GcsClient(os.environ["RAY_ADDRESS"]), []
for _ in range(20):
    begun_s = time.perf_counter()
    client.get_all_node_info()
    took.append(time.perf_counter() - begun_s)
print(f"nodes: {statistics.median(took)}", flush=True)
time.sleep(3600)
"""
"""Also measures how long the GCS takes to list its nodes, which the head asks for while it forms."""

DRIVER = """
import os, time
from pathlib import Path
from raysm.core.protocol.result import MODEL_FILE, Manifest, described_file

model = Path(os.environ["SM_MODEL_DIR"])
model.mkdir(exist_ok=True)
(model / "own.bin").write_bytes(b"of the head")
file = described_file("own.bin", 11, "0" * 64)
Manifest(
    job="many", workload={}, inputs={}, files=(file,), versions={}, instances=("algo-1",), phases_s={}
).write(model)
print("user code runs", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
"""


def cpu_s(pid, *, children=False):
    """Return the processor seconds of a process, and with ``children`` of those that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) * TICK_S


def memory_bytes(pid, key="Pss"):
    name = "smaps_rollup" if key == "Pss" else "status"
    for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


# -- emulated instances


def form(folder, count):
    """Form a cluster of emulated instances; return seconds, and what the head's processes have used."""
    request = script_request(folder, SCRIPT, cluster=ClusterRequest(count=count))
    with started(request, folder / "job") as (job, log):
        begun_s = time.monotonic()
        load = os.getloadavg()[0]
        first_s = log.wait_for_text("first line", FORMING_S)[0]
        head = job._instances["algo-1"].pid
        used = {"bootstrap": [0.0, 0], "Ray": [0.0, 0]}
        for pid in inside(head):
            name = "bootstrap" if pid == head else "Ray"
            with contextlib.suppress(OSError, KeyError):
                used[name][0] += cpu_s(pid, children=pid != head)
                used[name][1] += memory_bytes(pid)
        listing_s = float(log.wait_for_text("nodes: ")[2].partition(": ")[2])
        formed_s = next(
            moment for moment, _, text in log.lines if '"formed"' in text and '"state"' in text
        )
    return {
        "formed": formed_s - begun_s,
        "first line": first_s - begun_s,
        "cpu": used["bootstrap"][0],
        "memory": used["bootstrap"][1],
        "ray cpu": used["Ray"][0],
        "ray memory": used["Ray"][1],
        "listing": listing_s,
        "load": load,
    }


def print_forming(counts, runs):
    rows = []
    for count in counts:
        found = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                found.append(form(Path(folder), count))
            shown = {name: round(value, 4) for name, value in found[-1].items()}
            print(f"{count} instances: {shown}", flush=True)
        rows.append(
            (count, {key: statistics.median(one[key] for one in found) for key in found[0]})
        )
    print(f"\nEmulated instances on {os.cpu_count()} cores, medians of {runs} runs")
    print(
        f"{'instances':>9}{'formed, s':>11}{'first line, s':>15}{'bootstrap':>11}{'its MB':>8}"
        f"{'Ray and driver':>16}{'their MB':>10}{'node list':>11}{'load':>6}"
    )
    for count, one in rows:
        print(
            f"{count:>9}{one['formed']:>11.1f}{one['first line']:>15.1f}{one['cpu']:>9.2f} s"
            f"{one['memory'] / 1e6:>8.0f}{one['ray cpu']:>14.2f} s{one['ray memory'] / 1e6:>10.0f}"
            f"{one['listing'] * 1e3:>8.1f} ms{one['load']:>6.1f}"
        )
    print("The processor seconds are those of the head, from its start to the first line.\n")


# -- simulated members


class Head:
    """The bootstrap of the head, and what it has used since the last question."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.pid = cluster.processes["algo-1"].pid
        self._cpu_s = cpu_s(self.pid)

    def used_s(self):
        before, self._cpu_s = self._cpu_s, cpu_s(self.pid)
        return self._cpu_s - before

    async def line(self, text, timeout_s=FORMING_S):
        """Wait for a line of the head's log; return the moment at which it was seen."""
        deadline_s = time.monotonic() + timeout_s
        while not any(text in line for line in list(self.cluster.lines["algo-1"])):
            has_ended = self.cluster.processes["algo-1"].poll() is not None
            if has_ended or time.monotonic() > deadline_s:
                raise TimeoutError(f"no {text!r} in:\n{self.cluster.log('algo-1')[-3000:]}")
            await asyncio.sleep(0.005)
        return time.monotonic()


async def ask_stacks(instance):
    """Ask the head for the stacks of all instances, as ``raysm stacks`` does."""
    reader, writer = await asyncio.open_connection(LOOPBACK, instance.ports.control, limit=MAX_LINE)
    try:
        return await ask_head(reader, writer, instance.payload.token(), {"kind": "stacks"})
    finally:
        writer.close()


async def live(cluster):
    """Let members join, lose some, and end; return rows of (what, seconds, processor seconds, note)."""
    members = Members(cluster, outputs=OUTPUTS, register_s=REGISTER_S)
    count = len(members.members)
    cluster.start("algo-1")
    head, rows = Head(cluster), []
    try:
        await head.line('"joined"')
        # The GCS of the stand-in answers; the bootstrap has done nothing else meanwhile.
        await asyncio.sleep(1.0)
        head.used_s()
        empty = memory_bytes(head.pid, "VmRSS")
        begun_s = time.monotonic()
        await members.join()
        all_s = time.monotonic() - begun_s
        await head.line(f'"count": {count + 1}')
        used_s = head.used_s()
        retries = sum(member.attempts for member in members.members.values())
        note = f"{count / all_s:.0f} joins/s, {used_s / count * 1e3:.2f} ms of the head each, {retries} retries"
        rows.append(("all join at once", all_s, used_s, note))
        begun_s = await head.line('"formed"')
        rows.append(("registered -> formed", begun_s - members.registered_s, head.used_s(), ""))
        await head.line("user code runs")
        await asyncio.sleep(1.0)
        memory = memory_bytes(head.pid, "VmRSS")
        note = f"head: {memory / 1e6:.0f} MB, {(memory - empty) / count / 1e3:.0f} KB a member"
        head.used_s()
        await asyncio.sleep(QUIET_S)
        rows.append((f"{QUIET_S:.0f} s of heartbeats", QUIET_S, head.used_s(), note))
        begun_s = time.monotonic()
        answer = await ask_stacks(members.instance)
        rows.append(
            ("stacks of all", time.monotonic() - begun_s, head.used_s(), f"{len(answer):,} bytes")
        )
        names = list(members.members)
        begun_s = time.monotonic()
        await members.members[names[-1]].lose()
        named_s = await head.line(f"{names[-1]} lost: closed") - begun_s
        rows.append(("a closed connection is named", named_s, head.used_s(), ""))
        begun_s = time.monotonic()
        await members.members[names[-2]].freeze()
        named_s = await head.line(f"{names[-2]} lost: said nothing") - begun_s
        note = f"silence_s is {SILENCE_S:g}"
        rows.append(("a silent member is named", named_s, head.used_s(), note))
        begun_s = time.monotonic()
        cluster.go()
        await members.wait_until_over(FORMING_S)
        before_s = head.used_s()
        while cluster.processes["algo-1"].poll() is None:
            with contextlib.suppress(OSError):
                before_s += head.used_s()
            await asyncio.sleep(0.01)
        files = own_manifest(members.instance.environment.paths.model).files
        note = f"{len(files):,} files in the manifest, exit code {cluster.wait()['algo-1']}"
        rows.append(("end, and outputs gathered", time.monotonic() - begun_s, before_s, note))
    finally:
        await members.close()
    lines = cluster.lines["algo-1"]
    rows.append(
        ("the head's log", None, None, f"{len(lines):,} lines, {sum(map(len, lines)):,} bytes")
    )
    return rows


def simulate(folder, count):
    job = bootstraps.request(count + 1, silence_s=SILENCE_S, on_instance_loss="continue")
    with bootstraps.Cluster(folder, job, driver=DRIVER, startable=["algo-1"]) as cluster:
        return asyncio.run(live(cluster))


def print_members(count, runs):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Of this process alone, which has the other ends; the head raises its own.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * count + 512)), hard))
    every = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            every.append(simulate(Path(folder), count))
        for row in every[-1]:
            print(row, flush=True)
    print(f"\n{count:,} simulated members, medians of {runs} runs; the head is one process")
    print(f"{'':32}{'seconds':>9}{'head, CPU s':>13}")
    for rows in zip(*every, strict=True):
        what, *_, note = rows[-1]
        seconds, used_s = (
            "" if rows[0][place] is None else f"{statistics.median(row[place] for row in rows):.2f}"
            for place in (1, 2)
        )
        print(f"{what:32}{seconds:>9}{used_s:>13}  {note}")


# -- the user's side


def read_log(folder, count):
    """Ask for the status and the log of a job with ``count`` instances, whose log each has ``LINES`` lines."""
    with serving(folder / "home") as home, in_home(home):
        script = folder / "main.py"
        script.write_text("")
        job = submit(
            Script(str(script)),
            name="many",
            # The streams below are all that is there of the other instances.
            cluster=ClusterRequest(count=1),
            on=Local(instance_kind="simulated"),
        )
        until(lambda: job.status is Status.IN_PROGRESS)
        streams = jobs_folder(home, job.chain.api.kind, LOCAL_REGION) / job.name / "streams"
        streams.mkdir(exist_ok=True)
        for number in range(1, count + 1):
            now_ms = int(time.time() * 1000)
            lines = (json.dumps([now_ms, f"line {line}"]) + "\n" for line in range(LINES))
            (streams / f"algo-{number}-1").write_text("".join(lines))
        server = ServerRecord.read(home).pid
        rows = []

        def measured(what, work):
            begun_s, own_s, server_s = time.monotonic(), time.process_time(), cpu_s(server)
            found = work()
            spent = time.monotonic() - begun_s, time.process_time() - own_s
            rows.append((what, *spent, f"{cpu_s(server) - server_s:.2f} s of the server; {found}"))

        stream = JobStream(job.chain)
        measured("raysm status", lambda: (job.status.value, find_stall(job.chain)))
        measured("all lines", lambda: f"{sum(1 for _ in stream.new_lines(whole=False)):,} lines")
        measured(
            "a look for new lines", lambda: f"{sum(1 for _ in stream.new_lines(whole=False))} new"
        )
        job.stop()
    return rows


def print_log(count):
    with tempfile.TemporaryDirectory() as folder:
        rows = read_log(Path(folder), count)
    print(f"\nA job of the embedded SageMaker with {count:,} instances, each with {LINES} lines")
    print(f"{'':32}{'seconds':>9}{'own CPU s':>13}")
    for what, seconds, used_s, note in rows:
        print(f"{what:32}{seconds:>9.2f}{used_s:>13.2f}  {note}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, nargs="*", default=[8, 24, 48])
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    counts = [count for count in arguments.instances if count]
    if counts:
        print_forming(counts, arguments.runs)
    if arguments.members:
        print_members(arguments.members, arguments.runs)
        print_log(arguments.members)


if __name__ == "__main__":
    main()
