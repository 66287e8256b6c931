"""What an image may lack: one instance, started as the service does it, ends in a result or in one sentence."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest

from raysm.core.protocol.paths import Paths
from raysm.core.request import JobRequest
from raysm.features.script.request import Script
from tests.support.bootstraps import NODE_PORTS, free_ports, write_training
from tests.support.image_like_aws import (
    OLDER_RAY,
    install_older_ray,
    python_312,
    why_no_older_ray,
    why_no_python_312,
)
from tests.support.payloads import pack_payload

WITHOUT_NETWORK = (
    "unshare",
    "--net",
    "--uts",
    "sh",
    "-c",
    'ip link set lo up; hostname aws; exec "$@"',
    "sh",
)
"""Loopback alone, and a host name that resolves nowhere: as an isolated instance has it."""
WAY_TO_AN_INDEX = re.compile("^PIP_|_PROXY$|_CERT|_CA_", re.IGNORECASE)
"""Variables by which this machine's pip finds its index."""

SCRIPT = """
import importlib.metadata, json, os, ray
@ray.remote
def double(x):
    return 2 * x
found = {"doubled": ray.get(double.remote(21)), "ray": ray.__file__, "version": importlib.metadata.version("ray")}
with open(os.environ["SM_MODEL_DIR"] + "/found.json", "w") as file:
    json.dump(found, file)
"""


@dataclass
class Ended:
    exit_code: int
    reason: str | None
    found: dict | None
    log: str


@pytest.fixture
def ray_temp():
    folder = f"/tmp/rsm{os.getpid()}i"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run(tmp_path, ray_temp):
    """Run one instance whose image is a Python, with the folder ``image`` of packages in front of its own."""

    def run(image=None, front=(), told=True, python=(sys.executable,), index=False, **fields):
        (tmp_path / "user.py").write_text(SCRIPT)
        paths = Paths(tmp_path / "ml")
        request = JobRequest(
            name="a", workload=Script(str(tmp_path / "user.py"), ray_init=True), **fields
        )
        pack_payload(request, paths.payload)
        write_training(paths.base, "algo-1", ["algo-1"])
        paths.model.mkdir(parents=True)
        ports = dict(
            zip(("control", "gcs", "dashboard"), free_ports(3), strict=True)
        ) | dict.fromkeys(NODE_PORTS, 0)
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
            "SAGEMAKER_BASE_DIR": str(paths.base),
            "RAYSM_PORTS": json.dumps(ports),
            "RAYSM_CPUS": "1",
            "RAYSM_MEMORY_BYTES": str(2 * 2**30),
            "RAYSM_OBJECT_STORE_BYTES": str(100 * 2**20),
            "RAYSM_RAY_TEMP_DIR": ray_temp,
        }
        # What shares this machine's address must not ask for it by an interface.
        variables |= {"RAYSM_ADDRESSES": '{"algo-1": "127.0.0.1"}'} if told else {}
        variables |= {"PYTHONPATH": str(image)} if image else {}
        if index:
            variables.pop("PIP_CONFIG_FILE")
            variables |= {
                name: value for name, value in os.environ.items() if WAY_TO_AN_INDEX.search(name)
            }
        command = [*front, *python, str(paths.payload / "start.py")]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=400)
        result = paths.model / "found.json"
        return Ended(
            done.returncode,
            paths.failure.read_text() if paths.failure.exists() else None,
            json.loads(result.read_text()) if result.exists() else None,
            done.stdout + done.stderr,
        )

    return run


@pytest.mark.long
@pytest.mark.namespace
def test_a_complete_image_without_a_network_leaves_its_result(run):
    ended = run(front=WITHOUT_NETWORK, told=False)
    assert (ended.exit_code, ended.reason) == (0, None), ended.log
    assert ended.found["doubled"] == 42


@pytest.mark.long
@pytest.mark.namespace
def test_an_image_with_python_3_12_without_ray_and_without_a_network_ends_in_one_sentence(run):
    if reason := why_no_python_312():
        pytest.skip(reason)
    # Isolated: of this machine's own packages, an image has none.
    ended = run(python=python_312("-I"), front=WITHOUT_NETWORK, told=False)
    assert ended.exit_code == 2
    assert ended.reason.startswith("the requirements ")
    assert "ray[default,train]>=2.53,<2.61" in ended.reason
    assert len(ended.reason.splitlines()) == 1


# What is installed over what an image has is also tried in instance/test_packages, with small packages.
@pytest.mark.soak
@pytest.mark.namespace
def test_an_image_with_a_real_older_ray_has_the_right_one_beside_it(run, tmp_path):
    if reason := why_no_older_ray():
        pytest.skip(reason)
    image = tmp_path / "image"
    install_older_ray(image)
    ended = run(image=image, index=True)
    assert (ended.exit_code, ended.reason) == (0, None), ended.log
    assert ended.found["doubled"] == 42
    assert ended.found["version"].startswith("2.")
    # What the image has stays as it is.
    assert not ended.found["ray"].startswith(str(image))
    assert (image / f"ray-{OLDER_RAY}.dist-info").is_dir()
