"""Which packages a job installs where the source folder has a lock or a requirements file."""

import hashlib
import importlib.util
import shutil

import pytest

from raysm.core.client.settings import Layer, Settings, packaged_options
from raysm.core.client.source.lock import read_requirements
from raysm.core.client.submit import prepare
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from tests.support.wheels import make_wheel

HAS_UV = shutil.which("uv") or importlib.util.find_spec("uv")
needs_uv = pytest.mark.skipif(not HAS_UV, reason="uv is not installed")

FILE_HASH = "ab" * 32
PYLOCK = f"""
lock-version = "1.0"
requires-python = ">=3.11"
[[packages]]
name = "alpha"
version = "1.2"
index = "https://pip.example/simple"
wheels = [{{ url = "https://pip.example/alpha.whl", hashes = {{ sha256 = "{FILE_HASH}" }} }}]
[[packages]]
name = "beta"
version = "2.0"
marker = "sys_platform == 'linux'"
sdist = {{ url = "https://pip.example/beta.tar.gz", hashes = {{ sha256 = "{FILE_HASH}", md5 = "0" }} }}
[[packages]]
name = "gamma"
vcs = {{ type = "git", url = "https://git.example/gamma", commit-id = "c0ffee", subdirectory = "py" }}
[[packages]]
name = "delta"
archive = {{ url = "https://pip.example/delta.zip", hashes = {{ sha256 = "{FILE_HASH}" }} }}
"""
PROJECT = """
[project]
name = "project"
version = "1"
requires-python = ">=3.11"
dependencies = ["alpha"]
"""
UV_LOCK = f"""
version = 1
requires-python = ">=3.11"

[[package]]
name = "alpha"
version = "1.2"
source = {{ registry = "https://pip.example/simple" }}
wheels = [{{ url = "https://pip.example/alpha-1.2-py3-none-any.whl", hash = "sha256:{FILE_HASH}" }}]

[[package]]
name = "project"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "alpha" }}]

[package.metadata]
requires-dist = [{{ name = "alpha" }}]
"""


@pytest.fixture
def folder(tmp_path, home):
    (tmp_path / "train.py").write_text("pass")
    return tmp_path


def sent(folder, **options):
    return prepare(Script(str(folder / "train.py")), **options)


def header(file, python=">=3.11"):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"# packages of {file.name}, sha256 {digest}, for Python {python}"


def test_a_pylock_becomes_exact_versions_with_their_hashes_conditions_and_indexes(folder):
    file = folder / "pylock.toml"
    file.write_text(PYLOCK)
    assert sent(folder).request.requirements == (
        header(file),
        "--extra-index-url https://pip.example/simple",
        f"alpha==1.2 --hash=sha256:{FILE_HASH}",
        f"beta==2.0 ; sys_platform == 'linux' --hash=sha256:{FILE_HASH}",
        "gamma @ git+https://git.example/gamma@c0ffee#subdirectory=py",
        f"delta @ https://pip.example/delta.zip --hash=sha256:{FILE_HASH}",
    )


@needs_uv
def test_a_uv_lock_is_used_before_other_files_and_it_is_said_which_are_not(folder):
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "uv.lock").write_text(UV_LOCK)
    (folder / "requirements.txt").write_text("epsilon\n")
    ready = sent(folder)
    assert ready.request.requirements == (
        header(folder / "uv.lock"),
        "--extra-index-url https://pip.example/simple",
        f"alpha==1.2 --hash=sha256:{FILE_HASH}",
    )
    digest = hashlib.sha256(UV_LOCK.encode()).hexdigest()[:12]
    expected = f"1 package of uv.lock (sha256 {digest}); not requirements.txt beside it"
    assert ready.packages == expected


@needs_uv
def test_a_uv_lock_of_other_dependencies_than_the_project_s_is_refused(folder):
    (folder / "pyproject.toml").write_text(PROJECT.replace('"alpha"', '"alpha>=2"'))
    (folder / "uv.lock").write_text(UV_LOCK)
    with pytest.raises(InvalidRequest, match=r"uv\.lock does not fit") as raised:
        sent(folder)
    assert raised.value.remedy == "run uv lock"


def test_the_requirements_that_are_given_are_used_and_not_those_of_the_folder(folder):
    (folder / "pylock.toml").write_text(PYLOCK)
    for given in (("six",), ()):
        ready = sent(folder, requirements=given)
        assert ready.request.requirements == given
        assert ready.packages == f"the given requirements, not pylock.toml in {folder}"


def test_a_requirements_file_of_the_folder_may_have_hashes(folder):
    file = folder / "requirements.txt"
    file.write_text(f"six==1.17 \\\n    --hash=sha256:{FILE_HASH} \\\n    # via us\ntqdm>=4\n")
    exact = f"six==1.17 --hash=sha256:{FILE_HASH}"
    assert sent(folder).request.requirements == (header(file, "any"), exact, "tqdm>=4")


def test_a_local_package_of_a_lock_is_refused_unless_its_wheel_is_sent(folder):
    file = folder / "pylock.toml"
    local = 'lock-version = "1.0"\n[[packages]]\nname = "own"\ndirectory = { path = "own" }\n'
    file.write_text(local)
    with pytest.raises(InvalidRequest, match="'own'"):
        sent(folder)
    wheel = make_wheel(folder / "dist", "own")
    # As the command line gives it.
    options = {"wheels": [wheel], "requirements": ["own==1.0"]}
    assert sent(folder, **options).request.requirements == (header(file, "any"), "own==1.0")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alpha = [", "is not a lock"),
        ('lock-version = "1.0"', "KeyError 'packages'"),
        ('lock-version = "2.0"', "lock-version 2.0"),
        ('lock-version = "1.0"\nrequires-python = "<3.11"\npackages = []', "is for Python <3.11"),
        (PYLOCK.replace("sys_platform == 'linux'", "'gpu' in extras"), "'gpu' in extras"),
        (PYLOCK.replace('"alpha"', '"ray"'), "'ray==1.2'"),
    ],
)
def test_a_lock_that_no_instance_could_use_is_refused_before_anything_is_sent(folder, text, words):
    (folder / "pylock.toml").write_text(text)
    with pytest.raises(InvalidRequest, match=words):
        sent(folder)


def test_a_uv_lock_without_its_project_is_refused(folder):
    (folder / "uv.lock").write_text(UV_LOCK)
    with pytest.raises(InvalidRequest, match=r"pyproject\.toml"):
        sent(folder)


def test_a_lock_that_is_named_is_read_from_any_folder(tmp_path):
    file = tmp_path / "pylock.gpu.toml"
    file.write_text(PYLOCK)
    layer = Layer(values={("requirements",): [str(file)]}, origin=str)
    named = packaged_options(Settings([layer]))["requirements"]
    assert named == read_requirements(file)
    assert named[0] == header(file)
