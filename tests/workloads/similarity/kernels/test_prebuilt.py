"""Libraries that a wheel carries: found by their recipe, believed by their digest, loaded without a compiler."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.workloads.similarity.kernels import build
from raysm.workloads.similarity.kernels.build import library
from raysm.workloads.similarity.kernels.recipes import ARM, BASELINE, X86, Recipe, all_recipes, sparse, this_machine

NEWEST_GLIBC = (2, 17)
"""Of manylinux2014, which Ray's own wheels need (https://peps.python.org/pep-0599/)."""


ONE = sparse(BASELINE)
"""The library that takes least to compile."""


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """One library of this machine, as a wheel has them."""
    if build.compiler_for(this_machine()) is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("libraries")
    assert build.make(folder, [this_machine()], lambda machine: [ONE]) == {this_machine(): 1}
    return folder


@pytest.fixture
def libraries(carried, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(carried, tmp_path / "libraries")


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))


def the_one(folder, recipe):
    return folder / f"{this_machine()}-{recipe.digest(this_machine())}.so"


def loaded(folder, recipe, tmp_path):
    """Return what a process that has loaded nothing yet gets."""
    return library.__wrapped__(recipe, folder=tmp_path, carried=folder)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_carried_one_is_loaded(libraries, tmp_path):
    assert isinstance(loaded(libraries, ONE, tmp_path), ctypes.CDLL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libraries"]


def test_one_of_another_source_is_not_taken(libraries, tmp_path):
    source = tmp_path / "sparse.c"
    source.write_text(ONE.source.read_text() + "/* mended */\n")
    recipe = Recipe(source, BASELINE)
    assert build.find(recipe, libraries) is None


def test_one_that_cannot_be_loaded_here_is_compiled(libraries, tmp_path):
    """As where the C library is another one: the loader refuses it."""
    the_one(libraries, ONE).write_bytes(b"no library")
    kept = tmp_path / "kept"
    assert isinstance(loaded(libraries, ONE, kept), ctypes.CDLL)
    assert len(list(kept.glob("*.so"))) == 1


@pytest.fixture(scope="module", params=[X86, ARM])
def every_library(request, tmp_path_factory):
    """All libraries of a machine."""
    machine = request.param
    if build.compiler_for(machine) is None:
        pytest.skip(f"no compiler for {machine}: install gcc-{machine.replace('_', '-')}-linux-gnu")
    folder = tmp_path_factory.mktemp(machine)
    assert build.make(folder, [machine]) == {machine: len(list(all_recipes(machine)))}
    return machine, sorted(folder.glob("*.so"))


@pytest.mark.long
def test_every_library_is_for_its_machine(every_library):
    machine, libraries = every_library
    # What machine an ELF file is for stands in its 19th byte: 62 and 183 (https://refspecs.linuxfoundation.org/elf/).
    assert {path.read_bytes()[18] for path in libraries} == {{X86: 62, ARM: 183}[machine]}


@pytest.mark.long
def test_they_need_no_newer_c_library_than_rays_own_wheels(every_library):
    if shutil.which("objdump") is None:
        pytest.skip("no objdump: install binutils")
    for path in every_library[1]:
        listed = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", listed)]
        assert all(version <= NEWEST_GLIBC for version in versions), path.name
        assert versions


@pytest.mark.long
def test_an_engine_without_a_compiler_answers_as_with_one(every_library, tmp_path):
    """Every engine that this processor has, by the library that a wheel carries: it is loaded, and held to NumPy."""
    machine, libraries = every_library
    if machine != this_machine():
        pytest.skip(f"runs on {machine}")
    code = (
        "from raysm.workloads.similarity.engines.choice import compile_ahead, choose\n"
        "import numpy as np, sys\n"
        "from raysm.workloads.similarity.arithmetic.score import Tile, prepare\n"
        "from raysm.workloads.similarity.engines.protocol import Frame\n"
        "rows = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)\n"
        "tile = Tile(rows=rows, norms=prepare(rows).norms, start=0)\n"
        "print(choose(tile, Frame.plain(64)).name)\n"
    )
    package = tmp_path / "raysm"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(raysm.__file__).parent, package, ignore=ignored)
    folder = package / "workloads" / "similarity" / "kernels" / "libraries"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(libraries[0].parent, folder)
    said = {}
    for path in ("/usr/bin:/bin", str(tmp_path / "nothing")):
        environment = {"PATH": path, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stderr
        said[path] = done.stdout.strip()
    assert len(set(said.values())) == 1
    assert "no C compiler" not in said.popitem()[1]
    # Nothing was compiled: what is carried was taken.
    assert not list(tmp_path.glob("raysm-kernels-*"))
