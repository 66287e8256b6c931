"""Libraries that a wheel carries: found by their recipe, believed by their digest, loaded without a compiler."""

import ctypes
import shutil

import pytest

from raysm.features.similarity.cluster.kernels import build
from raysm.features.similarity.cluster.kernels.build import library
from raysm.features.similarity.cluster.kernels.recipes import BASELINE, Recipe, sparse, this_machine

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
