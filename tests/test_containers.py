"""What the images promise, read from their Dockerfiles; tests/jobs builds one and runs it."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from raysm.cli.arguments import parse
from raysm.client.account.images import images, registry_of
from tests.support import docker

FOLDER = Path(__file__).parents[1] / "containers"


@pytest.fixture(params=["Dockerfile.cpu", "Dockerfile.gpu"])
def dockerfile(request):
    return (FOLDER / request.param).read_text().replace("\\\n", " ")


def test_the_entry_point_is_in_exec_form_so_that_it_hears_sigterm(dockerfile):
    (found,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.M)
    assert json.loads(found) == ["python3", "-P", "-m", "raysm.bootstrap"]


def test_the_base_is_an_argument(dockerfile):
    lines = [line for line in dockerfile.splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("ARG BASE_IMAGE=")
    assert lines[1] == "FROM ${BASE_IMAGE}"


def test_versions_are_those_of_the_project_alone(dockerfile):
    assert '"/tmp/raysm[batch,interactive,sweep,train]"' in dockerfile
    assert not re.search(r"\b(ray|torch|numpy)\b\S*[=<>]=", dockerfile)


def test_the_gpu_image_builds_on_the_newest_of_aws_s_images():
    newest = next(image for image in images() if image.processor == "gpu")
    assert f"ARG BASE_IMAGE={newest.uri(registry_of('us-east-1'))}\n" in (FOLDER / "Dockerfile.gpu").read_text()


def test_the_user_is_an_argument_and_root_where_sagemaker_needs_it(dockerfile):
    assert "ARG RUN_AS=root" in dockerfile
    assert "USER ${RUN_AS}" in dockerfile


def test_the_image_of_batch_runs_what_a_definition_says_and_holds_no_versions_of_its_own():
    text = (FOLDER / "Dockerfile.batch").read_text()
    # Behind an entry point no shell would ever see the index of a child.
    assert "\nENTRYPOINT" not in text
    assert not re.search(r"\b(ray|torch|numpy|boto3)\b\S*[=<>]=", text)
    (command,) = re.findall(r"^CMD (.*)$", text, re.M)
    assert json.loads(command)[0] == "raysm"


def test_a_job_of_batch_is_nobody_in_particular_and_has_a_folder_to_work_in():
    text = (FOLDER / "Dockerfile.batch").read_text()
    assert "ARG RUN_AS=raysm" in text
    assert text.index("USER ${RUN_AS}") < text.index("WORKDIR /work")


@pytest.mark.parametrize("name", ["Dockerfile.batch", "Dockerfile.cpu", "Dockerfile.gpu"])
def test_what_an_image_copies_is_there(name):
    text = (FOLDER / name).read_text().replace("\\\n", " ")
    copied = [source for words in re.findall(r"^COPY (.*)$", text, re.M) for source in shlex.split(words)[:-1]]
    assert copied
    for source in copied:
        assert source.startswith("--") or (FOLDER.parent / source).exists(), source


def test_the_command_of_the_image_of_batch_is_one_of_raysms(capsys):
    (command,) = re.findall(r"^CMD (.*)$", (FOLDER / "Dockerfile.batch").read_text(), re.M)
    with pytest.raises(SystemExit) as ended:
        parse(json.loads(command)[1:])
    assert (ended.value.code, "usage: raysm grid row" in capsys.readouterr().out) == (0, True)


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_a_container_of_the_image_of_batch_has_what_a_child_and_a_controller_run():
    reason = docker.why_no_base()
    if reason:
        pytest.skip(reason)
    image = docker.batch_image()
    # As definitions have it: a child's command in a shell, a controller's by itself; and nobody is root.
    child = "raysm grid row --help >out && head -1 out && id -un && pwd"
    assert ran(image, "sh", "-c", child).splitlines() == [
        "usage: raysm grid row FILE.toml|SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT, as in --lr {lr}]",
        "raysm",
        "/work",
    ]
    assert "usage: raysm grid take-up" in ran(image, "python3", "-m", "raysm", "grid", "take-up", "--help")


def ran(image, *command):
    """Return what a container of an image prints that has no network."""
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", image, *command], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
