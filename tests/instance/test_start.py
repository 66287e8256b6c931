"""The first program of an instance: any Python can read it, and it needs nothing but Python."""

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.protocol import payload, seal
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.packages import LIBRARY
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.payload import JOB
from raysm.core.request import JobRequest
from raysm.core.request.job import JOB_CHANNEL
from raysm.features.script.request import Script
from raysm.instance import start

SOURCE = Path(start.__file__).read_text()


def test_a_python_that_is_too_old_can_read_that_it_is():
    ast.parse(SOURCE, feature_version=(3, 4))
    assert sys.version_info[:2] >= start.LEAST


def test_all_that_it_imports_before_raysm_comes_with_python():
    imports = [
        node for node in ast.parse(SOURCE).body if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    names = {alias.name for node in imports for alias in node.names}
    assert names <= sys.stdlib_module_names


# A payload that somebody changed in its bucket, every digest in it too


def sealed(base):
    """Write a payload into an instance's folders; return it with the command that its call has."""
    paths = Paths(base, TRAINING)
    (base.parent / "user.py").write_text("print('user code')")
    contents = payload.contents_of(
        JobRequest(name="a", workload=Script(str(base.parent / "user.py")))
    )
    contents.write(paths.payload)
    (base / "output").mkdir()
    return paths, contents.seal.command(paths.payload, paths.failure)


def run(command, base, **options):
    environ = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(base)}
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=180, **options
    )


def test_nothing_in_the_folder_where_a_container_begins_takes_the_place_of_a_module(tmp_path):
    paths, command = sealed(tmp_path / "ml")
    (tmp_path / "work").mkdir()
    for name in ("hashlib", "json", "random", "raysm", "signal"):
        (tmp_path / "work" / f"{name}.py").write_text("raise ImportError('of the image')\n")
    done = run(command, tmp_path / "ml", cwd=tmp_path / "work")
    # Said by the bootstrap, to which all before it has led: this instance was given no
    # configuration.
    assert done.returncode == 2, done.stderr
    assert "resourceconfig.json is missing" in paths.failure.read_text()


def parted(base):
    """Write a payload in two parts into an instance's folders; return it with the command that its call has."""
    paths = Paths(base, TRAINING)
    base.mkdir(parents=True)
    (base.parent / "user.py").write_text("print('user code')")
    contents = payload.contents_of(
        JobRequest(name="a", workload=Script(str(base.parent / "user.py")))
    )
    contents.write_shared(paths.payload)
    own = paths.channel(JOB_CHANNEL)
    own.mkdir()
    for name, content in contents.own_part().items():
        (own / name).write_bytes(content)
    (base / "output").mkdir()
    return paths, contents.seal.command(paths.payload, paths.failure)


def test_a_payload_in_two_parts_leads_to_the_bootstrap_as_a_whole_one_does(tmp_path):
    paths, command = parted(tmp_path / "ml")
    done = run(command, tmp_path / "ml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "resourceconfig.json is missing" in paths.failure.read_text()


def test_an_own_part_that_somebody_changed_is_refused_before_anything_is_imported(tmp_path):
    paths, command = parted(tmp_path / "ml")
    job = paths.channel(JOB_CHANNEL) / JOB
    job.write_text(job.read_text().replace("user.py", "mine.py"))
    done = run(command, tmp_path / "ml", cwd=tmp_path)
    assert done.returncode == 2
    assert "someone changed digests.json" in paths.failure.read_text()


def change(folder, name, content):
    """Change a file as somebody does who knows how a payload is made: its digest is right again."""
    (folder / name).write_bytes(content)
    digests = json.loads((folder / seal.DIGESTS).read_text())
    digests[name] = hashlib.sha256(content).hexdigest()
    (folder / seal.DIGESTS).write_text(json.dumps(digests, indent=1))


@pytest.mark.parametrize("name", [seal.START, LIBRARY, "source/user.py"])
def test_nothing_that_was_changed_is_run_however_well_its_digests_fit(tmp_path, name):
    paths, command = sealed(tmp_path / "ml")
    change(paths.payload, name, b"print('stolen')")
    seal.verify(paths.payload)  # else any test would see it
    done = run(command, tmp_path / "ml")
    assert done.returncode == 2
    assert "is not the one that was sent" in paths.failure.read_text()
    assert "stolen" not in done.stdout + done.stderr
    assert "user code" not in done.stdout
