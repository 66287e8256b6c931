"""A payload or an image that cannot be used: exit 2 and one clear line, never a traceback as the reason."""

import os
import subprocess
import sys
from pathlib import Path

from raysm import JobRequest, Similarity
from raysm.contract import payload
from raysm.contract.paths import Paths
from raysm.request import Input
from tests.support.bootstraps import write_training
from tests.support.payloads import pack_payload

BARE = "from raysm.bootstrap.supervisor import main; sys.exit(main())"


def bootstrapped(base, *arguments, damage=lambda paths: None):
    """Run the bootstrap of an instance; return what it left as the reason, and its stderr."""
    paths = write_training(base, "algo-1", ["algo-1"])
    request = JobRequest(name="a-job", workload=Similarity(top_k=3), inputs={"matrix": Input("s3://bucket/key")})
    pack_payload(request, paths.payload)
    damage(paths)
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 2
    return Paths(base).failure.read_text(), ended.stderr


def test_a_malformed_file_is_one_clear_line_and_exit_two(tmp_path):
    for name in ("payload", "config"):
        reason, log = bootstrapped(
            tmp_path / name,
            "-m",
            "raysm.bootstrap",
            damage=lambda paths, name=name: (
                paths.payload / "digests.json" if name == "payload" else paths.resource_config
            ).write_bytes(b"[]"),
        )
        assert reason
        assert "\n" not in reason
        assert "Traceback" not in reason
        assert "inside raysm" not in reason
        assert log == f"raysm: {reason}\n"


def test_an_image_without_ray_says_so(tmp_path):
    # Without site-packages, and with raysm alone: an image in which nothing is installed.
    paths = [str(Path(payload.__file__).parents[2])]
    reason, _ = bootstrapped(tmp_path, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{BARE}")
    assert reason.startswith("the package 'ray' is not installed in this image")
