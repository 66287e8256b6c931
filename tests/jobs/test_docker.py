"""A job on instances of kind docker: a real image, built by the repository's Dockerfile, from submit to result."""

import pytest

import raysm
from raysm.core.protocol.home import ServerRecord
from tests.support import docker
from tests.support.homes import serving

SCRIPT = """
import os, ray
ray.init(log_to_driver=False)

@ray.remote
def where():
    return os.environ["SM_CURRENT_HOST"], os.uname().nodename, os.getpid()

found = ray.get([where.options(resources={f"host:{host}": 1}).remote() for host in ("algo-1", "algo-2")])
print("FOUND", [(host, node) for host, node, _ in found], os.path.exists("/etc/debian_version"), flush=True)
open("/opt/ml/model/result.txt", "w").write("done")
"""


@pytest.fixture
def image():
    reason = docker.why_no_base()
    if reason:
        pytest.skip(reason)
    return docker.built_image()


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_a_script_runs_on_two_containers_of_the_built_image(image, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with serving(tmp_path / "home") as home:
        target = raysm.Local(instances=2, instance_kind="docker", image=image, home=str(home))
        cluster = raysm.Cluster(count=2)
        job = raysm.submit(raysm.Script(str(script)), cluster=cluster, on=target, name="in-docker")
        result = job.result(timeout=180)
        text = "\n".join(line.text for line in job.lines())
        server = ServerRecord.read(home)
    assert "FOUND [('algo-1', 'aws'), ('algo-2', 'aws')] True" in text
    assert (result / "result.txt").read_text() == "done"
    assert not docker.left_behind(server.pid)
