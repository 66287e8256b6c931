"""How a job of several instances runs and ends, with small programs in the bootstrap's place."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import SERVICE_REASON
from raysm.errors import InvalidInput
from raysm.local import scenario
from raysm.local.checkpoints import FolderStore
from raysm.local.instance_files import InstanceFiles
from raysm.local.job_spec import Channel, Checkpoints, GracePeriods, JobSpec, number_hosts
from raysm.local.local_job import Exits, LocalJob
from raysm.local.preparation import SMALL_BYTES
from raysm.local.scenario import Scenario
from tests.support.leftovers import assert_nothing_left


@pytest.fixture
def paths(tmp_path):
    def of(host):
        return Paths(tmp_path / host)

    return of


def ended(*codes, **fields):
    """Return exits of as many hosts, a second apart, the last host first."""
    spec = JobSpec(
        name="j", groups=number_hosts(("g", "local", len(codes))), command=("true",), **fields
    )
    exits = Exits(spec=spec)
    for number, code in reversed(list(enumerate(codes))):
        exits.add(spec.hosts[number], code, float(len(codes) - number))
    return exits


def outcome(exits, paths, stopped=False):
    def reason(host):
        return InstanceFiles(base=paths(host).base, sees_machine=True).read_text(
            paths(host).failure, SERVICE_REASON
        )

    return exits.outcome(reason, stopped=stopped, started_s=0.0, ended_s=9.0)


@pytest.mark.parametrize(
    ("codes", "words", "status", "reason"),
    [
        ((0, 0), {}, "Completed", None),
        ((1, 3), {"algo-2": b"mine"}, "Failed", "algo-2: mine"),
        ((1, 3), {"algo-1": b"algo-2 lost\n", "algo-2": b"mine"}, "Failed", "algo-2 lost"),
        ((1, 137), {}, "Failed", "algo-2: killed by SIGKILL"),
        ((143,), {}, "Failed", "algo-1: ended by a SIGTERM that the service did not send"),
        ((1,), {"algo-1": b"\xff" + b"x" * 2000}, "Failed", "\ufffd" + "x" * 1023),
    ],
)
def test_the_reason_of_a_job_is_the_heads_words_or_those_of_who_failed_first(
    paths, codes, words, status, reason
):
    for host, text in words.items():
        paths(host).failure.parent.mkdir(parents=True)
        paths(host).failure.write_bytes(text)
    found = outcome(ended(*codes), paths)
    assert (found.status, found.failure_reason, found.exit_code) == (status, reason, codes[-1])
    assert outcome(ended(*codes), paths, stopped=True).status == "Stopped"


def test_a_loss_that_is_allowed_fails_no_job_but_the_heads_does(paths):
    assert outcome(ended(0, 1, losses_allowed=True), paths).status == "Completed"
    assert outcome(ended(1, 0, losses_allowed=True), paths).status == "Failed"


BOTH = ["process", pytest.param("namespace", marks=pytest.mark.namespace)]
SOON_S = 120.0

PRELUDE = """
import json, os, pathlib, signal, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
host = json.loads((base / "input/config/resourceconfig.json").read_text())["current_host"]
def fail(text):
    (base / "output/failure").write_text(text)
def until_sigterm(code=0):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(code))
    print("ready", flush=True)
    while True:  # not signal.pause(): Python runs no handler of a signal that comes just before it
        time.sleep(0.05)
"""


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "job"
    root.mkdir()
    yield root
    assert_nothing_left(root)


def spec_for(command, count=1, **fields):
    return JobSpec(
        **{
            "name": "test",
            "groups": number_hosts(("g", "local", count)),
            "command": command,
            **fields,
        }
    )


def running(code):
    return (sys.executable, "-u", "-c", PRELUDE + textwrap.dedent(code))


class Lines(list):
    """The lines of a job, which can be waited for."""

    def __init__(self):
        super().__init__()
        self._came = threading.Condition()

    def __call__(self, host, line):
        with self._came:
            self.append((host, line))
            self._came.notify_all()

    def wait_for(self, *wanted):
        with self._came:
            assert self._came.wait_for(lambda: set(wanted) <= set(self), SOON_S), list(self)


@pytest.mark.parametrize("kind", BOTH)
def test_a_job_whose_instances_all_exit_0_is_completed(kind, root):
    lines = Lines()
    command = running("print('on', host); (base / 'model' / 'result').write_text(host)")
    with LocalJob(spec_for(command, 2), root=root, kind=kind, on_line=lines) as job:
        began_s = time.monotonic()
        job.start()
        outcome = job.wait(SOON_S)
        assert outcome.ended_s - outcome.started_s <= time.monotonic() - began_s
        assert outcome.status == "Completed"
        assert outcome.failure_reason is None
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0}
        assert sorted(lines) == [("algo-1", "on algo-1"), ("algo-2", "on algo-2")]
        assert job.log("algo-2").read_text() == "on algo-2\n"
        assert (job.model_dir / "result").read_text() == "algo-1"
        assert outcome.started_s <= min(outcome.exited_s.values()) <= outcome.ended_s


def test_the_end_of_a_job_is_reported_when_waiting_takes_no_time_any_more(root):
    ended = threading.Event()
    with LocalJob(spec_for(running("pass")), root=root, on_end=ended.set) as job:
        job.start()
        assert ended.wait(SOON_S)
        assert job.wait(0).status == "Completed"


def test_a_log_that_cannot_be_kept_is_the_error_of_the_job(root):
    def on_line(host, line):
        raise OSError("no room")

    with LocalJob(spec_for(running("print('a line')")), root=root, on_line=on_line) as job:
        job.start()
        with pytest.raises(OSError, match="no room"):
            job.wait(SOON_S)


HARM = """
import contextlib
channel = base / "input/data/c"
done = []
for name, harm in {
    "create": lambda: (channel / "new").write_text("x"),
    "append": lambda: (channel / "a").open("ab").write(b"x"),
    "truncate": lambda: (channel / "b").write_text(""),
    "rename": lambda: (channel / "b").rename(channel / "renamed"),
    "delete": lambda: (channel / "deep/c").unlink(),
}.items():
    with contextlib.suppress(OSError):
        harm()
        done.append(name)
print(*done)
"""
"""What a script may do to its input, and which of it was done."""


@pytest.fixture
def given(tmp_path):
    """Make the folder of an input, of which ``a`` has so many bytes; return it, and how its content is now."""

    def make(size):
        folder = tmp_path / "given"
        (folder / "deep").mkdir(parents=True)
        for name in ("a", "b", "deep/c"):
            (folder / name).write_text(name)
        with (folder / "a").open("r+b") as file:
            file.truncate(size)
        return folder, lambda: {
            path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in folder.rglob("*")
            if path.is_file()
        }

    return make


@pytest.mark.parametrize(
    ("kind", "distribution", "size"),
    [
        ("process", "FullyReplicated", 1),
        ("process", "FullyReplicated", SMALL_BYTES + 1),
        ("process", "ShardedByS3Key", SMALL_BYTES + 1),
        pytest.param("namespace", "FullyReplicated", SMALL_BYTES + 1, marks=pytest.mark.namespace),
    ],
)
def test_a_script_cannot_harm_the_users_own_input(kind, distribution, size, root, tmp_path, given):
    folder, content = given(size)
    before, lines = content(), Lines()
    spec = spec_for(
        running(HARM), channels=(Channel(name="c", source=folder, distribution=distribution),)
    )
    with LocalJob(spec, root=root, kind=kind, on_line=lines) as job:
        job.start()
        assert job.wait(SOON_S).status == "Completed", lines
    assert content() == before
    if size == 1:  # as on SageMaker: a copy of one's own, with which one may do what one likes
        assert lines == [("algo-1", "create append truncate rename delete")]


@pytest.mark.parametrize("above", [False, True])
def test_an_input_above_the_jobs_own_folders_leaves_these_writable(root, tmp_path, above):
    (tmp_path / "large").write_bytes(b"")
    with (tmp_path / "large").open("r+b") as file:
        file.truncate(SMALL_BYTES + 1)
    command = running(
        "(base / 'model' / 'x').write_text('x'); open('y', 'w'); open(os.environ['TMPDIR'] + '/z', 'w')"
    )
    lines = Lines()
    source = tmp_path if above else tmp_path / "large"
    spec = spec_for(command, channels=(Channel(name="c", source=source),))
    with LocalJob(spec, root=root, kind="process", on_line=lines) as job:
        job.start()
        assert job.wait(SOON_S).status == "Completed", lines
        assert not (job.paths("algo-1").channel("c") / "job").exists()


WITHOUT_MOUNTS = """
import pathlib, sys
from raysm.local.job_spec import Channel
from raysm.local.local_job import LocalJob
from tests.local.test_local_job import HARM, SOON_S, running, spec_for
folder, root = map(pathlib.Path, sys.argv[1:])
spec = spec_for(running(HARM), channels=(Channel(name="c", source=folder),))
with LocalJob(spec, root=root, on_line=lambda host, line: print(host, line)) as job:
    job.start()
    job.wait(SOON_S)
"""


@pytest.mark.skipif(
    shutil.which("setpriv") is None or os.geteuid() != 0, reason="takes a capability of root's away"
)
def test_where_nothing_can_be_mounted_a_large_input_is_linked_file_by_file_with_a_warning(
    root, tmp_path, given
):
    folder, content = given(SMALL_BYTES + 1)
    before = content()
    done = subprocess.run(
        [
            "setpriv",
            "--bounding-set",
            "-sys_admin",
            sys.executable,
            "-c",
            WITHOUT_MOUNTS,
            str(folder),
            str(root),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=180,
    )
    first, said = done.stdout.splitlines()
    assert "the channel 'c' (0.1 GB)" in first
    assert said == "algo-1 create append truncate rename delete"
    after = content()
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"a", "b"}


@pytest.mark.parametrize("kind", BOTH)
def test_opt_ml_in_a_command_and_in_variables_is_the_instances_own(kind, root):
    command = (
        "sh",
        "-c",
        "echo $0 $PLACE; ls -d /opt/ml/model; echo done > /opt/ml/model/x",
        "/opt/mlx",
    )
    lines = Lines()
    spec = spec_for(command, environment={"PLACE": "/opt/ml/model"})
    with LocalJob(spec, root=root, kind=kind, on_line=lines) as job:
        job.start()
        assert job.wait(SOON_S).status == "Completed", lines
        assert (job.model_dir / "x").read_text() == "done\n"
    inside = "/opt/ml" if kind == "namespace" else str(job.paths("algo-1").base)
    assert lines == [("algo-1", f"/opt/mlx {inside}/model"), ("algo-1", f"{inside}/model")]


@pytest.mark.parametrize("kind", BOTH)
def test_a_stopped_job_hears_sigterm_on_all_instances_and_is_stopped(kind, root):
    lines = Lines()
    with LocalJob(
        spec_for(running("until_sigterm(3)"), 2), root=root, kind=kind, on_line=lines
    ) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"), ("algo-2", "ready"))
        job.stop()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Stopped"
    assert outcome.failure_reason is None
    assert outcome.exit_codes == {"algo-1": 3, "algo-2": 3}


def test_who_does_not_hear_sigterm_is_killed_after_the_grace(root):
    lines = Lines()
    command = running(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(1000)"
    )
    with LocalJob(
        spec_for(command), root=root, on_line=lines, grace=GracePeriods(stop_grace_s=0.5)
    ) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"))
        began = time.monotonic()
        job.stop()
        outcome = job.wait(SOON_S)
        assert time.monotonic() - began > 0.4
    assert outcome.status == "Stopped"
    assert outcome.exit_codes == {"algo-1": 128 + signal.SIGKILL}


@pytest.mark.parametrize("kind", BOTH)
def test_when_one_instance_fails_one_that_is_frozen_is_killed_at_once(kind, root):
    lines = Lines()
    command = running(
        """
        while host == 'algo-1':
            time.sleep(0.02)
            if (base / 'output/go').exists():
                fail('algo-2 lost')
                sys.exit(1)
        until_sigterm()
        """
    )
    # Only what is killed at once ends in time.
    grace = GracePeriods(settle_s=600.0, kill_s=600.0)
    with LocalJob(spec_for(command, 2), root=root, kind=kind, on_line=lines, grace=grace) as job:
        job.start()
        lines.wait_for(("algo-2", "ready"))
        job.kill("algo-2", signal.SIGSTOP)
        (job.paths("algo-1").base / "output" / "go").touch()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Failed"
    assert outcome.failure_reason == "algo-2 lost"
    assert outcome.exit_codes == {"algo-1": 1, "algo-2": 128 + signal.SIGKILL}


def test_after_a_failure_the_other_instances_have_time_to_end_by_themselves(root):
    command = running(
        """
        if host == 'algo-2':
            sys.exit(3)
        time.sleep(2)
        fail('algo-2 lost')
        sys.exit(1)
        """
    )
    with LocalJob(spec_for(command, 2), root=root, grace=GracePeriods(settle_s=600.0)) as job:
        job.start()
        outcome = job.wait(SOON_S)
    assert outcome.failure_reason == "algo-2 lost"
    assert outcome.exit_codes == {"algo-1": 1, "algo-2": 3}


@pytest.mark.parametrize("settle_s", [0.0, 0.1])
def test_an_instance_that_ignores_sigterm_after_a_failure_is_killed_without_the_grace_of_a_stop(
    root, settle_s
):
    command = running(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if host == 'algo-1':
            print('ready')
            time.sleep(1000)
        while not (base / 'output/go').exists():
            time.sleep(0.02)
        sys.exit(3)
        """
    )
    lines = Lines()
    grace = GracePeriods(settle_s=settle_s, kill_s=0.1, stop_grace_s=600.0)
    with LocalJob(spec_for(command, 2), root=root, on_line=lines, grace=grace) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"))
        (job.paths("algo-2").base / "output" / "go").touch()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Failed"
    assert outcome.exit_codes == {"algo-1": 128 + signal.SIGKILL, "algo-2": 3}


@pytest.mark.parametrize("kind", BOTH)
def test_leaving_the_block_ends_a_running_job_at_once(kind, root):
    lines = Lines()
    with LocalJob(
        spec_for(running("until_sigterm()"), 2), root=root, kind=kind, on_line=lines
    ) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"), ("algo-2", "ready"))
    assert {instance.exited.result(0) for instance in job.instances.values()} == {
        128 + signal.SIGKILL
    }


def test_a_missing_input_is_said_before_anything_is_made(root, tmp_path):
    job = LocalJob(
        spec_for((), channels=(Channel(name="a", source=tmp_path / "nothing"),)), root=root
    )
    with pytest.raises(InvalidInput, match="does not exist"):
        job.start()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("kind", BOTH)
def test_a_link_out_of_an_instance_is_followed_only_where_the_instance_sees_what_it_leads_to(
    root, tmp_path, kind
):
    (tmp_path / "secret").write_text("of this machine")
    code = f"""
        (base / "output/failure").symlink_to({str(tmp_path / "secret")!r})
        (base / "model/named").symlink_to({str(tmp_path / "secret")!r})
        (base / "model/environment").symlink_to("/proc/self/environ")
        (base / "model/weights").write_text("1")
        (base / "model/last").symlink_to(base / "model/weights")
        sys.exit(3)
    """
    with LocalJob(spec_for(running(code)), root=root, kind=kind) as job:
        job.start()
        reason = job.wait(SOON_S).failure_reason
        files = job.files("algo-1")
        found = sorted(path.name for path in files.below(job.model_dir))
    assert found == (["last", "named", "weights"] if kind == "process" else ["last", "weights"])
    assert reason == ("of this machine" if kind == "process" else "algo-1: exit code 3")
    assert [path.name for path in sorted(files.left)] == ["environment"] + ["named"] * (
        kind == "namespace"
    )


def test_a_folder_that_a_link_has_replaced_is_not_read(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").touch()
    (tmp_path / "ml").mkdir()
    (tmp_path / "ml" / "model").symlink_to(tmp_path / "elsewhere")
    files = InstanceFiles(base=tmp_path / "ml", sees_machine=False)
    assert list(files.below(tmp_path / "ml" / "model")) == []
    assert str(tmp_path / "elsewhere") in files.remarks()[0]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no disk in memory")
def test_a_home_in_memory_keeps_the_files_of_an_instance():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "weights").touch()
        files = InstanceFiles(base=Path(folder), sees_machine=True)
        assert [path.name for path in files.below(Path(folder))] == ["weights"]


def test_a_checkpoint_that_cannot_be_kept_is_told_and_does_not_fail_the_job(root, tmp_path):
    class Full(FolderStore):
        def put(self, path, name):
            raise OSError("no room")

    code = """
        (base / "checkpoints" / "a").write_text("1")
        (base / "model" / "weights").write_text("2")
    """
    lines = Lines()
    kept = Checkpoints(store=Full(tmp_path / "kept"), uri="s3://b/kept")
    with LocalJob(spec_for(running(code), checkpoints=kept), root=root, on_line=lines) as job:
        job.start()
        assert job.wait(SOON_S).status == "Completed"
        assert (job.model_dir / "weights").read_text() == "2"
        assert job.checkpoint_error == "OSError: no room"
    assert lines == [("algo-1", "raysm: not all checkpoints were kept: OSError: no room")]


def test_what_a_killed_instance_wrote_after_the_last_look_at_its_checkpoints_is_lost(
    root, tmp_path
):
    kept = tmp_path / "kept"
    lines = Lines()
    spec = spec_for(
        running("(base / 'checkpoints' / host).touch(); until_sigterm()"),
        2,
        checkpoints=Checkpoints(store=FolderStore(kept), uri="s3://b/kept"),
    )
    with LocalJob(
        spec,
        root=root,
        on_line=lines,
        grace=GracePeriods(settle_s=0.0),
        scenario=Scenario(checkpoints=scenario.Checkpoints(sync_s=3600.0)),
    ) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"), ("algo-2", "ready"))
        job.kill("algo-2")
        assert job.wait(SOON_S).failure_reason == "algo-2: killed by SIGKILL"
    assert [path.name for path in kept.iterdir()] == ["algo-1"]


@pytest.mark.parametrize("kind", BOTH)
def test_a_job_may_choose_the_cpus_of_its_instances_and_is_not_confined_then(tmp_path, kind):
    show = "import os; print(os.environ['RAYSM_CPUS'], len(os.sched_getaffinity(0)))"
    lines = []
    spec = JobSpec(
        name="j",
        groups=number_hosts(("g", "local", 2)),
        command=(sys.executable, "-c", show),
        environment={"RAYSM_CPUS": "64"},
    )
    with LocalJob(
        spec, root=tmp_path, kind=kind, on_line=lambda host, line: lines.append(line)
    ) as job:
        job.start()
        job.wait(SOON_S)
    assert lines == [f"64 {len(os.sched_getaffinity(0))}"] * 2
