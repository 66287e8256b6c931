"""``raysm shell`` into jobs of the embedded SageMaker: a terminal, its size, Ctrl-C, the exit code."""

import hashlib
import os
import subprocess
import sys

import pytest

from tests.support.sagemaker_server import SOON_S
from tests.support.sitting import Sitting

LET_IN = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}


@pytest.fixture(scope="module")
def job(server):
    server.train("idle", "while :; do sleep 0.1; done", count=2, **LET_IN)
    server.reached("idle", "Training")
    yield "idle"
    server.sm.stop_training_job(TrainingJobName="idle")
    server.ended("idle")


def command(job, *words, instance="algo-1"):
    behind = ["--", *words] if words else []
    return [sys.executable, "-m", "raysm", "shell", job, "--instance", instance, *behind]


def environment(server):
    return {**os.environ, "RAYSM_HOME": str(server.home)}


@pytest.fixture
def shell(server, job):
    sitting = Sitting(command(job), environment(server))
    yield sitting
    sitting.close()


def test_a_command_says_what_it_says_and_exits_as_it_exits(server, job):
    words = ["sh", "-c", "echo out; echo err >&2; exit 7"]
    done = subprocess.run(command(job, *words), env=environment(server), capture_output=True, timeout=SOON_S)
    assert (done.returncode, done.stdout) == (7, b"out\nerr\n"), done.stderr


def test_it_runs_in_the_instance_that_is_named(server, job):
    words = ["sh", "-c", 'cat "$SAGEMAKER_BASE_DIR/input/config/resourceconfig.json"']
    done = subprocess.run(
        command(job, *words, instance="algo-2"), env=environment(server), capture_output=True, timeout=SOON_S
    )
    assert b'"current_host": "algo-2"' in done.stdout


def test_a_large_output_comes_whole(server, job):
    words = ["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"]
    done = subprocess.run(command(job, *words), env=environment(server), capture_output=True, timeout=SOON_S)
    assert (done.returncode, done.stderr) == (0, b"")
    # Never the bytes themselves: where they differ, pytest would print a megabyte, and compare it for minutes.
    assert len(done.stdout) == 1_000_000
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(b"x" * 1_000_000).digest()


def test_a_shell_has_a_terminal_of_the_users_size(shell):
    shell.type(b"tty && stty size\r")
    shell.until(b"/dev/pts/")
    shell.until(b"30 100")
    shell.resize(40, 120)
    # Not once: the new size is on its way, as the keys are.
    shell.type(b"until stty size | grep -x '40 120'; do sleep 0.1; done; echo re''sized\r")
    shell.until(b"resized")
    shell.type(b"exit 5\r")
    assert shell.process.wait(SOON_S) == 5


def test_ctrl_c_reaches_the_command_and_not_the_session(shell):
    shell.type(b"sh -c 'echo wai\"\"ting; exec sleep 1000'\r")
    shell.until(b"waiting")
    # Again and again: a shell that is struck while it starts a program may hear nothing of it, as at any terminal.
    shell.type_until(b"\x03echo st''ill\r", b"still")
    shell.type(b"exit\r")
    assert shell.process.wait(SOON_S) is not None


def test_what_is_not_there_is_said(server, job):
    done = subprocess.run(
        command(job, "true", instance="algo-3"), env=environment(server), capture_output=True, timeout=SOON_S
    )
    assert done.returncode == 2
    assert b"there is no instance 'algo-3': idle has algo-1 to algo-2" in done.stderr
