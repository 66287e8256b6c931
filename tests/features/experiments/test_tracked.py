"""The driver and what it reports: metrics and their copies, run as the bootstrap runs it."""

import json
import math
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from types import SimpleNamespace

import pytest
import ray
from ray.core.generated.common_pb2 import WorkerExitType
from ray.core.generated.gcs_pb2 import WorkerTableData
from ray.exceptions import RayTaskError, WorkerCrashedError

import raysm
from raysm.core.protocol.events import Metric, line, parse
from raysm.core.protocol.names import LABEL_HOST, LABEL_RANK, TUNING_OBJECTIVE
from raysm.core.protocol.payload import Payload
from raysm.core.request import JobRequest
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.features.experiments.tracked import make_run
from raysm.features.script.request import Script
from raysm.features.sweep.request import ScriptSweep
from raysm.features.sweep.space import loguniform
from raysm.instance.work.failure import (
    UNKNOWN_END,
    failure_of,
    how_process_ended,
    pickled_value,
    task_traceback,
    unpickled,
)
from tests.support.driving import drive, pack_script
from tests.support.payloads import pack_payload

WITHIN_S = 120

PROGRAM = """
import json, sys
from raysm.features.experiments.tracked import main

class Recording:
    def __init__(self):
        self.metrics = []
    def add(self, metric):
        self.metrics.append((metric.name, metric.step, metric.value))
    def close(self, end, within_s):
        json.dump([end, self.metrics], open(sys.argv[1], "w"))
        return True

sys.exit(main(sys.argv[3:], (sys.executable, "-u", "-c", sys.argv[2]), Recording()))
"""


def start(tmp_path, driver, *arguments):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "copy.json"), driver, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def copied(tmp_path):
    end, metrics = json.loads((tmp_path / "copy.json").read_text())
    return end, [tuple(metric) for metric in metrics]


LOSS = line(Metric(name="loss", value=0.5, step=3))


def test_output_is_handed_on_byte_by_byte_and_its_metrics_are_copied(tmp_path):
    driver = f"import sys; print('before'); print({LOSS!r}); sys.stdout.write('no line'); sys.stderr.write('error')"
    out, err = start(tmp_path, driver).communicate(timeout=WITHIN_S)
    assert out == f"before\n{LOSS}\nno line".encode()
    assert err == b"error"
    assert copied(tmp_path) == ("FINISHED", [("loss", 3, 0.5)])


@pytest.mark.parametrize(
    ("driver", "status", "end"),
    [
        ("pass", 0, "FINISHED"),
        ("raise SystemExit(7)", 7, "FAILED"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "FAILED"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, "FAILED"),
    ],
)
def test_it_ends_as_the_driver_ends(tmp_path, driver, status, end):
    process = start(tmp_path, driver)
    process.communicate(timeout=WITHIN_S)
    assert (process.returncode, copied(tmp_path)[0]) == (status, end)


def test_a_stop_is_handed_on_and_the_driver_has_its_grace(tmp_path):
    driver = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('ready')\n"
        "while True: time.sleep(0.05)"
    )
    process = start(tmp_path, driver)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=WITHIN_S)
    assert (out, process.returncode, copied(tmp_path)[0]) == (b"saved\n", 0, "KILLED")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child outlives its parent")
def test_the_driver_does_not_outlive_it(tmp_path):
    process = start(tmp_path, "import time; print('ready'); time.sleep(600)")
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    # The pipe ends once nobody can write to it any more.
    assert process.communicate(timeout=WITHIN_S)[0] == b""


def test_the_run_is_that_of_the_request(tmp_path):
    request = JobRequest(
        name="digits-1",
        workload=Script("train.py", args=["--lr", "0.1"]),
        project="digits",
        hyperparameters={"depth": "3"},
        tracking="http://127.0.0.1:5000",
    )
    run = make_run(
        Payload(request=request, folder=tmp_path, token_file=tmp_path / "token", digest="")
    )
    assert (run.uri, run.experiment, run.job) == ("http://127.0.0.1:5000", "digits", "digits-1")
    assert run.parameters == {"lr": 0.1, "depth": "3"}


def test_each_trial_of_a_tuning_job_has_a_run_of_its_own_with_what_was_drawn_for_it(tmp_path):
    sweep = ScriptSweep(
        script="train.py", space={"lr": loguniform(1e-4, 1)}, metric="loss", mode="min"
    )
    request = JobRequest(name="sweep-1", workload=sweep, tracking="http://127.0.0.1:5000")
    payload = Payload(request=request, folder=tmp_path, token_file=tmp_path / "token", digest="")
    runs = [
        make_run(
            payload, job, {TUNING_OBJECTIVE: "loss", "lr": lr, "sagemaker_program": "start.py"}
        )
        for job, lr in (("tuned-001-a", "0.1"), ("tuned-002-b", "0.01"))
    ]
    assert [run.job for run in runs] == ["tuned-001-a", "tuned-002-b"]
    assert [run.parameters["lr"] for run in runs] == ["0.1", "0.01"]
    assert "sagemaker_program" not in runs[0].parameters
    # As one job, which has all trials, the sweep is one run.
    assert make_run(payload, "sweep-1", {"lr": "0.1"}).job == "sweep-1"


@pytest.fixture
def printed(monkeypatch, capsys):
    """Return a function that reports as a script does whose base folder is ``base``, and returns its lines."""

    def reported(base, *, rank=None, **metrics):
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(base))
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
        raysm.report(**metrics)
        return capsys.readouterr().out.splitlines()

    return reported


@pytest.fixture
def job(tmp_path):
    """The base folder of an instance of a job."""
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]})
    )
    return tmp_path


def test_in_a_job_metrics_are_events_of_one_moment(job, printed):
    told = [parse(line) for line in printed(job, loss=0.5, accuracy=1, step=3)]
    assert told == [
        Metric(name="loss", value=0.5, step=3, time_s=told[0].time_s),
        Metric(name="accuracy", value=1.0, step=3, time_s=told[0].time_s),
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_a_value_that_is_not_finite_is_an_event_whose_json_every_parser_reads(
    job, printed, value, text
):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    (written,) = printed(job, loss=value, step=2)
    assert json.loads(written, parse_constant=refuse)["value"] == text
    assert repr(parse(written).value) == repr(value)


@pytest.mark.parametrize("step", [2.5, math.nan, math.inf, "3", [1]])
def test_a_step_that_is_no_whole_number_is_refused(step):
    with pytest.raises(InvalidRequest, match="step"):
        raysm.report(loss=1.0, step=step)


def test_outside_of_a_job_they_are_printed_for_people(tmp_path, printed):
    assert printed(tmp_path, loss=0.5, accuracy=1, step=3) == ["step 3: loss 0.5, accuracy 1"]
    assert printed(tmp_path, rate=2) == ["rate 2"]


def test_of_the_workers_of_a_torchrun_script_the_first_one_reports(job, printed):
    assert printed(job, rank="1", loss=0.5) == []
    assert len(printed(job, rank="0", loss=0.5)) == 1


@pytest.mark.parametrize(("metrics", "said"), [({}, "got none"), ({"loss": "low"}, "loss .*'low'")])
def test_what_is_no_metric_is_refused(metrics, said):
    with pytest.raises(InvalidRequest, match=said):
        raysm.report(**metrics)


def test_a_script_that_raises_is_recorded_without_raysms_frames(instance, tmp_path):
    pack_script(instance, tmp_path, "def f():\n    raise KeyError('learning_rate')\nf()\n")
    done, failure = drive(instance, tmp_path)
    assert done.returncode == failure.exit_code == 1
    assert failure.reason().startswith(
        "KeyError: 'learning_rate'\nTraceback (most recent call last):"
    )
    assert "driver.py" not in failure.remote_traceback
    assert "train.py" in failure.remote_traceback
    assert failure.remote_traceback in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("import sys\n\nsys.exit(3)\n", 3, "3, raised at train.py:3"),
        ("raise SystemExit('no data')\n", 1, "no data, raised at train.py:1"),
        ("raise SystemExit(256)\n", 1, "256, raised at train.py:1"),
    ],
)
def test_an_exit_code_is_passed_on_with_its_place(instance, tmp_path, text, code, message):
    pack_script(instance, tmp_path, text)
    done, failure = drive(instance, tmp_path)
    assert done.returncode == code
    assert (failure.error_type, failure.message, failure.exit_code) == ("SystemExit", message, code)


def test_neighbours_of_a_script_are_found_by_it_and_take_the_place_of_no_module_of_raysms(
    instance, tmp_path
):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("raysm", "json", "random", "logging"):
        (source / f"{name}.py").write_text("raise ImportError('of the user')\n")
    (source / "mine.py").write_text("WORD = 'found'\n")
    (source / "train.py").write_text(
        "import mine, sys\nprint(mine.WORD, sys.path[0] == mine.__file__[:-8])\n"
    )
    workload = Script("train.py", source_dir=str(source))
    pack_payload(JobRequest(name="job", workload=workload), instance.payload)
    done, _ = drive(instance, tmp_path)
    assert (done.returncode, done.stdout) == (0, "found True\n"), done.stderr


def test_a_broken_payload_is_exit_code_two_and_one_line(instance, tmp_path):
    pack_script(instance, tmp_path, "")
    (instance.payload / "request.json").write_text("{}")
    done, failure = drive(instance, tmp_path)
    assert done.returncode == failure.exit_code == 2
    assert failure.error_type == "InvalidPayload"
    assert failure.remote_traceback == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_ray_trains_default_storage_is_the_prefix_that_the_job_names(instance, tmp_path):
    pack_script(instance, tmp_path, "import ray.train\nprint(ray.train.RunConfig().storage_path)\n")
    done, _ = drive(instance, tmp_path, RAYSM_TRAIN_STORAGE="s3://bucket/job/ray_results")
    assert (done.returncode, done.stdout) == (0, "s3://bucket/job/ray_results\n"), done.stderr


def test_what_a_task_raises_is_the_reason_and_no_color_is_in_its_traceback():
    cause = ValueError("bad 3")
    try:
        raise RayTaskError(
            "f", "\x1b[36mray::f()\x1b[39m\nValueError: bad 3", cause
        ).as_instanceof_cause()
    except ValueError as error:
        failure = failure_of(error)
    assert (failure.error_type, failure.message) == ("ValueError", "bad 3")
    assert "ray::f()" in failure.remote_traceback
    assert "\x1b" not in failure.remote_traceback


@pytest.mark.parametrize(
    ("address", "message"), [("192.0.2.1", "bad 3"), ("192.0.2.2", "bad 3 (on algo-2)")]
)
def test_the_reason_names_the_instance_of_the_task_unless_that_is_the_head(
    monkeypatch, address, message
):
    labels = [{LABEL_HOST: f"algo-{number}", LABEL_RANK: str(number - 1)} for number in (1, 2)]
    nodes = [
        {"NodeManagerAddress": f"192.0.2.{number}", "Labels": own}
        for number, own in enumerate(labels, 1)
    ]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    # A task that waited for another one: the inner one raised.
    text = f"ray::outer() (pid=7, ip=192.0.2.1)\nray.exceptions: ray::f() (pid=8, ip={address})\nValueError: bad 3"
    error = RayTaskError("outer", text, ValueError("bad 3")).as_instanceof_cause()
    assert failure_of(error).headline == f"ValueError: {message}"


def test_the_traceback_of_a_task_shows_the_users_frames_alone():
    text = """\x1b[36mray::part 0: a.csv()\x1b[39m (pid=7, ip=192.0.2.2, actor_id=db1d, repr=<raysm.work._Process>)
           ^^^^^^^^^^^^^
  File "/lib/raysm/instance/work/processes.py", line 21, in call
    return function(block, *inputs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/b.py", line 3, in predict
    return {"label": batch["txt"]}
                     ~~~~~^^^^^^^
KeyError: 'txt'"""
    assert task_traceback(RayTaskError("f", text, KeyError("txt"))).splitlines() == [
        "ray::part 0: a.csv() (pid=7, ip=192.0.2.2)",
        '  File "/home/b.py", line 3, in predict',
        '    return {"label": batch["txt"]}',
        "                     ~~~~~^^^^^^^",
        "KeyError: 'txt'",
    ]
    own = 'ray::f() (pid=7)\n  File "/lib/raysm/instance/work/processes.py", line 21, in call\nKeyError: 1'
    assert task_traceback(RayTaskError("f", own, KeyError(1))) == own


def test_a_value_that_cannot_be_pickled_says_what_to_return():
    with pytest.raises(InvalidRequest, match="f, a lock"):
        pickled_value(threading.Lock(), "f")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cnowhere_to_be_found\nf\n.", "'nowhere_to_be_found'"),
        (b"torn", "UnpicklingError"),
    ],
)
def test_a_function_that_cannot_be_unpickled_says_why(tmp_path, content, message):
    path = tmp_path / "function.pkl"
    path.write_bytes(content)
    with pytest.raises(InvalidPayload, match=message):
        unpickled(path, "f")


@pytest.mark.parametrize(
    ("detail", "how"),
    [
        ("Worker exits unexpectedly. Worker exits with an exit code 4.", "ended with exit code 4"),
        (
            "RPC error: Socket closed",
            UNKNOWN_END,
        ),
    ],
)
def test_the_reason_says_how_and_where_the_process_of_a_task_ended(monkeypatch, detail, how):
    rows = [
        WorkerTableData(is_alive=True, end_time_ms=3, exit_detail="runs"),
        WorkerTableData(exit_type=WorkerExitType.SYSTEM_ERROR, end_time_ms=2, exit_detail=detail),
        WorkerTableData(
            exit_type=WorkerExitType.SYSTEM_ERROR, end_time_ms=1, exit_detail="earlier"
        ),
    ]
    rows[1].worker_address.node_id = b"\x02"
    accessor = SimpleNamespace(get_worker_table=lambda: [row.SerializeToString() for row in rows])
    monkeypatch.setattr(ray._private.state.state, "_connect_and_get_accessor", lambda: accessor)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "02", "Labels": {LABEL_HOST: "algo-2"}}])
    said = failure_of(WorkerCrashedError()).headline
    assert said == f"ray.exceptions.WorkerCrashedError: the process of a task on algo-2 {how}"


ACTOR_DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: TrialActor
\tpid: 26537
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: {detail} \
Some common causes include: (1) the process was killed by the OOM killer."""


@pytest.mark.parametrize(
    ("message", "how"),
    [
        (
            ACTOR_DIED.format(
                detail="Worker unexpectedly exits with a connection error code 2. End of file."
            ),
            UNKNOWN_END,
        ),
        (str(WorkerCrashedError()), UNKNOWN_END),
        (
            ACTOR_DIED.format(detail="Worker exits with an exit code 4."),
            "died: Worker exits with an exit code 4.",
        ),
    ],
)
def test_a_death_is_said_without_rays_description_of_the_actor(message, how):
    assert how_process_ended(RuntimeError(message)) == how


def test_the_reason_of_a_wrong_argument_is_the_message_of_argparse():
    with pytest.raises(SystemExit) as ended:
        ArgumentParser("train.py").error("argument --lr: invalid float value: 'x'")
    said = failure_of(ended.value).headline
    assert said == "SystemExit: 2, train.py: error: argument --lr: invalid float value: 'x'"
