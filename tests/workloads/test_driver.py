"""The driver: what it makes of an end, whatever the kind of workload."""

import pytest

from raysm.request import JobRequest, Script
from tests.support.driving import drive, pack_script
from tests.support.payloads import pack_payload


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


def test_neighbours_of_a_script_are_found_by_it_and_take_the_place_of_no_module_of_raysms(instance, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("raysm", "json", "random", "logging"):
        (source / f"{name}.py").write_text("raise ImportError('of the user')\n")
    (source / "mine.py").write_text("WORD = 'found'\n")
    (source / "train.py").write_text("import mine, sys\nprint(mine.WORD, sys.path[0] == mine.__file__[:-8])\n")
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
