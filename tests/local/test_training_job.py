"""How a job of several instances runs and ends, with small programs in the bootstrap's place."""

import json
import signal
import sys
import textwrap
import threading
import time

import pytest

from raysm.contract import payload
from raysm.errors import InvalidInput, InvalidRequest, RaysmError
from raysm.local.training_job import TrainingJob
from raysm.request import Cluster, Input, InstanceGroup, JobRequest, Script
from tests.support.leftovers import assert_nothing_left

BOTH = ["process", pytest.param("namespace", marks=pytest.mark.namespace)]
SOON_S = 20.0

PRELUDE = """
import json, os, pathlib, signal, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
host = json.loads((base / "input/config/resourceconfig.json").read_text())["current_host"]
def fail(text):
    (base / "output/failure").write_text(text)
def until_sigterm(code=0):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(code))
    print("ready", flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "job"
    root.mkdir()
    yield root
    assert_nothing_left(root)


@pytest.fixture
def request_for(tmp_path):
    (tmp_path / "script.py").write_text("print('hello')")

    def build(**fields):
        return JobRequest(**{"name": "test", "workload": Script(str(tmp_path / "script.py")), **fields})

    return build


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
def test_a_job_whose_instances_all_exit_0_is_completed(kind, root, request_for):
    lines = Lines()
    command = running("print('on', host); (base / 'model' / 'result').write_text(host)")
    with TrainingJob(
        request_for(cluster=Cluster(count=2)), root=root, kind=kind, on_line=lines, command=command
    ) as job:
        job.start()
        outcome = job.wait(SOON_S)
        assert outcome.status == "Completed"
        assert outcome.failure_reason is None
        assert outcome.exit_codes == {"algo-1": 0, "algo-2": 0}
        assert sorted(lines) == [("algo-1", "on algo-1"), ("algo-2", "on algo-2")]
        assert job.log("algo-2").read_text() == "on algo-2\n"
        assert (job.model_dir / "result").read_text() == "algo-1"
        assert outcome.started_s <= min(outcome.exited_s.values()) <= outcome.ended_s


@pytest.mark.parametrize("kind", BOTH)
def test_every_instance_has_the_payload_and_its_channels(kind, root, request_for, tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / "data" / f"part-{number}").write_text(str(number))
    inputs = {
        "all": Input(str(tmp_path / "data")),
        "one": Input((tmp_path / "data" / "part-1").as_uri()),
        "share": Input(str(tmp_path / "data"), distribution="ShardedByS3Key"),
    }
    command = running(
        """
        data = base / "input" / "data"
        print(json.dumps(sorted(p.relative_to(data).as_posix() for c in data.iterdir() for p in c.rglob("*"))))
        print((data / "one" / "part-1").read_text())
        """
    )
    lines = Lines()
    request = request_for(cluster=Cluster(count=2), inputs=inputs)
    with TrainingJob(request, root=root, kind=kind, on_line=lines, command=command) as job:
        job.start()
        assert job.wait(SOON_S).status == "Completed", lines
    common = [
        *(f"all/part-{i}" for i in range(3)),
        "one/part-1",
        *(f"raysm/{name}" for name in ("digests.json", "request.json", "source", "source/script.py", "token")),
    ]
    for host, share in (("algo-1", ["share/part-0", "share/part-2"]), ("algo-2", ["share/part-1"])):
        found = [line for at, line in lines if at == host]
        assert json.loads(found[0]) == [*common, *share]
        assert found[1] == "1"
    assert payload.load(root / "payload").request.name == "test"


@pytest.mark.parametrize("kind", BOTH)
def test_the_heads_failure_file_is_the_reason(kind, root, request_for):
    command = running("fail('ValueError: of ' + host); sys.exit(4)")
    with TrainingJob(request_for(cluster=Cluster(count=2)), root=root, kind=kind, command=command) as job:
        job.start()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Failed"
    assert outcome.failure_reason == "ValueError: of algo-1"
    assert set(outcome.exit_codes.values()) == {4}


def test_when_the_head_says_nothing_the_failing_instances_words_are_the_reason(root, request_for):
    command = running("host == 'algo-2' and (fail('no room'), sys.exit(1))")
    with TrainingJob(request_for(cluster=Cluster(count=2)), root=root, command=command) as job:
        job.start()
        assert job.wait(SOON_S).failure_reason == "algo-2: no room"


@pytest.mark.parametrize(
    ("end", "reason"), [("sys.exit(9)", "exit code 9"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")]
)
def test_without_any_words_the_exit_is_the_reason(root, request_for, end, reason):
    with TrainingJob(request_for(), root=root, command=running(end)) as job:
        job.start()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Failed"
    assert outcome.failure_reason == f"algo-1: {reason}"


def test_the_reason_has_at_most_1024_characters(root, request_for):
    with TrainingJob(request_for(), root=root, command=running("fail('ü' * 5000); sys.exit(1)")) as job:
        job.start()
        assert job.wait(SOON_S).failure_reason == "ü" * 1024


@pytest.mark.parametrize("kind", BOTH)
def test_a_stopped_job_hears_sigterm_on_all_instances_and_is_stopped(kind, root, request_for):
    lines = Lines()
    request = request_for(cluster=Cluster(count=2))
    with TrainingJob(request, root=root, kind=kind, on_line=lines, command=running("until_sigterm(3)")) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"), ("algo-2", "ready"))
        job.stop()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Stopped"
    assert outcome.failure_reason is None
    assert outcome.exit_codes == {"algo-1": 3, "algo-2": 3}


def test_who_does_not_hear_sigterm_is_killed_after_the_grace(root, request_for):
    lines = Lines()
    command = running("signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(1000)")
    with TrainingJob(request_for(), root=root, on_line=lines, command=command, stop_grace_s=0.5) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"))
        began = time.monotonic()
        job.stop()
        outcome = job.wait(SOON_S)
        assert 0.4 < time.monotonic() - began < 5
    assert outcome.status == "Stopped"
    assert outcome.exit_codes == {"algo-1": 128 + signal.SIGKILL}


def test_when_one_instance_fails_the_others_are_stopped_after_a_moment(root, request_for):
    lines = Lines()
    command = running("host == 'algo-2' and sys.exit(5); until_sigterm()")
    request = request_for(cluster=Cluster(count=2))
    with TrainingJob(request, root=root, on_line=lines, command=command, settle_s=0.3) as job:
        job.start()
        outcome = job.wait(SOON_S)
    assert outcome.status == "Failed"
    assert outcome.failure_reason == "algo-2: exit code 5"
    assert outcome.exit_codes["algo-2"] == 5


def test_a_loss_that_the_request_allows_neither_ends_nor_fails_the_job(root, request_for):
    lines = Lines()
    command = running("host == 'algo-2' and sys.exit(5); (base / 'go').exists() or until_sigterm()")
    request = request_for(cluster=Cluster(count=2, on_instance_loss="continue"))
    with TrainingJob(request, root=root, on_line=lines, command=command, settle_s=0.0) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"))
        job.instances["algo-2"].wait(SOON_S)
        with pytest.raises(TimeoutError):
            job.wait(0.5)
        job.kill("algo-1", signal.SIGTERM)
        outcome = job.wait(SOON_S)
    assert outcome.status == "Completed"
    assert outcome.exit_codes == {"algo-1": 0, "algo-2": 5}


@pytest.mark.parametrize("kind", BOTH)
def test_leaving_the_block_ends_a_running_job_at_once(kind, root, request_for):
    lines = Lines()
    with TrainingJob(
        request_for(cluster=Cluster(count=2)), root=root, kind=kind, on_line=lines, command=running("until_sigterm()")
    ) as job:
        job.start()
        lines.wait_for(("algo-1", "ready"), ("algo-2", "ready"))
    assert {instance.exited.result(0) for instance in job.instances.values()} == {128 + signal.SIGKILL}


def test_an_instance_that_is_absent_is_announced_and_not_started(root, request_for):
    lines = Lines()
    command = running("print(json.loads((base / 'input/config/resourceconfig.json').read_text())['hosts'])")
    request = request_for(cluster=Cluster(count=2))
    with TrainingJob(request, root=root, on_line=lines, command=command, absent=["algo-2"]) as job:
        job.start()
        assert job.wait(SOON_S).exit_codes == {"algo-1": 0}
    assert lines == [("algo-1", "['algo-1', 'algo-2']")]


def test_an_absent_host_that_is_no_host_is_refused(root, request_for):
    with pytest.raises(InvalidRequest, match="absent='algo-2' is none of the hosts algo-1"):
        TrainingJob(request_for(), root=root, absent=["algo-2"])


def test_a_missing_input_is_said_before_anything_is_made(root, request_for, tmp_path):
    job = TrainingJob(request_for(inputs={"a": Input(str(tmp_path / "nothing"))}), root=root)
    with pytest.raises(InvalidInput, match="is not there"):
        job.start()
    assert list(root.iterdir()) == []


def test_a_missing_script_is_said_and_nothing_is_left(root):
    job = TrainingJob(JobRequest(name="x", workload=Script("/no/script.py")), root=root)
    with pytest.raises(InvalidRequest, match="is not there"):
        job.start()
    assert job.instances == {}


def test_a_job_starts_once(root, request_for):
    with TrainingJob(request_for(), root=root, command=running("")) as job:
        job.start()
        with pytest.raises(RaysmError, match="was started before"):
            job.start()


def test_an_error_in_on_line_reaches_the_caller(root, request_for):
    def refuse(host, line):
        raise KeyError(line)

    with TrainingJob(request_for(), root=root, on_line=refuse, command=running("print('x')")) as job:
        job.start()
        with pytest.raises(KeyError, match="x"):
            job.wait(SOON_S)


def test_checkpoints_survive_a_killed_job_and_come_back_into_the_next(root, request_for, tmp_path):
    code = """
        folder = base / "checkpoints"
        print(sorted(path.name for path in folder.iterdir()))
        (folder / host).write_text(host)
        until_sigterm()
    """
    for number, found in enumerate(("[]", "['algo-1', 'algo-2']")):
        lines = Lines()
        below = root / str(number)
        below.mkdir()
        with TrainingJob(
            request_for(cluster=Cluster(count=2)),
            root=below,
            on_line=lines,
            command=running(code),
            checkpoints=tmp_path / "kept",
        ) as job:
            job.start()
            lines.wait_for(*[(host, text) for host in ("algo-1", "algo-2") for text in ("ready", found)])
            for host in job.hosts:
                job.kill(host)
            assert job.wait(SOON_S).status == "Failed"
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["algo-1", "algo-2"]


def test_a_processing_job_has_its_layout(root, request_for):
    command = (
        sys.executable,
        "-c",
        "import os, pathlib; base = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR']);"
        "print((base / 'processing/input/raysm/token').exists(), (base / 'config/processingjobconfig.json').exists());"
        "(base / 'output/message').write_text('why'); raise SystemExit(2)",
    )
    lines = Lines()
    with TrainingJob(request_for(), root=root, on_line=lines, command=command, config="processing") as job:
        job.start()
        assert job.wait(SOON_S).failure_reason == "why"
    assert lines == [("algo-1", "True True")]


def test_the_head_of_a_heterogeneous_job_is_started_first_and_its_model_is_the_result(root, request_for):
    cluster = Cluster(groups=[InstanceGroup("work", "a", 2), InstanceGroup("head", "b", 1)], head="head")
    with TrainingJob(request_for(cluster=cluster), root=root, command=running("")) as job:
        job.start()
        assert list(job.instances) == ["algo-3", "algo-1", "algo-2"]
        assert job.model_dir == root / "algo-3" / "ml" / "model"
