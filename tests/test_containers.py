"""What the images promise, read from their Dockerfiles; tests/jobs builds one and runs it."""

import json
import re
from pathlib import Path

import pytest

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
    assert '"/tmp/raysm[local]"' in dockerfile
    assert not re.search(r"\b(ray|torch|numpy)\b\S*[=<>]=", dockerfile)


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
