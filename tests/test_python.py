"""The least Python is said once, in pyproject.toml; whatever else names it says the same."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LEAST = PROJECT["project"]["requires-python"].removeprefix(">=")

SAYING = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("**/*.md"),
    *(ROOT / "containers").iterdir(),
    *(ROOT / "raysm").glob("**/*.py"),
]


def said(path):
    """The versions of which a text says that they are the least: also where a line breaks within."""
    text = re.sub(r"[\s#\"]+", " ", path.read_text())
    return re.findall(r"[Pp]ython (3\.\d+) or (?:later|newer)", text)


def test_what_the_tools_take_for_the_least_python_is_the_projects():
    assert PROJECT["tool"]["mypy"]["python_version"] == LEAST
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{LEAST.replace('.', '')}"


@pytest.mark.parametrize("path", [path for path in SAYING if said(path)], ids=lambda path: path.name)
def test_every_text_that_names_the_least_python_names_this_one(path):
    assert set(said(path)) == {LEAST}


def test_pages_containers_and_docstrings_are_looked_at():
    rooms = {path.relative_to(ROOT).parts[0] for path in SAYING if said(path)}
    assert {"docs", "containers", "raysm"} <= rooms


@pytest.mark.parametrize("path", sorted((ROOT / "containers").glob("Dockerfile*")), ids=lambda path: path.name)
def test_a_container_has_no_older_python(path):
    for version in re.findall(r"python:(\d+\.\d+)", path.read_text()):
        assert tuple(map(int, version.split("."))) >= tuple(map(int, LEAST.split(".")))
