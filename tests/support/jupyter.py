"""A JupyterLab of the test's own: its files, records and settings lie in one folder, and it ends with the test."""

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

START_S = 180.0
WAIT_MS = 600_000
"""For what cells compute, on two cores that others use too."""

KERNEL = {
    "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
}
"""Without it JupyterLab asks which kernel is meant."""


@dataclass(frozen=True)
class Lab:
    """A running server, over the notebooks in its folder."""

    folder: Path
    port: int
    token: str

    def write(self, name, cells, metadata=KERNEL):
        """Write a notebook of cells of code, each in a folder of its own; return its path."""
        import nbformat

        path = self.folder / name / f"{name}.ipynb"
        path.parent.mkdir()
        cells = [
            nbformat.v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells
        ]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
        return path

    def open(self, page, path):
        """Open a notebook in a workspace of its own: JupyterLab would show again what was open before."""
        below = path.relative_to(self.folder)
        page.goto(
            f"http://127.0.0.1:{self.port}/lab/workspaces/{path.stem}/tree/{below}?token={self.token}"
        )
        return OpenNotebook(page, path)


class OpenNotebook:
    """A notebook in a page of JupyterLab."""

    def __init__(self, page, path):
        self.page, self.path = page, path
        self._cells = page.locator(".jp-Notebook .jp-Cell")

    def begin(self):
        """Wait for the kernel, one that still starts forgets what it is asked to run; stand at the first cell."""
        self.page.get_by_text("| Idle").wait_for()
        self._cells.first.locator(
            ".jp-InputArea-editor:visible, .jp-MarkdownOutput:visible"
        ).first.click()
        return self

    def output(self, number):
        return self._cells.nth(number).locator(".jp-Cell-outputWrapper")

    def run(self, count=1):
        """Have the next cells run, one after the other, without waiting for them."""
        for _ in range(count):
            self.page.get_by_role("button", name="Run this cell and advance").click()

    def interrupt(self):
        self.page.get_by_role("button", name="Interrupt the kernel").click()

    def ran(self, number):
        """Wait until a cell has run."""
        prompt = self._cells.nth(number).locator(".jp-InputPrompt")
        prompt.and_(self.page.get_by_text(re.compile(r"^\[\d+\]:$"))).wait_for(
            timeout=WAIT_MS, state="attached"
        )

    def save(self, text):
        """Save it, and return the file once it has a text: the page tells for a moment only that it was saved."""
        self.page.get_by_role("button", name="Save and create checkpoint").click()
        for _ in range(WAIT_MS // 500):
            saved = self.path.read_text()
            if text in saved:
                return saved
            self.page.wait_for_timeout(500)
        raise AssertionError(f"{self.path.name} was saved without {text}")


def lab_environment(own):
    """Return the variables of a JupyterLab whose records and settings lie below ``own``."""
    import jupyterlab

    # Beside the package, which need not be below this Python's own prefix.
    prefix = Path(jupyterlab.__file__).parents[4]
    return {
        "JUPYTER_CONFIG_DIR": str(own / "config"),
        "JUPYTER_CONFIG_PATH": str(prefix / "etc" / "jupyter"),
        "JUPYTER_DATA_DIR": str(own / "data"),
        "JUPYTER_PATH": str(prefix / "share" / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "JUPYTERLAB_DIR": str(prefix / "share" / "jupyter" / "lab"),
    }


@contextlib.contextmanager
def serving_lab(folder):
    """Yield a JupyterLab with jupyter-server-proxy over the notebooks in ``folder``."""
    own, token = folder / ".jupyter", secrets.token_hex(16)
    # By a variable: whoever lists processes sees arguments.
    variables = lab_environment(own) | {"JUPYTER_TOKEN": token}
    settings = own / "config" / "lab" / "user-settings" / "@jupyterlab"
    # Else it draws only those cells that can be seen, and a test looks for the others in vain.
    _set(settings / "notebook-extension" / "tracker", windowingMode="none")
    # Else it asks whether it may fetch news, in a box that covers what is looked at.
    _set(settings / "apputils-extension" / "notification", fetchNews="false")
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.port=0",
    ]
    command += [f"--ServerApp.root_dir={folder}", "--ServerApp.ip=127.0.0.1"]
    command += [
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    log = folder / "lab.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | variables, stdout=output, stderr=output
        )
    try:
        yield Lab(folder=folder, port=_port(own / "runtime", process, log), token=token)
    finally:
        process.terminate()
        process.wait(START_S)


def _set(path, **settings):
    path.parent.mkdir(parents=True)
    path.with_name(f"{path.name}.jupyterlab-settings").write_text(json.dumps(settings))


def _port(runtime, process, log):
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, log.read_text()[-3000:]
        for record in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):
                return json.loads(record.read_text())["port"]
        time.sleep(0.1)
    raise AssertionError(f"no JupyterLab within {START_S:g} s: {log.read_text()[-3000:]}")
