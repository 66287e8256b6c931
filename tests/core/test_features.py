"""Tests of ``raysm.core.features``: what is found, in which packages, and what is not there."""

import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import raysm
from raysm.core import features
from raysm.core.protocol.packages import library, unpack
from raysm.errors import MissingDependency

ROOT = Path(raysm.__file__).parents[1]

FEATURE = """
from raysm.core.features import Feature

FEATURE = Feature(kinds={"hello": "hello_feature:Hello"}, names={"Hello": "hello_feature:Hello"})


class Hello:
    pass
"""


def install(folder, module, text):
    """Put a package with a feature into a folder, as pip would."""
    (folder / f"{module}.py").write_text(text)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{features.GROUP}]\nhello = {module}:FEATURE\n")


def run(code, *folders):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-P", "-W", "always", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_another_package_adds_a_kind_and_a_public_name(tmp_path):
    install(tmp_path, "hello_feature", FEATURE)
    code = (
        "import raysm; from raysm.core import features\n"
        "print(raysm.Hello.__module__, 'Hello' in raysm.__all__, features.path_of('kinds', 'hello'))"
    )
    done = run(code, tmp_path, ROOT)
    assert done.stdout.split() == ["hello_feature", "True", "hello_feature:Hello"], done.stderr


def test_a_feature_of_another_package_that_fails_is_left_out_with_a_warning(tmp_path):
    install(tmp_path, "hello_feature", "raise RuntimeError('no such device')")
    done = run("import raysm; print(hasattr(raysm, 'Hello'), 'Similarity' in raysm.__all__)", tmp_path, ROOT)
    assert done.stdout.split() == ["False", "True"], done.stderr
    assert "hello_feature" in done.stderr
    assert "no such device" in done.stderr


def test_no_other_package_takes_a_name_of_raysms_own(tmp_path):
    install(tmp_path, "hello_feature", FEATURE.replace('names={"Hello"', 'names={"Similarity"'))
    done = run("import raysm; print(raysm.Similarity.__module__)", tmp_path, ROOT)
    assert done.stdout.strip() == "raysm.features.similarity.request", done.stderr


def test_a_view_that_no_feature_offers_is_a_missing_dependency():
    with pytest.raises(MissingDependency, match="'no_such_view'"):
        features.view("no_such_view")


def test_an_instance_finds_the_features_in_what_it_has_unpacked(tmp_path):
    archive = tmp_path / "raysm.zip"
    archive.write_bytes(library())
    code = "import raysm; from raysm.core import features; print(raysm.__file__, features.path_of('kinds', 'batch'))"
    for place in (unpack(archive, tmp_path / "unpacked"), archive):
        done = run(code, place)
        file, path = done.stdout.split()
        assert Path(file).is_relative_to(place), done.stderr
        assert path == "raysm.features.batch.request:BatchInference"


@pytest.fixture
def without_similarity(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "raysm", tree / "raysm", ignore=shutil.ignore_patterns("__pycache__", "similarity"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def test_a_feature_whose_folder_is_gone_is_not_there(without_similarity):
    code = "import raysm; print('Similarity' in raysm.__all__, hasattr(raysm, 'Similarity'), raysm.Script.kind)"
    done = run(code, without_similarity)
    assert done.stdout.split() == ["False", "False", "script"], done.stderr


def test_the_features_of_a_source_tree_are_those_of_the_installed_package():
    with zipfile.ZipFile(io.BytesIO(library())) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        lines = archive.read(name).decode().splitlines()[1:]
    assert [features.Entry(*line.split(" = ")) for line in lines] == list(features.own_entries())
