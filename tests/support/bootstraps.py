"""Bootstraps as plain subprocesses on this machine, with the files that SageMaker would give them."""

import asyncio
import dataclasses
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import raysm
from raysm.core.protocol import events
from raysm.core.protocol.job_api import PROCESSING, TRAINING
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import FAILURE, Failure
from raysm.instance.children import Children, Commands
from raysm.instance.exit_status import ExitStatus
from raysm.instance.instance import prepare
from tests.support.own_process import run_apart
from tests.support.payloads import pack_payload

DEADLINE_S = 300.0
"""Of what happens within seconds on a machine that has nothing else to do."""

FAKE_RAY = Path(__file__).with_name("fake_ray.py")
RAY_STAND_IN = 'ray=(*fake, "ray"), '
NODE_PORTS = (
    "node_manager",
    "object_manager",
    "runtime_env_agent",
    "dashboard_agent",
    "dashboard_agent_grpc",
    "metrics_export",
    "worker_min",
    "worker_max",
)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def request(count=2, *, name="a-job", script="user.py", args=(), grace_s=100.0, **cluster):
    shape = {} if "groups" in cluster else {"count": count}
    return raysm.JobRequest(
        name=name,
        workload=raysm.Script(script, args=args),
        cluster=raysm.Cluster(**shape, **cluster),
        grace_s=grace_s,
    )


def write_training(base, host, hosts, *, hyperparameters=None, **more):
    """Write the configuration files of a training job, as the service does."""
    paths = Paths(base)
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.resource_config.write_text(json.dumps({"current_host": host, "hosts": hosts, **more}))
    paths.hyperparameters.write_text(json.dumps(hyperparameters or {}))
    paths.input_data_config.write_text(json.dumps({"raysm": {"TrainingInputMode": "File"}}))
    return paths


def write_processing(base, host, hosts, **more):
    """Write the configuration files of a processing job, as the service does."""
    paths = Paths(base, PROCESSING)
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.resource_config.write_text(json.dumps({"current_host": host, "hosts": hosts, **more}))
    inputs = [{"InputName": "raysm", "S3Input": {"LocalPath": str(paths.payload)}}]
    paths.description.write_text(
        json.dumps({"ProcessingJobName": "a-job", "ProcessingInputs": inputs})
    )
    return paths


def live(role, instance, after=lambda role: None):
    """Return how a head or a worker in this very process ends, told ``after`` beforehand; nothing of it is left."""

    async def scenario():
        children = Children()
        member = role(instance, children)
        after(member)
        status = ExitStatus(1)
        try:
            status = await asyncio.wait_for(member.run(), DEADLINE_S)
        finally:
            await member.end(status)
            children.close()
        return status

    return run_apart(scenario)


class Cluster:
    """Bootstraps of one job, each a subprocess; nothing of them is left when the context ends.

    ``driver`` is what they run as their driver, or, if ``runner``, the script of its driver. If
    ``fake``, stand-ins take the place of Ray, at a tenth of the time; else ``ray`` may be another
    command than the bootstrap's own. ``variables`` are more variables of every instance. Only
    ``startable`` hosts have files, by default all; ``tests.support.members`` may be the others.
    """

    def __init__(
        self,
        root,
        job,
        *,
        hosts=None,
        driver="pass",
        runner=False,
        fake=True,
        processing=False,
        variables=None,
        ray=None,
        startable=None,
        **resource_config,
    ):
        self.root = root
        self._variables = variables or {}
        self.hosts = hosts or [f"algo-{i + 1}" for i in range(job.cluster.size)]
        self.folder = root / "fake"
        self.folder.mkdir(parents=True)
        self.processes = {}
        self.readers = {}
        self.lines = {host: [] for host in self.hosts}
        self.arrived = queue.Queue()
        self.may_read = threading.Event()
        self.may_read.set()
        self._ray = ray
        self._fake, self._api = fake, PROCESSING if processing else TRAINING
        control, gcs, dashboard = free_ports(3)
        self.ports = {"control": control, "gcs": gcs, "dashboard": dashboard} | dict.fromkeys(
            NODE_PORTS, 0
        )
        script = root / "user.py"
        script.write_text(driver)
        self._driver = (
            (sys.executable, "-m", "raysm.instance.work.driver")
            if runner
            else (sys.executable, str(script))
        )
        packed = root / "payload"
        # What a Script of the request names is the driver; another workload only makes the life
        # cycle its own.
        own = raysm.Script(str(script)) if isinstance(job.workload, raysm.Script) else job.workload
        pickled = (
            None if own.pickled_by is None else b"not called, since the driver is another program"
        )
        pack_payload(dataclasses.replace(job, workload=own), packed, function=pickled)
        for host in startable or self.hosts:
            write = write_processing if processing else write_training
            paths = write(self.base(host), host, self.hosts, **resource_config)
            shutil.copytree(packed, paths.payload)

    def base(self, host):
        return self.root / host

    def failure(self, host):
        path = Paths(self.base(host), self._api).failure
        return path.read_text() if path.exists() else None

    def recorded(self):
        """Return the failure among the outputs of the head, which the client reads; None where there is none."""
        record = Paths(self.base("algo-1"), self._api).output_data / FAILURE
        return Failure.read(record) if record.exists() else None

    def go(self):
        """Let a driver that waits for the file ``go`` go on."""
        (Paths(self.base("algo-1"), self._api).payload / "source" / "go").touch()

    def prepare(self, host):
        """Return the instance of ``host``, with stand-ins for Ray, for a life in this very process."""
        fake = (sys.executable, "-S", str(FAKE_RAY), str(self.folder))
        commands = Commands(ray=(*fake, "ray"), driver=self._driver)
        return prepare(self.environment(host), commands)

    def start(self, *hosts, front=()):
        """Start instances, all or some; with ``front``, a command that is given the bootstrap's as its arguments."""
        for host in hosts or self.hosts:
            process = subprocess.Popen(
                [*front, sys.executable, "-c", self._code()],
                env=self.environment(host),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self.processes[host] = process
            reader = threading.Thread(target=self._read, args=(host, process.stdout), daemon=True)
            reader.start()
            self.readers[host] = reader
        return self

    def _code(self):
        program = f"""
import sys
from raysm.instance.children import Commands
from raysm.instance.supervisor import main
fake = [sys.executable, "-S", {str(FAKE_RAY)!r}, {str(self.folder)!r}]
commands = Commands({RAY_STAND_IN}driver={self._driver!r})
sys.exit(main(commands=commands))
"""
        return (
            program
            if self._fake
            else program.replace(RAY_STAND_IN, f"ray={self._ray!r}, " if self._ray else "")
        )

    def environment(self, host):
        """Return the variables of an instance."""
        index = self.hosts.index(host)
        return os.environ | {
            "SAGEMAKER_BASE_DIR": str(self.base(host)),
            "TRAINING_JOB_NAME": "a-job",
            "RAYSM_PORTS": json.dumps(self.ports),
            "RAYSM_ADDRESSES": json.dumps(dict.fromkeys(self.hosts, "127.0.0.1")),
            "RAYSM_CPUS": "1",
            "RAYSM_MEMORY_BYTES": str(2 * 2**30),
            "RAYSM_OBJECT_STORE_BYTES": str(100 * 2**20),
            "RAYSM_RAY_TEMP_DIR": self.ray_temp(index),
            "RAY_AUTH_TOKEN": "the token of another cluster",
            **self._variables,
        }

    def ray_temp(self, index):
        return f"/tmp/rsm{os.getpid()}-{self.ports['gcs']}-{index}"

    def _read(self, host, stream):
        with stream:
            for line in stream:
                self.may_read.wait()
                self.lines[host].append(line)
                self.arrived.put((host, line))

    def log(self, host):
        return "".join(self.lines[host])

    def states(self, host="algo-1"):
        found = [events.parse(line) for line in list(self.lines[host])]
        return [event for event in found if isinstance(event, events.State)]

    def wait_for(self, text, timeout_s=DEADLINE_S):
        """Wait until a line of any instance holds ``text``; return the seconds since it was waited for."""
        begun = time.monotonic()
        while (left := begun + timeout_s - time.monotonic()) > 0:
            if any(text in line for lines in self.lines.values() for line in list(lines)):
                return time.monotonic() - begun
            try:
                self.arrived.get(timeout=min(left, 0.2))
            except queue.Empty:
                continue
        raise AssertionError(
            f"{text!r} never came; the logs:\n" + "\n".join(map(self.log, self.hosts))
        )

    def stop_reading(self):
        """Read no log any more until ``may_read`` is set: whoever writes much has to wait."""
        self.may_read.clear()

    def node_pid(self, host):
        return json.loads((self.folder / f"{host}.node").read_text())["pid"]

    def signal(self, number, *hosts):
        for host in hosts or self.hosts:
            self.processes[host].send_signal(number)

    def wait(self, timeout_s=DEADLINE_S):
        """Wait until all that were started have ended and their logs are read; return the exit codes by host."""
        until = time.monotonic() + timeout_s
        for host, process in self.processes.items():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{host} does not end; the log:\n{self.log(host)}") from None
            self.readers[host].join(max(0.0, until - time.monotonic()))
            assert not self.readers[host].is_alive(), f"a process of {host} still has its log open"
        return {host: process.returncode for host, process in self.processes.items()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.may_read.set()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        for index in range(len(self.hosts)):
            shutil.rmtree(self.ray_temp(index), ignore_errors=True)
