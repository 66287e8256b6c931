"""The script that runs in the instances: what it says, what it leaves, and that no secret is in it."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from raysm.client.first_job import probe

HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture
def base(tmp_path):
    """A folder like /opt/ml of the first of two instances."""
    make(tmp_path, HOSTS[0])
    return tmp_path


def make(base, host):
    (base / "input" / "config").mkdir(parents=True)
    (base / "input" / "data" / "data").mkdir(parents=True)
    (base / "input" / "data" / "data" / "numbers.bin").write_bytes(b"123")
    config = {"current_host": host, "hosts": HOSTS}
    (base / "input" / "config" / "resourceconfig.json").write_text(json.dumps(config))


def start(base, mode, *arguments, **variables):
    return subprocess.Popen(
        [sys.executable, probe.__file__, mode, *arguments],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(base), **variables},
        stdout=subprocess.PIPE,
        text=True,
    )


def said(text):
    lines = [line.removeprefix(probe.MARK) for line in text.splitlines() if line.startswith(probe.MARK)]
    observations = [json.loads(line) for line in lines]
    return {observation["topic"]: observation for observation in observations}


def test_an_instance_says_what_it_is_like(base):
    topics = {item["topic"]: item for item in probe.describe("algo-1", ["localhost"])}
    assert set(topics) == {"system", "init", "disks", "mounts", "config", "environment", "network", "mapping"}
    assert topics["disks"]["df"]["/"]["total"] > 0
    assert topics["network"]["resolved"]["localhost"] == "127.0.0.1"
    assert "lo" in topics["network"]["interfaces"]


def test_values_of_variables_that_are_named_like_secrets_are_not_said(base):
    secrets = {
        "MY_API_KEY": "k1",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/k2",
        "DB_PASSWORD": "k3",
        "HF_TOKEN": "k4",
    }
    # As the second instance: the first one waits until it has ended.
    make(base / "other", HOSTS[1])
    text, _ = start(base / "other", "same", MODE="fast", **secrets).communicate(timeout=60)
    variables = said(text)["environment"]["variables"]
    assert variables["MODE"] == "fast"
    assert {variables[name] for name in secrets} == {"(blanked)"}
    assert "the-value-of" not in text


def test_files_of_one_name_are_left_in_every_folder_that_is_uploaded(base):
    make(base / "other", HOSTS[1])
    text, _ = start(base / "other", "same").communicate(timeout=60)
    assert said(text)["left"]["host"] == "localhost"
    assert said(text)["mapping"]["files"] == {"numbers.bin": "MAP_SHARED works, 3 bytes"}
    for folder in ("model", "output/data", "checkpoints"):
        assert (base / "other" / folder / probe.SAME).read_text() == "localhost\n"


def test_who_is_told_to_stop_and_does_not_goes_on_to_write(base):
    process = start(base, "outlive")
    for line in process.stdout:
        if '"topic": "tick"' in line:
            break
    process.send_signal(signal.SIGTERM)
    for line in process.stdout:
        if '"topic": "sigterm"' in line:
            break
    assert '"topic": "tick"' in next(process.stdout)
    process.kill()
    process.communicate(timeout=60)
    assert int((base / "checkpoints" / "127.0.0.1-tick.txt").read_text()) >= 1


def test_instances_that_reach_each_other_say_so(base, tmp_path):
    make(tmp_path / "other", HOSTS[1])
    both = [start(base, "isolated"), start(tmp_path / "other", "isolated")]
    texts = [process.communicate(timeout=120)[0] for process in both]
    assert [said(text)["met"]["reached"] for text in texts] == [True, True]


def test_an_instance_that_nobody_reaches_says_so_after_the_time_that_it_is_told(tmp_path):
    make(tmp_path / "other", HOSTS[1])
    text, _ = start(tmp_path / "other", "isolated", "0.01").communicate(timeout=60)
    assert said(text)["met"]["reached"] is False
    assert "ConnectionRefusedError" in said(text)["met"]["obstacle"]


def test_a_job_that_fails_on_purpose_leaves_something_before(tmp_path):
    folders = {"SM_OUTPUT_DATA_DIR": str(tmp_path), "SM_MODEL_DIR": str(tmp_path)}
    process = start(tmp_path, "fail", **folders)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert (tmp_path / "before-failure.txt").exists()


def test_a_job_that_is_stopped_saves_its_state(tmp_path):
    process = start(tmp_path, "wait", RAYSM_STATE=str(tmp_path))
    assert '"topic": "ready"' in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert (said(text)["stopped"]["signal"], process.returncode) == (signal.SIGTERM, 0)
    assert (tmp_path / "saved.txt").exists()


def test_who_comes_by_a_tunnel_is_answered(tmp_path):
    process = start(tmp_path, "visited")
    port = said(process.stdout.readline())["ready"]["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as visitor:
        assert visitor.makefile().read().strip() == socket.gethostname()
    text, _ = process.communicate(timeout=60)
    assert (said(text)["visited"]["came"], process.returncode) == (True, 0)


def test_where_nobody_may_come_the_script_ends_all_the_same_after_the_time_that_it_is_told(tmp_path):
    process = start(tmp_path, "visited", "0.01")
    text, _ = process.communicate(timeout=60)
    assert (said(text)["visited"]["came"], process.returncode) == (False, 0)
