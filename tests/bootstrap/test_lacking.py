"""What an image lacks for a payload, and how that is named."""

import os
import subprocess
import sys

from raysm.bootstrap.lacking import Wanted, installed_version, lacking
from raysm.contract import payload
from raysm.contract.packages import NEEDS
from raysm.request import Input, JobRequest, Script, Similarity
from tests.support.wheels import make_installed

LACKING = """
import sys
from pathlib import Path
from raysm.bootstrap.lacking import lacking
from raysm.contract import payload
print(lacking(payload.load(Path(sys.argv[1]))))
"""


def pack(folder, **fields):
    (folder / "user.py").write_text("")
    request = JobRequest(name="a", **{"workload": Script(str(folder / "user.py"))} | fields)
    payload.pack(request, folder / "payload")
    return payload.load(folder / "payload")


def test_an_image_that_has_it_all_lacks_nothing(tmp_path):
    assert not lacking(pack(tmp_path, workload=Similarity(top_k=3), inputs={"matrix": Input("file:///rows")}))


def test_an_image_with_another_ray_lacks_the_one_that_raysm_needs_and_says_which_it_has(tmp_path):
    pack(tmp_path)
    old = make_installed(tmp_path / "image", "ray", "2.56.0")
    command = [sys.executable, "-c", LACKING, str(tmp_path / "payload")]
    lacks = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(old)}, capture_output=True, text=True, check=True
    )
    assert lacks.stdout == f"{NEEDS['ray']} (this image has Ray 2.56.0)\n"


def test_of_many_requirements_the_first_are_named():
    many = Wanted(requirements=tuple(f"package-{number}" for number in range(100)), needs=("torch>=2.9",))
    assert str(many) == "torch>=2.9, package-0, package-1, package-2, package-3, package-4, 95 more"


def test_what_opens_a_private_index_or_repository_is_not_named():
    lines = (
        "--extra-index-url https://me:p@ss@pypi.example/simple",
        "package @ git+https://ghp_token@github.com/me/package@v1",
        "git+ssh://git@github.com/me/other.git@main",
        "plain @ https://pypi.example/plain-1.0.tar.gz",
    )
    assert str(Wanted(requirements=lines)) == (
        "--extra-index-url https://***@pypi.example/simple, package @ git+https://***@github.com/me/package@v1, "
        "git+ssh://***@github.com/me/other.git@main, plain @ https://pypi.example/plain-1.0.tar.gz"
    )


def test_a_package_that_is_not_there_has_no_version():
    assert installed_version("no-such-package") is None
    assert installed_version("ray") is not None
