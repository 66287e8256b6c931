"""``python -m tests.teardown --runs 200 --busy 2``: scripts of two ranks over gloo must end as they say.

One small Ray stands for a cluster, and each run starts the driver as the bootstrap does. ``--busy``
keeps cores busy, because torch's teardown aborts processes (SIGABRT) most often on a busy machine.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cloudpickle

import raysm
from raysm.core.protocol.paths import Paths
from raysm.core.request import JobRequest
from raysm.features.script.request import Script
from raysm.features.training.request import TorchScript
from raysm.instance.variables import DRIVER
from tests.support.driving import drive
from tests.support.payloads import pack_payload
from tests.support.ray_fixtures import environment
from tests.support.small_ray import small_ray

LOOP = """
import os
import torch
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
with open(os.environ["SM_MODEL_DIR"] + "/trained-" + os.environ["RANK"], "w") as file:
    file.write("yes")
"""

DESTROY = "dist.destroy_process_group()"

LATE = """
import atexit, threading
def late(name):
    time.sleep(0.2)
    open(os.environ["SM_MODEL_DIR"] + f"/{name}-" + os.environ["RANK"], "w").write("yes")
threading.Thread(target=late, args=["thread"]).start()
atexit.register(late, "atexit")
"""

# Both ranks of a script that ``raysm run`` runs on the head: the other one is a process of its own.
OTHER_RANK = """
import subprocess
if "RANK" not in os.environ:
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK="0")
    other = subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": "1"})
"""


def loop():
    """Train as the scripts do, in a worker of Ray Train."""
    exec(LOOP)


def script(after, before=""):
    start = "import os, sys, time\nimport torch, torch.distributed as dist\n"
    return f'{start}{before}dist.init_process_group("gloo"){LOOP}{after}'


class Case(NamedTuple):
    """One way in which a run ends."""

    code: str | None
    """The script; None is the ``DataParallel`` of ``loop``."""
    trains: bool = True
    """True for ``raysm train``, False for ``raysm run``."""
    status: int = 0
    reason: str = ""
    """What the reason of the failure begins with."""
    files: tuple[str, ...] = ("trained-0", "trained-1")
    """What the ranks leave."""


LATE_FILES = ("atexit-0", "atexit-1", "thread-0", "thread-1", "trained-0", "trained-1")

CASES = {
    "train, destroys its group": Case(script(DESTROY)),
    "train, keeps its group": Case(script("")),
    "train, sys.exit(0)": Case(script(f"{DESTROY}\nsys.exit(0)")),
    "train, thread and atexit": Case(script(DESTROY, LATE), files=LATE_FILES),
    "train, sys.exit(3)": Case(script(f"{DESTROY}\nsys.exit(3)"), status=3, reason="rank "),
    "train, raises": Case(
        script(f"{DESTROY}\nraise ValueError('no such layer')"), status=1, reason="rank "
    ),
    "run, destroys its group": Case(script(DESTROY, OTHER_RANK), trains=False),
    "run, keeps its group": Case(script("", OTHER_RANK), trains=False),
    "DataParallel": Case(None),
}


def main(arguments=None):
    """Run the cases in turn; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.teardown", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=len(CASES))
    parser.add_argument(
        "--busy", type=int, default=0, help="processes that keep a core busy beside the runs"
    )
    parser.add_argument("--only", default="", help="run only the cases whose names begin so")
    options = parser.parse_args(arguments)
    cases = {name: case for name, case in CASES.items() if name.startswith(options.only)}
    ended, wrong = Counter(), Counter()
    with driver_runs() as run, busy_cores(options.busy):
        for number in range(options.runs):
            name = list(cases)[number % len(cases)]
            begun_s = time.monotonic()
            fault = run(cases[name])
            ended[name] += 1
            wrong[name] += bool(fault)
            print(
                f"{number + 1} {name}: {fault or 'ok'} ({time.monotonic() - begun_s:.1f} s)",
                flush=True,
            )
    for name in ended:
        print(f"{ended[name] - wrong[name]} of {ended[name]}  {name}")
    print(
        f"{ended.total() - wrong.total()} of {ended.total()} ended as they should, {options.busy} busy loops beside"
    )
    return 1 if wrong.total() else 0


@contextlib.contextmanager
def driver_runs():
    """Yield what runs a case as the product does, on a Ray of one instance, and returns what is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="td", dir="/tmp"))  # short: Ray keeps sockets below it
    try:
        (folder / "token").write_text("0" * 64)
        config = folder / "ml" / "input" / "config"
        config.mkdir(parents=True)
        (config / "resourceconfig.json").write_text(
            '{"current_host": "algo-1", "hosts": ["algo-1"]}'
        )
        # Ray's workers have the environment of the Ray that is started here.
        os.environ["SM_MODEL_DIR"] = str(Paths(folder / "ml").model)
        with environment(folder), small_ray(folder / "r") as address:
            os.environ["RAY_ADDRESS"] = address
            yield partial(drive_case, folder=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def busy_cores(count):
    loops = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop_process in loops:
            loop_process.kill()
            loop_process.wait()


def drive_case(case, folder):
    """Run a case to its end; return what is wrong, empty where nothing is."""
    paths, work = Paths(folder / "ml"), folder / "work"
    for left in (paths.model, paths.payload, work):
        shutil.rmtree(left, ignore_errors=True)
    for made in (paths.model, work):
        made.mkdir(parents=True)
    if case.code is None:
        workload = raysm.DataParallel(loop, workers_per_instance=2).workload()
        function = cloudpickle.dumps((loop, (), {}))
    else:
        path = work / "user.py"
        path.write_text(case.code)
        workload = (
            TorchScript(str(path), workers_per_instance=2) if case.trains else Script(str(path))
        )
        function = None
    pack_payload(JobRequest(name="teardown", workload=workload), paths.payload, function=function)
    done, failure = drive(paths, work, **DRIVER)
    reason = failure.reason() if failure else ""
    files = tuple(
        sorted(path.name for path in paths.model.iterdir() if path.name != "manifest.json")
    )
    if done.returncode == case.status and reason.startswith(case.reason) and files == case.files:
        return ""
    return f"ended with {done.returncode}, {reason!r}, left {files}\n{done.stdout}{done.stderr}"


if __name__ == "__main__":
    sys.exit(main())
