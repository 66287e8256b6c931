"""What the keeper asks of the kernel, each in a process of its own, whose namespaces end with it."""

import errno
import json
import os
import subprocess
import sys
import textwrap

import pytest

from raysm.local.instances import kernel

PROGRAM = """
import json, runpy, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
runpy.run_path(sys.argv[1])["become_visitor"](*json.loads(sys.argv[2]))
"""
WAIT_S = 300.0


def become(folder, *command, stdin=os.devnull, **started):
    """Return what the command wrote, and its exit code."""
    out = folder / "out"
    out.touch()
    request = {"command": command, "stdin": str(stdin), "stdout": str(out)}
    environment = {"PATH": os.environ["PATH"], **started.pop("environment", {})}
    started = {"cwd": str(folder), "environment": environment, **started}
    arguments = json.dumps([request, started, os.getpid()])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, kernel.__file__, arguments],
        timeout=WAIT_S,
        check=False,
    )
    return out.read_text(), done.returncode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_it_runs_as_the_user_of_the_main_process(tmp_path):
    tmp_path.chmod(0o755)
    code = "id -u; id -g; id -G"
    assert become(tmp_path, "sh", "-c", code, user=65534, cwd="/") == ("65534\n65534\n65534\n", 0)


pytestmark = pytest.mark.namespace


def apart(code, *arguments):
    """Run ``code`` in a process that has ``kernel``; return what it prints."""
    program = f"import os, sys; from raysm.local.instances import kernel\n{textwrap.dedent(code)}"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout


def test_what_no_overlay_can_lie_over_is_read_only(tmp_path):
    # In place of a kernel without overlays, which take folders alone.
    (tmp_path / "file").write_text("before")
    written = apart(
        """
        place, changes = sys.argv[1:]
        kernel.protect([], [], [[place, changes, "/none"]])
        try:
            open(place, "w").close()
        except OSError as error:
            print(error.errno)
        """,
        tmp_path / "file",
        tmp_path / "changes",
    )
    assert int(written) == errno.EROFS
