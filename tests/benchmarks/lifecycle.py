"""How long a cluster takes to form and to end: raysm beside a plain `ray start` by hand, in turn, in one run.

    python3 tests/benchmarks/lifecycle.py [--instances 3] [--runs 3]

Needs Linux and root. All times begin when the instances have been started. ``by hand`` are
`ray start` and `ray stop` on each instance; ``Ray itself`` is the moment at which the GCS lists all
nodes.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from raysm.core.request import Cluster
from raysm.local.instances import InstanceSpec
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.share import measure, split
from raysm.local.logs import LogPump
from tests.support.jobs import Log, script_request, started

GOALS = {"forming / Ray itself": 0.6, "all gone, s": 5.0, "workers gone, s": 2.0}

HEAD = """
address=$(getent hosts algo-1 | cut -d" " -f1)
python -c '{watch}' &
ray start --head --node-ip-address=$address --port=6379 --dashboard-host=0.0.0.0 --num-cpus={cpus} \
    --disable-usage-stats > /tmp/ray.log 2>&1 || cat /tmp/ray.log
python -c '{script}'
ray stop > /dev/null 2>&1
"""

WORKER = """
head=$(getent hosts algo-1 | cut -d" " -f1)
address=$(hostname -I | cut -d" " -f1)
until (exec 3<> /dev/tcp/$head/6379) 2> /dev/null; do sleep 0.05; done
ray start --address=$head:6379 --node-ip-address=$address --num-cpus={cpus} > /tmp/ray.log 2>&1 || cat /tmp/ray.log
until [ -e /opt/ml/output/over ]; do sleep 0.02; done
ray stop > /dev/null 2>&1
"""

WATCH = """
import socket, time, ray
from ray._raylet import GcsClient
head = socket.gethostbyname("algo-1")
while True:
    try:
        socket.create_connection((head, 6379), 1).close()
        break
    except OSError:
        time.sleep(0.02)
while True:
    try:
        nodes = GcsClient(f"{{head}}:6379").get_all_node_info()
        if sum(node.state == 0 for node in nodes.values()) == {count}:
            break
    except Exception:
        pass
    time.sleep(0.05)
print("all nodes are registered", flush=True)
"""

SCRIPT = """
import ray, time
ray.init(address="algo-1:6379", log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < {count}:
    time.sleep(0.05)
print("first line", flush=True)
print("last line", flush=True)
"""


def by_raysm(folder, count):
    request = script_request(
        folder, "print('first line', flush=True)", cluster=Cluster(count=count)
    )
    with started(request, folder / "job") as (job, log):
        first_s = log.wait_for_text("first line", 120)[0]
        outcome = job.wait(timeout_s=60)
    assert outcome.status == "Completed", outcome.failure_reason
    gone_s = {
        host: moment - time.time() + time.monotonic() - first_s
        for host, moment in outcome.exited_s.items()
    }
    begun_s = outcome.started_s - time.time() + time.monotonic()
    return {"first line": first_s - begun_s} | gone(gone_s)


def by_hand(folder, count):
    log = Log()
    hosts = [f"algo-{number + 1}" for number in range(count)]
    shares = split(measure(), count)
    with NamespaceSite() as site, contextlib.closing(LogPump(log)) as pump:
        specs = []
        for number, host in enumerate(hosts):
            private = folder / host
            (private / "ml" / "output").mkdir(parents=True)
            words = {"count": count, "cpus": shares[number].cpus}
            programs = {"watch": WATCH.format(**words), "script": SCRIPT.format(**words)}
            text = HEAD if number == 0 else WORKER
            specs.append(
                InstanceSpec(
                    host=host,
                    base=private / "ml",
                    private=private,
                    command=("bash", "-c", text.format(**words, **programs)),
                    variables={"PATH": f"{Path(sys.executable).parent}:{os.defpath}"},
                    log_fd=pump.open(host, private / "log"),
                    share=shares[number],
                )
            )
        instances = site.start(specs)
        pump.release()
        begun_s = time.monotonic()
        registered_s = log.wait_for_text("all nodes are registered", 180)[0]
        first_s = log.wait_for_text("last line", 180)[0]
        for host in hosts:
            (folder / host / "ml" / "output" / "over").touch()
        gone_s = {}

        def until_gone(instance):
            instance.wait(60)
            gone_s[instance.host] = time.monotonic() - first_s

        waiting = [threading.Thread(target=until_gone, args=(instance,)) for instance in instances]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
    return {"registered": registered_s - begun_s, "first line": first_s - begun_s} | gone(gone_s)


def gone(gone_s):
    return {
        "workers gone": max(s for host, s in gone_s.items() if host != "algo-1"),
        "all gone": max(gone_s.values()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    runs = {"raysm": [], "by hand": []}
    for number in range(arguments.runs):
        for name, measured in (("raysm", by_raysm), ("by hand", by_hand)):
            with tempfile.TemporaryDirectory() as folder:
                runs[name].append(measured(Path(folder), arguments.instances))
            print(
                f"run {number + 1}, {name}: { ({key: round(s, 2) for key, s in runs[name][-1].items()}) }",
                flush=True,
            )
    report(runs, arguments)


def report(runs, arguments):
    def median(name, key):
        return statistics.median(run[key] for run in runs[name])

    print(f"\n{arguments.instances} instances, medians of {arguments.runs} runs in turn, seconds")
    print(f"{'':32}{'raysm':>8}{'by hand':>10}{'Ray itself':>12}")
    print(
        f"{'started -> first line':32}{median('raysm', 'first line'):8.2f}{median('by hand', 'first line'):10.2f}"
        f"{median('by hand', 'registered'):12.2f}"
    )
    for key in ("workers gone", "all gone"):
        print(
            f"{'last line -> ' + key:32}{median('raysm', key):8.2f}{median('by hand', key):10.2f}"
        )
    ratios = [
        r["first line"] / h["registered"]
        for r, h in zip(runs["raysm"], runs["by hand"], strict=True)
    ]
    found = {
        "forming / Ray itself": statistics.median(ratios),
        "all gone, s": median("raysm", "all gone"),
        "workers gone, s": median("raysm", "workers gone"),
    }
    for name, goal in GOALS.items():
        print(
            f"{name}: {found[name]:.2f} (goal: at most {goal}) {'holds' if found[name] <= goal else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
