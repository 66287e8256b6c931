"""Runs inside of the first jobs, and says what an instance is like: one JSON object a line, between all else.

It is sent as a script of the user's, and needs nothing but Python: what flows in are its mode and the container, what
flows out are lines, and a few small files in the folders that SageMaker reads. Secrets are blanked before a line is
printed, since whoever may read the log would read them.
"""

import contextlib
import json
import mmap
import os
import platform
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["MARK", "MODES", "SAME", "describe"]

MARK = "raysm-first-job "
"""How a line of this script begins."""

SECRET = re.compile(r"(?i)key|token|secret|passw|credential|signature|session|auth")
"""Names of variables whose values nobody is to see; the path of the role's credentials is one of them."""

BASE = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
FOLDERS = ("", "input", "input/data", "model", "output", "output/data", "checkpoints", "processing")
SAME = "same.txt"
"""What every instance leaves under one name."""

TICKS_S = 300
VISIT_S = 120.0
"""Seconds for which a visitor is waited for: AWS's agent is started only once remote debugging is switched on."""

MEET_S = 45.0
"""Seconds for which instances try to reach each other."""

PORT = 17070
"""Where one instance listens for the other, outside of raysm's ports."""


def say(topic: str, host: str, **values: Any) -> None:
    """Print one observation."""
    # Flushed: the checkpoints are compared with what was said last before SIGKILL.
    print(MARK + json.dumps({"topic": topic, "host": host, **values}, default=str), flush=True)


def read(path: Path) -> str | None:
    """Return what a small file says; None where it cannot be read."""
    try:
        # What /proc tells of a process has a NUL behind each argument.
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None


def config() -> dict[str, Any]:
    """Return the files that SageMaker configures the container with, by name."""
    # A training job has the first, a processing job the other.
    folders = (BASE / "input" / "config", BASE / "config")
    return {path.name: read(path) for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())}


def resources() -> dict[str, Any]:
    """Return the resource config, of a training job as of a processing job."""
    return dict(json.loads(config().get("resourceconfig.json") or "{}"))


def room(path: Path) -> dict[str, Any] | None:
    """Return the device of a folder with its size and what is free, in bytes; None where there is none."""
    if not path.is_dir():
        return None
    usage = shutil.disk_usage(path)
    return {
        "device": path.stat().st_dev,
        "total": usage.total,
        "free": usage.free,
        "writable": os.access(path, os.W_OK),
    }


def try_mapping(path: Path) -> str:
    """Say whether a file can be mapped into memory as NumPy does it."""
    try:
        # np.memmap(mode="r") is this mapping, which file systems in user space may refuse:
        # https://github.com/numpy/numpy/issues/9894
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) as view:
            return f"MAP_SHARED works, {len(view)} bytes"
    except (OSError, ValueError) as error:
        return f"MAP_SHARED fails: {type(error).__name__}: {error}"


def addresses(hosts: list[str]) -> dict[str, str]:
    """Return what the names of the hosts, and this one's own, resolve to."""
    resolved = {}
    # This one's own name is said to be aws on every instance, and to resolve to nothing.
    for name in (*hosts, socket.gethostname()):
        try:
            resolved[name] = socket.gethostbyname(name)
        except OSError as error:
            resolved[name] = f"{type(error).__name__}: {error}"
    return resolved


def describe(host: str, hosts: list[str]) -> list[dict[str, Any]]:
    """Return what this instance is like, by topic."""
    # The trial's own file alone: raysm's payload lies in a channel beside it.
    data = sorted(path for path in (BASE / "input" / "data").rglob("*.bin") if path.is_file())
    system = {"python": sys.version, "platform": platform.platform(), "uid": os.getuid(), "pid": os.getpid()}
    variables = {name: "(blanked)" if SECRET.search(name) else value for name, value in sorted(os.environ.items())}
    disks = {str(path): room(path) for path in (Path("/"), Path("/tmp"), Path("/dev/shm"))}
    disks |= {f"BASE/{name}": room(BASE / name) for name in FOLDERS}
    topics: dict[str, dict[str, Any]] = {
        "system": {**system, "hostname": socket.gethostname(), "cores": os.cpu_count()},
        "init": {"cmdline": read(Path("/proc/1/cmdline"))},
        "disks": {"df": disks},
        "mounts": {"lines": (read(Path("/proc/mounts")) or "").splitlines()},
        "config": {"files": config()},
        "environment": {"variables": variables},
        "network": {
            "interfaces": [name for _, name in socket.if_nameindex()],
            "hosts_file": (read(Path("/etc/hosts")) or "").splitlines(),
            "resolved": addresses(hosts),
        },
        "mapping": {"files": {path.name: try_mapping(path) for path in data}},
    }
    return [{"topic": topic, "host": host, **values} for topic, values in topics.items()]


def run_on_cluster() -> None:
    """Look around on every instance of raysm's cluster; leave a result, other data and a state."""
    import ray

    hosts = json.loads(os.environ["SM_HOSTS"])
    ray.init(log_to_driver=False)
    # No CPU: whoever only looks need not wait until one is free.
    look = ray.remote(num_cpus=0)(describe)
    by_host = ray.get([look.options(label_selector={"raysm.io/host": host}).remote(host, hosts) for host in hosts])
    # Said by the driver: Ray would set (NAME pid=…) before what a task prints, where MARK has to stand.
    for observations in by_host:
        for observation in observations:
            say(**observation)
    (Path(os.environ["SM_MODEL_DIR"]) / "instances.json").write_text(json.dumps(len(by_host)))
    (Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "other.txt").write_text("other data\n")
    state = os.environ.get("RAYSM_STATE")
    if state:
        (Path(state) / "state.txt").write_text("a state\n")


def fail_on_purpose() -> None:
    """Leave something in every folder, and fail."""
    (Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "before-failure.txt").write_text("left before the failure\n")
    (Path(os.environ["SM_MODEL_DIR"]) / "before-failure.txt").write_text("left before the failure\n")
    raise ValueError("this job fails on purpose")


def wait_for_stop() -> None:
    """Wait to be stopped; then save a state, as a training does."""

    def save(number: int, frame: object) -> None:
        state = os.environ.get("RAYSM_STATE")
        if state:
            (Path(state) / "saved.txt").write_text("saved when told to stop\n")
        say("stopped", "driver", signal=number)
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    say("ready", "driver")
    time.sleep(TICKS_S)


def await_visitor(within_s: float = VISIT_S) -> None:
    """Listen on loopback, where a tunnel leads to, and answer the first who comes; end without one, too."""
    # Any port: on one machine several jobs may wait for theirs.
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(within_s)
        say("ready", "driver", port=server.getsockname()[1])
        try:
            visitor, _ = server.accept()
        except TimeoutError:
            # Where the account lets nobody in that is how it is, and no failure of the job.
            say("visited", "driver", came=False)
            return
        with visitor:
            visitor.sendall(f"{socket.gethostname()}\n".encode())
            # Listen until the visitor has read it: who connects checks afterwards that the same process listens.
            visitor.shutdown(socket.SHUT_WR)
            visitor.settimeout(within_s)
            with contextlib.suppress(OSError):
                visitor.recv(1)
    say("visited", "driver", came=True)


def leave_same_names() -> None:
    """As each instance by itself, without raysm: leave files of one name, the first host last."""
    host, hosts = resources()["current_host"], sorted(resources()["hosts"])
    for observation in describe(host, hosts):
        say(**observation)
    for folder in ("model", "output/data", "checkpoints"):
        (BASE / folder).mkdir(parents=True, exist_ok=True)
        (BASE / folder / SAME).write_text(f"{host}\n")
    # The first one ends last: whose files stay tells whether the order of ends or that of names decides.
    time.sleep(0 if host != hosts[0] else 10)
    say("left", host, at=time.time())


def outlive_sigterm() -> None:
    """As each instance by itself: ignore the stop, and write a file a second until the end."""
    host = resources()["current_host"]
    # Not SIG_IGN: when the stop came has to be known too.
    signal.signal(signal.SIGTERM, lambda number, frame: say("sigterm", host, at=time.time()))
    folder = BASE / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    say("ready", host)
    for tick in range(TICKS_S):
        # All instances share the checkpoints' prefix: of one name, each would overwrite the other's.
        (folder / f"{host}-tick.txt").write_text(f"{tick}\n")
        say("tick", host, tick=tick)
        time.sleep(1)


def meet_in_isolation(within_s: float = MEET_S) -> None:
    """As each instance by itself: the first one listens, the others try to reach it."""
    host, hosts = resources()["current_host"], sorted(resources()["hosts"])
    for observation in describe(host, hosts):
        say(**observation)
    if host == hosts[0]:
        with socket.create_server(("", PORT)) as server:
            # Longer than the others try, who may begin later, and whose last try may take 5 s more.
            server.settimeout(within_s + 15)
            try:
                server.accept()
            except TimeoutError:
                say("met", host, reached=False)
            else:
                say("met", host, reached=True)
        return
    deadline_s, obstacle = time.monotonic() + within_s, ""
    # Instances begin one after the other, and their names may resolve late.
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection((hosts[0], PORT), timeout=5).close()
        except OSError as error:
            obstacle = f"{type(error).__name__}: {error}"
            time.sleep(1)
        else:
            say("met", host, reached=True)
            return
    say("met", host, reached=False, obstacle=obstacle)


MODES = {
    "cluster": run_on_cluster,
    "fail": fail_on_purpose,
    "wait": wait_for_stop,
    "visited": await_visitor,
    "same": leave_same_names,
    "outlive": outlive_sigterm,
    "isolated": meet_in_isolation,
}

if __name__ == "__main__":
    MODES[sys.argv[1]](*map(float, sys.argv[2:]))
