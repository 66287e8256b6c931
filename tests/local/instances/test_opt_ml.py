"""Instances of kind process see their own ``/opt/ml``, for root and for other users."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raysm.local.instances import InstanceSpec
from raysm.local.instances.process import ProcessSite, can_mount, can_mount_as_user
from raysm.local.job_spec import JobSpec, number_hosts
from raysm.local.local_job import LocalJob
from tests.support.leftovers import assert_nothing_left
from tests.support.strangers import needs_two_users

ORDINARY = 4242
"""A user without rights, and not the kernel's overflow user."""

SITE = """
import json, os, pathlib, sys
from raysm.local.instances import InstanceSpec
from raysm.local.instances.process import ProcessSite, can_mount, can_mount_as_user

folder, script = pathlib.Path(sys.argv[1]), sys.argv[2]
specs = []
log = open(folder / "log", "wb")
with ProcessSite() as site:
    for host in ("algo-1", "algo-2"):
        private = folder / host
        (private / "ml").mkdir(parents=True)
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        specs.append(InstanceSpec(
            host=host, base=private / "ml", private=private, log_fd=log.fileno(), variables=variables,
            command=("sh", "-ec", script),
        ))
    instances = site.start(specs)
    visits = []
    for instance in instances:
        stdout = folder / f"{instance.host}-visit"
        stdout.touch()
        look = "until test -s /opt/ml/model/name; do sleep 0.05; done; cat /opt/ml/model/name; touch /opt/ml/seen"
        visits.append(instance.enter(["sh", "-ec", look], stdin=os.devnull, stdout=str(stdout)))
    codes = [instance.wait(60) for instance in instances]
    left = [visit.exited.result(60) for visit in visits]
print(json.dumps([codes, left, site.foreign_opt_ml(specs), can_mount(), can_mount_as_user()]))
"""

SCRIPT = """
mkdir -p /opt/ml/model
basename "$(dirname "$SAGEMAKER_BASE_DIR")" > /opt/ml/model/name
id -u > /opt/ml/user
ls /opt > /opt/ml/opt
while ! test -e /opt/ml/seen; do sleep 0.05; done
"""


AS_ORDINARY_USER = f"""
staging=$1
shift
while [ "$1" != -- ]; do
    mkdir -p "$staging$1"
    mount --rbind "$1" "$staging$1"
    shift
done
shift
while [ "$1" != -- ]; do
    mount --rbind "$staging$1" "$1"
    shift
done
shift
exec setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups "$@"
"""
"""Run a command as another user, who also sees the folders before the first ``--``.

They lie below closed ones such as /root, which are before the second ``--``.
"""


def as_ordinary_user(staging):
    paths = (sys.prefix, sys.base_prefix, *sys.path)
    needed = sorted({Path(path).resolve() for path in paths if Path(path).is_dir()})
    closed = {path: gate for path in needed if (gate := closed_above(path)) is not None}
    gates = sorted(set(closed.values()))
    return [
        "unshare",
        "--mount",
        "sh",
        "-ec",
        AS_ORDINARY_USER,
        "sh",
        staging,
        *closed,
        "--",
        *gates,
        "--",
    ]


def closed_above(path):
    """Return the first folder above a path that other users cannot enter; None if there is none."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)


def run_site(folder, script=SCRIPT, before=()):
    """Run two instances; return their exit codes, those of the visits, and whether they had their own ``/opt/ml``."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder), "TMPDIR": str(folder)}
    command = [*before, sys.executable, "-c", SITE, folder, script]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_own_views(folder, user):
    for host in ("algo-1", "algo-2"):
        base = folder / host / "ml"
        assert (base / "model" / "name").read_text() == f"{host}\n"
        assert (folder / f"{host}-visit").read_text() == f"{host}\n"
        assert (base / "user").read_text() == f"{user}\n"
        assert set((base / "opt").read_text().split()) == {*entries(Path("/opt")), "ml"}
    assert_nothing_left(folder)


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount")
def test_each_instance_of_kind_process_has_its_own_opt_ml(tmp_path):
    before = entries(Path("/opt"))
    assert run_site(tmp_path) == [[0, 0], [0, 0], None, True, False]
    assert_own_views(tmp_path, os.getuid())
    assert entries(Path("/opt")) == before


@pytest.mark.skipif(not (can_mount() or can_mount_as_user()), reason="needs the right to mount")
def test_links_of_an_instance_to_its_own_opt_ml_are_valid_after_the_job(tmp_path):
    program = "echo weights > /opt/ml/model/step-1; ln -s /opt/ml/model/step-1 /opt/ml/model/last"
    groups = number_hosts(("g", "local", 1))
    spec = JobSpec(name="j", groups=groups, command=("sh", "-ec", program))
    with LocalJob(spec, root=tmp_path) as job:
        job.start()
        assert job.wait(60).status == "Completed"
        assert (job.model_dir / "last").read_text() == "weights\n"


@needs_two_users
def test_a_user_without_rights_has_its_own_opt_ml_and_keeps_its_id():
    with tempfile.TemporaryDirectory(dir="/tmp") as name, tempfile.TemporaryDirectory() as staging:
        folder = Path(name)
        os.chown(folder, ORDINARY, ORDINARY)
        codes, visits, reason, mounts, mounts_as_user = run_site(
            folder, before=as_ordinary_user(staging)
        )
        if not mounts_as_user:
            pytest.skip("this system has no user namespaces")
        assert (codes, visits, reason, mounts) == ([0, 0], [0, 0], None, False)
        assert_own_views(folder, ORDINARY)


@pytest.mark.skipif(not (can_mount() or can_mount_as_user()), reason="needs the right to mount")
def test_a_job_that_needs_something_below_opt_ml_keeps_this_machines(tmp_path):
    spec = InstanceSpec(
        host="algo-1",
        base=tmp_path / "ml",
        private=tmp_path,
        log_fd=0,
        variables={},
        command=("true",),
        originals=(Path("/opt/ml/input/data/train"),),
    )
    with ProcessSite() as site:
        assert "/opt/ml/input/data/train" in site.foreign_opt_ml([spec])


JOB = """
import json, pathlib, sys
from raysm.local.instances import foreign_opt_ml
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.local_job import LocalJob

folder = pathlib.Path(sys.argv[1])
payload = Channel(name="raysm", source=folder / "payload", owned=True)
spec = JobSpec(name="j", groups=number_hosts(("g", "local", 1)), command=("echo", "began"), channels=(payload,))
lines = []
(folder / "job").mkdir()
with LocalJob(spec, root=folder / "job", on_line=lambda host, line: lines.append(line)) as job:
    job.start()
    job.wait(60)
print(json.dumps([lines, foreign_opt_ml("process") is None]))
"""


@needs_two_users
@pytest.mark.parametrize("rights", ["-sys_admin", "+all"])
def test_a_job_that_cannot_have_its_own_opt_ml_names_the_lines_that_use_it_before_the_start(
    tmp_path, rights
):
    payload = tmp_path / "payload"
    (payload / "source" / "parts").mkdir(parents=True)
    (payload / "request.json").write_text(
        json.dumps({"workload": {"args": ["--lr=1", "--dir=/opt/ml/checkpoints"]}})
    )
    (payload / "source" / "train.py").write_text(
        "# /opt/ml/model\nimport sys\nopen('/opt/ml/input/x')\n"
    )
    (payload / "source" / "parts" / "other.py").write_text("a = '/opt/ml-2'\nb = '/data/opt/ml'\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = ["setpriv", "--bounding-set", rights, sys.executable, "-c", JOB, tmp_path]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, timeout=120, check=True
    )
    (*warnings, last), is_own = json.loads(done.stdout)
    assert (last, is_own) == ("began", rights == "+all")
    if rights == "+all":
        assert warnings == []
    else:
        named = [
            "the argument '--dir=/opt/ml/checkpoints'",
            "train.py, line 3 (open('/opt/ml/input/x'))",
        ]
        assert [name in line for name, line in zip(named, warnings, strict=True)] == [True, True]
