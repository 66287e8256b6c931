"""Whatever stands in the files: exit 2 and one clear line, never a traceback as the reason."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raysm import Cluster, InstanceGroup, JobRequest, Similarity
from raysm.contract import payload
from raysm.contract.paths import Paths
from raysm.request import Input
from tests.support.bootstraps import write_training
from tests.support.payloads import pack_payload

GROUPS = [
    {"instance_group_name": "work", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2"]},
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]

BARE = "from raysm.bootstrap.supervisor import main; sys.exit(main())"


@pytest.fixture(scope="module")
def base():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = write_training(
            root,
            "algo-1",
            ["algo-1", "algo-2"],
            hyperparameters={"lr": "0.1"},
            network_interface_name="eth0",
            current_instance_type="ml.t3.medium",
            current_group_name="head",
            instance_groups=GROUPS,
        )
        groups = (InstanceGroup("work", "ml.g5.xlarge", 1), InstanceGroup("head", "ml.t3.medium", 1))
        request = JobRequest(
            name="a-job",
            workload=Similarity(top_k=3, block_rows=7),
            cluster=Cluster(groups=groups, head="head", coordinator_only=True, min_instances=2),
            inputs={"matrix": Input("s3://bucket/key")},
        )
        pack_payload(request, paths.payload)
        yield root


def path_of(base, name):
    paths = Paths(base)
    return paths.config / name if (paths.config / name).exists() else paths.payload / name


def sign(base):
    """Bring the digests in line with the files, so that what is wrong in the request is what is found."""
    folder = Paths(base).payload
    found = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "digests.json"
    }
    (folder / "digests.json").write_text(json.dumps(found))


def assert_one_clear_line(reason):
    assert reason
    assert len(reason) <= 1024
    assert "\n" not in reason
    assert "Traceback" not in reason
    assert "inside raysm" not in reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("request.json", b'{"name": "a"}'),
        ("digests.json", b"[]"),
    ],
)
def test_the_process_itself_exits_two_with_the_line_in_its_failure_file(base, name, content):
    path = path_of(base, name)
    original = path.read_bytes()
    try:
        path.write_bytes(content)
        if name == "request.json":
            sign(base)
        ended = subprocess.run(
            [sys.executable, "-m", "raysm.bootstrap"],
            env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)},
            capture_output=True,
            text=True,
            timeout=180,
        )
    finally:
        path.write_bytes(original)
        sign(base)
    assert ended.returncode == 2
    reason = Paths(base).failure.read_text()
    assert_one_clear_line(reason)
    assert ended.stderr == f"raysm: {reason}\n"


def test_an_image_without_ray_says_so(base):
    # Without site-packages, and with raysm alone: an image in which nothing is installed.
    paths = [str(Path(payload.__file__).parents[2])]
    ended = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{BARE}"],
        env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 2
    assert Paths(base).failure.read_text().startswith("the package 'ray' is not installed in this image")
