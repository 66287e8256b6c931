"""Instances of kind docker: their command lines by themselves, and, where a Docker daemon runs, the containers."""

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from raysm.errors import InvalidRequest
from raysm.local.instances import InstanceSpec, Link, open_site
from raysm.local.instances.docker import DockerSite, create_arguments, missing_for_docker
from raysm.local.instances.share import Share
from raysm.local.scenario import Container, Scenario
from tests.support import docker
from tests.support.waiting import until

# A name of an instance that has ended is asked of resolvers that are not there, for 20 s where the
# machine is busy.
SOON_S = 120.0


def make_spec(root, host="algo-1", command=("true",), log_fd=1, **fields):
    base = root / host / "ml"
    base.mkdir(parents=True, exist_ok=True)
    fields = {"variables": {}} | fields
    return InstanceSpec(
        host=host, base=base, private=root / host, command=tuple(command), log_fd=log_fd, **fields
    )


# The command line


def arguments(spec):
    return create_arguments(
        spec, "image:1", name="n", network="net", env_file=Path("/private/variables")
    )


def test_a_container_gets_the_names_the_network_and_the_files_of_its_instance(tmp_path):
    link = Link(
        source=tmp_path / "matrix.npy",
        target=tmp_path / "algo-2" / "ml" / "input" / "data" / "m.npy",
    )
    found = arguments(make_spec(tmp_path, "algo-2", ["python3", "-m", "x"], links=(link,)))
    assert found[0] == "create"
    assert {
        "--name=n",
        "--hostname=aws",
        "--network=net",
        "--network-alias=algo-2",
        "--init=true",
    } <= set(found)
    assert found[found.index("image:1") :] == ["image:1", "-m", "x"]
    assert "--entrypoint=python3" in found
    assert f"--mount=type=bind,source={tmp_path}/algo-2/ml,target=/opt/ml" in found
    assert (
        f"--mount=type=bind,source={tmp_path}/matrix.npy,target=/opt/ml/input/data/m.npy,readonly"
        in found
    )


def test_without_an_entry_point_a_container_has_that_of_its_image(tmp_path):
    found = arguments(make_spec(tmp_path, command=["", "train"]))
    assert not [word for word in found if word.startswith("--entrypoint")]
    assert found[-2:] == ["image:1", "train"]


def test_a_container_is_limited_to_its_share(tmp_path):
    share = Share(cpus=2, affinity=(2, 3), memory_bytes=2**30, gpus=("GPU-a", "GPU-b"))
    found = arguments(make_spec(tmp_path, share=share))
    assert {"--memory=1073741824", "--shm-size=536870912", "--cpuset-cpus=2,3"} <= set(found)
    assert '--gpus="device=GPU-a,GPU-b"' in found


def test_no_variable_stands_on_the_command_line(tmp_path):
    found = arguments(make_spec(tmp_path, variables={"AWS_SECRET_ACCESS_KEY": "hush"}))
    assert "hush" not in " ".join(found)
    assert "--env-file=/private/variables" in found


def test_a_path_with_a_comma_is_quoted_as_csv(tmp_path):
    found = arguments(make_spec(tmp_path / "a,b"))
    assert f'--mount=type=bind,"source={tmp_path}/a,b/algo-1/ml",target=/opt/ml' in found


# What is missing


def test_without_the_docker_command_the_remedy_is_named():
    assert "the docker command" in missing_for_docker(("no-such-docker",))


def test_without_a_daemon_the_remedy_is_named():
    assert "Docker daemon" in missing_for_docker(("false",))


def test_without_an_image_nothing_begins():
    with pytest.raises(InvalidRequest, match="image"):
        open_site("docker")


# Containers


class Job:
    """A site, and what its instances write."""

    def __init__(self, site, root):
        self.site, self.root, self._logs = site, root, {}

    def start(self, *commands, **fields):
        specs = []
        for number, command in enumerate(commands, 1):
            host = f"algo-{number}"
            (self.root / host).mkdir(parents=True, exist_ok=True)
            self._logs[host] = (self.root / host / "log").open("wb")
            log_fd = self._logs[host].fileno()
            words = ["sh", "-c", command] if isinstance(command, str) else command
            specs.append(make_spec(self.root, host, words, log_fd, **fields))
        return self.site.start(specs)

    def log(self, host="algo-1"):
        return (self.root / host / "log").read_text()

    def wait_for(self, text, host="algo-1"):
        until(lambda: text in self.log(host), SOON_S, lambda: self.log(host))

    def close(self):
        self.site.close()
        for file in self._logs.values():
            file.close()


def assert_nothing_left(owner=None):
    until(lambda: not docker.left_behind(owner), SOON_S, lambda: docker.left_behind(owner))


@pytest.fixture
def job(tmp_path):
    with contextlib.closing(Job(DockerSite(docker.tiny_image()), tmp_path)) as job:
        yield job
    assert_nothing_left()


@pytest.mark.docker
def test_instances_find_each_other_get_their_variables_and_end_with_their_own_codes(job):
    first, second = job.start(
        "getent hosts algo-2 && exit 3",
        'getent hosts algo-1; echo "$A|$PATH"; sleep 1',
        variables={"A": "b c='d'", "PATH": "/nowhere"},
    )
    assert first.wait(SOON_S) == 3, job.log()
    assert second.wait(SOON_S) == 0
    assert job.log().split() == [second.address, "algo-2"]
    # Not the path of this machine, but the image's own.
    assert job.log("algo-2").splitlines()[-1] == "b c='d'|/usr/bin:/bin"


@pytest.mark.docker
def test_without_an_entry_point_the_image_s_own_program_train_runs(tmp_path):
    def write(folder):
        (folder / "train").write_text("#!/bin/sh\necho trained > /opt/ml/model/x\n")
        (folder / "train").chmod(0o755)

    image = docker.changed(
        docker.tiny_image(), "raysm-test-train", "COPY packages/train /usr/bin/train", write
    )
    (tmp_path / "algo-1" / "ml" / "model").mkdir(parents=True)
    with contextlib.closing(Job(DockerSite(image), tmp_path)) as job:
        (instance,) = job.start(["", "train"])
        assert instance.wait(SOON_S) == 0, job.log()
    assert (tmp_path / "algo-1" / "ml" / "model" / "x").read_text() == "trained\n"


WORK = "echo began; while :; do sleep 0.1; done"


@pytest.mark.docker
def test_a_command_runs_beside_the_main_process_and_its_exit_code_is_told(job, tmp_path):
    (instance,) = job.start(WORK)
    job.wait_for("began")
    written = tmp_path / "written"
    written.touch()
    running = instance.enter(
        ["sh", "-c", "echo out; echo err >&2; exit 7"], stdin=os.devnull, stdout=str(written)
    )
    assert running.exited.result(SOON_S) == 7
    # By two ways, which docker joins here: which of them is first is nobody's promise.
    assert sorted(written.read_text().split()) == ["err", "out"]
    assert not instance.exited.done()


@pytest.mark.docker
def test_an_instance_sees_its_own_opt_ml_and_the_links_in_it_read_only(job, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("given\n")
    (tmp_path / "y").write_text("file\n")
    base = tmp_path / "algo-1" / "ml"
    links = (
        Link(source=tmp_path / "data", target=base / "input" / "data" / "train"),
        Link(source=tmp_path / "y", target=base / "input" / "data" / "y"),
    )
    command = "cat /opt/ml/input/data/train/x /opt/ml/input/data/y; touch /opt/ml/input/data/train/z; touch /opt/ml/w"
    (instance,) = job.start(command, links=links)
    assert instance.wait(SOON_S) == 0, job.log()
    # Docker brings output and errors by two streams, in no order between them.
    assert "given\nfile\n" in job.log()
    assert "Read-only file system" in job.log()
    assert (base / "w").exists()


@pytest.mark.docker
@pytest.mark.parametrize(("named_by", "user"), [("scenario", 4242), ("image", 4242), ("nobody", 0)])
def test_whoever_an_instance_runs_as_can_write_the_folders_that_are_there(tmp_path, named_by, user):
    (tmp_path / "algo-1" / "ml" / "model").mkdir(parents=True)
    image = (
        docker.image_run_as(docker.tiny_image(), user)
        if named_by == "image"
        else docker.tiny_image()
    )
    scenario = Scenario(container=Container(user=user if named_by == "scenario" else 0))
    with contextlib.closing(Job(DockerSite(image), tmp_path)) as job:
        (instance,) = job.start("touch /opt/ml/model/x", scenario=scenario)
        assert instance.wait(SOON_S) == 0, job.log()
    assert_nothing_left()
    assert (tmp_path / "algo-1" / "ml" / "model" / "x").stat().st_uid == user


@pytest.mark.docker
def test_a_variable_with_a_line_break_is_refused(job):
    with pytest.raises(InvalidRequest, match="variable A .*line break"):
        job.start("true", variables={"A": "b\nc"})


@pytest.mark.docker
def test_an_image_that_is_not_here_is_refused_with_the_remedy():
    with pytest.raises(InvalidRequest, match="docker pull no-such-image"):
        DockerSite("no-such-image:1")


OWNER = """
import sys, time
from pathlib import Path
from raysm.local.instances.docker import DockerSite
sys.path.insert(0, {repository!r})
from tests.local.instances.test_docker import Job
job = Job(DockerSite({image!r}), Path({root!r}))
one, two = job.start("sleep 600", "sleep 600")
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.docker
def test_nothing_remains_when_the_owner_is_killed(tmp_path):
    code = textwrap.dedent(OWNER).format(
        repository=str(Path(__file__).parents[3]), image=docker.tiny_image(), root=str(tmp_path)
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "started\n"
        assert len(docker.left_behind(owner.pid)) == 3
        owner.kill()
    assert_nothing_left(owner.pid)


@pytest.mark.docker
def test_a_signal_reaches_the_main_process_and_sigkill_too(job):
    one, two = job.start("trap 'exit 4' TERM; echo began; while :; do sleep 0.1; done", WORK)
    for host in ("algo-1", "algo-2"):
        job.wait_for("began", host)
    one.signal(15)
    two.kill()
    assert (one.wait(SOON_S), two.wait(SOON_S)) == (4, 137)
