"""A job whose source folder has a lock."""

import hashlib
import importlib.util
import re
import shutil

import pytest

from raysm.cli.main import main
from tests.support.package_index import package_index
from tests.support.pages import outputs
from tests.support.wheels import make_wheel

HAS_UV = shutil.which("uv") or importlib.util.find_spec("uv")

PROJECT = '[project]\nname = "project"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["far", "near"]\n'
PACKAGE = """
[[package]]
name = "{name}"
version = "1.0"
source = {{ registry = "{url}" }}
wheels = [{{ url = "{url}/{name}-1.0-py3-none-any.whl", hash = "sha256:{digest}" }}]
"""
ROOT = """
[[package]]
name = "project"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "far" }, { name = "near" }]

[package.metadata]
requires-dist = [{ name = "far" }, { name = "near" }]
"""


def without_numbers(line):
    return re.sub(r"(?<=sha256 )\w+|(?<![\w-])\d[\d.]*", "N", line.strip())


@pytest.mark.skipif(not HAS_UV, reason="uv is not installed")
@pytest.mark.usefixtures("home")
def test_each_instance_installs_the_packages_of_the_lock_and_says_so_as_the_page_shows(
    tmp_path, monkeypatch, capfd
):
    wheels = {name: make_wheel(tmp_path / "there", name) for name in ("far", "near")}
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "train.py").write_text("import far, near\nprint('imported', far.VALUE)\n")
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "requirements.txt").write_text("absent\n")
    with package_index(*wheels.values()) as url:
        packages = "".join(
            PACKAGE.format(
                name=name,
                url=url.rstrip("/"),
                digest=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            )
            for name, wheel in wheels.items()
        )
        head = 'version = 1\nrequires-python = ">=3.11"\n'
        (project / "uv.lock").write_text(f"{head}{packages}{ROOT}")
        assert main(["run", "train.py", "--instances", "2", "--pip-index", url]) == 0
    printed = capfd.readouterr().out
    assert "algo-1 | imported 42\n" in printed
    said = re.findall(r"raysm: packages of uv\.lock \(sha256 (\w+)\)", printed)
    assert len(said) == 2
    assert len(set(said)) == 1
    (shown,) = outputs("guides/send-code-and-packages.md")
    lines = {without_numbers(line) for line in printed.splitlines()}
    assert {without_numbers(line) for line in shown.splitlines()} <= lines
