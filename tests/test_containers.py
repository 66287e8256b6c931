"""What the images promise, read from their Dockerfiles; tests/jobs builds one and runs it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from raysm.cli.arguments import parse
from raysm.core.client.images import images, registry_of
from raysm.features.similarity.cluster.kernels import build
from raysm.features.similarity.cluster.kernels.build import all_recipes, this_machine
from tests.support import docker

FOLDER = Path(__file__).parents[1] / "containers"


FILES = ("Dockerfile", "Dockerfile.batch")


def instructions(name):
    """Return the instructions of a Dockerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", (FOLDER / name).read_text(), flags=re.M)
    return [line for line in text.replace("\\\n", " ").splitlines() if line]


def stages(name):
    """Return the instructions of each stage, which begins with FROM."""
    lines = instructions(name)
    begins = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    return [
        lines[first:last] for first, last in zip(begins, [*begins[1:], len(lines)], strict=True)
    ]


def sources(stage):
    """Return what a stage copies from the repository."""
    copied = [shlex.split(line)[1:-1] for line in stage if line.startswith("COPY ")]
    return [source for words in copied if not words[0].startswith("--") for source in words]


def test_the_entry_point_is_in_exec_form_so_that_it_receives_sigterm():
    (found,) = [line for line in instructions("Dockerfile") if line.startswith("ENTRYPOINT ")]
    assert json.loads(found.removeprefix("ENTRYPOINT ")) == [
        "python3",
        "-P",
        "-m",
        "raysm.instance",
    ]


@pytest.mark.parametrize("name", FILES)
def test_both_base_images_are_arguments(name):
    arguments = [line.partition("=")[0] for line in instructions(name)[:2]]
    assert arguments == ["ARG BASE_IMAGE", "ARG BUILD_IMAGE"]
    assert [stage[0] for stage in stages(name)] == [
        "FROM ${BUILD_IMAGE} AS wheel",
        "FROM ${BASE_IMAGE}",
    ]


@pytest.mark.parametrize("name", FILES)
def test_versions_are_those_of_the_project_alone(name):
    assert not re.search(r"\b(ray|torch|numpy|boto3)\b\S*[=<>]=", (FOLDER / name).read_text())


def test_the_gpu_image_builds_on_the_newest_of_aws_s_images():
    newest = next(image for image in images() if image.processor == "gpu")
    command = f"--build-arg BASE_IMAGE={newest.uri(registry_of('us-east-1'))} -t raysm:gpu ."
    assert command in (FOLDER / "Dockerfile").read_text()


def test_the_user_is_an_argument_and_root_where_sagemaker_needs_it():
    _, job = stages("Dockerfile")
    assert job.index("ARG RUN_AS=root") < job.index("USER ${RUN_AS}")


EFA_STUBS = {
    "apt-get": "exit 0",
    "curl": 'echo "$@" >>"$CALLS"; cat "$ARCHIVE"',
    "ldconfig": 'if [ "$1" = -p ]; then echo "$LIBRARIES"; fi',
}


@pytest.fixture
def efa_step(tmp_path):
    """Return a function that runs the Dockerfile's step for EFA with a stand-in of its installer."""
    folder = tmp_path / "aws-efa-installer"
    folder.mkdir()
    installer = folder / "efa_installer.sh"
    installer.write_text('#!/bin/sh\necho "$@" >>"$CALLS"\n')
    installer.chmod(0o755)
    archive = tmp_path / "installer.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in EFA_STUBS.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    (line,) = [line for line in instructions("Dockerfile") if line.startswith("RUN if [ -n ")]
    step = line.removeprefix("RUN ").replace("/tmp/efa", str(tmp_path / "efa"))
    calls = tmp_path / "calls"

    def run(version, libraries):
        done = subprocess.run(
            ["sh", "-c", step.replace("/var/lib/apt/lists", str(tmp_path / "lists"))],
            env={
                "PATH": f"{tools}:{os.environ['PATH']}",
                "EFA_INSTALLER": version,
                "ARCHIVE": str(archive),
                "CALLS": str(calls),
                "LIBRARIES": libraries,
            },
            capture_output=True,
            text=True,
        )
        return done.returncode, calls.read_text().splitlines() if calls.exists() else []

    return run


def test_efa_is_installed_in_the_version_that_is_asked_for(efa_step):
    code, (fetched, installed) = efa_step("1.51.0", "libnccl-net.so => /opt/amazon/ofi-nccl/lib")
    assert code == 0
    assert fetched.endswith("https://efa-installer.amazonaws.com/aws-efa-installer-1.51.0.tar.gz")
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-installer-containers.html
    assert installed == "-y --skip-kmod --skip-limit-conf --no-verify"


def test_efa_is_not_installed_unasked(efa_step):
    assert efa_step("", "") == (0, [])


def test_build_fails_if_efas_installer_leaves_no_plugin_for_nccl(efa_step):
    code, _ = efa_step("1.51.0", "libfabric.so.1 => /opt/amazon/efa/lib")
    assert code != 0


@pytest.mark.parametrize("name", FILES)
def test_docker_keeps_the_dependencies_until_the_project_file_changes(name):
    _, final = stages(name)
    # Nothing of the source is copied but by the wheel, after the dependencies.
    assert sources(final) == ["pyproject.toml", "PACKAGE.md", "LICENSE"]
    installs = [number for number, line in enumerate(final) if "pip install" in line]
    assert installs[0] < final.index("COPY --from=wheel /wheels /tmp/wheels") < installs[1]


def test_all_images_make_the_same_wheel():
    first, *others = [stages(name)[0] for name in FILES]
    assert others == [first]


@pytest.mark.long
def test_the_wheel_of_an_image_has_the_kernels(tmp_path):
    if build.compiler_for(this_machine()) is None:
        pytest.skip("no C compiler")
    wheel, _ = stages("Dockerfile")
    ignore = (FOLDER.parent / ".dockerignore").read_text().splitlines()
    tree = tmp_path / "source"
    tree.mkdir()
    for source in sources(wheel):
        # Docker copies only these.
        assert f"!{source}" in ignore
        path = FOLDER.parent / source
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, tree / source)
    (step,) = [line.removeprefix("RUN ") for line in wheel if line.startswith("RUN ")]
    python = Path(sys.executable).parent
    subprocess.run(
        ["sh", "-c", step.replace("/wheels", str(tmp_path))],
        cwd=tree,
        env=os.environ
        | {
            "PIP_OPTIONS": "--no-index --no-build-isolation",
            "PATH": f"{python}:{os.environ['PATH']}",
        },
        check=True,
        capture_output=True,
    )
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        libraries = [item for item in archive.namelist() if item.endswith(".so")]
    assert len(libraries) == len(list(all_recipes(this_machine())))


def test_the_image_of_batch_runs_what_a_definition_says():
    text = (FOLDER / "Dockerfile.batch").read_text()
    # Behind an entry point no shell would ever see the index of a child.
    assert "\nENTRYPOINT" not in text
    (command,) = re.findall(r"^CMD (.*)$", text, re.M)
    assert json.loads(command)[0] == "raysm"


def test_a_job_of_batch_is_nobody_in_particular_and_has_a_folder_to_work_in():
    text = (FOLDER / "Dockerfile.batch").read_text()
    assert "ARG RUN_AS=raysm" in text
    assert text.index("USER ${RUN_AS}") < text.index("WORKDIR /work")


@pytest.mark.parametrize("name", FILES)
def test_what_an_image_copies_is_there(name):
    copied = [source for stage in stages(name) for source in sources(stage)]
    assert copied
    assert all((FOLDER.parent / source).exists() for source in copied)


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
    # As definitions have it: a child's command in a shell, a controller's by itself; and nobody is
    # root.
    child = "raysm grid row --help >out && head -1 out && id -un && pwd"
    assert ran(image, "sh", "-c", child).splitlines() == [
        "usage: raysm grid row FILE.toml|SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT, as in --lr {lr}]",
        "raysm",
        "/work",
    ]
    assert "usage: raysm grid take-up" in ran(
        image, "python3", "-m", "raysm", "grid", "take-up", "--help"
    )


def ran(image, *command):
    """Return what a container of an image prints that has no network."""
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", image, *command],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
