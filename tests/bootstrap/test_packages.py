"""What an image lacks, and how it is brought: by wheels that travelled, else by an index."""

import os
import re
import subprocess
import sys

import pytest

from raysm.bootstrap.packages import MissingPackages, Pip, PipFailed, find_missing_packages, install
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

MISSING = """
import sys
from pathlib import Path
from raysm.bootstrap.packages import find_missing_packages
from raysm.contract import payload
print(find_missing_packages(payload.load(Path(sys.argv[1]))))
"""


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
    wanted = find_missing_packages(packed)
    install(packed, MissingPackages(requirements=wanted.requirements, needs=needs), folder / "site", variables(**more))
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
    assert re.search(r"raysm: installed 1 packages, \d MB, in \d+\.\d s \(\d+\.\d s of them to resolve versions", log)


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


def test_a_package_that_wants_another_torch_does_not_replace_the_image_s(tmp_path):
    wheels = [
        make_wheel(tmp_path / "wheels", "old", requires=["torch==1.0"]),
        make_wheel(tmp_path / "wheels", "torch", "1.0"),
    ]
    packed = pack(tmp_path, wheels=wheels, requirements=("old",), security=Security(isolation=True))
    with pytest.raises(InvalidRequest, match="the requirements old cannot be installed: .*conflict"):
        installed(tmp_path, packed)


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
    words = "No matching distribution found for no-such-package; the job has no network"
    with pytest.raises(InvalidRequest, match=words):
        installed(tmp_path, packed)


def test_the_next_job_of_a_warm_pool_downloads_nothing_again(tmp_path):
    fetched = []
    (tmp_path / "warm").mkdir()
    warm = {"SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": str(tmp_path / "warm"), "PIP_TRUSTED_HOST": "127.0.0.1"}
    with package_index(make_wheel(tmp_path / "there", "far"), fetched=fetched) as url:
        packed = pack(tmp_path, requirements=("far",), pip_index=url)
        for site in ("first", "second"):
            install(packed, find_missing_packages(packed), tmp_path / site, variables(**warm))
    assert (tmp_path / "second" / "far.py").exists()
    assert fetched == ["far-1.0-py3-none-any.whl"]


def test_an_image_with_another_ray_lacks_the_one_that_raysm_needs_and_says_which_it_has(tmp_path):
    pack(tmp_path)
    old = make_installed(tmp_path / "image", "ray", "2.56.0")
    command = [sys.executable, "-c", MISSING, str(tmp_path / "payload")]
    lacks = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(old)}, capture_output=True, text=True, check=True
    )
    assert lacks.stdout == f"{NEEDS['ray']} (this image has Ray 2.56.0)\n"


def test_what_opens_a_private_index_or_repository_is_not_named():
    lines = (
        "--extra-index-url https://me:p@ss@pypi.example/simple",
        "package @ git+https://ghp_token@github.com/me/package@v1",
        "git+ssh://git@github.com/me/other.git@main",
        "plain @ https://pypi.example/plain-1.0.tar.gz",
    )
    assert str(MissingPackages(requirements=lines)) == (
        "--extra-index-url https://***@pypi.example/simple, package @ git+https://***@github.com/me/package@v1, "
        "git+ssh://***@github.com/me/other.git@main, plain @ https://pypi.example/plain-1.0.tar.gz"
    )


def pip(folder, **variables):
    environment = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"} | variables
    return Pip(folder, environment)


def test_what_pip_would_install_names_the_very_file_and_is_then_installed(tmp_path):
    wheel = make_wheel(tmp_path / "wheels", "travelled")
    links = ["--find-links", str(wheel.parent)]
    exact = pip(tmp_path).resolve([*links, "travelled>=1"])
    assert exact == [f"travelled @ {wheel.as_uri()}"]
    assert not (tmp_path / "site").exists()
    pip(tmp_path).install(exact, tmp_path / "site", links)
    assert (tmp_path / "site" / "travelled.py").read_text() == "VALUE = 42\n"


def test_the_image_s_own_settings_are_known_and_its_variables_count_most(tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text("[install]\nindex-url = https://of-install/simple\n[global]\nindex-url = https://of-all/simple\n")
    told = pip(tmp_path, PIP_CONFIG_FILE=str(config)).settings()
    assert told["index-url"] == "https://of-install/simple"
    told = pip(tmp_path, PIP_CONFIG_FILE=str(config), PIP_INDEX_URL="https://of-variable/simple").settings()
    assert told["index-url"] == "https://of-variable/simple"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import sys; sys.exit('No module named pip')", f"{sys.executable} has no pip"),
        ("import sys; sys.exit('no such option: --report')", "pip is older than 22.2"),
    ],
)
def test_an_image_s_pip_that_is_not_there_or_too_old_is_said(tmp_path, module, words):
    (tmp_path / "pip.py").write_text(module)
    with pytest.raises(PipFailed, match=words.replace("/", ".")):
        pip(tmp_path, PYTHONPATH=str(tmp_path)).resolve(["anything"])
