"""Ray's own commands and clients at ``raysm://NAME``, against one running job."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.client.job.handle import token_of
from raysm.core.client.submit import submit
from raysm.core.request import Cluster
from raysm.features.script.request import Script
from tests.support.jobs import ENDS_S, FORMING_S

pytestmark = pytest.mark.long

RAY = (sys.executable, "-W", "ignore", "-m", "ray.scripts.scripts")


@pytest.fixture(scope="module")
def job(home, tmp_path_factory):
    """A job whose cluster is there until the tests are over."""
    script = tmp_path_factory.mktemp("work") / "work.py"
    script.write_text(
        "import threading, ray\nray.init()\nprint('it is there', flush=True)\nthreading.Event().wait()\n"
    )
    job = submit(Script(str(script)), cluster=Cluster(count=2))
    try:
        # The dashboard, which takes Ray's jobs, comes up beside the workload.
        with job.dashboard(timeout=FORMING_S):
            yield job
    finally:
        job.stop()


@pytest.fixture
def source(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "beside.py").write_text("WORD = 'brought along'\n")
    (tmp_path / "work" / "train.py").write_text(
        "import sys, time\nimport ray, beside\nray.init()\nprint('first line', flush=True)\n"
        "print(beside.WORD, len(ray.nodes()), flush=True)\nsys.exit(int(sys.argv[1]))\n"
    )
    return tmp_path / "work"


def ran(*command, cwd, **variables):
    env = os.environ | variables
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=ENDS_S, env=env)


def test_a_program_is_submitted_with_its_folder_and_its_log_is_followed_to_its_exit_code(
    job, source
):
    flags = ("--address", f"raysm://{job.name}", "--working-dir", ".", "--")
    done = ran(*RAY, "job", "submit", *flags, "python", "train.py", "3", cwd=source)
    assert "first line\nbrought along 2\n" in done.stdout
    # Ray's own: whatever the program's is, it is named, and the command's is 1.
    assert done.returncode == 1
    assert "exit code 3" in done.stdout + done.stderr


def test_rays_state_commands_know_the_address_and_give_the_token_to_no_proxy(job, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        variables = {
            "http_proxy": address,
            "HTTP_PROXY": address,
            "no_proxy": "",
            "NO_PROXY": "example.org",
        }
        done = ran(
            *RAY, "list", "nodes", "--address", f"raysm://{job.name}", cwd=tmp_path, **variables
        )
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ALIVE") == 2


def test_rays_client_knows_the_address_and_nobody_sees_the_token(job, tmp_path):
    code = (
        "from ray.job_submission import JobSubmissionClient\n"
        f"client = JobSubmissionClient('raysm://{job.name}')\n"
        "print(client.get_version(), flush=True)\n"
        "input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().strip().isdecimal()
        token = token_of(job).encode()
        for name in ("cmdline", "environ"):
            assert token not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    finally:
        process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_the_environment_names_the_address_as_ray_has_it(job, tmp_path):
    code = "from ray.job_submission import JobSubmissionClient\nprint(len(JobSubmissionClient().list_jobs()) > 0)\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        env=os.environ | {"RAY_API_SERVER_ADDRESS": f"raysm://{job.name}"},
    )
    assert done.stdout == "True\n", done.stderr


def test_a_name_that_there_is_not_is_refused_with_the_nearest(job, tmp_path):
    done = ran(*RAY, "list", "nodes", "--address", f"raysm://{job.name}x", cwd=tmp_path)
    assert done.returncode != 0
    assert f"did you mean {job.name}" in done.stderr


def test_ray_init_says_what_to_do_instead(job, tmp_path):
    done = ran(sys.executable, "-c", f"import ray; ray.init('raysm://{job.name}')", cwd=tmp_path)
    assert done.returncode != 0
    assert f"ray job submit --address raysm://{job.name}" in done.stderr


def test_a_job_that_has_ended_is_refused(home, tmp_path):
    # One of its own, which need not have begun: the others' is wanted by tests that may come behind
    # this one.
    (tmp_path / "work.py").touch()
    ended = submit(Script(str(tmp_path / "work.py")), cluster=Cluster())
    ended.stop(ENDS_S)
    done = ran(*RAY, "list", "nodes", "--address", f"raysm://{ended.name}", cwd=tmp_path)
    assert f"{ended.name} has ended ({ended.status})" in done.stderr
