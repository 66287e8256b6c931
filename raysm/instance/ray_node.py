"""One Ray node as a child process: its command line, its life, and the reason of its end.

The parent is the bootstrap.

The node runs ``ray start --block``. It is ended by a signal, because ``ray stop`` would end every
Ray on the machine.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raysm.core.protocol import names
from raysm.core.protocol.packages import installed_version
from raysm.core.request import Cluster, Ports
from raysm.errors import MissingDependency
from raysm.instance import resources
from raysm.instance.address import LOOPBACK
from raysm.instance.children import Child, Children, descendants
from raysm.instance.environment import Environment, Host
from raysm.instance.ray_internals import END_OF_LOG, ENDED, REMAINING

LATER = ""
"""Stands for the address of the GCS to join if the command reads it later from its stdin."""
SHARED_MEMORY = Path("/dev/shm")
MAX_LABEL = 63
TAIL_BYTES = 4096
WARNINGS_BYTES = 65536
"""A warning may follow what a node wrote that failed."""
LOG_OF_ENDED = re.compile(
    re.escape(END_OF_LOG).replace(r"\{\}", r"(\S+)\.(?:out|err)", 1).replace(r"\{\}", "(.*)")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    cpus: int
    gpus: int
    memory_bytes: int
    object_store: resources.ObjectStore


def detect_capacity(
    environment: Environment, inherited: Mapping[str, str], root: Path = Path("/")
) -> Capacity:
    memory_bytes = environment.memory_bytes or resources.memory_limit(root)
    shared = root / SHARED_MEMORY.relative_to("/")
    free = shutil.disk_usage(shared).free if shared.is_dir() else 0
    store = resources.plan_object_store(
        memory_bytes,
        free,
        environment.ray_temp_dir / "object_store",
        environment.object_store_bytes,
    )
    return Capacity(
        cpus=resources.count_cpus(root) if environment.cpus is None else environment.cpus,
        gpus=resources.count_gpus(inherited),
        memory_bytes=memory_bytes,
        object_store=store,
    )


def ray_version() -> str:
    version = installed_version("ray")
    if version is None:
        raise MissingDependency(
            "the package 'ray' is not installed in this image: "
            "use one that has it, or add ray[default,train]"
        )
    return version


def start_arguments(
    *,
    environment: Environment,
    cluster: Cluster,
    ports: Ports,
    capacity: Capacity,
    head_address: str | None,
    node_address: str | None,
    log_monitor: bool = True,
) -> list[str]:
    """Return the arguments of ``ray``; without ``head_address`` those of a head.

    ``head_address`` is the ``IP:port`` of the GCS, or LATER.
    """
    host = environment.current
    rank = environment.ranked(cluster).index(host)
    idle = head_address is None and cluster.coordinator_only
    store = capacity.object_store
    options = {
        "num-cpus": 0 if idle else capacity.cpus,
        "num-gpus": 0 if idle else capacity.gpus,
        "memory": max(1, capacity.memory_bytes - store.bytes),
        "object-store-memory": store.bytes,
        "plasma-directory": store.folder,
        "resources": json.dumps(_resources(host)),
        "labels": ",".join(f"{label}={value}" for label, value in _labels(host, rank).items()),
        "temp-dir": environment.ray_temp_dir,
        "node-ip-address": node_address,
        # ``why`` parses lines of this form.
        "log-style": "record",
        "log-color": "false",
        "include-log-monitor": None if log_monitor else "false",
    }
    if head_address is None:
        # Without an address of its own, the instance and its dashboard can be reached only on
        # loopback.
        dashboard_host = LOOPBACK if node_address in (None, LOOPBACK) else "0.0.0.0"
        options |= {
            "port": ports.gcs,
            "dashboard-port": ports.dashboard,
            "dashboard-host": dashboard_host,
        }
    else:
        options["address"] = head_address or None
    # Ports that every node has; 0 leaves the choice to Ray.
    options |= {
        "node-manager-port": ports.node_manager or None,
        "object-manager-port": ports.object_manager or None,
        "runtime-env-agent-port": ports.runtime_env_agent or None,
        # Ray's default is a fixed port, so 0 is passed on.
        "dashboard-agent-listen-port": ports.dashboard_agent,
        "dashboard-agent-grpc-port": ports.dashboard_agent_grpc or None,
        "metrics-export-port": ports.metrics_export or None,
        # Ray's default is a fixed range, from which two nodes of one address could give out the
        # same port.
        "min-worker-port": ports.worker_min,
        "max-worker-port": ports.worker_max if ports.worker_min else 0,
    }
    flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
    role = ["--head"] if head_address is None else []
    return ["start", "--block", *role, *flags, "--disable-usage-stats"]


def _resources(host: Host) -> dict[str, int]:
    named = {"host": host.name, "group": host.group, "instance_type": host.instance_type}
    # Ray passes resources between its processes as comma-separated text.
    return {f"{kind}:{value.replace(',', '_')}": 1 for kind, value in named.items() if value}


def _labels(host: Host, rank: int) -> dict[str, str]:
    named = {
        names.LABEL_HOST: host.name,
        names.LABEL_GROUP: host.group,
        names.LABEL_INSTANCE_TYPE: host.instance_type,
        names.LABEL_RANK: str(rank),
    }
    # Ray refuses a longer label, or one that does not begin and end with a letter or digit.
    values = {
        label: re.sub(r"[^A-Za-z0-9._-]", "_", value)[:MAX_LABEL].strip("._-")
        for label, value in named.items()
    }
    return {label: value for label, value in values.items() if value}


class RayNode:
    def __init__(
        self, children: Children, command: list[str], env: Mapping[str, str], *, waits: bool = False
    ) -> None:
        """Start the command; with ``waits``, which needs LATER, it joins only after ``join``."""
        # A file, because Ray's processes inherit it and may outlive the command, so that a pipe
        # would not end.
        self._output = tempfile.TemporaryFile()
        stdin = subprocess.PIPE if waits else subprocess.DEVNULL
        self._child: Child = children.start(
            command, env, stdin=stdin, stdout=self._output, stderr=self._output
        )

    @property
    def ended(self) -> "asyncio.Future[int]":
        return self._child.ended

    def join(self, address: str) -> None:
        """Send a waiting command the ``IP:port`` of the GCS to join, once."""
        self._child.send_line(address)

    def why(self) -> str:
        text = self._read(max(0, os.fstat(self._output.fileno()).st_size - TAIL_BYTES))
        # Only the names and exit codes of the processes, because the ends of their logs are long.
        ended = dict.fromkeys(LOG_OF_ENDED.findall(text))
        if ended:
            return ", ".join(f"{process} [exit code={code}]" for process, code in ended)[:400]
        _, separator, after = text.partition(ENDED)
        cause = after.partition(REMAINING)[0] if separator else text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", cause)
        lines = [
            re.sub(r"^\S+ \S+\s+[A-Z]+ \S+:\d+ -- ", "", line).strip()
            for line in plain.splitlines()
        ]
        lines = [line for line in lines if line]
        # After ENDED, the first lines name the processes; in other output, the last lines contain
        # the reason.
        summary = " ".join(lines[:3] if separator else lines[-2:])
        return summary[:400] or f"it exited with code {self._child.status} without a word"

    def read_warnings(self) -> list[str]:
        """Return the warnings of ``ray_start`` so far, about names that the installed Ray lacks."""
        lines = self._read(0, WARNINGS_BYTES).splitlines()
        return [
            line.removeprefix("raysm: ") for line in lines if line.startswith("raysm: warning: ")
        ]

    def _read(self, start: int, count: int = TAIL_BYTES) -> str:
        # pread, because a seek would move the position at which Ray's processes write.
        return os.pread(self._output.fileno(), count, start).decode(errors="replace")

    def kill(self) -> None:
        """End the node at once, when the job is over.

        Ray would drain it, and wait for its dashboard and its GCS.
        """
        if not self.ended.done():
            for pid in (self._child.pid, *descendants(self._child.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self._child.send_line("")
        self._output.close()
