"""What a job installs is there for the job, and leaves the Python environment that runs it as it was."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from raysm.local.instances.process import can_mount, make_virtual_environment
from tests.support.leftovers import assert_nothing_left
from tests.support.wheels import make_installed, make_wheel

KINDS = [
    pytest.param(
        "process", marks=pytest.mark.skipif(not can_mount(), reason="needs the right to mount")
    ),
    "process without mounts",
    pytest.param("namespace", marks=[pytest.mark.namespace, pytest.mark.long]),
]

SITE = """
import json, os, pathlib, sys
from raysm.local.instances import InstanceSpec
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.process import ProcessSite

class WithoutMounts(ProcessSite):
    protects = False

kind, private, keep, script = sys.argv[1:]
private = pathlib.Path(private)
(private / "ml").mkdir(parents=True)
sites = {
    "process": ProcessSite,
    "process without mounts": WithoutMounts,
    "namespace": lambda: NamespaceSite(keep=[pathlib.Path(keep)]),
}
with sites[kind]() as site, open(private / "log", "wb") as log:
    path = f"{pathlib.Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    (instance,) = site.start([
        InstanceSpec(
            host="algo-1", base=private / "ml", private=private, log_fd=log.fileno(), variables={"PATH": path},
            command=("sh", "-ec", script),
        )
    ])
    sys.exit(instance.wait(300))
"""

BACKEND = """
import pathlib, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "edited-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("edited.pth", f"{pathlib.Path.cwd()}\\n")
        info = "edited-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: edited\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


@pytest.fixture
def environment(tmp_path):
    """A user's environment with the package ``shipped`` in it; it sees what this Python sees."""
    folder = tmp_path / "environment"
    make_virtual_environment(folder)
    (site_packages,) = folder.glob("lib/*/site-packages")
    make_installed(site_packages, "shipped", "1.0", "VALUE = 1\n")
    return folder


@pytest.fixture
def run(environment, tmp_path):
    """Run a script in an instance of the environment's Python; return what it printed."""

    def run(kind, script):
        before = tree(environment)
        private = tmp_path / "job" / "algo-1"
        done = subprocess.run(
            [
                environment / "bin" / "python",
                "-c",
                SITE,
                kind,
                private,
                tmp_path,
                textwrap.dedent(script),
            ],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=400,
        )
        log = (private / "log").read_text()
        assert done.returncode == 0, done.stderr + log
        assert tree(environment) == before
        assert_nothing_left(tmp_path / "job")
        return log

    return run


def tree(folder):
    """Every file of a folder with a digest of its content, but for bytecode."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_a_job_installs_can_be_imported_and_leaves_the_users_environment_as_it_was(
    run, tmp_path, kind
):
    make_wheel(
        tmp_path / "wheels",
        "fresh",
        scripts={"fresh-command": "fresh:main"},
        body="def main(): print('ran')\n",
    )
    make_wheel(tmp_path / "wheels", "shipped", "2.0", "VALUE = 2\n")
    log = run(
        kind,
        f"""
        pip install -q --no-index --find-links {tmp_path / "wheels"} --upgrade fresh shipped
        fresh-command
        python -c "import fresh, shipped; print(shipped.VALUE)"
        """,
    )
    assert log.splitlines()[-2:] == ["ran", "2"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_uv_an_editable_install_and_an_uninstall_are_the_jobs_too(run, tmp_path, kind):
    make_wheel(tmp_path / "wheels", "fresh", body="VALUE = 4\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "edited.py").write_text("VALUE = 3\n")
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    options = f"-q --no-index --find-links {tmp_path / 'wheels'} fresh"
    uv = shutil.which("uv")
    if uv is not None:
        # The instance does not see every folder of this machine.
        uv = shutil.copy(uv, tmp_path / "uv")
    log = run(
        kind,
        f"""
        {f'{uv} pip install --python "$(command -v python)" --offline {options}' if uv else f"pip install {options}"}
        pip install -q --no-index --no-build-isolation -e {project}
        pip uninstall -y -q shipped || true
        python -c "import edited, fresh; print(edited.VALUE, fresh.VALUE)"
        """,
    )
    assert log.splitlines()[-1] == "3 4"


def test_commands_of_the_users_environment_run_in_the_virtual_environment(environment, tmp_path):
    command = environment / "bin" / "which-python"
    command.write_text(
        f"#!{environment}/bin/python\nimport json, sys\nprint(json.dumps([sys.prefix, sys.argv[1:]]))\n"
    )
    command.chmod(0o755)
    code = (
        "import sys; from pathlib import Path\n"
        "from raysm.local.instances.process import make_virtual_environment\n"
        "make_virtual_environment(Path(sys.argv[1]))"
    )
    subprocess.run(
        [environment / "bin" / "python", "-c", code, tmp_path / "own"], check=True, timeout=100
    )
    told = subprocess.check_output([tmp_path / "own" / "bin" / "which-python", "a b"], timeout=100)
    assert json.loads(told) == [str(tmp_path / "own"), ["a b"]]
    shipped = [
        tmp_path / "own" / "bin" / "python",
        "-c",
        "import shipped, raysm; print(shipped.VALUE)",
    ]
    assert subprocess.check_output(shipped, timeout=100).split() == [b"1"]
    assert sys.prefix != str(tmp_path / "own")
