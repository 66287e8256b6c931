"""The command as a user runs it: its own process, its own folder."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from raysm.cli.main import main
from raysm.client import endpoint

pytestmark = pytest.mark.usefixtures("home")

ROOT = Path(__file__).parents[2]
RAYSM = [sys.executable, "-m", "raysm"]


def raysm(*argv, cwd, env=None):
    return subprocess.run(
        [*RAYSM, *map(str, argv)], cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def first(home, tmp_path_factory):
    """The README's first command, run in an empty folder; what it printed, and the folder."""
    folder = tmp_path_factory.mktemp("first")
    digits = ROOT / "examples" / "data" / "digits.csv.gz"
    return raysm("similarity", digits, "--top-k", 10, "--instances", 2, "--output", "out/", cwd=folder), folder


@pytest.mark.smoke
def test_the_readmes_first_command_leaves_the_result_and_says_how_to_read_it(first):
    done, folder = first
    assert done.returncode == 0, done.stdout + done.stderr
    assert pq.read_metadata(folder / "out" / "neighbors.parquet").num_rows == 1797
    said = done.stdout
    assert "algo-2 joined: 2 of 2 instances" in said
    assert "cluster formed" in said
    assert "similarity: 100% (1,797 of 1,797 rows" in said
    assert "result   out/neighbors.parquet: 1,797 rows x 10 neighbors" in said
    assert "read it" in said
    assert sorted(path.name for path in folder.iterdir()) == ["out"]


def test_the_command_that_the_result_names_reads_it(first):
    done, folder = first
    how = next(line for line in done.stdout.splitlines() if line.startswith("read it")).removeprefix("read it").strip()
    read = subprocess.run([sys.executable, "-c", how], cwd=folder, capture_output=True, text=True)
    assert read.returncode == 0, read.stderr


def test_a_script_and_its_output_reach_the_user_who_started_it(tmp_path):
    done = raysm(
        "run", ROOT / "examples" / "hello_cluster.py", "--instances", 2, "--", "--greeting", "Good day", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Good day from algo-1 (rank 0)" in done.stdout
    assert "Good day from algo-2 (rank 1)" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_script_finds_its_neighbour_modules_in_ray_tasks_too_and_what_it_leaves_is_moved_to_the_output(tmp_path):
    (tmp_path / "s.py").write_text(
        "import os, ray, reading\n"
        "channel, model = os.environ['SM_CHANNEL_TRAIN'], os.environ['SM_MODEL_DIR']\n"
        "ray.init()\n"
        "open(model + '/copy', 'w').write(ray.get(ray.remote(reading.text).remote(channel)))\n"
    )
    (tmp_path / "reading.py").write_text("def text(channel):\n    return open(channel + '/x.txt').read()\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("content")
    done = raysm("run", "s.py", "--input", "train=data", "--output", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sent s.py and reading.py, 257 bytes" in done.stdout
    assert (tmp_path / "kept" / "copy").read_text() == "content"
    again = raysm(
        "run", "s.py", "--input", "train=data", "--output", "kept", "--if-done", "skip", "--json", cwd=tmp_path
    )
    assert again.returncode == 0, again.stdout + again.stderr
    found = json.loads(again.stdout)
    assert (found["path"], [file["name"] for file in found["manifest"]["files"]]) == ("kept", ["copy"])
    assert "already done by" in again.stderr


def test_a_script_that_fails_ends_the_command_with_1_and_the_reason(tmp_path):
    (tmp_path / "s.py").write_text("raise RuntimeError('no luck')\n")
    done = raysm("run", "s.py", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"raysm: the job \S+ failed: RuntimeError: no luck\n", done.stderr)
    assert (done.stdout + done.stderr).count("Traceback") == 1
    name = done.stdout.split(maxsplit=2)[1]
    shown = raysm("result", name, cwd=tmp_path)
    assert (shown.returncode, shown.stderr.count("Traceback")) == (1, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.py"]


def test_a_dry_run_for_aws_says_which_image_it_would_take(tmp_path):
    (tmp_path / "a.py").touch()
    where = ["--on", "aws", "--role", "arn:aws:iam::123456789012:role/jobs", "--region", "eu-south-1", "--bucket", "b"]
    done = raysm("run", "a.py", *where, "--instance-type", "ml.c5.xlarge", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    image = json.loads(done.stdout)["request"]["AlgorithmSpecification"]["TrainingImage"]
    assert image.startswith("692866216735.dkr.ecr.eu-south-1.amazonaws.com/pytorch:")
    assert f"would run in {image} (AWS's PyTorch" in done.stderr
    assert "would cost unknown: no price of ml.c5.xlarge in eu-south-1 is at hand" in done.stderr


def test_dry_run_prints_the_exact_call_and_starts_nothing(tmp_path):
    five_rows(tmp_path)
    home = {"RAYSM_HOME": str(tmp_path / "untouched")}
    done = raysm("similarity", "m.npy", "--top-k", 3, "--instances", 4, "--dry-run", cwd=tmp_path, env=home)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["api"] == "CreateTrainingJob"
    call = plan["request"]
    assert call["ResourceConfig"]["InstanceCount"] == 4
    assert call["AlgorithmSpecification"]["ContainerEntrypoint"][0] == "python3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.npy"]


def empty(folder):
    (folder / "m.npy").write_bytes(b"")


def five_rows(folder):
    np.save(folder / "m.npy", np.eye(5, dtype=np.float32))


def nothing(folder):
    pass


def foreign_output(folder):
    five_rows(folder)
    (folder / "out").mkdir()
    (folder / "out" / "thesis.tex").touch()


@pytest.mark.parametrize(
    ("prepare", "argv", "message"),
    [
        (nothing, ["similarity", "m.npy", "--top-k", "3"], "m.npy"),
        (empty, ["similarity", "m.npy", "--top-k", "3"], "m.npy"),
        (five_rows, ["similarity", "m.npy", "--top-k", "5"], "has 5 rows, so at most 4 others"),
        (five_rows, ["similarity", "m.npy", "--top-k", "3", "--instances", "0"], "count must be at least 1"),
        (foreign_output, ["similarity", "m.npy", "--top-k", "3", "--output", "out"], "is no result of raysm"),
        (five_rows, ["similarity", "m.npy", "--top-k", "3", "--output", "m.npy"], "is a file"),
        (five_rows, ["similarity", "m.npy", "--top-k", "3", "--output", "/proc/nope"], "/proc/nope cannot be written"),
        (nothing, ["run", "missing.py"], "'missing.py' is not there"),
        (nothing, ["run", "missing.py", "--source-dir", "nowhere"], "source_dir='nowhere' is not there"),
    ],
)
def test_what_cannot_be_is_refused_with_2_before_anything_starts(tmp_path, prepare, argv, message):
    prepare(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    done = raysm(*argv, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "joined" not in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_ctrl_c_stops_the_job_and_all_its_instances(tmp_path, home):
    (tmp_path / "s.py").write_text("import time\nprint('user code runs', flush=True)\ntime.sleep(300)\n")
    command = subprocess.Popen(
        [*RAYSM, "run", "s.py", "--instances", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with command:
        said = ""
        for line in command.stdout:
            said += line
            if "user code runs" in line:
                break
        command.send_signal(signal.SIGINT)
        said += command.communicate(timeout=90)[0]  # less than the grace that the script could have
    assert command.returncode == 130, said
    assert said.rstrip().endswith("stopped")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.py"]
    name = next(line.split()[1] for line in said.splitlines() if line.startswith("job "))
    status = raysm("status", name, "--json", cwd=tmp_path)
    assert json.loads(status.stdout)["status"] == "Stopped"
    server = psutil.Process(endpoint.answering(home).pid)
    assert [child for child in server.children(recursive=True) if "raysm.bootstrap" in " ".join(child.cmdline())] == []


def umask():
    before = os.umask(0o022)
    os.umask(before)
    return before


def test_a_job_that_was_left_to_itself_is_found_again_by_its_name(tmp_path):
    (tmp_path / "s.py").write_text(
        "print('my line')\nopen(__import__('os').environ['SM_MODEL_DIR'] + '/x', 'w').write('y')\n"
    )
    left = raysm("run", "s.py", "--detach", cwd=tmp_path)
    name = left.stdout.strip()
    assert raysm("logs", "-f", name, cwd=tmp_path).stdout.count("algo-1 | my line") == 1
    assert name in raysm("jobs", cwd=tmp_path).stdout
    assert json.loads(raysm("status", name, "--json", cwd=tmp_path).stdout)["status"] == "Completed"
    assert raysm("result", name, "--output", "kept", cwd=tmp_path).returncode == 0
    assert (tmp_path / "kept" / "x").read_text() == "y"
    assert (tmp_path / "kept" / "x").stat().st_mode & 0o777 == 0o666 & ~umask()
    assert "nor is its token" in raysm("token", name, cwd=tmp_path).stderr  # it has ended, and nobody needs it
    metrics = json.loads(raysm("metrics", name, "--json", cwd=tmp_path).stdout)
    assert "peak_memory_bytes" in {metric["name"] for metric in metrics}


def test_a_job_that_nobody_knows_is_said_so(tmp_path):
    done = raysm("status", "no-such-job", cwd=tmp_path)
    assert done.returncode == 1
    assert "there is no job 'no-such-job'" in done.stderr
    assert "raysm jobs" in done.stderr


def test_the_doctor_says_what_this_machine_has(tmp_path):
    done = raysm("doctor", "--json", cwd=tmp_path)
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert found["ray"]["state"] == "good"
    assert found["server"]["state"] == "good"


def test_options_that_exclude_each_other_are_refused_by_name_without_a_process(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["similarity", "m.npy", "--top-k", "3", "--full"])
    assert raised.value.code == 2
    assert "--full" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_2_and_one_line(tmp_path, capsys):
    assert main(["similarity", str(tmp_path / "nowhere.npy"), "--top-k", "3"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("raysm: ")
    assert "nowhere.npy" in said
    assert "Traceback" not in said


def test_the_options_that_apply_are_printed_with_0(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["config", "--project", "mine"]) == 0
    assert 'project = "mine"' in capsys.readouterr().out
