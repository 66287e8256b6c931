"""A JupyterLab of the test's own: its files, records and settings lie in one folder, and it ends with the test."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

START_S = 180.0


@dataclass(frozen=True)
class Lab:
    """A running server."""

    port: int
    token: str

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}?token={self.token}"


@contextlib.contextmanager
def serving_lab(folder):
    """Yield a JupyterLab with jupyter-server-proxy over the notebooks in ``folder``."""
    import jupyterlab

    # Beside the package, which need not be below this Python's own prefix.
    prefix = Path(jupyterlab.__file__).parents[4]
    own, token = folder / ".jupyter", secrets.token_hex(16)
    variables = {
        "JUPYTER_CONFIG_DIR": str(own / "config"),
        "JUPYTER_CONFIG_PATH": str(prefix / "etc" / "jupyter"),
        "JUPYTER_DATA_DIR": str(own / "data"),
        "JUPYTER_PATH": str(prefix / "share" / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
        # By a variable: whoever lists processes sees arguments.
        "JUPYTER_TOKEN": token,
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    command += [f"--ServerApp.root_dir={folder}", f"--app-dir={prefix}/share/jupyter/lab", "--ServerApp.ip=127.0.0.1"]
    command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    log = folder / "lab.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | variables, stdout=output, stderr=output)
    try:
        yield Lab(port=_port(own / "runtime", process, log), token=token)
    finally:
        process.terminate()
        process.wait(START_S)


def _port(runtime, process, log):
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, log.read_text()[-3000:]
        for record in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):
                return json.loads(record.read_text())["port"]
        time.sleep(0.1)
    raise AssertionError(f"no JupyterLab within {START_S:g} s: {log.read_text()[-3000:]}")
