"""Tests of ``raysm.contract.packages``."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import raysm
from raysm.contract.packages import NEEDS, kept_library, library, name_of, unpack, without_credentials
from raysm.errors import InvalidPayload


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    (folder / "room").mkdir(parents=True)
    (folder / "__init__.py").write_text("a = 1\n")
    (folder / "room" / "b.py").write_text("b = 1\n")
    (folder / "data.csv").write_text("left at home")
    return folder


def kept(package):
    return sorted((package / "__pycache__").glob("raysm.zip.*"))


def names_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist()


def test_modules_are_packed_once_and_anew_when_one_has_changed_is_gone_or_was_added(package):
    first = kept_library(package)
    assert names_of(first) == ["package/__init__.py", "package/__init__.pyc", "package/room/b.py"]
    (file,) = kept(package)
    assert file.read_bytes() == first
    # What is there is taken: nothing is packed a second time.
    file.unlink()
    assert kept_library(package) == first
    file.write_bytes(b"kept")
    assert kept_library(package) == b"kept"
    (package / "room" / "b.py").write_text("b = 2\n")
    os.utime(package / "room" / "b.py", ns=(1, 1))
    assert kept_library(package) != b"kept"
    (package / "c.py").write_text("")
    assert "package/c.py" in names_of(kept_library(package))
    (package / "c.py").unlink()
    assert names_of(kept_library(package)) == names_of(first)
    assert len(kept(package)) == 1


def test_a_zip_that_is_not_kept_has_no_bytecode(package):
    assert names_of(kept_library(package, keep=False)) == ["package/__init__.py", "package/room/b.py"]
    assert kept(package) == []


@pytest.fixture
def unpacked(package, tmp_path):
    """Unpack the zip of a package with one module of an instance; ``change`` edits the zip's entries by name."""

    def unpacked(change=lambda name, content: content):
        (package / "contract").mkdir()
        (package / "contract" / "c.py").write_text("c = 1\n")
        library = tmp_path / "library.zip"
        with zipfile.ZipFile(io.BytesIO(kept_library(package))) as archive, zipfile.ZipFile(library, "w") as changed:
            for name in archive.namelist():
                changed.writestr(name, change(name, archive.read(name)))
        return unpack(library, tmp_path / "unpacked")

    return unpacked


def test_an_instance_gets_the_bytecode_of_the_modules_that_it_runs_and_does_not_compile_them(unpacked):
    folder = unpacked()
    assert (folder / "package" / "room" / "b.py").read_text() == "b = 1\n"
    assert not (folder / "package" / "room" / "__pycache__").exists()
    # A change of the source would not be seen: the bytecode is part of what was verified.
    (folder / "package" / "contract" / "c.py").write_text("c = 2\n")
    command = [sys.executable, "-c", "from package.contract import c; print(c.c)"]
    assert subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout == "1\n"


def test_a_module_with_the_bytecode_of_another_python_is_compiled(unpacked):
    folder = unpacked(lambda name, content: b"other" + content if name.endswith(".pyc") else content)
    command = [sys.executable, "-c", "from package.contract import c; print(c.c)"]
    assert subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout == "1\n"


def test_a_job_that_sends_jobs_has_what_instances_do_not_unpack_and_sends_the_zip_that_it_came_in(tmp_path):
    archive = tmp_path / "library.zip"
    archive.write_bytes(library())
    folder = unpack(archive, tmp_path / "unpacked", "raysm.workloads.runners.session:SessionRunner")
    assert not (folder / "raysm" / "client").exists()
    code = "import sys, raysm.grid, raysm.client.plan as plan, raysm.contract.packages as packages\n"
    code += "import raysm.workloads.session as own, raysm.workloads.training as other\n"
    code += "print(plan.__file__, own.__file__, other.__file__, sep='\\n')\n"
    code += "print(packages.library() == open(sys.argv[1], 'rb').read())"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", code, archive]
    said = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    plan, own, other, same = said.splitlines()
    assert plan == str(folder / "raysm" / "raysm.zip" / "raysm" / "client" / "plan.py")
    assert own == str(folder / "raysm" / "workloads" / "session" / "__init__.py")
    assert other.startswith(str(folder / "raysm" / "raysm.zip" / "raysm" / "workloads" / "training" / "__init__.py"))
    assert same == "True"


def test_a_zip_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "library.zip").write_bytes(b"torn")
    with pytest.raises(InvalidPayload, match=r"library.zip cannot be unpacked"):
        unpack(tmp_path / "library.zip", tmp_path / "unpacked")


def test_what_an_image_may_lack_is_required_as_the_project_requires_it():
    text = (Path(raysm.__file__).parents[1] / "pyproject.toml").read_text()
    assert all(f'"{requirement}"' in text for requirement in NEEDS.values())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ray[default]>=2.60", "ray"),
        ("sparse_dot.topn", "sparse-dot-topn"),
        ("torch@https://host/torch.whl", "torch"),
        ("# torch", ""),
    ],
)
def test_the_package_that_a_line_names(line, name):
    assert name_of(line) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--extra-index-url https://me:p@ss@pypi.example/simple", "--extra-index-url https://***@pypi.example/simple"),
        ("package @ git+ssh://git@github.com/me/it.git@main", "package @ git+ssh://***@github.com/me/it.git@main"),
        ("https://a@one/x https://b@two/y", "https://***@one/x https://***@two/y"),
        ("plain @ https://pypi.example/plain@1.0.tar.gz", "plain @ https://pypi.example/plain@1.0.tar.gz"),
    ],
)
def test_what_stands_before_a_host_is_starred_and_nothing_else(text, shown):
    assert without_credentials(text) == shown
