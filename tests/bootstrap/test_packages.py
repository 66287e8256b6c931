"""What an image lacks, and how it is brought: by wheels that travelled, else by an index."""

import importlib.metadata
import os
import re
import subprocess
import sys

import pytest

from raysm.bootstrap.lacking import Wanted, lacking
from raysm.bootstrap.packages import bring, install
from raysm.contract import payload
from raysm.contract.packages import NEEDS
from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Script, Security
from tests.support.package_index import package_index, silent_port
from tests.support.wheels import make_installed, make_wheel

PROGRAM = """
import sys
import raysm.workloads.similarity.run
print(*({name.split(".")[0] for name in sys.modules} & {"scipy", "torch"}))
"""
VERSION = "import importlib.metadata; print(importlib.metadata.version('ray'))"


def pack(folder, *, wheels=(), **fields):
    (folder / "user.py").write_text("")
    request = JobRequest(name="a", **{"workload": Script(str(folder / "user.py"))} | fields)
    payload.pack(request, folder / "payload", wheels=wheels)
    return payload.load(folder / "payload")


def variables(**more):
    # Without this machine's own settings of pip: an image of AWS has none.
    return {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull} | more


def installed(folder, packed, *needs, **more):
    """Install what ``packed`` requires, and ``needs``; return the folder."""
    wanted = lacking(packed)
    install(packed, Wanted(requirements=wanted.requirements, needs=needs), folder / "site", variables(**more))
    return folder / "site"


def run(code, *arguments, path):
    """Return what ``code`` prints in an image that has the folder ``path`` beside this machine's packages."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=True).stdout


def test_the_similarity_needs_no_more_than_it_imports():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.split() == []


def test_a_ray_that_travelled_takes_the_place_of_the_image_s_which_stays_as_it_is(tmp_path):
    packed = pack(
        tmp_path, wheels=[make_wheel(tmp_path / "wheels", "ray", "2.60.99")], security=Security(isolation=True)
    )
    old = make_installed(tmp_path / "image", "ray", "2.56.0")
    site = installed(tmp_path, packed, NEEDS["ray"], PYTHONPATH=str(old))
    assert run(VERSION, path=[site, old]) == "2.60.99\n"
    assert run(VERSION, path=[old]) == "2.56.0\n"


def test_packages_that_travelled_are_installed_without_a_word_to_the_index_and_the_log_says_how_much(tmp_path, capfd):
    wheel = make_wheel(tmp_path / "wheels", "travelled", body="VALUE = 42\n" * 200_000)
    with silent_port() as port:
        index = f"http://127.0.0.1:{port}/simple"
        packed = pack(tmp_path, wheels=[wheel], requirements=("# ours", "", "travelled  # bars"), pip_index=index)
        site = installed(tmp_path, packed)
    assert (site / "travelled.py").stat().st_size == 2_200_000
    log = capfd.readouterr().err
    assert "raysm: installing 1 packages for travelled  # bars\n" in log
    assert re.search(r"raysm: installed 1 packages, \d MB, in \d+\.\d s, \d+\.\d s of them to find out which", log)


def test_what_did_not_travel_comes_from_the_index_that_the_request_names(tmp_path):
    wheels = [make_wheel(tmp_path / "there", "far", requires=["near"])]
    near = make_wheel(tmp_path / "here", "near")
    with package_index(*wheels) as url:
        packed = pack(tmp_path, wheels=[near], requirements=("far",), pip_index=url)
        site = installed(tmp_path, packed, PIP_INDEX_URL="http://nobody.invalid/simple", PIP_NO_INDEX="1")
    assert {path.name for path in site.glob("*.py")} == {"far.py", "near.py"}


def test_a_file_is_fetched_once_also_where_the_image_has_pip_s_cache_switched_off(tmp_path):
    fetched = []
    with package_index(make_wheel(tmp_path / "there", "far"), fetched=fetched) as url:
        packed = pack(tmp_path, requirements=("far",), pip_index=url)
        # Trusted, because pip keeps nothing that came by plain http.
        installed(tmp_path, packed, PIP_NO_CACHE_DIR="1", PIP_TRUSTED_HOST="127.0.0.1")
    assert fetched == ["far-1.0-py3-none-any.whl"]


def test_a_requirement_that_the_image_has_needs_no_index(tmp_path):
    with silent_port() as port:
        packed = pack(tmp_path, requirements=("pytest",), pip_index=f"http://127.0.0.1:{port}/simple")
        assert not any(installed(tmp_path, packed).iterdir())


def test_a_package_that_wants_another_torch_does_not_replace_the_image_s(tmp_path):
    wheels = [
        make_wheel(tmp_path / "wheels", "old", requires=["torch==1.0"]),
        make_wheel(tmp_path / "wheels", "torch", "1.0"),
    ]
    packed = pack(tmp_path, wheels=wheels, requirements=("old",), security=Security(isolation=True))
    with pytest.raises(InvalidRequest, match="the requirements old cannot be installed: .*conflict"):
        installed(tmp_path, packed)


def test_who_names_a_torch_gets_it(tmp_path):
    wheels = [make_wheel(tmp_path / "wheels", "torch", "1.0")]
    packed = pack(tmp_path, wheels=wheels, requirements=("torch==1.0",), security=Security(isolation=True))
    assert (installed(tmp_path, packed) / "torch.py").exists()
    assert importlib.metadata.version("torch") != "1.0"


def test_a_requirement_that_would_move_ray_away_from_what_raysm_needs_is_refused(tmp_path):
    wheels = [
        make_wheel(tmp_path / "wheels", "mover", requires=["ray<2.60"]),
        make_wheel(tmp_path / "wheels", "ray", "2.56.0"),
    ]
    packed = pack(tmp_path, wheels=wheels, requirements=("mover",), security=Security(isolation=True))
    with pytest.raises(InvalidRequest, match="the requirements mover cannot be installed: .*conflict"):
        installed(tmp_path, packed)


def test_an_isolated_instance_says_what_its_wheels_lack(tmp_path):
    packed = pack(tmp_path, requirements=("no-such-package",), security=Security(isolation=True))
    words = "No matching distribution found for no-such-package; the job is isolated: let the packages travel"
    with pytest.raises(InvalidRequest, match=words):
        installed(tmp_path, packed)


def test_the_next_job_of_a_warm_pool_finds_what_this_one_has_installed_and_asks_no_index(tmp_path, capfd):
    warm = tmp_path / "warm"
    warm.mkdir()
    told = variables(SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY=str(warm))
    with package_index(make_wheel(tmp_path / "there", "far")) as url:
        packed = pack(tmp_path, requirements=("far",), pip_index=url)
        first = bring(packed, lacking(packed), tmp_path / "unused", told)
    again = bring(packed, lacking(packed), tmp_path / "unused", told)
    assert again == first
    assert (again / "far.py").exists()
    assert warm in again.parents
    assert not (tmp_path / "unused").exists()
    assert "raysm: far: found as an earlier job of this warm pool has installed it\n" in capfd.readouterr().err


def test_a_warm_pool_s_folder_that_cannot_be_written_costs_no_job(tmp_path, capfd):
    (tmp_path / "warm").mkdir()
    (tmp_path / "warm" / "raysm-packages").write_text("a file of the user's")
    told = variables(SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY=str(tmp_path / "warm"))
    packed = pack(tmp_path, wheels=[make_wheel(tmp_path / "here", "near")], requirements=("near",))
    site = bring(packed, lacking(packed), tmp_path / "site", told)
    assert site == tmp_path / "site"
    assert (site / "near.py").exists()
    assert "warning: packages are not kept for the next job of this warm pool" in capfd.readouterr().err


def test_without_a_warm_pool_packages_lie_in_this_job_s_own_folder(tmp_path):
    packed = pack(tmp_path, wheels=[make_wheel(tmp_path / "here", "near")], requirements=("near",))
    told = variables(SAGEMAKER_BASE_DIR=str(tmp_path / "ml"))
    assert bring(packed, lacking(packed), tmp_path / "site", told) == tmp_path / "site"
