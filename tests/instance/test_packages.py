"""What an image lacks, and how it is brought: by wheels that travelled, else by an index."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from raysm.core.protocol import payload
from raysm.core.protocol.packages import NEEDS
from raysm.core.request import JobRequest, Security
from raysm.core.request.external import CodeArtifact
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.instance import packages
from raysm.instance.packages import (
    MissingPackages,
    Pip,
    PipFailed,
    check_reachable,
    credentials_of,
    find_missing_packages,
    install,
    pip_config,
)
from tests.support.package_index import package_index, silent_port
from tests.support.payloads import pack_payload
from tests.support.wheels import make_installed, make_wheel

REPOSITORY = CodeArtifact.of("arn:aws:codeartifact:eu-west-1:123456789012:repository/domain/repo")


def test_an_index_that_is_silent_is_given_up_in_one_sentence_with_the_remedies():
    with silent_port() as port, pytest.raises(InvalidRequest) as caught:
        check_reachable(f"https://me:secret@127.0.0.1:{port}/simple", patience_s=0.5)
    assert str(caught.value) == (
        f"there is no way from this instance to the package index https://127.0.0.1:{port}/simple: 127.0.0.1 does not "
        f"answer on port {port} (tried for 0.5 s); give the subnets a NAT, name an index that they reach (pip_index), "
        "let the packages travel (wheels), or take an image that has them"
    )


def test_the_address_goes_into_a_file_that_only_its_owner_can_read(tmp_path):
    variables = pip_config(tmp_path, "https://aws:token@host/simple/")
    path = tmp_path / "pip.conf"
    assert variables == {"PIP_CONFIG_FILE": str(path)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().count("index-url = https://aws:token@host/simple/\n") == 2


@pytest.mark.long
def test_pip_is_let_in_by_the_token_which_stands_in_no_requirement(tmp_path):
    with package_index(make_wheel(tmp_path / "wheels", "guarded"), token="a/token") as url:
        guarded = url.replace("http://", "http://aws:a%2Ftoken@")
        environment = {"PATH": os.environ["PATH"]}
        with pytest.raises(PipFailed):
            Pip(tmp_path, environment | pip_config(tmp_path, url)).resolve(["guarded"])
        pip = Pip(tmp_path, environment | pip_config(tmp_path, guarded))
        exact = pip.resolve(["guarded"])
        pip.install(exact, tmp_path / "site", [])
    assert (tmp_path / "site" / "guarded.py").exists()
    assert "token" not in "".join(exact)


class FakeCodeArtifact:
    def __init__(self, region):
        assert region == "eu-west-1"

    def get_authorization_token(self, **owner):
        assert owner == {"domain": "domain", "domainOwner": "123456789012"}
        return {"authorizationToken": "a/token+"}

    def get_repository_endpoint(self, **place):
        host = f"{place['domain']}-{place['domainOwner']}.d.codeartifact"
        return {"repositoryEndpoint": f"https://{host}/{place['format']}/{place['repository']}/"}


def test_a_repository_of_codeartifact_gets_the_role_s_token():
    url = credentials_of(REPOSITORY, FakeCodeArtifact)
    assert url == "https://aws:a%2Ftoken%2B@domain-123456789012.d.codeartifact/pypi/repo/simple/"


def test_a_role_that_may_not_is_told_which_permissions_it_needs():
    class Denied(FakeCodeArtifact):
        def get_authorization_token(self, **_):
            raise PermissionError("AccessDenied")

    with pytest.raises(InvalidRequest, match="AccessDenied.* codeartifact:GetAuthorizationToken"):
        credentials_of(REPOSITORY, Denied)


VERSION = "import importlib.metadata; print(importlib.metadata.version('ray'))"

MISSING = """
import sys
from pathlib import Path
from raysm.instance.packages import find_missing_packages
from raysm.core.protocol import payload
print(find_missing_packages(payload.load(Path(sys.argv[1]))))
"""


def pack(folder, *, wheels=(), **fields):
    (folder / "user.py").write_text("")
    request = JobRequest(name="a", **{"workload": Script(str(folder / "user.py"))} | fields)
    pack_payload(request, folder / "payload", wheels=wheels)
    return payload.load(folder / "payload")


def variables(**more):
    # Without this machine's own settings of pip: an image of AWS has none.
    return {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull} | more


def installed(folder, packed, *needs, **more):
    """Install what ``packed`` requires, and ``needs``; return the folder."""
    wanted = find_missing_packages(packed)
    install(
        packed,
        MissingPackages(requirements=wanted.requirements, needs=needs),
        folder / "site",
        variables(**more),
    )
    return folder / "site"


def run(code, *arguments, path):
    """Return what ``code`` prints in an image that has the folder ``path`` beside this machine's packages."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=180, check=True
    ).stdout


@pytest.mark.long
def test_a_ray_that_travelled_takes_the_place_of_the_image_s_which_stays_as_it_is(tmp_path):
    packed = pack(
        tmp_path,
        wheels=[make_wheel(tmp_path / "wheels", "ray", "2.60.99")],
        security=Security(isolation=True),
    )
    old = make_installed(tmp_path / "image", "ray", "2.52.1")
    site = installed(tmp_path, packed, NEEDS["ray"], PYTHONPATH=str(old))
    assert run(VERSION, path=[site, old]) == "2.60.99\n"
    assert run(VERSION, path=[old]) == "2.52.1\n"


def test_packages_that_travelled_are_installed_without_a_word_to_the_index_and_the_log_says_how_much(
    tmp_path, capfd
):
    wheel = make_wheel(tmp_path / "wheels", "travelled", body="VALUE = 42\n" * 200_000)
    with silent_port() as port:
        index = f"http://127.0.0.1:{port}/simple"
        packed = pack(
            tmp_path,
            wheels=[wheel],
            requirements=("# ours", "", "travelled  # bars"),
            pip_index=index,
        )
        site = installed(tmp_path, packed)
    assert (site / "travelled.py").stat().st_size == 2_200_000
    log = capfd.readouterr().err
    assert "raysm: installing 1 packages for travelled  # bars\n" in log
    assert re.search(
        r"raysm: installed 1 packages, \d MB, in \d+\.\d s \(\d+\.\d s of them to resolve versions",
        log,
    )


def test_what_did_not_travel_comes_from_the_index_that_the_request_names(tmp_path):
    wheels = [make_wheel(tmp_path / "there", "far", requires=["near"])]
    near = make_wheel(tmp_path / "here", "near")
    with package_index(*wheels) as url:
        packed = pack(tmp_path, wheels=[near], requirements=("far",), pip_index=url)
        site = installed(
            tmp_path, packed, PIP_INDEX_URL="http://nobody.invalid/simple", PIP_NO_INDEX="1"
        )
    assert {path.name for path in site.glob("*.py")} == {"far.py", "near.py"}


@pytest.mark.parametrize(
    ("wanted", "package", "version"),
    [
        ("ray<2.53", "ray", "2.52.1"),
        pytest.param("torch==1.0", "torch", "1.0", marks=pytest.mark.long),
    ],
)
def test_a_requirement_that_would_replace_the_image_s_torch_or_ray_is_refused(
    tmp_path, wanted, package, version
):
    wheels = [
        make_wheel(tmp_path / "wheels", "mover", requires=[wanted]),
        make_wheel(tmp_path / "wheels", package, version),
    ]
    packed = pack(
        tmp_path, wheels=wheels, requirements=("mover",), security=Security(isolation=True)
    )
    with pytest.raises(InvalidRequest, match=" mover .*conflict"):
        installed(tmp_path, packed)


@pytest.mark.long
def test_the_next_job_of_a_warm_pool_downloads_nothing_again(tmp_path):
    fetched = []
    (tmp_path / "warm").mkdir()
    warm = {
        "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": str(tmp_path / "warm"),
        "PIP_TRUSTED_HOST": "127.0.0.1",
    }
    with package_index(make_wheel(tmp_path / "there", "far"), fetched=fetched) as url:
        packed = pack(tmp_path, requirements=("far",), pip_index=url)
        for site in ("first", "second"):
            install(packed, find_missing_packages(packed), tmp_path / site, variables(**warm))
    assert (tmp_path / "second" / "far.py").exists()
    assert fetched == ["far-1.0-py3-none-any.whl"]


def test_an_image_with_another_ray_lacks_the_one_that_raysm_needs_and_says_which_it_has(tmp_path):
    pack(tmp_path)
    old = make_installed(tmp_path / "image", "ray", "2.52.1")
    command = [sys.executable, "-c", MISSING, str(tmp_path / "payload")]
    lacks = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(old)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert lacks.stdout == f"{NEEDS['ray']} (this image has Ray 2.52.1)\n"


def pip(folder, **variables):
    environment = {
        "PATH": os.environ["PATH"],
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
    } | variables
    return Pip(folder, environment)


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


TESTED = {"date": "2026-11-26", "versions": {"ray": "2.60.0", "pinned": "1.0"}}


@pytest.fixture
def tested(tmp_path, monkeypatch):
    """Let ``pinned`` 1.0 be the tested version, and return the address of an index that has 2.0 too."""
    monkeypatch.setattr(packages, "TESTED", tmp_path / "tested.json")
    (tmp_path / "tested.json").write_text(json.dumps(TESTED))
    wheels = [
        make_wheel(tmp_path / "index", "user", requires=["pinned"]),
        make_wheel(tmp_path / "index", "newer", requires=["pinned>=2"]),
        *(make_wheel(tmp_path / "index", "pinned", version) for version in ("1.0", "2.0")),
    ]
    with package_index(*wheels) as url:
        yield url


@pytest.mark.parametrize(
    ("requirements", "version", "is_told"),
    [
        (("user",), "1.0", False),
        pytest.param(("user", "newer"), "2.0", True, marks=pytest.mark.long),
    ],
)
def test_packages_have_their_tested_versions_unless_the_user_needs_others(
    tmp_path, tested, capfd, requirements, version, is_told
):
    site = installed(tmp_path, pack(tmp_path, requirements=requirements, pip_index=tested))
    assert (site / f"pinned-{version}.dist-info").is_dir()
    assert ("tested with this raysm on 2026-11-26 do not fit" in capfd.readouterr().err) == is_told


def locked(wheel, condition=""):
    """Return the line of a lock for a wheel."""
    name, version, *_ = wheel.name.split("-")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{name}=={version}{condition} --hash=sha256:{digest}"


HAS_UV = shutil.which("uv") or importlib.util.find_spec("uv")
LOCK = f"# packages of uv.lock, sha256 {'ab' * 32}, for Python >=3.11"


@pytest.mark.skipif(not HAS_UV, reason="uv is not installed")
def test_locked_packages_are_installed_by_the_uv_of_the_image_as_they_are_locked(tmp_path, capfd):
    far = make_wheel(tmp_path / "there", "far", requires=["near"])
    with package_index(far, make_wheel(tmp_path / "there", "far", "2.0")) as url:
        packed = pack(tmp_path, requirements=(LOCK, locked(far)), pip_index=url)
        lacks = find_missing_packages(packed)
        _, folder = install(packed, lacks, tmp_path / "site", variables(UV_NO_CONFIG="1"))
    text = "uv.lock (sha256 abababababab): 1 exact versions, of which this image lacks 1"
    assert lacks.lock == text
    assert (folder / "far-1.0.dist-info").is_dir()
    assert "installed 1 locked packages, 0 MB, by uv in" in capfd.readouterr().err


def test_a_file_that_is_not_the_locked_one_is_not_installed(tmp_path):
    line = locked(make_wheel(tmp_path / "then", "far"))
    with package_index(make_wheel(tmp_path / "now", "far", body="VALUE = 43\n")) as url:
        packed = pack(tmp_path, requirements=(LOCK, line), pip_index=url)
        environment = variables()
        with pytest.raises(InvalidRequest, match=r"uv\.lock.*HASHES"):
            install(packed, find_missing_packages(packed), tmp_path / "site", environment)


def test_an_image_that_has_the_locked_versions_lacks_nothing(tmp_path):
    far = make_wheel(tmp_path / "there", "far", "1.0")
    other = locked(make_wheel(tmp_path / "there", "other"), " ; sys_platform == 'win32'")
    pack(tmp_path, requirements=(LOCK, locked(far), other))
    for version, lacks in (("1.0+cu130", ""), ("1.1", "far==1.0")):
        image = make_installed(tmp_path / version, "far", version)
        code = MISSING.replace("print(", "lacks = ").removesuffix(")\n")
        code += "\nprint(lacks if lacks else '')"
        assert run(code, tmp_path / "payload", path=[image]) == f"{lacks}\n"


def test_a_uv_that_fails_is_replaced_by_pip_with_its_reason(tmp_path, capfd):
    far = make_wheel(tmp_path / "there", "far")
    broken = tmp_path / "bin" / "uv"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'no such index' >&2\nexit 2\n")
    broken.chmod(0o755)
    with package_index(far) as url:
        packed = pack(tmp_path, requirements=(LOCK, locked(far)), pip_index=url)
        environment = variables(PATH=f"{broken.parent}:{os.environ['PATH']}")
        _, folder = install(packed, find_missing_packages(packed), tmp_path / "site", environment)
    assert (folder / "far.py").exists()
    log = capfd.readouterr().err
    assert log.count("uv could not install them, pip is tried: no such index") == 1
    assert "by pip in" in log


def test_what_a_lock_does_not_have_is_installed_beside_it_in_versions_that_fit(tmp_path):
    shared = make_wheel(tmp_path / "there", "shared", "1.0")
    newer = make_wheel(tmp_path / "there", "shared", "2.0")
    with package_index(
        make_wheel(tmp_path / "there", "user", requires=["shared"]), shared, newer
    ) as url:
        packed = pack(tmp_path, requirements=(LOCK, locked(shared), "user"), pip_index=url)
        environment = variables()
        site, folder = install(
            packed, find_missing_packages(packed), tmp_path / "site", environment
        )
    assert {path.name for path in site.glob("*.py")} == {"user.py"}
    assert (folder / "shared-1.0.dist-info").is_dir()
