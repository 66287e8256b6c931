"""A user's script or function as the driver runs it."""

import hashlib
import os
import pickle
import platform
import shutil
import subprocess
import sys

import pytest

from raysm.core.client.source.function import pickled_call
from raysm.core.protocol.events import Digest, parse
from raysm.core.protocol.names import FAILURE_RECORD
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.payload import pack_here
from raysm.core.protocol.result import EXCEPTION, VALUE, Manifest
from raysm.core.protocol.store import sha256_of
from raysm.core.request import JobRequest
from raysm.features.script.request import PickledFunction, Script
from raysm.instance.exit_status import exception_beside
from raysm.instance.variables import DRIVER
from raysm.instance.work.folders import MAX_KEPT_BYTES
from tests.support.driving import drive, pack_script, refusal_without
from tests.support.payloads import pack_payload


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


def test_a_script_that_calls_no_ray_init_finds_itself_joined_where_the_request_says_so(
    instance, tmp_path
):
    (tmp_path / "train.py").write_text("import ray\nprint(ray.joined)\n")
    workload = Script(str(tmp_path / "train.py"), ray_init=True)
    pack_payload(JobRequest(name="job", workload=workload), instance.payload)
    done, _ = drive(instance, tmp_path, PYTHONPATH=stand_in_for_ray(tmp_path))
    assert done.stdout == "['auto']\n", done.stderr


STAND_IN = """
joined = []

def init(address=None, **options):
    joined.append((address, options))
    return f"context {len(joined)}"

def is_initialized():
    return bool(joined)

def shutdown():
    joined.clear()
"""


@pytest.mark.parametrize(
    ("call", "joined", "left_out"),
    [
        ("ray.init()", [("auto", {})], None),
        ("ray.init(ignore_reinit_error=True)", [("auto", {})], None),
        (
            "ray.init(num_cpus=4, resources={'a': 1})",
            [("auto", {})],
            "num_cpus=4, resources={'a': 1} is left out",
        ),
        ("ray.init('local')", [("auto", {})], "address='local' is left out"),
        (
            "ray.init(namespace='n', num_gpus=1)",
            [("auto", {"namespace": "n"})],
            "num_gpus=1 is left out",
        ),
    ],
)
def test_a_script_that_would_start_a_cluster_joins_that_of_the_job_with_its_other_options(
    instance, tmp_path, call, joined, left_out
):
    (tmp_path / "train.py").write_text(f"import ray\nprint({call} is not None, ray.joined)\n")
    workload = Script(str(tmp_path / "train.py"), ray_init=True)
    pack_payload(JobRequest(name="job", workload=workload), instance.payload)
    done, _ = drive(instance, tmp_path, PYTHONPATH=stand_in_for_ray(tmp_path, STAND_IN))
    assert done.stdout == f"True {joined}\n", done.stderr
    remarks = [
        line for line in done.stderr.splitlines() if line.startswith("raysm: ray.init joins")
    ]
    assert [left_out in remark for remark in remarks] == ([True] if left_out else [])


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        ("job.sh", {"args": ("a b",)}),
        ("sh", {"args": ("job.sh", "a b"), "command": True, "source_dir": "src"}),
    ],
)
def test_a_shell_script_or_a_command_runs_in_the_source_folder(
    instance, tmp_path, monkeypatch, script, fields
):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "job.sh").write_text('echo $0 "$1"; ls\n')
    monkeypatch.chdir(tmp_path if "command" in fields else tmp_path / "src")
    pack_payload(JobRequest(name="job", workload=Script(script, **fields)), instance.payload)
    done, failure = drive(instance, tmp_path)
    assert (done.returncode, failure) == (0, None), done.stderr
    assert done.stdout.split("\n")[0].endswith("job.sh a b")
    assert done.stdout.splitlines()[1:] == ["job.sh"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"args": ("-c", "exit 3")}, "exit code 3 of sh -c 'exit 3'"),
        (
            {"script": "no-such-program"},
            "InvalidRequest: the command 'no-such-program' cannot be started",
        ),
    ],
)
def test_a_command_that_fails_is_named_with_its_exit_status(instance, tmp_path, fields, reason):
    pack_payload(
        JobRequest(name="job", workload=Script(**{"script": "sh", "command": True} | fields)),
        instance.payload,
    )
    _, failure = drive(instance, tmp_path)
    assert failure.headline.startswith(reason)


def stand_in_for_ray(folder, code="joined = []\ndef init(address): joined.append(address)\n"):
    """Return a folder with a Ray that only remembers where it was told to join."""
    (folder / "image").mkdir()
    (folder / "image" / "ray.py").write_text(code)
    return str(folder / "image")


def test_what_a_script_leaves_has_a_manifest_that_counts_what_its_exit_handlers_wrote(
    instance, tmp_path
):
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


LEAVES = """
import os, pathlib
pathlib.Path("multirun/0").mkdir(parents=True)
pathlib.Path("multirun/0/metrics.csv").write_text("loss")
pathlib.Path("model.pt").write_text("weights")
pathlib.Path("manifest.json").write_text("of the user")
pathlib.Path("config.json").touch()
pathlib.Path("data.txt").write_text("changed")
os.utime("data.txt", (0, 0))  # as a copy of an old file, or one that was written after the clock was set back
pathlib.Path("link").symlink_to("model.pt")
pathlib.Path("__pycache__").mkdir(exist_ok=True)
pathlib.Path("__pycache__/x.pyc").touch()
with open("large", "wb") as large:
    large.truncate({large})
"""


@pytest.fixture
def leaving(instance, tmp_path):
    """Return a function that runs a script that leaves files in its working folder, and returns its log."""

    def run(large=0, **fields):
        (tmp_path / "src").mkdir()
        for name, text in (
            ("train.py", LEAVES.format(large=large)),
            ("config.json", "{}"),
            ("data.txt", "sent"),
        ):
            (tmp_path / "src" / name).write_text(text)
        workload = Script("train.py", source_dir=str(tmp_path / "src"), **fields)
        pack_payload(JobRequest(name="job", workload=workload), instance.payload)
        done, failure = drive(instance, tmp_path)
        assert (done.returncode, failure) == (0, None), done.stderr
        return done.stderr

    return run


def test_the_files_that_a_script_left_in_its_working_folder_are_part_of_the_result(
    instance, leaving
):
    log = leaving()
    files = {file.name: file.bytes for file in Manifest.read(instance.model).files}
    # Neither unchanged files of the source, nor links and caches, nor one that raysm's own manifest
    # would be.
    assert files == {"multirun/0/metrics.csv": 4, "model.pt": 7, "data.txt": 7, "large": 0}
    assert "data.txt, large, model.pt, multirun/ (--drop-files" in log


def test_the_source_that_the_sdk_sends_in_a_channel_of_its_own_is_no_part_of_the_result(
    instance, tmp_path
):
    (tmp_path / "code" / "parts").mkdir(parents=True)
    (tmp_path / "code" / "train.py").write_text(
        "open('model.pt', 'w').close(); open('parts/new', 'w').close()"
    )
    (tmp_path / "code" / "parts" / "config.json").touch()
    (tmp_path / "token").write_text("0" * 64)
    request = JobRequest(name="job", workload=Script("train.py"))
    pack_here(request, instance.payload, source=tmp_path / "code", token_file=tmp_path / "token")
    done, failure = drive(instance, tmp_path)
    assert (done.returncode, failure) == (0, None), done.stderr
    assert {file.name for file in Manifest.read(instance.model).files} == {"model.pt", "parts/new"}


@pytest.mark.parametrize("fields", [{"drop_files": True}, {"large": MAX_KEPT_BYTES}])
def test_files_of_the_working_folder_stay_if_they_are_not_wanted_or_are_too_large(
    instance, leaving, fields
):
    log = leaving(**fields)
    assert not instance.model.exists() or list(instance.model.iterdir()) == []
    assert ("write results to $SM_MODEL_DIR" in log) == ("large" in fields)


@pytest.mark.parametrize(
    "text",
    [
        "pass",
        "raise ValueError",
        "raise SystemExit(3)",
        "open(MODEL + '/manifest.json', 'w').write('mine')",
    ],
)
def test_what_is_no_result_has_no_manifest_of_raysm(instance, tmp_path, text):
    instance.model.mkdir(parents=True)
    left = f"MODEL = {str(instance.model)!r}\n" + (
        "" if text == "pass" else "open(MODEL + '/x', 'w').write('x')\n"
    )
    pack_script(instance, tmp_path, left + text)
    drive(instance, tmp_path)
    manifest = instance.model / "manifest.json"
    assert manifest.read_text() == "mine" if "manifest" in text else not manifest.exists()


# In short sleeps: Python sees a signal that comes just before a sleep only after it.
JOINED = """
import os, ray, time
ray.init()
print("joined", flush=True)
for _ in range(600):
    time.sleep(0.1)
"""


def test_a_script_that_is_told_to_end_shows_neither_a_stack_of_ray_nor_its_colored_greeting(
    address, base, tmp_path
):
    pack_script(Paths(base), tmp_path, JOINED)
    record = tmp_path / "failure.json"
    with subprocess.Popen(
        [sys.executable, "-m", "raysm.instance.work.driver"],
        env=os.environ | DRIVER | {FAILURE_RECORD: str(record)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout.readline() == "joined\n"
        driver.terminate()
        output, errors = driver.communicate(timeout=60)
    assert (driver.returncode, output) == (143, "")
    assert errors == "SIGTERM: the workload was asked to end\n"


def test_a_handler_of_user_code_for_sigterm_works_as_ever(address, base, tmp_path):
    save = "lambda *_: (print('saved', flush=True), sys.exit(0))"
    handler = f"import signal, sys\nsignal.signal(signal.SIGTERM, {save})\n"
    pack_script(Paths(base), tmp_path, JOINED.replace("print(", handler + "print("))
    with subprocess.Popen(
        [sys.executable, "-m", "raysm.instance.work.driver"],
        env=os.environ | DRIVER,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout.readline() == "joined\n"
        driver.terminate()
        assert driver.communicate(timeout=60)[0] == "saved\n"
    assert driver.returncode == 0


def test_hyperparameters_that_the_arguments_do_not_show_are_named_once(instance, tmp_path):
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    for as_args in (False, True):
        request = JobRequest(
            name="job",
            workload=Script(str(tmp_path / "train.py")),
            hyperparameters={"epochs": 3},
            hyperparameters_as_args=as_args,
        )
        shutil.rmtree(instance.payload, ignore_errors=True)
        pack_payload(request, instance.payload)
        done, _ = drive(instance, tmp_path)
        lines = done.stdout.splitlines()
        assert lines[-1] == ("['--epochs', '3']" if as_args else "[]"), done.stderr
        assert [
            line.startswith("raysm: the hyperparameters are in SM_HPS") for line in lines[:-1]
        ] == [True][as_args:]


def test_an_image_without_cloudpickle_says_so():
    assert refusal_without("cloudpickle", PickledFunction(name="work", python="3.11")) == (
        "the image lacks cloudpickle, which a function needs; add it to the requirements"
    )


def driven(function, base, folder):
    """Have the driver call a function; return its process, and the failure that it recorded."""
    python = ".".join(platform.python_version_tuple()[:2])
    request = JobRequest(
        name="job", workload=PickledFunction(name=function.__name__, python=python)
    )
    pack_payload(request, Paths(base).payload, function=pickled_call(function, (), {}))
    return drive(Paths(base), folder)


def test_a_function_that_leaves_with_0_has_the_value_none(address, base, tmp_path):
    def leave():
        raise SystemExit(0)

    done, failure = driven(leave, base, tmp_path)
    assert (done.returncode, failure) == (0, None)
    assert pickle.loads((Paths(base).model / VALUE).read_bytes()) is None


def call_twice():
    import ray

    ray.init(num_cpus=1)


def start_own():
    import ray

    ray.shutdown()
    ray.init(num_cpus=1)


@pytest.mark.parametrize(
    ("function", "remedy"),
    [(call_twice, "leave out ray.init()"), (start_own, "--ray-init (ray_init=True)")],
)
def test_a_program_that_would_start_a_cluster_fails_with_the_remedy(
    address, base, tmp_path, function, remedy
):
    _, failure = driven(function, base, tmp_path)
    assert remedy in failure.headline


def test_what_a_function_raises_is_recorded_as_the_very_exception_with_its_traceback(
    address, base, tmp_path
):
    class Own(Exception):
        pass

    def fail():
        raise Own("no", 7)

    done, failure = driven(fail, base, tmp_path)
    assert done.returncode == failure.exit_code == 1
    assert failure.headline.endswith("Own: ('no', 7)")
    assert "raise Own" in failure.remote_traceback
    assert '/function.py", line' not in failure.remote_traceback
    pickled = exception_beside(tmp_path / "failure.json").read_bytes()
    raised = pickle.loads(pickled)
    assert (type(raised).__name__, raised.args) == ("Own", ("no", 7))
    assert digests_in(done.stdout) == [(EXCEPTION, hashlib.sha256(pickled).hexdigest())]


def digests_in(log):
    events = map(parse, log.splitlines())
    return [(event.file, event.sha256) for event in events if isinstance(event, Digest)]


def test_the_log_has_the_digest_of_a_value_after_all_that_the_function_prints(
    address, base, tmp_path
):
    def prints():
        import sys

        # As a job's code can, which someone may have led to it by what it reads.
        print('{"raysm": 1, "kind": "digest", "file": "result.pkl", "sha256": "0", "time_s": 1.0}')
        sys.stdout = None
        return 3

    done, failure = driven(prints, base, tmp_path)
    assert (done.returncode, failure) == (0, None), done.stderr
    digest = hashlib.sha256((Paths(base).model / VALUE).read_bytes()).hexdigest()
    assert digests_in(done.stdout) == [(VALUE, "0"), (VALUE, digest)]
