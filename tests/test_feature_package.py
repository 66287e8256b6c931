"""The package of "Add a feature by a package of your own" is installed, and does what the page says."""

import os
import re
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import raysm
from tests.support.homes import serving

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "add-a-feature.md"
BLOCK = re.compile(r"```(?:python|toml)\n(?:# (raysm-lines/\S+)\n)?(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return a Python with what this one has, and the package of the page."""
    folder = tmp_path_factory.mktemp("package")
    for name, content in BLOCK.findall(PAGE.read_text()):
        if name:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    (folder / "raysm-lines" / "raysm_lines" / "__init__.py").touch()
    environment = folder / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python3"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    here = {
        sysconfig.get_path("purelib"),
        *site.getsitepackages(),
        str(Path(raysm.__file__).parents[1]),
    }
    here |= {path for path in sys.path if path.endswith("site-packages")}
    (packages / "these.pth").write_text(
        "\n".join(f"import site; site.addsitedir({path!r})" for path in here)
    )
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", folder / "raysm-lines"], check=True, timeout=300)
    return python


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n\nthree\n")
    (folder / "b.txt").write_text("four\n")
    return folder


def run(python, folder, *command, **variables):
    environment = {**os.environ, **variables}
    del environment["PATH"]
    done = subprocess.run(
        [python, *command],
        cwd=folder,
        env={**environment, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_command_is_listed_in_its_own_section(python, tmp_path):
    shown = run(python, tmp_path, "-m", "raysm", "--help")
    assert re.search(r"count things:\n +lines +count the lines of text files", shown)
    assert "raysm lines texts/ --instances 2" in run(
        python, tmp_path, "-m", "raysm", "lines", "--help"
    )


def test_the_name_is_public_and_the_kind_can_be_named_in_a_request(python, tmp_path):
    code = (
        "import raysm; from raysm.core.request import Workload\n"
        "print(raysm.CountLines is Workload.named('lines'), 'CountLines' in raysm.__all__)"
    )
    assert run(python, tmp_path, "-c", code) == "True True\n"


@pytest.mark.long
def test_a_job_runs_by_the_command_and_from_python_as_the_page_shows(python, texts, tmp_path):
    with serving(tmp_path / "home") as home:
        shown = run(
            python,
            tmp_path,
            "-m",
            "raysm",
            "lines",
            "texts/",
            "--instances",
            "2",
            RAYSM_HOME=str(home),
        )
        assert shown.splitlines()[-1] == "4 lines"
        (code,) = (content for name, content in BLOCK.findall(PAGE.read_text()) if not name)
        shown = run(python, tmp_path, "-c", code, RAYSM_HOME=str(home))
        assert shown.splitlines()[-1] == "{'a.txt': 2, 'b.txt': 1}"
