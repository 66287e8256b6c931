"""Another user of this machine: asks a server of ours, and lists everybody's processes."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534

needs_two_users = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.getuid() != 0,
    reason="needs Linux, and root to be two users",
)

# As root until all is imported: the other user need not be able to read this Python.
CODE = f"""
import http.client, json, os, subprocess, sys
"".encode("idna")
port, asked = json.load(sys.stdin)
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
answers = []
for method, path, headers in asked:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        try:
            connection.request(method, path, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a refusal may come before the request
        answer = connection.getresponse()
        answers.append([answer.status, answer.read().decode()])
    except http.client.BadStatusLine:
        answers.append(["BadStatusLine", ""])
    connection.close()
shown = subprocess.run(["ps", "axeww"], capture_output=True, text=True, errors="replace").stdout
print(json.dumps([answers, shown]))
"""


def proc_hides_others():
    """Return whether ``/proc`` was mounted so that users see their own processes alone (``hidepid`` of proc(5))."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    options = {
        word for _, place, _, words, *_ in mounts if place == "/proc" for word in words.split(",")
    }
    return any(
        word.startswith("hidepid=") and word not in ("hidepid=0", "hidepid=off") for word in options
    )


@contextlib.contextmanager
def running_as_another_user(code, *values):
    """Run Python code as another user, with ``values`` as its ``values``; yield the first line that it prints.

    At the end of the block its stdin ends, and it has to end too.
    """
    program = (
        # As root until all is imported, as in CODE.
        "import importlib.util, json, marshal, os, resource, socket, sys\n''.encode('idna')\n"
        f"values = json.loads(sys.stdin.readline())\nos.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n{code}"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes, text=True) as process:
        try:
            process.stdin.write(json.dumps(values, default=str) + "\n")
            process.stdin.flush()
            yield process.stdout.readline().strip()
            process.stdin.close()
            assert process.wait(120) == 0
        finally:
            process.kill()


def run_by_another_user(code, *values):
    """Run Python code as another user until it ends; return the first line that it prints."""
    with running_as_another_user(code, *values) as line:
        return line


def asked_by_another_user(port, *asked):
    """Return what the server at ``port`` answers to requests of another user, and what that one sees in ``ps``.

    A request is method, path and headers; an answer is status and body, the status of one that is
    not HTTP a word.
    """
    # By stdin: what it replays must not stand in its own arguments, which it sees in ``ps``, too.
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([port, asked]),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)
