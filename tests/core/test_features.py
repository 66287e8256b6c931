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
    done = run(
        "import raysm; print(hasattr(raysm, 'Hello'), 'Similarity' in raysm.__all__)",
        tmp_path,
        ROOT,
    )
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
    shutil.copytree(
        ROOT / "raysm", tree / "raysm", ignore=shutil.ignore_patterns("__pycache__", "similarity")
    )
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


COMMAND = """
from raysm.cli.parser import add, add_command
from raysm.core.features import Feature

FEATURE = Feature(commands={"greet": "hello_feature:add_greet", "broken": "hello_feature:add_broken"})


def add_greet(commands):
    greet = add_command(
        commands,
        "greet",
        "say hello",
        run="hello_feature:greet",
        family="be polite",
        examples="raysm greet Ray",
        overview=["raysm greet"],
    )
    add(greet, "NAME", "who is greeted")


def add_broken(commands):
    raise RuntimeError("no such device")


def greet(arguments, console):
    print("hello", arguments.name)
"""


def raysm_command(*words, folders):
    return run(
        f"import sys; from raysm.cli.main import main; sys.exit(main({[*words]!r}))", *folders
    )


def test_another_package_adds_a_command_with_its_help_and_its_family(tmp_path):
    install(tmp_path, "hello_feature", COMMAND)
    assert raysm_command("greet", "Ray", folders=[tmp_path, ROOT]).stdout == "hello Ray\n"
    own = raysm_command("greet", "--help", folders=[tmp_path, ROOT]).stdout
    assert "who is greeted" in own
    assert own.endswith("examples:\n  raysm greet Ray\n")
    listed = raysm_command("--help", folders=[tmp_path, ROOT])
    assert listed.stdout.index("\nset up:\n") < listed.stdout.index("\nbe polite:\n  greet ")
    assert "\n  raysm greet\n" in listed.stdout
    # One that cannot be added is left out of the list, with a warning.
    assert "broken" not in listed.stdout
    assert "no such device" in listed.stderr


def test_a_command_of_raysms_own_imports_no_feature_and_a_features_own_no_other(tmp_path):
    install(tmp_path, "hello_feature", COMMAND)
    code = (
        "import sys; from raysm.cli.arguments import parse; parse({words!r})\n"
        "print(*(name for name in sys.modules if name.endswith('_arguments') or name == 'hello_feature'))"
    )
    done = run(code.format(words=["jobs"]), tmp_path, ROOT)
    assert {name for name in done.stdout.split() if not name.startswith("raysm.cli.")} == {
        "raysm.features.experiments.command_arguments"
    }, done.stderr
    done = run(code.format(words=["status", "digits"]), tmp_path, ROOT)
    assert all(name.startswith("raysm.cli.") for name in done.stdout.split()), done.stderr


def test_a_feature_whose_folder_is_gone_has_no_command(without_similarity):
    done = raysm_command("similarity", "m.npy", "--top-k", "3", folders=[without_similarity])
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "raysm: there is no command 'similarity'"
    listed = raysm_command("--help", folders=[without_similarity])
    assert listed.returncode == 0, listed.stderr
    assert "similarity" not in listed.stdout
    assert "\n  train " in listed.stdout
