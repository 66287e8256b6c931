"""Instances as Docker containers, with a real image.

They have the files and the network that SageMaker would give them. Each job has a bridge network,
on which an instance is known by its name (``algo-1``). Only the ``docker`` command is needed.
Behind the keeper of an instance is the command that is attached to the container; at its end the
keeper removes the container. Containers and networks have a label with the process that made them.
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from raysm.core.protocol.paths import DEFAULT_BASE
from raysm.core.protocol.store import make_folder, put
from raysm.errors import InvalidRequest, RaysmError
from raysm.local.instances.base import (
    HOST_NAME,
    Instance,
    InstanceSpec,
    RunningCommand,
    Site,
    open_to_all,
)
from raysm.local.instances.kept_instance import Keeper, KeptInstance, end_all

LABEL = "io.raysm.owner"
"""Label of containers and networks: the process that made them."""
ANSWER_S = 60.0
"""The daemon answers in milliseconds, but needs seconds to make a container on a loaded machine."""
POLL_S = 0.05
PASS_ON = """
import os, socket, sys, threading
there = socket.create_connection(("localhost", int(sys.argv[1])))
os.write(1, b"+")
def back():
    while data := there.recv(65536):
        while data:
            data = data[os.write(1, data):]
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""
"""A program in a container that connects its stdin and stdout with a port; every image that runs
jobs has Python."""
DOCKER = ("docker",)


class _DockerInstance(KeptInstance):
    docker: Sequence[str]
    name: str

    def signal(self, number: int) -> None:
        """Have the daemon signal the main process.

        The command here cannot pass on SIGKILL or SIGSTOP.
        """
        with contextlib.suppress(RaysmError):  # it has ended
            _call(self.docker, "kill", f"--signal={int(number)}", self.name)

    def connect(self, port: int) -> socket.socket:
        """Connect through a process in the container.

        The daemon may be on another machine, as on macOS.
        """
        ours, theirs = socket.socketpair()
        command = [
            *self.docker,
            "exec",
            "--interactive",
            self.name,
            "python3",
            "-c",
            PASS_ON,
            str(port),
        ]
        with theirs:
            process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
            )
        threading.Thread(
            target=process.wait, name=f"connection to {self.name}", daemon=True
        ).start()
        # The process writes a "+" once it is connected.
        if ours.recv(1) != b"+":
            ours.close()
            raise ConnectionRefusedError(f"nothing listens on port {port} of {self.host}")
        return ours

    def enter(self, command: Sequence[str], *, stdin: str, stdout: str) -> RunningCommand:
        with contextlib.ExitStack() as opened:
            # Only the command takes a terminal as its controlling one.
            reads, writes = (
                opened.enter_context(
                    open(path, mode, opener=lambda path, flags: os.open(path, flags | os.O_NOCTTY))
                )
                for path, mode in ((stdin, "rb"), (stdout, "wb"))
            )
            tty = ["--tty"] if writes.isatty() else []
            arguments = [*self.docker, "exec", "--interactive", *tty, self.name, *command]
            process = subprocess.Popen(
                arguments, stdin=reads, stdout=writes, stderr=writes, start_new_session=True
            )
        exited: Future[int] = Future()
        threading.Thread(
            target=lambda: exited.set_result(process.wait()),
            name=f"command in {self.name}",
            daemon=True,
        ).start()
        return RunningCommand(exited=exited, kill=process.kill)

    def follow(self) -> None:
        """Read the container's process and address once it runs.

        Both stay empty if it ends at once.
        """
        state = (
            "{{.State.Status}} {{.State.Pid}} {{range "
            ".NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        )
        with contextlib.suppress(RaysmError):
            status = "created"
            while status == "created" and not self.keeper.exited.done():
                time.sleep(POLL_S)
                answer = _call(self.docker, "inspect", f"--format={state}", self.name)
                status, pid, self.address = answer.rstrip("\n").split(" ")
                self.pid = int(pid)
        super().follow()


class DockerSite(Site):
    interface = "eth0"
    plays = frozenset({"container.user"})

    @staticmethod
    def missing() -> str | None:
        return missing_for_docker()

    @classmethod
    def open(cls, image: str | None) -> "DockerSite":
        return cls(image)

    def __init__(self, image: str | None = None, docker: Sequence[str] = DOCKER) -> None:
        if not image:
            raise InvalidRequest(
                "instances of kind 'docker' need an image; give raysm.Local(image=…)"
            )
        missing = missing_for_docker(docker)
        if missing:
            raise InvalidRequest(missing)
        self._docker = tuple(docker)
        self._image = image
        self._keepers: list[Keeper] = []
        try:
            user = _call(docker, "image", "inspect", "--format={{.Config.User}}", image).strip()
        except RaysmError as error:
            raise InvalidRequest(
                f"the image {image!r} is not on this machine: docker pull {image}, or build it "
                "(containers/README.md)"
            ) from error
        # The user is empty, a name or a number, with an optional group.
        self._runs_as_root = user.partition(":")[0] in ("", "0", "root")
        self._network = f"raysm-{os.getpid()}-{secrets.token_hex(4)}"
        _call(
            docker,
            "network",
            "create",
            "--driver=bridge",
            f"--label={LABEL}={os.getpid()}",
            self._network,
        )

    def base_inside(self, base: Path) -> Path:
        return DEFAULT_BASE

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        try:
            # In parallel, because making a container takes a second.
            with ThreadPoolExecutor(max_workers=min(8, len(specs))) as pool:
                return list(pool.map(self._start, specs))
        except BaseException:
            self.close()
            raise

    def _start(self, spec: InstanceSpec) -> Instance:
        for link in spec.links:
            # Docker would make a folder for the missing target of a file.
            make_folder(link.target.parent, within=spec.base)
            link.target.mkdir(exist_ok=True) if link.source.is_dir() else link.target.touch()
        if spec.scenario.container.user or not self._runs_as_root:
            # The server's user owns the folders, and Docker mounts them as they are.
            open_to_all(spec.base)
        name = f"{self._network}-{spec.host}"
        variables = spec.private / "variables"
        put(variables, _env_file(spec), mode=0o600, within=spec.private)
        create = create_arguments(
            spec, self._image, name=name, network=self._network, env_file=variables
        )
        # The keeper inherits the environment, in which the docker command finds its daemon and
        # configuration.
        keeper = Keeper(spec.host, spec.log_fd, inherit=True)
        self._keepers.append(keeper)
        remove = [*self._docker, "rm", "--force", "--volumes", name]
        # The daemon refuses to remove the network while another container is in it.
        keeper.call(
            "at_end", commands=[remove], orphaned=[[*self._docker, "network", "rm", self._network]]
        )
        _call(self._docker, *create)
        instance = _DockerInstance(keeper, spec.host, "", clean=lambda: self._remove(name))
        instance.docker = self._docker
        instance.name = name
        instance.start(command=[*self._docker, "start", "--attach", name], cwd="/")
        return instance

    def _remove(self, name: str) -> None:
        with contextlib.suppress(RaysmError):
            _call(self._docker, "rm", "--force", "--volumes", name)

    def close(self) -> None:
        end_all(self._keepers)
        with contextlib.suppress(RaysmError):
            _call(self._docker, "network", "rm", self._network)


def create_arguments(
    spec: InstanceSpec, image: str, *, name: str, network: str, env_file: Path
) -> list[str]:
    """Return the command; variables are in ``env_file``.

    Every user of the machine could read them on the command line.
    """
    share = spec.share
    options = {
        "name": name,
        "hostname": HOST_NAME,
        "network": network,
        "network-alias": spec.host,
        "label": f"{LABEL}={os.getpid()}",
        "init": "true",
        "user": spec.scenario.container.user or None,
        "log-driver": "json-file",
        "shm-size": share.shm_bytes,
        "memory": share.memory_bytes,
        "cpuset-cpus": ",".join(map(str, share.affinity)) if share.affinity else None,
        "gpus": f'"device={",".join(share.gpus)}"' if share.gpus else None,
        "env-file": env_file,
        "entrypoint": spec.command[0] or None,
    }
    flags = [f"--{option}={value}" for option, value in options.items() if value is not None]
    mounts = [_mount(spec.base, DEFAULT_BASE)]
    mounts += [
        _mount(link.source, DEFAULT_BASE / link.target.relative_to(spec.base), readonly=True)
        for link in spec.links
    ]
    return ["create", *flags, *mounts, image, *spec.command[1:]]


def _mount(source: Path, target: Path, readonly: bool = False) -> str:
    # The option is a line of CSV, so fields with a comma or a quote are quoted.
    fields = [
        "type=bind",
        f"source={source}",
        f"target={target}",
        *(["readonly"] if readonly else []),
    ]
    quoted = (
        '"' + field.replace('"', '""') + '"' if re.search('[,"]', field) else field
        for field in fields
    )
    return f"--mount={','.join(quoted)}"


def _env_file(spec: InstanceSpec) -> str:
    # The bootstrap sizes Ray's object store to /dev/shm, as it does on SageMaker.
    variables = {**spec.share.variables(object_store=False), **spec.variables}
    variables.pop("PATH", None)  # the image has its own
    for variable, value in variables.items():
        if "\n" in value:
            raise InvalidRequest(
                f"the variable {variable} holds a line break, which instances of kind 'docker' "
                "cannot get; send it as a channel or a hyperparameter"
            )
    return "".join(f"{variable}={value}\n" for variable, value in variables.items())


def missing_for_docker(docker: Sequence[str] = DOCKER) -> str | None:
    if shutil.which(docker[0]) is None:
        return (
            "instances of kind 'docker' need the docker command; install Docker, or use "
            "'namespace' or 'process'"
        )
    try:
        _call(docker, "version", "--format={{.Server.Version}}")
    except RaysmError as error:
        return (
            "instances of kind 'docker' need a running Docker daemon; start it, or use another "
            f"kind: {error}"
        )
    return None


def _call(docker: Sequence[str], *arguments: str) -> str:
    try:
        done = subprocess.run(
            [*docker, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RaysmError(f"docker {arguments[0]}: {error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RaysmError(f"docker {arguments[0]}: {lines[-1]}")
    return done.stdout
