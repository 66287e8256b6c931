"""A real MLflow for one tracking server: its store flows in as a folder, what flows out are connections to it.

It listens on a Unix socket in a folder that no other user can enter, as Jupyter does on a head: MLflow asks nobody who
he is, and a port of loopback is open to every user of the machine.
"""

import contextlib
import http.client
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from raysm.errors import RaysmError
from raysm.local.instances.kept import Keeper, KeptInstance
from raysm.local.scratch import Scratch

__all__ = ["MlflowProcess", "installed", "missing"]

NEEDED = ("mlflow", "sqlalchemy", "uvicorn")
"""What a server of MLflow's needs: mlflow-skinny, which others bring, has neither of the last two."""

COMMAND = (sys.executable, "-m", "mlflow")
START_S = 240.0
"""It imports for some seconds of a core, and makes its tables; on a busy machine that takes many times as long."""
PROBE_S = 0.1
REQUEST_S = 120.0
TAIL_BYTES = 2000


def missing() -> str | None:
    """Return what this machine lacks for it, and the remedy; None if nothing."""
    if all(importlib.util.find_spec(name) for name in NEEDED):
        return None
    return "managed MLflow needs MLflow on this machine: python3 -m pip install 'raysm[mlflow]'"


def installed() -> str:
    """Return the version of MLflow that is here."""
    return version("mlflow")


class MlflowProcess:
    """A running MLflow; it ends with this process, however that ends."""

    def __init__(self, folder: Path, artifacts: str, command: Sequence[str] = COMMAND) -> None:
        """Start it, and wait until it answers.

        Args:
            folder: Its database and its log lie there.
            artifacts: Where whoever has artifacts is told to put them, ``s3://…``.
            command: MLflow's.

        Raises:
            RaysmError: It does not come up; the message has the end of its log.
        """
        # Not in the folder: a socket's path has at most a hundred characters.
        self._scratch = Scratch()
        self._socket = self._scratch.path / "mlflow"
        self._log = folder / "log"
        options = ["server", "--workers", "1", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
        # In the place of the port that MLflow gives behind it, on which nobody listens then.
        options += ["--uvicorn-opts", f"--uds {self._socket}"]
        # As on AWS, where programs write artifacts to S3 themselves: AWS's plugin brings MLflow none.
        options += ["--no-serve-artifacts", "--default-artifact-root", artifacts]
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
            "LANG": "C.UTF-8",
            # Nothing of the user's own: neither credentials nor what MLflow keeps of him.
            "HOME": str(folder),
            "TMPDIR": str(self._scratch.path),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # They would be processes with a queue in shared memory, for what only its pages ask.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        with self._log.open("wb") as log:
            self._instance = KeptInstance(Keeper("mlflow", log.fileno()), "mlflow", "")
        try:
            self._instance.start(command=[*command, *options], environment=environment, cwd=str(folder))
            self._await_answer()
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self._instance.exited.done()

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection for one request."""
        return _Connection(self._socket)

    def close(self) -> None:
        """End it; harmless when repeated."""
        self._instance.end()
        self._scratch.close()

    def _await_answer(self) -> None:
        until_s = time.monotonic() + START_S
        while not self._answers():
            if not self.is_alive or time.monotonic() > until_s:
                text = self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
                raise RaysmError(f"MLflow did not start; its log {self._log} ends so:\n{text}")
            time.sleep(PROBE_S)

    def _answers(self) -> bool:
        # Asked, and not looked for: its socket is there a moment before it answers.
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(self.connect()) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        return False


class _Connection(http.client.HTTPConnection):
    """By a Unix socket; MLflow is told that it is localhost, the one name that it answers to without being told."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
