"""What start.py and raysm.instance.entrypoint say of a payload that cannot begin; tests/jobs has those that can."""

import contextlib
import errno
import os
import platform
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.paths import Paths
from raysm.core.request import JobRequest, Security
from raysm.features.script.request import PickledFunction, Script
from tests.support.bootstraps import write_training
from tests.support.payloads import pack_payload

HERE = ".".join(platform.python_version_tuple()[:2])


def pack(base, *, api=TRAINING, function=None, wheels=(), **fields):
    paths = Paths(base, api)
    script = base.parent / "user.py"
    script.write_text("print('user code')")
    request = JobRequest(name="a", **{"workload": Script(str(script))} | fields)
    pack_payload(request, paths.payload, function=function, wheels=wheels)
    write_training(base, "algo-1", ["algo-1"])
    return paths


def start(base, paths, *arguments, python=sys.executable, **variables):
    """Run start.py as the service does."""
    command = [str(python), *arguments, str(paths.payload / "start.py")]
    environ = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(base)} | variables
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180)


def test_an_instance_whose_image_lacks_what_is_required_says_what_and_installs_nothing(tmp_path):
    paths = pack(
        tmp_path / "ml", requirements=("no-such-package",), security=Security(isolation=True)
    )
    done = start(tmp_path / "ml", paths)
    assert done.returncode == 2
    reason = paths.failure.read_text()
    assert reason.startswith("the requirements no-such-package ")
    assert "No matching distribution found for no-such-package" in reason
    assert "user code" not in done.stdout


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give folders away"
)
@pytest.mark.parametrize("closed", ["model", "output"])
def test_a_user_who_may_not_write_the_result_is_told_in_one_sentence_before_anything_starts(
    tmp_path, closed
):
    base = tmp_path / "ml"
    paths = pack(base)
    for name in ("model", "output"):
        (base / name).mkdir(exist_ok=True)
    # Root without its rights over other users' files is what the user of a container is that is not
    # root.
    os.chown(base / closed, 65534, 65534)
    lacking = "--bounding-set=-dac_override,-dac_read_search,-fowner"
    command = ["setpriv", lacking, sys.executable, str(paths.payload / "start.py")]
    environ = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(base)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180)
    assert done.returncode == 2
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("raysm: ")]
    assert told.startswith(f"raysm: {base / closed} cannot be written")
    # Where the failure file itself cannot be written, the log alone has it.
    assert paths.failure.exists() == (closed == "model")


def test_a_python_that_is_too_old_says_so(tmp_path):
    paths = pack(tmp_path / "ml")
    code = (
        "import runpy, sys; sys.version_info = (3, 10, 2, 'final', 0); sys.argv = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = start(tmp_path / "ml", paths, "-c", code)
    assert done.returncode == 2
    assert paths.failure.read_text().startswith("raysm needs Python 3.11 or later")


def test_a_function_of_another_python_is_refused_with_both_versions(tmp_path):
    paths = pack(tmp_path / "ml", workload=PickledFunction(name="f", python="3.7"), function=b"")
    assert start(tmp_path / "ml", paths).returncode == 2
    reason = paths.failure.read_text()
    assert "f was pickled by Python 3.7" in reason
    assert HERE in reason


def test_a_stop_during_the_installation_ends_it(tmp_path):
    # Reading from a pipe that nobody writes to never ends: so long does pip live, and not one
    # moment longer.
    pipe = tmp_path / "endless-1.0.zip"
    os.mkfifo(pipe)
    wanted = (f"endless @ {(tmp_path / 'endless-1.0.zip').as_uri()}",)
    paths = pack(tmp_path / "ml", requirements=wanted, security=Security(isolation=True))
    command = [sys.executable, str(paths.payload / "start.py")]
    environ = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(paths.base)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE) as process:
        with _writing(pipe, process):
            installers = [
                psutil.Process(child.pid)
                for child in psutil.Process(process.pid).children(recursive=True)
            ]
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 143
        # In a container pip ends with PID 1; here, with what it reads.
        assert not psutil.wait_procs(installers, timeout=90)[1]


@contextlib.contextmanager
def _writing(pipe, reader):
    """Hold the other end of ``pipe`` open, as soon as a child of ``reader`` reads it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:  # which says that nobody reads yet
                raise
            assert reader.poll() is None, reader.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    try:
        yield
    finally:
        os.close(end)
