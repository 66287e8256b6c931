"""The command as a user runs it: in a folder of its own, and in its own process where what a process is matters."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from raysm.cli.main import main
from raysm.core.client.job.handle import attach
from raysm.core.client.targets.local import find_server
from raysm.core.protocol.result import Manifest
from raysm.features.similarity import demo_command as demo
from tests.support import reference
from tests.support.homes import in_home
from tests.support.pages import assert_printed, outputs

pytestmark = pytest.mark.usefixtures("home")

DIGITS = Path(__file__).parents[2] / "examples" / "data" / "digits.csv.gz"
RAYSM = [sys.executable, "-m", "raysm"]


def raysm(*argv, cwd, env=None):
    return subprocess.run(
        [*RAYSM, *map(str, argv)],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command in this process, in an empty folder; return its exit status, and what it printed where."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        capsys.readouterr()
        return main(list(map(str, argv))), *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def first(home, tmp_path_factory):
    """The README's first command, run in an empty folder; what it printed, and the folder."""
    folder = tmp_path_factory.mktemp("first")
    return raysm(
        "similarity", DIGITS, "--top-k", 10, "--instances", 2, "--output", "out/", cwd=folder
    ), folder


@pytest.mark.smoke
def test_the_readmes_first_command_leaves_the_result_and_says_how_to_read_it(first, monkeypatch):
    done, folder = first
    assert done.returncode == 0, done.stdout + done.stderr
    assert pq.read_metadata(folder / "out" / "neighbors.parquet").num_rows == 1797
    said = done.stdout
    assert "algo-2 joined: 2 of 2 instances" in said
    assert "cluster formed" in said
    assert "similarity: 100% (1,797 of 1,797 rows" in said
    assert "result   out/neighbors.parquet: 1,797 rows x 10 neighbors" in said
    how = (
        next(line for line in said.splitlines() if line.startswith("read it"))
        .removeprefix("read it")
        .strip()
    )
    monkeypatch.chdir(folder)
    names = {}
    exec(how, names)
    assert names["table"].num_rows == 1797


@pytest.mark.smoke
def test_an_estimate_takes_the_speed_of_a_core_from_the_blocks_of_that_job(first):
    _, folder = first
    done = raysm(
        "similarity",
        DIGITS,
        "--top-k",
        10,
        "--estimate",
        "--measured-by",
        "similarity",
        "--json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    measures = Manifest.read(folder / "out").measures
    assert 0 < measures["block_s_algo-1"] <= measures["block_max_s"]
    assert found["pairs_per_core_s"] == measures["pairs_per_core_s"]
    # This machine's speed was measured too, and is another number.
    assert found["here"]["pairs"] not in (0, found["pairs_per_core_s"])
    assert sorted(path.name for path in folder.iterdir()) == ["out"]


def test_its_neighbors_equal_those_of_float64_index_for_index(first):
    table = pq.read_table(first[1] / "out" / "neighbors.parquet")
    assert table.column_names == ["row", "neighbors", "similarities"]
    assert table["row"].to_pylist() == list(range(1797))
    indices, scores = reference.neighbors(
        np.loadtxt(DIGITS, delimiter=",", skiprows=1), 10, list(range(1797))
    )
    np.testing.assert_array_equal(np.stack(table["neighbors"].to_numpy()), indices)
    np.testing.assert_array_equal(np.stack(table["similarities"].to_numpy()), scores)


def test_the_demo_shows_a_part_of_its_result(first, command, monkeypatch):
    name = next(line.split()[1] for line in first[0].stdout.splitlines() if line.startswith("job "))
    monkeypatch.setattr(demo, "send", lambda *args: attach(name))
    code, said, _ = command("demo", "--output", "out")
    assert code == 0
    assert "A job of 2 emulated instances forms" in said
    assert "cluster formed: 2 of 2 instances" in said
    assert "picture 0 (a 0) is most similar to 877 (a 0, 0.9807)" in said
    assert "98.9 % of all pictures show the same digit as the picture most similar to them." in said
    assert pq.read_metadata("out/neighbors.parquet").num_rows == 1797


def test_the_data_of_the_demo_are_those_of_the_examples_with_their_licence():
    carried = {path.name: path.read_bytes() for path in demo.DATA.iterdir()}
    assert carried == {path.name: path.read_bytes() for path in DIGITS.parent.iterdir()}


def test_a_script_with_its_modules_and_inputs_is_left_to_itself_and_found_again_by_its_name(
    tmp_path, command
):
    (tmp_path / "s.py").write_text(
        "import os, sys, ray, reading\n"
        "channel, model = os.environ['SM_CHANNEL_TRAIN'], os.environ['SM_MODEL_DIR']\n"
        "ray.init()\n"
        "open(model + '/copy', 'w').write(ray.get(ray.remote(reading.text).remote(channel)))\n"
        "print('Good day', *sys.argv[1:])\n"
    )
    (tmp_path / "reading.py").write_text(
        "def text(channel):\n    return open(channel + '/x.txt').read()\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("content")
    asked = ("run", "s.py", "--input", "train=data")
    code, out, said = command(*asked, "--detach", "--", "--to", "you")
    assert code == 0, out + said
    assert "sent s.py, reading.py, 295 bytes" in said
    name = out.strip()
    assert command("logs", "-f", name)[1].count("algo-1 | Good day --to you") == 1
    assert name in command("jobs")[1]
    assert json.loads(command("status", name, "--json")[1])["status"] == "Completed"
    assert "and its token with it" in command("token", name)[2]
    metrics = json.loads(command("metrics", name, "--json")[1])
    assert "peak_memory_bytes" in {metric["name"] for metric in metrics}
    assert command("result", name, "--output", "kept")[0] == 0
    assert (tmp_path / "kept" / "copy").read_text() == "content"
    assert (tmp_path / "kept" / "copy").stat().st_mode == (tmp_path / "s.py").stat().st_mode
    code, out, said = command(
        *asked, "--output", "again", "--if-done", "skip", "--json", "--", "--to", "you"
    )
    assert code == 0, out + said
    found = json.loads(out)
    assert (found["path"], [file["name"] for file in found["manifest"]["files"]]) == (
        "again",
        ["copy"],
    )
    assert f"already done by {name}" in said


def test_a_script_that_fails_ends_the_command_with_1_and_the_reason(tmp_path, command):
    (tmp_path / "train.py").write_text("float('n/a')\n")
    code, out, said = command("run", "train.py")
    assert code == 1
    assert_printed(*outputs("guides/find-out-why-a-job-failed.md"), out + said)
    assert (out + said).count("Traceback") == 1
    name = out.split(maxsplit=2)[1]
    code, _, shown = command("result", name)
    assert (code, shown.count("Traceback")) == (1, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_a_script_that_misses_a_module_ends_with_the_remedy(tmp_path, command):
    (tmp_path / "a.py").write_text("import nosuchmodule")
    code, _, said = command("run", "a.py")
    assert code == 1
    assert "No module named 'nosuchmodule'" in said.splitlines()[-2]
    assert "--requirement nosuchmodule" in said.splitlines()[-1]


def test_dry_run_prints_the_exact_call_and_starts_nothing(tmp_path, command):
    five_rows(tmp_path)
    with in_home(tmp_path / "untouched"):
        code, out, said = command(
            "similarity", "m.npy", "--top-k", 3, "--instances", 4, "--dry-run"
        )
    assert code == 0, said
    plan = json.loads(out)
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
        (five_rows, ["similarity", "m.npy", "--top-k", "5"], "has 5 rows; ask for at most 4"),
        (
            foreign_output,
            ["similarity", "m.npy", "--top-k", "3", "--output", "out"],
            "are not a result of raysm",
        ),
        (
            five_rows,
            ["similarity", "m.npy", "--top-k", "3", "--output", "/proc/nope"],
            "/proc/nope cannot be written",
        ),
        (nothing, ["run", "missing.py"], "'missing.py' is not there"),
    ],
)
def test_what_cannot_be_is_refused_with_2_before_anything_starts(
    tmp_path, command, prepare, argv, message
):
    prepare(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, said = command(*argv)
    assert code == 2, out + said
    assert message in said
    assert "Traceback" not in said
    assert out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_working_folder_that_was_deleted_is_a_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    # ``-P``, because Python itself looks up the folder for -m.
    line = f"rmdir {gone}; exec {sys.executable} -P -m raysm jobs"
    done = subprocess.run(
        ["sh", "-c", line], cwd=gone, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, "the working folder was deleted" in done.stderr) == (1, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("argv", [("config",), ("config", "--json")])
def test_an_output_that_cannot_be_written_is_a_sentence(tmp_path, argv):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RAYSM, *argv],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    assert (done.returncode, "the output cannot be written" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_command_whose_standard_streams_are_closed_does_its_work(tmp_path, closed):
    line = f"exec {shlex.join(RAYSM)} config {closed}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == ("1>&-" not in closed)


def test_ctrl_c_during_the_imports_ends_with_the_status_of_an_interruption_and_no_traceback():
    interrupting = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        name == 'raysm.cli.arguments' and signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from raysm.cli.main import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", interrupting], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_stops_the_job_and_all_its_instances(tmp_path, home, command):
    (tmp_path / "s.py").write_text(
        "import time\nprint('user code runs', flush=True)\ntime.sleep(300)\n"
    )
    running = subprocess.Popen(
        [*RAYSM, "run", "s.py", "--instances", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with running:
        said = ""
        for line in running.stdout:
            said += line
            if "user code runs" in line:
                break
        running.send_signal(signal.SIGINT)
        said += running.communicate(timeout=90)[0]  # less than the grace that the script could have
    assert running.returncode == 130, said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.py"]
    name = next(line.split()[1] for line in said.splitlines() if line.startswith("job "))
    assert said.splitlines()[-1] == f"stopped; raysm rm {name} removes it"
    assert json.loads(command("status", name, "--json")[1])["status"] == "Stopped"
    server = psutil.Process(find_server(home).pid)
    assert [
        child
        for child in server.children(recursive=True)
        if "/raysm/start.py" in " ".join(child.cmdline())
    ] == []
