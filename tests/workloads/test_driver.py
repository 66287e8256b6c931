import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from raysm.bootstrap.variables import DRIVER
from raysm.contract import payload
from raysm.contract.events import Progress, parse
from raysm.contract.names import BASE_DIR, FAILURE_RECORD
from raysm.contract.paths import Paths
from raysm.contract.result import FAILURE, Failure, Manifest
from raysm.contract.store import sha256_of
from raysm.request import Input, JobRequest, Script, Similarity
from tests.support.reference import neighbors


@pytest.fixture
def instance(tmp_path):
    paths = Paths(tmp_path / "ml")
    paths.config.mkdir(parents=True)
    paths.resource_config.write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    return paths


def pack_script(paths, tmp_path, text, *args):
    script = tmp_path / "train.py"
    script.write_text(text)
    payload.pack(JobRequest(name="job", workload=Script(str(script), args=args)), paths.payload)


def drive(paths, tmp_path):
    """Run the driver as the bootstrap does; return the finished process and the failure it recorded."""
    record = tmp_path / "failure.json"
    done = subprocess.run(
        [sys.executable, "-m", "raysm.workloads.driver"],
        env=os.environ | {BASE_DIR: str(paths.base), FAILURE_RECORD: str(record)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, Failure.read(record) if record.exists() else None


def test_a_script_runs_as_main_with_its_arguments_and_folder(instance, tmp_path):
    text = (
        "import sys, pickle, threading, atexit\n"
        "def inner(): return 7\n"
        "atexit.register(lambda: print('later', inner()))\n"
        "print(__name__, sys.argv[1:], sys.argv[0] == __file__, sys.path[0] == __file__.rsplit('/', 1)[0])\n"
        "print(sys.modules['__main__'].inner is inner, 'ray' in sys.modules)\n"
    )
    pack_script(instance, tmp_path, text, "--lr", 'it\'s "quoted"')
    done, failure = drive(instance, tmp_path)
    assert done.returncode == 0, done.stderr
    assert failure is None
    assert done.stdout.splitlines() == [
        "__main__ ['--lr', 'it\\'s \"quoted\"'] True True",
        "True False",
        "later 7",
    ]


def test_what_a_script_leaves_has_a_manifest_that_counts_what_its_exit_handlers_wrote(instance, tmp_path):
    text = (
        f"import atexit, pathlib, sys\nmodel = pathlib.Path({str(instance.model)!r})\n"
        "(model / 'sub').mkdir(parents=True)\n"
        "(model / 'sub' / 'a').write_text('a')\natexit.register(lambda: (model / 'b').write_text('bb'))\nsys.exit(0)\n"
    )
    pack_script(instance, tmp_path, text)
    done, failure = drive(instance, tmp_path)
    assert (done.returncode, failure) == (0, None), done.stderr
    found = Manifest.read(instance.model)
    assert [(file.name, file.bytes) for file in found.files] == [("b", 2), ("sub/a", 1)]
    assert found.files[0].sha256 == sha256_of(instance.model / "b")
    assert (found.job, found.workload["kind"], found.instances, list(found.phases_s)) == (
        "job",
        "script",
        ("algo-1",),
        ["script"],
    )
    assert set(found.versions) == {"raysm", "python", "ray"}


@pytest.mark.parametrize(
    "text",
    ["pass", "raise ValueError", "raise SystemExit(3)", "open(MODEL + '/manifest.json', 'w').write('mine')"],
)
def test_what_is_no_result_has_no_manifest_of_raysm(instance, tmp_path, text):
    instance.model.mkdir(parents=True)
    left = f"MODEL = {str(instance.model)!r}\n" + ("" if text == "pass" else "open(MODEL + '/x', 'w').write('x')\n")
    pack_script(instance, tmp_path, left + text)
    drive(instance, tmp_path)
    manifest = instance.model / "manifest.json"
    assert manifest.read_text() == "mine" if "manifest" in text else not manifest.exists()


def test_a_script_that_raises_is_recorded_without_raysms_frames(instance, tmp_path):
    pack_script(instance, tmp_path, "def f():\n    raise KeyError('learning_rate')\nf()\n")
    done, failure = drive(instance, tmp_path)
    assert done.returncode == failure.exit_code == 1
    assert failure.reason().startswith("KeyError: 'learning_rate'\nTraceback (most recent call last):")
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


def test_a_failure_is_left_to_the_bootstrap_which_knows_whether_it_came_first(instance, tmp_path):
    pack_script(instance, tmp_path, "import sys\n\nsys.exit(3)\n")
    _, failure = drive(instance, tmp_path)
    assert failure.exit_code == 3
    assert not (instance.output_data / FAILURE).exists()


def test_a_record_that_cannot_be_written_leaves_the_exit_code_and_the_words_on_stderr(instance, tmp_path):
    pack_script(instance, tmp_path, "import sys\nsys.exit(3)\n")
    (tmp_path / "file").touch()
    done, failure = drive(instance, tmp_path / "file")
    assert (done.returncode, failure) == (3, None)
    assert done.stderr == "SystemExit: 3, raised at train.py:2\n"


@pytest.mark.parametrize("text", ["import sys; sys.exit()", "raise SystemExit(0)", ""])
def test_an_exit_that_says_nothing_is_success(instance, tmp_path, text):
    pack_script(instance, tmp_path, text)
    done, failure = drive(instance, tmp_path)
    assert (done.returncode, failure) == (0, None)


def test_a_script_that_does_not_compile_says_where(instance, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("def f(:\n")
    # A folder travels unread: another Python may run it.
    script = Script("train.py", source_dir=str(tmp_path / "source"))
    payload.pack(JobRequest(name="job", workload=script), instance.payload)
    done, failure = drive(instance, tmp_path)
    assert done.returncode == 1
    assert failure.error_type == "SyntaxError"
    assert "train.py" in failure.remote_traceback


def test_a_broken_payload_is_exit_code_two_and_one_line(instance, tmp_path):
    pack_script(instance, tmp_path, "")
    (instance.payload / "request.json").write_text("{}")
    done, failure = drive(instance, tmp_path)
    assert done.returncode == failure.exit_code == 2
    assert failure.error_type == "InvalidPayload"
    assert failure.remote_traceback == ""
    assert len(done.stderr.strip().splitlines()) == 1


def pack_similarity(base: Path, rows, distribution="FullyReplicated", **workload):
    paths = Paths(base)
    paths.channel("matrix").mkdir(parents=True)
    np.save(paths.channel("matrix") / "rows.npy", rows)
    request = JobRequest(
        name="digits", workload=Similarity(**workload), inputs={"matrix": Input("/data", distribution=distribution)}
    )
    payload.pack(request, paths.payload)
    return paths


@pytest.fixture
def address(ray_here):
    os.environ["RAY_ADDRESS"] = ray_here.get_runtime_context().gcs_address
    yield os.environ["RAY_ADDRESS"]
    del os.environ["RAY_ADDRESS"]


JOINED = """
import os, ray, time
ray.init()
print("joined", flush=True)
time.sleep(60)
"""


def test_a_script_that_is_told_to_end_shows_neither_a_stack_of_ray_nor_its_colored_greeting(address, base, tmp_path):
    pack_script(Paths(base), tmp_path, JOINED)
    record = tmp_path / "failure.json"
    with subprocess.Popen(
        [sys.executable, "-m", "raysm.workloads.driver"],
        env=os.environ | DRIVER | {FAILURE_RECORD: str(record)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout.readline() == "joined\n"
        driver.terminate()
        output, errors = driver.communicate(timeout=60)
    assert (driver.returncode, output) == (143, "")
    assert errors == "SIGTERM: the driver was told to end\n"


def test_a_handler_of_user_code_for_sigterm_works_as_ever(address, base, tmp_path):
    save = "lambda *_: (print('saved', flush=True), sys.exit(0))"
    handler = f"import signal, sys\nsignal.signal(signal.SIGTERM, {save})\n"
    pack_script(Paths(base), tmp_path, JOINED.replace("print(", handler + "print("))
    with subprocess.Popen(
        [sys.executable, "-m", "raysm.workloads.driver"], env=os.environ | DRIVER, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout.readline() == "joined\n"
        driver.terminate()
        assert driver.communicate(timeout=60)[0] == "saved\n"
    assert driver.returncode == 0


def test_a_similarity_runs_on_the_cluster_and_leaves_its_result_on_the_head(address, base, tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 5))
    paths = pack_similarity(base, rows, top_k=3)
    done, failure = drive(paths, tmp_path)
    assert done.returncode == 0, done.stderr
    assert failure is None
    assert sorted(file.name for file in paths.model.iterdir()) == ["manifest.json", "neighbors.parquet"]
    table = pyarrow.parquet.read_table(paths.model / "neighbors.parquet")
    assert table["neighbors"].to_pylist() == neighbors(rows, 3)[0].tolist()
    assert Manifest.read(paths.model).job == "digits"


def test_a_sharded_matrix_needs_all_its_instances(address, base, tmp_path):
    (base / "input" / "config" / "resourceconfig.json").write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})
    )
    paths = pack_similarity(base, np.eye(3), "ShardedByS3Key", top_k=1)
    done, failure = drive(paths, tmp_path)
    assert done.returncode == 1
    assert failure.error_type == "InstanceLost"
    assert "algo-2 did not report any files of the channel 'matrix'" in failure.reason()


def test_a_terminated_similarity_goes_on_where_it_stopped(address, base, tmp_path):
    rows = np.random.default_rng(0).standard_normal((6000, 512)).astype(np.float32)
    paths = pack_similarity(base, rows, top_k=3, block_rows=250)
    paths.checkpoints.mkdir()
    command = [sys.executable, "-m", "raysm.workloads.driver"]
    record = tmp_path / "failure.json"
    with subprocess.Popen(
        command,
        env=os.environ | {FAILURE_RECORD: str(record)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        for line in driver.stdout:
            event = parse(line)
            if isinstance(event, Progress) and event.phase == "similarity" and event.done:
                break
        driver.terminate()
        _, errors = driver.communicate(timeout=30)
    assert driver.returncode == 143, errors
    assert not record.exists()
    finished = [file for file in (paths.checkpoints / "raysm" / "similarity").rglob("*") if file.is_file()]
    assert 1 <= len(finished) < 300
    done, _ = drive(paths, tmp_path)
    assert done.returncode == 0, done.stderr
    events = [event for event in map(parse, done.stdout.splitlines()) if isinstance(event, Progress)]
    assert events[-1].done == 6000
    table = pyarrow.parquet.read_table(paths.model / "neighbors.parquet")
    some = range(0, 6000, 600)
    assert table["neighbors"].take(list(some)).to_pylist() == neighbors(rows, 3, some)[0].tolist()


def test_bad_rows_are_exit_code_two_and_leave_no_result(address, base, tmp_path):
    rows = np.ones((50, 5))
    rows[33, 2] = np.nan
    paths = pack_similarity(base, rows, top_k=3)
    done, failure = drive(paths, tmp_path)
    assert done.returncode == failure.exit_code == 2
    assert failure.reason() == (
        "InvalidInput: row 33 of the matrix (counted from 0) holds NaN or infinity, the first such row; replace it"
    )
    assert not paths.model.exists() or list(paths.model.iterdir()) == []
