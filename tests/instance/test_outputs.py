"""What several instances leave under one name: the head's is the job's; and where an instance has room."""

import asyncio
import contextlib
import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from raysm.core.protocol import names as contract_names
from raysm.core.protocol.job_api import APIS
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import MANIFEST, Manifest, described_file
from raysm.features.script.request import Script
from raysm.features.similarity.request import Similarity
from raysm.instance import control, scratch
from raysm.instance.environment import base_paths
from raysm.instance.head import FAREWELL_S
from raysm.instance.lifecycle import JobEnded, Lost, OutputsTaken
from raysm.instance.outputs import give_way, model_key, read_outputs, warn_of_lost_files
from raysm.instance.scratch import empty_scratch, private_token, settle_scratch
from tests.support.bootstraps import DEADLINE_S, Cluster, request
from tests.support.pages import assert_printed, outputs

BEGUN_S = 1_000_000_000.0


@pytest.fixture
def instance(tmp_path):
    paths = Paths(tmp_path / "ml")
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").touch()
    os.utime(source / "train.py", (BEGUN_S - 60, BEGUN_S - 60))
    return SimpleNamespace(
        name="algo-1",
        request=SimpleNamespace(workload=Script("train.py")),
        environment=SimpleNamespace(paths=paths, has_checkpoints=True),
        payload=SimpleNamespace(source=source),
    )


def test_files_that_a_script_left_in_its_working_folder_are_named(instance):
    (instance.payload.source / "checkpoint.pth.tar").touch()
    (instance.environment.paths.working / "runs").mkdir(parents=True)
    (instance.environment.paths.working / "runs" / "log").touch()
    (instance.environment.paths.working / "train.py").symlink_to(
        instance.payload.source / "train.py"
    )
    assert warn_of_lost_files(instance, BEGUN_S) == (
        "warning: files in the working folder of algo-1 are lost now: checkpoint.pth.tar, runs/log; write results to "
        "$SM_MODEL_DIR and checkpoints to $RAYSM_STATE; or use --in-state"
    )


def test_of_a_state_folder_nothing_is_lost(instance, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checkpoint.pth.tar").touch()
    instance.environment.paths.working.parent.mkdir(parents=True)
    instance.environment.paths.working.symlink_to(tmp_path / "state")
    assert warn_of_lost_files(instance, BEGUN_S) is None


def test_a_workload_without_a_script_is_asked_for_its_working_folder_alone(instance):
    instance.request.workload = Similarity(top_k=3)
    (instance.payload.source / "x").touch()
    assert warn_of_lost_files(instance, BEGUN_S) is None


def write(paths, **files):
    """Write ``model`` and ``data`` files: names with their content."""
    for folder, content in (
        (paths.model, files.get("model", {})),
        (paths.output_data, files.get("data", {})),
    ):
        for name, text in content.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


def names(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_of_the_model_what_others_have_is_left_out_and_of_the_rest_kept_apart(tmp_path, api):
    paths = Paths(tmp_path, api)
    write(
        paths,
        model={"model.pt": "mine", "shard-2": "mine"},
        data={"log/x.txt": "mine", "own.txt": "mine"},
    )
    files = read_outputs(paths)
    taken = [key for key, path in files.items() if path.name in ("model.pt", "x.txt")]
    said = give_way(paths, "algo-2", files, [*taken, "of nobody"])
    assert names(paths.model) == ["shard-2"]
    assert names(paths.output_data) == ["algo-2/log/x.txt", "own.txt"]
    assert said == [
        "algo-2: the result has model.pt from another instance, so this one's is left out; files whose names differ "
        "from instance to instance are all kept",
        "algo-2: another instance has log/x.txt too; this one's is kept in algo-2/",
    ]


def manifest_of(*files):
    return Manifest(
        job="a-job",
        workload={},
        inputs={},
        files=tuple(described_file(name, 1, "0") for name in files),
        versions={},
        instances=("algo-1", "algo-2"),
        phases_s={},
    )


def test_at_the_end_of_a_job_no_file_has_two_owners_and_the_manifest_lists_all_with_their_digests(
    tmp_path,
):
    with Cluster(tmp_path, request(3)) as cluster:
        head, second, third = (Paths(cluster.base(host)) for host in cluster.hosts)
        write(head, model={"model.pt": "rank 0"}, data={"log.txt": "head"})
        manifest_of("model.pt", "of-the-owner.parquet").write(head.model)
        write(
            second,
            model={
                "part-1.parquet": "second",
                "model.pt": "clash",
                "of-the-owner.parquet": "known",
            },
        )
        write(second, data={"log.txt": "second"})
        write(
            third,
            model={f"shards/{number}.distcp": f"third {number}" for number in range(300)},
            data={"x.log": ""},
        )
        assert cluster.start().wait() == {"algo-1": 0, "algo-2": 0, "algo-3": 0}
        assert (head.model / "model.pt").read_text() == "rank 0"
        assert names(second.model) == ["of-the-owner.parquet", "part-1.parquet"]
        assert (head.output_data / "log.txt").read_text() == "head"
        assert names(second.output_data) == ["algo-2/log.txt"]
        assert "model.pt from another instance" in cluster.log("algo-2")
        assert "algo-2: the result" not in cluster.log("algo-1")
        files = {file.name: file for file in Manifest.read(head.model).files}
    shards = {f"shards/{number}.distcp" for number in range(300)}
    assert files.keys() == {"model.pt", "of-the-owner.parquet", "part-1.parquet", *shards}
    # Files that the manifest lists already stay as they are.
    assert files["of-the-owner.parquet"].sha256 == files["model.pt"].sha256 == "0"
    assert files["part-1.parquet"].sha256 == hashlib.sha256(b"second").hexdigest()
    assert files["part-1.parquet"].bytes == 6
    assert files["part-1.parquet"].how_to_read.endswith('pq.read_table("part-1.parquet")')
    assert files["shards/299.distcp"].sha256 == hashlib.sha256(b"third 299").hexdigest()


async def join_as_worker(cluster):
    """Take the place of the worker algo-2; return its connection, once the head accepts it."""
    instance = cluster.prepare("algo-2")
    # A process that lives stands for its Ray node.
    node = {"id": "1", "address": "127.0.0.1", "pid": os.getpid()}
    (cluster.folder / "algo-2.node").write_text(json.dumps(node))
    while True:
        with contextlib.suppress(OSError):
            return await control.join(
                lambda: asyncio.open_connection(
                    "127.0.0.1", cluster.ports["control"], limit=control.MAX_LINE
                ),
                token=instance.payload.token(),
                host="algo-2",
                head="algo-1",
                identity=instance.identity,
                silence_s=DEADLINE_S,
            )
        await asyncio.sleep(0.05)


async def describe_slowly(cluster, name, digest):
    """Describe one large file to the head, later than a worker without large files would leave."""
    worker = await join_as_worker(cluster)
    received = asyncio.Queue()
    running = asyncio.create_task(worker.run(received.put_nowait))

    async def receive(kind):
        while True:
            report = await received.get()
            assert not isinstance(report, Lost), report
            if isinstance(event := control.decode(report.message, control.TO_WORKER), kind):
                return event

    await receive(JobEnded)
    worker.tell(control.encode(control.OutputsClaimed("", (model_key(name),), 100 << 30)))
    assert (await receive(OutputsTaken)).undescribed == (model_key(name),)
    await asyncio.sleep(FAREWELL_S + 1)
    worker.tell(control.encode(control.FileLeft(name, 100 << 30, digest)))
    await worker.leave()
    await running


def test_the_head_waits_for_the_digests_of_a_workers_large_files(tmp_path):
    with Cluster(tmp_path, request(2)) as cluster:
        head = Paths(cluster.base("algo-1"))
        write(head, model={"model.pt": "rank 0"})
        manifest_of("model.pt").write(head.model)
        cluster.start("algo-1")
        asyncio.run(asyncio.wait_for(describe_slowly(cluster, "large.bin", "5" * 64), DEADLINE_S))
        assert cluster.wait() == {"algo-1": 0}
        files = {file.name: file.sha256 for file in Manifest.read(head.model).files}
    assert files == {"model.pt": "0", "large.bin": "5" * 64}


FILL_DISK = """
import os, resource
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
# The head cannot write a file any more, as on a full disk.
resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, hard))
"""


def test_a_full_disk_does_not_change_the_end_of_a_job_and_leaves_the_heads_own_manifest(tmp_path):
    with Cluster(tmp_path, request(2), driver=FILL_DISK) as cluster:
        head, worker = (Paths(cluster.base(host)) for host in cluster.hosts)
        write(head, model={"model.pt": "rank 0"})
        write(worker, model={"part": "second"})
        manifest_of("model.pt").write(head.model)
        assert cluster.start().wait() == {"algo-1": 0, "algo-2": 0}
        assert [file.name for file in Manifest.read(head.model).files] == ["model.pt"]
    assert names(head.model) == sorted([MANIFEST, "model.pt"])


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "channel" / "token"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(0o644)
    return path


def test_a_token_that_a_download_made_readable_is_made_private_where_it_lies(token, tmp_path):
    assert private_token(token, Paths(tmp_path)) == token
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.namespace
def test_a_token_on_a_read_only_channel_is_copied_to_where_others_cannot_read(token, tmp_path):
    code = (
        "import sys; from pathlib import Path; from raysm.instance.scratch import private_token; "
        "from raysm.core.protocol.paths import Paths; print(private_token(Path(sys.argv[1]), Paths(Path(sys.argv[2]))))"
    )
    seal = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    inner = [sys.executable, "-c", code, str(token), str(tmp_path)]
    command = ["unshare", "--mount", "sh", "-c", seal, str(token.parent), *inner]
    found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    assert found.is_relative_to(tmp_path / "scratch")
    assert found.read_text() == "secret"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600


def test_a_folder_of_an_earlier_job_is_emptied_and_closed_to_others(tmp_path):
    own = tmp_path / "raysm"
    (own / "training").mkdir(parents=True)
    (own / "training" / "best.pt").write_text("of another job")
    empty_scratch(own)
    assert list(own.iterdir()) == []
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_a_link_that_somebody_has_left_is_an_obstacle_and_is_not_followed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "data").touch()
    (tmp_path / "raysm").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic link"):
        empty_scratch(tmp_path / "raysm")
    assert (tmp_path / "theirs" / "data").exists()


def test_memory_is_the_last_choice(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"overlay / overlay rw 0 0\ntmpfs {tmp_path}/a\\040b tmpfs rw 0 0\n")
    monkeypatch.setattr(scratch, "MOUNTS", mounts)
    monkeypatch.setattr(scratch, "DEFAULT_BASE", tmp_path / "ml")
    (tmp_path / "a b").mkdir()
    (tmp_path / "ml").mkdir()
    settled = settle_scratch({"SAGEMAKER_BASE_DIR": str(tmp_path / "ml")}, temp=tmp_path / "a b")
    assert settled[contract_names.SCRATCH] == str(tmp_path / "ml" / "scratch")
    assert settled[contract_names.RAY_TEMP_DIR] == str(tmp_path / "ml" / "scratch" / "ray")
    assert "TMPDIR" not in settled


def test_an_instance_with_a_base_folder_of_its_own_stays_below_it_and_says_nothing(tmp_path, capfd):
    settled = settle_scratch({"SAGEMAKER_BASE_DIR": str(tmp_path), "HOME": "/home"})
    assert settled[contract_names.SCRATCH] == str(tmp_path / "scratch")
    assert settled["HOME"] == "/home"
    assert base_paths(settled).scratch == tmp_path / "scratch"
    assert capfd.readouterr().err == ""


CODE = """
from raysm.instance.scratch import settle_scratch
from raysm.errors import InvalidConfig
try:
    told = settle_scratch({})
    print(*(f"{name}={value}" for name, value in sorted(told.items())))
except InvalidConfig as error:
    print(error)
"""


def in_a_container(mounts):
    """Return what the code prints, and its log, where ``/opt/ml`` and ``/tmp`` are the mounts that the shell makes."""
    # This Python and this tree may lie below /tmp, which is going to be another one.
    shell = (
        "mount -t tmpfs own /mnt && mkdir /mnt/python /mnt/tree && "
        'mount --bind "$PYTHON" /mnt/python && mount --bind "$TREE" /mnt/tree && '
        f'mount -t tmpfs own /opt && mkdir /opt/ml && {mounts} && exec "$@"'
    )
    python = Path("/mnt/python", Path(sys.executable).relative_to(sys.prefix))
    command = ["unshare", "--mount", "sh", "-c", shell, "sh", str(python), "-c", CODE]
    # Neither a place of this process's own nor the one where it stands is to be a place for
    # temporary files.
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TMPDIR", contract_names.SCRATCH)
    }
    environ |= {
        "PYTHON": sys.prefix,
        "TREE": str(Path(__file__).parents[2]),
        "PYTHONPATH": "/mnt/tree",
    }
    done = subprocess.run(
        command, env=environ, cwd="/proc", capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


LARGE_TMP = "mount -t tmpfs -o size=64m small /opt/ml && mount -t tmpfs -o size=640m volume /tmp"


@pytest.mark.namespace
def test_as_on_sagemaker_the_volume_at_tmp_is_taken_and_not_the_small_root():
    told, log = in_a_container(LARGE_TMP)
    assert told == "RAYSM_SCRATCH=/tmp/raysm"
    assert_printed(outputs("guides/account.md")[0], log)


@pytest.mark.namespace
def test_without_a_tmp_that_can_be_written_ray_and_temporary_files_follow_to_the_other_disk():
    told, log = in_a_container(f"{LARGE_TMP} && mount -o remount,ro /tmp")
    assert (
        told
        == "RAYSM_RAY_TEMP_DIR=/opt/ml/scratch/ray RAYSM_SCRATCH=/opt/ml/scratch TMPDIR=/opt/ml/scratch"
    )
    assert "/tmp cannot be written (Read-only file system)" in log


@pytest.mark.namespace
def test_a_container_in_which_nothing_can_be_written_is_told_in_one_sentence():
    # Python looks for temporary files in these, too.
    others = " && ".join(
        f"mount -t tmpfs -o ro none {path}"
        for path in ("/var/tmp", "/usr/tmp")
        if Path(path).is_dir()
    )
    told, _ = in_a_container(
        f"{LARGE_TMP} && mount -o remount,ro /tmp && mount -o remount,ro /opt/ml && {others}"
    )
    assert told.startswith(
        "/tmp cannot be written (Read-only file system) and /opt/ml cannot be written"
    )
    assert "run the image as root, or mount one" in told
    assert "\n" not in told


@pytest.mark.namespace
def test_a_tmp_that_runs_no_programs_is_passed_over_because_packages_have_compiled_modules():
    told, _ = in_a_container(f"{LARGE_TMP} && mount -o remount,noexec /tmp")
    assert told == "RAYSM_RAY_TEMP_DIR=/opt/ml/scratch/ray RAYSM_SCRATCH=/opt/ml/scratch"
