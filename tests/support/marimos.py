"""A marimo of the test's own over one notebook; it ends with the test."""

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request

START_S = 180.0
"""A server may take so long, and its kernel once more."""

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
{begin}
    return fake, job, line, Metric, Progress, State


@app.cell
def _(job):
    watching = job.watch()
    return (watching,)


@app.cell
def _(fake, job, line, Metric, Progress, State, watching):
    assert not watching.wait(1.0)
{tell}
    return


if __name__ == "__main__":
    app.run()
"""


def watching_notebook(folder, begin, tell):
    """Write a notebook in which the job that ``begin`` sends is watched, while a later cell does ``tell``."""
    notebook = folder / "watch.py"
    notebook.write_text(NOTEBOOK.format(begin=_indented(begin), tell=_indented(tell)))
    return notebook


def _indented(code):
    return textwrap.indent(code.strip(), "    ")


@contextlib.contextmanager
def serving_marimo(notebook):
    """Yield the address of ``marimo run`` of a notebook, a Python file."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = notebook.parent
    variables = {
        # Its records and settings go where the test's files are.
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    command = [
        sys.executable,
        "-m",
        "marimo",
        "-q",
        "run",
        str(notebook),
        "--headless",
        "--no-token",
    ]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    log = folder / "marimo.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | variables,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        url = f"http://127.0.0.1:{port}/"
        deadline_s = time.monotonic() + START_S
        while not _answers(url):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline_s, log.read_text()[-3000:]
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(START_S)
        # Shown of a test that fails.
        print(log.read_text()[-3000:])


def _answers(url):
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status == 200
    return False
