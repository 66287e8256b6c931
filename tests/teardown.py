"""``python -m tests.teardown --runs 200 --busy 2 --forked``: scripts of two ranks over gloo must end as they say.

Without ``--forked``, one small Ray stands for a formed cluster of one instance. Each run starts the driver as the
bootstrap does, with a payload of ``raysm train``, ``raysm run`` or a ``DataParallel``, and compares its exit status,
the failure that it records and the files that the workers leave. With ``--forked`` a process imports torch once and
forks the two ranks of each run of ``raysm train``, so that only their work and their end take time; ``--plain`` leaves
the end to Python instead, to compare.

``--busy`` keeps cores busy meanwhile, because torch's teardown aborts processes (SIGABRT) most often on a busy machine.
At the end the seconds from a script's last line to its process's end are measured, by plain Python and by raysm. The
exit status is 1 if any run ended otherwise than it should.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cloudpickle

import raysm
from raysm.bootstrap.variables import DRIVER
from raysm.contract.paths import Paths
from raysm.request import JobRequest, Script, TorchScript
from raysm.workloads import script_main
from tests.support.bootstraps import free_ports
from tests.support.driving import drive
from tests.support.payloads import pack_payload
from tests.support.small_ray import small_ray
from tests.workloads.conftest import environment

__all__ = ["main"]

DDP = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
{before}
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
with open(os.environ["SM_MODEL_DIR"] + "/trained-" + os.environ["RANK"], "w") as file:
    file.write("yes")
{after}
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
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    path = os.path.join(os.environ["SM_MODEL_DIR"], f"trained-{os.environ['RANK']}")
    with open(path, "w") as file:
        file.write("yes")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way in which a run ends."""

    code: str | None
    """The script; None is the ``DataParallel`` of ``loop``."""
    trains: bool = True
    """True for ``raysm train``, False for ``raysm run``."""
    status: int = 0
    """The exit status of the driver."""
    reason: str = ""
    """What the reason of the failure begins with."""
    files: tuple[str, ...] = ("trained-0", "trained-1")
    """What the ranks leave."""


# Imports torch once, and forks the two ranks of each run: only what a rank does until its process's end takes time.
FORKING = """
import json, os, runpy, sys
import torch, torch._dynamo, torch.distributed, torch.nn.parallel
from raysm.workloads import script_main
for line in sys.stdin:
    run, children = json.loads(line), []
    for rank in range(2):
        children.append(os.fork())
        if not children[-1]:
            break
    else:
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], flush=True)
        continue
    break
else:
    sys.exit()
os.environ.update(run["variables"], RANK=str(rank), LOCAL_RANK=str(rank))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
log = os.open(run["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 1)
os.dup2(log, 2)
if run["plain"]:
    sys.argv = [run["script"]]
    runpy.run_path(run["script"], run_name="__main__")
else:
    set_exit_status = script_main.leave_at_once_after_exit_handlers()
    exit_status = script_main.main([run["script"]])
    set_exit_status(exit_status)
    sys.exit(exit_status)
"""

FAILS = {"status": 1, "reason": "rank "}
LATE_FILES = ("atexit-0", "atexit-1", "thread-0", "thread-1", "trained-0", "trained-1")

CASES = {
    "train, destroys its group": Case(code=DDP.format(before="", after=DESTROY)),
    "train, keeps its group": Case(code=DDP.format(before="", after="")),
    "train, sys.exit(0)": Case(code=DDP.format(before="", after=f"{DESTROY}\nsys.exit(0)")),
    "train, thread and atexit": Case(code=DDP.format(before=LATE, after=DESTROY), files=LATE_FILES),
    "train, sys.exit(3)": Case(code=DDP.format(before="", after=f"{DESTROY}\nsys.exit(3)"), **{**FAILS, "status": 3}),
    "train, raises": Case(code=DDP.format(before="", after=f"{DESTROY}\nraise ValueError('no such layer')"), **FAILS),
    "run, destroys its group": Case(code=DDP.format(before=OTHER_RANK, after=DESTROY), trains=False),
    "run, keeps its group": Case(code=DDP.format(before=OTHER_RANK, after=""), trains=False),
    "DataParallel": Case(code=None),
}


def main(arguments=None):
    """Run the cases in turn; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.teardown", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=len(CASES))
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy beside the runs")
    parser.add_argument("--only", default="", help="run only the cases whose names begin so")
    parser.add_argument("--forked", action="store_true", help="fork the ranks of raysm train, without Ray")
    parser.add_argument("--plain", action="store_true", help="with --forked: end the ranks as Python does, to compare")
    options = parser.parse_args(arguments)
    cases = {name: case for name, case in CASES.items() if name.startswith(options.only)}
    ended, wrong = Counter(), Counter()
    if options.forked:
        cases = {name: case for name, case in cases.items() if case.trains and case.code is not None}
        runner = forked_runs(options.plain)
    else:
        runner = driver_runs()
    with runner as run, busy_cores(options.busy):
        for number in range(options.runs):
            name = list(cases)[number % len(cases)]
            begun_s = time.monotonic()
            fault = run(cases[name])
            ended[name] += 1
            wrong[name] += bool(fault)
            print(f"{number + 1} {name}: {fault or 'ok'} ({time.monotonic() - begun_s:.1f} s)", flush=True)
    for name in ended:
        print(f"{ended[name] - wrong[name]} of {ended[name]}  {name}")
    print(f"{ended.total() - wrong.total()} of {ended.total()} ended as they should, {options.busy} busy loops beside")
    plain, ours = (statistics.median(seconds_to_end(how) for _ in range(5)) for how in (plain_command, raysm_command))
    print(
        f"from the last line of a torch script to its process's end: {plain:.2f} s by plain Python, {ours:.2f} s here"
    )
    return 1 if wrong.total() else 0


@contextlib.contextmanager
def forked_runs(plain):
    """Yield what runs a case in two forked ranks and returns what is wrong; ``plain`` leaves their end to Python."""
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen([sys.executable, "-c", FORKING], stdin=-1, stdout=-1, text=True) as forking,
    ):
        folder = Path(name)

        def run(case):
            model = folder / "model"
            shutil.rmtree(model, ignore_errors=True)
            model.mkdir()
            (folder / "user.py").write_text(case.code)
            (folder / "log").write_text("")
            variables = {
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_ports(1)[0]),
                "OMP_NUM_THREADS": "1",
                "SM_MODEL_DIR": str(model),
            }
            told = {"script": str(folder / "user.py"), "log": str(folder / "log"), "plain": plain}
            forking.stdin.write(json.dumps(told | {"variables": variables}) + "\n")
            forking.stdin.flush()
            statuses = json.loads(forking.stdout.readline())
            files = tuple(sorted(path.name for path in model.iterdir()))
            if statuses == [case.status] * 2 and files == case.files:
                return ""
            return f"ended with {statuses}, left {files}\n{(folder / 'log').read_text()}"

        yield run
        forking.stdin.close()


@contextlib.contextmanager
def driver_runs():
    """Yield what runs a case as the product does, on a cluster of one instance, and returns what is wrong."""
    with formed_cluster() as folder:
        yield partial(drive_case, folder=folder)


@contextlib.contextmanager
def formed_cluster():
    """Yield the folder of a Ray of one instance, which every process started meanwhile finds."""
    folder = Path(tempfile.mkdtemp(prefix="td", dir="/tmp"))  # short: Ray keeps sockets below it
    try:
        (folder / "token").write_text("0" * 64)
        config = folder / "ml" / "input" / "config"
        config.mkdir(parents=True)
        (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
        # Ray's workers have the environment of the Ray that is started here.
        os.environ["SM_MODEL_DIR"] = str(Paths(folder / "ml").model)
        with environment(folder), small_ray(folder / "r") as address:
            os.environ["RAY_ADDRESS"] = address
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def busy_cores(count):
    """Keep so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
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
        (work / "user.py").write_text(case.code)
        script = str(work / "user.py")
        workload = TorchScript(script, workers_per_instance=2) if case.trains else Script(script)
        function = None
    pack_payload(JobRequest(name="teardown", workload=workload), paths.payload, function=function)
    done, failure = drive(paths, work, **DRIVER)
    reason = failure.reason() if failure else ""
    files = tuple(sorted(path.name for path in paths.model.iterdir() if path.name != "manifest.json"))
    if done.returncode == case.status and reason.startswith(case.reason) and files == case.files:
        return ""
    return f"ended with {done.returncode}, {reason!r}, left {files}\n{done.stdout}{done.stderr}"


LAST_LINE = """
import torch, torch.nn, time
from torch import distributed
tensor = torch.zeros(1000, 1000)
print(time.time(), flush=True)
"""


def plain_command(script):
    """Return how plain Python runs a script."""
    return [sys.executable, script]


def raysm_command(script):
    """Return how a worker of a job runs it."""
    return script_main.command(script, [])


def seconds_to_end(command):
    """Return the seconds from the last line of a torch script to its process's end."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(LAST_LINE)
        script.flush()
        done = subprocess.run(command(script.name), capture_output=True, text=True, check=True)
        return time.time() - float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
