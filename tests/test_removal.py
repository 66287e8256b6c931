"""raysm without the folder of one of its features: the rest works, and what needs the feature says so."""

import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.cli.arguments import build_parser
from raysm.core.features import Feature, own_entries
from tests.support.homes import serving

ROOT = Path(raysm.__file__).parents[1]
PROBE = Path(__file__).parent / "support" / "without_feature.py"
FEATURES = sorted(
    path.name
    for path in (ROOT / "raysm" / "features").iterdir()
    if (path / "__init__.py").is_file()
)


def registered(feature):
    """Return what a feature of raysm adds to it."""
    paths = (
        entry.value
        for entry in own_entries()
        if entry.value.startswith(f"raysm.features.{feature}.")
    )
    return next(map(pkgutil.resolve_name, paths), Feature())


def without(feature, folder):
    """Return a copy of raysm in ``folder`` without the feature's folder, with the bytecode of the rest."""
    left_out = ROOT / "raysm" / "features" / feature

    def ignored(place, names):
        return [
            name for name in names if Path(place, name) == left_out or name.startswith("raysm.zip")
        ]

    # copy2 keeps the times, by which Python finds the bytecode valid.
    shutil.copytree(ROOT / "raysm", folder / "raysm", ignore=ignored, copy_function=shutil.copy2)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run(tree, *arguments, **variables):
    """Run Python with the raysm of ``tree``; return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(tree)} | variables
    # -B: raysm then sends itself without bytecode, which would take seconds to compile.
    command = [sys.executable, "-B", "-P", *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=FEATURES)
def feature(request):
    return request.param


@pytest.fixture(scope="module")
def answers(feature, tmp_path_factory):
    """What the probe answers in a tree without the feature."""
    tree, own = without(feature, tmp_path_factory.mktemp("tree")), tmp_path_factory.mktemp("own")
    found = json.loads(run(tree, PROBE, feature, own))
    assert Path(found["place"]).is_relative_to(tree)
    shutil.rmtree(tree)
    return found


def test_every_public_name_that_is_left_can_be_imported(answers):
    assert {name: error for name, error in answers["names"].items() if error is not None} == {}


def test_the_names_of_the_other_features_are_left(answers, feature):
    assert set(answers["names"]) == set(raysm.__all__) - set(registered(feature).names)


def test_raysm_help_shows_the_commands_of_the_other_features(answers, feature):
    left = set(build_parser().commands) - set(registered(feature).commands)
    assert set(answers["commands"]) == left
    assert all(f"\n  {name} " in answers["help"] for name in left)


def test_a_job_of_another_feature_can_be_sent_and_awaited(answers):
    assert answers["status"] == "Completed"


def test_a_kind_of_the_feature_is_refused_by_its_name(answers):
    for kind, (error, text) in answers["kinds"].items():
        assert error == "InvalidRequest"
        assert repr(kind) in text


def test_what_needs_the_feature_says_so_in_one_sentence(answers):
    for what, (error, text) in answers["needs"].items():
        assert error == "MissingDependency", (what, text)
        assert "\n" not in text


FUNCTION = """
import raysm

def nodes():
    import ray
    return sum(node["Alive"] for node in ray.nodes())

print(raysm.submit(raysm.Function(nodes), cluster=raysm.Cluster(count=2)).result(timeout=300))
"""

SIMILARITY = """
import numpy as np
import raysm

np.save("m.npy", np.eye(8, dtype=np.float32))
job = raysm.submit(raysm.Similarity(top_k=1), inputs={"matrix": "m.npy"}, cluster=raysm.Cluster(count=2))
job.result(timeout=300)
print(sum(count for _, count in job.instances))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("feature", "program"), [("similarity", FUNCTION), ("training", SIMILARITY)]
)
def test_a_job_of_another_feature_runs_on_two_instances(feature, program, tmp_path):
    tree = without(feature, tmp_path / "tree")
    with serving(tmp_path / "home") as home:
        assert run(tree, "-c", program, RAYSM_HOME=str(home)) == "2\n"
