"""A process becomes a command beside an instance's main process: loaded by path, as a keeper's child does it."""

import json
import os
import subprocess
import sys

import pytest

from raysm.local.instances import visit

PROGRAM = """
import json, runpy, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
runpy.run_path(sys.argv[1])["become"](*json.loads(sys.argv[2]))
"""
WAIT_S = 60


def become(folder, *command, stdin=os.devnull, **started):
    """Return what the command wrote, and its exit code."""
    out = folder / "out"
    out.touch()
    request = {"command": command, "stdin": str(stdin), "stdout": str(out)}
    environment = {"PATH": os.environ["PATH"], **started.pop("environment", {})}
    started = {"cwd": str(folder), "environment": environment, **started}
    arguments = json.dumps([request, started, os.getpid()])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, visit.__file__, arguments], timeout=WAIT_S, check=False
    )
    return out.read_text(), done.returncode


def python(folder, code, **more):
    return become(folder, sys.executable, "-S", "-c", code, **more)


def test_it_has_the_folder_and_the_environment_of_the_main_process(tmp_path):
    code = "import os; print(os.getcwd(), os.environ['A'], os.environ['TERM'])"
    assert python(tmp_path, code, environment={"A": "b"}) == (f"{tmp_path} b xterm-256color\n", 0)


def test_it_reads_and_writes_what_the_request_names_its_errors_too(tmp_path):
    (tmp_path / "in").write_text("typed")
    words = ("sh", "-c", "cat; echo err >&2; exit 3")
    assert become(tmp_path, *words, stdin=tmp_path / "in") == ("typederr\n", 3)


def test_it_is_a_session_of_its_own_and_hears_every_signal(tmp_path):
    code = (
        "import os, signal\n"
        "print(os.getsid(0) == os.getpid(), oct(os.umask(0)))\n"
        "print(signal.getsignal(signal.SIGINT) == signal.default_int_handler, signal.pthread_sigmask(0, ()))\n"
    )
    assert python(tmp_path, code) == ("True 0o22\nTrue set()\n", 0)


def test_a_terminal_becomes_the_one_that_controls_it(tmp_path):
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave)
        request = {"command": ["sh", "-c", "exec 3</dev/tty; tty"], "stdin": name, "stdout": name}
        started = {"cwd": str(tmp_path), "environment": {"PATH": os.environ["PATH"]}}
        arguments = json.dumps([request, started, os.getpid()])
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM, visit.__file__, arguments], timeout=WAIT_S, check=False
        )
        assert (done.returncode, os.read(master, 1000).decode().strip()) == (0, name)
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_it_runs_as_the_user_of_the_main_process(tmp_path):
    tmp_path.chmod(0o755)
    code = "id -u; id -g; id -G"
    assert become(tmp_path, "sh", "-c", code, user=65534, cwd="/") == ("65534\n65534\n65534\n", 0)


def test_what_cannot_be_executed_ends_it_with_the_reason(tmp_path):
    written, code = become(tmp_path, "/no/such/program")
    assert code == 1
    assert "FileNotFoundError" in written
