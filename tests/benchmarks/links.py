"""The model beside what is measured on links that are throttled: rows that are shared out, compared.

    python3 tests/benchmarks/links.py [--instances 3] [--rates 50 20 10] [--rows 3000] [--columns 8192]

Needs Linux, root and `tc` (instances of kind namespace, the kernel's token bucket). Rows of many columns are much to
bring and little to compute, so that the link is what is waited for. Each instance's link takes so many Mbit/s of what
it sends, in turn in one job. One line for each rate: how long the comparing took, what the model says of all of it, and
its terms `travel` and `alone`, and what was seen to leave the busiest instance. The first line, without a limit, is the
computing alone, which the model takes for its term `product`: these cores, and what else they do, it does not know.
What leaves there beside rows (keys, acknowledgements, Ray's own messages), and the headers of frames, travel too.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from raysm.request import Cluster, Input, Similarity
from raysm.workloads.similarity.sizing.scaling import alone_s
from raysm.workloads.similarity.sizing.spread import ring_share
from tests.support.jobs import completed, script_request

FRAME_SHARE = 1448 / 1514
"""What TCP brings in a frame of Ethernet, of what the link's token bucket counts of it."""

SCRIPT = """
import json, subprocess, sys
from pathlib import Path
import ray
from raysm.bootstrap.log import emit_event
from raysm.contract.names import LABEL_HOST
from raysm.request import Similarity
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.run import Folders, run

count, rates = json.loads(sys.argv[1])
ray.init(address="auto", log_to_driver=False)
model = Path("/opt/ml/model")


@ray.remote(num_cpus=0)
def limit(rate):
    # What an instance may send: all that comes to one was sent by others. The queue is short: one of half a second
    # lies before the acknowledgements of what the others send, too, and who waits for those lets its own link idle.
    kept = [] if rate is None else ["tbf", "rate", f"{rate}mbit", "burst", "32kb", "latency", "20ms"]
    change = "replace" if kept else "del"
    subprocess.run(["tc", "qdisc", change, "dev", "eth0", "root", *kept], check=bool(kept), capture_output=True)


@ray.remote(num_cpus=0)
def sent():
    (line,) = [line.split() for line in Path("/proc/net/dev").read_text().splitlines() if "eth0:" in line]
    return int(line[9])


def everywhere(task, *arguments):
    hosts = [f"algo-{at}" for at in range(1, count + 1)]
    return ray.get([task.options(label_selector={LABEL_HOST: host}).remote(*arguments) for host in hosts])


measured = []
# The first is for what every process has to import, and is not kept.
for at, rate in enumerate([None, None, *rates]):
    everywhere(limit, rate)
    before = everywhere(sent)
    folders = Folders(result=model / str(at), records=Path("/opt/ml/scratch") / str(at), lasting=False)
    manifest = run(
        Similarity(top_k=5), job="links", source=Source(channel="matrix", sharded=True), folders=folders,
        emit_event=emit_event,
    )
    left = max(after - start for after, start in zip(everywhere(sent), before))
    rows = max(value for name, value in manifest.measures.items() if name.startswith("sent_bytes_"))
    seconds, tasks = manifest.phases_s["similarity"], manifest.measures["blocks"]
    measured.append({"rate": rate, "seconds": seconds, "tasks": tasks, "left": left, "rows": rows})
everywhere(limit, None)
(model / "links.json").write_text(json.dumps(measured[1:]))
"""


def measured(folder, instances, rates, rows, columns):
    """Run the job; return what it measured, one dictionary a rate."""
    matrix = folder / "matrix"
    matrix.mkdir()
    rng = np.random.default_rng(0)
    for at, share in enumerate(np.array_split(np.arange(rows), 2 * instances)):
        np.save(matrix / f"part-{at}.npy", rng.random((len(share), columns), dtype=np.float32) - np.float32(0.5))
    inputs = {"matrix": Input(str(matrix), distribution="ShardedByS3Key")}
    cluster = Cluster(count=instances)
    arguments = (json.dumps([instances, rates]),)
    request = script_request(folder, SCRIPT, args=arguments, cluster=cluster, inputs=inputs)
    # As a job of the similarity is told.
    environment = Similarity.ray_variables
    outcome, log, model = completed(request, folder / "job", timeout_s=1800, environment=environment)
    if outcome.status != "Completed":
        raise SystemExit(f"{outcome.failure_reason}\n{log.text()}")
    return json.loads((model / "links.json").read_text())


def model(instances, rate, line, rows, columns, free):
    """Return the model's seconds for comparing, and of them its terms ``travel`` and ``alone``.

    The line that was measured without a limit, ``free``, says what is not the model's to know: what the comparing takes
    here, and what leaves the busiest instance beside its rows.
    """
    product_s = free["seconds"]
    share = ring_share(instances)
    # Every two chunks are a task, and each with itself.
    chunks = (math.isqrt(8 * int(line["tasks"]) + 1) - 1) / 2
    travel = (rows * columns * 4 * share / FRAME_SHARE + free["left"] - free["rows"]) / (rate * 125_000)
    alone = alone_s(chunks * share, product_s, travel, instances)
    return max(product_s, travel + alone), travel, alone


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--rates", type=int, nargs="+", default=[50, 20, 10], help="Mbit/s of an instance's link")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--columns", type=int, default=8192)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raysm-links-") as folder:
        lines = measured(Path(folder), asked.instances, asked.rates, asked.rows, asked.columns)
    print("| Mbit/s | compared in, s | model, s | of which travel | alone | left the busiest, MB | of them rows, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for line in lines:
        rate, said = line["rate"], ("", "", "")
        if rate is not None:
            costs = model(asked.instances, rate, line, asked.rows, asked.columns, lines[0])
            said = tuple(f"{seconds:.1f}" for seconds in costs)
        figures = (f"{line['seconds']:.1f}", *said, f"{line['left'] / 1e6:.1f}", f"{line['rows'] / 1e6:.1f}")
        print(f"| {' | '.join([str(rate or 'no limit'), *figures])} |")


if __name__ == "__main__":
    main()
